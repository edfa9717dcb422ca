"""The certificate of a run that ended when its claim was settled; see `theory.settle`."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import theory

from ..evaluation.until_certified import AccuracyClaim, in_order, settled
from ..protocols import Question
from ..runs.folder import Row, RunFolder
from ..specs.certificates import KIND
from .certificate_premises import about_run
from .groups import Group, groups, identity
from .run_tables import IDENTITY
from .sheets import Column, Sheet, down, plain, share, up

_DECISIONS = {"above": "certified", "below": "refuted", "open": "not settled"}


@dataclass(frozen=True)
class AnytimeCertificate:
    """The decision about a claim, by the questions of a run in their random order.

    Attributes:
        found: the decision. Questions after the decisive one do not count, even if they have rows.
        values: `AccuracyClaim.value` of each question that was searched, in the order of
            inspection.
        exact: whether each value is one right or wrong answer.
        group, run: the rows of the one configuration that the claim is about, and their run.
    """

    claim: AccuracyClaim
    found: theory.Settled
    values: tuple[float, ...]
    exact: bool
    group: Group
    run: RunFolder

    @property
    def certified(self) -> bool:
        """Whether the claim is certified."""
        return self.found.decision == "above"

    def record(self) -> dict[str, Any]:
        """The row of the table and of the file.

        The bounds are those of the accuracy, or of the loss in a claim against another strategy.
        They hold at whatever question the run ended, see `theory.betting`.
        """
        found, (low, high) = self.found, self._bounds()
        mean = found.successes / found.trials
        return {
            **identity(self.group),
            "decision": _DECISIONS[found.decision],
            "questions_used": found.trials,
            ("accuracy" if self.claim.against is None else "lost"): self._claimed(mean),
            "bound": min(self._claimed(low), self._claimed(high)),
            "upper_bound": max(self._claimed(low), self._claimed(high)),
            "e_value": _e_value(found.log_wealth_above),
            "e_value_below": _e_value(found.log_wealth_below),
        }

    def _bounds(self) -> tuple[float, float]:
        """Bounds on the mean of `AccuracyClaim.value`."""
        found, delta = self.found, self.claim.delta
        if self.exact:
            hits = round(found.successes)
            return (
                theory.anytime_lower(hits, found.trials, delta=delta),
                theory.anytime_upper(hits, found.trials, delta=delta),
            )
        values = self.values[: found.trials]
        return theory.betting_lower(values, delta=delta), theory.betting_upper(values, delta=delta)

    def _claimed(self, mean: float) -> float:
        """The accuracy or the loss of a mean of values."""
        return mean if self.claim.against is None else 1 - 2 * mean

    def as_json(self) -> dict[str, Any]:
        """The certificate and the run's settings, in the format of `cats-jax certify`."""
        record, claim = self.record(), self.claim
        named: dict[str, Any] = {"target": claim.target}
        if claim.against is not None:
            named = {
                "max_loss": claim.target,
                "against": claim.against,
                "against_num_candidates": claim.against_num_candidates,
            }
        return {
            "kind": KIND,
            "words": self.claim.words,
            "claim": {"anytime": True, **named},
            "delta": self.claim.delta,
            "num_questions": self.found.trials,
            "decision": record["decision"],
            "chosen": 0 if self.certified else None,
            "configurations": [record],
            **about_run(self.run),
        }


def certify_anytime(
    run: RunFolder, claim: AccuracyClaim, questions: Sequence[Question], seed: int
) -> AnytimeCertificate:
    """Decide a claim by the rows of a run of its configurations.

    Args:
        run: a run with rows for the first questions of the order.
        claim: the claim.
        questions: all questions of the run.
        seed: the seed that fixed their order.
    """
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in run.rows:
        rows[row.question].append(row)
    complete = max(map(len, rows.values()))
    looked: list[list[Row]] = []
    for question in in_order(questions, seed):
        if len(rows[question.id]) < complete:
            break
        looked.append(rows[question.id])
    (group,) = [one for one in groups(run.rows) if not claim.is_other(one.rows[0], looked[0])]
    values = tuple(map(claim.value, looked))
    for row in looked[0]:
        if claim.is_other(row, looked[0]):
            claim = dataclasses.replace(claim, against_num_candidates=row.num_candidates)
    return AnytimeCertificate(claim, settled(claim, looked), values, complete == 1, group, run)


def anytime_sheet(certificate: AnytimeCertificate) -> Sheet:
    """The table of one row, with the decision in words below it."""
    what = "accuracy" if certificate.claim.against is None else "lost"
    columns = (
        *IDENTITY,
        Column("decision", ("decision",), plain, 0),
        Column("questions used", ("questions_used",), plain, 1),
        Column(what, (what,), share, 2),
        Column("at least", ("bound",), down, 4),
        Column("at most", ("upper_bound",), up, 5),
        Column("e-value", ("e_value",), lambda value: f"{value:.3g}", 3),
        Column("e-value against", ("e_value_below",), lambda value: f"{value:.3g}", 6),
    )
    claim, found = certificate.claim, certificate.found
    words = {
        "above": f"certified: {claim.words}, after {found.trials} questions",
        "below": f"refuted: {claim.contrary}, after {found.trials} questions",
        "open": (
            f"not settled by {found.trials} questions: run more of them in a new folder or, "
            "on other questions, a claim that is farther from the accuracy"
        ),
    }
    return Sheet(
        name="certificate",
        title=f"{claim.words}: looked at after each question, delta {claim.delta:g}",
        columns=columns,
        records=(certificate.record(),),
        notes=(words[found.decision],),
    )


def _e_value(log_wealth: float) -> float:
    """The e-value, at most e^709: JSON may not hold a larger number."""
    return math.exp(min(log_wealth, 709.0))
