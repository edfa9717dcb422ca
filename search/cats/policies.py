"""Controllers without training, baselines for those of `learners.make_policy`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from .features import FEATURES, FeatureSet
from .types import Observation

Policy = Callable[[Any, jax.Array, Observation], tuple[jax.Array, jax.Array]]
"""A controller: `(params, key, observation) -> (action i32[N], log_prob f32[N])`; consumes `key`.

Results of slots that do not decide are ignored.
"""


def random_policy(
    params: Any, key: jax.Array, observation: Observation
) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """A controller that draws each legal action with the same probability; ignores `params`."""
    features, legal = observation.features, observation.legal
    logits = jnp.where(legal, 0.0, jnp.finfo(features.dtype).min)
    action = jax.random.categorical(key, logits, shape=(features.shape[0],)).astype(jnp.int32)
    log_prob = -jnp.log(jnp.sum(legal, dtype=features.dtype))
    return action, jnp.full((features.shape[0],), log_prob, features.dtype)


def constant_policy(
    params: Int[Array, "*N"], key: jax.Array, observation: Observation
) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """A controller that takes the action of index `params`, or else the first legal one."""
    features, legal = observation.features, observation.legal
    action = jnp.where(legal[params], params, jnp.argmax(legal)).astype(jnp.int32)
    nodes = features.shape[0]
    return jnp.broadcast_to(action, (nodes,)), jnp.zeros((nodes,), features.dtype)


class RuleParams(struct.PyTreeNode):
    """Parameters of `sample_while_below`."""

    threshold: jax.Array  # f32[]
    sample: jax.Array  # i32[]; row of the action table, taken below the threshold
    stop: jax.Array  # i32[]; row taken otherwise; its num_extra is 0


@functools.cache
def sample_while_below(feature: str, features: FeatureSet = FEATURES) -> Policy:
    """A controller that samples more in every round while a node's feature is below a threshold.

    The params are `RuleParams`.

    Args:
        feature: name of the feature, such as "max" (the best child's path score) or "gap".
        features: feature set of the search.

    Raises:
        ValueError: the feature set has no such feature.
    """
    column = features.column(feature)

    def policy(
        params: RuleParams, key: jax.Array, observation: Observation
    ) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
        value = observation.features[:, column]
        wants_more = (value < params.threshold) & observation.legal[params.sample]
        action = jnp.where(wants_more, params.sample, params.stop).astype(jnp.int32)
        return action, jnp.zeros(action.shape, value.dtype)

    _FEATURES_READ[policy] = (feature,)
    return policy


_FEATURES_READ: dict[Policy, tuple[str, ...]] = {random_policy: (), constant_policy: ()}


def features_read(policy: Policy) -> tuple[str, ...] | None:
    """The features that a controller of this module reads; None for others, which may read any."""
    return _FEATURES_READ.get(policy)
