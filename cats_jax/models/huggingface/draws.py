"""The samples of a call as arrays: the nodes that they continue, parameters, and why they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from ...protocols import Finish
from ..prompts.step_text import StepEnd
from .prefix_cache import Segment

FINISHES: tuple[Finish, ...] = ("step", "end", "length", "context")
STEP, END, LENGTH, CONTEXT = range(4)
"""Why a sample ends: an index in `FINISHES`."""


@dataclass(frozen=True, slots=True)
class Draws:
    """S samples to draw, or steps to decode again: arrays [S], and the segments they continue.

    `node` is a sample's index in `nodes`, `sample` its number in the call, and `step_ends` the
    nodes' rules by which steps end. `seed` has the bits of unsigned seeds, i64. Steps to decode
    again have no rules; their tokens are in `forced`, i64[S, T], and the other parameters have no
    effect.
    """

    nodes: list[Segment]
    step_ends: list[StepEnd]
    node: np.ndarray
    sample: np.ndarray
    limit: np.ndarray
    at_limit: np.ndarray
    seed: np.ndarray
    temperature: np.ndarray
    top_p: np.ndarray
    top_k: np.ndarray
    stop_at_separator: np.ndarray
    forced: np.ndarray | None = None

    def take(self, part: Sequence[int]) -> Draws:
        """Some of the samples, with their nodes in the order in which the samples name them."""
        own = ("nodes", "step_ends", "node", "forced")
        names = [each.name for each in fields(self) if each.name not in own]
        numbers: dict[int, int] = {}
        node = [numbers.setdefault(each, len(numbers)) for each in self.node[part].tolist()]
        return Draws(
            nodes=[self.nodes[i] for i in numbers],
            step_ends=[self.step_ends[i] for i in numbers if self.step_ends],
            node=np.array(node, dtype=np.int64),
            forced=None if self.forced is None else self.forced[part],
            **{name: getattr(self, name)[part] for name in names},
        )


def forced_draws(segments: Sequence[Segment]) -> Draws:
    """Steps to compute whose parents are resident."""
    nodes: dict[Segment, int] = {}
    node = [nodes.setdefault(each.parent, len(nodes)) for each in segments if each.parent]
    limit = np.array([segment.own for segment in segments], dtype=np.int64)
    forced = np.zeros((len(segments), int(limit.max(initial=0))), dtype=np.int64)
    for row, segment in zip(forced, segments, strict=True):
        row[: segment.own] = segment.tokens
    zeros = np.zeros(len(segments), dtype=np.int64)
    return Draws(
        nodes=list(nodes),
        step_ends=[],
        node=np.array(node, dtype=np.int64),
        sample=zeros,
        limit=limit,
        at_limit=np.full_like(limit, STEP),
        seed=zeros,
        temperature=zeros.astype(np.float64),
        top_p=np.ones(len(segments)),
        top_k=zeros,
        stop_at_separator=np.ones(len(segments), dtype=np.bool_),
        forced=forced,
    )


@dataclass(frozen=True, slots=True)
class Parameters:
    """The samples' parameters as tensors, [S]; `forced` is i64[S, T] or None."""

    node: Tensor
    seed: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    stop_at_separator: Tensor
    limit: Tensor
    at_limit: Tensor
    truncated: bool
    forced: Tensor | None

    @staticmethod
    def of(draws: Draws, device: torch.device) -> Parameters:
        """The parameters of some draws on a device."""

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values).to(device)

        names = [
            each.name for each in fields(Parameters) if each.name not in ("truncated", "forced")
        ]
        return Parameters(
            **{name: tensor(getattr(draws, name)) for name in names},
            truncated=bool(((draws.top_p < 1) | (draws.top_k > 0)).any()),
            forced=None if draws.forced is None else tensor(draws.forced),
        )
