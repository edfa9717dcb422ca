"""Answer rules: which finished path gives the answer of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
from jaxtyping import Array, Int

from .aggregations import Aggregation, path_keys, relative_scores
from .selection import best, majority_vote, weighted_vote
from .types import Context, Paths

AnswerRule = Callable[[Any, Paths, Context, Aggregation], jax.Array]
"""`(params, finished, context, aggregation) -> i32[]`, a row of `finished` or -1 for no answer.

`params` are the parameters of the strategy's policy; `context` is the search's `Context`."""


def answer_best(
    params: Any, finished: Paths, context: Context, aggregation: Aggregation
) -> Int[Array, ""]:
    """The path with the best path score among the finished paths with an answer."""
    return best(path_keys(finished, aggregation), finished.answer, finished.valid)


def answer_majority(
    params: Any, finished: Paths, context: Context, aggregation: Aggregation
) -> Int[Array, ""]:
    """The first finished path with the most frequent answer."""
    return majority_vote(finished.answer, finished.valid)


def answer_weighted(
    params: Any, finished: Paths, context: Context, aggregation: Aggregation
) -> Int[Array, ""]:
    """The first path with the winning answer; a path's vote is its path score times its weight."""
    voters = finished.valid & (finished.answer >= 0)
    weights = finished.weight * relative_scores(finished, aggregation, voters)
    return weighted_vote(weights, finished.answer, finished.valid)


def answer_by_weight(
    params: Any, finished: Paths, context: Context, aggregation: Aggregation
) -> Int[Array, ""]:
    """The first path with the winning answer; a path's vote is its weight."""
    return weighted_vote(finished.weight, finished.answer, finished.valid)


ANSWER_RULES: Mapping[str, AnswerRule] = MappingProxyType(
    {"best": answer_best, "majority": answer_majority, "weighted": answer_weighted}
)
"""Name -> rule, as recipes name them."""


def answer_rule(name: str) -> AnswerRule:
    """The answer rule of that name. Raises ValueError naming the known ones."""
    if name not in ANSWER_RULES:
        raise ValueError(f"unknown answer rule {name!r}: choose one of {', '.join(ANSWER_RULES)}")
    return ANSWER_RULES[name]
