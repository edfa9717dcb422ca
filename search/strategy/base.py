"""The interface of a search strategy, and the defaults most of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..actions import ActionTable
from ..aggregation import Aggregation, path_keys
from ..features import FEATURE_NAMES
from ..ranking import retain as retain_best
from ..reward import RewardWeights
from ..selection import best, majority_vote, weighted_vote
from ..types import Action, Decision, Paths, Plan, SearchState


class Strategy(NamedTuple):
    """Pure functions, static under `jit`: four decisions and a few constants.

    Build strategies through the cached factories (`search.beam(factor=4)`): equal arguments
    give the same object, so nothing recompiles.

    Attributes:
        name: short name for tables and result keys.
        num_phases: ticks per reasoning step; 1, or 1 + rounds for those that look first.
        uses_scores: False: the PRM is never called.
        width: `N -> K`, works on ints and on traced arrays.
        aggregation: path score.
        reward: weights of the reward of a decision; unused without a policy.
        init_memory: `state -> M`, the strategy's own pytree.
        decide: `(params, key, state, features) -> (Action, Decision, M)`, each tick. The number
            of children each frontier slot wants (before allocation), with which sampling
            parameters, and what a policy saw and chose if there is one. Consumes `key`.
        retain: `(state, plan) -> (paths, keep, M)` at the end of a step: which rows compete for
            the places in frontier and finished. `paths` is usually `state.pool`; a strategy that
            keeps nodes in its memory returns those instead.
        answer: `finished -> row`, or -1.
        calibrated: replace raw step scores by P(step right), see `calibration`, in features,
            ranking, reward and votes.
        sees_calibration: the calibration itself is among the features its policy looks at.
        price: of 100 candidates, in units of a right answer; what `search.init` writes into the
            state if it is given none. For policies that were trained at several prices.
        actions: the action table of a policy; None without one.
    """

    name: str
    num_phases: int
    uses_scores: bool
    width: Callable[[Any], Any]
    aggregation: Aggregation
    reward: RewardWeights
    init_memory: Callable[[SearchState], Any]
    decide: Callable[[Any, jax.Array, SearchState, jax.Array], tuple[Action, Decision, Any]]
    retain: Callable[[SearchState, Plan], tuple[Paths, jax.Array, Any]]
    answer: Callable[[Paths], jax.Array]
    calibrated: bool = False
    sees_calibration: bool = False
    price: float = 0.0
    actions: ActionTable | None = None


@dataclass(frozen=True)
class Sampling:
    """How a child is sampled.

    Attributes:
        temperature: >= 0; 0 is greedy.
        top_p: nucleus mass in (0, 1]; 1 switches it off.
        top_k: number of most likely tokens, >= 0; 0 switches it off.

    Raises:
        ValueError: a value is out of range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if not self.temperature >= 0.0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0 (0 switches it off), got {self.top_k}")


def no_memory(state: SearchState) -> tuple[()]:
    """The empty memory."""
    del state
    return ()


def sample_action(state: SearchState, num_extra: Int[Array, " N"], sampling: Sampling) -> Action:
    """Every slot samples `num_extra` children the same way and keeps all of them."""
    slots = state.frontier.valid.shape[0]
    return Action(
        num_extra=num_extra,
        num_retain=jnp.full((slots,), state.pool.valid.shape[0], jnp.int32),
        temperature=jnp.full((slots,), sampling.temperature, jnp.float32),
        top_p=jnp.full((slots,), sampling.top_p, jnp.float32),
        top_k=jnp.full((slots,), sampling.top_k, jnp.int32),
    )


def no_decision(state: SearchState) -> Decision:
    """No slot asked a policy."""
    slots = state.frontier.valid.shape[0]
    return Decision(
        features=jnp.zeros((slots, len(FEATURE_NAMES)), jnp.float32),
        available=jnp.zeros((slots,), jnp.int32),
        action=jnp.zeros((slots,), jnp.int32),
        log_prob=jnp.zeros((slots,), jnp.float32),
        reward=jnp.zeros((slots,), jnp.float32),
        valid=jnp.zeros((slots,), bool),
    )


def fixed_sampling(
    num_samples: Callable[[SearchState], Int[Array, ""]], sampling: Sampling
) -> Callable[..., tuple[Action, Decision, Any]]:
    """A `decide` that asks `num_samples(state)` children of every slot, whatever the scores."""

    def decide(
        params: Any, key: jax.Array, state: SearchState, features: Float[Array, "N F"]
    ) -> tuple[Action, Decision, Any]:
        del params, key, features
        slots = state.frontier.valid.shape[0]
        num_extra = jnp.full((slots,), num_samples(state), jnp.int32)
        return sample_action(state, num_extra, sampling), no_decision(state), state.memory

    return decide


def retain_children(path_score: Aggregation) -> Callable[..., tuple[Paths, Bool[Array, " N"], Any]]:
    """A `retain` that keeps the best `num_retain` children of each node."""

    def retain(state: SearchState, plan: Plan) -> tuple[Paths, Bool[Array, " N"], Any]:
        pool = state.pool
        num_retain = jnp.maximum(plan.action.num_retain, 1)
        keep = retain_best(path_keys(pool, path_score), pool.parent, pool.valid, num_retain)
        return pool, keep, plan.memory

    return retain


def answer_rule(name: str, path_score: Aggregation) -> Callable[[Paths], Int[Array, ""]]:
    """`finished -> row` by name: "best", "majority" or "weighted" (vote by path score).

    Raises:
        ValueError: the name is none of these.
    """

    def by_score(paths: Paths) -> Int[Array, ""]:
        return best(path_keys(paths, path_score), paths.answer, paths.valid)

    def by_majority(paths: Paths) -> Int[Array, ""]:
        return majority_vote(paths.answer, paths.valid)

    def by_weight(paths: Paths) -> Int[Array, ""]:
        score = path_score.value(paths.step_scores, paths.depth)
        return weighted_vote(paths.weight * score, paths.answer, paths.valid)

    rules = {"best": by_score, "majority": by_majority, "weighted": by_weight}
    if name not in rules:
        raise ValueError(f"unknown answer rule {name!r}: choose one of {', '.join(rules)}")
    return rules[name]


def share_of_candidates(factor: int) -> Callable[[Any], Any]:
    """The width `max(1, N // factor)`."""
    if factor < 1:
        raise ValueError(f"factor must be >= 1, got {factor}")

    def width(num_candidates: Any) -> Any:
        if isinstance(num_candidates, int):
            return max(1, num_candidates // factor)
        return jnp.maximum(num_candidates // factor, 1)

    return width
