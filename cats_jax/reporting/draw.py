"""One search tree in the terminal: steps, scores, what was kept, and the actions taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.text import Text
from rich.tree import Tree

from ..live.results import ROOT, Candidate, DecisionRow, SearchResult
from .actions import describe_action
from .plain_text import one_line

LEGEND = (
    "● kept   ○ dropped   × invalid   ★ path of the answer   first number: score of the path so "
    "far, in brackets: of the step"
)

_MAX_TEXT = 60
_MAX_REASON = 200
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
        max_dropped: most dropped steps, distinct by text, drawn per node.
        remarks: short texts for the ends of nodes' lines, by candidate id; 0 is the question. A
            node with a remark is always drawn.

    Returns:
        A renderable. A node's line has its mark, the score of its path, its text and, for a
        finished path, the answer; a node's decisions stand before its children.
    """
    return _Drawing(result, max_dropped, remarks).tree


def describe_result(result: SearchResult) -> str:
    """One line about the outcome and its cost."""
    ledger = result.ledger
    reason = f" ({one_line(result.reason, _MAX_REASON)})" if result.reason else ""
    answer = "none" if result.answer is None else one_line(result.answer, _MAX_TEXT)
    return (
        f"answer: {answer}   status: {result.status}{reason}   steps: {result.steps}   "
        f"finished paths: {len(result.paths)}   candidates: {ledger.candidates}   "
        f"tokens: {ledger.tokens} (policy {ledger.generated}, "
        f"PRM {ledger.prm_computed})   seconds: {ledger.seconds:.2f}"
    )


class _Drawing:
    def __init__(self, result: SearchResult, max_dropped: int, remarks: Mapping[int, str]) -> None:
        self._max_dropped, self._remarks = max_dropped, remarks
        self._children: defaultdict[int, list[Candidate]] = defaultdict(list)
        for candidate in result.candidates:
            self._children[candidate.parent].append(candidate)
        self._decisions: defaultdict[int, list[DecisionRow]] = defaultdict(list)
        for decision in result.decisions:
            self._decisions[decision.node].append(decision)
        chosen = () if result.chosen is None else result.paths[result.chosen].nodes
        self._chosen = frozenset(chosen)
        question = Text(one_line(result.question.text, _MAX_TEXT), style="bold")
        self.tree = Tree(self._with_remark(question, ROOT))
        # Not recursive: a path may be longer than Python's stack.
        waiting = [(self.tree, ROOT)]
        while waiting:
            branch, node = waiting.pop()
            waiting.extend(self._grow(branch, node))

    def _grow(self, branch: Tree, node: int) -> list[tuple[Tree, int]]:
        for decision in self._decisions[node]:
            branch.add(Text(_describe_decision(decision), style="cyan"))
        children = self._children[node]
        grown = []
        dropped: dict[tuple[str, str | None], list[Candidate]] = {}
        for child in children:
            if self._leads_on(child):
                line = self._with_remark(self._line(child), child.id)
                grown.append((branch.add(line), child.id))
            else:
                dropped.setdefault((child.text, child.invalid), []).append(child)
        alike = sorted(dropped.values(), key=lambda same: -_score(same[0]))
        for same in alike[: self._max_dropped]:
            line = self._line(same[0])
            branch.add(line.append(f"  ×{len(same)}") if len(same) > 1 else line)
        hidden = [child for same in alike[self._max_dropped :] for child in same]
        if hidden:
            branch.add(Text(_describe_hidden(hidden), style="dim"))
        return grown

    def _leads_on(self, candidate: Candidate) -> bool:
        return (
            candidate.kept
            or candidate.id in self._chosen
            or candidate.id in self._remarks
            or bool(self._children[candidate.id])
        )

    def _with_remark(self, line: Text, node: int) -> Text:
        remark = self._remarks.get(node)
        return line if remark is None else line.append(f"  ◀ {remark}", style="bold yellow")

    def _line(self, candidate: Candidate) -> Text:
        is_chosen = candidate.id in self._chosen
        if candidate.invalid is not None:
            text = one_line(candidate.text, _MAX_TEXT)
            what = f"{text}  invalid" if text else "invalid"
            return Text(f"× {what}: {candidate.invalid}", style="red")
        mark = "★" if is_chosen else "●" if candidate.kept else "○"
        score = ""
        if candidate.path_score is not None:
            score = f" {candidate.path_score:.3f} ({candidate.score:.3f})"
        text = f"{mark}{score}  {one_line(candidate.text, _MAX_TEXT)}"
        if candidate.done:
            answer = (
                "no answer" if candidate.answer is None else one_line(candidate.answer, _MAX_TEXT)
            )
            text += f"  → {answer}"
        style = "bold green" if is_chosen else "" if candidate.kept else "dim"
        return Text(text, style=style)


def _score(candidate: Candidate) -> float:
    return -1.0 if candidate.path_score is None else candidate.path_score


def _describe_decision(decision: DecisionRow) -> str:
    action = describe_action(
        decision.num_extra,
        decision.num_retain,
        decision.temperature,
        decision.top_p,
        decision.top_k,
    )
    got = "" if decision.granted == decision.num_extra else f" ({decision.granted} granted)"
    return f"round {decision.phase}: {action}{got}"


def _describe_hidden(hidden: Sequence[Candidate]) -> str:
    scores = [child.path_score for child in hidden if child.path_score is not None]
    invalid = sum(child.invalid is not None for child in hidden)
    span = f", scores {min(scores):.3f} to {max(scores):.3f}" if scores else ""
    return f"○ {len(hidden)} more dropped{span}" + (f", {invalid} invalid" if invalid else "")
