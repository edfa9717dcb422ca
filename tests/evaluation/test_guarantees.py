"""Use of a certificate: what a recipe's entry becomes, and where it is refused."""

import json
import pathlib
import re

import made_certificates
import made_runs
import pytest
import scripted
import tiny_models

from cats_jax.datasets import load_questions, loading
from cats_jax.datasets.digests import text_digest
from cats_jax.errors import BadInputError
from cats_jax.evaluation.evaluate import prepare
from cats_jax.evaluation.runners import largest_work
from cats_jax.live.results import SearchResult
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question
from cats_jax.runs.folder import RunWriter, read_run
from cats_jax.server.offer import Offer
from cats_jax.server.replies import details
from cats_jax.server.requests import parse_request
from cats_jax.specs.calibrations import IDENTITY, load_calibrations
from cats_jax.specs.certificates import read_certificate
from cats_jax.specs.recipe import parse_recipe, parse_strategy

POLICY = {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    return made_certificates.write_certificate(
        folder / "certificate.json", scripted.ScriptedModels()
    )


@pytest.fixture
def content(certificate):
    """What its file holds."""
    return json.loads(pathlib.Path(certificate).read_text())


def written(folder, content):
    path = folder / "changed.json"
    path.write_text(json.dumps(content))
    return str(path)


class Moved(scripted.ScriptedModels):
    """Models of which the policy has another fingerprint."""

    def __init__(self, of_policy):
        super().__init__()
        self.of_policy = of_policy

    def fingerprint(self, spec):
        return self.of_policy if spec.path == "weak" else super().fingerprint(spec)


def recipe(certificate, elsewhere=False, label="certified", **changes):
    entry = {"certified": certificate, "elsewhere": elsewhere, "label": label}
    content = {
        "name": "use",
        "policy": POLICY,
        "prms": ["sparse", "exact"],
        "strategies": [entry],
        "questions": {"world": "test", "count": 3, "seed": 7},
        **changes,
    }
    return parse_recipe(content)


def prepared(*arguments, **changes):
    return prepare(recipe(*arguments, **changes), scripted.ScriptedModels())


def test_a_recipe_gets_the_certified_strategy(certificate):
    evaluation = prepared(certificate)
    (cell,) = evaluation.cells
    assert (cell.spec.name, dict(cell.spec.options)) == ("beam", {"beam_width": 2})
    assert (cell.num_candidates, cell.title) == (8, "certified N=8 exact seed 0")
    # The calibration comes with the strategy.
    assert cell.calibration == dict(load_calibrations("weak"))["exact"] != IDENTITY
    (line,) = evaluation.guarantees
    assert line.startswith(
        "certified: guarantee: accuracy above 0.6 with probability 0.95 on questions like those of "
        "world-test ("
    )
    assert list(evaluation.manifest["notes"]) == [line]
    assert largest_work(evaluation.recipe, evaluation.cells).paths == 8
    # Beside others with values of N of their own.
    both = prepared(certificate, strategies=["majority", {"certified": certificate}],
                    num_candidates=[2, 4])  # fmt: skip
    titles = [cell.title for cell in both.cells]
    assert titles == ["majority N=4 seed 0", "majority N=2 seed 0", "certified N=8 exact seed 0"]
    # A PRM's label may be another where it is the only one.
    (cell,) = prepared(certificate, prms=[{"path": "exact", "label": "judge"}]).cells
    assert cell.prm is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy": {**POLICY, "path": "strong"}}, "the policy is 'strong', not 'weak'"),
        ({"policy": {**POLICY, "max_step_tokens": 16}}, "settings.max_step_tokens: 32 -> 16"),
        ({"prms": ["sparse"]}, "the PRM is 'sparse', not 'exact'"),
        ({"max_depth": 4}, "limits.max_depth: 10 -> 4"),
        ({"budget": 40}, "limits.budget: null -> 40"),
        (
            {"questions": {"world": "controller", "count": 3}},
            "the data set is world controller, not world test",
        ),
    ],
)
def test_other_terms_are_refused_or_said(certificate, changes, said):
    with pytest.raises(BadInputError, match=f"says nothing here: .*{re.escape(said)}.*elsewhere"):
        prepared(certificate, **changes)
    evaluation = prepared(certificate, True, **changes)
    (cell,) = evaluation.cells
    # The label stands in every row.
    assert cell.spec.label == "certified (no guarantee)"
    (line,) = evaluation.guarantees
    assert line.startswith("certified: no guarantee by '")
    assert said in line
    assert list(evaluation.manifest["notes"]) == [line]


def test_several_prms_need_the_certified_label(certificate):
    with pytest.raises(BadInputError, match="about the PRM 'exact', which is none of the recipe"):
        prepared(certificate, prms=["sparse", "pruned-50"])


def test_models_are_known_by_their_files(tmp_path, content):
    def certified_with(files):
        content["models"]["policy"] = {"name": "weak", "sha256": files}
        moved = Moved({"name": "moved", "sha256": {"w": "1"}})
        return prepare(recipe(written(tmp_path, content)), moved)

    assert certified_with({"w": "1"}).guarantees[0].startswith("certified: guarantee")
    with pytest.raises(BadInputError, match="the policy is 'moved', not 'weak'"):
        certified_with({"w": "2"})


def test_an_entry_is_a_certificate_alone(tmp_path, certificate, content):
    def refused(entry, message):
        with pytest.raises(BadInputError, match=message):
            parse_strategy(entry)

    refused({"certified": certificate, "beam_width": 3}, "'beam_width' beside 'certified'")
    refused({"certified": 3}, "certified=3: must be a name or a path")
    refused({"certified": certificate, "elsewhere": "yes"}, "elsewhere='yes': must be true")
    refused({"certified": str(tmp_path / "no.json")}, "no such file: `cats-jax certify RUN")
    for changes, message in (
        ({"kind": "calibration"}, "is not a certificate of this version .'kind' must be"),
        ({"chosen": None}, "certifies no configuration"),
        ({"config": {}}, "'config.policy' is missing"),
        ({"configurations": [{}]}, "make it anew"),
    ):
        refused({"certified": written(tmp_path, {**content, **changes})}, message)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"models": {"policy": 5}}, "'models' must be a mapping of names to values that are each"),
        ({"strategies": 5}, "'config.strategies' must be"),
        ({"options": 5}, "'strategies: options' must be a list of pairs"),
        ({"chosen": 99}, "'chosen' is 99, and there are 4"),
        ({"configurations": [], "chosen": None}, "certifies no configuration"),
        ({"calibration": [["exact", [0.0] * 7]]}, "a list of 1 to 6 finite numbers"),
        ({"calibration": [["exact", [float("nan")]]]}, "a list of 1 to 6 finite numbers"),
        ({"delta": 7}, "'delta' must be a number between 0 and 1"),
        ({"threshold": 1e30}, "threshold' must be a number from 0 to 1 or null"),
        ({"num_candidates": 1000}, "N must be an integer from 1 to 256"),
        ({"asked": {"policy": 5}}, "'asked' must be a mapping of names"),
        ({"asked": {"policy": {"files": 5}}}, "a mapping, in which files is one"),
    ],
)
def test_a_damaged_certificate_is_one_line(tmp_path, content, change, said):
    chosen = content["configurations"][content["chosen"]]
    chosen.setdefault("threshold", None)
    for name, value in change.items():
        places = [content, content["config"], chosen]
        place = next((place for place in places if name in place), None)
        if place is None or name == "options":
            place = next(each for each in content["config"]["strategies"]
                         if each["label"] == chosen["strategy"])  # fmt: skip
        place[name] = value
    path = written(tmp_path, content)
    with pytest.raises(BadInputError, match=said) as caught:
        prepared(path)
    assert "\n" not in str(caught.value)
    assert f"certificate {path!r}" in str(caught.value)


def test_a_server_says_which_guarantee_an_answer_is_under(certificate):
    def offer(**changes):
        found = Offer(recipe(certificate, **changes), name="m", max_prompt_characters=100)
        found.load(scripted.ScriptedModels())
        return found

    def settings(found, messages=(), **more):
        messages = [*messages, {"role": "user", "content": "1+2"}]
        body = json.dumps({"model": "m", "messages": messages, **more}).encode()
        return found.settings(parse_request(body, ()).request)

    found = offer(prms=["exact"])
    assert found.max_candidates == 8
    asked = settings(found)
    assert asked.num_candidates == 8
    assert asked.guarantee is not None
    assert asked.guarantee.holds
    assert asked.guarantee.line.endswith(f"world-test, if the question is one of them "
                                         f"({certificate})")  # fmt: skip
    shown = asked.guarantee.as_dict()
    assert (shown["claim"], shown["probability"]) == ("accuracy above 0.6", 0.95)
    system = [{"role": "system", "content": "Be brief."}]
    for changed, said in (
        (settings(found, num_candidates=4), "the request's num_candidates is 4, not 8"),
        (settings(found, budget=9), "the request's budget is 9, not None"),
        (settings(found, system), "the request has a system message"),
    ):
        assert changed.guarantee is not None
        assert changed.guarantee.broken == (said,)
    with pytest.raises(BadInputError, match="the policy is 'strong', not 'weak'"):
        offer(prms=["exact"], policy={**POLICY, "path": "strong"})
    plain = offer(prms=["exact"], strategies=["majority"], num_candidates=[2])
    assert settings(plain).guarantee is None
    result = scripted_result()
    assert details(result, asked, ())["guarantee"] == shown
    assert details(result, settings(plain), ())["guarantee"] is None


def test_a_server_knows_a_folder_of_which_the_format_is_auto(tmp_path):
    policy = {**POLICY, "path": str(tiny_models.save_model(tmp_path / "tiny"))}
    file = made_certificates.write_certificate(tmp_path / "c.json", ModelFolders(), policy=policy)
    content = json.loads((tmp_path / "c.json").read_text())
    assert content["config"]["policy"]["format"] != "auto"
    served = recipe(file, policy=policy, prms=["exact"])
    found = Offer(served, name="m", max_prompt_characters=100)
    assert found.load(ModelFolders()).warnings == ()


def test_tokenizers_formats_and_contexts_are_a_part(tmp_path):
    folder = tiny_models.save_model(tmp_path / "tiny")
    form = tmp_path / "mine.yaml"
    form.write_text('prompt: "{question}"\n')
    policy = {**POLICY, "path": str(folder), "format": str(form)}
    models = scripted.ScriptedModels()
    file = made_certificates.write_certificate(tmp_path / "c.json", models, policy=policy)

    def broken(**changes):
        (found,) = prepared(file, True, policy={**policy, **changes}, prms=["exact"]).guarantees
        return found.partition("no guarantee by ")[2]

    assert not broken()
    moved = tmp_path / "moved.yaml"
    moved.write_text(form.read_text())
    assert not broken(format=str(moved))
    moved.write_text(form.read_text() + "# another\n")
    assert broken(format=str(moved)).endswith("the policy's format file is another one")
    with (folder / "tokenizer_config.json").open("a") as stream:
        stream.write("\n")
    (folder / "generation_config.json").write_text("{}")
    assert broken().endswith(
        ": the policy's generation_config.json is another one; "
        "the policy's tokenizer_config.json is another one"
    )


_REWRITES = 'prompt: "{answer}{critique}{question}"\ncritique: "%s"\n'
_COMPARES = 'prompt: "{answers}{question}"\nchoice: "%s"\n'


@pytest.mark.parametrize(
    ("name", "kind", "text", "values", "key"),
    [
        ("mctsr", "rewriting", _REWRITES, ("{question}{answer}", "{answer}{question}"), "critique"),
        ("gen_select", "comparison", _COMPARES, ("Best:", "Judgment:"), "choice"),
    ],
)
def test_the_prompts_of_rewrites_are_a_part(tmp_path, name, kind, text, values, key):
    own = tmp_path / "own.yaml"
    own.write_text(text % values[0])
    option = {"name": name, kind: str(own), "label": "two"}
    file = made_certificates.write_certificate(
        tmp_path / "c.json", scripted.ScriptedModels(), strategies=["majority", option]
    )

    def offer():
        return Offer(recipe(file, prms=["exact"]), name="m", max_prompt_characters=100)

    served = offer()
    served.load(scripted.ScriptedModels())
    own.write_text(text % values[1])
    served.load(scripted.ScriptedModels())  # searches use what was read first
    with pytest.raises(BadInputError, match=f"the {kind}'s {key} is another one"):
        offer().load(scripted.ScriptedModels())
    evaluation = prepared(file, True)
    (line,) = evaluation.guarantees
    assert line.endswith(f": the {kind}'s {key} is another one")
    # The bounds on costs and the next certificate look for the label of the rows.
    (cell,) = evaluation.cells
    assert cell.spec.label == "certified (no guarantee)"
    for entry in ("asked", "formats"):
        assert f"{kind} certified (no guarantee)" in evaluation.manifest[entry]


def test_what_an_earlier_version_did_not_keep(tmp_path, content):
    old = {key: value for key, value in content.items() if key != "asked"}
    with pytest.raises(BadInputError, match=r"keeps no digests of tokenizers.*: evaluate again"):
        prepared(written(tmp_path, old))
    content["config"]["policy"]["engine_args"] = {"seed": 3}
    content["asked"]["policy"]["max_model_len"] = 64
    (line,) = prepared(written(tmp_path, content), True).guarantees
    assert "policy settings.engine_args: " in line
    assert line.endswith("policy settings.max_model_len: 64 -> null")


def test_a_data_file_is_its_content_and_columns(tmp_path):
    def data(name, first="0+2", **changes):
        rows = [{"text": first if i == 0 else f"{i}+2", "answer": i + 2} for i in range(40)]
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
        return {"file": str(tmp_path / name), "question_column": "text", **changes}

    models = scripted.ScriptedModels()
    file = made_certificates.write_certificate(
        tmp_path / "c.json", models, questions=data("a.jsonl")
    )

    def line(questions):
        return prepared(file, True, questions=questions).guarantees[0]

    assert line(data("a.jsonl", start=5)).startswith("certified: guarantee")
    (tmp_path / "other").mkdir()
    assert line(data("other/a.jsonl", "1 + 2")).endswith(
        "the data set is file a.jsonl, question_column text, answer_column answer with another "
        "content"
    )


def test_a_data_set_on_the_hub_is_all_its_rows(tmp_path, monkeypatch):
    rows = [{"question": f"{i}+2", "answer": f"so it is\n#### {i + 2}"} for i in range(41)]

    def published(rows):
        places = [(f"row {i}", row) for i, row in enumerate(rows)]
        monkeypatch.setattr(loading, "hub_rows", lambda published, split: places)

    published(rows)
    models, questions = scripted.ScriptedModels(), {"dataset": "gsm8k", "count": 40}
    file = made_certificates.write_certificate(tmp_path / "c.json", models, questions=questions)

    def line():
        changed = {"dataset": "gsm8k", "start": 1, "count": 3}
        return prepared(file, True, questions=changed).guarantees[0]

    assert line().startswith("certified: guarantee")
    # Another row counts, even one that is not selected.
    published([*rows[:-1], {"question": "9+9", "answer": "so it is\n#### 18"}])
    assert line().endswith("the data set is dataset gsm8k with another content")
    # A certificate without the digest is none for the data set of that name.
    content = json.loads((tmp_path / "c.json").read_text())
    del content["contents"]
    (tmp_path / "c.json").write_text(json.dumps(content))
    published(rows)
    assert line().endswith("with another content")


def test_a_function_is_known_by_its_name(tmp_path, content):
    content["models"]["policy"] = mine = {"function": "my:policy"}
    (line,) = prepare(recipe(written(tmp_path, content)), Moved(mine)).guarantees
    assert line.endswith("; my:policy is a function, known by its name only")


def test_spent_questions_do_not_certify_again(tmp_path):
    models = scripted.ScriptedModels()
    values = {"intercept": 0.5, "slope": 1.0, "agreement": 0.0}
    other = load_questions(recipe("", strategies=["majority"], num_candidates=[1]).questions)
    texts = [text_digest(item.text) for item in other.questions]
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"prms": {"exact": values}, "texts": texts[:2]}))
    first, second = tmp_path / "c.json", tmp_path / "d.json"
    file = made_certificates.write_certificate(first, models, calibration=str(path))
    # What fitted the calibration of a certified strategy.
    manifest = prepared(file).manifest
    assert (manifest["fitted_on"], manifest["chosen_on"]) == (2, 0)
    json.dumps(manifest)
    again = {"strategies": [{"certified": file, "label": "two"}]}
    with pytest.raises(BadInputError, match="chosen on 40 of the questions"):
        made_certificates.write_certificate(tmp_path / "no.json", models, **again)
    # A certificate's certificate knows what chose the first.
    fresh = {"world": "test", "count": 40, "seed": 3}
    content = json.loads(first.read_text())
    content["configurations"][content["chosen"]]["threshold"] = 0.3
    first.write_text(json.dumps(content))
    again["calibration"] = "none"
    file = made_certificates.write_certificate(second, models, questions=fresh, **again)
    chosen = made_certificates.CERTIFIED["questions"]
    assert prepared(file, questions=chosen).manifest["chosen_on"] == 40
    # It searches and answers as the first.
    made = [read_certificate(str(each))[1] for each in (first, second)]
    assert [each.threshold for each in made] == [0.3, 0.3]
    assert made[0].calibration == made[1].calibration == (0.5, 1.0, 0.0, *IDENTITY[3:])


def test_a_continued_run_learns_what_its_questions_did(tmp_path):
    row = made_runs.row()
    made_runs.write_run(tmp_path / "run", [row])
    known = {"texts": ["a"], "fitted_on": 1, "chosen_on": 0}
    RunWriter(tmp_path / "run", {**made_runs.manifest(), **known}).close()
    assert {name: read_run(tmp_path / "run").manifest[name] for name in known} == known


def scripted_result():
    return SearchResult(Question("q", "1+2"), None, None, "no_answer", "", 1, [], [])


def test_what_a_calibration_was_fitted_on_does_not_certify(tmp_path):
    asked = parse_recipe(made_certificates.CERTIFIED)
    texts = [text_digest(item.text) for item in load_questions(asked.questions).questions]
    values = {"intercept": 0.0, "slope": 1.0, "agreement": 0.0}
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"prms": {"exact": values}, "texts": texts[:3]}))
    with pytest.raises(BadInputError, match="calibration was fitted on 3 of the questions"):
        made_certificates.write_certificate(
            tmp_path / "c.json", scripted.ScriptedModels(), calibration=str(path)
        )
    with pytest.raises(BadInputError, match="unknown key 'fitted_on'"):
        parse_recipe({**made_certificates.CERTIFIED, "fitted_on": []})
