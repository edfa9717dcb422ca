"""Rows of a batch that advance one token at a time, in lockstep, grouped by their widths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .model import WIDTH, CausalModel, padded
from .parts import Part
from .prefix_cache import PrefixCache, Segment


class DecodingRows:
    """A batch of rows that advance one token at a time.

    All rows share each pass through the model. Rows with prefixes of one padded width share a
    buffer.

    Args:
        model, cache: the model, and the cache that holds the prefixes.
        prefixes: ends of cached paths, by ascending padded width (`padded_width`).
        most: largest number of rows that will continue each prefix.
    """

    def __init__(
        self,
        model: CausalModel,
        cache: PrefixCache,
        prefixes: Sequence[Segment],
        most: Sequence[int],
    ):
        self._model = model
        self._groups: list[_Rows] = []
        first = 0
        for width, some in itertools.groupby(prefixes, padded_width):
            group = list(some)
            count = sum(most[first : first + len(group)])
            self._groups.append(_Rows(model, cache, group, width, count))
            first += len(group)
        self._tick = 0

    def feed(self, tokens: Tensor) -> Tensor:
        """Feeds one token to each row: i64[B] -> logits [B, V]."""
        parts = [group.part(self._tick) for group in self._groups]
        positions = torch.cat([group.lengths[: group.num_rows] for group in self._groups])
        logits = self._model.forward(parts, tokens, positions + self._tick)
        self._tick += 1
        return logits

    def follow(self, parents: Tensor) -> Tensor:
        """Makes each of B' rows the continuation of a present row; rows without one are dropped.

        Args:
            parents: i64[B'], ascending; a row may occur more than once.

        Returns:
            i64[B'], the new row of each.
        """
        firsts = self._firsts()
        cuts = torch.searchsorted(parents, torch.tensor(firsts, device=parents.device)).tolist()
        places: list[Tensor] = []
        left: list[_Rows] = []
        for group, first, (start, stop) in zip(
            self._groups, firsts, itertools.pairwise([*cuts, len(parents)]), strict=True
        ):
            if start < stop:
                places.append(group.follow(parents[start:stop] - first) + start)
                left.append(group)
        self._groups = left
        return torch.cat(places)

    def own(self, rows: Tensor) -> list[Tensor]:
        """Keys and values of the tokens fed to each of `rows`, [planes, heads, ticks, dim]."""
        firsts = torch.tensor(self._firsts(), device=rows.device)
        group = torch.searchsorted(firsts, rows, right=True) - 1
        inside = (rows - firsts[group]).tolist()
        return [
            self._groups[i].own(row, self._tick)
            for i, row in zip(group.tolist(), inside, strict=True)
        ]

    def _firsts(self) -> list[int]:
        """The first row of each group."""
        counts = [group.num_rows for group in self._groups]
        return [0, *itertools.accumulate(counts[:-1])]


def padded_width(prefix: Segment) -> int:
    """Number of columns that a cached prefix takes in a buffer."""
    return padded(len(prefix), WIDTH)


class _Rows:
    """Rows of one width.

    Prefixes are left-padded to P columns, P a multiple of 32. The token fed at tick t takes column
    P + t of a buffer of P + 32·ceil((t + 1) / 32) columns. These widths follow from the row's own
    prefix length and tick.

    Attributes:
        num_rows: rows in use, B.
        lengths: lengths of the rows' prefixes, i64[at least B].
    """

    def __init__(
        self,
        model: CausalModel,
        cache: PrefixCache,
        prefixes: Sequence[Segment],
        prefix_width: int,
        most: int,
    ):
        self._model = model
        self._most = most
        self._prefix_width = prefix_width
        self.num_rows = len(prefixes)
        self._kv = cache.gather(prefixes, prefix_width, prefix_width + WIDTH)
        self.lengths = torch.tensor([len(each) for each in prefixes], device=model.device)
        columns = torch.arange(self._kv.shape[3], device=model.device)
        seen = (columns >= prefix_width - self.lengths[:, None]) & (columns < prefix_width)
        self._mask = torch.zeros(seen.shape, dtype=model.dtype, device=model.device)
        self._mask.masked_fill_(~seen, -torch.inf)

    def part(self, tick: int) -> Part:
        """The rows as a part of the pass of a tick."""
        column = self._prefix_width + tick
        if column == self._kv.shape[3]:
            self._kv = F.pad(self._kv, (0, 0, 0, WIDTH))
            self._mask = F.pad(self._mask, (0, WIDTH), value=-torch.inf)
        self._mask[:, column] = 0
        used = slice(self.num_rows)
        return self._model.part(self._kv[:, used], column, self._mask[used, None, None])

    def follow(self, parents: Tensor) -> Tensor:
        """As `DecodingRows.follow`, within the group.

        Copying keys and values is most of the cost, so one of the rows that continue a row stays in
        its place. Only the others are copied, to the places of dropped rows.
        """
        count = len(parents)
        stays = parents < count
        stays[1:] &= parents[1:] != parents[:-1]
        free = torch.ones(count, dtype=torch.bool, device=parents.device)
        free[parents[stays]] = False
        places = parents.clone()
        places[~stays] = free.nonzero()[:, 0]
        source, target = parents[~stays], places[~stays]
        if len(source) > 0:
            self._grow(count)
            self._kv.index_copy_(1, target, self._kv.index_select(1, source))
            self.lengths[target] = self.lengths[source]
            self._mask[target] = self._mask[source]
        self.num_rows = count
        return places

    def _grow(self, count: int) -> None:
        """Gives the buffer room for a number of rows, and for more if it had too few."""
        if count > self._kv.shape[1]:
            more = max(count, min(2 * count, self._most)) - self._kv.shape[1]
            planes, _, *shape = self._kv.shape
            # Zeros, since a masked column is still multiplied by 0.
            self._kv = torch.cat((self._kv, self._kv.new_zeros((planes, more, *shape))), 1)
            self.lengths = F.pad(self.lengths, (0, more))
            self._mask = F.pad(self._mask, (0, 0, 0, more))

    def own(self, row: int, ticks: int) -> Tensor:
        """Keys and values of the tokens fed to a row, [planes, heads, ticks, dim], a view."""
        return self._kv[:, row, :, self._prefix_width : self._prefix_width + ticks]
