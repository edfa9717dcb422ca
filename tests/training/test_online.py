"""Training on-line: the updates are those in the graph, and a killed training loses nothing."""

import dataclasses
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import learners
import search
from cats_jax.controllers import checkpoint
from cats_jax.datasets.digests import text_digest
from cats_jax.errors import BadInputError, RunStoppedError, ScorerContractError
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.protocols import Generation, Scoring, Step, StepSample, TokenUsage
from cats_jax.storage import durable
from cats_jax.training import online, online_searches
from cats_jax.training.online_state import TrainingProgress
from cats_jax.training.options import TrainingOptions
from cats_jax.training.train import run
from search.children import children_of

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A world of two steps: a step is right if its temperature is above 1, the last step answers.
ACTIONS = search.cats.ActionTable(((0, 1, 1.0, 1.0, 0), (2, 1, 0.5, 1.0, 0), (2, 2, 1.5, 1.0, 0)))
MAX_DEPTH = 3
SPARSITY = {"one": (0.25, 0.125), "two": (0.5, 0.0625)}


def _score(right, depth):
    return 0.25 + 0.5 * right - 0.125 * depth


def _environment():
    """The world in the graph."""

    def expander(capacity):
        def expand(params, key, request):
            del params, key
            parent, granted = children_of(request.num_samples, capacity)
            right = request.temperature[parent] > 1.0
            depth = request.depth[parent]
            done = depth >= 1
            return search.Expansion(
                valid=granted,
                parent=parent,
                score=_score(right.astype(jnp.float32), depth.astype(jnp.float32)),
                done=granted & done,
                answer=jnp.where(granted & done, right.astype(jnp.int32), -1),
                text=right.astype(jnp.int32),
                log_prob=jnp.zeros((capacity,), jnp.float32),
                num_tokens=jnp.ones((capacity,), jnp.int32),
                embedding=jnp.zeros((capacity,), jnp.int32),
            )

        return expand

    def reset(tables, key):
        del tables, key
        context = search.Context(0.0, *SPARSITY["one"])
        return search.Task((), jnp.int32(0), context, jnp.int32(MAX_DEPTH), jnp.int32(1))

    return search.Environment(reset, expander)


class Policy:
    """The world's policy; `stop_at` is the call that raises KeyboardInterrupt."""

    name = "policy"
    num_parameters = 1

    def __init__(self, stop_at=None):
        self.calls, self.stop_at = 0, stop_at

    def check_question(self, question):
        if "too long" in question.text:
            raise BadInputError(f"question {question.id!r} is too long")

    def generate(self, requests):
        self.calls += 1
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        samples = [[self._sample(request)] * len(request.seeds) for request in requests]
        return Generation(samples, [TokenUsage(computed=1, generated=1)] * len(requests), 0.0)

    def keep_only(self, question, paths):
        pass

    @staticmethod
    def _sample(request):
        right = int(request.temperature > 1.0)
        done = len(request.path) >= 1
        text = f"\\boxed{{{right}}}" if done else f"step {right}"
        return StepSample(Step(text, (right,)), "end" if done else "step", 0.0)


class Prm:
    """A PRM of the world; it breaks its contract on questions whose text has `breaks_on`."""

    num_parameters = 1

    def __init__(self, name, breaks_on=None):
        self.name, self.breaks_on = name, breaks_on
        self.sparsity_total, self.sparsity_last_layer = SPARSITY[name]
        self.asked = set()

    def score(self, questions, paths):
        for question in questions:
            if self.breaks_on is not None and self.breaks_on in question.text:
                raise ScorerContractError(f"question {question.id!r}, step 0: NaN")
        self.asked |= {question.id for question in questions}
        scores = [_score(path[-1].token_ids[0], len(path) - 1) for path in paths]
        return Scoring(scores, [TokenUsage(computed=1)] * len(paths), 0.0)

    def keep_only(self, question, paths):
        pass


class Source:
    """`ModelSource` of the two."""

    def __init__(self, stop_at=None, breaks_on=None):
        self.stop_at, self.breaks_on = stop_at, breaks_on
        self.num_loaded = 0

    def fingerprint(self, spec):
        return {"name": spec.path}

    def check(self, spec):
        pass

    def policy(self, spec):
        self.num_loaded += 1
        return Policy(self.stop_at)

    def prm(self, spec):
        self.num_loaded += 1
        return Prm(spec.path, self.breaks_on)


def _small(config, **changes):
    cats = dataclasses.replace(config.cats, actions=ACTIONS, num_base=1)
    small = {"actor_hidden": (8,), "critic_hidden": (8,), "num_candidates": (4, 8)}
    return dataclasses.replace(
        config, cats=cats, **{**small, "num_iterations": 3, "num_episodes": 8, **changes}
    )


CATS = _small(learners.CATS, searches_per_question=2, prices=(0.2, 0.5))
SELECTIVE = _small(
    learners.SELECTIVE, searches_per_question=2, prices=(1.0, 20.0), prm_token_costs=(0.5, 4.0)
)
SELECTIVE = dataclasses.replace(
    SELECTIVE,
    cats=dataclasses.replace(
        SELECTIVE.cats,
        rounds=2,
        actions=search.cats.ActionTable((*ACTIONS.rows, (1, 1, 0.0, 1.0, 0))),
    ),
)
PAPER = _small(learners.PAPER)
QUICK = _small(learners.PAPER, num_candidates=(4,), num_episodes=2)


def _recipe(folder, *, count=40, **changes):
    file = folder / "questions.jsonl"
    rows = [{"id": f"q{i}", "question": f"question {i}", "answer": "1"} for i in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    content = {
        "policy": "policy",
        "prms": ["one"],
        "calibration": "none",
        "questions": {"file": str(file)},
        "max_depth": MAX_DEPTH,
        "strategies": ["cats_random"],
        "num_candidates": [4],
        **changes,
    }
    content = {name: value for name, value in content.items() if value is not None}
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(content))
    return path


def _train(folder, config=QUICK, *, models=None, output="out", labels=None, start=None, **changes):
    return online.train_online(
        _recipe(folder, **changes),
        config,
        models or Source(),
        folder / output,
        prms=labels,
        start=start,
        grader=BoxedIntegerGrader(),
        report=lambda line: None,
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A folder with a finished training of `QUICK`: three iterations of two questions each."""
    folder = tmp_path_factory.mktemp("quick")
    _train(folder)
    return folder


def _state(config, folder):
    start, _ = learners.make_update_fns(config).init(jax.random.key(0))
    return TrainingProgress(folder, start).state


def _lines(folder):
    """The lines of the curves without the one value that is not a function of the training."""
    rows = [json.loads(line) for line in (folder / "curves.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize(
    "config",
    [
        # Both batches of an iteration: pools of 16 rows and of 64.
        pytest.param(dataclasses.replace(CATS, num_candidates=(4, 8, 20)), id="cats"),
        pytest.param(PAPER, id="paper"),
        pytest.param(SELECTIVE, id="selective"),
        # A round that samples nothing ends the step, and the rounds after it are skipped. The
        # minibatches of PPO would differ, because the step's end is in another tick.
        pytest.param(
            _small(
                learners.CATS,
                reward="paper",
                gae_lambda=0.9,
                prices=(0.0,),
                default_price=0.0,
                searches_per_question=1,
                num_iterations=1,
                learner=learners.LearnerConfig(learners.A2C()),
            ),
            id="paper-reward-in-rounds",
        ),
        pytest.param(
            dataclasses.replace(
                PAPER,
                gae_lambda=0.9,
                num_steps=2,
                learner=learners.LearnerConfig(learners.A2C(sequential=True)),
            ),
            id="paper-gae-in-printed-order",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_updates_are_those_in_the_graph(tmp_path, config):
    config = dataclasses.replace(config, max_depth=MAX_DEPTH)
    expected = jax.jit(learners.make_train(config, _environment()))((), jax.random.key(0))
    _train(tmp_path, config, in_flight=3)  # places are taken by one question after another
    chex.assert_tree_all_finite(expected)
    found = _state(config, tmp_path / "out")
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6),
        found,
        expected.learner_state,
    )
    lines = _lines(tmp_path / "out")
    for name in ("accuracy", "candidates", "decisions", "reward", "entropy", "td_error"):
        given = [line[name] for line in lines]
        np.testing.assert_allclose(given, getattr(expected.curves, name), rtol=2e-5, atol=1e-6)
    assert min(line["decisions"] for line in lines) > 10  # it learned from something


def test_the_controller_is_ready_to_search(quick):
    path = quick / "out" / "seed-0"
    loaded = checkpoint.load(path)
    assert loaded.train_config == dataclasses.replace(QUICK, max_depth=MAX_DEPTH)
    jax.tree.map(np.testing.assert_array_equal, loaded.actor, _state(QUICK, quick / "out").actor)
    assert len(set(loaded.info["questions"])) == len(loaded.info["texts"]) == 6
    digests = {f"q{i}": text_digest(f"question {i}") for i in range(40)}
    assert loaded.info["texts"] == [digests[name] for name in loaded.info["questions"]]
    assert (quick / "out" / "curves.png").exists()
    models = Source()
    assert _train(quick, models=models) == path
    assert not models.num_loaded  # it was finished


def test_a_training_starts_from_a_controller(quick, tmp_path):
    first = checkpoint.load(quick / "out" / "seed-0")
    idle = dataclasses.replace(
        QUICK, num_iterations=1, learner=dataclasses.replace(QUICK.learner, learning_rate=1e-30)
    )
    second = checkpoint.load(_train(tmp_path, idle, start=first, count=9))
    jax.tree.map(np.testing.assert_array_equal, second.actor, first.actor)
    jax.tree.map(np.testing.assert_array_equal, second.critic, first.critic)
    # What either training asked; only the first of two equal texts is kept.
    assert set(first.info["texts"]) < set(second.info["texts"])
    assert len(second.info["texts"]) == len(set(second.info["texts"]))
    digests = {f"q{i}": text_digest(f"question {i}") for i in range(40)}
    assert second.info["texts"] == [digests[name] for name in second.info["questions"]]
    assert (
        second.info["start"]
        == checkpoint.digest(first)
        != checkpoint.digest(
            second._replace(actor=jax.tree.map(lambda leaf: leaf + 1, second.actor))
        )
    )


def test_goes_on_from_the_same_controller_only(quick, tmp_path):
    first = checkpoint.load(quick / "out" / "seed-0")
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, models=Source(stop_at=5), start=first)
    with pytest.raises(BadInputError):
        _train(tmp_path)
    resumed = checkpoint.load(_train(tmp_path, start=first))
    whole = checkpoint.load(_train(tmp_path, output="whole", start=first))
    jax.tree.map(np.testing.assert_array_equal, resumed.actor, whole.actor)


def test_a_stopped_training_goes_on_as_if_nothing_had_happened(quick, tmp_path, monkeypatch):
    for stop_at in (1, 5, 7):
        with pytest.raises(KeyboardInterrupt):
            _train(tmp_path, models=Source(stop_at=stop_at))
    # Killed after the line of an iteration was written, before its state was.
    replace = durable.replace

    def fail(path, data):
        if path.name == "state.npz":
            raise KeyboardInterrupt
        replace(path, data)

    monkeypatch.setattr(durable, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path)
    monkeypatch.undo()
    out = tmp_path / "out"
    state, lines = (out / "state.npz").exists(), _lines(out)
    assert state
    assert len(lines) == _iterations_in(out) + 1
    with (out / "curves.jsonl").open("a") as file:
        file.write('{"iteration": 9, "rew')  # a cut line
    _train(tmp_path)
    assert (out / "state.npz").read_bytes() == (quick / "out" / "state.npz").read_bytes()
    assert _lines(out) == _lines(quick / "out")


def _iterations_in(folder):
    with np.load(folder / "state.npz") as arrays:
        return int(arrays["iteration"])


@pytest.mark.slow
def test_a_killed_training_gives_the_same_controller(tmp_path):
    """The command, ended by SIGKILL twice, with models named by functions of this file."""
    recipe = _recipe(
        tmp_path,
        policy="test_online:_slow_policy",
        prms=["test_online:_prm_one"],
        questions={"world": "controller", "count": 5},
    )
    paths = [str(ROOT), str(ROOT / "tests" / "training")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def start(output):
        command = [sys.executable, "-m", "cats_jax.cli", "train", "--config", "paper"]
        command += ["--online", str(recipe), "--output", str(tmp_path / output)]
        command += ["--num-iterations", "6", "--num-candidates", "4", "--set"]
        command += ["num_episodes=2", "actor_hidden=8", "critic_hidden=8"]
        return subprocess.Popen(command, env=environment, cwd=tmp_path)

    assert start("whole").wait() == 0
    out, seen = tmp_path / "out", 0
    for _ in range(2):
        process = start("out")
        while process.poll() is None and seen + 2 > _num_lines(out):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        seen = _num_lines(out)
    assert start("out").wait() == 0
    for name in ("state.npz", "seed-0/checkpoint.json"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert _lines(out) == _lines(tmp_path / "whole")
    one, other = (checkpoint.load(tmp_path / name / "seed-0") for name in ("out", "whole"))
    jax.tree.map(np.testing.assert_array_equal, one.actor, other.actor)


def _num_lines(folder):
    file = folder / "curves.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


class _SlowPolicy(Policy):
    def generate(self, requests):
        time.sleep(0.1)
        return super().generate(requests)


def _slow_policy(spec):
    return _SlowPolicy()


def _prm_one(spec):
    return Prm("one")


def test_a_training_goes_on_with_the_same_settings_only(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, models=Source(stop_at=1))
    (tmp_path / "out" / "state.npz").touch()  # as after an iteration: before, nothing is kept
    for settings, message in (
        ({"count": 6}, "has results of other settings: questions"),
        ({"config": dataclasses.replace(QUICK, num_iterations=4)}, "num_iterations: 3 -> 4"),
        ({"max_depth": 2}, "max_depth: 3 -> 2"),
    ):
        with pytest.raises(BadInputError, match=message):
            _train(tmp_path, **settings)


_CURVES = [field.name for field in dataclasses.fields(learners.Curves)]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{}", "is missing"),
        ("[]", ""),
        ("text", ""),
        (json.dumps(dict.fromkeys(_CURVES, 0.0) | {"accuracy": "high"}), "must be a number"),
    ],
)
def test_a_damaged_line_of_curves_is_named_before_anything_is_searched(tmp_path, line, what):
    (tmp_path / "curves.jsonl").write_text(f"{line}\n")
    message = rf"curves\.jsonl' is damaged .*{what}.*: restore it, or train"
    with pytest.raises(BadInputError, match=message):
        TrainingProgress(tmp_path, start=None)


def test_a_state_of_other_networks_is_refused(tmp_path):
    """As after a version with other features, which the configuration does not name."""
    states = [
        learners.make_update_fns(config).init(jax.random.key(0))[0]
        for config in (QUICK, dataclasses.replace(QUICK, actor_hidden=(9,)))
    ]
    TrainingProgress(tmp_path, states[0]).add(states[0], dict.fromkeys(_CURVES, 0.0))
    assert TrainingProgress(tmp_path, states[0]).iteration == 1
    with pytest.raises(BadInputError, match=r"another shape or type\): restore it, or train"):
        TrainingProgress(tmp_path, states[1])


def _search(models, config, count=5):
    texts = [f"question {i}" for i in range(count)]
    found = online_searches.QuestionSet(
        source="test",
        questions=tuple(online_searches.Question(f"q{i}", text) for i, text in enumerate(texts)),
        answers={f"q{i}": "1" for i in range(count)},
        meta={},
    )
    config = dataclasses.replace(config, max_depth=MAX_DEPTH)
    updates = learners.make_update_fns(config)
    state, keys = updates.init(jax.random.key(1))
    _, draws = updates.draw(keys[0])
    searches = online_searches.OnlineSearches(config, found, models, seed=0, in_flight=8)
    return searches.search(state.actor, 0, draws)


def _models(*prms):
    return online_searches.Models(
        policy=Policy(),
        prms=tuple(online_searches.CalibratedPrm(prm, (0.0, 1.0, 0.0)) for prm in prms),
        grader=BoxedIntegerGrader(),
    )


def test_a_question_with_a_failed_search_is_not_learned_from():
    config = dataclasses.replace(CATS, num_candidates=(4,), num_episodes=10)
    found = _search(_models(Prm("one", breaks_on="question 3")), config)
    (played,) = found.played
    assert (found.num_searches, found.num_failed) == (10, 2)
    assert "NaN" in found.reason
    decided = np.asarray(played.ticks.decision.valid).any(axis=(0, 1, 3)).reshape(5, 2)
    # All five questions are asked, each twice.
    assert sorted(decided.all(axis=1).tolist()) == [False, True, True, True, True]
    assert sorted(decided.any(axis=1).tolist()) == [False, True, True, True, True]
    assert not played.correct.reshape(5, 2)[~decided.all(axis=1)].any()


def test_one_failed_search_takes_its_question_along(monkeypatch):
    """The returns of a question's searches are relative to one another."""
    config = dataclasses.replace(CATS, num_candidates=(4,), num_episodes=10)
    prm = Prm("one")
    whole = prm.score

    def breaks(questions, paths):
        if any(question.id.endswith(".1") for question in questions):
            raise ScorerContractError("a search fails")
        return whole(questions, paths)

    monkeypatch.setattr(prm, "score", breaks)
    (played,) = _search(_models(prm, Prm("one")), config).played
    decided = np.asarray(played.ticks.decision.valid).any(axis=(0, 1, 3)).reshape(5, 2)
    assert np.array_equal(decided[:, 0], decided[:, 1])
    assert 0 < decided.all(axis=1).sum() < 5


def test_a_training_in_which_everything_fails_stops(tmp_path):
    with pytest.raises(RunStoppedError, match="all 2 searches of iteration 0 failed, such as"):
        _train(tmp_path, models=Source(breaks_on="question"))
    assert not (tmp_path / "out" / "state.npz").exists()
    assert not (tmp_path / "out" / "seed-0").exists()


def test_a_training_that_diverged_stops_with_its_last_finite_networks(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "is_finite", lambda params: False)
    with pytest.raises(BadInputError, match=r"iteration 0: the training diverged.*--set"):
        _train(tmp_path)
    assert not (tmp_path / "out" / "state.npz").exists()
    assert not (tmp_path / "out" / "seed-0").exists()


def test_every_search_has_one_prm_which_the_policy_sees():
    one, two = Prm("one"), Prm("two")
    config = dataclasses.replace(CATS, num_candidates=(4,), num_episodes=20)
    (played,) = _search(_models(one, two), config, count=40).played
    assert one.asked
    assert two.asked
    assert not one.asked & two.asked
    assert len({name.split(".")[0] for name in one.asked | two.asked}) == 10
    decision = jax.tree.map(lambda leaf: leaf[0, 1, :, 0], played.ticks.decision)  # of the root
    column = search.cats.FEATURE_NAMES.index("sparsity_total")
    seen = np.round(decision.features[:, column], 4).reshape(10, 2)
    assert np.array_equal(seen[:, 0], seen[:, 1])  # the searches of a question share a PRM
    number = len({name.split(".")[0] for name in one.asked})
    expected = round(math.log10(SPARSITY["one"][0]), 4)
    assert (np.isclose(seen[:, 0], expected, atol=1e-3)).sum() == number


def test_every_epoch_has_every_question_once():
    order = [online_searches.question_at(place, 7, seed=3) for place in range(21)]
    epochs = [order[start : start + 7] for start in (0, 7, 14)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert [online_searches.question_at(place, 7, seed=4) for place in range(21)] != order


@pytest.mark.parametrize(
    ("changes", "labels", "message"),
    [
        ({"budget": 9}, None, "budget cuts searches short"),
        ({"max_seconds": 9}, None, "max_seconds cuts searches short"),
        ({"max_tokens": 9}, None, "max_tokens cuts searches short"),
        ({"prms": []}, None, "add 'prms'"),
        ({}, ("two",), "has no PRM 'two': known are one"),
        ({"calibration": None}, None, "PRM 'one' has no calibration"),
    ],
)
def test_refuses_recipes_before_a_model_is_loaded(tmp_path, changes, labels, message):
    models = Source()
    with pytest.raises(BadInputError, match=message):
        _train(tmp_path, CATS, models=models, labels=labels, **changes)
    assert not models.num_loaded
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bank": pathlib.Path("bank")}, "--bank with --online"),
        ({"validation": pathlib.Path("bank")}, "--validation with --online: .*cats-jax evaluate"),
        ({"trajectories": pathlib.Path("rows")}, "--trajectories with --online"),
        ({"calibration": "weak"}, "--calibration with --online: name it in the recipe"),
        ({"num_seeds": 3}, "--num-seeds with --online: .*another --seed and --output"),
        ({"start": "cats", "config": "tokens"}, "another action table than the configuration"),
        ({"start": "cats", "actions": "narrow"}, "another action table .*leave out --config"),
        ({"start": "cats-token"}, "does not exist: did you mean 'cats-tokens'"),
        (
            {"start": "cats", "settings": ("actor_hidden=8",)},
            r"actor_hidden=\(8,\), but .*has \(64, 64\)",
        ),
        ({"config": "offline"}, "learner.algorithm=AWR: .*cats, calibrated, paper"),
        ({"config": "clone"}, "paper-bank, tokens, selective$"),
    ],
)
def test_refuses_options_without_meaning(tmp_path, options, message):
    with pytest.raises(BadInputError, match=message):
        run(TrainingOptions(tmp_path / "out", online=_recipe(tmp_path), **options))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("prm", [{"path": "one", "format": "outcome"}, {"path": "one"}])
def test_refuses_outcome_models(tmp_path, monkeypatch, prm):
    """Also one of the user's own, which says so when it is loaded."""
    monkeypatch.setattr(Prm, "finished_only", True, raising=False)
    monkeypatch.setattr(Prm, "score", None)
    with pytest.raises(BadInputError, match=r"outcome model.* and a training needs a score for"):
        _train(tmp_path, CATS, models=Source(), prms=[prm])


def test_refuses_a_policy_without_the_log_probabilities_that_it_reads(tmp_path):
    policy = {"path": "weak", "backend": "http://localhost:1", "log_probs": False}
    models = Source()
    with pytest.raises(BadInputError, match="the controller reads the policy's log-probabilities"):
        _train(tmp_path, learners.CATS_TOKENS, models=models, policy=policy)
    assert not models.num_loaded


def test_a_training_in_the_graph_keeps_off_its_folder(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, models=Source(stop_at=1))
    with pytest.raises(BadInputError, match="holds a training already, or part of one"):
        run(TrainingOptions(tmp_path / "out"))
