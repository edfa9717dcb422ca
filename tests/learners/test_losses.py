"""The losses against tables worked out by hand, and against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np

import learners

#   r     discount  V(s)   V(s')   delta
_TD = np.array(
    [
        [0.0, 0.9, 0.0, 0.0, 0.0],
        [1.0, 0.9, 0.0, 0.0, 1.0],
        [0.0, 0.9, 1.0, 1.0, -0.1],
        [0.5, 0.9, 2.0, 3.0, 1.2],
        [0.5, 0.0, 2.0, 3.0, -1.5],  # the end: what comes after does not count
        [-1.0, 1.0, -2.0, -3.0, -2.0],
    ],
    np.float32,
)


def test_td_error_table():
    r_t, discount_t, v_tm1, v_t, expected = _TD.T
    actual = jax.jit(learners.td_error)(*map(jnp.asarray, (r_t, discount_t, v_tm1, v_t)))
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_no_gradient_through_the_target():
    def loss(r_t, discount_t, v_tm1, v_t):
        return learners.critic_loss(learners.td_error(r_t, discount_t, v_tm1, v_t))

    arguments = [jnp.float32(value) for value in (0.5, 0.9, 2.0, 3.0)]
    gradient = jax.grad(loss, argnums=(0, 1, 2, 3))(*arguments)
    # d/dV(s) of delta**2 / 2 = -delta; V(s') is part of the target.
    np.testing.assert_allclose(gradient, [0.0, 0.0, -1.2, 0.0], rtol=1e-6)


def test_critic_loss_table():
    losses = learners.critic_loss(jnp.array([0.0, 1.0, -2.0, 0.1]))
    np.testing.assert_allclose(losses, [0.0, 0.5, 2.0, 0.005], rtol=1e-6)


def test_actor_loss_table():
    log_probs = jnp.log(jnp.array([1.0, 0.5, 0.5, 0.1]))
    losses = learners.actor_loss(log_probs, jnp.array([3.0, 1.0, -2.0, 0.0]))
    expected = [0.0, np.log(2), -2 * np.log(2), 0.0]
    np.testing.assert_allclose(losses, expected, rtol=1e-6, atol=1e-7)


def test_actor_loss_takes_the_td_error_as_a_constant():
    gradient = jax.grad(learners.actor_loss, argnums=(0, 1))(jnp.float32(-0.7), jnp.float32(1.3))
    np.testing.assert_allclose(gradient, [-1.3, 0.0], rtol=1e-6)


#   ratio  A     loss   d loss / d log pi
_CLIPPED = [
    (1.0, 2.0, -2.0, -2.0),
    (1.1, 2.0, -2.2, -2.2),
    (1.5, 2.0, -2.4, 0.0),  # above 1 + eps and A > 0: nothing more to gain
    (1.5, -2.0, 3.0, 3.0),  # but to lose, without limit
    (0.5, -2.0, 1.6, 0.0),  # below 1 - eps and A < 0
    (0.5, 2.0, -1.0, -1.0),
    (0.9, -2.0, 1.8, 1.8),
    (1.5, 0.0, 0.0, 0.0),
]


def test_clipped_loss_table():
    def function(log_prob, old, advantage):
        return learners.clipped_loss(log_prob, old, advantage, 0.2)

    ratio, advantage, loss, slope = jnp.array(_CLIPPED).T
    old = jnp.full_like(ratio, -1.3)
    gradients = jax.vmap(jax.value_and_grad(function, argnums=(0, 1, 2)))
    value, gradient = gradients(old + jnp.log(ratio), old, advantage)
    np.testing.assert_allclose(value, loss, rtol=1e-5, atol=1e-6)
    zeros = jnp.zeros_like(slope)
    np.testing.assert_allclose(gradient, [slope, zeros, zeros], rtol=1e-5, atol=1e-6)


def test_entropy_table():
    probabilities = jnp.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
    found = learners.entropy(jnp.maximum(jnp.log(probabilities), -1e9))
    np.testing.assert_allclose(found, [0.0, np.log(2), 1.5 * np.log(2)], rtol=1e-6)


def test_gradients_against_finite_differences():
    logits = np.array([0.3, -1.0, 0.7, 2.0])
    legal = jnp.asarray([[True, True, False, True]])

    def loss(logits):
        log_probs = learners.legal_log_probs(logits[None, :], legal)
        surrogate = learners.actor_loss(log_probs[0, 1], jnp.float32(0.8))
        return surrogate - 0.1 * learners.entropy(log_probs)[0]

    def reference(logits):
        log_probs = logits[[0, 1, 3]] - np.log(np.sum(np.exp(logits[[0, 1, 3]])))
        return -log_probs[1] * 0.8 + 0.1 * np.sum(np.exp(log_probs) * log_probs)

    numeric = [
        (reference(logits + step) - reference(logits - step)) / 2e-6 for step in np.eye(4) * 1e-6
    ]
    gradient = jax.grad(loss)(jnp.asarray(logits, jnp.float32))
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-6)
    assert gradient[2] == 0.0  # not NaN: the illegal action's logit has no say
