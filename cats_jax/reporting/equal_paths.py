"""Which candidates of a search are drawn as one line: those with equal texts on equal paths."""

from __future__ import annotations

from collections.abc import Sequence

from ..live.results import ROOT, Candidate


def first_equals(candidates: Sequence[Candidate]) -> dict[int, int]:
    """For each candidate's id, the id of the first candidate with the same path.

    Paths are the same if their steps have the same texts and the same faults. `candidates` are in
    order of their ids, so that parents come first. `ROOT`, the question, is mapped to itself.
    """
    firsts = {ROOT: ROOT}
    known: dict[tuple[int, str, str | None], int] = {}
    for candidate in candidates:
        path = (firsts[candidate.parent], candidate.text, candidate.invalid)
        firsts[candidate.id] = known.setdefault(path, candidate.id)
    return firsts
