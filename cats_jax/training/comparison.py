"""Comparison of trained controllers with untrained policies on the same held-out questions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import learners
import search

from ..reporting.actions import ACTION
from .questions import TrainingQuestions

_QUESTIONS = 256
"""Number of held-out questions, the same for every policy, price and N."""

_THRESHOLDS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
"""Thresholds of the rule that samples more while the best child's score is below one."""


@dataclass(frozen=True)
class PolicyResults:
    """Results of `R` policies at `C` prices and `M` values of N.

    Attributes:
        accuracy: f64[R, C, M]; share of right answers.
        candidates: f64[R, C, M]; mean candidates per question.
        cost: f64[R, C, M]; mean cost per question, in 100 candidates or 1000 tokens.
        value: f64[R, C]; accuracy minus price times cost, averaged over N.
        entropy: f64[R]; entropy of the frequencies of actions over all decisions, nats.
        top_action: f64[R]; share of the most frequent action.
    """

    accuracy: np.ndarray
    candidates: np.ndarray
    cost: np.ndarray
    value: np.ndarray
    entropy: np.ndarray
    top_action: np.ndarray


@dataclass(frozen=True)
class RivalComparison:
    """The results of controllers, and of named rivals with their settings."""

    num_candidates: tuple[int, ...]
    prices: tuple[float, ...]
    controllers: PolicyResults
    rivals: dict[str, tuple[PolicyResults, list[dict[str, Any]]]]

    def best_rivals(self) -> dict[str, list[dict[str, Any]]]:
        """For each rival, by name, the best setting at each price with its results."""
        found = {}
        for name, (figures, settings) in self.rivals.items():
            rows = figures.value.argmax(axis=0)
            found[name] = [
                {
                    "price": price,
                    **settings[row],
                    "value": round(float(figures.value[row, column]), 4),
                    "accuracy": np.round(figures.accuracy[row, column], 4).tolist(),
                    "candidates": np.round(figures.candidates[row, column], 4).tolist(),
                }
                for column, (price, row) in enumerate(zip(self.prices, rows, strict=True))
            ]
        return found

    def lines(self) -> list[str]:
        """One line per rival: its best value at each price, chosen for that price."""
        return [
            f"best {name}: accuracy minus cost {np.round(figures.value.max(axis=0), 3)}, each "
            f"price's own; one for all prices {figures.value.mean(axis=1).max():.3f}"
            for name, (figures, _) in self.rivals.items()
        ] + [f"best controller: {self.controllers.value.mean(axis=1).max():.3f} over all prices"]


def compare(
    config: learners.TrainConfig,
    questions: TrainingQuestions,
    actors: Any,
    key: jax.Array,
    *,
    rivals: bool = True,
) -> RivalComparison:
    """Evaluate controllers, and optionally their rivals, on the held-out questions.

    Args:
        config: configuration with which the controllers were trained.
        questions: questions; the held-out ones are used.
        actors: parameters of the controllers' actors, with a leading axis.
        key: PRNG key of the questions, which are the same for all policies; consumed.
        rivals: also evaluate every constant action, many threshold rules and the random policy.
    """
    sizes = sorted(set(config.num_candidates))
    sizes = sizes if len(sizes) <= 3 else [sizes[0], sizes[len(sizes) // 2], sizes[-1]]

    def play(policy: Any, params: Any) -> PolicyResults:
        played = _play(config, questions, key, sizes, policy, params, (0.0,))
        return _at_prices(played, config.prices)

    found: dict[str, tuple[PolicyResults, list[dict[str, Any]]]] = {}
    if rivals:
        rows = config.cats.actions.rows
        described: list[dict[str, Any]] = [dict(zip(ACTION, row, strict=True)) for row in rows]
        everyone = jnp.arange(len(rows), dtype=jnp.int32)
        rules, settings = _rules(config.cats.actions, described)
        found = {
            "constant action": (play(search.cats.constant_policy, everyone), described),
            "threshold rule": (play(search.cats.sample_while_below("max"), rules), settings),
            "random policy": (play(search.cats.random_policy, jnp.zeros((1,), jnp.int32)), [{}]),
        }
    controllers = play_controllers(config, questions, actors, key, sizes, config.prices)
    return RivalComparison(tuple(sizes), config.prices, controllers, found)


def play_controllers(
    config: learners.TrainConfig,
    questions: TrainingQuestions,
    actors: Any,
    key: jax.Array,
    sizes: Sequence[int],
    prices: Sequence[float],
    num_questions: int = _QUESTIONS,
) -> PolicyResults:
    """Results of trained controllers, which take their likeliest actions, on held-out questions.

    Args:
        config: configuration with which the controllers were trained.
        questions: questions; the held-out ones are used.
        actors: parameters of the controllers' actors, with a leading axis.
        key: PRNG key of the questions, which do not depend on the configuration; consumed.
        sizes: values of N.
        prices: prices of a unit of cost; the PRM's rate is the first of the configuration's.
        num_questions: number of questions per N and price.
    """
    actor = learners.make_actor(len(config.cats.actions), config.actor_hidden)
    policy = learners.make_policy(actor.apply, "argmax")
    return _play(config, questions, key, sizes, policy, actors, prices, num_questions)


def _rules(
    actions: search.cats.ActionTable, described: list[dict[str, Any]]
) -> tuple[search.cats.RuleParams, list[dict[str, Any]]]:
    """Every threshold with every action that samples and has the smallest `num_retain`."""
    stop = next(index for index, row in enumerate(actions.rows) if row[0] == 0)
    fewest = min(row[1] for row in actions.rows)
    sampling = [index for index, row in enumerate(actions.rows) if row[0] > 0 and row[1] == fewest]
    pairs = [(threshold, index) for threshold in _THRESHOLDS for index in sampling]
    rules = search.cats.RuleParams(
        threshold=jnp.asarray([threshold for threshold, _ in pairs], jnp.float32),
        sample=jnp.asarray([index for _, index in pairs], jnp.int32),
        stop=jnp.full((len(pairs),), stop, jnp.int32),
    )
    return rules, [{"threshold": threshold, **described[index]} for threshold, index in pairs]


def _at_prices(figures: PolicyResults, prices: Sequence[float]) -> PolicyResults:
    """Results at every price, from one run of policies that ignore the price."""
    found = {
        name: np.repeat(getattr(figures, name), len(prices), axis=1)
        for name in ("accuracy", "candidates", "cost")
    }
    value = _value(found["accuracy"], found["cost"], prices)
    return dataclasses.replace(figures, **found, value=value)


def _value(accuracy: np.ndarray, cost: np.ndarray, prices: Sequence[float]) -> np.ndarray:
    return np.mean(accuracy - np.asarray(prices)[None, :, None] * cost, axis=2)


def _play(
    config: learners.TrainConfig,
    questions: TrainingQuestions,
    key: jax.Array,
    sizes: Sequence[int],
    policy: Any,
    params: Any,
    prices: Sequence[float],
    num_questions: int = _QUESTIONS,
) -> PolicyResults:
    """Run policies (params with leading axis `[R]`) at every price and N on the same questions."""
    strategy = search.cats.cats(policy, config.cats)

    @jax.jit
    def all_questions(tables: Any, params: Any, size: jax.Array, price: jax.Array) -> Any:
        play = learners.make_episodes(
            strategy, questions.environment, max_depth=config.max_depth, capacity=max(sizes)
        )
        keys = jax.random.split(key, num_questions)
        every_size, every_price = jnp.full(num_questions, size), jnp.full(num_questions, price)
        every_rate = jnp.full(num_questions, config.prm_token_costs[0])
        outcome = play(params, tables, keys, every_size, every_price, every_rate)[1]
        return (
            jnp.mean(outcome.correct.astype(jnp.float32)),
            jnp.mean(outcome.candidates.astype(jnp.float32)),
            jnp.mean(outcome.cost),
            jnp.sum(outcome.action_counts, axis=0, dtype=jnp.int32),
        )

    count = jax.tree.leaves(params)[0].shape[0]
    accuracy, candidates, cost = np.zeros((3, count, len(prices), len(sizes)))
    actions = np.zeros((count, len(config.cats.actions)))
    for row, column, place in np.ndindex(accuracy.shape):
        mine = jax.tree.map(lambda leaf, row=row: leaf[row], params)
        right, spent, paid, taken = all_questions(
            questions.held_out, mine, jnp.int32(sizes[place]), jnp.float32(prices[column])
        )
        at = (row, column, place)
        accuracy[at], candidates[at], cost[at] = right, spent, paid
        actions[row] += np.asarray(taken)
    share = actions / np.maximum(actions.sum(axis=1, keepdims=True), 1.0)
    return PolicyResults(
        accuracy=accuracy,
        candidates=candidates,
        cost=cost,
        value=_value(accuracy, cost, prices),
        entropy=-np.sum(share * np.log(np.maximum(share, 1e-12)), axis=1),
        top_action=share.max(axis=1),
    )
