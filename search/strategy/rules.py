"""Hand-made policies for a CATS search: the rivals that a learned one has to beat."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from ..features import FEATURE_NAMES, check_feature_names
from .cats import Policy


class RuleParams(struct.PyTreeNode):
    """Parameters of `sample_while_below`."""

    threshold: jax.Array  # f32[]
    sample: jax.Array  # i32[]; row of the action table, taken below the threshold
    stop: jax.Array  # i32[]; taken otherwise; its num_extra is 0


@functools.cache
def sample_while_below(feature: str) -> Policy:
    """Sample more while a feature of the node is below a threshold, in as many rounds as there are.

    With "max" (the best child's path score) it is a threshold rule, with "gap" a rule on how far
    the best child leads. Parameters are `RuleParams`.

    Args:
        feature: one of `FEATURE_NAMES`.

    Raises:
        ValueError: there is no such feature.
    """
    check_feature_names((feature,))
    column = FEATURE_NAMES.index(feature)

    def policy(
        params: RuleParams,
        key: jax.Array,
        features: Float[Array, "N F"],
        legal: Bool[Array, " A"],
    ) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
        del key
        wants_more = (features[:, column] < params.threshold) & legal[params.sample]
        action = jnp.where(wants_more, params.sample, params.stop).astype(jnp.int32)
        return action, jnp.zeros(action.shape, features.dtype)

    return policy
