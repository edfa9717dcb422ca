"""Which tokens each layer of a model attends to, from its configuration and one causal mask.

Layers of some models see only the last tokens of a text: all layers (Mistral), some (Gemma 3, by
`layer_types`), or those above a number (Qwen2 with `use_sliding_window`).
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import BadInputError

_FULL, _SLIDING = "full_attention", "sliding_attention"


def check_computable(config: Any, folder: pathlib.Path) -> None:
    """Check that all layers attend to all earlier tokens or to a sliding window of them.

    Raises:
        BadInputError: a layer of the configuration is of another kind; the message names it.
    """
    others = sorted(set(_layer_types(config)) - {_FULL, _SLIDING})
    both_ways = getattr(config, "use_bidirectional_attention", None)
    if both_ways is True or both_ways == "all":
        others = ["use_bidirectional_attention"]
    if getattr(config, "kv_lora_rank", None):  # keys and values of different sizes (DeepSeek's)
        others = ["kv_lora_rank"]
    if getattr(config, "attn_logit_softcapping", None):  # Gemma 2's
        others = ["attn_logit_softcapping"]
    if others:
        raise BadInputError(
            f"{str(folder)!r} ({config.model_type}) has layers of the kind {others[0]!r}, which "
            "the backend hf does not compute: set backend: vllm, or take a model whose layers "
            f"are {_FULL} or {_SLIDING}"
        )


def layer_masks(mask: Tensor, config: Any, num_layers: int) -> list[Tensor]:
    """The mask of each layer.

    Args:
        mask: [B, 1, Q, W], 0 where a token is seen and -inf elsewhere, without a window.
        config, num_layers: the language model's transformers configuration and number of layers.
    """
    window = getattr(config, "sliding_window", None)
    if window is None:
        return [mask] * num_layers
    types = _layer_types(config) or (_SLIDING,) * num_layers
    windowed = sliding(mask, int(window)) if _SLIDING in types else mask
    return [windowed if kind == _SLIDING else mask for kind in types]


def mask_argument(masks: Sequence[Tensor], config: Any) -> Tensor | dict[str, Tensor]:
    """The masks of `layer_masks` as the transformers model takes them.

    Returns:
        One mask if all layers are of one kind; else a mask for each of the `layer_types`.
    """
    types = _layer_types(config)
    return dict(zip(types, masks, strict=True)) if len(set(types)) > 1 else masks[0]


def rotates_by_length(config: Any) -> bool:
    """Whether rotary angles depend on the longest text of a pass (`dynamic` and `longrope`)."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    each = [found, *(value for value in found.values() if isinstance(value, dict))]
    kinds = {kind for one in each for kind in (one.get("rope_type"), one.get("type"))}
    return not kinds.isdisjoint(("dynamic", "longrope"))


def sliding(mask: Tensor, window: int) -> Tensor:
    """The mask with the last `window` tokens that each query sees, itself among them.

    Tokens are counted, not columns: columns of padding may stand between the tokens of a row.

    Args:
        mask: [B, 1, Q, W], 0 where a token is seen and -inf elsewhere. No query sees a token behind
            itself.
        window: number of tokens, at least 1.
    """
    if mask.shape[-1] <= window:
        return mask
    seen = mask == 0
    # How many seen tokens stand at a column and behind it.
    from_here = seen.flip(-1).cumsum(-1).flip(-1)
    return mask.masked_fill(from_here > window, -torch.inf)


def _layer_types(config: Any) -> tuple[str, ...]:
    """The kind of attention of each layer; empty if all are alike and `sliding_window` says it."""
    return tuple(getattr(config, "layer_types", None) or ())
