"""Networks and policies: shapes, masks, probabilities, and nothing that recompiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import learners
import search

NUM_FEATURES = len(search.cats.FEATURE_NAMES)


def _apply(params, features):
    """A network that ignores the features; its params are the logits."""
    return jnp.broadcast_to(params[None, :], (features.shape[0], params.shape[0]))


def _observe(features, legal):
    """What these policies see: they ask for nothing of the search."""
    return search.cats.Observation(features=features, legal=legal, deciding=None, state=None)


def test_networks_have_the_papers_sizes(key):
    actor = jax.eval_shape(learners.make_actor(90).init, key)
    critic = jax.eval_shape(learners.make_critic().init, key)
    actor_kernels = [actor[name]["kernel"].shape for name in sorted(actor)]
    assert actor_kernels == [(NUM_FEATURES, 128), (128, 128), (128, 90)]
    critic_kernels = [critic[name]["kernel"].shape for name in sorted(critic)]
    assert critic_kernels == [(NUM_FEATURES, 256), (256, 256), (256, 1)]


def test_params_are_nested_dicts_of_arrays(key):
    params = learners.make_actor(3, hidden=(4,)).init(key)
    assert type(params) is dict
    for layer in params.values():
        assert type(layer) is dict
        assert all(isinstance(array, jax.Array) for array in layer.values())


@pytest.mark.parametrize("hidden", [(), (5,), (4, 6)])
def test_networks_compute_a_relu_mlp(key, hidden):
    actor, critic = learners.make_actor(3, hidden=hidden), learners.make_critic(hidden=hidden)
    features = jax.random.normal(key, (7, NUM_FEATURES))
    for network, squeeze in ((actor, False), (critic, True)):
        params = network.init(key)
        expected = np.asarray(features, np.float64)
        names = sorted(params)
        for name in names:
            expected = expected @ np.asarray(params[name]["kernel"])
            expected = expected + np.asarray(params[name]["bias"])
            if name != names[-1]:
                expected = np.maximum(expected, 0.0)
        expected = expected[:, 0] if squeeze else expected
        np.testing.assert_allclose(network.apply(params, features), expected, atol=1e-5)


def test_a_fresh_actor_is_nearly_uniform(key):
    actor = learners.make_actor(90)
    features = jax.random.uniform(key, (32, NUM_FEATURES))
    probabilities = jax.nn.softmax(actor.apply(actor.init(key), features))
    assert probabilities.max() < 2 / 90


def test_networks_and_policies_are_the_same_object_each_time():
    actor = learners.make_actor(3)
    assert learners.make_actor(3) is actor
    assert learners.make_critic() is learners.make_critic()
    policy = learners.make_policy(actor.apply, "argmax")
    assert learners.make_policy(actor.apply, "argmax") is policy
    assert search.cats.cats(policy) is search.cats.cats(policy)


def test_sampling_frequencies(key):
    logits = jnp.asarray([0.0, 1.0, 5.0, -1.0, 0.5])
    legal = jnp.asarray([True, True, False, True, True])
    policy = jax.jit(learners.make_policy(_apply, "sample"))
    count = 40_000
    action, log_prob = policy(logits, key, _observe(jnp.zeros((count, NUM_FEATURES)), legal))
    weights = np.where(legal, np.exp(np.asarray(logits, np.float64)), 0.0)
    expected = weights / weights.sum()
    shares = np.bincount(action, minlength=5) / count
    assert shares[2] == 0
    np.testing.assert_allclose(shares, expected, atol=5 * np.sqrt(0.25 / count))
    np.testing.assert_allclose(log_prob, np.log(expected[np.asarray(action)]), rtol=1e-5)


@pytest.mark.parametrize("mode", ["sample", "argmax"])
@pytest.mark.parametrize("only", [0, 2, 4])
def test_a_single_legal_action_is_certain(key, mode, only):
    logits = jnp.asarray([60.0, -60.0, 0.0, 1e4, -1e4])
    legal = jnp.arange(5) == only
    policy = learners.make_policy(_apply, mode)
    action, log_prob = policy(logits, key, _observe(jnp.zeros((64, NUM_FEATURES)), legal))
    assert set(action.tolist()) == {only}
    np.testing.assert_allclose(log_prob, 0.0, atol=1e-6)


def test_argmax_takes_the_best_legal_action(key):
    logits = jnp.asarray([0.0, 1.0, 5.0])
    legal = jnp.asarray([True, True, False])
    policy = learners.make_policy(_apply, "argmax")
    action, log_prob = policy(logits, key, _observe(jnp.zeros((2, NUM_FEATURES)), legal))
    assert action.tolist() == [1, 1]
    np.testing.assert_allclose(log_prob, -np.log1p(np.exp(-1.0)), rtol=1e-6)


def test_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode must be 'sample' or 'argmax', got 'best'"):
        learners.make_policy(_apply, "best")
