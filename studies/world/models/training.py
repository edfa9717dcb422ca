"""Training of tiny models on one CPU thread: optimiser, schedule, batches.

Everything is counted in optimiser steps, never in seconds, so that a training is a function of its
seed. Muon on the matrices of the layers lets these models learn within minutes: after 600 steps a
policy's loss was .16, with Adam alone 1.06.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TypeVar, cast

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from cats_jax.world import tokenizer

ROPE_THETA = 10000.0
HEAD_DIM = 32  # what vLLM's CPU attention takes
CONTEXT_LENGTH = 256  # tokens; the longest question with its solution has about 120
IGNORED = -100  # target of a position that teaches nothing

T = TypeVar("T")
SizedT = TypeVar("SizedT", bound=Sized)


@dataclasses.dataclass(frozen=True)
class ModelSize:
    """Shape of a Qwen2 model whose heads have `HEAD_DIM` channels."""

    num_layers: int
    num_heads: int
    num_kv_heads: int = 1

    @property
    def hidden_size(self) -> int:
        """Channels of the residual stream."""
        return HEAD_DIM * self.num_heads


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Optimiser steps and rates of one training.

    Attributes:
      num_steps: optimiser steps.
      batch_size: sequences in a step.
      matrix_rate: Muon's rate, for the matrices inside the layers.
      other_rate: AdamW's rate, for embeddings, read-out, norms and biases.
      warmup: steps of linear rise.
      flat: share of the steps before the rate falls linearly to 2 %.
    """

    num_steps: int
    batch_size: int = 32
    matrix_rate: float = 0.02
    other_rate: float = 0.006
    warmup: int = 50
    flat: float = 0.5

    def factor(self, step: int) -> float:
        """Share of the full rate at optimiser step `step`, counted from 0."""
        done = step / self.num_steps
        decay = 1.0 if done < self.flat else max(0.02, (1 - done) / (1 - self.flat))
        return min(1.0, (step + 1) / self.warmup) * decay


def use_one_thread() -> None:
    """One thread and deterministic kernels: more threads do not help models of this size."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def new_model(size: ModelSize, seed: int, *, tied: bool = True) -> Qwen2ForCausalLM:
    """A randomly initialised model in fp32; `tied`: one tensor embeds and reads out."""
    config = Qwen2Config(
        vocab_size=len(tokenizer.VOCABULARY),
        hidden_size=size.hidden_size,
        intermediate_size=2 * size.hidden_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        num_key_value_heads=size.num_kv_heads,
        max_position_embeddings=CONTEXT_LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        pad_token_id=tokenizer.PAD_ID,
        bos_token_id=tokenizer.BOS_ID,
        eos_token_id=tokenizer.EOS_ID,
        tie_word_embeddings=tied,
        initializer_range=0.02,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config).float()


def load_model(folder: pathlib.Path) -> Qwen2ForCausalLM:
    """A stored model in fp32, for inference."""
    return Qwen2ForCausalLM.from_pretrained(folder, dtype="float32").eval()


def read_out_of(model: Qwen2ForCausalLM) -> torch.Tensor:
    """The weight that makes logits, f32[vocabulary, hidden]; the embedding's where it is tied."""
    return model.lm_head.weight


def size_of(model: Qwen2ForCausalLM) -> ModelSize:
    """The shape a model was made with."""
    config = model.config
    num_kv_heads = config.num_key_value_heads or config.num_attention_heads
    return ModelSize(config.num_hidden_layers, config.num_attention_heads, num_kv_heads)


def layers_of(model: Qwen2ForCausalLM) -> list[Qwen2DecoderLayer]:
    """The transformer layers of a model, bottom to top."""
    return cast(list[Qwen2DecoderLayer], list(model.model.layers))


class Optimizer:
    """Muon on the matrices inside the layers, AdamW on everything else, one schedule."""

    def __init__(self, model: nn.Module, schedule: Schedule, *, weight_decay: float = 0.01):
        self._schedule = schedule
        self._parameters = list(model.parameters())
        matrices = [p for name, p in model.named_parameters() if is_layer_matrix(name, p)]
        others = [p for name, p in model.named_parameters() if not is_layer_matrix(name, p)]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices, lr=schedule.matrix_rate, weight_decay=weight_decay, momentum=0.95
            ),
            torch.optim.AdamW(others, lr=schedule.other_rate, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self._rates = (schedule.matrix_rate, schedule.other_rate)

    def update(self, step: int) -> float:
        """One clipped update from the gradients at hand; returns the share of the full rate."""
        nn.utils.clip_grad_norm_(self._parameters, 1.0)
        factor = self._schedule.factor(step)
        for optimizer, rate in zip(self._optimizers, self._rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return factor


def is_layer_matrix(name: str, parameter: torch.Tensor) -> bool:
    """Whether a parameter is a matrix of a transformer layer (not embedding, read-out, bias)."""
    return parameter.ndim == 2 and ".layers." in name


def length_sorted_batches(
    items: Iterable[SizedT], batch_size: int, seed: int, *, pool: int = 32
) -> Iterator[list[SizedT]]:
    """Batches of sequences of similar length from an endless stream.

    `pool` batches are drawn at once, sorted by length, and given out in random order. So there is
    little padding, and every length in every stretch of training.
    """
    rng = random.Random(seed)
    stream = iter(items)
    while True:
        drawn = [next(stream) for _ in range(batch_size * pool)]
        drawn.sort(key=len)
        batches = [drawn[i : i + batch_size] for i in range(0, len(drawn), batch_size)]
        rng.shuffle(batches)
        yield from batches


def shuffled_forever(items: Sequence[T], seed: int) -> Iterator[T]:
    """The items in random order, again and again, each epoch in another order."""
    rng = random.Random(seed)
    order = list(range(len(items)))
    while True:
        rng.shuffle(order)
        for index in order:
            yield items[index]


def pad(rows: Sequence[Sequence[float]], value: float, dtype: torch.dtype) -> torch.Tensor:
    """Rows of different length as one tensor [rows, longest], filled up on the right."""
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows], dtype=dtype)


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the token after each position; logits f32[batch, time, vocabulary].

    `targets`, i64[batch, time], are the sequence, with `IGNORED` where nothing is to be learnt.
    """
    targets = targets[:, 1:].reshape(-1)
    flat = logits[:, :-1].reshape(-1, logits.shape[-1])
    loss = functional.cross_entropy(flat, targets, ignore_index=IGNORED, reduction="sum")
    return loss / (targets != IGNORED).sum().clamp_min(1)


class Progress:
    """A running mean of losses and a line of log now and then."""

    def __init__(self, name: str, num_steps: int, log: Callable[[str], None], every: int = 100):
        self._name, self._num_steps, self._log, self._every = name, num_steps, log, every
        self._start = time.monotonic()
        self._means: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Since the start of the training."""
        return time.monotonic() - self._start

    @property
    def losses(self) -> dict[str, float]:
        """The running means, by name."""
        return {name: round(value, 5) for name, value in self._means.items()}

    def update(self, step: int, **losses: float) -> None:
        """Takes the losses of optimiser step `step`, counted from 0."""
        for name, value in losses.items():
            self._means[name] = 0.97 * self._means.get(name, value) + 0.03 * value
        if (step + 1) % self._every == 0 or step + 1 == self._num_steps:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in self._means.items())
            at = f"{step + 1}/{self._num_steps}"
            self._log(f"{self._name}: step {at}  {shown}  {self.seconds:.0f} s")
