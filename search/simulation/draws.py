"""Counter-based randomness: cheap draws that are functions of 32-bit words.

`jax.random` would cost more per candidate than the rest of the simulator. A draw here is a hash of
its context (a node's seed, or the tick's key with slot and sibling). Equal texts therefore have
equal scores, and no draw depends on the number of rows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt32

_GOLDEN = 0x9E3779B9


def absorb(state: UInt32[Array, "*B"], word: UInt32[Array, "*B"]) -> UInt32[Array, "*B"]:
    """The hash state after one more word. It depends on the order of the words."""
    return _scramble((state ^ word) + jnp.uint32(_GOLDEN))


def branch(state: UInt32[Array, "*B"], purpose: int) -> UInt32[Array, "*B"]:
    """A hash state derived for one purpose, an integer constant >= 0; purposes are independent."""
    return _scramble(state + jnp.uint32((purpose + 1) * _GOLDEN & 0xFFFFFFFF))


def words(key: jax.Array) -> UInt32[Array, ""]:
    """32 random bits of a PRNG key; consumes the key."""
    return jax.random.bits(key, (), jnp.uint32)


def uniform(state: UInt32[Array, "*B"], purpose: int) -> Float[Array, "*B"]:
    """Uniform draw in the open interval (0, 1): a multiple of 2**-24, plus 2**-25, in float32."""
    bits = (branch(state, purpose) >> 8).astype(jnp.float32)
    draw = bits * jnp.float32(2.0**-24) + jnp.float32(2.0**-25)
    # Float32 rounds the largest sum to 1, of which the normal draw is infinite.
    return jnp.minimum(draw, jnp.float32(1.0 - 2.0**-24))


def normal(state: UInt32[Array, "*B"], purpose: int) -> Float[Array, "*B"]:
    """Standard normal draw, in [-5.5, 5.5]."""
    return jnp.float32(2.0**0.5) * lax.erf_inv(2.0 * uniform(state, purpose) - 1.0)


def power_law(
    u: Float[Array, "*B"], exponent: Float[Array, "*B"], num_classes: int
) -> Int[Array, "*B"]:
    """Draw a class 0..K-1 from a power law, by the inverse CDF of a bounded Pareto variable.

    X in [1, K + 1) has density proportional to x**-exponent; the class is floor(X) - 1.

    Args:
        u: uniform in [0, 1); small numbers give class 0, the most likely one.
        exponent: >= 0.
        num_classes: K, static.
    """
    q = _nonzero(1.0 - exponent)
    top = jnp.power(jnp.float32(num_classes + 1), q)
    x = jnp.power(1.0 + u * (top - 1.0), 1.0 / q)
    return jnp.clip(x.astype(jnp.int32) - 1, 0, num_classes - 1)


def power_law_log_prob(
    index: Int[Array, "*B"], exponent: Float[Array, "*B"], num_classes: int
) -> Float[Array, "*B"]:
    """Logarithm of the probability of a class of `power_law`, nats.

    Args:
        index: class in 0..K-1.
        exponent: >= 0.
        num_classes: K, static.
    """
    q = _nonzero(1.0 - exponent)
    log_edges = jnp.log(jnp.arange(1, num_classes + 2, dtype=jnp.float32))
    lower, upper = jnp.exp(q * log_edges[index]), jnp.exp(q * log_edges[index + 1])
    share = (upper - lower) / (jnp.exp(q * log_edges[-1]) - 1.0)
    return jnp.log(jnp.maximum(share, jnp.finfo(jnp.float32).tiny))


def _nonzero(q: Float[Array, "*B"]) -> Float[Array, "*B"]:
    # At exponent 1 the formulas are 0 / 0; this close to it the difference is negligible.
    return jnp.where(jnp.abs(q) < 1e-3, jnp.float32(1e-3), q)


def _scramble(x: UInt32[Array, "*B"]) -> UInt32[Array, "*B"]:
    """A hash that is a bijection: "lowbias32" of Ellis, github.com/skeeto/hash-prospector."""
    x = x ^ (x >> 16)
    x = x * jnp.uint32(0x7FEB352D)
    x = x ^ (x >> 15)
    x = x * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
