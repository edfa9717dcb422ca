"""The losses of the paper's A2C, element by element; average them yourself.

Names and time suffixes are rlax's: `_tm1` is the state the action was taken in, `_t` the next
one, and `discount_t` is gamma, or 0 where the path or the search ended.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def td_error(
    r_t: Float[Array, "*B"],
    discount_t: Float[Array, "*B"],
    v_tm1: Float[Array, "*B"],
    v_t: Float[Array, "*B"],
) -> Float[Array, "*B"]:
    """delta = r + gamma V(s') - V(s) (the paper, "TD error"; Sutton & Barto 2018, eq. 6.5).

    No gradient flows into the target r + gamma V(s'): differentiating it too, as the paper's
    "gradients with respect to xi" reads literally, converges to other values (Sutton & Barto
    2018, section 11.5, the A-split example).
    """
    target = r_t + discount_t * v_t
    return jax.lax.stop_gradient(target) - v_tm1


def critic_loss(td: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Half the squared TD error, delta**2 / 2 (the paper, "critic")."""
    return 0.5 * jnp.square(td)


def actor_loss(log_prob_tm1: Float[Array, "*B"], td: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """-log pi(a | s) delta, with delta a constant (the paper, "actor"; Mnih et al. 2016)."""
    return -log_prob_tm1 * jax.lax.stop_gradient(td)


def entropy(log_probs: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """-sum_a pi(a) log pi(a), in nats (the bonus of Mnih et al. 2016).

    Log-probabilities must be finite: an action of probability 0 has a very negative one.
    """
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
