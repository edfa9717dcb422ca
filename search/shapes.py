"""Shapes and dtypes of what others hand to a tick, checked while the tick is traced.

They cost nothing when the compiled program runs. What depends on values is in `contracts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import chex
import jax
import jax.numpy as jnp

from .types import Action, Expansion

ACTION_DTYPES: Mapping[str, Any] = MappingProxyType(
    {
        "num_extra": jnp.int32,
        "num_retain": jnp.int32,
        "temperature": jnp.float32,
        "top_p": jnp.float32,
        "top_k": jnp.int32,
    }
)
"""Fields of `Action`, one value per frontier slot."""

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
"""Fields of `Expansion` beside its embedding, one value per row."""


def check_action(action: Action, num_slots: int) -> None:
    """Raise AssertionError, naming the field, unless every field is [num_slots] of its dtype."""
    _check_fields("action", action, ACTION_DTYPES, num_slots)


def check_expansion_shapes(expansion: Expansion, embedding: Any, num_rows: int) -> None:
    """Check the fields of an expansion, and its embedding against that of the paths.

    Args:
        expansion: of an expand function.
        embedding: of the parents, E[N, ...]; rows of an expansion have the same trailing shapes.
        num_rows: rows the expansion must have.

    Raises:
        AssertionError: a field has another shape or dtype; the message names it.
    """
    _check_fields("expansion", expansion, EXPANSION_DTYPES, num_rows)
    where = "expansion.embedding, which must be like the root's"
    chex.assert_trees_all_equal_structs(expansion.embedding, embedding)
    for leaf, parents in zip(
        jax.tree.leaves(expansion.embedding), jax.tree.leaves(embedding), strict=True
    ):
        chex.assert_shape(leaf, (num_rows, *parents.shape[1:]), custom_message=where)
        chex.assert_type(leaf, parents.dtype, custom_message=where)


def _check_fields(name: str, tree: Any, dtypes: Mapping[str, Any], num_rows: int) -> None:
    for field, dtype in dtypes.items():
        value = getattr(tree, field)
        chex.assert_shape(value, (num_rows,), custom_message=f"{name}.{field}")
        chex.assert_type(value, dtype, custom_message=f"{name}.{field}")
