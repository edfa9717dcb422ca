"""Computed token sequences: one tree per question, and their keys and values in a bounded pool.

The policy and the PRM share this mechanism. A node of a tree is a segment: the prompt or one step,
addressed by the token ids on the way to it. A tree records what was computed until `keep_only`
drops it. Requests are charged by the tree alone, so that usage does not depend on memory.

Keys and values stand in a common pool, one slot for each of a segment's own tokens. A segment with
slots is resident, and so are its ancestors. A batch of paths is read by one gather, left-padded
with an empty slot. The pool grows by chunks up to its bound and never moves.

Rule of the bound: **a call is served in waves of questions, each of which fits the pool.** Every
tick of a search visits every live path, so eviction of the least recently used segments would never
leave one for its next use. Instead, questions are put aside as a whole to make room for a wave, and
a call begins with resident questions. A question too large for the pool takes several waves. A new
segment without room is not stored. A wave computes again what is not resident.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ...errors import RunStoppedError
from ...protocols import Question
from ..footprint import FREE_SHARE, device_memory
from .token_budget import is_out_of_memory

_EMPTY_SLOT = 0
_NUM_CHUNKS = 16


class Segment:
    """One segment of a tree; equal to itself only.

    Attributes:
        tokens: token ids of the segment, its key among the children of its parent.
        parent: the segment before this one, None for a prompt.
        own: number of tokens of this segment that have keys and values.
        computed: whether the segment went through the model, now or earlier.
        score: a PRM's score at the segment's end; None for a policy's segment.
        slots: i64[length], slots of the path from the root to this segment; None if not resident.
        children: segments that continue this one, by their tokens.
    """

    __slots__ = ("_length", "children", "computed", "own", "parent", "score", "slots", "tokens")

    def __init__(self, tokens: tuple[int, ...], parent: Segment | None, own: int):
        self.tokens = tokens
        self.parent = parent
        self.own = own
        self._length = own + (0 if parent is None else len(parent))
        self.computed = False
        self.score: float | None = None
        self.slots: np.ndarray | None = None
        self.children: dict[tuple[int, ...], Segment] = {}

    def __len__(self) -> int:
        """Number of tokens with keys and values from the root to this segment's end."""
        return self._length

    def child(self, tokens: tuple[int, ...]) -> Segment:
        """The segment that continues this one with `tokens`; a new one if there is none."""
        found = self.children.get(tokens)
        if found is None:
            found = self.children[tokens] = Segment(tokens, self, len(tokens))
        return found

    def path(self) -> Iterator[Segment]:
        """This segment and its ancestors, up to the root."""
        segment: Segment | None = self
        while segment is not None:
            yield segment
            segment = segment.parent

    def subtree(self) -> Iterator[Segment]:
        """This segment and all its descendants."""
        stack: list[Segment] = [self]
        while stack:
            segment = stack.pop()
            stack.extend(segment.children.values())
            yield segment


def cache_bytes(kv_cache_gib: float | None, device: torch.device) -> int:
    """The pool's bound in bytes; for None, `FREE_SHARE` of what is free on the device now."""
    if kv_cache_gib is not None:
        return int(kv_cache_gib * 2**30)
    memory = device_memory(str(device))
    assert memory is not None  # the device was checked
    return int(FREE_SHARE * memory.free)


def missing(ends: Iterable[Segment]) -> list[list[Segment]]:
    """The segments of paths that are not resident, once each, by number of missing ancestors."""
    levels: list[dict[Segment, None]] = []
    for end in ends:
        absent = []
        for segment in end.path():
            if segment.slots is not None:
                break
            absent.append(segment)
        levels.extend({} for _ in range(len(absent) - len(levels)))
        for level, segment in zip(levels, reversed(absent), strict=False):
            level[segment] = None
    return [list(level) for level in levels]


def num_missing(ends: Iterable[Segment]) -> int:
    """Number of tokens of some paths that are not resident."""
    return sum(segment.own for level in missing(ends) for segment in level)


class PrefixCache:
    """Trees of `Segment`s over one pool of token slots.

    Args:
        num_planes: 2 x layers; planes 2l and 2l + 1 hold layer l's keys and values.
        num_heads, head_dim: number of key-value heads and their size, the same in every layer.
        max_bytes: largest number of bytes of the pool.

    Attributes:
        capacity: largest number of tokens in the pool; falls when the device has no memory for
            another chunk, and never rises.
        num_bytes: bytes allocated for the pool.

    Raises:
        RunStoppedError: the device has no memory for the first chunk.
    """

    def __init__(
        self,
        num_planes: int,
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        max_bytes: int,
    ):
        # One slot stays empty, for padding.
        slots = max_bytes // (num_planes * num_heads * head_dim * dtype.itemsize)
        self.capacity = slots - 1
        self.num_bytes = 0
        self._chunk_slots = max(1, -(-slots // _NUM_CHUNKS))
        self._new_chunk = lambda size: torch.empty(
            (num_planes, size, num_heads, head_dim), dtype=dtype, device=device
        )
        self._chunks: list[Tensor] = []
        self._free = np.arange(0)  # a stack; its end is next
        self._roots: dict[Question, Segment] = {}
        self._room(1)
        if not self._chunks:
            raise RunStoppedError(
                f"{device} has no memory left for cached keys and values: lower kv_cache_gib, "
                "or use dtype bfloat16 or a smaller model"
            )
        self._chunks[0][:, _EMPTY_SLOT] = 0

    def __len__(self) -> int:
        """Number of tokens whose keys and values are in the pool."""
        return self._num_slots() - 1 - len(self._free)

    def root(self, question: Question, tokens: tuple[int, ...], own: int) -> Segment:
        """The question's prompt `tokens`, of which the first `own` have keys and values."""
        if question not in self._roots:
            self._roots[question] = Segment(tokens, None, own)
        return self._roots[question]

    def store(self, segments: Sequence[Segment], kv: Sequence[Tensor]) -> None:
        """Notes that segments were computed, and makes them resident as far as there is room.

        Args:
            segments: distinct segments whose parents are resident.
            kv: keys and values of each segment's own tokens, [planes, heads, tokens, dim].
        """
        new = []
        for segment, values in zip(segments, kv, strict=True):
            segment.computed = True
            if segment.slots is None:
                new.append((segment, values))
        ends = np.cumsum([segment.own for segment, _ in new])
        if new and self._room(int(ends[-1])) < ends[-1]:
            ends = ends[ends <= len(self._free)]
            new = new[: len(ends)]
        if not new:
            return
        start = len(self._free) - int(ends[-1])
        slots = self._free[start:].copy()
        values = torch.cat([values for _, values in new], 2).transpose(1, 2)
        for chunk, places, inside in self._by_chunk(slots):
            chunk.index_copy_(1, inside, values if places is None else values[:, places])
        self._free = self._free[:start]  # last, so that an allocation that fails loses no slot
        for (segment, _), own in zip(new, np.split(slots, ends[:-1]), strict=True):
            parent = segment.parent
            segment.slots = own if parent is None else np.concatenate((parent.slots, own))

    def gather(self, segments: Sequence[Segment | None], end: int, width: int) -> Tensor:
        """Keys and values of whole paths, with zeros on both sides.

        Args:
            segments: resident ends of B paths; None is the empty path.
            end: column where every path ends; at least the longest path.
            width: columns in all; those from `end` on are for tokens to come.

        Returns:
            [planes, B, heads, width, dim], a view of a copy.
        """
        index = np.full((len(segments), width), _EMPTY_SLOT)
        for row, segment in enumerate(segments):
            if segment is not None:
                index[row, end - len(segment) : end] = segment.slots
        planes, _, heads, dim = self._chunks[0].shape
        copy: Tensor | None = None
        for chunk, places, inside in self._by_chunk(index.reshape(-1)):
            part = chunk.index_select(1, inside)
            if places is None:
                copy = part
            else:
                if copy is None:
                    copy = chunk.new_empty((planes, index.size, heads, dim))
                copy.index_copy_(1, places, part)
        assert copy is not None
        return copy.view(planes, len(segments), width, heads, dim).transpose(2, 3)

    def keep_only(self, question: Question, paths: Sequence[Sequence[tuple[int, ...]]]) -> None:
        """Drops a question's segments that are in none of `paths`; without paths, all.

        A path is the tokens of each of its segments below the prompt.
        """
        root = self._roots.get(question)
        if root is None:
            return
        kept = {root} if paths else set()
        for path in paths:
            segment: Segment | None = root
            for tokens in path:
                segment = segment.children.get(tokens)
                if segment is None:
                    break
                kept.add(segment)
        self._put_aside(root, kept)
        for segment in list(root.subtree()):
            segment.children = {k: c for k, c in segment.children.items() if c in kept}
        if not paths:
            del self._roots[question]

    # --- the bound ---

    def waves(self, ends: Sequence[Segment]) -> Iterator[list[int]]:
        """Groups of indices of `ends`, one after the other, with room for the paths of each.

        The caller computes what a group's paths lack, and may store other segments when all of them
        are resident. Paths of earlier groups need not be resident any more.

        Raises:
            RunStoppedError: a single path is longer than the whole pool.
        """
        wanted = num_missing(ends)
        if self._room(wanted) >= wanted:
            if ends:
                yield list(range(len(ends)))
            return
        waiting = deque(self._parts(ends))
        while waiting:
            wave = [waiting.popleft()]
            tokens = wave[0].num_tokens
            while waiting and tokens + waiting[0].num_tokens <= self.capacity:
                tokens += waiting[0].num_tokens
                wave.append(waiting.popleft())
            self._make_room(wave, waiting)
            yield [i for part in wave for i in part.indices]

    def _parts(self, ends: Sequence[Segment]) -> Iterator[_Part]:
        """Each question's paths, divided only if they don't fit together; resident ones first."""
        questions: dict[Segment, list[int]] = {}
        for i in sorted(range(len(ends)), key=lambda i: num_missing(ends[i : i + 1])):
            *_, root = ends[i].path()
            questions.setdefault(root, []).append(i)
        for root, indices in questions.items():
            part = _Part(root)
            for i in indices:
                if part.add(i, ends[i], self.capacity):
                    continue
                if part.indices:
                    yield part
                part = _Part(root)
                if not part.add(i, ends[i], self.capacity):
                    (question,) = (q for q, r in self._roots.items() if r is root)
                    raise RunStoppedError(
                        f"question {question.id!r} has a path of {len(ends[i])} tokens, the cache "
                        f"of keys and values holds {self.capacity}: nothing is lost, start again "
                        "with a larger kv_cache_gib"
                    )
            yield part

    def _make_room(self, wave: Sequence[_Part], waiting: Sequence[_Part]) -> None:
        """Puts questions aside until the wave fits: last those that the call needs soonest.

        The wave's own questions lose segments outside its paths after all other questions.
        """
        needed = {segment for part in wave for segment in part.segments}
        wanted = sum(segment.own for segment in needed if segment.slots is None)
        rank = {part.root: place for place, part in enumerate(reversed(waiting))}
        rank.update({part.root: len(waiting) for part in wave})
        for root in sorted(self._roots.values(), key=lambda root: rank.get(root, -1)):
            if self._room(wanted) >= wanted:
                return
            self._put_aside(root, needed)

    def _put_aside(self, root: Segment, kept: set[Segment]) -> None:
        """Frees the slots of a tree, except of the segments in `kept`."""
        freed = [self._free]
        for segment in root.subtree():
            if segment.slots is not None and segment not in kept:
                freed.append(segment.slots[len(segment) - segment.own :])
                segment.slots = None
        self._free = np.concatenate(freed)

    # --- the pool ---

    def _num_slots(self) -> int:
        return sum(chunk.shape[1] for chunk in self._chunks)

    def _room(self, wanted: int) -> int:
        """Number of free slots, after the pool has grown to have `wanted` if it can."""
        while len(self._free) < wanted and (old := self._num_slots()) <= self.capacity:
            try:
                chunk = self._new_chunk(min(self._chunk_slots, self.capacity + 1 - old))
            except Exception as error:  # torch has no common type for failed allocations
                if not is_out_of_memory(error):
                    raise
                self.capacity = old - 1
                break
            self._chunks.append(chunk)
            self.num_bytes += chunk.nbytes
            first = max(old, _EMPTY_SLOT + 1)
            new = np.arange(old + chunk.shape[1] - 1, first - 1, -1)
            self._free = np.concatenate((new, self._free))
        return len(self._free)

    def _by_chunk(self, slots: np.ndarray) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
        """(chunk, places, slots within the chunk) of each chunk that holds some of the slots.

        `places` are the chunk's positions in `slots`; None for all.
        """
        chunk_of = slots // self._chunk_slots
        for i in range(int(chunk_of.min()), int(chunk_of.max()) + 1):
            places = np.flatnonzero(chunk_of == i)
            if len(places) == 0:
                continue
            chunk = self._chunks[i]
            inside = torch.from_numpy(slots[places] - i * self._chunk_slots).to(chunk.device)
            some = len(places) < len(slots)
            yield chunk, torch.from_numpy(places).to(chunk.device) if some else None, inside


@dataclass(slots=True)
class _Part:
    """Paths of one question that fit the pool together."""

    root: Segment
    indices: list[int] = field(default_factory=list)
    segments: set[Segment] = field(default_factory=set)
    num_tokens: int = 0

    def add(self, index: int, end: Segment, capacity: int) -> bool:
        """Adds a path, unless the part then has more tokens than `capacity`."""
        new = []
        for segment in end.path():
            if segment in self.segments:
                break  # its ancestors are in it, too
            new.append(segment)
        num_tokens = self.num_tokens + sum(segment.own for segment in new)
        if num_tokens > capacity:
            return False
        self.indices.append(index)
        self.segments.update(new)
        self.num_tokens = num_tokens
        return True
