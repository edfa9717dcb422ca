"""Rescoring: what a run with the other setting shows, exactly, or nothing."""

import dataclasses
import functools
import json

import made_certificates
import pytest
import scripted

from cats_jax import cli
from cats_jax.errors import BadInputError, RunWarning
from cats_jax.evaluation import evaluate
from cats_jax.evaluation.rescore import Change, rescorable_rows, rescore
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.grading.graders import recorded_grader
from cats_jax.live.abstention import answer_score
from cats_jax.live.compilations import num_compilations
from cats_jax.live.proxies import ScorerProxy
from cats_jax.models.source import ModelFolders
from cats_jax.reporting import run_report
from cats_jax.reporting.certificate_premises import check_premises
from cats_jax.runs.folder import read_run
from cats_jax.runs.merge import merge_runs
from cats_jax.specs.recipe import PrmSpec, parse_recipe
from studies.real import best_of_each_n, path_scores
from theory import estimators

_QUESTIONS = 6
_GRADER = BoxedIntegerGrader()


def _prepared(strategies, prm="good", **changes):
    recipe = parse_recipe(
        {
            "name": "sums",
            "strategies": strategies,
            "num_candidates": [8],
            "prms": [prm],
            "questions": {"world": "test", "count": _QUESTIONS},
            "max_depth": 6,
            "in_flight": 2,
            **changes,
        }
    )
    questions = scripted.question_set(_QUESTIONS)
    return evaluate.prepare(recipe, scripted.ScriptedModels(), questions)


def _run(folder, strategies, **changes):
    evaluation = _prepared(strategies, **changes)
    return evaluate.evaluate(evaluation, scripted.ScriptedModels(), folder)[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    strategies = ["majority", "best_of_n", "beam", "cats_random"]
    return _run(tmp_path_factory.mktemp("run") / "old", strategies)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A run with two PRMs."""
    folder = tmp_path_factory.mktemp("both") / "both"
    return _run(folder, ["majority", "best_of_n"], prms=["good", "bad"])


def _with_another_prm(old, folder, name="bad", change=None, **options):
    prm = PrmSpec(name)
    change = dataclasses.replace(change or Change(), prm=prm)
    scorer = scripted.ScriptedModels().prm(prm)
    return rescore(old, folder, change, _GRADER, scorer, **options).run


def _verdicts(run, strategy):
    rows = [row for row in run.rows if row.strategy == strategy]
    return {
        row.question: (row.prm, row.answer, row.correct, row.covered, row.status, row.ledger.tokens)
        for row in rows
    }


_slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize("path_score", ["last", _slow("mean"), _slow("product")])
def test_another_aggregation_is_the_run_with_it(tmp_path, run, path_score):
    direct = _run(tmp_path / "direct", [{"name": "best_of_n", "path_score": path_score}])
    rescored = rescore(run, tmp_path / "new", Change(path_score), _GRADER)
    assert _verdicts(rescored.run, "best_of_n") == _verdicts(direct, "best_of_n")
    assert set(rescored.left_out) == {"majority", "beam", "cats_random"}
    assert "depends on path scores" in rescored.left_out["beam"]
    others = {row.key: row for row in direct.rows}
    for row in rescored.run.rows:
        ours, theirs = rescored.run.tree(row), direct.tree(others[row.key])
        assert ours.chosen == theirs.chosen
        assert [path.path_score for path in ours.paths] == pytest.approx(
            [path.path_score for path in theirs.paths], abs=1e-6
        )


@pytest.mark.parametrize("strategy", ["best_of_n", _slow("beam")])
def test_another_vote_is_the_run_with_it(tmp_path, run, strategy):
    direct = _run(tmp_path / "direct", [{"name": strategy, "vote": "weighted"}])
    rescored = rescore(run, tmp_path / "new", Change(vote="weighted"), _GRADER)
    assert _verdicts(rescored.run, strategy) == _verdicts(direct, strategy)
    if strategy == "best_of_n":
        assert _verdicts(rescored.run, strategy) != _verdicts(run, strategy)
    assert set(rescored.left_out) == {"majority"}


def _path_scores(run):
    return {
        row.key: [path.path_score for path in run.tree(row).paths]
        for row in run.rows
        if row.prm is not None
    }


def test_the_aggregation_stays_that_of_the_runs_prm(tmp_path):
    prm = {"path": "bad", "path_score": "mean"}
    old = _run(tmp_path / "old", ["best_of_n"], prm=prm)
    voted = rescore(old, tmp_path / "voted", Change(vote="weighted"), _GRADER).run
    direct = _run(tmp_path / "direct", [{"name": "best_of_n", "vote": "weighted"}], prm=prm)
    assert _verdicts(voted, "best_of_n") == _verdicts(direct, "best_of_n")
    assert _path_scores(voted) == {
        key: pytest.approx(scores, abs=1e-6) for key, scores in _path_scores(old).items()
    }


def test_a_change_after_another_one_is_the_run_with_both(tmp_path, run):
    strategy = {"name": "best_of_n", "path_score": "mean", "vote": "weighted"}
    direct = _run(tmp_path / "direct", [strategy])
    first = rescore(run, tmp_path / "first", Change("mean"), _GRADER).run
    second = rescore(first, tmp_path / "second", Change(vote="weighted"), _GRADER).run
    assert _verdicts(second, "best_of_n") == _verdicts(direct, "best_of_n")
    assert _path_scores(second) == _path_scores(first)
    change = second.manifest["config"]["rescored"]
    assert (change["path_score"], change["vote"]) == ("mean", "weighted")


def test_scores_that_a_search_has_filled_in_are_not_in_a_tree(tmp_path):
    """VG-Search gives a step without a score that of the verification before it."""
    old = _run(tmp_path / "old", [{"name": "vg_search", "path_score": "min"}], prm="bad")
    with pytest.raises(BadInputError, match="its votes go by what trees do not hold"):
        rescore(old, tmp_path / "new", Change(vote="weighted"), _GRADER)
    again = rescore(old, tmp_path / "new", Change(), _GRADER)
    assert _verdicts(again.run, "vg_search") == _verdicts(old, "vg_search")


def test_another_prm_is_the_run_with_it(tmp_path, run, both):
    scorer = scripted.ScriptedModels().prm(PrmSpec("bad"))
    scorer.num_parameters = 50
    rescored = rescore(run, tmp_path / "new", Change(prm=PrmSpec("bad")), _GRADER, scorer)
    direct = dataclasses.replace(both, rows=tuple(row for row in both.rows if row.prm == "bad"))
    assert _verdicts(rescored.run, "best_of_n") == _verdicts(direct, "best_of_n")
    others = {row.key: row for row in direct.rows}
    for row in rescored.run.rows:
        other = others[row.key].ledger
        # The direct run's PRM has 5 parameters.
        more = 2.0 * 45 * other.prm_computed
        expected = dataclasses.replace(
            other, flops=other.flops + more, prm_flops=other.prm_flops + more
        )
        assert more > 0
        assert _without_seconds(row.ledger) == _without_seconds(expected)


def test_a_run_and_its_rescoring_with_another_prm_share_one_table(tmp_path, run, both):
    """As if the recipe had both PRMs; a rescoring with another vote has a table of its own."""
    names = {"fingerprint": {"name": "b"}, "grader_name": "integer"}
    scored = _with_another_prm(run, tmp_path / "new", **names)
    voted = rescore(run, tmp_path / "voted", Change(vote="weighted"), _GRADER)
    merged, other = merge_runs([run, scored, voted.run])
    assert other is voted.run
    assert [spec["label"] for spec in merged.manifest["config"]["prms"]] == ["good", "bad"]
    assert merged.manifest["models"]["prm bad"] == {"name": "b"}
    assert {"prm good", "prm bad"} <= set(merged.manifest["asked"])
    answers = {row.key: row.answer for row in merged.rows}
    assert answers.items() >= {row.key: row.answer for row in both.rows}.items()
    assert all(merged.tree(row) is not None for row in merged.rows)
    with pytest.raises(BadInputError, match="/new' was rescored"):
        check_premises("the run", merged.manifest)


def test_failed_rows_have_the_name_of_the_new_prm(tmp_path, run):
    rows = [row for row in run.rows if row.strategy == "best_of_n"]
    failed = dataclasses.replace(rows[0], status="failed", answer=None, correct=False, tree=None)
    broken = dataclasses.replace(run, rows=(failed, *rows[1:]))
    scored = _with_another_prm(broken, tmp_path / "new", grader_name="integer")
    assert [row.prm for row in scored.rows] == ["bad"] * len(rows)
    (merged,) = merge_runs([broken, scored])
    assert len(merged.rows) == 2 * len(rows)


def test_runs_that_were_rescored_alike_share_one_table(tmp_path, run):
    first, second = (
        rescore(run, tmp_path / name, Change(vote="weighted"), _GRADER).run
        for name in ("first", "second")
    )
    fewer = dataclasses.replace(second, rows=second.rows[:3])
    change = {**second.manifest["config"]["rescored"], "from": "other", "rows": 3}
    config = {**second.manifest["config"], "rescored": change}
    fewer = dataclasses.replace(fewer, manifest={**second.manifest, "config": config})
    assert len(merge_runs([first, fewer])) == 1


@pytest.mark.parametrize("older", [False, True])
def test_a_rescoring_that_changed_more_or_does_not_name_its_prm_stays_apart(tmp_path, run, older):
    change = None if older else Change("last")
    scored = _with_another_prm(run, tmp_path / "new", change=change, grader_name="integer")
    if older:  # its manifest has the PRMs of the run
        config = {**scored.manifest["config"], "prms": run.manifest["config"]["prms"]}
        scored = dataclasses.replace(scored, manifest={**scored.manifest, "config": config})
    assert len(merge_runs([run, scored])) == 2


def test_a_prm_that_cannot_read_all_paths_drops_them(tmp_path, run):
    direct = _run(tmp_path / "direct", ["best_of_n"], prm="short")
    assert any(row.ledger.prm_refused for row in direct.rows)
    rescored = _with_another_prm(run, tmp_path / "new", "short")
    others = {row.key: row for row in direct.rows}
    for row in rescored.rows:
        other, tree = others[row.key], rescored.tree(row)
        if not (row.ledger.prm_refused or other.ledger.prm_refused):
            ours, theirs = ((one.answer, one.correct, one.status) for one in (row, other))
            assert ours == theirs
        refused = {c.id for c in tree.candidates if c.invalid == "prm context"}
        assert bool(refused) == bool(row.ledger.prm_refused)
        assert all(refused.isdisjoint(path.nodes) for path in tree.paths)
        best = max(tree.paths, key=lambda path: path.path_score or 0.0, default=None)
        assert row.answer == (None if best is None else best.answer)
    assert any(row.ledger.prm_refused for row in rescored.rows)
    assert not all(row.ledger.prm_refused for row in rescored.rows)
    # Its own paths are no basis for another PRM, which might have read them.
    with pytest.raises(BadInputError, match="PRM short could not read some paths"):
        _with_another_prm(direct, tmp_path / "back", "good")


@pytest.mark.slow
def test_another_prm_of_the_world_costs_what_a_run_with_it_costs(tmp_path):
    """Tokens that equal paths share are computed once, in the run and afterwards."""
    content = {
        "name": "world",
        "strategies": ["best_of_n"],
        "num_candidates": [8],
        "questions": {"world": "validation", "count": 3},
        "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
    }
    models = ModelFolders()
    old, direct = (
        evaluate.evaluate(evaluate.prepare(recipe, models), models, tmp_path / name)[0]
        for name in ("exact", "labels-only")
        for recipe in [parse_recipe({**content, "prms": [name]})]
    )
    prm = PrmSpec("labels-only")
    scorer = models.prm(prm)
    rescored = rescore(old, tmp_path / "new", Change(prm=prm), _GRADER, scorer)
    ours, theirs = (
        {row.key: (row.answer, row.status, _without_seconds(row.ledger)) for row in one.rows}
        for one in (rescored.run, direct)
    )
    assert ours == theirs


def test_calibrated_scores_are_not_in_a_tree(tmp_path):
    """A vote by raw scores would not be the one of a run: the choice stays, or is left out."""
    calibrated = {"name": "beam", "path_score": "product", "vote": "weighted", "calibrated": True}
    file = tmp_path / "calibration.json"
    numbers = {"intercept": 2.0, "slope": -3.0, "agreement": 0.0, "cross_entropy": 0.1}
    file.write_text(json.dumps({"prms": {"good": numbers}}))
    old = _run(tmp_path / "old", [calibrated], calibration=str(file))
    with pytest.raises(BadInputError, match="its votes go by what trees do not hold"):
        rescore(old, tmp_path / "new", Change(vote="best"), _GRADER)
    again = rescore(old, tmp_path / "new", Change(), _GRADER)
    assert _verdicts(again.run, "beam") == _verdicts(old, "beam")


def test_runs_without_the_prms_flops_are_not_given_another_prm(tmp_path, run):
    rows = [
        dataclasses.replace(row, ledger=dataclasses.replace(row.ledger, prm_flops=0.0))
        for row in run.rows
    ]
    old = dataclasses.replace(run, rows=tuple(rows))
    with pytest.raises(BadInputError, match="of an earlier version"):
        _with_another_prm(old, tmp_path / "new")


def _without_seconds(ledger):
    return {name: v for name, v in ledger.as_dict().items() if not name.endswith("_seconds")}


class _Parity(BoxedIntegerGrader):
    """Takes all odd answers for one, and all even ones."""

    def equivalent(self, first, second):
        return int(first) % 2 == int(second) % 2


def test_another_grader(tmp_path, run):
    compiled = num_compilations()
    rescored = rescore(run, tmp_path / "new", Change(), _Parity())
    # At most 8 paths of 6 steps, both padded to 4 or 8, by four methods.
    assert num_compilations() - compiled <= 4 * 2 * 2
    assert not rescored.left_out
    assert len(rescored.run.rows) == len(run.rows)
    old = {row.key: row for row in run.rows}
    for row in rescored.run.rows:
        assert row.correct == (row.answer is not None and int(row.answer) % 2 == int(row.gold) % 2)
        if row.strategy != "majority":
            assert row.answer == old[row.key].answer
    assert sum(row.correct for row in rescored.run.rows) > sum(row.correct for row in run.rows)


def test_a_rescored_run_is_read_with_its_new_grader(tmp_path, run, monkeypatch):
    """Also by a second `rescore`; a grader of one's own has no name to be found by."""
    monkeypatch.setattr(run_report, "write_overview", lambda run: [])  # figures take seconds
    assert recorded_grader(run.manifest["config"]) == "integer"
    folders = [str(run.folder), str(tmp_path / "new"), str(tmp_path / "newer")]
    assert cli.run(["rescore", folders[0], "--output", folders[1], "--grader", "math"]) == 0
    assert cli.run(["rescore", folders[1], "--output", folders[2], "--vote", "weighted"]) == 0
    for folder in folders[1:]:
        config = read_run(folder).manifest["config"]
        assert config["rescored"]["grader"] == recorded_grader(config) == "math"
    own = rescore(run, tmp_path / "own", Change(), _Parity()).run.manifest["config"]
    assert recorded_grader(own) == "integer"


def test_it_goes_on_where_it_stopped(tmp_path, run):
    first = rescore(run, tmp_path / "new", Change(vote="weighted"), _GRADER)
    again = rescore(run, tmp_path / "new", Change(vote="weighted"), _GRADER)
    assert again.run.rows == first.run.rows
    with pytest.raises(BadInputError, match=r"config\.rescored\.vote"):
        rescore(run, tmp_path / "new", Change(vote="majority"), _GRADER)


def test_what_cannot_be_rescored(tmp_path, run):
    with pytest.raises(BadInputError, match="another folder"):
        rescore(run, run.folder, Change("last"), _GRADER)
    rows = tuple(dataclasses.replace(row, tree=None) for row in run.rows)
    bare = dataclasses.replace(run, rows=rows)
    with pytest.raises(BadInputError, match="rows without a tree"):
        rescore(bare, tmp_path / "new", Change(vote="weighted"), _GRADER)
    assert not (tmp_path / "new").exists()


def test_a_run_of_several_prms_is_refused_with_the_way_out(tmp_path, run):
    others = [dataclasses.replace(row, prm="bad") for row in run.rows if row.prm is not None]
    both = dataclasses.replace(run, rows=(*run.rows, *others))
    with pytest.raises(BadInputError, match=r"several PRMs \(bad, good\).* --prms bad --output"):
        rescorable_rows(both, tmp_path / "new", Change(prm=PrmSpec("exact")))
    assert rescorable_rows(both, tmp_path / "new", Change(vote="majority"))[0]


def test_the_prm_is_loaded_after_all_checks(tmp_path, run):
    change, models = Change(prm=PrmSpec("bad")), scripted.ScriptedModels()
    (tmp_path / "file").touch()
    rescore(run, tmp_path / "other", Change(vote="weighted"), _GRADER)
    for folder, message in (
        (run.folder, "another folder"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "other", "has results of other settings"),
    ):
        with pytest.raises(BadInputError, match=message):
            rescore(run, folder, change, _GRADER, models=models)
    assert not models.loaded
    late = rescore(run, tmp_path / "late", change, _GRADER, models=models).run
    early = _with_another_prm(run, tmp_path / "early")
    assert late.manifest["models"]["prm bad"] == models.fingerprint(change.prm)
    assert _verdicts(late, "best_of_n") == _verdicts(early, "best_of_n")


def test_a_row_keeps_the_reason_of_its_limit(tmp_path):
    old = _run(tmp_path / "old", [{"name": "beam", "beam_width": 2}], budget=20)
    reasons = {row.key: (row.status, row.reason) for row in old.rows}
    assert ("budget", "budget of 20 candidates spent") in reasons.values()
    new = rescore(old, tmp_path / "new", Change(vote="weighted"), _GRADER).run
    assert {row.key: (row.status, row.reason) for row in new.rows} == reasons
    old = _run(tmp_path / "short", ["best_of_n"], budget=8)
    assert {row.reason for row in old.rows} == {"budget of 8 candidates spent"}
    new = _with_another_prm(old, tmp_path / "other")
    assert {row.reason for row in new.rows} == {"budget of 8 candidates spent"}


def test_a_limit_that_includes_the_prms_part_ends_elsewhere_with_another_prm(tmp_path):
    old = _run(tmp_path / "old", ["best_of_n"], max_tokens=60)
    with pytest.raises(BadInputError, match="the run has max_tokens, which includes the PRM's"):
        _with_another_prm(old, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert rescore(old, tmp_path / "new", Change(vote="weighted"), _GRADER).run.rows


def test_failed_rows_have_the_cost_of_the_new_prm(tmp_path, run):
    rows = [row for row in run.rows if row.strategy == "best_of_n"]
    failed = dataclasses.replace(rows[0], status="failed", answer=None, correct=False)
    broken = dataclasses.replace(run, rows=(failed, *rows[1:]))
    first = _with_another_prm(broken, tmp_path / "new").rows
    (row,) = [row for row in first if row.status == "failed"]
    others = _with_another_prm(run, tmp_path / "whole").rows
    (whole,) = [other for other in others if other.question == failed.question]
    assert row.ledger == whole.ledger
    assert row.answer is None


def test_a_certified_strategy_abstains_as_in_its_run(tmp_path):
    """Below the threshold of the old certificate, on the new scores."""
    plain = _run(tmp_path / "plain", [{"name": "beam", "beam_width": 2}])
    scores = [answer_score(plain.tree(row)) for row in plain.rows]
    file = tmp_path / "c.json"
    made_certificates.write_certificate(file, scripted.ScriptedModels())
    content = json.loads(file.read_text())
    content["configurations"][content["chosen"]]["threshold"] = sorted(scores)[_QUESTIONS // 2]
    file.write_text(json.dumps(content))
    old = _run(tmp_path / "old", [{"certified": str(file), "elsewhere": True}])
    abstained = [row.question for row in old.rows if row.reason.startswith("abstains")]
    assert 0 < len(abstained) < _QUESTIONS
    for change, grader in ((Change(), _Parity()), (Change(vote="best"), _GRADER)):
        name = f"new-{change.vote}"
        new = rescore(old, tmp_path / name, change, grader).run
        assert [row.question for row in new.rows if row.answer is None] == abstained
        assert [row.reason for row in new.rows] == [row.reason for row in old.rows]


def test_a_narrow_search_depends_on_its_scores(tmp_path, run):
    """Best-of-N that keeps 2 of 8 first steps would keep others by another path score."""
    manifest = _prepared([{"name": "best_of_n", "beam_width": 2}]).manifest
    old = dataclasses.replace(
        run,
        manifest=json.loads(json.dumps(manifest)),
        rows=tuple(row for row in run.rows if row.strategy == "best_of_n"),
    )
    with pytest.raises(BadInputError, match="its search depends on path scores"):
        rescore(old, tmp_path / "new", Change("last"), _GRADER)


def test_the_command(capsys, tmp_path, run, monkeypatch):
    monkeypatch.setattr(run_report, "write_overview", lambda run: [])
    new = tmp_path / "new"
    arguments = ["rescore", str(run.folder), "--output", str(new), "--vote", "weighted"]
    assert cli.run(arguments) == 0
    output = capsys.readouterr().out
    assert "left out: majority (it has one way to choose)" in output
    assert len(read_run(new).rows) == 3 * _QUESTIONS
    assert cli.run(["rescore", str(run.folder)]) == 2
    assert "say what to change" in capsys.readouterr().err
    for option in (("--prm-label", "x"), ("--prm-head", "h"), ("--dtype", "bfloat16")):
        assert cli.run([*arguments, *option]) == 2
        assert f"{option[0]}: is for the PRM that scores" in capsys.readouterr().err


def test_a_rescored_run_keeps_what_calibrations_saw_and_no_guarantee(tmp_path, run):
    notes = ["majority: guarantee: accuracy above 0.5 (c.json)", "a plain note"]
    manifest = {**run.manifest, "fitted_on": 2, "notes": notes}
    changed = dataclasses.replace(run, manifest=manifest)
    found = rescore(changed, tmp_path / "new", Change(vote="weighted"), _GRADER).run
    assert found.manifest["fitted_on"] == 2
    assert list(found.notes) == ["a plain note"]


@pytest.mark.parametrize(
    ("where", "entry", "message"),
    [
        ("strategies", {"certified": {"threshold": "0.5"}}, "'threshold' must be a number from 0"),
        ("strategies", {"certified": {"path_score": "best"}}, "'path_score' must be one of min"),
        ("prms", {"path_score": ["min"]}, "'path_score' must be one of min"),
    ],
)
def test_a_damaged_manifest_is_named(tmp_path, run, where, entry, message):
    config = {**run.manifest["config"]}
    config[where] = [{**each, **entry} for each in config[where]]
    changed = dataclasses.replace(run, manifest={**run.manifest, "config": config})
    with pytest.raises(BadInputError, match=f"manifest.json.*{message}"):
        rescore(changed, tmp_path / "new", Change(vote="weighted"), _GRADER)


def test_the_best_of_all_paths_is_the_answer_of_the_run(run):
    scores, correct = best_of_each_n.path_outcomes(run.folder)
    assert scores.shape == correct.shape == (_QUESTIONS, 8)
    best = estimators.best_at_k(scores, correct, 8)
    assert best.tolist() == [row.correct for row in run.rows if row.strategy == "best_of_n"]
    assert 0 < correct.mean() < 1


def test_the_paths_of_several_prms_are_not_pooled(both):
    with pytest.raises(BadInputError, match="needs rows of one PRM and one seed"):
        best_of_each_n.path_outcomes(both.folder)
    with pytest.raises(BadInputError, match="one PRM and one seed"):
        list(path_scores.scored_paths(both.folder))


class Counting(ScorerProxy):
    """Counts the paths that a PRM scores in .25 s each, and the questions that it forgets."""

    def __init__(self, name, note=None):
        super().__init__(scripted.ScriptedModels().prm(PrmSpec(name)))
        self.scored = self.forgotten = 0
        self.note = note

    def score(self, questions, paths):
        self.scored += len(paths)
        seconds = [0.25] * len(paths)
        made = self._model.score(questions, paths)
        return dataclasses.replace(made, inside_seconds=sum(seconds), seconds=seconds)

    def keep_only(self, question, paths):
        self.forgotten += not paths
        super().keep_only(question, paths)


def test_rows_of_other_seeds_share_no_scores(tmp_path):
    """They have other paths, and a PRM that keeps the last row's is too cheap."""
    run = _run(tmp_path / "old", ["best_of_n"], seeds=[0, 1])
    change, scorer = Change(prm=PrmSpec("bad")), Counting("bad", "two critiques: no verdict")
    with pytest.warns(RunWarning, match="two critiques"):
        rescore(run, tmp_path / "new", change, _GRADER, scorer)
    nodes = sum(c.score is not None for row in run.rows for c in run.tree(row).candidates)
    assert (scorer.scored, scorer.forgotten) == (nodes, len(run.rows))


def test_the_prm_scores_each_path_once(tmp_path):
    """Votes and smaller N read the scores of the largest N, at the cost of a run with the PRM."""
    changes = {"strategies": ["best_of_n", "best_of_n_weighted"], "num_candidates": [5, 8]}
    run = _run(tmp_path / "old", **changes)
    direct = _run(tmp_path / "direct", prm="bad", **changes)
    change, scorer = Change(prm=PrmSpec("bad")), Counting("bad")
    rescored = rescore(run, tmp_path / "new", change, _GRADER, scorer)
    largest = [row for row in run.rows if (row.strategy, row.num_candidates) == ("best_of_n", 8)]
    nodes = sum(c.score is not None for row in largest for c in run.tree(row).candidates)
    assert scorer.scored == nodes
    for row in rescored.run.rows:
        steps = sum(each.score is not None for each in rescored.run.tree(row).candidates)
        assert row.ledger.prm_seconds == 0.25 * steps > 0
    ours, theirs = (
        {row.key: (row.answer, _without_seconds(row.ledger)) for row in one.rows}
        for one in (rescored.run, direct)
    )
    assert ours == theirs
    assert [row.key for row in rescored.run.rows] == [row.key for row in direct.rows]
