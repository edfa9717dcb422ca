"""CATS: a learned policy decides, node by node and round by round, what more is worth sampling.

The search of Algorithms 1 and 2 of the paper, vectorised over the frontier. Phase 0 gives each node
its base children: Algorithm 2 expands a node "using legal actions", which we read so. In each round
the policy sees the features of the children and picks an action: how many more to sample, with
which parameters, how many to keep. A node that samples no more is closed for this step; the others
decide again in the next round. In the paper a node decides once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..actions import ACTION_TABLES, ActionTable
from ..aggregation import aggregation
from ..features import (
    CALIBRATION_FEATURES,
    EXTRA_FEATURES,
    check_feature_names,
    feature_mask,
    num_children,
)
from ..reward import RewardWeights
from ..state import select
from ..types import Action, Decision, SearchState
from .base import (
    Sampling,
    Strategy,
    answer_rule,
    no_decision,
    retain_children,
    sample_action,
    share_of_candidates,
)
from .types import CatsMemory

Policy = Callable[
    [Any, jax.Array, Float[Array, "N F"], Bool[Array, " A"]],
    tuple[Int[Array, " N"], Float[Array, " N"]],
]
"""`(params, key, features, legal) -> (action, log_prob)`; consumes `key`."""


@dataclass(frozen=True)
class CatsConfig:
    """What is fixed about a CATS search beside its policy.

    Attributes:
        rounds: R >= 1, decisions a node may take per step; 1 in Algorithms 1 and 2.
        num_base: children each node gets before its first decision, >= 1 (at most N).
        base: how those are sampled.
        factor: width K = max(1, N // factor).
        path_score: name of the aggregation.
        vote: answer rule, "best", "weighted" or "majority".
        reward: weights of the reward and the discount.
        excluded_features: names of features the policy sees as 0.
        actions: the action table.
        calibrated: rank and see by P(step right) instead of raw scores, see
            `search.calibration`; `path_score` should then be "product".
        price: of 100 candidates in units of a right answer, >= 0: a feature, for policies that
            were trained at several prices.

    Raises:
        ValueError: a value is out of range, or a name unknown.
    """

    rounds: int = 1
    num_base: int = 2
    base: Sampling = Sampling()
    factor: int = 4
    path_score: str = "min"
    vote: str = "best"
    reward: RewardWeights = RewardWeights()
    excluded_features: tuple[str, ...] = EXTRA_FEATURES
    actions: ActionTable = ACTION_TABLES["top-p"]
    calibrated: bool = False
    price: float = 0.0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds must be >= 1, got {self.rounds}")
        if self.num_base < 1:
            raise ValueError(f"num_base must be >= 1, got {self.num_base}")
        if not 0.0 <= self.price < float("inf"):
            raise ValueError(f"price must be a number >= 0, got {self.price}")
        check_feature_names(self.excluded_features)
        # They refuse what they do not know.
        answer_rule(self.vote, aggregation(self.path_score))
        share_of_candidates(self.factor)

    @property
    def sees_calibration(self) -> bool:
        """Whether the PRM's calibration is among what a policy sees."""
        return not set(CALIBRATION_FEATURES) <= set(self.excluded_features)


PAPER = CatsConfig()
"""The paper's method: one decision per step (Algorithms 1 and 2), the state of section 5.2, the
reward of equation 9 with the weights of section 6.1, and gamma = .9 (`tab:gamma-ablation`).

Our choices, where the paper prints nothing: the action table, two base children sampled at
temperature 1, K = N // 4, and the minimum as path score. Finished paths compete for places, where
Algorithm 2 lets them in without limit. How the features of the state are written down, and the cost
as a share of N, are ours as well; see `features` and `reward`."""

CATS = CatsConfig(
    rounds=3,
    num_base=1,
    base=Sampling(temperature=0.0),
    vote="weighted",
    excluded_features=(),
    actions=ACTION_TABLES["temperature"],
)
"""Ours: each node starts with its greedy child, then up to three rounds per step, with the extra
features and the smallest action table: with 90 actions, most of a short training goes into finding
out which are alike. Paths are ranked by raw scores; how far a PRM can be trusted is among the
features."""


@functools.cache
def cats(policy: Policy, config: CatsConfig = CATS) -> Strategy:
    """Compute-aware tree search with the given policy.

    Args:
        policy: for example `learners.make_policy(actor, mode="argmax")`.
        config: everything else.
    """
    # At another price the functions are the same objects, so that nothing recompiles.
    return _cats(policy, dataclasses.replace(config, price=0.0))._replace(price=config.price)


@functools.cache
def _cats(policy: Policy, config: CatsConfig) -> Strategy:
    aggregated = aggregation(config.path_score)
    return Strategy(
        name="cats",
        num_phases=1 + config.rounds,
        uses_scores=True,
        width=share_of_candidates(config.factor),
        aggregation=aggregated,
        reward=config.reward,
        init_memory=_open_all,
        decide=_make_decide(policy, config),
        retain=retain_children(aggregated),
        answer=answer_rule(config.vote, aggregated),
        calibrated=config.calibrated,
        sees_calibration=config.sees_calibration,
        actions=config.actions,
    )


def random_policy(
    params: Any, key: jax.Array, features: Float[Array, "N F"], legal: Bool[Array, " A"]
) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """Every legal action with the same probability; `params` is not read."""
    del params
    logits = jnp.where(legal, 0.0, jnp.finfo(features.dtype).min)
    action = jax.random.categorical(key, logits, shape=(features.shape[0],)).astype(jnp.int32)
    log_prob = -jnp.log(jnp.sum(legal, dtype=features.dtype))
    return action, jnp.full((features.shape[0],), log_prob, features.dtype)


def constant_policy(
    params: Int[Array, ""], key: jax.Array, features: Float[Array, "N F"], legal: Bool[Array, " A"]
) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """The action with index `params`; where it is not legal, the first legal one.

    The log-probability is 0: the choice is certain.
    """
    del key
    action = jnp.where(legal[params], params, jnp.argmax(legal)).astype(jnp.int32)
    nodes = features.shape[0]
    return jnp.full((nodes,), action, jnp.int32), jnp.zeros((nodes,), features.dtype)


def _make_decide(policy: Policy, config: CatsConfig) -> Callable[..., Any]:
    def base_phase(
        params: Any, key: jax.Array, state: SearchState, features: Float[Array, "N F"]
    ) -> tuple[Action, Decision, CatsMemory]:
        del params, key, features
        slots = state.frontier.valid.shape[0]
        num_base = jnp.minimum(config.num_base, state.num_candidates)
        action = sample_action(state, jnp.full((slots,), num_base, jnp.int32), config.base)
        return action, no_decision(state), _open_all(state)

    def decide_phase(
        params: Any, key: jax.Array, state: SearchState, features: Float[Array, "N F"]
    ) -> tuple[Action, Decision, CatsMemory]:
        features = features * feature_mask(config.excluded_features)[None, :]
        available = jnp.minimum(state.num_candidates - state.used, state.budget - state.spent)
        index, log_prob = policy(params, key, features, config.actions.legal(available))
        deciding = state.frontier.valid & (num_children(state) > 0) & state.memory.is_open
        chosen = config.actions.lookup(index)
        memory = CatsMemory(
            is_open=deciding & (chosen.num_extra > 0),
            num_retain=jnp.where(deciding, chosen.num_retain, state.memory.num_retain),
        )
        action = chosen.replace(
            num_extra=jnp.where(deciding, chosen.num_extra, 0), num_retain=memory.num_retain
        )
        decision = Decision(
            features=jnp.where(deciding[:, None], features, 0.0),
            available=jnp.where(deciding, jnp.maximum(available, 0), 0),
            action=jnp.where(deciding, index, 0),
            log_prob=jnp.where(deciding, log_prob, 0.0),
            reward=jnp.zeros_like(log_prob),
            valid=deciding,
        )
        return action, decision, memory

    def decide(
        params: Any, key: jax.Array, state: SearchState, features: Float[Array, "N F"]
    ) -> tuple[Action, Decision, CatsMemory]:
        # Both are computed: under vmap `lax.cond` would do that as well, and copy the policy's
        # parameters once per question.
        arguments = (params, key, state, features)
        return select(state.phase == 0, base_phase(*arguments), decide_phase(*arguments))

    return decide


def _open_all(state: SearchState) -> CatsMemory:
    return CatsMemory(
        is_open=jnp.ones(state.frontier.valid.shape, bool),
        num_retain=jnp.ones(state.frontier.valid.shape, jnp.int32),
    )
