"""Trajectories: the table's transitions are the core's, columns are what the search did."""

import collections
import dataclasses
import hashlib
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scripted import ScriptedModels, ScriptedPolicy, question_set
from untrained import untrained

import learners
import search
from cats_jax import cli
from cats_jax.controllers import checkpoint
from cats_jax.errors import BadInputError
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.live import ticks
from cats_jax.live.seeds import stable_seed
from cats_jax.live.slot_states import SlotStates
from cats_jax.specs.recipe import parse_recipe, parse_strategy
from cats_jax.training import collect
from cats_jax.training.train import configure
from cats_jax.training.trajectories import load_rows, models_of

QUESTIONS = 6
PLAIN = {"name": "cats_random"}


def recipe(folder, strategies=(PLAIN,), **changes):
    questions = question_set(QUESTIONS)
    file = pathlib.Path(folder) / "questions.jsonl"
    rows = [
        {"id": q.id, "question": q.text, "answer": questions.answers[q.id]}
        for q in questions.questions
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return parse_recipe(
        {
            "name": "trajectories",
            "policy": "policy",
            "prms": ["good", "bad"],
            "strategies": list(strategies),
            "num_candidates": [3, 4],
            "questions": {"file": str(file)},
            "max_depth": 6,
            **changes,
        }
    )


def collected(folder, *, models=None, **changes):
    return collect.collect_decisions(
        recipe(folder, **changes),
        models or ScriptedModels(),
        pathlib.Path(folder) / "out",
        grader=BoxedIntegerGrader(),
        block_size=4,
    )


def searches(decisions):
    """The rows of each search as dictionaries."""
    found = collections.defaultdict(list)
    for row in range(decisions.columns["search"].size):
        one = {name: values[row] for name, values in decisions.columns.items()}
        found[int(one["search"])].append(one)
    return found


class Looping(ScriptedPolicy):
    """Greedy decoding is cut by the step limit at every second node."""

    def generate(self, requests):
        made = super().generate(requests)
        for request, samples in zip(requests, made.samples, strict=True):
            if request.temperature == 0 and stable_seed(*(s.text for s in request.path)) % 2:
                samples[:] = [dataclasses.replace(sample, finish="length") for sample in samples]
        return made


class LoopingModels(ScriptedModels):
    def policy(self, spec):
        return Looping()


@pytest.mark.parametrize(
    ("changes", "models"),
    [
        ({"num_base": 2}, ScriptedModels()),
        # The only valid child may come in the last round: its node never decides.
        ({"num_base": 1, "base": {"temperature": 0.0}, "rounds": 1}, LoopingModels()),
    ],
)
def test_the_transitions_are_those_of_the_core(tmp_path, monkeypatch, changes, models):
    """What the core's recorder emits, tick by tick, against the table's predecessors and ends."""
    emitted, pending = [], {}
    observe, commit = ticks._observe, SlotStates.commit
    recorder = search.cats.decision_recorder(search.cats.CATS.reward.discount)

    @jax.jit
    @jax.vmap
    def follow(memory, before, plan, expansion, output, after):
        begins = (before.step == 0) & (before.phase == 0)
        fresh = recorder.init(before)
        memory = jax.tree.map(lambda new, old: jnp.where(begins, new, old), fresh, memory)
        memory, record = recorder.record(
            memory, search.Tick(before, plan, expansion, output, after)
        )
        return memory, record.transition

    def with_output(params, plan, state, output, strategy):
        return {**observe(params, plan, state, output, strategy), "output": output}

    def catch(states, planned, expansion, advancing, num_open):
        before = states.state
        observed = commit(states, planned, expansion, advancing, num_open)
        memory = pending.get(states, jax.vmap(recorder.init)(before))
        after, transition = follow(
            memory, before, planned, expansion, observed["output"], states.state
        )
        advances = np.isin(np.arange(before.step.size), advancing)
        pending[states] = ticks.where_slots(advances, after, memory)
        emitted.append(jax.tree.map(lambda leaf: leaf[advances], jax.device_get(transition)))
        return observed

    monkeypatch.setattr(ticks, "_observe", with_output)
    monkeypatch.setattr(SlotStates, "commit", catch)
    # A configuration of its own: programs compiled by other tests report no outputs.
    strategies = [{**PLAIN, "expansion": 3, **changes}]
    decisions = collect.load_decisions(
        collected(tmp_path, strategies=strategies, num_candidates=[16], models=models)
    )

    def key(before, reward, after):
        def rounded(values):
            return tuple(np.round(np.asarray(values, float), 4).tolist())

        return rounded(before), round(float(reward), 4), None if after is None else rounded(after)

    expected = collections.Counter()
    for rows in emitted:
        for place in zip(*np.nonzero(np.asarray(rows.weight_t)), strict=True):
            goes_on = rows.discount_t[place] > 0
            after = rows.features_t[place] if goes_on else None
            expected[key(rows.features_tm1[place], rows.reward_t[place], after)] += 1
    found = collections.Counter()
    for rows in searches(decisions).values():
        for row in rows:
            if row["predecessor"] >= 0:
                before = rows[row["predecessor"]]
                found[key(before["features"], before["reward"], row["features"])] += 1
            if row["ends"]:
                found[key(row["features"], row["reward"], None)] += int(row["ends"])
    assert sum(expected.values()) > 100
    assert found == expected


@pytest.fixture(scope="module")
def decisions(tmp_path_factory):
    return collect.load_decisions(collected(tmp_path_factory.mktemp("trajectories")))


def test_every_search_is_there_in_order(decisions):
    columns = decisions.columns
    assert np.all(np.diff(columns["search"]) >= 0)
    assert columns["search"].max() < 2 * 2 * QUESTIONS
    for rows in searches(decisions).values():
        for name in ("question", "prm", "strategy", "num_candidates", "seed", "price", "correct"):
            assert len({str(row[name]) for row in rows}) == 1
        ticks = [(row["step"], row["phase"]) for row in rows]
        assert ticks == sorted(ticks)
        assert all(row["phase"] >= 1 for row in rows)
        assert all(row["predecessor"] < number for number, row in enumerate(rows))
    assert set(columns["prm"].tolist()) == {"good", "bad"}
    assert set(columns["num_candidates"].tolist()) == {3, 4}


def test_candidates_add_up(decisions):
    names = decisions.feature_names
    for rows in searches(decisions).values():
        size = int(rows[0]["num_candidates"])
        assert len({row["spent"] + row["remaining"] for row in rows}) == 1
        for row in rows:
            features = dict(zip(names, row["features"], strict=True))
            # The feature is log2(1 + what is left of the step) / 8, and so is the budget's.
            in_step = round(2 ** (8 * float(features["step_left"])) - 1)
            left = round(2 ** (8 * float(features["budget_left"])) - 1)
            assert row["available"] == min(in_step, left)
            assert left == size * 6 - row["spent"]
            assert 0 <= row["granted"] <= row["remaining"]
            wanted = decisions.actions.rows[row["action"]][0]
            assert row["granted"] <= wanted <= row["available"]


def test_log_prob_of_the_random_policy(decisions):
    for action, available, log_prob in zip(
        *(decisions.columns[name] for name in ("action", "available", "log_prob")), strict=True
    ):
        legal = np.asarray(decisions.actions.legal(jnp.int32(available)))
        assert legal[action]
        assert log_prob == pytest.approx(-np.log(legal.sum()), abs=1e-5)


def test_rewards_and_outcomes_vary(decisions):
    assert 0 < decisions.columns["correct"].mean() < 1
    assert np.ptp(decisions.columns["reward"]) > 0
    assert np.all(np.isfinite(decisions.columns["features"]))
    assert decisions.columns["features"].shape[1] == len(search.cats.FEATURE_NAMES)


def test_on_policy_log_probs_are_the_networks(tmp_path):
    config = learners.CATS
    state = untrained(config, 3)
    # As of two question sets without ids.
    info = {"questions": ["x", "y", "y"], "texts": ["digest of x", "digest of y", "of another y"]}
    path = checkpoint.save(tmp_path / "controller", state, config, info=info)
    strategies = [
        {"name": "cats", "label": "explores", "checkpoint": str(path), "mode": "sample"},
        {"name": "cats", "label": "acts", "checkpoint": str(path)},
    ]
    decisions = collect.load_decisions(
        collected(tmp_path, strategies=strategies, num_candidates=[4], calibration="none")
    )
    learned = decisions.manifest["behaviours_learned"]
    assert list(learned.values()) == info["texts"]
    assert list(learned)[:2] == ["x", "y"]
    columns = decisions.columns
    explores = columns["strategy"] == "explores"
    assert 0 < explores.sum() < explores.size
    assert np.all(columns["log_prob"][~explores] == 0)
    actor = learners.make_actor(len(decisions.actions), config.actor_hidden)
    logits = np.asarray(actor.apply(state.actor, jnp.asarray(columns["features"])), float)
    extra = np.array([row[0] for row in decisions.actions.rows])
    legal = extra[None, :] <= columns["available"][:, None]
    chance = np.where(legal, np.exp(logits - logits.max(axis=1, keepdims=True)), 0)
    chance /= chance.sum(axis=1, keepdims=True)
    taken = np.take_along_axis(chance, columns["action"][:, None], axis=1)[:, 0]
    np.testing.assert_allclose(np.exp(columns["log_prob"][explores]), taken[explores], rtol=1e-3)
    # Deterministic: the most likely legal action.
    assert np.all(taken[~explores] >= chance[~explores].max(axis=1) - 1e-6)


def test_a_random_policy_is_charged_the_price_it_was_given(tmp_path):
    prices = {"cheap": 0.05, "dear": 0.5}
    strategies = [{**PLAIN, "label": label, "price": price} for label, price in prices.items()]
    found = collect.load_decisions(collected(tmp_path, strategies=strategies, num_candidates=[4]))
    place = found.feature_names.index("price")
    for label, price in prices.items():
        rows = found.columns["strategy"] == label
        np.testing.assert_allclose(found.columns["price"][rows], price, rtol=1e-6)
        shown = 1.0 + np.log10(price) / 3.0
        np.testing.assert_allclose(found.columns["features"][rows, place], shown, rtol=1e-5)
    with pytest.raises(BadInputError, match=r"price=-1: must be a number >= 0, the price per 100"):
        collected(tmp_path, strategies=[{**PLAIN, "price": -1}])


def test_digests_of_the_questions_are_kept(decisions):
    ids, digests = (decisions.manifest[f"question_{name}"] for name in ("ids", "texts"))
    expected = {
        q.id: hashlib.sha256(q.text.encode()).hexdigest()[:16]
        for q in question_set(QUESTIONS).questions
    }
    assert dict(zip(ids, digests, strict=True)) == expected


def test_going_on_gives_the_same_rows(tmp_path, decisions):
    class Stops(Exception):
        pass

    def stop(done, total):
        assert total == 4 * QUESTIONS
        if done == 10:
            raise Stops

    with pytest.raises(Stops):
        collect.collect_decisions(
            recipe(tmp_path),
            ScriptedModels(),
            tmp_path / "out",
            grader=BoxedIntegerGrader(),
            block_size=4,
            report=stop,
        )
    begun = collect.load_decisions(tmp_path / "out").columns["search"]
    assert set(begun.tolist()) < set(decisions.columns["search"].tolist())
    again = collect.load_decisions(collected(tmp_path)).columns
    for name, values in decisions.columns.items():
        np.testing.assert_array_equal(again[name], values)
    models = ScriptedModels()
    collected(tmp_path, models=models)
    assert models.loaded == []


@pytest.mark.parametrize("changes", [{}, {"prm_threshold": 0.9}])
def test_a_selective_prm_call_is_no_action_of_a_controller(changes):
    spec = parse_strategy({"name": "cats", "checkpoint": "cats-tokens", **changes})
    assert collect._behaviour(spec) == (search.cats.action_table("narrow"), None)


def test_bad_input(tmp_path, capsys):
    with pytest.raises(BadInputError, match="'beam' takes no decisions: collect with cats"):
        collected(tmp_path, strategies=["beam"])
    mixed = [PLAIN, {"name": "cats_random", "label": "p", "config": "paper"}]
    with pytest.raises(BadInputError, match="cats_random, p have different action tables"):
        collected(tmp_path, strategies=mixed)
    with pytest.raises(BadInputError, match="seeds: decisions are stored with 32 bits of a seed"):
        collected(tmp_path, seeds=[1 << 31])
    missing = [{"name": "cats", "checkpoint": "nowhere"}]
    with pytest.raises(BadInputError, match="controller folder 'nowhere' does not exist"):
        collected(tmp_path, strategies=missing)
    with pytest.raises(BadInputError, match="is no collection of trajectories"):
        collect.load_decisions(tmp_path)
    folder = collected(tmp_path, num_candidates=[4])
    with pytest.raises(
        BadInputError, match=r"has results of other settings: config\.num_candidates"
    ):
        collected(tmp_path, num_candidates=[3])
    manifest = json.loads((folder / "manifest.json").read_text())
    earlier = {name: value for name, value in manifest.items() if name != "question_texts"}
    (folder / "manifest.json").write_text(json.dumps(earlier))
    with pytest.raises(BadInputError, match="from an earlier version, which kept no digests"):
        collect.load_decisions(folder)
    for name in ("models", "config"):
        damaged = {key: value for key, value in manifest.items() if key != name}
        (folder / "manifest.json").write_text(json.dumps(damaged))
        with pytest.raises(BadInputError, match=f"is damaged .*'{name}' is missing.*collect them"):
            models_of(folder)
    manifest["feature_names"][0] = "mood"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadInputError, match="has other features than this version"):
        collect.load_decisions(folder)
    assert cli.run(["collect", "none.yaml", "--output", str(tmp_path / "x")]) == 2
    assert "recipe 'none.yaml' does not exist" in capsys.readouterr().err


@pytest.mark.slow
def test_actions_are_those_of_the_named_table(tmp_path):
    strategies = [{**PLAIN, "actions": "top-k"}]
    found = collect.load_decisions(collected(tmp_path, strategies=strategies, num_candidates=[4]))
    assert found.actions == search.cats.ACTION_TABLES["top-k"]
    taken = {found.actions.rows[row] for row in found.columns["action"]}
    assert {row[4] for row in taken if row[0]} == {0, 20}
    # With all legal actions equally likely.
    extra = np.array([row[0] for row in found.actions.rows])
    legal = (extra[None, :] <= found.columns["available"][:, None]).sum(axis=1)
    np.testing.assert_allclose(found.columns["log_prob"], -np.log(legal), rtol=1e-5)


def test_decisions_are_learned_with_the_settings_of_their_searches(tmp_path):
    calibrated = {**PLAIN, "calibrated": True, "path_score": "product", "actions": "top-p"}
    changes = {"strategies": [calibrated], "num_candidates": [4], "calibration": "none"}
    folder = collected(tmp_path, **changes)
    config = configure("offline", actions="top-p")
    with pytest.raises(
        BadInputError, match=r"with cats\.path_score=product cats\.calibrated=True, "
    ):
        load_rows(folder, config)
    settings = ["cats.calibrated=True", "cats.path_score=product"]
    rows, _ = load_rows(folder, configure(config, settings=settings))
    assert len(rows.weight_t) > 0
    # What the configuration excludes is 0 in its rows, as in its searches.
    paper = configure("paper", settings=settings)
    hidden = np.asarray(search.cats.FEATURES.mask(paper.cats.excluded_features)) == 0
    seen = np.asarray(load_rows(folder, paper)[0].features_tm1)
    assert np.asarray(rows.features_tm1)[:, hidden].any()
    assert seen[:, ~hidden].any()
    assert not seen[:, hidden].any()
    # A collection of an earlier version lacks entries, and gets them when it is continued.
    manifest = json.loads((folder / "manifest.json").read_text())
    earlier = {
        name: value for name, value in manifest.items() if name not in ("cats", "asked", "formats")
    }
    (folder / "manifest.json").write_text(json.dumps(earlier))
    load_rows(folder, config)
    collected(tmp_path, **changes)
    assert json.loads((folder / "manifest.json").read_text()) == manifest


def test_recorded_rewards_have_the_weights_of_the_configuration(tmp_path):
    folder = collected(tmp_path, strategies=[{**PLAIN, "config": "paper"}], num_candidates=[4])
    # A feature that is not recorded can't be learned.
    with pytest.raises(BadInputError, match=r"with cats\.excluded_features=agreement,"):
        load_rows(folder, configure("offline", actions="top-p"))
    load_rows(folder, configure("paper"))
    with pytest.raises(BadInputError, match=r"with cats\.reward\.cost=0\.2, the .*cost=0\.5: set"):
        load_rows(folder, configure("paper", settings=["cats.reward.cost=0.5"]))


def test_a_collection_without_a_decision_is_said_to_have_none(tmp_path):
    folder = collected(tmp_path, models=ScriptedModels(finish="length"), num_candidates=[4])
    with pytest.raises(BadInputError, match="has no decision: no step of its searches had a valid"):
        collect.load_decisions(folder)
