"""What samples cost: each token history that is fed to the model is charged once."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocols import TokenUsage, total_usage
from .prefix_cache import Segment


class Histories:
    """The token histories that were fed to the model, as a tree below each node."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}

    def add(self, segment: Segment, ids: tuple[int, ...]) -> int:
        """Number of new histories that are fed for a sample; a sample of n tokens has n of them."""
        known = len(self._children)
        at = self._children.setdefault((-1, id(segment)), known)
        for token in ids[:-1]:
            at = self._children.setdefault((at, token), len(self._children))
        return len(self._children) - known


def sample_usage(
    ends: Sequence[Segment],
    paths: Sequence[TokenUsage],
    of_request: Sequence[Sequence[int]],
    endings: Sequence[tuple[int, ...]],
) -> list[list[TokenUsage]]:
    """Cost of each sample beyond those before it; the first includes the request's path.

    Args:
        ends, paths: end of each request's path, and what the path costs.
        of_request: indices in `endings` of each request's samples.
        endings: token ids of the distinct samples, each of one node; the first is empty.
    """
    histories = Histories()
    again: dict[int, TokenUsage] = {}
    answer = []
    for end, path, indices in zip(ends, paths, of_request, strict=True):
        row = []
        for index in indices:
            usage = again.get(index)
            if usage is None:
                ids = endings[index]
                length, new = len(ids), histories.add(end, ids) if ids else 0
                usage = TokenUsage(computed=new, cached=length - new, generated=length)
                again[index] = TokenUsage(cached=length, generated=length)
            row.append(usage)
        row[0] = total_usage([path, row[0]])
        answer.append(row)
    return answer
