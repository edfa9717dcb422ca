"""The discrete actions of the controller: how many children to sample and keep, and how to sample.

Section 5.2 of the paper names the parts of an action. All tables of values are our choice.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..interface import Sampling
from .types import Action

MAX_ACTIONS = 128
"""Largest table. The actor's cost grows with it; here it stays below that of the search."""


@dataclass(frozen=True)
class ActionTable:
    """A hashable table of actions; row `a` holds the controller's action `a`.

    Attributes:
        rows: (num_extra, num_retain, temperature, top_p, top_k) per action. num_extra >= 0,
            num_retain >= 1, temperature >= 0 (0 = greedy), top_p in (0, 1], top_k >= 0 (0 = off).

    Raises:
        ValueError: an entry is out of range, or the table is empty, has over 128 entries, or has no
            action with num_extra = 0: only these are legal when no candidates are left.
    """

    rows: tuple[tuple[int, int, float, float, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.rows) <= MAX_ACTIONS:
            raise ValueError(
                f"an action table has 1..{MAX_ACTIONS} entries, got {len(self.rows)}: "
                "drop values from one of its axes"
            )
        if all(row[0] > 0 for row in self.rows):
            raise ValueError("an action table needs an entry with num_extra = 0: add one")
        for index, (num_extra, num_retain, temperature, top_p, top_k) in enumerate(self.rows):
            in_range = num_extra >= 0 and num_retain >= 1 and temperature >= 0.0
            if not (in_range and 0.0 < top_p <= 1.0 and top_k >= 0):
                raise ValueError(
                    f"action {index} is out of range: num_extra={num_extra} (>= 0), "
                    f"num_retain={num_retain} (>= 1), temperature={temperature} (>= 0), "
                    f"top_p={top_p} (in (0, 1]), top_k={top_k} (>= 0)"
                )

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def product(
        cls,
        *,
        num_extra: tuple[int, ...] = (0, 1, 2, 4, 8),
        num_retain: tuple[int, ...] = (1, 2, 4),
        temperature: tuple[float, ...] = (0.6, 1.0, 1.4),
        top_p: tuple[float, ...] = (0.9, 1.0),
        top_k: tuple[int, ...] = (0,),
    ) -> ActionTable:
        """The table of all combinations of the given values, last axis fastest; 90 by default."""
        return cls(tuple(itertools.product(num_extra, num_retain, temperature, top_p, top_k)))

    def num_extra(self) -> Int[Array, " A"]:
        """Children that each action samples, i32[A]."""
        return jnp.asarray([row[0] for row in self.rows], jnp.int32)

    def lookup(self, index: Int[Array, " N"]) -> Action:
        """The actions with the given indices."""
        columns = list(zip(*self.rows, strict=True))
        return Action(
            num_extra=jnp.asarray(columns[0], jnp.int32)[index],
            num_retain=jnp.asarray(columns[1], jnp.int32)[index],
            temperature=jnp.asarray(columns[2], jnp.float32)[index],
            top_p=jnp.asarray(columns[3], jnp.float32)[index],
            top_k=jnp.asarray(columns[4], jnp.int32)[index],
        )

    def legal(self, available: Int[Array, ""]) -> Bool[Array, " A"]:
        """Mask of the actions with num_extra <= available; num_extra = 0 is always legal."""
        return self.num_extra() <= jnp.maximum(available, 0)

    @property
    def retry(self) -> int:
        """Row that a node without a valid child takes, whatever the controller chooses.

        It is the first one with the fewest additional children among the actions that sample at a
        temperature above 0. Without these, it is the first one with num_extra = 0.
        """
        sampled = [row for row in self.rows if row[0] > 0 and row[2] > 0.0]
        none = [row for row in self.rows if row[0] == 0]
        return self.rows.index(min(sampled, key=lambda row: row[0]) if sampled else none[0])

    def sampling_settings(self) -> tuple[Sampling, ...]:
        """The distinct sampling parameters of the actions with num_extra > 0, in table order."""
        return tuple(dict.fromkeys(Sampling(*row[2:]) for row in self.rows if row[0] > 0))


_NARROW = tuple((num_extra, 1, 1.0, 1.0, 0) for num_extra in (0, 1, 2, 4, 8))

ACTION_TABLES: Mapping[str, ActionTable] = MappingProxyType(
    {
        "temperature": ActionTable.product(temperature=(0.6, 1.0), top_p=(1.0,)),
        "top-p": ActionTable.product(),
        "narrow": ActionTable(_NARROW),
        "ask": ActionTable((*_NARROW, (1, 1, 0.0, 1.0, 0))),
        "top-k": ActionTable(
            (
                # Without samples the sampling parameters have no effect.
                *((0, keep, 1.0, 1.0, 0) for keep in (1, 2, 4)),
                *itertools.product((1, 2, 4, 8), (1, 2, 4), (0.6, 1.0), (0.9, 1.0), (0, 20)),
            )
        ),
    }
)
"""Action tables by name.

- `temperature`: 30 rows. Temperatures .6 and 1. For the configuration `CATS` and the shipped
  controller `cats`. The shipped bank recipes record its settings.
- `narrow`: 5 rows. Temperature 1. For `CATS_TOKENS` and the shipped controller `cats-tokens`.
- `ask`: 6 rows. The rows of `narrow`, and a last row with one more greedy child. A node without
  scores takes this row so that the PRM scores its greedy child. For `score_base=False`.
- `top-p`: 90 rows. Temperatures .6, 1 and 1.4; top-p .9 and 1. For the configuration `PAPER`.
- `top-k`: 99 rows. Temperatures .6 and 1; top-p .9 and 1; top-k 20 and off. For large vocabularies.

An action samples 0, 1, 2, 4 or 8 more children. It keeps 1 (`narrow`, `ask`), or 1, 2 or 4."""


def action_table(name: str) -> ActionTable:
    """The action table of that name. For an unknown name, raises ValueError with the known ones."""
    if name not in ACTION_TABLES:
        raise ValueError(f"unknown action table {name!r}: choose one of {', '.join(ACTION_TABLES)}")
    return ACTION_TABLES[name]
