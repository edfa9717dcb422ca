"""A reward model on transformers: the causal model, or its backbone under a small head."""

from __future__ import annotations

import math
import pathlib
from types import SimpleNamespace
from typing import Any, Unpack

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoModel

from ...errors import BadInputError, PathTooLongError
from ...protocols import Path, Question
from ..prm.answer_encoder import AnswerEncoder
from ..prm.encoder import StepEncoder
from ..prm.format import PRM_FORMATS, Head, PRMFormat, bounded
from ..prm.head_file import HeadOfFile, tensors_of_file
from ..prm.judge_text import JudgeEncoder
from ..prm.newest_steps import broken, check_steps
from ..weights import StoredTensor, check_one_dtype, stored_tensors
from .model import CausalModel, LoadOptions


class RewardModel(CausalModel):
    """A causal model, or its backbone under a head, whose outputs at a token become a score.

    Args:
        path: a local model folder.
        prm_format: how the PRM reads a path; `encoder` is the format with this model's tokenizer.
        options: as for `CausalModel`.

    Raises:
        BadInputError: folder, format and tokenizer do not fit together, or the head's tensors are
            missing or have a wrong shape; no weight was read.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        prm_format: PRMFormat,
        **options: Unpack[LoadOptions],
    ):
        super().__init__(path, format=None, **options)
        if prm_format.finished_only:
            padding = self.text_config.pad_token_id
            self.encoder = AnswerEncoder(prm_format, self.tokenizer, padding=padding)
        elif prm_format.layout == "judge":
            self.encoder = JudgeEncoder(prm_format, self.tokenizer)
        else:
            self.encoder = StepEncoder(prm_format, self.tokenizer)
        for token in (self.encoder.tag_id, *(self.encoder.pair_ids or ())):
            if token >= self.vocab_size:
                raise BadInputError(
                    f"{str(path)!r}: the tokenizer has token {token}, but the model's vocabulary "
                    f"ends at {self.vocab_size}: take both from one release"
                )
        tensors = stored_tensors(self._folder) | tensors_of_file(prm_format.read_out)
        self._head = prm_format.read_out if isinstance(prm_format.read_out, Head) else None
        if self._head is None:
            self.check_language_model()
        if isinstance(self._head, HeadOfFile):
            self.name += f"+{pathlib.Path(self._head.file).stem}"
        self._layers: list[tuple[StoredTensor, StoredTensor | None]] = []
        if self._head is not None:
            self._layers = _head_layers(
                self._folder, self._head, tensors, self.text_config.hidden_size
            )
            if prm_format == PRM_FORMATS.get(prm_format.name):
                weight, _ = self._layers[-1]
                _check_kind(self._folder, prm_format, self.architectures, weight)
        apart = [tensor.name for layer in self._layers for tensor in layer if tensor is not None]
        check_one_dtype(tensors.values(), apart=apart)

    def load_weights(self, auto_class: Any = None) -> None:
        """Reads the weights; a separate method, so that callers can check their input first."""
        if self._head is None:
            super().load_weights()
            return
        super().load_weights(auto_class or AutoModel)
        self.model = _BackboneWithHead(self.model, [self._linear(*pair) for pair in self._layers])
        self.model.eval()
        self.num_parameters = sum(p.numel() for p in self.model.parameters())

    def chunks(self, question: Question, path: Path) -> list[tuple[int, ...]]:
        """The chunks of ids of the prompt and of each step, or of the whole answer.

        Raises:
            ScorerContractError: a path without steps, or a blank step.
            PathTooLongError: more tokens than the context.
        """
        check_steps(question, path, self.name)
        chunks = self.encoder.chunks(question.text, [step.text for step in path])
        total = 0
        for index, chunk in enumerate(chunks, start=len(path) - len(chunks)):
            total += len(chunk)
            if total > self.context:
                reason = f"the path has {total} tokens here, the context {self.context}"
                broken(question, max(0, index), reason, self.name, PathTooLongError)
        return chunks

    def scores(self, outputs: Tensor) -> list[float]:
        """Scores in [0, 1] from the model's outputs at B tokens, [B, V] or [B, head's outputs]."""
        outputs = outputs.double()
        if self._head is None:
            assert self.encoder.pair_ids is not None
            pair = outputs[:, list(self.encoder.pair_ids)]
            # The softmax over two logits, which can't overflow in this form.
            return [_sigmoid(x) for x in (pair[:, 0] - pair[:, 1]).tolist()]
        if self._head.label is None:
            squash = bounded if self._head.unbounded else _sigmoid
            return [squash(x) for x in outputs[:, 0].tolist()]
        return outputs.softmax(-1)[:, self._head.label].tolist()

    def _linear(self, weight: StoredTensor, bias: StoredTensor | None) -> torch.nn.Linear:
        outputs, inputs = weight.shape
        layer = torch.nn.Linear(inputs, outputs, bias=bias is not None, device="meta")
        layer.weight = self._read(weight)
        if bias is not None:
            layer.bias = self._read(bias)
        return layer

    def _read(self, tensor: StoredTensor) -> torch.nn.Parameter:
        with safe_open(tensor.file, framework="pt") as file:
            values = file.get_tensor(tensor.name).to(self.device, self.dtype).view(tensor.shape)
        return torch.nn.Parameter(values, requires_grad=False)


def _sigmoid(x: float) -> float:
    """The logistic function; NaN for NaN.

    torch's own has two implementations, so a score's last bit would depend on its place in a batch.
    """
    return 1 / (1 + math.exp(min(-x, 700.0)))


class _BackboneWithHead(torch.nn.Module):
    """A module with a causal model's interface whose logits are the outputs of the PRM's head."""

    def __init__(self, backbone: torch.nn.Module, layers: list[torch.nn.Linear]):
        super().__init__()
        self.backbone = backbone
        self.inner = torch.nn.ModuleList(layers[:-1])
        self.last = layers[-1]

    def forward(self, *, logits_to_keep: int | Tensor, **inputs: Any) -> SimpleNamespace:
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        hidden = self.backbone(**inputs).last_hidden_state[:, kept]
        for layer in self.inner:
            hidden = layer(hidden).relu()
        # Row by row: for so few outputs BLAS chooses its kernel by the number of rows, so that a
        # score would depend on the batch in its last bits.
        outputs = torch.stack([(hidden * row).sum(-1) for row in self.last.weight.unbind()], -1)
        bias: Tensor | None = self.last.bias
        return SimpleNamespace(logits=outputs if bias is None else outputs + bias)


def _head_layers(
    folder: pathlib.Path, head: Head, tensors: dict[str, StoredTensor], hidden_size: int
) -> list[tuple[StoredTensor, StoredTensor | None]]:
    """(weight, bias or None) of each layer of the head, after a check of their shapes."""
    layers = []
    width = hidden_size
    for layer in head.layers:
        weight, bias = tensors.get(f"{layer}.weight"), tensors.get(f"{layer}.bias")
        if weight is None:
            raise BadInputError(
                f"{str(folder)!r} stores no {layer + '.weight'!r}, which the PRM format reads "
                "scores from: choose the format the PRM was trained with"
            )
        if len(weight.shape) != 2 or weight.shape[1] != width:
            raise _wrong_shape(folder, head, weight, f"(outputs, {width})")
        width = weight.shape[0]
        if bias is not None and bias.shape != (width,):
            raise _wrong_shape(folder, head, bias, f"({width},)")
        layers.append((weight, bias))
    wanted = 1 if head.label is None else max(2, head.label + 1)
    if width < wanted or (head.label is None and width > 1):
        expected = f"({wanted}{'' if head.label is None else ' or more'}, inputs)"
        raise _wrong_shape(folder, head, layers[-1][0], expected)
    return layers


def _check_kind(
    folder: pathlib.Path, published: PRMFormat, architectures: list[str], last: StoredTensor
) -> None:
    """Raise BadInputError if a classifier is of another kind than a published format reads.

    A user's own format may name any head.

    Args:
        architectures: names in the model's config.json.
        last: weight of the head's last layer.
    """
    wrong, reads = "ForSequenceClassification", "each step"
    if published.finished_only:
        wrong, reads = "ForTokenClassification", "finished answers only"
    for name in architectures:
        if name.endswith(wrong):
            raise BadInputError(
                f"{str(folder)!r} is a {name}, and the PRM format {published.name!r} scores "
                f"{reads}: choose the format the model was trained with, or write it into a .yaml "
                "file"
            )
    assert isinstance(published.read_out, Head)
    labels = last.shape[0]
    if published.read_out.label is not None and labels != 2:
        raise BadInputError(
            f"{str(folder)!r}: {last.name!r} has {labels} labels, and the PRM format "
            f"{published.name!r} reads 2: name the good one in a .yaml file with read_out: "
            f"{{layers: [{', '.join(published.read_out.layers)}], label: INDEX}}"
        )


def _wrong_shape(
    folder: pathlib.Path, head: Head, tensor: StoredTensor, expected: str
) -> BadInputError:
    if isinstance(head, HeadOfFile):
        return BadInputError(
            f"head {str(tensor.file)!r}: {tensor.name!r} has shape {tensor.shape}, the hidden "
            f"states of {folder.name!r} need {expected}: give the head that was trained on it"
        )
    return BadInputError(
        f"{str(folder)!r}: {tensor.name!r} has shape {tensor.shape}, the PRM format needs "
        f"{expected}: choose the format the PRM was trained with"
    )
