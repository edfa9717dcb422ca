"""The start and the end of a search, and moves of rows between its arrays."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from .interface import Strategy, check_is_strategy, check_one_search
from .types import Context, Paths, SearchState
from .vectors import VECTOR_SIZE

MAX_CANDIDATES = 256
"""Largest N. The arrays are padded to at most this many candidates."""

_CAPACITIES = (4, 16, 64, MAX_CANDIDATES)


def capacity_for(size: int) -> int:
    """The smallest of the capacities 4, 16, 64 and 256 with at least `size` rows.

    Searches of one capacity share a compiled program.

    Args:
        size: N or K, in 1..MAX_CANDIDATES.

    Raises:
        TypeError: `size` is not an integer.
        ValueError: `size` is outside that range.
    """
    size = _size("size", size)
    _check_range("size", size, MAX_CANDIDATES, "the largest N")
    return next(capacity for capacity in _CAPACITIES if capacity >= size)


def init(
    root: Any,
    *,
    strategy: Strategy,
    num_candidates: int | jax.Array,
    max_depth: int | jax.Array,
    width: int | jax.Array | None = None,
    budget: int | jax.Array | None = None,
    context: Context = Context(),
    capacity: int = MAX_CANDIDATES,
    frontier_capacity: int | None = None,
    depth_capacity: int | None = None,
) -> SearchState:
    """State before the first tick: one frontier path without steps.

    Args:
        root: embedding of the question, a pytree without the leading `[N]`.
        strategy: strategy of the search, which sets the default width and the memory.
        num_candidates: N in 1..capacity, cap on the candidates of one step; may be traced.
        max_depth: most steps of a path, in 1..depth_capacity; may be traced.
        width: K in 1..N, cap on finished + frontier; default `strategy.width(N)`; may be traced.
        budget: cap on all candidates, >= 0; default `num_candidates * max_depth`.
        context: price, sparsity and calibration; numbers or f32[] arrays, may be traced.
        capacity: rows of the pool, static; a small one saves time, see `capacity_for`.
        frontier_capacity: rows of frontier and finished, static, at least K; default `capacity`.
        depth_capacity: `T`, static; default `max_depth`, which must then be concrete.

    Raises:
        ValueError: a concrete size breaks its range. Traced sizes can't be checked: beyond their
            range, the search keeps and samples other numbers of paths than the sizes say.
        TypeError: a size is not one integer, or another argument has a wrong type.
    """
    check_is_strategy(strategy)
    _check_root(root)
    if not isinstance(context, Context):
        raise TypeError(f"context must be a search.Context, got {context!r:.60}")
    capacity = _size("capacity", capacity)
    num_candidates = _size("num_candidates", num_candidates)
    max_depth = _size("max_depth", max_depth)
    budget = None if budget is None else _size("budget", budget)
    rows = capacity if frontier_capacity is None else _size("frontier_capacity", frontier_capacity)
    if depth_capacity is None and not isinstance(max_depth, int):
        raise ValueError("depth_capacity must be given when max_depth is traced")
    depth = _size("depth_capacity", max_depth if depth_capacity is None else depth_capacity)
    most = (
        _size("strategy.width(N)", strategy.width(num_candidates))
        if width is None
        else _size("width", width)
    )
    _check_range("capacity", capacity, MAX_CANDIDATES, "the largest N")
    _check_range("num_candidates", num_candidates, capacity, "the pool's capacity")
    _check_range("width", most, rows, "the frontier's capacity")
    _check_range("max_depth", max_depth, depth, "the depth capacity")
    _check_limits(num_candidates, most, budget)

    read = {"certain": strategy.certainty is not None, "with_vectors": strategy.needs_vectors}
    empty_frontier = empty_paths(rows, depth, root, **read)
    state = SearchState(
        frontier=_with_question(empty_frontier, root),
        pool=empty_paths(capacity, depth, root, **read),
        finished=empty_frontier,
        num_candidates=_int32(num_candidates),
        width=_int32(most),
        max_depth=_int32(max_depth),
        max_steps=_int32(strategy.num_steps(num_candidates, max_depth)),
        budget=_int32(num_candidates * max_depth if budget is None else budget),
        spent=_int32(0),
        used=_int32(0),
        step=_int32(0),
        phase=_int32(0),
        context=jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), context),
        memory=(),
    )
    state = state.replace(memory=strategy.init_memory(state))
    # No two leaves share a buffer, so that a jitted tick may take the state with `donate_argnums`.
    return jax.tree.map(jnp.copy, state)


def is_terminal(state: SearchState) -> Bool[Array, ""]:
    """Whether the search has ended, which it does only between two steps (phase 0).

    It has ended if |finished| >= K, the frontier is empty, or the budget or the steps are spent.

    Raises:
        ValueError: `state` is a batch of searches.
    """
    check_one_search(state)
    ended = (
        (count(state.finished) >= state.width)
        | ~jnp.any(state.frontier.valid)
        | (state.spent >= state.budget)
        | (state.step >= state.max_steps)
    )
    return ended & (state.phase == 0)


def candidates_left(state: SearchState) -> Int[Array, ""]:
    """Candidates that may still be sampled in this step: min(N - used, budget - spent), i32[]."""
    return jnp.minimum(state.num_candidates - state.used, state.budget - state.spent)


def count(paths: Paths) -> Int[Array, ""]:
    """Number of valid rows."""
    return jnp.sum(paths.valid, dtype=jnp.int32)


def empty_paths(
    capacity: int,
    depth_capacity: int,
    root: Any,
    *,
    certain: bool = False,
    with_vectors: bool = False,
) -> Paths:
    """Padding: `capacity` rows that are not valid.

    Args:
        depth_capacity: `T`.
        root: gives the structure of the embedding.
    """
    return Paths(
        valid=jnp.zeros((capacity,), bool),
        done=jnp.zeros((capacity,), bool),
        parent=jnp.zeros((capacity,), jnp.int32),
        group=jnp.zeros((capacity,), jnp.int32),
        depth=jnp.zeros((capacity,), jnp.int32),
        step_scores=jnp.zeros((capacity, depth_capacity), jnp.float32),
        log_prob=jnp.zeros((capacity,), jnp.float32),
        num_tokens=jnp.zeros((capacity,), jnp.int32),
        unread=jnp.zeros((capacity,), jnp.int32),
        answer=jnp.full((capacity,), -1, jnp.int32),
        text=jnp.full((capacity,), -1, jnp.int32),
        weight=jnp.zeros((capacity,), jnp.float32),
        embedding=jax.tree.map(
            lambda leaf: jnp.zeros((capacity, *jnp.shape(leaf)), jnp.asarray(leaf).dtype), root
        ),
        certainty=jnp.zeros((capacity,), jnp.float32) if certain else None,
        vector=jnp.zeros((capacity, VECTOR_SIZE), jnp.float32) if with_vectors else None,
    )


def blank_like(paths: Paths, capacity: int | None = None) -> Paths:
    """Padding with the fields of `paths`: `capacity` rows that are not valid; None: as many."""
    rows, depth_capacity = paths.step_scores.shape
    return empty_paths(
        rows if capacity is None else capacity,
        depth_capacity,
        jax.tree.map(lambda leaf: leaf[0], paths.embedding),
        certain=paths.certainty is not None,
        with_vectors=paths.vector is not None,
    )


def question_of(state: SearchState) -> Paths:
    """The path without steps of a search that has not begun, [1]."""
    return take(state.frontier, jnp.zeros((1,), jnp.int32))


def growing(state: SearchState) -> Bool[Array, " N"]:
    """The children of the step that may grow. An unfinished path of largest depth may not."""
    pool = state.pool
    return pool.valid & ~pool.done & (pool.depth < state.max_depth)


def with_newest_scores(
    paths: Paths, marked: Bool[Array, " N"], scores: Float[Array, " N"]
) -> Paths:
    """The paths with a new score for the newest step of each marked row; these rows have steps."""
    positions = jnp.arange(paths.step_scores.shape[1], dtype=jnp.int32)
    newest = marked[:, None] & (positions[None, :] == paths.depth[:, None] - 1)
    return paths.replace(step_scores=jnp.where(newest, scores[:, None], paths.step_scores))


def compact(paths: Paths, marked: Bool[Array, " N"], into: Paths) -> Paths:
    """Append the marked rows of `paths` to the valid rows of `into`; what does not fit is lost."""
    source, is_new = pack(marked, into.valid.shape[0], count(into))
    return where_rows(is_new, take(paths, source), into)


def pack(
    marked: Bool[Array, " N"], capacity: int, offset: int | Int[Array, ""] = 0
) -> tuple[Int[Array, " S"], Bool[Array, " S"]]:
    """Row for each of `capacity` slots: slot offset + i takes the i-th marked row.

    Returns:
        Row of each slot (0 for a slot without one), and which slots have a row.
    """
    rows = jnp.arange(marked.shape[0], dtype=jnp.int32)
    # Index `capacity` is out of bounds on purpose: mode="drop" then writes nothing. Only row
    # numbers are scattered, the rows follow by a gather: scatters are slow on a CPU.
    target = jnp.where(marked, offset + jnp.cumsum(marked, dtype=jnp.int32) - 1, capacity)
    source = jnp.full((capacity,), -1, jnp.int32).at[target].set(rows, mode="drop")
    return jnp.maximum(source, 0), source >= 0


def select(condition: Bool[Array, ""], on_true: Any, on_false: Any) -> Any:
    """`jnp.where` over two pytrees of equal structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), on_true, on_false)


def take(rows: Any, index: Int[Array, " N"]) -> Any:
    """Rows of a pytree by index; every index must be in bounds."""
    return jax.tree.map(lambda leaf: leaf[index], rows)


def join(first: Any, second: Any) -> Any:
    """The rows of two pytrees of equal structure, those of `first` before those of `second`."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, second)


def where_rows(condition: Bool[Array, " N"], on_true: Any, on_false: Any) -> Any:
    """Row-wise `jnp.where` over two pytrees of equal structure."""

    def pick(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, on_true, on_false)


def _size(name: str, value: Any) -> Any:
    """An integer of Python, NumPy or JAX as an int; a traced i32[] as it is."""
    if isinstance(value, Tracer):
        if value.ndim or not jnp.issubdtype(value.dtype, jnp.integer):
            batch = ": use jax.vmap for a batch" if value.ndim else ""
            raise TypeError(f"{name} must be one integer, got {value.aval}{batch}")
        return value
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be one integer, got {value!r:.60}") from None


def _check_root(root: Any) -> None:
    for leaf in jax.tree.leaves(root):
        if isinstance(leaf, str):
            raise TypeError(
                f"root must be an embedding of numbers, such as jnp.int32(0), got the text {leaf!r}"
            )


def _int32(value: int | jax.Array) -> jax.Array:
    return jnp.asarray(value, jnp.int32)


def _with_question(paths: Paths, root: Any) -> Paths:
    """The paths, with the path without steps in row 0."""
    return paths.replace(
        valid=paths.valid.at[0].set(True),
        weight=paths.weight.at[0].set(1.0),
        embedding=jax.tree.map(lambda rows, leaf: rows.at[0].set(leaf), paths.embedding, root),
    )


def _check_limits(num_candidates: Any, width: Any, budget: Any) -> None:
    """Check the values that are not traced."""
    if isinstance(width, int) and isinstance(num_candidates, int) and width > num_candidates:
        raise ValueError(f"width must be at most num_candidates: {width} > {num_candidates}")
    if isinstance(budget, int) and not 0 <= budget < 1 << 31:
        raise ValueError(f"budget must be >= 0 and below 2**31, got {budget}")


def _check_range(name: str, value: int | jax.Array, upper: int, what: str) -> None:
    if isinstance(value, int) and not 1 <= value <= upper:
        raise ValueError(f"{name} must be in 1..{upper} ({what}), got {value}")
