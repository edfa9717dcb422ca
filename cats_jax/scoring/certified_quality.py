"""Certificates of a PRM from labelled questions: its risk, its gain over trust, trusted scores.

The unit is the question: its value is the mean loss over its labelled steps, which depend on each
other. A betting bound holds for every distribution of such values. The rival of a PRM is the
constant score 1, "every step is right"; the difference to it is paired by question. The trust in
single steps is tested on one random step of each question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

import theory

from ..bank.calibrate import fit_logistic, score_odds
from ..errors import BadInputError
from ..reporting.certificate_premises import check_shares
from ..reporting.sheets import Column, Sheet, down, plain, share, up
from ..specs.certificates import probability
from .labelled import LabelledData, LabelledSteps, labelled_scores

LOSSES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "0-1": lambda score, label: ((score >= 0.5) != (label == 1)).astype(float),
    "Brier": lambda score, label: (score - label) ** 2,
    "absolute": lambda score, label: np.abs(score - label),
}
"""The losses of a score in [0, 1] on a label 0 or 1, each in [0, 1]."""

THRESHOLDS = np.arange(21) / 20
"""The tested thresholds of trust in a step, fixed before the data are known."""


@dataclass(frozen=True)
class CertifiedRisk:
    """The risk of a PRM by one loss.

    Attributes:
        group, prm, loss: group of the steps, name of the PRM, name of the loss.
        always_right: risk of the constant score 1: the mean share of wrong steps of a question.
        risk: mean over questions of a question's mean loss.
        risk_bound: upper bound on the risk.
        gain_bound: lower bound on the risk of the constant score minus that of the PRM; negative if
            the PRM is not certified to be better.
    """

    group: str
    prm: str
    loss: str
    always_right: float
    risk: float
    risk_bound: float
    gain_bound: float


@dataclass(frozen=True)
class StepTrust:
    """The score from which on a step is right with a wanted probability.

    Attributes:
        group, prm: group of the steps, name of the PRM.
        threshold: the lowest certified threshold; None if no threshold is certified.
        coverage: share of questions whose random step reaches it; 0 without a threshold.
        right: share of right steps among these; None without a threshold.
    """

    group: str
    prm: str
    threshold: float | None
    coverage: float
    right: float | None


@dataclass(frozen=True)
class LogitCalibration:
    """A calibration of a PRM's scores: 1 / (1 + exp(-(intercept + slope logit(score)))).

    A random half of the questions fits it, and its risks are certified on the other half.

    Attributes:
        prm: name of the PRM.
        intercept, slope: of the log-odds.
        questions: number of questions that fitted it.
    """

    prm: str
    intercept: float
    slope: float
    questions: int

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.prm}, calibrated"

    def scores(self, score: np.ndarray) -> np.ndarray:
        """Calibrated scores in [0, 1]."""
        return expit(self.intercept + self.slope * score_odds(score))


@dataclass(frozen=True)
class CertifiedQuality:
    """The certified statements about one group of labelled questions.

    Attributes:
        group, questions: value of the column by which rows are grouped, and number of questions.
        delta: largest probability that one given statement is false, not that any of them is.
        trust: the wanted probability of `StepTrust`.
        risks: one for every PRM and loss, and those of heads.
        steps: one for every PRM.
        heads: one for every PRM if the call wants them.
    """

    group: str
    questions: int
    delta: float
    trust: float
    risks: tuple[CertifiedRisk, ...]
    steps: tuple[StepTrust, ...]
    heads: tuple[LogitCalibration, ...] = ()


def certified_quality(
    labelled: LabelledData, *, delta: float = 0.05, trust: float = 0.85, calibrated: bool = False
) -> list[CertifiedQuality]:
    """The certified statements about every group and PRM; each statement has the level delta.

    Args:
        labelled: labelled steps with scores, of questions that trained or chose none of the PRMs.
        delta: level of each statement, in (0, 1).
        trust: least probability that a trusted step is right, in (0, 1).
        calibrated: whether risks of calibrated heads are added, see `LogitCalibration`.

    Raises:
        BadInputError: a number is not in (0, 1), or the half of the questions that is to fit a
            calibration has steps of one label only.
    """
    check_shares(delta=delta, trust=trust)
    found = []
    for group, paths in labelled.by_group().items():
        question, label = _labels(paths)
        drawn = _one_each(question)
        risks, steps, heads = [], [], []
        for prm in labelled.prms:
            score = labelled_scores(paths, prm)
            risks += [_risk(group, prm, loss, score, label, question, delta) for loss in LOSSES]
            steps.append(_trust(group, prm, score[drawn], label[drawn], trust, delta))
            if calibrated:
                fits = _fitting(group, label, question)
                head, rest = _head(prm, score, label, question, fits), ~fits
                values = head.scores(score[rest]), label[rest], question[rest]
                risks += [_risk(group, head.name, loss, *values, delta) for loss in LOSSES]
                heads.append(head)
        statements = tuple(risks), tuple(steps), tuple(heads)
        found.append(CertifiedQuality(group, int(question.max()) + 1, delta, trust, *statements))
    return found


def check_calibrated(labelled: LabelledData) -> None:
    """Raise the BadInputError of `certified_quality` with `calibrated`, which needs no scores."""
    for group, paths in labelled.by_group().items():
        question, label = _labels(paths)
        _fitting(group, label, question)


def certified_sheets(found: CertifiedQuality) -> tuple[Sheet, Sheet]:
    """The tables of risks and of trust of one group."""
    about = f"{found.group}: {found.questions} questions"
    each = f"each number of a bound holds with probability {probability(found.delta)}"
    risks = Sheet(
        name="certified-risk",
        title=f"{about}; certified risk of a question's steps",
        columns=(
            Column("PRM", ("prm",), plain, 0, left=True),
            Column("loss", ("loss",), plain, 0, left=True),
            Column("always right", ("always_right",), share, 3),
            Column("risk", ("risk",), share, 1),
            Column("at most", ("risk_bound",), up, 0),
            Column("gain at least", ("gain_bound",), lambda value: f"{float(down(value)):+.3f}", 1),
        ),
        records=tuple(dict(vars(each)) for each in found.risks),
        notes=(
            f"{each}; gain: over the constant score 1, on the same questions",
            *(
                f"{head.name}: log-odds {head.intercept:+.3f} {head.slope:+.3f} logit(score), "
                f"fitted to {head.questions} questions and certified on the others"
                for head in found.heads
            ),
        ),
    )
    trust = Sheet(
        name="step-trust",
        title=f"{about}; scores from which on a step is right with probability {found.trust:g}",
        columns=(
            Column("PRM", ("prm",), plain, 0, left=True),
            Column("from score", ("threshold",), lambda value: up(value, 4), 0),
            Column("covers", ("coverage",), share, 1),
            Column("of these right", ("right",), share, 2),
        ),
        records=tuple(dict(vars(each)) for each in found.steps),
        notes=(f"one random step a question; {each.replace('number of a bound', 'threshold')}",),
    )
    return risks, trust


def _risk(
    group: str,
    prm: str,
    loss: str,
    score: np.ndarray,
    label: np.ndarray,
    question: np.ndarray,
    delta: float,
) -> CertifiedRisk:
    mine = _mean_by(question, LOSSES[loss](score, label))
    rival = _mean_by(question, 1.0 - label)
    return CertifiedRisk(
        group=group,
        prm=prm,
        loss=loss,
        always_right=float(rival.mean()),
        risk=float(mine.mean()),
        risk_bound=theory.betting_upper(mine, delta=delta),
        gain_bound=theory.paired_lower(rival - mine, delta=delta),
    )


def _labels(paths: Sequence[LabelledSteps]) -> tuple[np.ndarray, np.ndarray]:
    """Number of the question, and label, of each labelled step."""
    place: dict[str, int] = {}
    steps = [
        (place.setdefault(path.question, len(place)), float(label))
        for path in paths
        for label in path.labels
        if label is not None
    ]
    question, labels = zip(*steps, strict=True)
    return np.array(question), np.array(labels)


def _fitting(group: str, label: np.ndarray, question: np.ndarray) -> np.ndarray:
    """Mask of the steps of a random half of the questions, which fit a calibration."""
    number = int(question.max()) + 1
    half = np.random.default_rng(0).permutation(number)[: number // 2]
    fits = np.isin(question, half)
    if len(set(label[fits])) < 2:
        raise BadInputError(
            f"--calibrated: {group}: half of the {number} questions has steps of one label only, "
            "which fit no calibration: give more questions"
        )
    return fits


def _head(
    prm: str, score: np.ndarray, label: np.ndarray, question: np.ndarray, fits: np.ndarray
) -> LogitCalibration:
    """The calibration of the scores that the steps of a mask fit."""
    inputs = np.stack([np.ones(fits.sum()), score_odds(score[fits])], axis=1)
    # Each question counts once.
    weight = 1.0 / np.bincount(question)[question[fits]]
    intercept, slope = fit_logistic(inputs, label[fits], weight, (0, 1)).tolist()
    return LogitCalibration(prm, intercept, slope, len(set(question[fits])))


def _trust(
    group: str, prm: str, score: np.ndarray, label: np.ndarray, trust: float, delta: float
) -> StepTrust:
    found = theory.certify_selective(score, label, THRESHOLDS, target=trust, delta=delta)
    if found.index is None:
        return StepTrust(group, prm, None, 0.0, None)
    answered, wrong = int(found.answered[found.index]), int(found.errors[found.index])
    threshold = float(THRESHOLDS[found.index])
    return StepTrust(group, prm, threshold, answered / score.size, 1 - wrong / answered)


def _mean_by(question: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean of the values of each question that has some, f64[Q] in [0, 1]."""
    index = np.unique(question, return_inverse=True)[1]
    return np.clip(np.bincount(index, values) / np.bincount(index), 0.0, 1.0)


def _one_each(question: np.ndarray) -> np.ndarray:
    """Index of one random step of each question."""
    order = np.random.default_rng(0).permutation(question.size)
    return order[np.unique(question[order], return_index=True)[1]]
