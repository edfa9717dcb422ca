"""Scoring the nodes of trees by PRMs, parents before their children.

A tree whose allocation reads scores is scored by all PRMs while it grows. A tree that the policy
grew alone is scored afterwards by one PRM at a time, see `score_column`. Both ways call `score`
depth by depth, and give the same scores and token counts.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Callable, Iterator, Sequence

from search.bank import UNREADABLE

from ..live import calls
from ..protocols import Path, Question, Step, StepScorer, TokenUsage, confidence
from .trees import ROOT, Nodes, ScoreColumn

PATHS_AT_ONCE = 256
"""Largest number of paths that a PRM keeps between two depths, unless one tree has more."""


class ScoredTree:
    """A question's tree with the scores of P PRMs.

    Attributes:
        question: question, as given to the PRMs.
        nodes: nodes of the tree, whose `score` and `prm_tokens` are filled in.
        prompt_tokens: [P] tokens of the prompt that each PRM computes before the first step.
    """

    def __init__(self, question: Question, nodes: Nodes, num_prms: int) -> None:
        self.question = question
        self.nodes = nodes
        self.prompt_tokens = [0] * num_prms
        self._first_steps: list[list[tuple[int, TokenUsage]]] = [[] for _ in range(num_prms)]
        self._paths: dict[int, Path] = {ROOT: ()}

    def path(self, row: int) -> Path:
        """Steps from the root to a valid node; without token ids if the tree was not grown here."""
        if row not in self._paths:
            nodes = self.nodes
            known = confidence(nodes.log_prob[row], nodes.num_tokens[row])
            step = Step(nodes.text[row], (), known)
            self._paths[row] = (*self.path(self.nodes.parent[row]), step)
        return self._paths[row]

    def readable(self, row: int, column: int) -> bool:
        """Whether a PRM can read the path to a scored node."""
        return self.nodes.score[row][column] != UNREADABLE

    def same_texts(self, rows: Sequence[int]) -> list[list[int]]:
        """The valid nodes among `rows`, in groups with one parent and text that are scored once."""
        groups: dict[tuple[int, int], list[int]] = {}
        for row in rows:
            if not self.nodes.invalid[row]:
                key = self.nodes.parent[row], self.nodes.text_class[row]
                groups.setdefault(key, []).append(row)
        return list(groups.values())

    def set_score(self, row: int, column: int, score: float | None, usage: TokenUsage) -> None:
        """Store a score and what it cost; the score is None if the PRM can't read the path."""
        self.nodes.score[row][column] = UNREADABLE if score is None else score
        self.nodes.prm_tokens[row][column] = usage.computed
        if self.nodes.parent[row] != ROOT or score is None:
            return
        # The first scored step also computes the prompt; for the others the prompt is cached. An
        # engine may have more in its cache, what steps or prompts share, or may have lost some. The
        # median is the prompt unless most steps begin alike.
        steps = self._first_steps[column]
        steps.append((row, usage))
        if len(steps) > 1:
            known = [each.cached for _, each in steps[1:] if each.cached]
            prompt = statistics.median_low(known) if known else 0
            self.prompt_tokens[column] = prompt
            for number, each in steps:
                own = each.computed + each.cached - prompt
                self.nodes.prm_tokens[number][column] = max(own, 0)


def score(batch: Sequence[tuple[ScoredTree, Sequence[int]]], prms: Sequence[StepScorer]) -> None:
    """Score each new text once with each PRM, in one call per PRM.

    If a PRM can't read the beginning of a path, the path is `UNREADABLE` too, without a call.

    Args:
        batch: trees, each with its new rows, whose parents have been scored.
        prms: PRMs, in the order of the columns of scores.

    Raises:
        ScorerContractError: a PRM breaks the contract of `StepScorer.score`.
    """
    groups = [(tree, group) for tree, rows in batch for group in tree.same_texts(rows)]
    for column, prm in enumerate(prms):
        asked: list[tuple[ScoredTree, int]] = []
        for tree, (row, *_) in groups:
            if tree.readable(tree.nodes.parent[row], column):
                asked.append((tree, row))
            else:
                tree.set_score(row, column, None, TokenUsage())
        if asked:
            questions = [tree.question for tree, _ in asked]
            scoring = calls.score(prm, questions, [tree.path(row) for tree, row in asked])
            for (tree, row), value, usage in zip(asked, scoring.scores, scoring.usage, strict=True):
                tree.set_score(row, column, value, usage)
    for tree, (row, *others) in groups:
        for other in others:
            tree.nodes.score[other] = tree.nodes.score[row]
            tree.nodes.prm_tokens[other] = tree.nodes.prm_tokens[row]


def score_column(
    trees: Sequence[tuple[Question, Nodes]],
    prm: StepScorer,
    report: Callable[[float], None] = lambda share: None,
) -> list[ScoreColumn]:
    """One PRM's column of scores for trees without scores.

    Several trees at a time are walked breadth first. Between two depths the PRM keeps the paths
    that continue: at most `PATHS_AT_ONCE`, or those of one tree if it is wider. So it computes
    every step once, and its cache is bounded.

    Args:
        trees: questions and nodes of their trees; `score` and `prm_tokens` are overwritten.
        prm: the PRM.
        report: called with the share of the trees that are scored.

    Returns:
        A column per tree, in the same order.

    Raises:
        ScorerContractError: the PRM breaks the contract of `StepScorer.score`.
    """
    columns: list[ScoreColumn] = []
    for together in _groups([(question, nodes, _depths(nodes)) for question, nodes in trees]):
        scored = []
        for question, nodes, depths in together:
            nodes.score = [[0.0] for _ in range(len(nodes))]
            nodes.prm_tokens = [[0] for _ in range(len(nodes))]
            scored.append((ScoredTree(question, nodes, 1), depths))
        for depth in range(1, max(len(depths) for _, depths in scored)):
            batch = [(tree, depths[depth]) for tree, depths in scored if depth < len(depths)]
            score(batch, [prm])
            for tree, depths in scored:
                below = depths[depth + 1] if depth + 1 < len(depths) else []
                parents = sorted({tree.nodes.parent[row] for row in below})
                going_on = [tree.path(row) for row in parents if tree.readable(row, 0)]
                prm.keep_only(tree.question, going_on)
        columns += [
            ScoreColumn(
                prompt_tokens=tree.prompt_tokens[0],
                score=[value for (value,) in tree.nodes.score],
                prm_tokens=[count for (count,) in tree.nodes.prm_tokens],
            )
            for tree, _ in scored
        ]
        report(len(columns) / len(trees))
    return columns


_Measured = tuple[Question, Nodes, list[list[int]]]  # with the rows of each depth


def _groups(trees: Sequence[_Measured]) -> Iterator[list[_Measured]]:
    """Consecutive trees whose widest depths have at most `PATHS_AT_ONCE` nodes together."""
    group: list[_Measured] = []
    width = 0
    for tree in trees:
        own = max(map(len, tree[2]))
        if group and width + own > PATHS_AT_ONCE:
            yield group
            group, width = [], 0
        group.append(tree)
        width += own
    if group:
        yield group


def _depths(nodes: Nodes) -> list[list[int]]:
    """The rows of each depth, from the root on."""
    depth_of = [0] * len(nodes)
    rows: dict[int, list[int]] = collections.defaultdict(list)
    for row, parent in enumerate(nodes.parent):
        depth_of[row] = 0 if parent < 0 else depth_of[parent] + 1
        rows[depth_of[row]].append(row)
    return list(rows.values())
