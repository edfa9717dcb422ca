"""One tick of a search: `plan`, then somebody expands, then `commit`.

The only impure thing in a search is asking the language model and the PRM. Every tick is cut
there: `plan` says what to ask, `commit` takes in what came back. Both are pure, jitted by the
caller, and the same on the host (around a bridge) and in the graph (around a simulator).
"""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .aggregation import path_keys, path_scores
from .allocation import allocate
from .calibration import calibrate_children
from .features import extract
from .ranking import prune, retain
from .reward import step_reward
from .shapes import check_action, check_expansion_shapes
from .state import (
    compact,
    count,
    empty_decision,
    empty_paths,
    is_terminal,
    pack,
    select,
    take,
    where_rows,
)
from .strategy.base import Strategy
from .types import (
    Decision,
    Expansion,
    Paths,
    Plan,
    Request,
    SearchState,
    StepOutput,
    Transition,
)


def plan(
    params: Any,
    key: jax.Array,
    state: SearchState,
    *,
    strategy: Strategy,
    base_phase: bool = False,
) -> Plan:
    """What this tick asks of the language model.

    Args:
        params: of the strategy's policy; passed through.
        key: consumed.
        state: before the tick. After the end of the search the request is empty.
        strategy: static.
        base_phase: static; the caller's promise that `state.phase` is 0 in every question of
            its batch. Under `vmap` a phase per question makes both branches run; with the
            promise the features and the policy drop out of the program.

    Raises:
        AssertionError: the strategy's action or memory has a wrong shape or dtype.
    """
    active = ~is_terminal(state)
    judged = _judge(state, strategy)
    features = extract(judged, strategy.aggregation)
    known = judged.replace(phase=jnp.int32(0)) if base_phase else judged
    action, decision, memory = strategy.decide(params, key, known, features)
    frontier = state.frontier
    check_action(action, frontier.valid.shape[0])
    chex.assert_trees_all_equal_shapes_and_dtypes(
        memory, state.memory, custom_message="the strategy's memory must keep its structure"
    )
    num_samples = allocate(
        action.num_extra,
        path_keys(frontier, strategy.aggregation),
        frontier.valid & active,
        jnp.minimum(state.num_candidates - state.used, state.budget - state.spent),
    )
    request = Request(
        num_samples=num_samples,
        temperature=action.temperature,
        top_p=action.top_p,
        top_k=action.top_k,
        to_end=frontier.depth >= state.max_depth - 1,
        depth=frontier.depth,
        embedding=frontier.embedding,
    )
    return Plan(request=request, action=action, decision=decision, memory=memory)


def commit(
    state: SearchState,
    plan: Plan,
    expansion: Expansion,
    *,
    strategy: Strategy,
    base_phase: bool = False,
) -> tuple[SearchState, StepOutput]:
    """Take in the children; in the last phase of a step also retain, prune and finish.

    A tick after the end of the search changes nothing, bit for bit.

    Args:
        state: the state `plan` was made from.
        plan: this tick's plan.
        expansion: its children, in allocation order; at most as many rows as the pool.
        strategy: static; the same as for `plan`.
        base_phase: static; the promise of `plan`'s, for strategies of several phases: decisions
            and the end of a step drop out of the program.

    Raises:
        AssertionError: a field of the expansion has a wrong shape or dtype, or it has more rows
            than the pool.
    """
    check_expansion_shapes(expansion, state.frontier.embedding, expansion.valid.shape[0])
    chex.assert_axis_dimension_lteq(
        expansion.valid, 0, state.pool.valid.shape[0], custom_message="rows of the expansion"
    )
    active = ~is_terminal(state)
    decided = plan.decision.valid & active
    if base_phase:
        state = state.replace(phase=jnp.int32(0))
        decided = jnp.zeros_like(decided)
    num_samples = plan.request.num_samples
    granted = jnp.sum(num_samples, dtype=jnp.int32)
    grown = state.replace(
        pool=_append_children(state, expansion, granted),
        spent=state.spent + granted,
        used=state.used + granted,
        memory=plan.memory,
    )
    # The pool keeps raw scores until the step ends: more siblings may change what they mean.
    judged = _judge(grown, strategy)
    reward = jnp.where(decided, _decision_reward(judged, plan, strategy), 0.0)
    continuing = _continue_pending(state, plan, decided, strategy.reward.discount)
    pending = _update_pending(state, plan, decided, reward)
    grown, judged = grown.replace(pending=pending), judged.replace(pending=pending)

    stepped, ending = _end_step(judged, plan, strategy)
    in_step = grown.replace(phase=state.phase + 1)
    is_last_phase = state.phase == strategy.num_phases - 1
    after = select(is_last_phase, stepped, in_step)
    emits = jnp.concatenate(
        [(continuing.weight_t > 0) & active, (ending.weight_t > 0) & is_last_phase & active]
    )
    rows = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), continuing, ending)
    transition = where_rows(emits, rows, jax.tree.map(jnp.zeros_like, rows))
    output = StepOutput(
        transition=transition,
        decision=plan.decision.replace(reward=reward, valid=decided),
        num_samples=num_samples,
        path_score=path_scores(judged.pool, strategy.aggregation),
        active=active,
    )
    return select(active, after, state), output


def _judge(state: SearchState, strategy: Strategy) -> SearchState:
    """The state as its strategy sees it: with calibrated step scores in the pool, or as it is."""
    if not strategy.calibrated:
        return state
    return state.replace(pool=calibrate_children(state.pool, state.prm_features[2:]))


def _append_children(state: SearchState, expansion: Expansion, granted: Int[Array, ""]) -> Paths:
    """Write expansion rows 0..granted-1 to pool rows used..used+granted-1."""
    pool, frontier = state.pool, state.frontier
    rows = jnp.arange(pool.valid.shape[0], dtype=jnp.int32)
    source = rows - state.used
    is_new = (source >= 0) & (source < granted)
    child = take(expansion, jnp.clip(source, 0, expansion.valid.shape[0] - 1))
    parent = jnp.where(is_new, child.parent, 0)
    is_child = is_new & child.valid
    parent_depth = frontier.depth[parent]
    newest = (
        jnp.arange(pool.step_scores.shape[1], dtype=jnp.int32)[None, :] == parent_depth[:, None]
    )
    # At the root there is no group to inherit: N children form K groups of equal size.
    group = jnp.where(
        state.step == 0, rows * state.width // state.num_candidates, frontier.group[parent]
    )
    children = Paths(
        valid=is_child,
        done=child.done,
        parent=parent,
        group=group,
        depth=parent_depth + 1,
        step_scores=jnp.where(newest, child.score[:, None], frontier.step_scores[parent]),
        log_prob=child.log_prob,
        num_tokens=child.num_tokens,
        answer=child.answer,
        text=child.text,
        weight=frontier.weight[parent],
        embedding=child.embedding,
    )
    return where_rows(is_child, children, pool)


def _decision_reward(state: SearchState, plan: Plan, strategy: Strategy) -> jax.Array:
    """Reward of each slot's decision, from all its children so far, before the prune."""
    pool = state.pool
    num_retain = jnp.maximum(plan.action.num_retain, 1)
    kept = retain(path_keys(pool, strategy.aggregation), pool.parent, pool.valid, num_retain)
    return step_reward(
        path_scores(pool, strategy.aggregation),
        pool.parent,
        pool.valid,
        kept,
        plan.request.num_samples,
        state.num_candidates,
        strategy.reward,
    )


def _continue_pending(
    state: SearchState, plan: Plan, decided: Bool[Array, " N"], discount: float
) -> Transition:
    """Transitions from each slot's pending decision to the one it takes now.

    A path that was kept but takes no decision (no base child was granted or valid) ends here
    with discount 0. In later rounds a closed node's decision stays pending for its children.
    """
    pending = state.pending
    ends = pending.valid & (state.phase == 1) & ~decided
    return Transition(
        features_tm1=pending.features,
        available_tm1=pending.available,
        action_tm1=pending.action,
        log_prob_tm1=pending.log_prob,
        reward_t=pending.reward,
        discount_t=jnp.where(decided, jnp.float32(discount), 0.0),
        features_t=jnp.where(decided[:, None], plan.decision.features, 0.0),
        weight_t=((pending.valid & decided) | ends).astype(jnp.float32),
    )


def _update_pending(
    state: SearchState, plan: Plan, decided: Bool[Array, " N"], reward: jax.Array
) -> Decision:
    keeps_old = state.pending.valid & ~(decided | (state.phase == 1))
    new = plan.decision.replace(reward=reward, valid=decided)
    old = state.pending.replace(valid=keeps_old)
    return where_rows(decided, new, old)


def _end_step(state: SearchState, plan: Plan, strategy: Strategy) -> tuple[SearchState, Transition]:
    """Retain, prune, move finished paths, empty the pool.

    Retained children of all nodes, done or not, compete by path score for the K - |finished|
    free places (ties: lower pool row). Algorithm 2 as printed lets finished children in without
    limit and can step over |F| = K.
    """
    paths, keep, memory = strategy.retain(state, plan)
    free = state.width - count(state.finished)
    kept = prune(path_keys(paths, strategy.aggregation), keep, free)
    finishes = kept & paths.done
    grows = kept & ~paths.done

    empty_frontier = _blank_like(state.frontier)
    frontier = compact(paths, grows, empty_frontier)
    pending = state.pending
    inherited = take(pending, frontier.parent)
    inherited = inherited.replace(valid=inherited.valid & frontier.valid)
    stepped = state.replace(
        frontier=frontier,
        pool=_blank_like(state.pool),
        finished=compact(paths, finishes, state.finished),
        used=jnp.int32(0),
        step=state.step + 1,
        phase=jnp.int32(0),
        memory=memory,
    )
    ended = is_terminal(stepped)
    no_pending = empty_decision(frontier.valid.shape[0])
    stays_pending = inherited.valid & ~ended
    stepped = stepped.replace(pending=where_rows(stays_pending, inherited, no_pending))

    leaving, leaves = pack(finishes | (grows & ended), frontier.valid.shape[0])
    last_words = take(pending, paths.parent[leaving])
    emits = leaves & last_words.valid
    transition = Transition(
        features_tm1=last_words.features,
        available_tm1=last_words.available,
        action_tm1=last_words.action,
        log_prob_tm1=last_words.log_prob,
        reward_t=last_words.reward,
        discount_t=jnp.zeros_like(last_words.reward),
        features_t=jnp.zeros_like(last_words.features),
        weight_t=emits.astype(jnp.float32),
    )
    return stepped, transition


def _blank_like(paths: Paths) -> Paths:
    capacity, depth_capacity = paths.step_scores.shape
    root = jax.tree.map(lambda leaf: leaf[0], paths.embedding)
    return empty_paths(capacity, depth_capacity, root)
