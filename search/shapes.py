"""Checks of shapes and dtypes, which run while a tick is traced and cost nothing after it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import chex
import jax
import jax.numpy as jnp

from .types import Expansion, Request
from .vectors import VECTOR_SIZE

REQUEST_DTYPES: Mapping[str, Any] = MappingProxyType(
    {
        "num_samples": jnp.int32,
        "temperature": jnp.float32,
        "top_p": jnp.float32,
        "top_k": jnp.int32,
        "scored": jnp.bool_,
        "score_ends": jnp.bool_,
        "to_end": jnp.bool_,
        "depth": jnp.int32,
    }
)
"""Dtypes of the fields of `Request` with one value per frontier slot; `used` is one i32."""

EXPANSION_DTYPES: Mapping[str, Any] = MappingProxyType(
    {
        "valid": jnp.bool_,
        "parent": jnp.int32,
        "score": jnp.float32,
        "done": jnp.bool_,
        "answer": jnp.int32,
        "text": jnp.int32,
        "log_prob": jnp.float32,
        "num_tokens": jnp.int32,
    }
)
"""Dtypes of the fields that every `Expansion` has, other than `embedding`; one value per row."""


def check_planned(planned: Any) -> tuple[Request, Any]:
    """The `(Request, memory)` that a strategy's `plan` or `base` returned, after a check.

    Raises:
        AssertionError: the value is not such a pair.
    """
    if isinstance(planned, tuple) and len(planned) == 2 and isinstance(planned[0], Request):
        return planned[0], planned[1]
    parts = [type(part).__name__ for part in planned] if isinstance(planned, tuple) else []
    got = f"({', '.join(parts)})" if parts else type(planned).__name__
    raise AssertionError(
        f"a strategy's plan must return (Request, memory), got {got}: build the request with "
        "search.request(state, num_samples)"
    )


def check_request(request: Request, embedding: Any, num_slots: int) -> None:
    """Check the request that a strategy planned.

    Args:
        embedding: embedding of the frontier, E[N, ...].

    Raises:
        AssertionError: a field has another shape or dtype; the message names it.
    """
    _check_fields("request", request, REQUEST_DTYPES, num_slots)
    chex.assert_shape(request.used, (), custom_message="request.used")
    chex.assert_type(request.used, jnp.int32, custom_message="request.used")
    _check_embedding("request", request.embedding, embedding, num_slots)


def check_memory(memory: Any, before: Any) -> None:
    """Raise AssertionError unless `memory` has the structure, shapes and dtypes of `before`."""
    chex.assert_trees_all_equal_shapes_and_dtypes(
        memory, before, custom_message="the strategy's memory must keep its structure"
    )


def check_expansion_shapes(expansion: Expansion, embedding: Any, num_rows: int) -> None:
    """Check the shapes and dtypes of an expansion.

    Args:
        embedding: embedding of the paths, E[N, ...], with the trailing shapes of the expansion's.
        num_rows: number of rows the expansion must have.

    Raises:
        AssertionError: a field has another shape or dtype; the message names it.
    """
    _check_fields("expansion", expansion, EXPANSION_DTYPES, num_rows)
    _check_embedding("expansion", expansion.embedding, embedding, num_rows)
    if expansion.certainty is not None:
        _check_fields("expansion", expansion, {"certainty": jnp.float32}, num_rows)
    if expansion.vector is not None:
        where = "expansion.vector"
        chex.assert_shape(expansion.vector, (num_rows, VECTOR_SIZE), custom_message=where)
        chex.assert_type(expansion.vector, jnp.float32, custom_message=where)


def _check_embedding(name: str, embedding: Any, parents: Any, num_rows: int) -> None:
    where = f"{name}.embedding, which must be like the root's"
    chex.assert_trees_all_equal_structs(embedding, parents)
    for leaf, parent in zip(jax.tree.leaves(embedding), jax.tree.leaves(parents), strict=True):
        chex.assert_shape(leaf, (num_rows, *parent.shape[1:]), custom_message=where)
        chex.assert_type(leaf, parent.dtype, custom_message=where)


def _check_fields(name: str, tree: Any, dtypes: Mapping[str, Any], num_rows: int) -> None:
    for field, dtype in dtypes.items():
        value = getattr(tree, field)
        chex.assert_shape(value, (num_rows,), custom_message=f"{name}.{field}")
        chex.assert_type(value, dtype, custom_message=f"{name}.{field}")
