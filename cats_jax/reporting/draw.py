"""One search tree in the terminal: steps, scores, what was kept, and the actions taken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.text import Text
from rich.tree import Tree

from ..live.results import ROOT, Candidate, DecisionRow, SearchResult
from .actions import ACTION, describe_action
from .equal_paths import first_equals
from .plain_text import one_line
from .sheets import three_digits

LEGEND = (
    "● kept   ○ dropped   × invalid   ★ path of the answer   ×4, 2 kept: four equal steps   first "
    "number: score of the path so far, in brackets: of the step"
)

_MAX_TEXT = 60
_MAX_REASON = 200
_MAX_KEPT = 8
"""Largest number of distinct kept steps drawn per node. Those of the answer's path and those with a
remark come first."""

_MAX_DROPPED = 2
"""Default number of distinct dropped steps drawn per node; the rest is one line."""


def draw_search(
    result: SearchResult,
    max_dropped: int = _MAX_DROPPED,
    remarks: Mapping[int, str] = MappingProxyType({}),
) -> Tree:
    """The tree of a search.

    Args:
        result: search result of `Searcher.run` or `Run.tree`.
        max_dropped: largest number of dropped steps with distinct texts drawn per node.
        remarks: short texts at the ends of nodes' lines, by candidate id; the question's id is 0. A
            node with a remark is drawn before others.

    Returns:
        A renderable. A node's line has its mark, the score of its path, its text and, for a
        finished path, the answer. Its decisions stand before its children, and a rewrite below the
        answer that it rewrites. Equal steps after equal paths share one line, with their number.
    """
    return _Drawing(result, max_dropped, remarks).tree


def describe_result(result: SearchResult) -> str:
    """One line about the outcome and its cost."""
    ledger = result.ledger
    reason = f" ({one_line(result.reason, _MAX_REASON)})" if result.reason else ""
    cost = ledger.policy_cost + ledger.prm_cost
    charged = f"   cost: {three_digits(cost)}" if cost else ""
    answer = "none" if result.answer is None else one_line(result.answer, _MAX_TEXT)
    return (
        f"answer: {answer}   status: {result.status}{reason}   steps: {result.steps}   "
        f"finished paths: {len(result.paths)}   candidates: {ledger.candidates}   "
        f"tokens: {ledger.tokens} (policy {ledger.generated}, "
        f"PRM {ledger.prm_computed}){charged}   seconds: {ledger.seconds:.2f}"
    )


class _Drawing:
    def __init__(self, result: SearchResult, max_dropped: int, remarks: Mapping[int, str]) -> None:
        self._max_dropped, self._remarks = max_dropped, remarks
        self._firsts = first_equals(result.candidates)
        self._children: defaultdict[int, list[Candidate]] = defaultdict(list)
        for candidate in result.candidates:
            above = candidate.parent if candidate.rewrites is None else candidate.rewrites
            self._children[above].append(candidate)
        self._decisions: defaultdict[int, list[DecisionRow]] = defaultdict(list)
        for decision in result.decisions:
            self._decisions[decision.node].append(decision)
        chosen = () if result.chosen is None else result.paths[result.chosen].nodes
        self._chosen = frozenset(chosen)
        question = Text(one_line(result.question.text, _MAX_TEXT), style="bold")
        self.tree = Tree(self._with_remark(question, [ROOT]))
        # Not recursive: a path may be longer than Python's stack.
        waiting: list[tuple[Tree, list[int]]] = [(self.tree, [ROOT])]
        while waiting:
            waiting.extend(self._grow(*waiting.pop()))

    def _grow(self, branch: Tree, nodes: list[int]) -> list[tuple[Tree, list[int]]]:
        """Draw what follows nodes with equal paths; returns the branches that are still to draw."""
        decisions = Counter(
            _describe_decision(decision) for node in nodes for decision in self._decisions[node]
        )
        for line, times in decisions.items():
            branch.add(Text(line + (f"  ×{times}" if times > 1 else ""), style="cyan"))
        equal: dict[int, list[Candidate]] = {}
        for node in nodes:
            for child in self._children[node]:
                equal.setdefault(self._firsts[child.id], []).append(child)
        kept = [same for same in equal.values() if any(map(self._leads_on, same))]
        dropped = [same for same in equal.values() if not any(map(self._leads_on, same))]
        dropped.sort(key=lambda same: -_score(same[0]))
        drawn = {id(same) for same in sorted(kept, key=self._rank)[:_MAX_KEPT]}
        grown = [
            (branch.add(self._line(same)), [child.id for child in same])
            for same in kept
            if id(same) in drawn
        ]
        folded = [child for same in kept if id(same) not in drawn for child in same]
        if folded:
            branch.add(Text(_describe_hidden("●", "kept", folded), style="dim"))
        for same in dropped[: self._max_dropped]:
            branch.add(self._line(same))
        hidden = [child for same in dropped[self._max_dropped :] for child in same]
        if hidden:
            branch.add(Text(_describe_hidden("○", "dropped", hidden), style="dim"))
        return grown

    def _leads_on(self, candidate: Candidate) -> bool:
        return (
            candidate.kept
            or candidate.id in self._chosen
            or candidate.id in self._remarks
            or bool(self._children[candidate.id])
        )

    def _rank(self, same: Sequence[Candidate]) -> tuple[bool, bool, float]:
        """Sort key of kept steps: the first are drawn, and the rest are folded into one line."""
        ids = {child.id for child in same}
        best = max(map(_score, same))
        return (not ids & self._chosen, not ids & self._remarks.keys(), -best)

    def _with_remark(self, line: Text, nodes: Sequence[int]) -> Text:
        remark = next((self._remarks[node] for node in nodes if node in self._remarks), None)
        return line if remark is None else line.append(f"  ◀ {remark}", style="bold yellow")

    def _line(self, same: Sequence[Candidate]) -> Text:
        """The line of candidates with equal texts and equal paths to them."""
        kept = [child for child in same if child.kept]
        chosen = [child for child in same if child.id in self._chosen]
        candidate = (*chosen, *kept, *same)[0]
        ids = [child.id for child in same]
        times = f"  ×{len(same)}" if len(same) > 1 else ""
        if times and 0 < len(kept) < len(same):
            times += f", {len(kept)} kept"
        if candidate.invalid is not None:
            text = one_line(candidate.text, _MAX_TEXT)
            what = f"{text}  invalid" if text else "invalid"
            line = Text(f"× {what}: {one_line(candidate.invalid, _MAX_TEXT)}{times}", style="red")
            return self._with_remark(line, ids)
        mark = "★" if chosen else "●" if kept else "○"
        score = ""
        if candidate.path_score is not None:
            score = f" {candidate.path_score:.3f} ({candidate.score:.3f})"
        text = f"{mark}{score}  {one_line(candidate.text, _MAX_TEXT)}"
        if candidate.done:
            answer = candidate.answer
            text += "  → " + ("no answer" if answer is None else one_line(answer, _MAX_TEXT))
        style = "bold green" if chosen else "" if kept else "dim"
        return self._with_remark(Text(text + times, style=style), ids)


def _score(candidate: Candidate) -> float:
    return -1.0 if candidate.path_score is None else candidate.path_score


def _describe_decision(decision: DecisionRow) -> str:
    action = describe_action(*(getattr(decision, name) for name in ACTION))
    got = "" if decision.granted == decision.num_extra else f" ({decision.granted} granted)"
    return f"round {decision.phase}: {action}{got}"


def _describe_hidden(mark: str, fate: str, hidden: Sequence[Candidate]) -> str:
    scores = [child.path_score for child in hidden if child.path_score is not None]
    invalid = sum(child.invalid is not None for child in hidden)
    span = f", scores {min(scores):.3f} to {max(scores):.3f}" if scores else ""
    return f"{mark} {len(hidden)} more {fate}{span}" + (f", {invalid} invalid" if invalid else "")
