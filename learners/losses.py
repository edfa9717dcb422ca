"""The losses of the paper's A2C, of PPO and of AWR, element by element, without averaging.

Names and time suffixes are rlax's: `_tm1` is the state of the action, `_t` the next one, and
`discount_t` is gamma, or 0 at an end. Arguments of different shapes raise an AssertionError.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def td_error(
    r_t: Float[Array, "*B"],
    discount_t: Float[Array, "*B"],
    v_tm1: Float[Array, "*B"],
    v_t: Float[Array, "*B"],
) -> Float[Array, "*B"]:
    """delta = r + gamma V(s') - V(s) (the paper, eq. 10; Sutton & Barto 2018, eq. 6.5).

    No gradient flows into the target r + gamma V(s'). The paper takes the gradient of delta**2 / 2
    with respect to xi (section 5.2) and names no stopped gradient. A gradient of the target, too,
    makes V converge to other values (Sutton & Barto 2018, section 11.5, the A-split example).
    """
    chex.assert_equal_shape([r_t, discount_t, v_tm1, v_t])
    target = r_t + discount_t * v_t
    return jax.lax.stop_gradient(target) - v_tm1


def critic_loss(td: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Half the squared TD error, delta**2 / 2 (the paper, eq. 11)."""
    return 0.5 * jnp.square(td)


def actor_loss(log_prob_tm1: Float[Array, "*B"], td: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """-log pi(a | s) delta, with delta a constant (the paper, eq. 11; Mnih et al. 2016)."""
    chex.assert_equal_shape([log_prob_tm1, td])
    return -log_prob_tm1 * jax.lax.stop_gradient(td)


def clipped_loss(
    log_prob: Float[Array, "*B"],
    log_prob_tm1: Float[Array, "*B"],
    advantage: Float[Array, "*B"],
    clip: float,
) -> Float[Array, "*B"]:
    """-min(w A, clip(w, 1 - eps, 1 + eps) A) with w = pi(a | s) / pi_old(a | s).

    PPO's clipped surrogate objective, as a loss (Schulman et al. 2017, eq. 7).

    Args:
        log_prob: log pi(a | s) under the policy being learnt.
        log_prob_tm1: log pi_old(a | s) under the policy that acted; no gradient flows into it.
        advantage: A; no gradient flows into it.
        clip: eps > 0.
    """
    chex.assert_equal_shape([log_prob, log_prob_tm1, advantage])
    advantage = jax.lax.stop_gradient(advantage)
    ratio = jnp.exp(log_prob - jax.lax.stop_gradient(log_prob_tm1))
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


MAX_REGRESSION_WEIGHT = 20.0
"""Largest weight of a decision in advantage-weighted regression, as in Peng et al. 2019."""


def regression_loss(
    log_prob: Float[Array, "*B"], advantage: Float[Array, "*B"], temperature: float
) -> Float[Array, "*B"]:
    """-log pi(a | s) min(exp(A / temperature), 20).

    Advantage-weighted regression (Peng et al. 2019, eq. 10): on data of a policy mu its minimum is
    mu exp(A / temperature), normalised, without importance weights.

    Args:
        log_prob: log pi(a | s) under the policy being learnt.
        advantage: A; no gradient flows into it.
        temperature: > 0; towards 0 only the best decisions count.
    """
    chex.assert_equal_shape([log_prob, advantage])
    weight = jnp.minimum(jnp.exp(advantage / temperature), MAX_REGRESSION_WEIGHT)
    return -log_prob * jax.lax.stop_gradient(weight)


def entropy(log_probs: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """-sum_a pi(a) log pi(a), nats, of finite log-probabilities (bonus of Mnih et al. 2016)."""
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
