"""Checks of the contract of expand functions. They read values, so they run outside `jit`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .loop import ExpandFn
from .shapes import EXPANSION_DTYPES, check_expansion_shapes
from .types import Expansion, Request

_SAMPLING = ((1.0, 1.0, 0), (0.6, 0.9, 0), (1.4, 1.0, 5), (0.0, 1.0, 0))


def check_expand_fn(
    expand_fn: ExpandFn,
    params: Any,
    root: Any,
    *,
    capacity: int,
    max_depth: int = 3,
    num_slots: int = 4,
    seed: int = 0,
    uses_scores: bool = True,
) -> None:
    """Call an expand function with requests of many kinds and check every expansion.

    The first request is empty. The others take `max_depth` steps from the root, once per sampling
    setting (one is greedy); the first step fills the expansion, the last one runs to the end.

    Args:
        params: first argument of `expand_fn`.
        root: embedding of a question, without the leading `[N]`.
        capacity: rows of the expansions, and most samples of a request.
        max_depth: number of steps, >= 1.
        num_slots: frontier slots of the requests, >= 1.
        uses_scores: whether the function gives PRM scores; if not, all scores must be 0.

    Raises:
        AssertionError: a rule is broken; the message says which.
    """
    rng = np.random.default_rng(seed)
    keys = iter(jax.random.split(jax.random.key(seed), len(_SAMPLING) * max_depth + 1))
    start = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * num_slots), root)
    nothing = np.zeros(num_slots, np.int32)
    _check_one(expand_fn, params, next(keys), _request(nothing, start, 0), capacity, uses_scores)
    for sampling in _SAMPLING:
        embedding, growing = start, np.arange(num_slots) == 0
        for depth in range(max_depth):
            shares = rng.dirichlet(np.ones(num_slots)) * growing
            wanted = np.floor(capacity * shares).astype(np.int32)
            # Depth 0 fills the expansion to the last row.
            wanted[0] = capacity if depth == 0 else wanted[0]
            is_last = depth == max_depth - 1
            request = _request(wanted, embedding, depth, sampling, to_end=is_last)
            expansion = _check_one(expand_fn, params, next(keys), request, capacity, uses_scores)
            grows = np.flatnonzero(np.asarray(expansion.valid & ~expansion.done))
            rows = np.resize(grows if grows.size else [0], num_slots)
            growing = np.arange(num_slots) < grows.size
            embedding = jax.tree.map(lambda leaf, rows=rows: leaf[rows], expansion.embedding)


def check_expansion(
    request: Request, expansion: Expansion, *, capacity: int, uses_scores: bool = True
) -> None:
    """Check one expansion against the request it answers; see `types.Expansion`.

    Raises:
        AssertionError: a rule is broken; the message says which.
    """
    check_expansion_shapes(expansion, request.embedding, capacity)
    num_samples = np.asarray(request.num_samples)
    parents = np.repeat(np.arange(num_samples.size), num_samples)
    granted = np.arange(capacity) < parents.size
    _require(parents.size <= capacity, f"{parents.size} samples granted, {capacity} rows")
    row = {name: np.asarray(getattr(expansion, name)) for name in EXPANSION_DTYPES}
    valid = row["valid"]
    _require(not np.any(valid & ~granted), "a row is valid that was not granted")
    _require(
        np.array_equal(row["parent"][granted], parents),
        f"rows are not in allocation order: parents {row['parent'][granted]}, not {parents}",
    )
    blank = {"score": 0, "done": False, "answer": -1}
    for name, value in blank.items():
        _require(
            bool(np.all(row[name][~valid] == value)),
            f"{name} of a row that is not valid must be {value}",
        )
    score, log_prob = row["score"], row["log_prob"]
    _require(bool(np.all((score >= 0) & (score <= 1))), "a score lies outside [0, 1]")
    _require(uses_scores or not np.any(score), "the PRM was not asked, but there are scores")
    _require(
        bool(np.all(np.isfinite(log_prob)) and np.all(log_prob <= 0)),
        "a log-probability is positive or not finite",
    )
    for fact in ("certainty", "vector"):
        if getattr(expansion, fact) is not None:
            finite = np.isfinite(np.asarray(getattr(expansion, fact))[valid])
            _require(bool(np.all(finite)), f"the {fact} of a valid row is not finite")
    _require(bool(np.all(row["num_tokens"] >= 0)), "a number of tokens is negative")
    _require(bool(np.all(row["text"][valid] >= 0)), "a valid row has no text id")
    _require(bool(np.all(row["answer"] >= -1)), "an answer class is below -1")
    _require(
        bool(np.all(row["answer"][~row["done"]] == -1)), "a path that is not done has an answer"
    )
    to_end = np.asarray(request.to_end)[row["parent"]]
    _require(bool(np.all(row["done"][valid & to_end])), "a step to the end does not end its path")
    same_text: dict[tuple[int, int], int] = {}
    for index in np.flatnonzero(valid):
        twin = same_text.setdefault(
            (int(row["parent"][index]), int(row["text"][index])), int(index)
        )
        _require(
            bool(np.abs(score[twin] - score[index]) <= 1e-5),
            f"rows {twin} and {index} have one parent and text, but different scores",
        )


def _check_one(
    expand_fn: ExpandFn,
    params: Any,
    key: jax.Array,
    request: Request,
    capacity: int,
    uses_scores: bool,
) -> Expansion:
    expansion = expand_fn(params, key, request)
    check_expansion(request, expansion, capacity=capacity, uses_scores=uses_scores)
    again = expand_fn(params, key, request)
    for name in ("valid", "done", "answer", "text", "num_tokens"):
        _require(
            bool(jnp.array_equal(getattr(expansion, name), getattr(again, name))),
            f"the same key and request gave another {name}",
        )
    return expansion


def _request(
    num_samples: np.ndarray,
    embedding: Any,
    depth: int,
    sampling: tuple[float, float, int] = _SAMPLING[0],
    *,
    to_end: bool = False,
) -> Request:
    slots = num_samples.size
    temperature, top_p, top_k = sampling
    return Request(
        num_samples=jnp.asarray(num_samples, jnp.int32),
        temperature=jnp.full((slots,), temperature, jnp.float32),
        top_p=jnp.full((slots,), top_p, jnp.float32),
        top_k=jnp.full((slots,), top_k, jnp.int32),
        scored=jnp.ones((slots,), bool),
        score_ends=jnp.zeros((slots,), bool),
        to_end=jnp.full((slots,), to_end),
        depth=jnp.full((slots,), depth, jnp.int32),
        used=jnp.int32(0),
        embedding=embedding,
    )


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise AssertionError(f"expand function: {rule}")
