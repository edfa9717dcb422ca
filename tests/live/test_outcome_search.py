"""Searches and commands with an outcome model, which is asked for finished answers alone."""

import json

import outcome_models
import pytest
import tiny_models

import cats_jax
import search
from cats_jax import world
from cats_jax.cli import run
from cats_jax.errors import BadInputError
from cats_jax.evaluation.rescore import Change, rescore
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.live.searcher import Searcher
from cats_jax.models.huggingface import HuggingFaceGenerator
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.format import OUTCOME, WORLD, bounded
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step
from cats_jax.runs.folder import read_run
from cats_jax.server.offer import Offer
from cats_jax.specs.recipe import PrmSpec, load_recipe

QUESTIONS = ("((50*4)-21)+15=?", "((86-17)*3)+(9*7)=?")
REFUSAL = "reads scores of unfinished paths, and 'outcome' is an outcome model, .* path_score: last"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("outcome")
    model = tiny_models.save_model(root / "sizes", max_position_embeddings=512)
    return outcome_models.save_of_world(root / "outcome", model)


@pytest.fixture(scope="module")
def policy():
    return HuggingFaceGenerator(world.policy_path("weak"), max_step_tokens=32)


class Watched:
    """A scorer that keeps the paths it was asked for."""

    def __init__(self, scorer):
        self._scorer = scorer
        self.asked = []

    def __getattr__(self, name):
        return getattr(self._scorer, name)

    def score(self, questions, paths):
        self.asked += list(zip(questions, paths, strict=True))
        return self._scorer.score(questions, paths)


def searched(policy, scorer, strategy):
    searcher = Searcher(policy=policy, scorer=scorer, strategy=strategy, num_candidates=8)
    return searcher.run([Question(text, text) for text in QUESTIONS])


def test_best_of_n_takes_the_answer_that_transformers_own_classifier_prefers(folder, policy):
    scorer = Watched(HuggingFaceScorer(folder, OUTCOME))
    reference = outcome_models.Reference(folder)
    results = searched(policy, scorer, search.best_of_n(path_score="last"))
    differing = 0
    for result in results:
        answers = [path for path in result.paths if path.answer is not None]
        rewards = [reference.logits(result.question.text, "\n\n".join(p.steps))[0] for p in answers]
        best = answers[max(range(len(answers)), key=rewards.__getitem__)]
        differing += len(set(rewards)) > 1
        assert result.chosen is not None
        assert result.paths[result.chosen] == best
    assert differing
    # One pass for each finished path, and none for what comes before its end.
    finished = sorted((r.question.text, p.steps) for r in results for p in r.paths)
    assert sorted((q.text, tuple(s.text for s in path)) for q, path in scorer.asked) == finished
    assert any(len(steps) > 1 for _, steps in finished)
    for result in results:
        ended = {path.nodes[-1] for path in result.paths}
        assert {each.id for each in result.candidates if each.score is not None} == ended


@pytest.mark.parametrize(
    "strategy",
    [
        search.best_of_n(path_score="last", vote="weighted"),
        search.methods.sequential_best_of_n(path_score="last", stop=0.6),
    ],
    ids=lambda strategy: strategy.name,
)
def test_methods_that_read_the_last_score_answer_as_with_scores_of_all_steps(
    folder, policy, strategy
):
    """What an outcome model would say of prefixes changes nothing."""
    scorer = HuggingFaceScorer(folder, OUTCOME)
    results = searched(policy, scorer, strategy)
    scorer.finished_only = False  # as if it had scores for prefixes
    everywhere = searched(policy, scorer, strategy)
    assert [r.chosen for r in results] == [r.chosen for r in everywhere]
    assert [r.answer for r in results] == [r.answer for r in everywhere]


@pytest.mark.parametrize(
    "strategy",
    [
        search.beam(),
        search.methods.dvts(),
        search.methods.rebase(),
        search.methods.particle_filtering(),
        search.methods.mcts(),
        search.methods.vg_search(path_score="last"),
        search.methods.lookahead(path_score="last"),
        search.methods.speculative_rejection(),
        search.best_of_n(),
        search.methods.sequential_best_of_n(path_score="last", abort=0.1),
        cats_jax.search_method("best_of_n", path_score="last", beam_width=2).strategy,
    ],
    ids=lambda strategy: strategy.name,
)
def test_a_method_that_reads_scores_of_steps_is_refused(folder, policy, strategy):
    class Outcome:
        name, num_parameters = "outcome", 1
        sparsity_total = sparsity_last_layer = 0.0
        finished_only = True
        score = keep_only = None

    with pytest.raises(BadInputError, match=REFUSAL) as caught:
        Searcher(policy=policy, scorer=Outcome(), strategy=strategy, num_candidates=4)
    assert "\n" not in str(caught.value)


# Recipes and commands


def recipe_file(path, folder, strategies):
    content = {
        "name": "outcome",
        "strategies": strategies,
        "num_candidates": [2, 4],
        "prms": [{"path": str(folder), "path_score": "last"}],
        "questions": {"world": "validation", "count": 2},
        "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
        "max_depth": 6,
        "trees": True,
    }
    path.write_text(json.dumps(content))  # which is YAML, too
    return path


def test_a_recipe_with_an_outcome_model_shares_its_paths_and_scores(folder, tmp_path, capsys):
    recipe = recipe_file(tmp_path / "recipe.yaml", folder, ["majority", "best_of_n"])
    assert run(["evaluate", str(recipe), "--dry-run"]) == 0
    assert "format of the PRM 'outcome': auto: outcome" in capsys.readouterr().out
    assert run(["evaluate", str(recipe), "--output", str(tmp_path / "run")]) == 0
    found = read_run(tmp_path / "run")
    assert [spec["format"] for spec in found.manifest["config"]["prms"]] == ["outcome"]
    scorer = HuggingFaceScorer(folder, OUTCOME)
    for row in found.rows:
        for path in found.tree(row).paths:
            if row.prm is None:
                continue
            *before, last = path.step_scores
            assert set(before) <= {None}
            steps = tuple(Step(text, ()) for text in path.steps)
            question = found.tree(row).question
            assert scorer.score([question], [steps]).scores == [pytest.approx(last, abs=1e-6)]
    with pytest.raises(BadInputError, match=r"PRM scored some steps only, as an outcome"):
        rescore(
            found,
            tmp_path / "rescored",
            Change(None, None, PrmSpec(path="exact")),
            BoxedIntegerGrader(),
            HuggingFaceScorer(world.prm_path("exact"), WORLD),
            grader_name="integer",
        )


@pytest.mark.parametrize("options", [["--dry-run"], []])
def test_a_recipe_is_refused_before_a_model_is_loaded(folder, tmp_path, capsys, options):
    recipe = recipe_file(tmp_path / "recipe.yaml", folder, ["best_of_n", "beam"])
    assert run(["evaluate", str(recipe), "--output", str(tmp_path / "run"), *options]) == 2
    error = capsys.readouterr().err
    assert "strategy 'beam' reads scores of unfinished paths, and 'outcome' is an outcome" in error
    assert not (tmp_path / "run").exists()


def test_a_question_is_refused_before_a_model_is_loaded(folder, capsys, monkeypatch):
    monkeypatch.setattr(ModelFolders, "policy", None)
    assert run(["solve", QUESTIONS[0], "--prm", str(folder), "--strategy", "best_of_n"]) == 2
    error = capsys.readouterr().err
    assert "strategy 'best_of_n' reads scores of unfinished paths" in error
    assert "path_score: last" in error


def test_a_server_is_refused_before_a_model_is_loaded(folder, tmp_path):
    recipe = load_recipe(recipe_file(tmp_path / "recipe.yaml", folder, ["beam"]))
    with pytest.raises(BadInputError, match="'beam' reads scores of unfinished paths"):
        Offer(recipe, name="served", max_prompt_characters=99).load(ModelFolders())


def test_score_gives_a_row_one_score(folder, tmp_path, capsys):
    rows = [
        {"question": QUESTIONS[1], "steps": ["86-17=69", "69*3=207"], "scores": "mine", "score": 9},
        {"question": QUESTIONS[1], "steps": ["7", " "]},
    ]
    source, target = tmp_path / "rows.jsonl", tmp_path / "scored.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--input", str(source), "--output", str(target)]
    assert run(["score", "--prm", str(folder), *options]) == 0
    assert "2 rows, 1 without scores" in capsys.readouterr().out
    first, second = (json.loads(line) for line in target.read_text().splitlines())
    (reward,) = outcome_models.Reference(folder).logits(QUESTIONS[1], "86-17=69\n\n69*3=207")
    assert first == {**rows[0], "score": pytest.approx(bounded(reward), abs=1e-5)}
    assert second == {**rows[1], "error": "steps[1]: the step is blank"}


def test_commands_that_need_a_score_for_each_step_are_refused(folder, tmp_path, capsys):
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_text(json.dumps({"question": "1=?", "steps": ["1"], "labels": [1]}) + "\n")
    assert run(["quality", str(labelled), "--prms", str(folder)]) == 2
    bank = tmp_path / "bank.yaml"
    questions = {"world": "validation", "count": 2}
    sampling = [{"temperature": 1.0, "root_draws": 4}]
    content = {"policy": "weak", "prms": [str(folder)], "questions": questions}
    bank.write_text(json.dumps({**content, "sampling": sampling}))
    assert run(["bank", str(bank), "--output", str(tmp_path / "bank")]) == 2
    assert run(["bank", str(bank), "--output", str(tmp_path / "bank"), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.count("is an outcome model, which scores finished answers only, and") == 3
    assert said.count("needs a score for each step: give a PRM") == 3
