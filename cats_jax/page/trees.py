"""A search tree as small JSON: columns instead of rows, each text once, rounded numbers.

Ids of candidates are implicit: candidate `i` is entry `i - 1` of each column. Probabilities and
rewards are integers in units of 1/10 000, log-probabilities in units of 1/100. Null means no value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..live.results import DecisionRow, SearchResult
from ..reporting.equal_paths import first_equals
from ..reporting.right_path import RightPath
from .texts import bounded, shortened

KEPT, DONE = 1, 2
"""Bits of the column "flags"."""

_PER_UNIT = 10_000
_PER_NAT = 100
_FEATURE_DIGITS = 3
_MAX_SENTENCE = 1000


def encode_tree(result: SearchResult, fate: RightPath) -> dict[str, Any]:
    """The tree, the finished paths and the decisions of a search, as JSON values.

    `fate` is what became of the right path.

    Returns:
        A mapping with

        - "texts": distinct texts, each a string, or [beginning, length] of one that was cut;
        - "parent", "step", "phase", "tokens", "score", "path_score", "log_prob", "flags" and
          "text" (index into "texts"): one entry per candidate;
        - "rewrites": [candidate id, id of the candidate that ends the answer which it rewrites] of
          those that are rewrites;
        - "first": the id of the first candidate with an equal path, or 0 for that one itself;
        - "answers" and "invalid": [candidate id, index into "texts"] of those that have one;
        - "ends": the last candidate of each finished path, and "chosen", an index into it, or null;
        - "decisions": columns of the decisions, among them "features", one column per feature. A
          column of equal numbers is stored as that number;
        - "fate": "sentence" on the right path, "knowledge" behind it, and "remarks", pairs of a
          candidate's id and the remark at its step.
    """
    texts: dict[str, int] = {}

    def of(text: str) -> int:
        return texts.setdefault(text, len(texts))

    candidates = result.candidates
    firsts = first_equals(candidates)
    tree: dict[str, Any] = {
        "parent": [candidate.parent for candidate in candidates],
        "step": _column(candidate.step for candidate in candidates),
        "phase": _column(candidate.phase for candidate in candidates),
        "tokens": _column(candidate.num_tokens for candidate in candidates),
        "score": _column(_rounded(candidate.score, _PER_UNIT) for candidate in candidates),
        "path_score": _column(_rounded(c.path_score, _PER_UNIT) for c in candidates),
        "log_prob": _column(_rounded(candidate.log_prob, _PER_NAT) for candidate in candidates),
        "flags": _column(KEPT * c.kept | DONE * c.done for c in candidates),
        "text": [of(candidate.text) for candidate in candidates],
        "first": _column(firsts[c.id] if firsts[c.id] != c.id else 0 for c in candidates),
        "rewrites": [[c.id, c.rewrites] for c in candidates if c.rewrites is not None],
        "answers": [[c.id, of(c.answer)] for c in candidates if c.answer is not None],
        "invalid": [[c.id, of(c.invalid)] for c in candidates if c.invalid is not None],
        "ends": [path.nodes[-1] for path in result.paths],
        "chosen": result.chosen,
        "decisions": _decisions(result.decisions),
        "fate": {
            "sentence": shortened(fate.sentence, _MAX_SENTENCE),
            "knowledge": fate.knowledge,
            "remarks": [[node, remark] for node, remark in fate.remarks.items()],
        },
    }
    return {**tree, "texts": [bounded(text) for text in texts]}


def _decisions(decisions: Sequence[DecisionRow]) -> dict[str, Any]:
    names = ("node", "step", "phase", "num_extra", "num_retain", "top_k", "granted")
    width = max((len(decision.features) for decision in decisions), default=0)
    columns: dict[str, Any] = {
        name: [getattr(decision, name) for decision in decisions] for name in names
    }
    for name in ("temperature", "top_p"):
        columns[name] = _column(_short(getattr(decision, name)) for decision in decisions)
    columns["reward"] = [_rounded(decision.reward, _PER_UNIT) for decision in decisions]
    columns["features"] = [
        _column(
            _short(decision.features[feature]) if feature < len(decision.features) else None
            for decision in decisions
        )
        for feature in range(width)
    ]
    return columns


def _rounded(value: float | None, per_unit: int) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value * per_unit)


def _short(value: float) -> int | float | None:
    """The number with few digits, without the ".0" of a whole number."""
    if not math.isfinite(value):
        return None
    short = round(value, _FEATURE_DIGITS)
    return int(short) if short == int(short) else short


def _column(values: Iterable[Any]) -> Any:
    """The values as a list; if there are several and all are equal, that one value."""
    column = list(values)
    return column[0] if len(column) > 1 and all(x == column[0] for x in column) else column
