"""Keys and values of computed token sequences: one tree per question, every token stored once.

The policy and the PRM share this mechanism. A node of the tree is a segment: the prompt, or one
step. It is addressed by content (the token ids on the way to it) and stores only its own tokens'
keys and values, one slot of a common pool per token; a path is the slots from the root to the
node. Reading a batch of paths is one gather, left-padded with an empty slot to the wanted width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ...protocols import Question

_EMPTY_SLOT = 0
_INITIAL_SLOTS = 4096


class Segment:
    """One cached segment.

    Attributes:
        tokens: token ids of the segment, its key among the children of its parent.
        slots: i64[length], pool slots of the whole path from the root to this segment.
        own: number of slots at the end of `slots` that belong to this segment.
        score: a PRM's score at the segment's end; None for a policy's segment.
        children: segments that continue this one, by their tokens.
    """

    __slots__ = ("children", "own", "score", "slots", "tokens")

    def __init__(self, tokens: tuple[int, ...], slots: np.ndarray, own: int):
        self.tokens = tokens
        self.slots = slots
        self.own = own
        self.score: float | None = None
        self.children: dict[tuple[int, ...], Segment] = {}

    def __len__(self) -> int:
        """Number of cached tokens from the root to this segment's end."""
        return len(self.slots)

    def subtree(self) -> Iterator[Segment]:
        """This segment and all its descendants."""
        stack: list[Segment] = [self]
        while stack:
            segment = stack.pop()
            stack.extend(segment.children.values())
            yield segment


class PrefixCache:
    """Trees of `Segment`s over one pool of token slots.

    Args:
        num_planes: 2 x layers; planes 2l and 2l + 1 hold layer l's keys and values.
        num_heads, head_dim: number of key-value heads and their size, the same in every layer.
        dtype, device: dtype and device of the pool.
    """

    def __init__(
        self,
        num_planes: int,
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ):
        shape = (num_planes, _INITIAL_SLOTS, num_heads, head_dim)
        self._pool = torch.zeros(shape, dtype=dtype, device=device)
        self._free = np.arange(_INITIAL_SLOTS - 1, _EMPTY_SLOT, -1)  # a stack; its end is next
        self._roots: dict[Question, Segment] = {}

    def __len__(self) -> int:
        """Number of tokens in the cache."""
        return self._pool.shape[1] - 1 - len(self._free)

    def root(self, question: Question) -> Segment | None:
        """The segment of the question's prompt, or None if it is not cached."""
        return self._roots.get(question)

    def add_roots(
        self, questions: Sequence[Question], prompts: Sequence[tuple[int, ...]], kv: list[Tensor]
    ) -> list[Segment]:
        """The prompts' segments, stored if new; `kv[i]` is [planes, heads, tokens, dim]."""
        new = [i for i, q in enumerate(questions) if q not in self._roots]
        for i, slots in zip(new, self._store([kv[i] for i in new]), strict=True):
            self._roots[questions[i]] = Segment(prompts[i], slots, len(slots))
        return [self._roots[question] for question in questions]

    def add_children(
        self, parents: Sequence[Segment], tokens: Sequence[tuple[int, ...]], kv: list[Tensor]
    ) -> list[Segment]:
        """Stores one segment below each parent, or finds the one with these tokens.

        Args:
            parents, tokens: pairs of a parent and the new segment's tokens, each pair at most once.
            kv: [planes, heads, tokens, dim] per segment. The number of cached tokens need not be
                `len(tokens)`: a policy's segment lags one token behind.
        """
        pairs = list(zip(parents, tokens, strict=True))
        new = [i for i, (parent, key) in enumerate(pairs) if key not in parent.children]
        for i, slots in zip(new, self._store([kv[i] for i in new]), strict=True):
            parent, key = pairs[i]
            path = np.concatenate((parent.slots, slots))
            parent.children[key] = Segment(key, path, len(slots))
        return [parent.children[key] for parent, key in pairs]

    def gather(self, segments: Sequence[Segment | None], end: int, width: int) -> Tensor:
        """Keys and values of whole paths, with zeros on both sides.

        Args:
            segments: B ends of paths; None is the empty path.
            end: column where every path ends; at least the longest path.
            width: columns in all; those from `end` on are for tokens to come.

        Returns:
            [planes, B, heads, width, dim], a view of a copy.
        """
        index = np.full((len(segments), width), _EMPTY_SLOT)
        for row, segment in enumerate(segments):
            if segment is not None:
                index[row, end - len(segment) : end] = segment.slots
        planes, _, heads, dim = self._pool.shape
        flat = torch.from_numpy(index.reshape(-1)).to(self._pool.device)
        paths = self._pool.index_select(1, flat).view(planes, len(segments), width, heads, dim)
        return paths.transpose(2, 3)

    def keep_only(self, question: Question, paths: Sequence[Sequence[tuple[int, ...]]]) -> None:
        """Frees a question's segments that are in none of `paths`; without paths, frees all.

        A path is the tokens of each of its segments below the prompt.
        """
        root = self._roots.get(question)
        if root is None:
            return
        kept = {id(root)} if paths else set()
        for path in paths:
            segment: Segment | None = root
            for tokens in path:
                segment = segment.children.get(tokens)
                if segment is None:
                    break
                kept.add(id(segment))
        freed = [self._free]
        for segment in list(root.subtree()):
            if id(segment) not in kept:
                freed.append(segment.slots[len(segment) - segment.own :])
            segment.children = {k: c for k, c in segment.children.items() if id(c) in kept}
        self._free = np.concatenate(freed)
        if not paths:
            del self._roots[question]

    def _store(self, kv: list[Tensor]) -> list[np.ndarray]:
        """Copies each [planes, heads, tokens, dim] into free slots; returns the slots of each."""
        if not kv:
            return []
        ends = np.cumsum([values.shape[2] for values in kv])
        count = int(ends[-1])
        if len(self._free) < count:
            self._grow(count)
        start = len(self._free) - count
        slots, self._free = self._free[start:].copy(), self._free[:start]
        index = torch.from_numpy(slots).to(self._pool.device)
        self._pool.index_copy_(1, index, torch.cat(kv, 2).transpose(1, 2))
        return np.split(slots, ends[:-1])

    def _grow(self, needed: int) -> None:
        old = self._pool.shape[1]
        new = max(2 * old, old + needed)
        planes, _, heads, dim = self._pool.shape
        pool = self._pool.new_zeros((planes, new, heads, dim))
        pool[:, :old] = self._pool
        self._pool = pool
        self._free = np.concatenate((np.arange(new - 1, old - 1, -1), self._free))
