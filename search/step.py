"""One tick of a search: `plan`, an expansion, `commit`.

`plan` returns a request for children. The language model and the PRM, or a simulator, return an
expansion. `commit` adds it to the state. `plan` and `commit` are pure, and the caller jits them;
they are the same on the host (around a bridge) and in the graph (around a simulator).
"""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .aggregations import path_keys, path_scores
from .allocation import allocate
from .calibration import calibrate_children
from .children import asked_rows
from .interface import Strategy, check_is_strategy, check_one_search
from .ranking import prune
from .shapes import check_expansion_shapes, check_memory, check_planned, check_request
from .state import (
    blank_like,
    candidates_left,
    compact,
    count,
    is_terminal,
    pack,
    select,
    take,
    where_rows,
)
from .types import Expansion, Paths, Plan, SearchState, StepOutput


def plan(
    params: Any,
    key: jax.Array,
    state: SearchState,
    *,
    strategy: Strategy,
    base_phase: bool | None = None,
) -> Plan:
    """The request of this tick, and the strategy's new memory.

    Args:
        params: parameters of the strategy's policy; `()` without one.
        key: PRNG key; consumed.
        state: state before the tick. After the end of the search the request is empty.
        strategy: search strategy; static.
        base_phase: promise that all searches of a batch which have not ended are in phase 0 (True)
            or in a later phase (False); None: no promise; static. Without a promise, `vmap`
            computes the plans of both kinds of phase.

    Raises:
        AssertionError: the strategy's request or memory has a wrong shape or dtype.
        TypeError: `strategy` is not a `Strategy`.
        ValueError: `state` is a batch of searches.
    """
    check_is_strategy(strategy)
    check_one_search(state)
    seen = _seen_by(state, strategy)
    if strategy.base is None:
        wanted, memory = check_planned(strategy.plan(params, key, seen))
    elif base_phase is None:
        base = check_planned(strategy.base(seen))
        later = check_planned(strategy.plan(params, key, seen))
        wanted, memory = select(state.phase == 0, base, later)
    elif base_phase:
        wanted, memory = check_planned(strategy.base(seen))
    else:
        wanted, memory = check_planned(strategy.plan(params, key, seen))
    frontier = state.frontier
    check_request(wanted, frontier.embedding, frontier.valid.shape[0])
    check_memory(memory, state.memory)
    num_samples = allocate(
        wanted.num_samples,
        path_keys(frontier, strategy.aggregation),
        frontier.valid & ~is_terminal(state),
        candidates_left(state),
    )
    used = wanted.used + strategy.earlier_draws(state)
    chex.assert_type(used, jnp.int32, custom_message="earlier_draws")
    return Plan(request=wanted.replace(num_samples=num_samples, used=used), memory=memory)


def commit(
    state: SearchState,
    plan: Plan,
    expansion: Expansion,
    *,
    strategy: Strategy,
    base_phase: bool | None = None,
) -> tuple[SearchState, StepOutput]:
    """Add the children to the pool; in the last phase of a step, also end the step.

    A tick after the end of the search changes nothing, bit for bit.

    Args:
        state: state that `plan` was computed from.
        plan: plan of this tick.
        expansion: children of this tick, in allocation order; at most as many rows as the pool.
        strategy: search strategy, the same as for `plan`; static.
        base_phase: promise as in `plan`; static. True removes the end of a step from the program
            of a strategy with several phases.

    Raises:
        AssertionError: the expansion has a wrong shape or dtype, or too many rows, or no certainty
            or vectors where the strategy reads them; or the memory changes its structure.
    """
    check_expansion_shapes(expansion, state.frontier.embedding, expansion.valid.shape[0])
    expansion = _with_facts(expansion, strategy)
    chex.assert_axis_dimension_lteq(
        expansion.valid, 0, state.pool.valid.shape[0], custom_message="rows of the expansion"
    )
    active = ~is_terminal(state)
    num_samples = plan.request.num_samples
    granted = jnp.sum(num_samples, dtype=jnp.int32)
    grown = state.replace(
        pool=_append_children(state, plan, expansion, granted),
        spent=state.spent + granted,
        used=state.used + granted,
        memory=plan.memory,
    )
    # The pool keeps raw scores until the step ends: more siblings may change their calibration.
    seen = _seen_by(grown, strategy)
    none_ended = jnp.full(num_samples.shape, -1, jnp.int32)
    in_step = (grown.replace(phase=state.phase + 1), none_ended)
    if strategy.num_phases == 1:
        after, ended = _end_step(seen, strategy)
    elif base_phase:
        after, ended = in_step
    else:
        is_last_phase = state.phase == strategy.num_phases - 1
        after, ended = select(is_last_phase, _end_step(seen, strategy), in_step)
    output = StepOutput(
        num_samples=num_samples,
        path_score=path_scores(seen.pool, strategy.aggregation),
        ended=jnp.where(active, ended, -1),
        active=active,
        report=_report(seen, plan, strategy, base_phase),
    )
    return select(active, after, state), output


def _with_facts(expansion: Expansion, strategy: Strategy) -> Expansion:
    """The expansion, without scores, a certainty or vectors that the strategy does not read."""
    judged = strategy.comparison is not None and strategy.comparison.scores
    if not strategy.uses_scores and not judged:
        expansion = expansion.replace(score=jnp.zeros_like(expansion.score))
    for fact, read, what in (
        ("certainty", strategy.certainty is not None, "the certainty of paths"),
        ("vector", strategy.needs_vectors, "vectors of steps"),
    ):
        if not read:
            expansion = expansion.replace(**{fact: None})
        elif getattr(expansion, fact) is None:
            raise AssertionError(
                f"strategy {strategy.name!r} reads {what}, which this expand function does not "
                f"report: set Expansion.{fact}, or take another strategy"
            )
    return expansion


def _report(state: SearchState, plan: Plan, strategy: Strategy, base_phase: bool | None) -> Any:
    """The strategy's report; zeros if `base_phase` is True and the strategy has a `base`."""
    if base_phase and strategy.base is not None:
        shapes = jax.eval_shape(strategy.report, state, plan)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return strategy.report(state, plan)


def _seen_by(state: SearchState, strategy: Strategy) -> SearchState:
    """The state, with calibrated step scores in the pool if the strategy is calibrated."""
    if not strategy.calibrated:
        return state
    return state.replace(pool=calibrate_children(state.pool, state.context.calibration))


def _append_children(
    state: SearchState, plan: Plan, expansion: Expansion, granted: Int[Array, ""]
) -> Paths:
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
    # Scores that were not requested are ignored, whatever the expansion holds.
    scored = asked_rows(plan.request, parent, child.done)
    score = jnp.where(scored, child.score, 0.0)
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
        step_scores=jnp.where(newest, score[:, None], frontier.step_scores[parent]),
        log_prob=child.log_prob,
        num_tokens=child.num_tokens,
        unread=jnp.where(scored, 0, frontier.unread[parent] + child.num_tokens),
        answer=child.answer,
        text=child.text,
        weight=frontier.weight[parent],
        embedding=child.embedding,
        certainty=child.certainty,
        vector=child.vector,
    )
    return where_rows(is_child, children, pool)


def _end_step(state: SearchState, strategy: Strategy) -> tuple[SearchState, Int[Array, " N"]]:
    """Keep, prune, move finished paths and empty the pool; also return `StepOutput.ended`.

    The rows that the strategy keeps, done or not, compete by path score for the K - |finished| free
    places (ties: lower row). Algorithm 2 as printed has no limit for finished children.
    """
    if strategy.keep_finished is not None:
        state = state.replace(finished=strategy.keep_finished(state))
    paths, marked, memory = strategy.keep(state)
    check_memory(memory, state.memory)
    if marked.dtype != bool or marked.shape != paths.valid.shape:
        raise TypeError(
            f"strategy {strategy.name!r}: keep returned marks {marked.dtype}{list(marked.shape)}; "
            f"they must be bool{list(paths.valid.shape)}, one for each row of the paths"
        )
    free = state.width - count(state.finished)
    kept = prune(path_keys(paths, strategy.aggregation), marked, free)
    finishes, grows = kept & paths.done, kept & ~paths.done
    stepped = state.replace(
        frontier=compact(paths, grows, blank_like(state.frontier)),
        pool=blank_like(state.pool),
        finished=compact(paths, finishes, state.finished),
        used=jnp.int32(0),
        step=state.step + 1,
        phase=jnp.int32(0),
        memory=memory,
    )
    ends = finishes | (grows & is_terminal(stepped))
    row, is_row = pack(ends, state.frontier.valid.shape[0])
    return stepped, jnp.where(is_row, paths.parent[row], -1)
