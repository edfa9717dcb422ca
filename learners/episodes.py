"""Batches of searches to learn from: play them in the graph, and keep what learning needs.

Padding costs as much as what it pads. Questions of small N are therefore searched in batches of
their own, with pools of their own size, and a batch whose searches have all ended costs nothing
more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

import search

from .types import Episode

Reset = Callable[[jax.Array], tuple[Any, Any, jax.Array, jax.Array, jax.Array]]
"""`key -> (expand_params, root embedding, prm_features f32[P], max_depth i32[], correct answer
i32[])`: a random question, with the PRM that judges it. Consumes the key."""

Expander = Callable[[int], search.ExpandFn]
"""`capacity -> expand_fn` whose expansions have that many rows: `search.simulation.simulator`."""


class Outcome(NamedTuple):
    """What each question's search came to; `B` questions."""

    correct: jax.Array  # bool[B]
    candidates: jax.Array  # i32[B]
    action_counts: jax.Array  # i32[B, A]
    reward: jax.Array  # f32[B]; sum over decisions, as the search pays it


def make_episodes(
    strategy: search.Strategy,
    expander: Expander,
    reset: Reset,
    *,
    num_actions: int,
    max_depth: int,
    capacity: int,
    terminal_weight: float = 1.0,
    rollouts: int = 1,
) -> Callable[..., tuple[Episode, Outcome]]:
    """`(policy params, keys [Q], N i32[Q], prices f32[Q]) -> (Episode [B, ...], Outcome)`, pure.

    Question q is a function of its key, its N and its price alone, whatever the policy or the
    capacity: other policies can be played on the same questions. Episode b is of question
    b // rollouts.

    Args:
        strategy: a CATS search, whose policy is given the params.
        expander: gives the expand function of this capacity.
        reset: draws questions.
        num_actions: entries of the action table.
        max_depth: bounds the depth of the questions.
        capacity: rows of the pool, at least the largest N.
        terminal_weight: what a right answer is worth.
        rollouts: searches of each question, from other random numbers; B = Q * rollouts.
    """
    expand_fn = expander(capacity)
    rounds = strategy.num_phases - 1

    def begin(
        key: jax.Array, rollout: jax.Array, size: jax.Array, price: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, search.SearchState]:
        reset_key, search_key = jax.random.split(key)
        search_key = jax.random.fold_in(search_key, rollout)
        _, root, prm_features, depth, right_answer = reset(reset_key)
        start = search.init(
            root,
            strategy=strategy,
            num_candidates=size,
            max_depth=depth,
            price=price,
            prm_features=prm_features,
            capacity=capacity,
            frontier_capacity=strategy.width(capacity),
            depth_capacity=max_depth,
        )
        return reset_key, right_answer, search_key, start

    def play(
        params: Any, keys: jax.Array, sizes: jax.Array, prices: jax.Array
    ) -> tuple[Episode, Outcome]:
        number = jnp.tile(jnp.arange(rollouts, dtype=jnp.uint32), keys.shape[0])
        keys, sizes, prices = (jnp.repeat(leaf, rollouts, axis=0) for leaf in (keys, sizes, prices))
        reset_keys, right_answers, search_keys, start = jax.vmap(begin)(keys, number, sizes, prices)

        def tick(state: search.SearchState, index: jax.Array, base_phase: bool) -> Any:
            """`search.tick` with the promise that all questions are in the same phase."""

            def advance(reset_key: jax.Array, key: jax.Array, state: search.SearchState) -> Any:
                # Anew in each tick: as a result of the vmap above, tables that all questions
                # share (a step bank) would be copied for each of them.
                expand_params = reset(reset_key)[0]
                plan_key, expand_key = search.tick_keys(key, index)
                planned = search.plan(
                    params, plan_key, state, strategy=strategy, base_phase=base_phase
                )
                expansion = expand_fn(expand_params, expand_key, planned.request)
                after, output = search.commit(
                    state, planned, expansion, strategy=strategy, base_phase=base_phase
                )
                return after, _record(state, after, output)

            return jax.vmap(advance)(reset_keys, search_keys, state)

        def one_step(states: search.SearchState, step: jax.Array) -> Any:
            first = step * strategy.num_phases
            states, base = tick(states, first, True)
            states, rounds_of_step = lax.scan(
                lambda states, phase: tick(states, first + phase, False),
                states,
                jnp.arange(1, rounds + 1, dtype=jnp.int32),
            )
            return states, (base.candidates, rounds_of_step)

        def step_or_nothing(states: search.SearchState, step: jax.Array) -> Any:
            blank = jax.eval_shape(lambda: one_step(states, step)[1])
            return lax.cond(
                jnp.all(jax.vmap(search.is_terminal)(states)),
                lambda: (
                    states,
                    jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), blank),
                ),
                lambda: one_step(states, step),
            )

        end, (base, ticks) = lax.scan(
            step_or_nothing, start, jnp.arange(max_depth, dtype=jnp.int32)
        )
        # The base children of a step are paid for in what the last decisions before it cost.
        next_base = jnp.concatenate([base[1:], jnp.zeros_like(base[:1])])
        ticks = ticks.replace(candidates=ticks.candidates.at[:, -1].add(next_base))
        ticks = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), ticks)
        ticks = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), ticks)  # question first
        return jax.vmap(judge)(start, end, ticks, right_answers)

    def judge(
        start: search.SearchState,
        end: search.SearchState,
        ticks: Episode,
        right_answer: jax.Array,
    ) -> tuple[Episode, Outcome]:
        row = strategy.answer(end.finished)
        correct = (row >= 0) & (end.finished.answer[row] == right_answer)
        bonus = terminal_weight * correct.astype(jnp.float32)
        counts = jnp.zeros((num_actions,), jnp.int32)
        decision = ticks.decision
        return ticks.replace(price=start.price, bonus=bonus), Outcome(
            correct=correct,
            candidates=end.spent,
            action_counts=counts.at[decision.action].add(decision.valid.astype(jnp.int32)),
            reward=jnp.sum(decision.reward),
        )

    return play


def _record(
    before: search.SearchState, after: search.SearchState, output: search.StepOutput
) -> Episode:
    """One tick of an episode, of one question."""
    slots = jnp.arange(before.frontier.valid.shape[0], dtype=jnp.int32)
    step_ended = output.active & (after.phase == 0)
    finishes = after.finished.valid & ~before.finished.valid
    stops = after.frontier.valid & search.is_terminal(after)
    ends = jnp.zeros_like(slots).at[after.finished.parent].add(finishes.astype(jnp.int32))
    ends = ends.at[after.frontier.parent].add(stops.astype(jnp.int32))
    return Episode(
        decision=output.decision,
        transition=output.transition,
        candidates=jnp.sum(output.num_samples, dtype=jnp.int32),
        source=jnp.where(step_ended, after.frontier.parent, slots),
        holds=after.pending.valid,
        ends=jnp.where(step_ended, ends, 0),
        last_reward=jnp.where(output.decision.valid, output.decision.reward, before.pending.reward),
        price=before.price,
        bonus=jnp.float32(0.0),  # nobody knows yet
    )
