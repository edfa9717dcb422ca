"""The samples of a call as tensors: the nodes that they continue, parameters, and why they end."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ...protocols import Finish
from ..prompts.step_text import StepEnd
from .prefix_cache import Segment

FINISHES: tuple[Finish, ...] = ("step", "end", "length", "context")
STEP, END, LENGTH, CONTEXT = range(4)
"""Why a sample ends: an index in `FINISHES`."""


@dataclass(frozen=True)
class Draws:
    """S samples to draw, or steps to decode again: tensors [S], and the segments they continue.

    `node` is a sample's index in `nodes`, `sample` its number in the call, and `step_ends` the
    nodes' rules by which steps end. `seed` has the bits of unsigned seeds, i64. Steps to decode
    again have no rules; their tokens are in `forced`, i64[S, T], and the other parameters have no
    effect.
    """

    nodes: list[Segment]
    step_ends: list[StepEnd]
    node: Tensor
    sample: Tensor
    limit: Tensor
    at_limit: Tensor
    seed: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    stop_at_separator: Tensor
    forced: Tensor | None = None

    @functools.cached_property
    def truncated(self) -> bool:
        """Whether any sample has top_p < 1 or top_k > 0."""
        return bool(((self.top_p < 1) | (self.top_k > 0)).any())

    def take(self, part: Sequence[int], device: torch.device) -> Draws:
        """Some of the samples on a device, with their nodes in the order of the samples."""
        index = torch.tensor(part)
        numbers: dict[int, int] = {}
        node = [numbers.setdefault(each, len(numbers)) for each in self.node[index].tolist()]
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        tensors = {
            name: column[index].to(device)
            for name, column in columns.items()
            if isinstance(column, Tensor)
        }
        return Draws(
            nodes=[self.nodes[i] for i in numbers],
            step_ends=[self.step_ends[i] for i in numbers if self.step_ends],
            **{**tensors, "node": torch.tensor(node, device=device)},
        )


def forced_draws(segments: Sequence[Segment]) -> Draws:
    """Steps to compute whose parents are resident."""
    nodes: dict[Segment, int] = {}
    node = [nodes.setdefault(each.parent, len(nodes)) for each in segments if each.parent]
    limit = torch.tensor([segment.own for segment in segments])
    forced = torch.zeros((len(segments), int(limit.max())), dtype=torch.long)
    for row, segment in zip(forced, segments, strict=True):
        row[: segment.own] = torch.tensor(segment.tokens)
    zeros = torch.zeros_like(limit)
    return Draws(
        nodes=list(nodes),
        step_ends=[],
        node=torch.tensor(node),
        sample=zeros,
        limit=limit,
        at_limit=torch.full_like(limit, STEP),
        seed=zeros,
        temperature=zeros,
        top_p=zeros + 1,
        top_k=zeros,
        stop_at_separator=zeros,
        forced=forced,
    )
