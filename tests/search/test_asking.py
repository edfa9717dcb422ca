"""`search.ask_in_doubt`: which nodes ask the PRM, accept their child, or follow another policy."""

import jax.numpy as jnp
import numpy as np
import pytest

import search

ACTIONS = search.SELECTIVE.actions
STOP = ACTIONS.rows.index((0, 1, 1.0, 1.0, 0))
ASK = ACTIONS.rows.index((1, 1, 0.0, 1.0, 0))
MORE = ACTIONS.rows.index((4, 1, 1.0, 1.0, 0))
RULE = search.RuleParams(jnp.float32(0.5), jnp.int32(MORE), jnp.int32(STOP))
PARAMS = search.AskParams(
    threshold=jnp.float32(0.8),
    least_weight=jnp.float32(0.4),
    stop=jnp.int32(STOP),
    then=RULE,
)
POLICY = search.ask_in_doubt(search.sample_while_below("step_best"))


@pytest.mark.parametrize(
    ("step_best", "scored_share", "weight", "left", "expected"),
    [
        pytest.param(0.9, 0.0, 0.7, 8, STOP, id="likely"),
        pytest.param(0.8, 0.0, 0.7, 8, STOP, id="at the threshold"),
        pytest.param(0.7, 0.0, 0.7, 8, ASK, id="in doubt"),
        pytest.param(0.1, 0.0, 0.7, 8, ASK, id="asked before more is sampled"),
        pytest.param(0.1, 0.0, 0.7, 0, STOP, id="nothing left to ask with"),
        pytest.param(0.1, 0.0, 0.4, 8, ASK, id="just enough weight"),
        pytest.param(0.1, 0.0, 0.3, 8, STOP, id="a PRM that is never asked"),
        pytest.param(0.1, 0.0, -0.3, 8, STOP, id="a PRM that ranks the wrong way"),
        pytest.param(0.4, 1.0, 0.7, 8, MORE, id="asked, still below"),
        pytest.param(0.6, 1.0, 0.7, 8, STOP, id="asked, and good enough"),
        pytest.param(0.4, 0.5, 0.3, 8, MORE, id="scored, so that the weight does not count"),
    ],
)
def test_what_a_node_does(key, step_best, scored_share, weight, left, expected):
    names = search.FEATURES.names
    features = np.zeros((1, len(names)), np.float32)
    values = {"step_best": step_best, "scored_share": scored_share, "prm_weight": weight}
    for name, value in values.items():
        features[0, names.index(name)] = value
    observation = search.Observation(
        features=jnp.asarray(features),
        legal=ACTIONS.legal(jnp.int32(left)),
        deciding=jnp.ones(1, bool),
        state=None,
    )
    action, log_prob = POLICY(PARAMS, key, observation)
    assert action.dtype == jnp.int32
    assert (int(action[0]), float(log_prob[0])) == (expected, 0.0)


def test_a_feature_set_without_what_it_reads_is_refused():
    features = search.FeatureSet(("step_best",), search.FEATURES.extract)
    with pytest.raises(ValueError, match=r"unknown features \['scored_share'\]"):
        search.ask_in_doubt(search.random_policy, features)
