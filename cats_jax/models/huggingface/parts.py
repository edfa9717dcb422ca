"""Rows of different widths in one pass: one text to the layers, part by part in attention.

A linear layer reads its weights once for all tokens of a pass, and its result for a token does not
depend on the others. Attention depends on the width of its arrays in the last bits. So a pass holds
the tokens of all rows in one line, and attention is computed for each part, whose rows have one
width that follows from their own lengths.

This is correct if tokens interact in attention only, and if each layer passes its keys and values
from the cache to the attention function unchanged, see `attended`. Other models are run part by
part, on `BufferLayer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer

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
    def rows(self) -> int:
        """B."""
        return self.masks[0].shape[0]

    @property
    def queries(self) -> int:
        """Q."""
        return self.masks[0].shape[2]

    @property
    def num_tokens(self) -> int:
        """B x Q."""
        return self.rows * self.queries

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Writes the new tokens' keys and values of a layer, [heads, B x Q, dim] each."""
        columns = slice(self.column, self.column + self.queries)
        for plane, new in ((2 * layer, keys), (2 * layer + 1, values)):
            self.kv[plane, :, :, columns] = new.unflatten(1, (self.rows, self.queries)).transpose(
                0, 1
            )

    def attend(self, layer: int, query: Tensor, scaling: float | None) -> Tensor:
        """Attention of a layer: query [G·heads, B x Q, dim] -> [B x Q, G·heads, dim]."""
        query = query.unflatten(1, (self.rows, self.queries)).transpose(0, 1)
        keys, values = self.kv[2 * layer], self.kv[2 * layer + 1]
        return _grouped_query(query, keys, values, self.masks[layer], scaling).flatten(0, 1)


class LineLayer(DynamicLayer):
    """One layer of a cache whose keys and values stand in the buffers of parts.

    To transformers it is empty, of any length: masks and positions are given, so nothing depends on
    it.

    Attributes:
        attended: how often attention read the keys and values that `update` returned.
    """

    def __init__(self, parts: Sequence[Part], layer: int):
        super().__init__()
        self.attended = 0
        self._parts = parts
        self._layer = layer
        self._line: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes [1, heads, T, dim] into the parts; returns the same."""
        start = 0
        for part in self._parts:
            stop = start + part.num_tokens
            part.write(self._layer, key_states[0, :, start:stop], value_states[0, :, start:stop])
            start = stop
        self._line = (key_states, value_states)
        return key_states, value_states

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Attention of the tokens of all parts, each among its own.

        Args:
            query: [1, G·heads, T, dim]. Tokens behind those of the parts attend to nothing.
            key, value: what `update` returned.
            scaling: factor of the scores; None is dim**-.5.

        Returns:
            [1, T, G·heads, dim].
        """
        if self._line is not None and key is self._line[0] and value is self._line[1]:
            self.attended += 1
        _, num_heads, count, dim = query.shape
        out = query.new_zeros((1, count, num_heads, dim))
        start = 0
        for part in self._parts:
            stop = start + part.num_tokens
            out[0, start:stop] = part.attend(self._layer, query[0, :, start:stop], scaling)
            start = stop
        return out


class BufferLayer(DynamicLayer):
    """One layer's view of a part's buffer: new entries go to fixed columns.

    Attributes:
        written: whether the layer has written its new keys and values.
    """

    def __init__(self, keys: Tensor, values: Tensor, column: int):
        super().__init__()
        self.written = False
        self.keys, self.values = keys, values
        self.is_initialized = True
        self._column = column

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes [B, heads, Q, dim] into the buffer; returns all of it, [B, heads, W, dim]."""
        assert self.keys is not None
        assert self.values is not None
        self.written = True
        columns = slice(self._column, self._column + key_states.shape[2])
        self.keys[:, :, columns] = key_states
        self.values[:, :, columns] = value_states
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Width and offset of masks made by transformers; the part has its own."""
        assert self.keys is not None
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        """Number of columns before the new ones."""
        return self._column


def attended(layers: Sequence[LineLayer]) -> bool:
    """Whether each layer of a pass attended once to the keys and values of its parts."""
    return all(layer.attended == 1 for layer in layers)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    *,
    line: Sequence[LineLayer] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of a line of tokens, or of the rows of one part.

    Args:
        query: [B, G·heads, Q, dim].
        key, value: [B, heads, W, dim].
        attention_mask: [B, 1, Q, W], added to the scores; not read for a line.
        line: the layers of a cache of parts; then B = 1 and Q = W.

    Returns:
        [B, Q, G·heads, dim], and no weights.
    """
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise BadInputError(
                f"{type(module).__name__} asks for {name!r}, which this bridge does not compute: "
                f"serve the model with vLLM"
            )
    if line is None:
        # Some architectures take a view of it, as transformers' own functions allow.
        return _grouped_query(query, key, value, attention_mask, scaling).contiguous(), None
    index: Any = module.layer_idx
    return line[index].attend(query, key, value, scaling), None


def _grouped_query(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None
) -> Tensor:
    """Attention with G query heads per key head, without repeating the keys G times.

    The query heads of one key head become G times as many queries. transformers' own function
    copies keys and values, which costs more than the rest of a decoding step.
    """
    rows, num_heads, queries, dim = query.shape
    groups = num_heads // key.shape[1]
    out = F.scaled_dot_product_attention(
        query.reshape(rows, key.shape[1], groups * queries, dim),
        key,
        value,
        attn_mask=mask if queries == 1 else mask.repeat(1, 1, groups, 1),
        scale=scaling,
    )
    return out.reshape(rows, num_heads, queries, -1).transpose(1, 2)


AttentionInterface.register(ATTENTION, _attention)
