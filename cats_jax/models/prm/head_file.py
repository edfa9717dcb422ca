"""A linear head in a file of its own, which reads a PRM's score from a plain language model.

The file holds "weight", f[1, hidden] or f[hidden], and may hold "bias", f[1]. The score is the
sigmoid of the head's output on the last hidden state, after the final norm.
"""

from __future__ import annotations

import dataclasses
import pathlib
from dataclasses import dataclass

from ...errors import BadInputError
from ..folders import MissingModelError
from ..weights import StoredTensor, file_tensors
from .format import Head, TokenPair

LAYER = "head"
"""Name of the layer beside those that are stored with the model."""


@dataclass(frozen=True, slots=True)
class HeadOfFile(Head):
    """Read-out of a linear head in `file`."""

    file: str = ""


def head_of_file(path: str | pathlib.Path) -> HeadOfFile:
    """The read-out of a file with a linear head.

    Raises:
        MissingModelError: there is no such file.
        BadInputError: it holds no linear head.
    """
    head = HeadOfFile((LAYER,), file=str(path))
    tensors_of_file(head)
    return head


def tensors_of_file(read_out: TokenPair | Head | None) -> dict[str, StoredTensor]:
    """A head's tensors as if stored with the model, else none; errors: `head_of_file`."""
    if not isinstance(read_out, HeadOfFile):
        return {}
    file = pathlib.Path(read_out.file)
    if not file.is_file():
        raise MissingModelError(
            f"head {str(file)!r} does not exist: give a .safetensors file with the tensor 'weight'"
        )
    found = {tensor.name: tensor for tensor in file_tensors(file.resolve())}
    if "weight" not in found or found.keys() - {"weight", "bias"}:
        raise BadInputError(
            f"head {str(file)!r} holds {', '.join(map(repr, sorted(found))) or 'nothing'}: it "
            "needs the tensor 'weight', and may have 'bias'"
        )
    weight = found["weight"]
    if len(weight.shape) == 1:
        found["weight"] = dataclasses.replace(weight, shape=(1, *weight.shape))
    for tensor in found.values():
        if not tensor.is_float:
            raise BadInputError(
                f"head {str(file)!r}: {tensor.name!r} is {tensor.dtype}: save it in 16 or 32 bits"
            )
    return {f"{LAYER}.{name}": tensor for name, tensor in found.items()}
