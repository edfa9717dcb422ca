"""The certificate of a run that ended when its claim was settled; see `theory.settle`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import theory

from ..evaluation.until_certified import AccuracyClaim, in_order, settled
from ..protocols import Question
from ..runs.folder import Run
from ..specs.certificates import KIND
from .certified_configurations import about_run
from .groups import Group, groups
from .run_tables import IDENTITY
from .sheets import Column, Sheet, plain, share

_DECISIONS = {"above": "certified", "below": "refuted", "open": "not settled"}


@dataclass(frozen=True)
class AnytimeCertificate:
    """The decision about a claim, by the questions of a run in their random order.

    Attributes:
        claim: the claim.
        found: the decision. Questions after the decisive one do not count, even if they have rows.
        group: the rows of the one configuration.
        run: the run.
    """

    claim: AccuracyClaim
    found: theory.Settled
    group: Group
    run: Run

    @property
    def certified(self) -> bool:
        """Whether the accuracy is above the target."""
        return self.found.decision == "above"

    def record(self) -> dict[str, Any]:
        """The row of the table and of the file."""
        found, delta = self.found, self.claim.delta
        lower = theory.anytime_lower(found.successes, found.trials, delta=delta)
        upper = theory.anytime_upper(found.successes, found.trials, delta=delta)
        return {
            "strategy": self.group.strategy,
            "num_candidates": self.group.num_candidates,
            "prm": self.group.prm,
            "decision": _DECISIONS[found.decision],
            "questions_used": found.trials,
            "accuracy": found.successes / found.trials,
            "bound": lower,
            "upper_bound": upper,
            "e_value": _e_value(found.log_wealth_above),
            "e_value_below": _e_value(found.log_wealth_below),
        }

    def as_json(self) -> dict[str, Any]:
        """The certificate and the run's settings, in the format of `cats-jax certify`."""
        record = self.record()
        return {
            "kind": KIND,
            "words": self.claim.words,
            "claim": {"anytime": True, "target": self.claim.target},
            "delta": self.claim.delta,
            "num_questions": self.found.trials,
            "decision": record["decision"],
            "chosen": 0 if self.certified else None,
            "configurations": [record],
            **about_run(self.run),
        }


def certify_anytime(
    run: Run, claim: AccuracyClaim, questions: Sequence[Question], seed: int
) -> AnytimeCertificate:
    """Decide a claim by a run's rows.

    Args:
        run: a run of one configuration, with rows for the first questions of the order.
        claim: the claim.
        questions: all questions of the run.
        seed: the seed that fixed their order.
    """
    (group,) = groups(run.rows)
    right = {row.question: row.correct for row in group.rows}
    looked: list[bool] = []
    for question in in_order(questions, seed):
        if question.id not in right:
            break
        looked.append(right[question.id])
    return AnytimeCertificate(claim, settled(claim, looked), group, run)


def anytime_sheet(certificate: AnytimeCertificate) -> Sheet:
    """The table of one row, with the decision in words below it."""
    columns = (
        *IDENTITY,
        Column("decision", ("decision",), plain, 0),
        Column("questions used", ("questions_used",), plain, 1),
        Column("accuracy", ("accuracy",), share, 2),
        Column("at least", ("bound",), share, 4),
        Column("at most", ("upper_bound",), share, 5),
        Column("e-value", ("e_value",), lambda value: f"{value:.3g}", 3),
        Column("e-value against", ("e_value_below",), lambda value: f"{value:.3g}", 6),
    )
    claim, found = certificate.claim, certificate.found
    words = {
        "above": f"certified: {claim.words}, after {found.trials} questions",
        "below": f"refuted: the accuracy is below {claim.target:g}, after {found.trials} questions",
        "open": (
            f"not settled by {found.trials} questions: run more of them in a new folder, or a "
            "claim that is farther from the accuracy"
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
    """The e-value, at most e^709: a larger number may not fit into a file of JSON."""
    return math.exp(min(log_wealth, 709.0))
