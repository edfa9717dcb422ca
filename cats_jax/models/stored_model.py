"""Whether a folder's weights are all of a model's: asked before a serving engine starts.

vLLM (0.32) merges tensors as it reads them and does not notice when a part is missing: it runs on
with whatever stood in its memory. transformers does notice, which the Hugging Face bridges rely on.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from ..errors import BadInputError
from .weights import stored_tensors

_LANGUAGE_HEAD = "lm_head."


def check_complete(folder: pathlib.Path, config: Any, head: Sequence[str] = ()) -> None:
    """Refuses weights of which a tensor is missing or has another shape than config.json says.

    Where tensors are stored under names that transformers has not, nothing can be told, and the
    engine has the last word.

    Args:
        folder: of the model.
        config: its transformers configuration.
        head: stored names of the layers that stand in the language-model head's place, if any.

    Raises:
        BadInputError: naming the tensor.
    """
    own = tuple(f"{layer}." for layer in head)
    stored = {
        name.removeprefix("model."): tensor.shape
        for name, tensor in stored_tensors(folder).items()
        if not name.startswith(own)
    }
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    expected = {
        name.removeprefix("model."): tuple(parameter.shape)
        for name, parameter in model.named_parameters()
    }
    for name, shape in expected.items():
        if name in stored and stored[name] != shape:
            raise BadInputError(
                f"{str(folder)!r}: {name!r} has shape {stored[name]}, config.json says {shape}: "
                "check that config.json belongs to these weights"
            )
    unneeded = config.tie_word_embeddings or bool(head)
    missing = [
        name
        for name in expected.keys() - stored.keys()
        if not (unneeded and name.startswith(_LANGUAGE_HEAD))
    ]
    foreign = [
        name
        for name in stored.keys() - expected.keys()
        if not name.startswith(_LANGUAGE_HEAD) and not name.endswith("rotary_emb.inv_freq")
    ]
    if missing and not foreign:
        raise BadInputError(
            f"{str(folder)!r} lacks {len(missing)} of the model's tensors, {min(missing)!r} among "
            "them: check that config.json belongs to these weights"
        )
