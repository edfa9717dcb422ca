"""Batches of searches to learn from: their records, and batches that run in the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import search

from .types import Episode


class Outcome(NamedTuple):
    """The outcome of each search; `B` searches."""

    correct: jax.Array  # bool[B]
    candidates: jax.Array  # i32[B]
    cost: jax.Array  # f32[B]; in units of 100 candidates or of 1000 tokens
    action_counts: jax.Array  # i32[B, A]
    reward: jax.Array  # f32[B]; sum of the rewards of its decisions


class Played(NamedTuple):
    """Searches that have ended, in the graph or on the host; `B` searches.

    Attributes:
        ticks: records of `episode_recorder`, `[steps, num_phases, B, ...]`; zeros after the end of
            a search.
        price: price of a unit of cost, see `search.cats.CatsConfig.cost_unit`.
    """

    ticks: Episode
    price: jax.Array  # f32[B]
    correct: jax.Array  # bool[B]
    candidates: jax.Array  # i32[B]


def make_episodes(
    strategy: search.Strategy,
    environment: search.Environment,
    *,
    max_depth: int,
    capacity: int,
    terminal_weight: float = 1.0,
    rollouts: int = 1,
) -> Callable[..., tuple[Episode, Outcome]]:
    """A pure function that runs a batch of searches.

    Its signature is `(policy params, tables, keys [Q], N i32[Q], prices f32[Q], rates) -> (Episode
    [B], Outcome)`. The rates are those of `Context.prm_token_cost`: f32[Q] or one for all, 1 by
    default. Question q depends only on its key, N, price and rate, so that several policies can be
    compared on the same questions. Episode b belongs to question b // rollouts.

    Args:
        strategy: CATS search; the policy params are those of its policy.
        environment: environment of the questions; the tables are its tables.
        max_depth: upper bound of the questions' `max_depth`.
        capacity: rows of the pool, at least the largest N.
        terminal_weight: reward of a right answer.
        rollouts: searches per question, each with its own random numbers; B = Q * rollouts.
    """
    config: search.cats.CatsConfig = strategy.config
    recorder = episode_recorder(config.reward.discount, config.cost_unit)
    start_of = functools.partial(begin, strategy=strategy, max_depth=max_depth, capacity=capacity)

    def play(
        params: Any,
        tables: Any,
        keys: jax.Array,
        sizes: jax.Array,
        prices: jax.Array,
        rates: jax.Array | float = 1.0,
    ) -> tuple[Episode, Outcome]:
        reset_keys, play_keys = search_keys(keys, rollouts)
        rates = jnp.broadcast_to(jnp.asarray(rates, jnp.float32), sizes.shape)
        sizes, prices, rates = (
            jnp.repeat(leaf, rollouts, axis=0) for leaf in (sizes, prices, rates)
        )
        tasks = environment.reset_many(tables, reset_keys)
        # The tasks' params stay outside of the vmap: they may share big tables.
        start = jax.vmap(start_of)(tasks._replace(params=()), sizes, prices, rates)
        end, ticks = search.play(
            params,
            tasks.params,
            play_keys,
            start,
            strategy=strategy,
            expand_fn=environment.expand(capacity),
            expand_axes=environment.axes,
            recorder=recorder,
        )
        answers = jax.vmap(lambda state: search.answer(params, state, strategy=strategy))(end)
        correct = jax.vmap(_is_right)(end.finished.answer, answers, tasks.right_answer)
        if config.cost_unit == "tokens":
            prompts = tasks.prompt_tokens.astype(jnp.float32) * rates / 1000.0
            ticks = _with_prompts(ticks, prompts, config.score_base)
        played = Played(ticks, prices, correct, end.spent)
        return episodes_of(played, terminal_weight, len(config.actions))

    return play


def begin(
    task: search.Task,
    size: Any,
    price: Any,
    rate: Any,
    *,
    strategy: search.Strategy,
    max_depth: int,
    capacity: int,
) -> search.SearchState:
    """The state of a task before its first tick.

    Args:
        task: question of an environment or of a step bank.
        size: N, in 1..capacity.
        rate: cost of a PRM token relative to a policy token.
        strategy: strategy of the search; static.
        max_depth: upper bound of the tasks' `max_depth`; static.
        capacity: rows of the pool; static.
    """
    return search.init(
        task.root,
        strategy=strategy,
        num_candidates=size,
        max_depth=task.max_depth,
        context=task.context._replace(price=price, prm_token_cost=rate),
        capacity=capacity,
        frontier_capacity=strategy.width(capacity),
        depth_capacity=max_depth,
    )


def search_keys(keys: jax.Array, rollouts: int) -> tuple[jax.Array, jax.Array]:
    """The keys that draw the question of each search, and those of the searches; consumes `keys`.

    Args:
        keys: keys [Q], one per question.
        rollouts: searches per question.

    Returns:
        Two arrays of keys [Q * rollouts]; in the first, the searches of a question share a key.
    """
    number = jnp.tile(jnp.arange(rollouts, dtype=jnp.uint32), keys.shape[0])
    keys = jnp.repeat(keys, rollouts, axis=0)
    reset_keys, play_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    return reset_keys, jax.vmap(jax.random.fold_in)(play_keys, number)


def episodes_of(
    played: Played, terminal_weight: float, num_actions: int
) -> tuple[Episode, Outcome]:
    """The episodes and outcomes of searches that have ended.

    Args:
        terminal_weight: reward of a right answer.
    """
    cost = jnp.sum(played.ticks.cost, axis=(0, 1))
    episodes = _in_decisions(played.ticks).replace(
        price=played.price, bonus=terminal_weight * played.correct.astype(jnp.float32)
    )
    decision = episodes.decision
    counts = jnp.zeros((num_actions,), jnp.int32)
    count = jax.vmap(lambda action, valid: counts.at[action].add(valid.astype(jnp.int32)))
    return episodes, Outcome(
        correct=played.correct,
        candidates=played.candidates,
        cost=cost,
        action_counts=count(decision.action, decision.valid),
        reward=jnp.sum(decision.reward, axis=(1, 2)),
    )


def _with_prompts(ticks: Episode, prompts: jax.Array, score_base: bool) -> Episode:
    """Add the cost of reading the question, f32[B], to the first tick that calls the PRM.

    That is the first tick or, without `score_base`, the first tick of a round that samples.
    """
    asks = ticks.cost > 0.0
    asks = asks.at[:, 0].set(False).at[0, 0].set(score_base)
    so_far = jnp.cumsum(asks.reshape(-1, asks.shape[-1]), axis=0).reshape(asks.shape)
    return ticks.replace(cost=ticks.cost + jnp.where(asks & (so_far == 1), prompts, 0.0))


def _cost(tick: search.Tick, cost_unit: str) -> jax.Array:
    """Cost of a tick, in units of 100 candidates or of 1000 tokens of the policy."""
    if cost_unit == "candidates":
        return jnp.sum(tick.output.num_samples, dtype=jnp.int32).astype(jnp.float32) / 100.0
    tokens = search.costs.tick_tokens(tick)
    read = tokens.read.astype(jnp.float32) * tick.before.context.prm_token_cost
    return (tokens.sampled.astype(jnp.float32) + read) / 1000.0


def _is_right(answer: jax.Array, row: jax.Array, right_answer: jax.Array) -> jax.Array:
    return (row >= 0) & (answer[row] == right_answer)


def _in_decisions(ticks: Episode) -> Episode:
    """From ticks `[steps, num_phases, B, ...]` to those that call the policy, `[B, D, ...]`.

    The base children of a step are added to the cost of the last such tick before it.
    """
    base = ticks.cost[:, 0]
    next_base = jnp.concatenate([base[1:], jnp.zeros_like(base[:1])])
    ticks = jax.tree.map(lambda leaf: leaf[:, 1:], ticks)
    ticks = ticks.replace(cost=ticks.cost.at[:, -1].add(next_base))
    ticks = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), ticks)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), ticks)  # question first


@functools.cache
def episode_recorder(discount: float, cost_unit: str = "candidates") -> search.Recorder:
    """A recorder of one-tick `Episode`s: decisions, transitions, and the moves of paths.

    Args:
        discount: gamma, in [0, 1], of transitions to another decision.
        cost_unit: see `search.cats.CatsConfig`. The tokens are without those of the question.
    """
    decisions = search.cats.decision_recorder(discount)

    def record(memory: Any, tick: search.Tick) -> tuple[Any, Episode]:
        memory, made = decisions.record(memory, tick)
        output, after = tick.output, tick.after
        slots = jnp.arange(output.ended.shape[0], dtype=jnp.int32)
        step_ended = output.active & (after.phase == 0)
        has_ended = (output.ended >= 0).astype(jnp.int32)
        return memory, Episode(
            decision=made.decision,
            transition=made.transition,
            cost=_cost(tick, cost_unit),
            source=jnp.where(step_ended, after.frontier.parent, slots),
            holds=made.pending.valid,
            ends=jnp.zeros_like(slots).at[output.ended].add(has_ended),
            last_reward=made.last_reward,
            price=after.context.price,
            bonus=jnp.float32(0.0),  # not known yet
        )

    return search.Recorder(init=decisions.init, record=record)
