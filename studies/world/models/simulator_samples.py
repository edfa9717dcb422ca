"""Samples of the real world for fitting its simulator: nodes with many children each.

From every question a few right and wrong paths are grown. At each node on the way, several children
are sampled at temperature 1, and at some nodes a few with every other setting. Each child is
labelled by the exact checker and scored by every PRM.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.live.seeds import stable_seed
from cats_jax.protocols import Path, Question, StepGenerator, StepRequest, StepSample, StepScorer
from cats_jax.world import task

from . import labels

MAX_DEPTH = 10
"""Steps a search may take, as everywhere in this package."""

Setting = tuple[float, float, int]  # temperature, top_p, top_k

REFERENCE: Setting = (1.0, 1.0, 0)
TEMPERATURES = (0.0, 0.6, 1.0, 1.4)
TOP_PS = (0.9, 1.0)
TOP_K = 4
SETTINGS: tuple[Setting, ...] = (
    REFERENCE,
    (0.0, 1.0, 0),
    *((t, p, 0) for t in TEMPERATURES[1:] for p in TOP_PS if (t, p) != (1.0, 1.0)),
    (1.0, 1.0, TOP_K),
)
"""The sampling settings of the samples; the first one is the reference."""

_CHILDREN = 8  # at the reference, per node
_OTHER_CHILDREN = 4  # at every other setting but greedy
_OTHER_SHARE = 0.35  # of the nodes
_GROWN = 2  # right children that are grown on, and as many wrong ones
_MAX_NODES = 6  # of one question at one depth


@dataclasses.dataclass(frozen=True)
class Children:
    """Sampled steps, one per row; `R` rows, `P` PRMs.

    Attributes:
        question: i[R]; number of the question.
        level: i[R]; 0-based.
        depth: i[R]; steps before this one.
        node: i[R]; number of the prefix, over all questions.
        setting: i[R]; index into `SETTINGS`.
        after_right: b[R]; no wrong step before this one.
        valid: b[R]; not blank, not cut.
        consistent: b[R]; right, given what stands there, be it right or wrong.
        text: i[R]; equal for equal texts under one node.
        done: b[R]; it ends an answer.
        answer: i[R]; class of equal answers within a question, 0 for the right one, -1 for none.
        slips: i[R]; number of the set of steps that were not consistent on the way, this one
            included, within a question; 0 for none.
        num_tokens: i[R].
        score: f[R, P]; NaN for rows that are not valid.
        parent_row: i[R]; a row with the parent's newest step, -1 at the root.
    """

    question: np.ndarray
    level: np.ndarray
    depth: np.ndarray
    node: np.ndarray
    setting: np.ndarray
    after_right: np.ndarray
    valid: np.ndarray
    consistent: np.ndarray
    text: np.ndarray
    done: np.ndarray
    answer: np.ndarray
    slips: np.ndarray
    num_tokens: np.ndarray
    score: np.ndarray
    parent_row: np.ndarray

    @property
    def right(self) -> np.ndarray:
        """Right, and every step before it too."""
        return self.after_right & self.consistent


@dataclasses.dataclass(slots=True)
class _Node:
    """A prefix that is grown."""

    question: int
    path: Path
    right: bool
    slips: frozenset[tuple[int, str]]
    parent_row: int


def sample_children(
    problems: Sequence[task.Problem],
    policy: StepGenerator,
    prms: Mapping[str, StepScorer],
    seed: int = 0,
) -> Children:
    """Grow, label and score the problems, of the `controller` set, all together.

    `prms` gives the order of the columns of `score`; `seed` is that of all samples.
    """
    children = _Rows()
    rows = children.rows
    rng = random.Random(f"simulator samples {seed}")
    questions = [Question(problem.id, problem.text) for problem in problems]
    frontier = [_Node(index, (), True, frozenset(), -1) for index in range(len(problems))]
    num_nodes = 0
    for depth in range(MAX_DEPTH):
        if not frontier:
            break
        requests, settings = [], []
        for number, node in enumerate(frontier):
            wants_all = rng.random() < _OTHER_SHARE
            for which, setting in enumerate(SETTINGS if wants_all else SETTINGS[:1]):
                requests.append(_request(questions[node.question], node, setting, which, seed))
                settings.append((number, which))
        generation = policy.generate(requests)
        first_row = len(rows)
        paths: dict[int, Path] = {}
        for (number, which), samples in zip(settings, generation.samples, strict=True):
            node = frontier[number]
            problem = problems[node.question]
            for sample in samples:
                row = children.add(problem, node, num_nodes + number, depth, which, sample)
                if rows[row]["valid"]:
                    paths[row] = (*node.path, sample.step)
        _score(rows, paths, questions, prms, first_row)
        num_nodes += len(frontier)
        frontier = [] if depth == MAX_DEPTH - 1 else _next_frontier(rows, paths, rng)
        live: dict[int, list[Path]] = {}
        for node in frontier:
            live.setdefault(node.question, []).append(node.path)
        for index, question in enumerate(questions):
            for model in (policy, *prms.values()):
                model.keep_only(question, live.get(index, []))
    return children.arrays(len(prms))


class _Rows:
    """The rows of `Children` while they grow; a row's keys are the names of the columns."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._texts: dict[tuple[int, str], int] = {}
        self._answers: dict[int, dict[str, int]] = {}
        self._slip_numbers: dict[tuple[int, frozenset[tuple[int, str]]], int] = {}
        self._right_steps: dict[tuple[int, Path], frozenset[str]] = {}
        self._judge = BoxedIntegerGrader()

    def add(
        self,
        problem: task.Problem,
        node: _Node,
        number: int,
        depth: int,
        setting: int,
        sample: StepSample,
    ) -> int:
        text = sample.step.text
        answer = self._judge.extract([text])
        right_steps = self._right_steps_of(problem, node)
        consistent = text in right_steps
        slips = node.slips if consistent else node.slips | {(number, text)}
        answers = self._answers.setdefault(node.question, {problem.answer: 0})
        key = (node.question, slips)
        slip_number = self._slip_numbers.setdefault(key, len(self._slip_numbers) + 1)
        self.rows.append(
            {
                "question": node.question,
                "level": problem.level - 1,
                "depth": depth,
                "node": number,
                "setting": setting,
                "after_right": node.right,
                "valid": sample.finish in ("step", "end") and bool(text.strip()),
                "consistent": consistent,
                "text": self._texts.setdefault((number, text), len(self._texts)),
                "done": sample.finish == "end" or answer is not None,
                "answer": -1 if answer is None else answers.setdefault(answer, len(answers)),
                "slips": slip_number if slips else 0,
                "num_tokens": len(sample.step.token_ids),
                "parent_row": node.parent_row,
                "slip_set": slips,
            }
        )
        return len(self.rows) - 1

    def arrays(self, num_prms: int) -> Children:
        unscored = [np.nan] * num_prms
        score = [row.get("score", unscored) for row in self.rows]
        names = [field.name for field in dataclasses.fields(Children) if field.name != "score"]
        columns = {name: np.array([row[name] for row in self.rows]) for name in names}
        return Children(score=np.array(score).reshape(len(self.rows), num_prms), **columns)

    def _right_steps_of(self, problem: task.Problem, node: _Node) -> frozenset[str]:
        """What would be right after the node's path, as it is written."""
        key = (node.question, node.path)
        if key not in self._right_steps:
            written = labels.WrittenExpression(problem.text)
            for step in node.path:
                written.reduce(step.text)
            self._right_steps[key] = frozenset(written.right_steps() or ())
        return self._right_steps[key]


def _request(
    question: Question, node: _Node, setting: Setting, which: int, seed: int
) -> StepRequest:
    temperature, top_p, top_k = setting
    greedy = temperature == 0
    count = _CHILDREN if which == 0 else 1 if greedy else _OTHER_CHILDREN
    texts = [step.text for step in node.path]
    return StepRequest(
        question=question,
        path=node.path,
        seeds=tuple(
            stable_seed("simulator", seed, question.id, which, index, *texts)
            for index in range(count)
        ),
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        to_end=False,
    )


def _score(
    rows: list[dict[str, Any]],
    paths: Mapping[int, Path],
    questions: Sequence[Question],
    prms: Mapping[str, StepScorer],
    first_row: int,
) -> None:
    """Score each distinct step once with each PRM."""
    by_text: dict[int, int] = {}
    for row in paths:
        by_text.setdefault(rows[row]["text"], row)
    chosen = list(by_text.values())
    asked = [questions[rows[row]["question"]] for row in chosen]
    scored = [
        prm.score(asked, [paths[row] for row in chosen]).all_scores() for prm in prms.values()
    ]
    columns = dict(zip(by_text, zip(*scored, strict=True), strict=True)) if prms else {}
    for row in range(first_row, len(rows)):
        if row in paths:
            rows[row]["score"] = list(columns.get(rows[row]["text"], ()))


def _next_frontier(
    rows: list[dict[str, Any]], paths: Mapping[int, Path], rng: random.Random
) -> list[_Node]:
    """Up to two right and two wrong distinct children of each node, six a question."""
    children: dict[tuple[int, bool], dict[int, int]] = {}
    for row in paths:
        child = rows[row]
        if child["setting"] == 0 and not child["done"]:
            right = child["after_right"] and child["consistent"]
            children.setdefault((child["node"], right), {}).setdefault(child["text"], row)
    by_question: dict[int, list[tuple[bool, int]]] = {}
    for (_, right), texts in children.items():
        drawn = list(texts.values())
        for row in rng.sample(drawn, min(_GROWN, len(drawn))):
            by_question.setdefault(rows[row]["question"], []).append((right, row))
    grown = []
    for question, candidates in by_question.items():
        rng.shuffle(candidates)
        # Right ones first, so that no question is lost early, without later steps.
        candidates.sort(key=lambda item: not item[0])
        right = [item for item in candidates if item[0]][: _MAX_NODES - _GROWN]
        wrong = [item for item in candidates if not item[0]][: _MAX_NODES - len(right)]
        for is_right, row in right + wrong:
            grown.append(_Node(question, paths[row], is_right, rows[row]["slip_set"], row))
    return grown
