"""CATS: a learned controller decides, per node and round, how many more children to sample.

This is the search of Algorithms 1 and 2 of the paper, vectorised over the frontier. Phase 0 gives
each node its base children: our reading of "using legal actions" in Algorithm 2. In each round the
controller reads the features of the children and chooses an action: how many more children to
sample, with which parameters, and how many children to keep. A node that samples no more is closed
for this step. The other nodes decide again in the next round. In the paper a node decides once.

A node without a valid child takes the action `ActionTable.retry` in each round until a child is
valid: a greedy child may repeat itself up to the limit of tokens. The paper leaves this case open.

With `CatsConfig.prm_threshold`, the controller does not decide for nodes without a scored child. If
the likelihood of the best child gives a low P(step right), the node requests that greedy child once
more, so that the PRM scores it. This copy costs no policy tokens. Otherwise the node accepts it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..aggregations import Aggregation, aggregation, path_keys, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, request, share_of_candidates
from ..ranking import retain
from ..state import candidates_left, where_rows
from ..types import Plan, Request, SearchState
from .config import CATS, CatsConfig
from .features import (
    CALIBRATION_FEATURES,
    FEATURES,
    LIKELIHOOD_FEATURES,
    FeatureSet,
    num_children,
)
from .policies import Policy, features_read
from .reward import RewardFn, step_reward
from .types import Action, CatsMemory, Decision, Observation


@functools.cache
def cats(
    policy: Policy,
    config: CatsConfig = CATS,
    *,
    features: FeatureSet = FEATURES,
    reward: RewardFn = step_reward,
) -> Strategy:
    """Compute-aware tree search with the given controller.

    Args:
        policy: controller, for example `learners.make_policy(actor.apply, "argmax")`.
        config: all other settings of the search.
        features: inputs of the controller; those in `config.excluded_features` are set to 0.
        reward: reward function of a decision, for learning; the search does not read rewards.
    """
    aggregated = aggregation(config.path_score)
    reads = features_read(policy)
    slopes = tuple(name for name in CALIBRATION_FEATURES if reads is None or name in reads)

    def base(state: SearchState) -> tuple[Request, CatsMemory]:
        num_base = jnp.minimum(config.num_base, state.num_candidates)
        wanted = request(state, num_base, config.base, scored=config.score_base)
        return wanted, _open_all(state, features)

    def report(state: SearchState, plan: Plan) -> Decision:
        """The tick's decisions with their rewards."""
        decision, pool = state.memory.decision, state.pool
        rewards = reward(
            path_scores(pool, aggregated),
            pool.parent,
            pool.valid,
            _retained(state, aggregated),
            plan.request.num_samples,
            state.num_candidates,
            config.reward,
        )
        return decision.replace(reward=jnp.where(decision.valid, rewards, 0.0))

    return Strategy(
        name="cats",
        num_phases=1 + config.num_rounds,
        quiet_ends_step=True,
        width=share_of_candidates(config.expansion),
        aggregation=aggregated,
        calibrated=config.calibrated,
        base=base,
        plan=_make_plan(policy, config, aggregated, features),
        keep=lambda state: (state.pool, _retained(state, aggregated), state.memory),
        answer=answer_rule(config.vote),
        init_memory=lambda state: _open_all(state, features),
        report=report,
        sampling=config.sampling,
        needs_calibration=config.calibrated or _sees(slopes, config, features),
        needs_log_probs=not config.score_base or _sees(LIKELIHOOD_FEATURES, config, features),
        config=config,
    )


def _sees(names: tuple[str, ...], config: CatsConfig, features: FeatureSet) -> bool:
    return any(name in features.names and name not in config.excluded_features for name in names)


def _make_plan(
    policy: Policy, config: CatsConfig, aggregated: Aggregation, features: FeatureSet
) -> Callable[[Any, jax.Array, SearchState], tuple[Request, CatsMemory]]:
    asks = _make_asks(config, features)

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, CatsMemory]:
        mask = features.mask(config.excluded_features)
        found = features.extract(state, aggregated)
        seen = found * mask[None, :]
        available = candidates_left(state)
        is_open = state.frontier.valid & state.memory.is_open
        childless = num_children(state) == 0
        unscored, in_doubt = asks(found)
        unscored &= ~childless
        deciding, stuck = is_open & ~childless & ~unscored, is_open & childless
        legal = config.actions.legal(available)
        observation = Observation(features=seen, legal=legal, deciding=deciding, state=state)
        index, log_prob = policy(params, key, observation)
        chosen = config.actions.lookup(jnp.where(stuck, config.actions.retry, index))
        copies = _copies(in_doubt & (available > 0), config.base)
        chosen = where_rows(unscored, copies, chosen)
        num_extra = jnp.where(deciding, chosen.num_extra, 0)
        num_retain = jnp.where(deciding, chosen.num_retain, state.memory.num_retain)
        decision = Decision(
            features=jnp.where(deciding[:, None], seen, 0.0),
            available=jnp.where(deciding, jnp.maximum(available, 0), 0),
            action=jnp.where(deciding, index, 0),
            num_extra=num_extra,
            num_retain=jnp.where(deciding, chosen.num_retain, 0),
            log_prob=jnp.where(deciding, log_prob, 0.0),
            reward=jnp.zeros_like(log_prob),
            valid=deciding,
        )
        wanted = request(state, jnp.where(is_open, chosen.num_extra, 0)).replace(
            temperature=chosen.temperature, top_p=chosen.top_p, top_k=chosen.top_k
        )
        is_open = is_open & (chosen.num_extra > 0)
        return wanted, CatsMemory(is_open=is_open, num_retain=num_retain, decision=decision)

    return plan


def _make_asks(
    config: CatsConfig, features: FeatureSet
) -> Callable[[Float[Array, "N F"]], tuple[Bool[Array, " N"], Bool[Array, " N"]]]:
    """The function from features to two masks: nodes without scored children, nodes in doubt."""
    if config.prm_threshold is None:
        return lambda found: (jnp.zeros(found.shape[0], bool), jnp.zeros(found.shape[0], bool))
    threshold = jnp.float32(config.prm_threshold)
    min_prm_weight = jnp.float32(config.min_prm_weight)
    best, scored = features.column("step_best"), features.column("scored_share")
    weight = features.column("prm_weight")

    def asks(found: Float[Array, "N F"]) -> tuple[Bool[Array, " N"], Bool[Array, " N"]]:
        in_doubt = (found[:, best] < threshold) & (found[:, weight] >= min_prm_weight)
        return found[:, scored] == 0.0, in_doubt

    return asks


def _copies(asks: Bool[Array, " N"], base: Sampling) -> Action:
    """One more greedy child, which the PRM scores, for each node in `asks`; no child for others."""
    one = asks.astype(jnp.int32)
    return Action(
        num_extra=one,
        num_retain=jnp.ones_like(one),
        temperature=jnp.zeros(asks.shape, jnp.float32),
        top_p=jnp.full(asks.shape, base.top_p, jnp.float32),
        top_k=jnp.full(asks.shape, base.top_k, jnp.int32),
    )


def _retained(state: SearchState, aggregated: Aggregation) -> Bool[Array, " N"]:
    """The best `num_retain` children of each node, at least one."""
    pool = state.pool
    num_retain = jnp.maximum(state.memory.num_retain, 1)
    return retain(path_keys(pool, aggregated), pool.parent, pool.valid, num_retain)


def _open_all(state: SearchState, features: FeatureSet) -> CatsMemory:
    slots = state.frontier.valid.shape
    return CatsMemory(
        is_open=jnp.ones(slots, bool),
        num_retain=jnp.ones(slots, jnp.int32),
        decision=empty_decision(slots[0], len(features.names)),
    )


def empty_decision(num_slots: int, num_features: int) -> Decision:
    """A `Decision` of `num_slots` frontier slots in which no slot decided."""
    zeros, nothing = jnp.zeros((num_slots,), jnp.float32), jnp.zeros((num_slots,), jnp.int32)
    return Decision(
        features=jnp.zeros((num_slots, num_features), jnp.float32),
        available=nothing,
        action=nothing,
        num_extra=nothing,
        num_retain=nothing,
        log_prob=zeros,
        reward=zeros,
        valid=jnp.zeros((num_slots,), bool),
    )
