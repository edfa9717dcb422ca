"""The rows of an expansion: their parents, the PRM's rows, and expansions built on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from .interface import check_count
from .types import Expansion, Request


def children_of(
    num_samples: Int[Array, " S"], capacity: int
) -> tuple[Int[Array, " N"], Bool[Array, " N"]]:
    """The parent slot of each row of an expansion: `num_samples` rows per slot, then padding.

    Args:
        num_samples: children granted to each frontier slot, >= 0; their sum is at most `capacity`.
        capacity: rows of the expansion, static.

    Returns:
        Parent slot of each row (0 at padding), and which rows were granted.
    """
    ends = jnp.cumsum(num_samples, dtype=jnp.int32)
    # One count per slot at the row where its children end, summed up: linear in slots and rows.
    # Row `capacity` catches the slots that end at the very last row; `drop` those beyond.
    steps = jnp.zeros((capacity + 1,), jnp.int32).at[ends].add(1, mode="drop")
    parent = jnp.cumsum(steps[:capacity], dtype=jnp.int32)
    granted = jnp.arange(capacity, dtype=jnp.int32) < ends[-1]
    return jnp.where(granted, parent, 0), granted


def with_capacity(expand: Callable[..., Expansion], capacity: int) -> Callable[..., Expansion]:
    """`expand(params, key, request, capacity=capacity)` as an expand function.

    Raises:
        ValueError: capacity is not an integer >= 1.
    """
    check_count("capacity", capacity, 1)

    def expand_fn(params: Any, key: jax.Array, request: Request) -> Expansion:
        return expand(params, key, request, capacity=capacity)

    return expand_fn


def asked_rows(
    request: Request, parent: Int[Array, " N"], done: Bool[Array, " N"]
) -> Bool[Array, " N"]:
    """The rows of an expansion that the PRM scores, if they are valid.

    Args:
        request: request that the expansion answers.
        parent: frontier slot of each row.
        done: rows that end their answers.
    """
    return request.scored[parent] | (request.score_ends[parent] & done)


def padded_expansion(
    capacity: int,
    *,
    parent: Any,
    embedding: Any,
    score: Any = 0.0,
    done: Any = False,
    answer: Any = -1,
    valid: Any = True,
    text: Any = None,
    log_prob: Any = 0.0,
    num_tokens: Any = 1,
    certainty: Any = None,
    vector: Any = None,
) -> Expansion:
    """An expansion of C children, from lists or NumPy arrays on the host; padding follows.

    Args:
        capacity: rows of the expansion, N >= C.
        parent: frontier slot of each child, ascending, [C]; each slot as often as requested.
        embedding: pytree of arrays [C, ...].
        score, done, answer, valid, text, log_prob, num_tokens: fields of `Expansion`, each [C] or
            one value for all children. By default no two texts are equal. Scores are in [0, 1].
        certainty: the same; None for strategies that do not read it.
        vector: f32[C, D]; None for strategies that do not read it.

    Raises:
        ValueError: more children than rows, unordered parents, a field of another length, or a
            valid child with a score outside [0, 1].
    """
    parents = np.asarray(parent, dtype=np.int32)
    count = len(parents)
    if count > capacity:
        raise ValueError(f"{count} children do not fit {capacity} rows: raise `capacity`")
    if (np.diff(parents) < 0).any():
        raise ValueError("`parent` must ascend: list the children slot by slot")

    def column(name: str, values: Any, dtype: Any, padding: Any = 0) -> Array:
        given = np.asarray(values, dtype=dtype)
        if given.shape not in ((), (count,)):
            raise ValueError(f"`{name}` has shape {given.shape}, expected ({count},)")
        rows = np.full(capacity, padding, dtype=dtype)
        rows[:count] = given
        return jnp.asarray(rows)

    def padded(leaf: Any, name: str = "embedding") -> Array:
        given = np.asarray(leaf)
        if given.shape[:1] != (count,):
            raise ValueError(f"`{name}` has shape {given.shape}, expected ({count}, ...)")
        more = np.zeros((capacity - count, *given.shape[1:]), given.dtype)
        return jnp.asarray(np.concatenate([given, more]))

    scores, used = column("score", score, np.float32), column("valid", valid, np.bool_, False)
    # Not `scores < 0`: NaN is refused, too.
    wrong = np.asarray(used & ~((scores >= 0) & (scores <= 1)))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"`score` of child {first} is {float(scores[first])}: a valid child's score is in "
            "[0, 1]; map logits by a sigmoid"
        )

    return Expansion(
        valid=used,
        parent=column("parent", parents, np.int32),
        score=scores,
        done=column("done", done, np.bool_, False),
        answer=column("answer", answer, np.int32, -1),
        text=column("text", np.arange(count) if text is None else text, np.int32),
        log_prob=column("log_prob", log_prob, np.float32),
        num_tokens=column("num_tokens", num_tokens, np.int32),
        embedding=jax.tree.map(padded, embedding),
        certainty=None if certainty is None else column("certainty", certainty, np.float32),
        vector=None if vector is None else padded(np.asarray(vector, np.float32), "vector"),
    )
