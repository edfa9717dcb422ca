"""Checkpoints: what is saved comes back, and what does not fit is refused by name."""

import dataclasses
import json
import pathlib
import shutil
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp
from untrained import untrained

import learners
import search
from cats_jax import world
from cats_jax.controllers import checkpoint
from cats_jax.errors import BadInputError
from cats_jax.models.digests import folder_digest
from search.cats import features as cats_features

ACTIONS = search.cats.ActionTable.product(num_extra=(0, 2), num_retain=(1,), temperature=(0.6, 1.0))
CONFIG = dataclasses.replace(
    learners.CATS,
    cats=dataclasses.replace(search.cats.CATS, actions=ACTIONS, excluded_features=("gap",)),
    num_candidates=(4, 16),
    actor_hidden=(16,),
    critic_hidden=(24, 8),
)


@pytest.fixture(scope="module")
def state():
    return untrained(CONFIG, 3)


@pytest.fixture(scope="module")
def original(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("original") / "controller"
    return checkpoint.save(folder, state, CONFIG, info={"seed": 3})


@pytest.fixture
def saved(tmp_path, original):
    """A copy that a test may change."""
    return shutil.copytree(original, tmp_path / "controller")


def _edit(path, change):
    file = path / "checkpoint.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def test_round_trip(saved, state):
    loaded = checkpoint.load(saved)
    jax.tree.map(np.testing.assert_array_equal, loaded.actor, state.actor)
    jax.tree.map(np.testing.assert_array_equal, loaded.critic, state.critic)
    assert loaded.train_config == CONFIG
    assert loaded.config == CONFIG.cats
    assert hash(loaded.config) == hash(CONFIG.cats)
    assert loaded.info == {"seed": 3}


def test_is_small(saved, tmp_path):
    assert sum(file.stat().st_size for file in saved.rglob("*") if file.is_file()) < 1_000_000
    largest = dataclasses.replace(learners.PAPER, cats=search.cats.PAPER)
    learner = learners.make_learner(
        learners.make_actor(90), learners.make_critic(), search.cats.PAPER.actions, CONFIG.learner
    )
    path = checkpoint.save(tmp_path / "large", learner.init(jax.random.key(0)), largest)
    assert sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) < 1_000_000


@pytest.mark.parametrize("mode", ["sample", "argmax"])
def test_controller_is_ready_to_search(saved, state, key, mode):
    loaded = checkpoint.load(saved)
    strategy = search.cats.cats(checkpoint.make_controller(loaded, mode), loaded.config)
    assert strategy.num_phases == 1 + CONFIG.cats.rounds
    # Equal, so that a second load recompiles nothing.
    again = checkpoint.load(saved)
    again = search.cats.cats(checkpoint.make_controller(again, mode), again.config)
    assert again == strategy
    assert hash(again) == hash(strategy)

    @jax.jit  # as one program: the operations one by one are two hundred
    def first_plan(actor):
        sizes = {"num_candidates": 8, "max_depth": 2, "capacity": 8}
        start = search.init(np.int32(0), strategy=strategy, **sizes)
        return search.plan(actor, key, start, strategy=strategy)

    assert first_plan(loaded.actor).request.num_samples[0] == CONFIG.cats.num_base


def test_refuses_to_overwrite_unasked(saved, state):
    with pytest.raises(BadInputError, match="holds a checkpoint already"):
        checkpoint.save(saved, state, CONFIG)
    checkpoint.save(saved, state, CONFIG, overwrite=True)
    assert checkpoint.load(saved).info == {}


def test_refuses_an_interrupted_save(saved):
    """As a folder that is not there."""
    (saved / "checkpoint.json").unlink()
    for path in (saved, saved.with_name("nowhere")):
        with pytest.raises(BadInputError, match=rf"{path} is no checkpoint .*cats-jax train"):
            checkpoint.load(path)


def test_an_interrupted_save_lets_orbax_end(tmp_path, state, monkeypatch):
    """Its threads would otherwise keep the process from ending."""
    ended = []

    def save(*arguments, **options):
        time.sleep(0.1)  # until the main thread waits
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.1)
        ended.append(True)

    monkeypatch.setattr(checkpoint.ocp, "save", save)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path / "new", state, CONFIG)
    assert ended == [True]
    assert not (tmp_path / "new" / "checkpoint.json").exists()


def test_refuses_missing_arrays(saved):
    (saved / "params").rename(saved / "elsewhere")
    with pytest.raises(BadInputError, match="has no folder params/"):
        checkpoint.load(saved)


def test_refuses_damaged_arrays(saved):
    for file in (saved / "params").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    with pytest.raises(BadInputError, match="cannot be read"):
        checkpoint.load(saved)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_refuses_damaged_json(saved, text):
    (saved / "checkpoint.json").write_text(text)
    with pytest.raises(BadInputError, match=r"checkpoint\.json is no"):
        checkpoint.load(saved)


@pytest.mark.parametrize("version", [0, checkpoint.FORMAT_VERSION + 1, None, "1"])
def test_refuses_another_version(saved, version):
    _edit(saved, lambda document: document.update(format_version=version))
    with pytest.raises(BadInputError, match="has checkpoint format"):
        checkpoint.load(saved)


FORMAT_2 = pathlib.Path(__file__).parent / "golden" / "checkpoint_format_2.json"
"""Of `CONFIG`, as version 2 of the format wrote it."""


NUM_OLD = 42
"""Features of the versions that wrote format 2, and of the first ones that wrote format 3."""


def _first_features(params):
    """A network's parameters without the weights of later features."""
    first = {**params["layer_0"], "kernel": np.asarray(params["layer_0"]["kernel"])[:NUM_OLD]}
    return {**params, "layer_0": first}


def _without_later_features():
    """The search of `CONFIG` as it is read from an old checkpoint."""
    excluded = (*CONFIG.cats.excluded_features, *search.cats.FEATURE_NAMES[NUM_OLD:])
    return dataclasses.replace(CONFIG.cats, excluded_features=excluded)


@pytest.fixture(scope="module")
def first_original(tmp_path_factory, original, state):
    path = shutil.copytree(original, tmp_path_factory.mktemp("first") / "controller")
    tree = {"actor": _first_features(state.actor), "critic": _first_features(state.critic)}
    ocp.save(str(path / "params"), {**tree, "actions": np.float32(ACTIONS.rows)}, overwrite=True)
    names = list(search.cats.FEATURE_NAMES[:NUM_OLD])
    _edit(path, lambda found: found.update(feature_names=names))
    return path


@pytest.fixture
def old(tmp_path, first_original):
    """The checkpoint as a version with fewer features would have written it."""
    return shutil.copytree(first_original, tmp_path / "old")


def _assert_same_weights(params, trained):
    """Those of the features it was trained with, and zeros for the others."""
    jax.tree.map(np.testing.assert_array_equal, _first_features(params), _first_features(trained))
    later = np.asarray(params["layer_0"]["kernel"])[NUM_OLD:]
    assert later.shape[0] == len(search.cats.FEATURE_NAMES) - NUM_OLD > 0
    assert not later.any()


def test_a_checkpoint_with_fewer_features_decides_by_those(old, state):
    def change(document):  # an earlier version knew none of these
        for name in ("score_base", "cost_unit"):
            del document["train_config"]["cats"][name]
        del document["train_config"]["prm_token_costs"]

    _edit(old, change)
    loaded = checkpoint.load(old)
    assert loaded.train_config.cats.cost_unit == "candidates"
    assert loaded.train_config.prm_token_costs == (1.0,)
    assert loaded.config == _without_later_features()
    _assert_same_weights(loaded.actor, state.actor)
    _assert_same_weights(loaded.critic, state.critic)
    features = jax.random.normal(jax.random.key(1), (9, len(search.cats.FEATURE_NAMES)))
    networks = {
        "actor": lambda width: learners.make_actor(len(ACTIONS), CONFIG.actor_hidden, width),
        "critic": lambda width: learners.make_critic(CONFIG.critic_hidden, width),
    }
    for name, network in networks.items():
        first = _first_features(getattr(state, name))
        expected = network(NUM_OLD).apply(first, features[:, :NUM_OLD])
        actual = network(len(search.cats.FEATURE_NAMES)).apply(getattr(loaded, name), features)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_the_shipped_controller_has_no_weights_for_later_features():
    loaded = checkpoint.load(world.ASSETS / "controllers" / "cats")
    assert loaded.config.excluded_features == cats_features.COMPUTE_FEATURES
    assert not search.cats.cats(search.cats.constant_policy, loaded.config).needs_log_probs
    for params in (loaded.actor, loaded.critic):
        kernel = np.asarray(params["layer_0"]["kernel"])
        assert kernel.shape[0] == len(search.cats.FEATURE_NAMES)
        assert kernel[:NUM_OLD].any(axis=1).all()
        assert not kernel[NUM_OLD:].any()


def test_the_shipped_controller_that_pays_for_tokens_reads_likelihoods():
    loaded = checkpoint.load(world.ASSETS / "controllers" / "cats-tokens")
    assert loaded.config == search.cats.CATS_TOKENS
    assert search.cats.cats(search.cats.constant_policy, loaded.config).needs_log_probs
    kernel = np.asarray(loaded.actor["layer_0"]["kernel"])
    assert kernel.shape[0] == len(search.cats.FEATURE_NAMES)
    assert kernel[NUM_OLD:].any()


def test_the_rates_of_the_prm_come_back(tmp_path, state):
    cats = dataclasses.replace(search.cats.SELECTIVE, actions=ACTIONS)
    config = dataclasses.replace(CONFIG, cats=cats, prm_token_costs=(1.0, 4.0))
    loaded = checkpoint.load(checkpoint.save(tmp_path / "controller", state, config))
    assert loaded.train_config == config
    assert loaded.config == cats


def _format_2(**learner):
    document = json.loads(FORMAT_2.read_text())
    document["train_config"]["learner"].update(learner)
    return document


@pytest.mark.parametrize(
    ("learner", "expected"),
    [
        ({}, CONFIG.learner),
        (
            {"clip": None, "num_epochs": 1, "num_minibatches": 1},
            learners.LearnerConfig(learners.A2C(normalize_advantages=True)),
        ),
        (
            {
                "clip": None,
                "num_epochs": 1,
                "num_minibatches": 1,
                "normalize_advantages": False,
                "sequential": True,
                "max_gradient_norm": 0.5,
            },
            learners.LearnerConfig(learners.A2C(sequential=True), max_gradient_norm=0.5),
        ),
        (
            {"clip": None, "num_epochs": 1, "num_minibatches": 1, "regression": 0.25},
            learners.LearnerConfig(learners.AWR(temperature=0.25, normalize_advantages=True)),
        ),
    ],
)
def test_reads_format_2(old, state, learner, expected):
    _edit(old, lambda document: document.update(_format_2(**learner)))
    loaded = checkpoint.load(old)
    assert loaded.train_config == dataclasses.replace(
        CONFIG, cats=_without_later_features(), learner=expected, default_price=0.0
    )
    _assert_same_weights(loaded.actor, state.actor)


@pytest.mark.parametrize(("cats", "expected"), [({"price": 0.06}, 0.06), ({}, 0.0)])
def test_the_price_of_format_2_becomes_the_default_price(old, cats, expected):
    document = _format_2()
    del document["train_config"]["cats"]["price"]
    document["train_config"]["cats"].update(cats)
    _edit(old, lambda found: found.update(document))
    assert checkpoint.load(old).train_config.default_price == expected


def test_format_3_is_read_by_its_former_names(tmp_path, state):
    features = ("gap", "prm_token_cost")
    changes = {"cost_unit": "tokens", "score_base": False, "calibrated": True}
    changes |= {"base": search.Sampling(0.0), "prm_threshold": 0.9, "min_prm_weight": 0.25}
    cats = dataclasses.replace(
        CONFIG.cats, expansion=2, excluded_features=features, num_base=1, **changes
    )
    config = dataclasses.replace(CONFIG, cats=cats, prm_token_costs=(1.0, 4.0))
    path = checkpoint.save(tmp_path / "controller", state, config)

    def change(document):
        document["format_version"] = 3
        names = document["feature_names"]
        names[names.index("prm_token_cost")] = "prm_rate"
        former = document["train_config"]
        former["prm_rates"] = former.pop("prm_token_costs")
        former["cats"]["excluded_features"] = ["gap", "prm_rate"]
        for old, new in {
            "factor": "expansion",
            "ask_below": "prm_threshold",
            "least_weight": "min_prm_weight",
            "charge": "cost_unit",
        }.items():
            former["cats"][old] = former["cats"].pop(new)

    _edit(path, change)
    assert checkpoint.load(path).train_config == config


@pytest.mark.parametrize(("name", "digest"), [("cats", "d94988a2"), ("cats-tokens", "9e0e4738")])
def test_the_files_of_a_shipped_controller_stay(name, digest):
    """Old runs and certificates know a controller by the digest of its files, whatever changes."""
    found = folder_digest(world.ASSETS / "controllers" / name)
    assert found["sha256"].startswith(digest)


@pytest.mark.parametrize("algorithm", [learners.A2C(), learners.AWR()])
def test_the_algorithm_comes_back(tmp_path, state, algorithm):
    learner = learners.LearnerConfig(algorithm, max_gradient_norm=1.0)
    config = dataclasses.replace(CONFIG, learner=learner)
    path = checkpoint.save(tmp_path / "controller", state, config)
    assert checkpoint.load(path).train_config == config


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["train_config"].pop("learner"),
        lambda document: document["train_config"].update(unknown_option=1),
        lambda document: document["train_config"]["learner"].update(momentum=0.9),
        lambda document: document["train_config"]["learner"].update(clip=2.0),
    ],
)
def test_refuses_damaged_configurations_of_format_2(saved, change):
    former = _format_2()
    change(former)
    _edit(saved, lambda document: document.update(former))
    with pytest.raises(BadInputError, match="is damaged"):
        checkpoint.load(saved)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (search.cats.FEATURE_NAMES[1:], f"it lacks: {search.cats.FEATURE_NAMES[0]}"),
        ((*search.cats.FEATURE_NAMES, "mood"), "unknown here: mood"),
        (search.cats.FEATURE_NAMES[::-1], "another order"),
        ([], "it lacks"),
        (None, "it lacks"),
    ],
)
def test_refuses_other_features(saved, names, message):
    _edit(saved, lambda document: document.update(feature_names=names))
    with pytest.raises(BadInputError, match=f"trained with other features.*{message}"):
        checkpoint.load(saved)


def test_refuses_an_exchanged_action_table(saved):
    def change(document):
        document["train_config"]["cats"]["actions"]["rows"][1][2] = 1.4

    _edit(saved, change)
    with pytest.raises(BadInputError, match=r"the action table .* is not the one"):
        checkpoint.load(saved)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_refuses_the_networks_of_a_training_that_diverged(tmp_path, state, value, monkeypatch):
    actor = jax.tree.map(lambda leaf: jnp.full_like(leaf, value), state.actor)
    diverged = state.replace(actor=actor)
    with pytest.raises(BadInputError, match=r"diverged.*lower learner\.learning_rate"):
        checkpoint.save(tmp_path / "controller", diverged, CONFIG)
    assert not (tmp_path / "controller").exists()
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint, "is_finite", lambda params: True)
        path = checkpoint.save(tmp_path / "controller", diverged, CONFIG)
    with pytest.raises(BadInputError, match="a value is not finite"):
        checkpoint.load(path)


@pytest.mark.parametrize("info", [{"questions": ["1"]}, {"questions": ["1", "2"], "texts": ["a"]}])
def test_questions_without_their_texts_are_not_learned_from(info):
    assert checkpoint.questions_of("x", {"questions": ["1"], "texts": ["a"]}) == [("1", "a")]
    assert checkpoint.questions_of("x", {}) == []
    with pytest.raises(BadInputError, match=r"controller 'x' names its . training questions by id"):
        checkpoint.questions_of("x", info)


@pytest.mark.parametrize("which", ["actor_hidden", "critic_hidden"])
def test_refuses_networks_of_another_size(saved, which):
    _edit(saved, lambda document: document["train_config"].update({which: [16, 8]}))
    with pytest.raises(BadInputError, match="trained with other features, actions or networks"):
        checkpoint.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("train_config"),
        lambda document: document["train_config"].update(unknown_option=1),
        lambda document: document["train_config"]["learner"]["algorithm"].update(name="TRPO"),
        lambda document: document["train_config"]["learner"]["algorithm"].update(temperature=1.0),
        lambda document: document["train_config"]["cats"]["reward"].update(discount=2.0),
        lambda document: document["train_config"]["cats"]["actions"].update(rows=[]),
    ],
)
def test_refuses_damaged_configurations(saved, change):
    _edit(saved, change)
    with pytest.raises(BadInputError, match="is damaged"):
        checkpoint.load(saved)


def test_refuses_to_save_what_does_not_fit(tmp_path, state):
    other = dataclasses.replace(CONFIG, cats=search.cats.CATS)
    with pytest.raises(BadInputError, match=rf"{len(search.cats.CATS.actions)} actions"):
        checkpoint.save(tmp_path / "controller", state, other)
