"""A recorder that turns the decisions of a CATS search into transitions for learners.

The transition of a decision is complete at the next decision on its path, or at the path's end.
Until then the decision is *pending* in the slot of the path.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..loop import Recorder, Tick
from ..state import is_terminal, select, take, where_rows
from ..types import SearchState, StepOutput
from .features import num_children
from .types import Decision, DecisionRecord, Transition


@functools.cache
def decision_recorder(discount: float) -> Recorder:
    """A recorder of `DecisionRecord`s.

    Args:
        discount: gamma, in [0, 1], of transitions to another decision; 0 at the end of a path.
    """

    def record(pending: Decision, tick: Tick) -> tuple[Decision, DecisionRecord]:
        output, after = tick.output, tick.after
        decision: Decision = output.report
        held = where_rows(decision.valid, decision, pending)
        step_ended = output.active & (after.phase == 0)
        kept = select(output.active, select(step_ended, _inherit(held, after), held), pending)
        rows = jax.tree.map(
            lambda a, b: jnp.concatenate([a, b]),
            _continue(pending, decision, step_ended & ~_has_children(tick), discount),
            _end(held, output),
        )
        emits = (rows.weight_t > 0) & output.active
        return kept, DecisionRecord(
            decision=decision,
            transition=where_rows(emits, rows, jax.tree.map(jnp.zeros_like, rows)),
            pending=kept,
            last_reward=jnp.where(decision.valid, decision.reward, pending.reward),
        )

    return Recorder(init=_nothing_pending, record=record)


def _nothing_pending(state: SearchState) -> Decision:
    return jax.tree.map(jnp.zeros_like, state.memory.decision)


def _continue(
    pending: Decision, decision: Decision, dies: Bool[Array, " S"], discount: float
) -> Transition:
    """Transitions from each slot's pending decision to the slot's decision in this tick.

    A node without a valid child at the end of the step had no decision: its path ends here.
    """
    decided = decision.valid
    return _transition(
        pending,
        discount=jnp.where(decided, jnp.float32(discount), 0.0),
        features=jnp.where(decided[:, None], decision.features, 0.0),
        weight=pending.valid & (decided | dies),
    )


def _has_children(tick: Tick) -> Bool[Array, " S"]:
    """Whether each frontier slot has a valid child after the tick's expansion."""
    expansion = tick.expansion
    granted = jnp.sum(tick.output.num_samples, dtype=jnp.int32)
    is_child = expansion.valid & (jnp.arange(expansion.valid.shape[0]) < granted)
    return (num_children(tick.before) > 0).at[expansion.parent].max(is_child)


def _inherit(held: Decision, after: SearchState) -> Decision:
    """The pending decisions by slot of the next step; zeros after the end of the search."""
    inherited = take(held, after.frontier.parent)
    stays = inherited.valid & after.frontier.valid & ~is_terminal(after)
    return where_rows(stays, inherited, jax.tree.map(jnp.zeros_like, inherited))


def _end(held: Decision, output: StepOutput) -> Transition:
    """Transitions of the paths that ended in this tick, in the order of their rows."""
    has_ended = output.ended >= 0
    last = take(held, jnp.maximum(output.ended, 0))
    nothing = jnp.zeros_like(last.reward)
    return _transition(
        last,
        discount=nothing,
        features=jnp.zeros_like(last.features),
        weight=has_ended & last.valid,
    )


def _transition(
    decision: Decision,
    *,
    discount: Float[Array, " N"],
    features: Float[Array, "N F"],
    weight: Bool[Array, " N"],
) -> Transition:
    return Transition(
        features_tm1=decision.features,
        available_tm1=decision.available,
        action_tm1=decision.action,
        log_prob_tm1=decision.log_prob,
        reward_t=decision.reward,
        discount_t=discount,
        features_t=features,
        weight_t=weight.astype(jnp.float32),
    )
