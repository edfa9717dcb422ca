"""`CatsConfig.prm_threshold`: which nodes ask the PRM, accept their child, or decide."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import search

CONFIG = dataclasses.replace(
    search.cats.CATS_TOKENS, score_base=False, prm_threshold=0.8, min_prm_weight=0.4
)
STOP = CONFIG.actions.rows.index((0, 1, 1.0, 1.0, 0))
MORE = CONFIG.actions.rows.index((4, 1, 1.0, 1.0, 0))
RULE = search.cats.RuleParams(jnp.float32(0.5), jnp.int32(MORE), jnp.int32(STOP))
NAMES = search.cats.FEATURES.names

ACCEPTED, ASKED = (0, None), (1, 0.0)
"""Children sampled, and their temperature where there are any."""


def planned(key, features, left, config=CONFIG):
    """The request and the decision of a node with one child and these features."""
    row = np.zeros((1, len(NAMES)), np.float32)
    for name, value in features.items():
        row[0, NAMES.index(name)] = value
    return _planned(key, row, np.int32(left), config)


@functools.partial(jax.jit, static_argnums=3)
def _planned(key, row, left, config):
    strategy = search.cats.cats(
        search.cats.sample_while_below("step_best"),
        config,
        features=search.cats.FeatureSet(NAMES, lambda state, aggregation: row),
    )
    state = search.init(
        {"text": jnp.int32(0)},
        strategy=strategy,
        num_candidates=9,
        max_depth=2,
        width=1,
        capacity=16,
        frontier_capacity=1,
        depth_capacity=2,
    )
    pool = state.pool.replace(valid=state.pool.valid.at[0].set(True))
    state = state.replace(pool=pool, phase=jnp.int32(1), used=9 - left)
    plan = search.plan(RULE, key, state, strategy=strategy)
    return plan.request, plan.memory.decision


@pytest.mark.parametrize(
    ("step_best", "weight", "left", "expected"),
    [
        pytest.param(0.9, 0.7, 8, ACCEPTED, id="likely"),
        pytest.param(0.8, 0.7, 8, ACCEPTED, id="at the threshold"),
        pytest.param(0.7, 0.7, 8, ASKED, id="in doubt"),
        pytest.param(0.1, 0.7, 8, ASKED, id="asked before more is sampled"),
        pytest.param(0.1, 0.7, 0, ACCEPTED, id="nothing left to ask with"),
        pytest.param(0.1, 0.4, 8, ASKED, id="just enough weight"),
        pytest.param(0.1, 0.3, 8, ACCEPTED, id="a PRM that is never asked"),
        pytest.param(0.1, -0.7, 8, ACCEPTED, id="a PRM that ranks the wrong way"),
    ],
)
def test_a_node_without_scores_does_not_decide(key, step_best, weight, left, expected):
    request, decision = planned(key, {"step_best": step_best, "prm_weight": weight}, left)
    number, temperature = expected
    assert int(request.num_samples[0]) == number
    assert bool(request.scored[0])
    if number:
        assert float(request.temperature[0]) == temperature
    assert not bool(decision.valid[0])
    assert not np.asarray(decision.features).any()


@pytest.mark.parametrize(
    ("step_best", "share", "weight", "expected"),
    [
        pytest.param(0.4, 1.0, 0.7, (4, 1.0), id="asked, still below"),
        pytest.param(0.6, 1.0, 0.7, (0, None), id="asked, and good enough"),
        pytest.param(0.4, 0.5, 0.3, (4, 1.0), id="scored, so that the weight does not count"),
    ],
)
def test_a_node_with_a_score_decides(key, step_best, share, weight, expected):
    features = {"step_best": step_best, "scored_share": share, "prm_weight": weight}
    request, decision = planned(key, features, 8)
    number, temperature = expected
    assert int(request.num_samples[0]) == int(decision.num_extra[0]) == number
    if number:
        assert float(request.temperature[0]) == temperature
    assert bool(decision.valid[0])
    assert int(decision.action[0]) == (MORE if number else STOP)


def test_a_step_has_one_round_more_to_ask_in():
    plain = search.cats.cats(search.cats.random_policy, search.cats.CATS_TOKENS)
    asking = search.cats.cats(search.cats.random_policy, CONFIG)
    assert asking.num_phases == plain.num_phases + 1
    assert asking.needs_log_probs


def test_a_node_asks_with_the_sampling_of_its_base_child(key):
    base = search.Sampling(temperature=0.0, top_p=0.9, top_k=5)
    config = dataclasses.replace(CONFIG, base=base)
    request, _ = planned(key, {"step_best": 0.1, "prm_weight": 1.0}, 8, config)
    assert int(request.num_samples[0]) == 1
    assert float(request.temperature[0]) == 0.0
    assert float(request.top_p[0]) == np.float32(0.9)
    assert int(request.top_k[0]) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score_base": True}, "prm_threshold=0.8 needs score_base=False"),
        ({"base": search.Sampling()}, "prm_threshold=0.8 needs greedy base children"),
        ({"prm_threshold": 1.5}, r"prm_threshold must be in \[0, 1\], got 1.5"),
        ({"prm_threshold": -0.1}, r"prm_threshold must be in \[0, 1\], got -0.1"),
        ({"min_prm_weight": 1.5}, r"min_prm_weight must be in \[0, 1\], got 1.5"),
    ],
)
def test_a_configuration_that_could_not_ask_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)


def test_a_feature_set_without_what_it_reads_is_refused():
    features = search.cats.FeatureSet(("step_best",), search.cats.FEATURES.extract)
    with pytest.raises(ValueError, match=r"unknown features \['scored_share'\]"):
        search.cats.cats(search.cats.random_policy, CONFIG, features=features)
