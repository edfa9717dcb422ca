"""Before a serving engine starts: whether a folder holds all weights of its model, and how many.

vLLM (0.32) merges tensors as it reads them and does not notice a missing part: it continues with
uninitialised memory. transformers reports missing tensors.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from ..errors import BadInputError
from .weights import stored_tensors

_LANGUAGE_HEAD = "lm_head."


def parameter_shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters that transformers makes by a configuration, without their memory."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def num_parameters(folder: str | pathlib.Path, config: Any, *, headless: bool) -> int:
    """Number of the parameters that a model computes with; errors: `stored_tensors`.

    Args:
        folder, config: model folder, and the model's transformers configuration.
        headless: whether the language-model head is tied or replaced; a stored one does not count.
    """
    stored = stored_tensors(folder)
    if all(tensor.is_float for tensor in stored.values()):
        shapes = {name: tensor.shape for name, tensor in stored.items()}
    else:  # an integer of a quantised model may hold several values
        shapes = parameter_shapes(config)
    unused = ("rotary_emb.inv_freq", *(["lm_head.weight"] if headless else []))
    return sum(math.prod(shape) for name, shape in shapes.items() if not name.endswith(unused))


def check_complete(folder: pathlib.Path, config: Any, head: Sequence[str] = ()) -> None:
    """Check that no tensor is missing or has another shape than config.json says.

    If the folder also has tensors whose names transformers does not know, missing ones are not
    reported, because these may be the same under other names.

    Args:
        folder, config: model folder, and the model's transformers configuration.
        head: stored names of the layers that replace the language-model head, if any.

    Raises:
        BadInputError: a tensor is missing or has a wrong shape; the message names the tensor.
    """
    own = tuple(f"{layer}." for layer in head)
    stored = {
        name.removeprefix("model."): tensor.shape
        for name, tensor in stored_tensors(folder).items()
        if not name.startswith(own)
    }
    shapes = parameter_shapes(config)
    expected = {name.removeprefix("model."): shape for name, shape in shapes.items()}
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
