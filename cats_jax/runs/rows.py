"""The rows of a run: results of searches, as they are written and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ..live.ledger import Ledger
from ..live.results import Status
from ..storage.rules import (
    AMOUNT,
    COUNT,
    INTEGER,
    MAPPING,
    NUMBER,
    TEXT,
    TRUTH,
    Rule,
    check_entries,
    fits,
    list_of,
    one_of,
    optional,
)

_LEDGER_FIELDS = tuple(field.name for field in dataclasses.fields(Ledger))
_LATER = (
    "prm_flops",
    "prm_refused",
    "comparisons",
    "comparisons_unread",
    "unsolved",
    "policy_cost",
    "prm_cost",
)
_MAX_MEMBER = 1 << 26  # bytes of a compressed tree

_ROW = {
    **dict.fromkeys(("key", "question", "strategy", "gold", "reason", "dataset"), TEXT),
    **dict.fromkeys(("prm", "answer"), optional(TEXT)),
    "status": one_of(*get_args(Status)),
    "num_candidates": COUNT,
    "seed": INTEGER,
    "steps": COUNT,
    "tolerance": optional(NUMBER),
    "meta": MAPPING,
    "correct": TRUTH,
    "covered": TRUTH,
    # `rest_seconds` is a difference, which may be a little below 0.
    **{name: NUMBER if name.endswith("seconds") else AMOUNT for name in _LEDGER_FIELDS},
    "actions": list_of(
        Rule("a list of six numbers", lambda action: fits(action, COUNT, COUNT, *[NUMBER] * 4))
    ),
    "tree": optional(
        Rule(
            "two whole numbers, offset and length",
            lambda tree: fits(tree, COUNT, COUNT) and 0 < tree[1] <= _MAX_MEMBER,
        )
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one search of one question.

    Attributes:
        key: key of the row, unique in the run, from `folder.row_key`.
        question: id of the question.
        strategy: label of the strategy.
        num_candidates: N.
        prm: label of the PRM, or None if it was not called.
        seed: run seed.
        meta: values of the question file about the question, such as its level.
        answer: the final answer, or None.
        gold: the answer it was graded against.
        correct: whether the two are the same; a failed question is wrong.
        status: how the search ended, as in `SearchResult`.
        reason: one line on a failure, a limit or an answer that could not be graded; else empty.
        steps: number of reasoning steps completed.
        ledger: cost of the search.
        actions: (num_extra, num_retain, temperature, top_p, top_k, times) of each distinct action;
            `times` counts its decisions.
        tree: offset and length in bytes of the tree's gzip member in the tree file, or None if no
            tree was written.
        dataset: label of the question's data set in a run of several; "" in a run of one.
        tolerance: largest absolute difference to `gold` that counted as equal, or None.
        covered: whether some finished path gives the right answer (pass@N for strategies that keep
            all N paths).
    """

    key: str
    question: str
    strategy: str
    num_candidates: int
    prm: str | None
    seed: int
    meta: Mapping[str, Any]
    answer: str | None
    gold: str
    correct: bool
    status: Status
    reason: str
    steps: int
    ledger: Ledger
    actions: tuple[tuple[int, int, float, float, int, int], ...] = ()
    tree: tuple[int, int] | None = None
    dataset: str = ""
    tolerance: float | None = None
    covered: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The row as a flat mapping for the results file; the ledger's fields are columns."""
        row = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "ledger"
        }
        return {**row, **self.ledger.as_dict(), "seconds": self.ledger.seconds}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Row:
        """The inverse of `as_dict`; fields of `_LATER`, which older runs lack, default to 0.

        In runs without `prm_refused`, a path that the PRM refused failed its question.

        Raises:
            ValueError: a value is missing, is of another type, or is out of range.
        """
        row = {**dict.fromkeys(_LATER, 0), **row}
        check_entries(row, _ROW)
        names = {field.name for field in dataclasses.fields(cls)} - {"ledger", "actions", "tree"}
        return cls(
            **{name: row[name] for name in names},
            ledger=Ledger(**{name: row[name] for name in _LEDGER_FIELDS}),
            actions=tuple(tuple(action) for action in row["actions"]),
            tree=None if row["tree"] is None else tuple(row["tree"]),
        )
