"""The reward of a decision: the paper's eq. 9, with the cost as a share of N."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


@dataclass(frozen=True)
class RewardWeights:
    """Weights of the reward and the discount.

    Attributes:
        cost: lambda_c, weight of the candidates that the decision sampled, as a share of N.
        margin: lambda_m, weight of the score gap between kept and discarded children.
        score: lambda_r, weight of the best child's path score.
        discount: gamma of the TD target, in [0, 1].

    Raises:
        ValueError: a weight is negative, or the discount out of range.
    """

    cost: float = 0.2
    margin: float = 0.5
    score: float = 0.3
    discount: float = 0.9

    def __post_init__(self) -> None:
        for name in ("cost", "margin", "score"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"reward weight {name} must be >= 0, got {getattr(self, name)}")
        if not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"discount must be in [0, 1], got {self.discount}")


def step_reward(
    scores: Float[Array, " N"],
    parent: Int[Array, " N"],
    valid: Bool[Array, " N"],
    kept: Bool[Array, " N"],
    num_extra: Int[Array, " S"],
    num_candidates: Int[Array, ""],
    weights: RewardWeights,
) -> Float[Array, " S"]:
    """r = -cost * C + margin * (min kept - max discarded) + score * max R, per frontier slot.

    C is the number of extra samples granted, divided by N. The paper calls it "the additional
    candidate path incurred" and names no unit. With a count and the paper's weights, any C >= 5
    would be worse than C = 0. Margin and maximum are over the node's own children, which is also
    our choice. The margin is 0 if no child is discarded. `scores` are path scores of the children
    after extra sampling, before the prune. Slots without a valid child get the cost term only.
    """
    slots = num_extra.shape[0]
    kept_in = jnp.where(valid & kept, parent, slots)
    dropped_from = jnp.where(valid & ~kept, parent, slots)
    # Scores are in [0, 1], so 1 and 0 are neutral for the minimum and the maximum.
    zeros = jnp.zeros((slots,), jnp.float32)
    worst_kept = jnp.ones((slots,), jnp.float32).at[kept_in].min(scores, mode="drop")
    best_dropped = zeros.at[dropped_from].max(scores, mode="drop")
    drops = jnp.zeros((slots,), bool).at[dropped_from].set(True, mode="drop")
    margin = jnp.where(drops, worst_kept - best_dropped, 0.0)
    best = zeros.at[jnp.where(valid, parent, slots)].max(scores, mode="drop")
    cost = num_extra.astype(jnp.float32) / num_candidates.astype(jnp.float32)
    return -weights.cost * cost + weights.margin * margin + weights.score * best


RewardFn = Callable[..., jax.Array]
"""A reward function with the arguments and the result of `step_reward`."""
