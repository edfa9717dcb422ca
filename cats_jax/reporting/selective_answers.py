"""Answer or abstain: the lowest score from which a run's answers are right often enough.

The score of an answer is that of its path. A calibration with a positive slope would change scores
and thresholds alike, so the same questions would be answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

import theory

from ..errors import BadInputError
from ..live.abstention import answer_score
from ..runs.folder import RunFolder
from ..specs.certificates import KIND, probability
from .appearance import appearances
from .certificate_premises import about_run, check_one_seed, check_rows, check_shares
from .figure_setup import frame, make_panels
from .groups import Group, groups, identity
from .run_tables import IDENTITY
from .sheets import Column, Record, Sheet, share, up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INNER = special.expit(np.arange(-7.0, 8.0, 0.5)).astype(np.float32)

THRESHOLDS = np.concatenate([[0.0], _INNER.astype(np.float64)])
"""The thresholds that are tested: 0, at which all questions are answered, and 30 values with
log-odds in steps of 1/2. The tests require that they are fixed before the data are known. They are
numbers of float32: a search compares in float32, where another number could be rounded below a
score that does not reach it."""


@dataclass(frozen=True)
class SelectiveGroup:
    """A configuration and the questions that it may answer.

    Attributes:
        group: its rows.
        found: the tests of all thresholds.
        total: number of its questions; those without a scored answer are never answered.
    """

    group: Group
    found: theory.Selective
    total: int

    @property
    def place(self) -> int | None:
        """Index of the lowest certified threshold; None if no threshold is certified."""
        return self.found.index

    @property
    def answered(self) -> int:
        """Number of questions that it answers; 0 without a certified threshold."""
        return 0 if self.place is None else int(self.found.answered[self.place])

    def record(self) -> Record:
        """The row of the table and of the file."""
        at, answered = self.place, self.answered
        wrong = 0 if at is None else int(self.found.errors[at])
        return {
            **identity(self.group),
            "threshold": None if at is None else float(THRESHOLDS[at]),
            "answered": answered / self.total,
            "accuracy": 1 - wrong / answered if answered else None,
            "accuracy_of_all": self.group.mean("correct"),
            "p_value": float(self.found.p_values.min() if at is None else self.found.p_values[at]),
        }


@dataclass(frozen=True)
class SelectiveCertificate:
    """The certified thresholds of a run for selective answers.

    Attributes:
        target: accuracy of the answered questions, in (0, 1).
        delta: largest probability that any certified threshold is false.
        num_questions: questions of each configuration.
        configurations: those whose answers have scores, by descending share answered.
        run: the run.
    """

    target: float
    delta: float
    num_questions: int
    configurations: tuple[SelectiveGroup, ...]
    run: RunFolder

    @property
    def chosen(self) -> SelectiveGroup | None:
        """The certified configuration that answers the largest share of questions."""
        first = self.configurations[0]
        return None if first.place is None else first

    def as_json(self) -> dict[str, Any]:
        """The certificate with the run's models, questions and settings."""
        return {
            "kind": KIND,
            "words": f"accuracy above {self.target:g} of the answered questions",
            "claim": {"selective": True, "target": self.target},
            "delta": self.delta,
            "num_questions": self.num_questions,
            "chosen": None if self.chosen is None else 0,
            "configurations": [each.record() for each in self.configurations],
            **about_run(self.run),
        }


def certify_selective(run: RunFolder, target: float, *, delta: float) -> SelectiveCertificate:
    """Find the lowest certified threshold of every configuration whose answers have scores.

    Args:
        run: a run with trees, one seed, and rows of the same questions for all configurations.
        target: accuracy of the answered questions to be exceeded, in (0, 1).
        delta: largest probability that any certified threshold is false, in (0, 1).

    Raises:
        BadInputError: the run can't certify a threshold; the message states the reason.
    """
    check_shares(delta=delta, target=target)
    found = groups(run.rows)
    number = check_rows(run, found)
    scored = [group for group in found if group.prm is not None]
    if not scored:
        raise BadInputError("--selective: no strategy of the run reads scores: take one that does")
    check_one_seed(run, "--selective")
    needed = int(np.ceil(np.log(delta / len(scored) / THRESHOLDS.size) / np.log(target)))
    if number < needed:
        raise BadInputError(
            f"{number} questions certify nothing here, whatever the answers are: a selective "
            f"accuracy above {target:g} takes at least {needed} with {len(scored)} configurations"
        )
    tested = [_test(run, group, target, delta / len(scored)) for group in scored]
    tested.sort(key=lambda each: -each.answered)
    return SelectiveCertificate(target, delta, number, tuple(tested), run)


def selective_sheet(certificate: SelectiveCertificate) -> Sheet:
    """The table of all configurations; a note below it names the one that answers most."""
    columns = (
        *IDENTITY,
        Column("answer from score", ("threshold",), lambda value: up(value, 4), 0),
        Column("answered", ("answered",), share, 1),
        Column("their accuracy", ("accuracy",), share, 2),
        Column("accuracy of all", ("accuracy_of_all",), share, 4),
        Column("p", ("p_value",), lambda value: f"{value:.2g}", 3),
    )
    chosen = certificate.chosen
    note = "no threshold is certified: on other questions take more of them, or a lower --target"
    if chosen is not None and chosen.place is not None:
        record, lowest = chosen.record(), float(THRESHOLDS[chosen.place])
        note = (
            f"{chosen.group.name} answers most: {record['answered']:.1%} of the questions, those "
            f"whose answer has a score of at least {up(lowest, 4)}"
        )
    return Sheet(
        name="certificate",
        title=(
            f"accuracy above {certificate.target:g} of the answered questions, tested on "
            f"{certificate.num_questions} questions; what is certified holds with probability "
            f"{probability(certificate.delta)}"
        ),
        columns=columns,
        records=tuple(each.record() for each in certificate.configurations),
        notes=(note,),
    )


def draw_selective(certificate: SelectiveCertificate) -> Figure:
    """Each configuration's accuracy of the answered questions, threshold by threshold.

    A bar extends from the observed accuracy down to `selective_bounds`. The ring marks the
    certified threshold, and the line is the target.
    """
    figure, (axes,) = make_panels(1)
    found = certificate.configurations
    names = [f"{each.group.name} {each.group.prm}" for each in found]
    looks = appearances(names)
    bounds = selective_bounds(certificate)
    for each, name, low in zip(found, names, bounds, strict=True):
        some = each.found.answered > 0
        part = each.found.answered[some] / each.total
        accuracy = 1 - each.found.errors[some] / each.found.answered[some]
        look = looks[name]
        curve: dict[str, Any] = {"marker": ".", "linewidth": 1.0, "elinewidth": 0.6}
        bars = [(accuracy - low[some]).tolist(), np.zeros_like(accuracy).tolist()]
        axes.errorbar(part, accuracy, yerr=bars, color=look.color, label=name, **curve)
        if each.place is not None:
            ring: dict[str, Any] = {"marker": "o", "markersize": 11.0, "fillstyle": "none"}
            right = 1 - each.found.errors[each.place] / each.answered
            axes.plot(each.answered / each.total, right, color=look.color, linestyle="", **ring)
    target = certificate.target
    axes.axhline(target, color="#c1272d", linewidth=1.0, label=f"the target: {target:g}")
    title = f"accuracy above {target:g} of the answered questions"
    note = (
        f"ring: certified; bars: lower bounds of all points together; delta {certificate.delta:g}"
    )
    frame(figure, [axes], title, note, "share of questions answered", "accuracy of these")
    return figure


def selective_bounds(certificate: SelectiveCertificate) -> list[np.ndarray]:
    """Lower bounds on the accuracy of the answered questions, f64[31] of each configuration.

    They are exact binomial bounds, given the number of answered questions, at the level delta
    divided by the numbers of thresholds and of configurations. All hold together with a probability
    of at least 1 - delta, besides the certificate's delta. They help to look at other targets. A
    bound is 0 where no question is answered.
    """
    found = certificate.configurations
    level = certificate.delta / (len(found) * THRESHOLDS.size)
    bounds = []
    for each in found:
        answered = each.found.answered
        right = answered - each.found.errors
        low = theory.binomial_lower(right, np.maximum(answered, 1), delta=level)
        bounds.append(np.where(answered > 0, low, 0.0))
    return bounds


def _test(run: RunFolder, group: Group, target: float, delta: float) -> SelectiveGroup:
    rows = group.rows
    # A search that failed has neither a tree nor an answer.
    if any(row.tree is None and row.answer is not None for row in rows):
        raise BadInputError(
            f"--selective reads the scores in the trees, which rows of {group.name} lack: evaluate "
            "with `trees: true`"
        )
    scores = [None if row.tree is None else answer_score(run.tree(row)) for row in rows]
    # Below all thresholds: never answered.
    values = np.array([-1.0 if score is None else score for score in scores])
    right = np.array([float(row.correct) for row in rows])
    found = theory.certify_selective(values, right, THRESHOLDS, target=target, delta=delta)
    return SelectiveGroup(group, found, len(rows))
