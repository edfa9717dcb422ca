"""Figures of a PRM's scores on labelled steps, and the values of the paper's bounds there.

The paper's "test error" (appendix G, `tab:sparse`) is a cross-entropy of scores against step
labels, a mean or a sum: the paper does not say, so both are here. The unit of every interval is the
question, because steps of one question are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import theory
from theory.estimators import (
    Estimate,
    Reliability,
    area_under_curve,
    bootstrap,
    estimate_epsilon,
    estimate_risk,
    exceedance,
    expected_calibration_error,
    negative_log_likelihood,
    pair_accuracy,
    reliability,
)

from ..errors import BadInputError
from .labelled import LabelledData, LabelledSteps, labelled_scores

QUANTILE = 0.9
"""Default share of questions on which epsilon holds."""

NUM_CANDIDATES = (2, 4, 16, 64, 256)
"""Values of N at which the bounds are evaluated."""

LARGEST_GAP = 1.0
"""The largest gap between true values in [0, 1], the most favourable one for the bounds."""

HALF = "constant .5"
BASE_RATE = "constant share right"
CONSTANTS = (HALF, BASE_RATE)
"""Names of constant scores, for comparison. The second is the mean of the labels."""

_DELTA = 0.05  # of the hold-out bound
_NUM_BINS = 10  # of the calibration error and the curve


class BoundAtN(NamedTuple):
    """The bounds at one N, for best-of-N by the score of a step.

    Attributes:
        num_candidates: N.
        deviation: bound on the probability that one of N scores deviates by more than epsilon,
            from the bound on the risk (`theory.deviation_probability`); vacuous from 1 on.
        accuracy: lower bound on the accuracy (the paper's eq. 6) for coverage 1, the largest gap,
            and epsilon with its delta = 1 - level; vacuous at or below 0.
        best_accuracy: the largest value of that bound over all levels. The level is chosen on
            the same data, which favours the bound.
    """

    num_candidates: int
    deviation: float
    accuracy: float
    best_accuracy: float


@dataclass(frozen=True)
class PrmQuality:
    """The figures of one PRM on one group of steps; losses are in nats.

    Attributes:
        prm: its name, or one of `CONSTANTS`.
        cross_entropy: mean over labelled steps.
        cross_entropy_question: mean over questions of the mean over the question's steps.
        cross_entropy_solution: mean over solutions of the sum over the solution's steps, as in
            the paper's eq. 2 with the sign turned.
        certain_and_wrong: steps scored exactly 0 or 1 and labelled the opposite: the
            cross-entropy of each is infinite.
        brier: mean over steps of (score - label)^2.
        calibration_error: expected calibration error, bins of equal width.
        auc: chance that a right step scores above a wrong one, of any question; None if all
            labels are the same.
        pair: chance that a right step scores above a wrong sibling, a different step after the
            same earlier ones; None without such pairs.
        risk: mean over questions of the mean |score - label|.
        risk_bound: hold-out bound on the risk, with probability .95 (`theory.holdout_bound`).
        epsilon: level-quantile over questions of the largest |score - label| of a question.
        epsilon_solution: level-quantile over solutions of a solution's largest |score - label|.
        beyond_half: share of questions with some |score - label| above 1/2.
        misranking: the paper's bound on the probability that one path overtakes another at the
            largest gap, exp(-1 / (8 epsilon^2)).
        informative_up_to: largest N at which `BoundAtN.accuracy` is above 0; inf for epsilon 0.
        bounds: one for each of `NUM_CANDIDATES`.
        curve: share of right steps by score, in bins; its intervals take steps as independent.
    """

    prm: str
    cross_entropy: Estimate
    cross_entropy_question: Estimate
    cross_entropy_solution: Estimate
    certain_and_wrong: int
    brier: Estimate
    calibration_error: Estimate
    auc: Estimate | None
    pair: Estimate | None
    risk: Estimate
    risk_bound: float
    epsilon: Estimate
    epsilon_solution: float
    beyond_half: Estimate
    misranking: float
    informative_up_to: float
    bounds: tuple[BoundAtN, ...]
    curve: tuple[Reliability, ...]


@dataclass(frozen=True)
class GroupQuality:
    """One group of steps, and every PRM on it.

    Attributes:
        group: value of the column by which rows were grouped, or "all".
        questions, solutions, steps: numbers of those with labels.
        share_right: share of right steps among the labelled steps.
        pairs: number of pairs of a right and a wrong sibling.
        level: share of questions on which epsilon holds.
        prms: the PRMs in the order of the rows, then `CONSTANTS`.
    """

    group: str
    questions: int
    solutions: int
    steps: int
    share_right: float
    pairs: int
    level: float
    prms: tuple[PrmQuality, ...]


def quality(
    labelled: LabelledData,
    *,
    quantile: float = QUANTILE,
    clip: float = 0.0,
    num_resamples: int = 400,
) -> list[GroupQuality]:
    """The figures of every PRM, group by group, in the order of the rows.

    Intervals are of 95 %: percentile bootstrap over questions for cross-entropies, Brier score,
    calibration error, AUC and pairs; exact ones for risk, epsilon and `beyond_half`. Questions are
    identified by their text.

    Args:
        labelled: labelled steps from `read_labelled`, with scores.
        quantile: share of questions on which epsilon is to hold, in (0, 1].
        clip: scores are moved into [clip, 1 - clip] for the cross-entropies, and only for these;
            in [0, .5). 0: a step that is certain and wrong makes them infinite.
        num_resamples: number of resamples of the bootstrap.

    Raises:
        BadInputError: an argument is outside its range, or there are no scores.
    """
    check_settings(quantile, clip)
    if not labelled.prms:
        raise BadInputError("the labelled steps have no scores: score them with a PRM first")
    settings = _Settings(quantile, clip, num_resamples)
    return [
        _group_quality(group, paths, labelled.prms, settings)
        for group, paths in labelled.by_group().items()
    ]


def check_settings(quantile: float, clip: float) -> None:
    """Raise BadInputError if `quantile` is not in (0, 1] or `clip` not in [0, .5)."""
    if not 0.0 < quantile <= 1.0:
        raise BadInputError(f"quantile={quantile}: must be in (0, 1], such as 0.9")
    if not 0.0 <= clip < 0.5:
        raise BadInputError(f"clip={clip}: must be in [0, 0.5), such as 1e-6; 0 clips nothing")


class _Settings(NamedTuple):
    quantile: float
    clip: float
    num_resamples: int


class _Steps(NamedTuple):
    """The labelled steps of a group: label f64[n], 0 or 1; question and solution i64[n], from 0.

    `siblings`, i64[n], numbers the sequence of earlier steps, -1 for a step without a pair; `pairs`
    is the number of pairs of a right and a wrong sibling.
    """

    label: np.ndarray
    question: np.ndarray
    solution: np.ndarray
    siblings: np.ndarray
    pairs: int


def _group_quality(
    group: str, paths: Sequence[LabelledSteps], prms: Sequence[str], settings: _Settings
) -> GroupQuality:
    steps = _labelled_steps(paths)
    share_right = float(steps.label.mean())
    scores = {prm: labelled_scores(paths, prm) for prm in prms}
    scores[HALF] = np.full(steps.label.size, 0.5)
    scores[BASE_RATE] = np.full(steps.label.size, share_right)
    return GroupQuality(
        group=group,
        questions=int(steps.question.max()) + 1,
        solutions=int(steps.solution.max()) + 1,
        steps=steps.label.size,
        share_right=share_right,
        pairs=steps.pairs,
        level=settings.quantile,
        prms=tuple(_prm_quality(name, values, steps, settings) for name, values in scores.items()),
    )


def _labelled_steps(paths: Sequence[LabelledSteps]) -> _Steps:
    questions: dict[str, int] = {}
    solutions: dict[tuple[int, str], int] = {}
    nodes: dict[tuple[int, str], int] = {}
    label, question, solution, parent, node = [], [], [], [], []
    for path in paths:
        number = questions.setdefault(path.question, len(questions))
        row = solutions.setdefault((number, path.row), len(solutions))
        here = -1 - number  # the root of the question's tree
        for text, value in zip(path.steps, path.labels, strict=True):
            before, here = here, nodes.setdefault((here, text), len(nodes))
            if value is not None:
                label.append(value)
                question.append(number)
                solution.append(row)
                parent.append(before)
                node.append(here)
    labels, step_node = np.array(label, np.float64), np.array(node)
    siblings = np.array(parent) + len(questions)  # >= 0, the roots included
    siblings[~_paired(labels, step_node)] = -1
    paired = siblings >= 0
    pairs = _num_pairs(labels[paired], siblings[paired])
    return _Steps(labels, np.array(question), np.array(solution), siblings, pairs)


def _paired(labels: np.ndarray, node: np.ndarray) -> np.ndarray:
    """The first occurrence of each step whose labels agree, b[n].

    Siblings are different steps: a step that occurs again is not a sibling of itself.
    """
    size = int(node.max()) + 1
    count, right = np.bincount(node, minlength=size), np.bincount(node, labels, minlength=size)
    agree = ((right == 0) | (right == count))[node]
    first = np.zeros(labels.size, bool)
    first[np.unique(node, return_index=True)[1]] = True
    return agree & first


def _prm_quality(name: str, score: np.ndarray, steps: _Steps, settings: _Settings) -> PrmQuality:
    label, question = steps.label, steps.question
    deviation = np.abs(score - label)
    clipped = np.clip(score, settings.clip, 1.0 - settings.clip)
    number = int(question.max()) + 1
    figures = _figures(score, negative_log_likelihood(clipped, label), steps)
    found = bootstrap(figures, np.arange(number), num_resamples=settings.num_resamples, seed=0)
    risk = estimate_risk(deviation, units=question)
    risk_bound = float(theory.holdout_bound(risk.value, num_samples=number, delta=_DELTA))
    epsilon = estimate_epsilon(score, label, level=settings.quantile, units=question)
    misranking = float(theory.misranking_paper(LARGEST_GAP, epsilon.value))
    return PrmQuality(
        prm=name,
        cross_entropy=found["cross-entropy"],
        cross_entropy_question=found["of a question"],
        cross_entropy_solution=found["of a solution"],
        certain_and_wrong=int((deviation == 1.0).sum()),
        brier=found["Brier"],
        calibration_error=found["calibration error"],
        auc=found.get("AUC"),
        pair=found.get("pair"),
        risk=risk,
        risk_bound=risk_bound,
        epsilon=epsilon,
        epsilon_solution=estimate_epsilon(
            score, label, level=settings.quantile, units=steps.solution
        ).value,
        beyond_half=exceedance(0.5, score, label, units=question),
        misranking=misranking,
        informative_up_to=_informative_up_to(settings.quantile, misranking),
        bounds=_bounds(_largest(deviation, question), epsilon.value, risk_bound, settings.quantile),
        curve=tuple(reliability(score, label, num_bins=_NUM_BINS)),
    )


def _informative_up_to(level: float, misranking: float) -> float:
    """The largest N with level > (N - 1) misranking."""
    ratio = level / misranking if misranking else math.inf
    return math.ceil(ratio) if math.isfinite(ratio) else math.inf


def _figures(
    score: np.ndarray, loss: np.ndarray, steps: _Steps
) -> dict[str, Callable[[np.ndarray], float]]:
    """The figures that are bootstrapped, as functions of the questions' weights, f64[Q]."""
    label, question = steps.label, steps.question
    counts = np.bincount(question)
    first = np.unique(steps.solution, return_index=True)[1]
    solutions = np.bincount(question[first])
    # Equal scores are adjacent, so that a resample has less to sort.
    order = np.argsort(score, kind="stable")
    ranked, right, asker = score[order], label[order], question[order]
    total, squares = np.bincount(question, loss), np.bincount(question, (score - label) ** 2)
    figures: dict[str, Callable[[np.ndarray], float]] = {
        "cross-entropy": lambda w: _ratio(total, counts, w),
        "of a question": lambda w: _ratio(total / counts, np.ones_like(total), w),
        "of a solution": lambda w: _ratio(total, solutions, w),
        "Brier": lambda w: _ratio(squares, counts, w),
        "calibration error": lambda w: expected_calibration_error(
            ranked, right, w[asker], num_bins=_NUM_BINS
        ),
    }
    if 0 < label.sum() < label.size:
        figures["AUC"] = lambda w: area_under_curve(ranked, right, w[asker])
    if steps.pairs:
        wins, pairs = _pair_wins(score, steps)
        figures["pair"] = lambda w: _ratio(wins, pairs, w)
    return figures


def _ratio(values: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> float:
    """Sum of the questions' values over the sum of their counts; ValueError for counts of 0."""
    # Values of weight 0 are left out: 0 times infinity is not a number.
    used = weights > 0
    count = float(counts[used] @ weights[used])
    if count == 0.0:
        raise ValueError("no question of this resample has a value")
    return float(values[used] @ weights[used]) / count


def _pair_wins(score: np.ndarray, steps: _Steps) -> tuple[np.ndarray, np.ndarray]:
    """Per question: pairs whose right sibling scores higher (ties one half), and all pairs."""
    wins, pairs = (np.zeros(int(steps.question.max()) + 1) for _ in range(2))
    kept = np.flatnonzero(steps.siblings >= 0)
    kept = kept[np.argsort(steps.question[kept], kind="stable")]
    for steps_of_one in np.split(kept, np.flatnonzero(np.diff(steps.question[kept])) + 1):
        label, parent = steps.label[steps_of_one], steps.siblings[steps_of_one]
        count = _num_pairs(label, np.unique(parent, return_inverse=True)[1])
        if count:
            number = steps.question[steps_of_one[0]]
            pairs[number] = count
            wins[number] = count * pair_accuracy(score[steps_of_one], label, parent)
    return wins, pairs


def _num_pairs(label: np.ndarray, parent: np.ndarray) -> int:
    """Pairs of a right and a wrong member of one parent; parents are 0, 1, ..."""
    size = int(parent.max(initial=-1)) + 1
    right, wrong = (np.bincount(parent[label == kind], minlength=size) for kind in (1, 0))
    return int(right @ wrong)


def _largest(deviation: np.ndarray, question: np.ndarray) -> np.ndarray:
    """The largest deviation of each question, in ascending order."""
    largest = np.zeros(int(question.max()) + 1)
    np.maximum.at(largest, question, deviation)
    return np.sort(largest)


def _bounds(
    largest: np.ndarray, epsilon: float, risk_bound: float, level: float
) -> tuple[BoundAtN, ...]:
    # With a question's largest deviation as epsilon, epsilon holds on this share of questions.
    held = np.searchsorted(largest, largest, side="right") / largest.size
    found = []
    for n in NUM_CANDIDATES:
        accuracy, every = (
            theory.accuracy_lower_bound(1.0, LARGEST_GAP, eps, num_candidates=n, delta=delta)
            for eps, delta in ((epsilon, 1.0 - level), (largest, 1.0 - held))
        )
        deviation = theory.deviation_probability(risk_bound, epsilon, num_candidates=n)
        found.append(BoundAtN(n, float(deviation), float(accuracy), float(np.max(every))))
    return tuple(found)
