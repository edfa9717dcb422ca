"""Pytrees of a batch of slots, on the host."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import jax
import numpy as np

from search.shapes import EXPANSION_DTYPES
from search.vectors import VECTOR_SIZE

from . import ticks


def stack(inputs: Sequence[ticks.SearchInputs]) -> ticks.SearchInputs:
    """The inputs of B slots as one value with leaves `[B, ...]`."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *inputs)


def of_slot(values: Any, index: int) -> Any:
    """The part of a pytree with leaves `[B, ...]` that belongs to one slot."""
    return jax.tree.map(lambda leaf: leaf[index], values)


def slot_mask(indices: Collection[int], size: int) -> np.ndarray:
    """bool[size], true at `indices`."""
    mask = np.zeros((size,), bool)
    mask[list(indices)] = True
    return mask


def blank_expansion(slots: int, capacity: int, vectors: bool) -> dict[str, Any]:
    """The fields of an expansion `[slots, capacity]` without a candidate, with vectors or not."""
    shape = (slots, capacity)
    return {
        **{name: np.zeros(shape, dtype) for name, dtype in EXPANSION_DTYPES.items()},
        "answer": np.full(shape, -1, np.int32),
        "text": np.full(shape, -1, np.int32),
        "certainty": np.zeros(shape, np.float32),
        "vector": np.zeros((*shape, VECTOR_SIZE), np.float32) if vectors else None,
        "embedding": np.zeros(shape, np.int32),
    }
