"""A batch of rows of different widths: one text to the layers, part by part in attention.

A linear layer reads its weights once for all tokens of a pass, and its result for a token does not
depend on the others. Attention does depend on the width of its arrays, in the last bits. So a pass
holds the tokens of all rows in one line, and attention is computed for each part, whose rows have
one width that follows from their own lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import CacheLayerMixin

from ...errors import BadInputError

ATTENTION = "cats_jax_parts"
"""The name of this module's attention function in transformers."""


@dataclass(frozen=True, slots=True)
class Part:
    """B rows of Q new tokens each, on top of cached tokens in a buffer of W columns.

    Attributes:
        kv: [2 x layers, B, heads, W, dim], keys and values of each layer in turn.
        column: the new tokens take the columns `column`..`column + Q`.
        masks: what each layer adds to its scores, [B, 1, Q, W] each: 0 where a token is seen and
            -inf elsewhere. Every token sees one.
    """

    kv: Tensor
    column: int
    masks: Sequence[Tensor]

    @property
    def num_tokens(self) -> int:
        """B x Q."""
        rows, _, queries, _ = self.masks[0].shape
        return rows * queries

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Writes the new tokens' keys and values of a layer, [heads, B x Q, dim] each."""
        queries = self.masks[0].shape[2]
        columns = slice(self.column, self.column + queries)
        for plane, new in ((2 * layer, keys), (2 * layer + 1, values)):
            self.kv[plane, :, :, columns] = new.unflatten(1, (-1, queries)).transpose(0, 1)

    def attend(self, layer: int, query: Tensor, scaling: float | None) -> Tensor:
        """Attention of a layer, with G query heads per key head.

        The query heads of one key head become G times as many queries. transformers' own function
        copies keys and values instead, which costs more than the whole rest of a decoding step.

        Args:
            layer: number of the layer, from 0.
            query: [G·heads, B x Q, dim].
            scaling: factor of the scores; None is dim**-.5.

        Returns:
            [B x Q, G·heads, dim].
        """
        mask = self.masks[layer]
        rows, _, queries, _ = mask.shape
        keys, values = self.kv[2 * layer], self.kv[2 * layer + 1]
        num_heads, _, dim = query.shape
        groups = num_heads // keys.shape[1]
        query = query.unflatten(1, (rows, queries)).transpose(0, 1)
        out = F.scaled_dot_product_attention(
            query.reshape(rows, keys.shape[1], groups * queries, dim),
            keys,
            values,
            attn_mask=mask if queries == 1 else mask.repeat(1, 1, groups, 1),
            scale=scaling,
        )
        return out.reshape(rows, num_heads, queries, -1).transpose(1, 2).flatten(0, 1)


class PartsLayer(CacheLayerMixin):
    """One layer of a cache whose keys and values stand in the buffers of parts."""

    def __init__(self, parts: Sequence[Part], layer: int):
        super().__init__()
        self.is_initialized = True
        self._parts = parts
        self._layer = layer

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes [1, heads, T, dim] into the parts; returns the same, which attention ignores."""
        start = 0
        for part in self._parts:
            stop = start + part.num_tokens
            part.write(self._layer, key_states[0, :, start:stop], value_states[0, :, start:stop])
            start = stop
        return key_states, value_states

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: the buffers exist from the start."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Width and offset of masks made by transformers; the parts have their own."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """Number of tokens before the new ones; positions are given, so nothing depends on it."""
        return 0

    def get_max_length(self) -> int:
        """No bound."""
        return -1


def _attention_by_parts(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    *,
    parts: Sequence[Part],
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of the tokens of some parts, each among its own.

    Args:
        query: [1, G·heads, T, dim]. Tokens behind those of the parts attend to nothing.
        key, value, attention_mask: ignored; the parts hold them.

    Returns:
        [1, T, G·heads, dim], and no weights.
    """
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise BadInputError(
                f"{type(module).__name__} asks for {name!r}, which this bridge does not compute: "
                f"serve the model with vLLM"
            )
    layer: Any = module.layer_idx
    _, num_heads, count, dim = query.shape
    out = query.new_zeros((1, count, num_heads, dim))
    start = 0
    for part in parts:
        stop = start + part.num_tokens
        out[0, start:stop] = part.attend(layer, query[0, :, start:stop], scaling)
        start = stop
    return out, None


AttentionInterface.register(ATTENTION, _attention_by_parts)
