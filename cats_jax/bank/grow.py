"""Growing the trees of a step bank: breadth first, many questions at once.

The nodes of a tree are the distinct prefixes of a question's paths, by text. A node that can be
continued is drawn, under each sampling setting, as often as paths of that setting arrive at it.
With R draws at the root, a bank thus holds R independent paths of the setting, merged where they
agree. A search that takes its draws from them without replacement has the same distribution as a
search with the real models.

Searches revisit the nodes that a mixture of the settings reaches, or that a PRM ranks high. These
nodes get a few more draws of every setting. A narrow search gives all candidates to the nodes that
a PRM ranks best, so the best nodes of each depth are drawn as often as the root.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from search import Sampling

from ..datasets import QuestionSet
from ..live.calls import generate
from ..live.seeds import stable_seed
from ..live.tree import AnswerClasses, answer_and_end, sampled_step, why_invalid
from ..protocols import AnswerGrader, Question, StepGenerator, StepRequest, StepSample, StepScorer
from .score import ScoredTree, score
from .trees import ROOT, Allocation, Nodes, QuestionTree, apart, fill_values


def level_number(level: Any) -> int:
    """A question's level as a number, also from a text such as MATH's "Level 5"; 0 for no level."""
    found = re.fullmatch(r"(?:level\s*)?(\d{1,9})(?:\.0)?", str(level).strip(), re.IGNORECASE)
    return int(found[1]) if found else 0


def grow(
    questions: Sequence[Question],
    known: QuestionSet,
    policy: StepGenerator,
    prms: Mapping[str, StepScorer],
    grader: AnswerGrader,
    allocation: Allocation,
    *,
    max_depth: int,
    seed: int,
    report: Callable[[float], None] = lambda share: None,
) -> list[QuestionTree]:
    """The trees of some questions; each tree is a function of its question and the seed.

    Args:
        questions: questions whose trees are grown.
        known: question set with their right answers.
        policy: policy that is sampled.
        prms: PRMs by label, in the order of the columns of scores. Without PRMs the trees have no
            scores; `score.score_column` adds them later.
        grader: decides whether two answers are equal.
        allocation: how often nodes are drawn.
        max_depth: largest number of steps of a path; the last one runs to the end of the answer.
        seed: random seed of all samples.
        report: called after each step with the finished share of `max_depth`.
    """
    trees = [_GrowingTree(question, known, grader, allocation, len(prms)) for question in questions]
    for depth in range(max_depth):
        asked: list[tuple[_GrowingTree, int, int]] = []
        requests: list[StepRequest] = []
        for tree in trees:
            for node in tree.frontier:
                wanted = tree.wanted(node)
                for setting in np.flatnonzero(wanted).tolist():
                    to_end = depth == max_depth - 1
                    requests.append(tree.request(node, setting, wanted[setting], seed, to_end))
                    asked.append((tree, node, setting))
        if not requests:
            break
        made = generate(policy, requests).samples
        for (tree, node, setting), samples in zip(asked, made, strict=True):
            tree.draw(node, setting, samples)
        for tree in trees:
            tree.add_children()
        score([(tree, tree.new_rows()) for tree in trees], list(prms.values()))
        for tree in trees:
            tree.advance()
            for model in (policy, *prms.values()):
                model.keep_only(tree.question, [tree.path(node) for node in tree.frontier])
        report((depth + 1) / max_depth)
    for tree in trees:
        for model in (policy, *prms.values()):
            model.keep_only(tree.question, [])
    return [tree.finished() for tree in trees]


class _GrowingTree(ScoredTree):
    """One question's tree while it grows, with the scores of PRMs or without."""

    def __init__(
        self,
        question: Question,
        known: QuestionSet,
        grader: AnswerGrader,
        allocation: Allocation,
        num_prms: int,
    ) -> None:
        super().__init__(question, Nodes(), num_prms)
        self.frontier = [ROOT]
        self._known = known
        self._grader = grader
        self._allocation = allocation
        self._num_prms = num_prms
        self._drawn: dict[int, list[tuple[int, list[StepSample]]]] = {}
        self._first_new = 1
        self._answers: dict[str, int] = {}
        self._wrong_answers = AnswerClasses(grader)
        self._add_node(
            parent=-1,
            text="",
            text_class=0,
            num_tokens=0,
            log_prob=0.0,
            done=False,
            invalid=False,
            answer=-1,
        )
        draws = [float(entry.root_draws) for entry in allocation.draws]
        # Number of paths that arrive at a node: for each setting, and for a mixture of all.
        self._arrivals = {ROOT: np.array([*draws, max(draws)])}
        self._drawn_most: dict[int, int] = {}
        self._revisited: set[int] = set()
        self._like_root: set[int] = set()

    def wanted(self, node: int) -> list[int]:
        """Number of draws of each setting at a node of the frontier."""
        *arrivals, mixed = self._arrivals[node].tolist()
        entries = self._allocation.draws
        wanted = [max(round(paths), 1) if paths > 0 else 0 for paths in arrivals]
        if node in self._revisited or mixed >= self._allocation.revisit_arrivals:
            most = max(entry.root_draws for entry in entries)
            wanted = [
                max(count, entry.revisit_draws, round(mixed * entry.root_draws / most))
                for count, entry in zip(wanted, entries, strict=True)
            ]
        if node in self._like_root:
            return [entry.root_draws for entry in entries]
        if not any(wanted):
            wanted[self._drawn_most[node]] = 1
        return [min(count, entry.root_draws) for count, entry in zip(wanted, entries, strict=True)]

    def request(self, node: int, setting: int, count: int, seed: int, to_end: bool) -> StepRequest:
        sampling = self._allocation.draws[setting].sampling
        path = self._paths[node]
        # Single draws of all settings share a seed: they agree more often, and the tree is smaller.
        name = "one" if count == 1 else str(setting)
        texts = [step.text for step in path]
        return StepRequest(
            question=self.question,
            path=path,
            seeds=tuple(
                stable_seed("bank", seed, self.question.id, name, number, *texts)
                for number in range(count)
            ),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            to_end=to_end,
        )

    def draw(self, node: int, setting: int, samples: list[StepSample]) -> None:
        self._drawn.setdefault(node, []).append((setting, samples))

    def add_children(self) -> None:
        """Add the distinct steps among the draws of each frontier node as its children."""
        for node, groups in self._drawn.items():
            rows: dict[tuple[str, str], int] = {}
            texts: dict[str, int] = {}
            for setting, samples in groups:
                for sample in samples:
                    text = sample.step.text
                    key = text, sample.finish
                    if key not in rows:
                        text_class = texts.setdefault(text, len(texts))
                        rows[key] = self._add_sample(node, sample, text_class)
                    self.nodes.draws[rows[key]][setting] += 1
            self._share_arrivals(node, list(rows.values()), dict(groups))
        self._drawn.clear()

    def new_rows(self) -> range:
        """Rows of the children added last."""
        return range(self._first_new, len(self.nodes))

    def advance(self) -> None:
        """Set the frontier to the new nodes that can grow: valid, not done, readable by a PRM."""
        nodes, prms = self.nodes, range(self._num_prms)
        self.frontier = [
            row
            for row in self.new_rows()
            if not nodes.invalid[row]
            and not nodes.done[row]
            and (not prms or any(self.readable(row, column) for column in prms))
        ]
        self._revisited = self._best_by_each_prm(self._allocation.revisits_per_prm)
        self._like_root = self._best_by_each_prm(self._allocation.root_draws_per_prm)
        self._first_new = len(nodes)

    def finished(self) -> QuestionTree:
        plain = Sampling()
        distances = [apart(entry.sampling, plain) for entry in self._allocation.draws]
        fill_values(self.nodes, distances.index(min(distances)))
        meta = self._known.meta.get(self.question.id, {})
        return QuestionTree(
            question=self.question,
            gold=self._known.answers[self.question.id],
            level=level_number(meta.get("level")),
            prompt_tokens=self.prompt_tokens,
            nodes=self.nodes,
        )

    def _add_sample(self, parent: int, sample: StepSample, text_class: int) -> int:
        path, answer, done = None, None, False
        if why_invalid(sample) is None:
            path = (*self._paths[parent], sampled_step(sample))
            answer, done = answer_and_end(self._grader, path, sample)
        row = self._add_node(
            parent=parent,
            text=sample.step.text,
            text_class=text_class,
            num_tokens=sample.num_tokens,
            log_prob=sample.log_prob,
            done=done,
            invalid=path is None,
            answer=self._answer_class(answer),
        )
        if path is not None:
            self._paths[row] = path
        return row

    def _add_node(self, **values: Any) -> int:
        settings = len(self._allocation.draws)
        return self.nodes.add(settings=settings, prms=self._num_prms, **values)

    def _share_arrivals(
        self, node: int, rows: list[int], groups: Mapping[int, list[StepSample]]
    ) -> None:
        """Divide the paths that arrive at a node among its children."""
        drawn = np.array([len(groups.get(s, ())) for s in range(len(self._allocation.draws))])
        for row in rows:
            counts = np.array(self.nodes.draws[row])
            share = counts / np.maximum(drawn, 1)
            mixed = share.sum() / np.count_nonzero(drawn)
            self._arrivals[row] = self._arrivals[node] * np.append(share, mixed)
            self._drawn_most[row] = int(counts.argmax())

    def _best_by_each_prm(self, count: int) -> set[int]:
        """The union over PRMs of the `count` frontier nodes whose lowest step score is highest."""
        if not self._num_prms:
            return set()
        lowest = {row: self._lowest_scores(row) for row in self.frontier}
        best: set[int] = set()
        for column in range(self._num_prms):
            ranked = sorted(self.frontier, key=lambda row, c=column: -lowest[row][c])
            best.update(ranked[:count])
        return best

    def _lowest_scores(self, row: int) -> list[float]:
        scores = []
        while row != ROOT:
            scores.append(self.nodes.score[row])
            row = self.nodes.parent[row]
        return [min(column) for column in zip(*scores, strict=True)]

    def _answer_class(self, answer: str | None) -> int:
        """The class of an answer: 0 if it is right, -1 for no answer, 1, 2, ... for wrong ones."""
        if answer is None:
            return -1
        if answer not in self._answers:
            right = self._known.is_right(self._grader, self.question.id, answer)
            self._answers[answer] = 0 if right else 1 + self._wrong_answers.number(answer)
        return self._answers[answer]
