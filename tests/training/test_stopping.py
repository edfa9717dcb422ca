"""Training of stoppers by the command: the comparison by hand, a small run, what is refused."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest
from toy_bank import toy_bank

import learners
import search
from cats_jax.controllers.stopper import load_stopper
from cats_jax.errors import BadInputError
from cats_jax.training import stopping
from cats_jax.training.options import TrainingOptions
from cats_jax.training.questions import TrainingQuestions
from cats_jax.training.train import run
from search import bank as search_bank


def _recorded(answers, scores):
    answer = jnp.asarray(answers, jnp.int32)
    valid = jnp.ones(answer.shape, bool)
    found = search.stopping.Answers(valid, answer, jnp.asarray(scores, jnp.float32))
    return learners.Recorded(found, answer == 0)


def test_the_rules_are_followed_on_the_recorded_paths():
    """Six paths of two questions; 0 is the right answer, -1 none."""
    answers = [[0, 0, 0, 0, 0, 0], [1, -1, 0, 1, 0, 0]]
    scores = [[0.5, 0.6, 0.9, 0.1, 0.1, 1.0], [0.2, 1.0, 0.75, 0.1, 0.9, 0.0]]
    recorded = _recorded(answers, scores)
    config = learners.StoppingConfig(num_candidates=(6,))
    rule, fixed = stopping._frontiers(config, recorded, 6)
    points = {tuple(point) for point in rule.tolist()}
    assert fixed.tolist() == [[1, 0.5], [2, 0.5], [3, 0.5], [4, 0.5], [5, 0.5], [6, 1.0]]
    assert (1.0, 0.5) in points
    # Above .9 after four equal votes: 1 - 2^-4 = .9375 after three. The other question never gets
    # there; its six paths have the votes 3 and 2.
    assert (4.5, 1.0) in points
    config = dataclasses.replace(config, uses_scores=True)
    points = {tuple(point) for point in stopping._frontiers(config, recorded, 6)[0].tolist()}
    # Thresholds: 0; .3, .5 (paths 1 and 3); .7 (3 and 3); .8 (3 and 5).
    assert points >= {(1.0, 0.5), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0)}


def _expand_of(capacity):
    def expand(params, key, request):
        """Every path ends with answer 1 if the question was drawn with this key, else with 0."""
        count = int(request.num_samples.shape[0])
        answer = jnp.all(params == jax.random.key_data(key)).astype(jnp.int32)
        return search.Expansion(
            valid=jnp.ones(count, bool),
            parent=jnp.zeros(count, jnp.int32),
            score=jnp.ones(count),
            done=jnp.ones(count, bool),
            answer=jnp.full(count, answer),
            text=jnp.arange(count, dtype=jnp.int32),
            log_prob=jnp.zeros(count),
            num_tokens=jnp.ones(count, jnp.int32),
            embedding=jnp.zeros(count, jnp.int32),
        )

    return expand


def _reset(tables, key):
    """A reset whose first draw splits its key twice, as `randint` does."""
    drawn_with = jax.random.split(jax.random.split(key, 3)[0])[1]
    params = jax.random.key_data(drawn_with)
    return search.Task(params, jnp.int32(0), search.Context(), jnp.int32(1), jnp.int32(1))


def test_a_search_does_not_reuse_the_keys_of_its_question(key):
    world = search.Environment(_reset, _expand_of)
    questions = TrainingQuestions(world, (), (), (), max_depth=1, prms=(), info={})
    recorded = stopping.record(questions, (), key, 3, 4)
    assert recorded.answers.valid.all()
    assert not recorded.right.any()


@pytest.mark.slow
def test_a_small_training(tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "_NUM_RECORDED", (16, 8))
    options = TrainingOptions(
        output=tmp_path / "stopper",
        config="stopping-scores",
        prms=("exact",),
        num_candidates=(4,),
        num_iterations=2,
        num_seeds=2,
    )
    lines: list[str] = []
    paths = run(options, report=lines.append)
    assert [path.name for path in paths] == ["seed-0", "seed-1"]
    for path in paths:
        found = load_stopper(path)
        assert found.uses_scores
        assert found.info["prms"] == ["exact"]
        for row in found.info["held_out"]:
            assert 1.0 <= row["paths"] <= 4.0
    assert len(json.loads((tmp_path / "stopper/summary.json").read_text())["seeds"]) == 2
    assert any("accuracy" in line for line in lines)
    with pytest.raises(BadInputError, match="holds a training already"):
        run(options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": "cats"}, "--start has no meaning for a stopper"),
        ({"settings": ("reward=paper",)}, "--set has no meaning for a stopper"),
        ({"rivals": False}, "--no-rivals has no meaning for a stopper"),
        ({"calibration": "weak"}, "--calibration has no meaning for a stopper"),
        ({"validation": "bank"}, "--validation needs --bank"),
        ({"seed": -1}, "seed=-1: must be an integer from 0 to 2147483647"),
        ({"seed": 1 << 31}, "seed=2147483648: must be an integer from 0 to"),
        ({"num_candidates": (1,)}, "num_candidates must be values of 2 to 256"),
        ({"num_seeds": 0}, "num_seeds=0: must be at least 1"),
    ],
)
def test_options_without_meaning_are_refused(tmp_path, changes, message):
    with pytest.raises(BadInputError, match=message):
        run(TrainingOptions(output=tmp_path / "x", config="stopping", **changes))


@pytest.mark.slow
def test_paths_are_recorded_from_a_bank_too():
    bank = toy_bank()
    questions = TrainingQuestions(
        environment=search_bank.ENVIRONMENT,
        tables=bank,
        held_out=bank,
        held_out_ids=(),
        max_depth=int(bank.max_depth),
        prms=("one",),
        info={"source": "step bank"},
    )
    found = stopping.record(questions, bank, jax.random.key(0), 32, 6)
    assert found.right.shape == (32, 6)
    assert not (found.right & ~found.answers.valid).any()
    assert 0 < found.right.sum() < found.answers.valid.sum()
    # Finished paths are not in front of those that came to nothing.
    assert found.answers.valid.all() or not found.answers.valid[:, 0].all()
