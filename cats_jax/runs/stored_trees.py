"""Conversion of search trees to lines of JSON and back."""

from __future__ import annotations

import dataclasses
import json
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..live.results import ROOT, Candidate, DecisionRow, SearchPath, SearchResult, path_of
from ..protocols import Question
from ..storage.json_numbers import plain
from ..storage.rules import (
    COUNT,
    FINITE,
    NUMBER,
    TEXT,
    TRUTH,
    check_entries,
    list_of,
    one_of,
    optional,
)
from .rows import Row


def tree_to_lines(key: str, result: SearchResult) -> bytes:
    """One JSON line about the search, one per candidate, one per decision."""
    lines: list[dict[str, Any]] = [
        {
            "key": key,
            "kind": "search",
            "question": result.question.id,
            "text": result.question.text,
            "chosen": result.chosen,
            "paths": [list(path.nodes) for path in result.paths],
        }
    ]
    for candidate in result.candidates:
        fields = dict(zip(_CANDIDATE, _of_candidate(candidate), strict=True))
        if candidate.rewrites is None:
            del fields["rewrites"]  # as in trees of earlier versions
        if candidate.log_prob is not None and not math.isfinite(candidate.log_prob):
            fields["log_prob"] = None  # JSON has no number for it
        lines.append({"key": key, "kind": "candidate", **fields})
    for decision in result.decisions:
        fields = dict(zip(_DECISION, _of_decision(decision), strict=True))
        lines.append({"key": key, "kind": "decision", **fields})
    return b"".join(map(json_line, lines))


def tree_from_lines(row: Row, lines: Iterable[Mapping[str, Any]]) -> SearchResult:
    """The inverse of `tree_to_lines`, without token ids; what the lines lack is in the row.

    Raises:
        ValueError: the lines are not those of a tree.
    """
    lines = iter(lines)
    head: Any = next(lines, None)
    check_entries(head, _HEAD_RULES)
    if head["key"] != row.key:
        raise ValueError(f"it holds {head['key']!r:.80}")
    candidates: list[Candidate] = []
    decisions: list[DecisionRow] = []
    for line in lines:
        if line.get("kind") == "candidate":
            line = {"rewrites": None, **line}
            check_entries(line, _CANDIDATE_RULES)
            candidate = Candidate(**{name: line[name] for name in _CANDIDATE}, token_ids=())
            # Readers walk from a candidate to the root, and find candidates by their ids.
            if candidate.id != len(candidates) + 1 or not ROOT <= candidate.parent < candidate.id:
                raise ValueError(f"candidate {candidate.id!r} is out of order")
            if candidate.rewrites is not None and not ROOT < candidate.rewrites < candidate.id:
                raise ValueError(f"candidate {candidate.id!r} rewrites no earlier one")
            candidates.append(candidate)
        else:
            check_entries(line, _DECISION_RULES)
            fields = {name: line[name] for name in _DECISION}
            decisions.append(DecisionRow(**{**fields, "features": tuple(line["features"])}))
    paths = [nodes for nodes in head["paths"] if nodes]
    if len(paths) > len(candidates):
        raise ValueError("it has more paths than candidates")
    chosen = head["chosen"]
    if chosen is not None and chosen >= len(head["paths"]):
        raise ValueError("'chosen' is no path")
    if chosen is not None:
        chosen = sum(map(bool, head["paths"][:chosen])) if head["paths"][chosen] else None
    return SearchResult(
        question=Question(head["question"], head["text"]),
        answer=row.answer,
        chosen=chosen,
        status=row.status,
        reason=row.reason,
        steps=row.steps,
        # Empty paths: earlier versions wrote replays of a bank, whose right path has no steps.
        paths=[_path(nodes, candidates) for nodes in paths],
        candidates=candidates,
        decisions=decisions,
        ledger=row.ledger,
    )


def _path(nodes: Sequence[int], candidates: Sequence[Candidate]) -> SearchPath:
    if not ROOT < min(nodes) <= max(nodes) <= len(candidates):
        raise ValueError("a path has a node that is no candidate")
    parents = [candidates[node - 1].parent for node in nodes]
    if parents != [ROOT, *nodes[:-1]]:
        raise ValueError(f"{list(nodes)[:20]} is no path of the tree")
    return path_of(nodes, candidates)


_CANDIDATE = tuple(
    field.name for field in dataclasses.fields(Candidate) if field.name != "token_ids"
)
_DECISION = tuple(field.name for field in dataclasses.fields(DecisionRow))
_HEAD_RULES = {
    "kind": one_of("search"),
    **dict.fromkeys(("key", "question", "text"), TEXT),
    "chosen": optional(COUNT),
    "paths": list_of(list_of(COUNT)),
}
_CANDIDATE_RULES = {
    **dict.fromkeys(("id", "parent", "step", "phase", "pool_row", "num_tokens"), COUNT),
    "text": TEXT,
    **dict.fromkeys(("log_prob", "score", "path_score"), optional(NUMBER)),
    **dict.fromkeys(("invalid", "answer"), optional(TEXT)),
    **dict.fromkeys(("done", "kept"), TRUTH),
    "rewrites": optional(COUNT),
}
_DECISION_RULES = {
    "kind": one_of("decision"),
    **dict.fromkeys(("step", "phase", "node", "action", "num_extra", "num_retain"), COUNT),
    **dict.fromkeys(("temperature", "top_p", "reward"), NUMBER),
    **dict.fromkeys(("top_k", "granted"), COUNT),
    "features": list_of(FINITE),
}
_of_candidate = operator.attrgetter(*_CANDIDATE)
_of_decision = operator.attrgetter(*_DECISION)
# Made once: `json.dumps` with any setting makes a new encoder for every line.
_encode = json.JSONEncoder(allow_nan=False, check_circular=False, default=plain).encode


def json_line(value: Any) -> bytes:
    """A JSON value as one line with its newline; ValueError for NaN and infinities."""
    return _encode(value).encode() + b"\n"
