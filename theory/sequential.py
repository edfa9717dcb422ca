"""Sequential decisions: a mean is above a target, below it, or not settled yet.

There are two e-processes, one against "at most the target" and one against "at least the target".
Each may be inspected after every question, so that the evaluation may stop at the first question
after which one of them reaches 1 / delta (Ville 1939).

`settle` is for one right or wrong answer a question, and `settle_mean` for any value in [0, 1],
such as the mean over seeds. For a difference D of two accuracies, pass (1 + D) / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from . import _arguments as arguments
from ._arguments import Array, Numbers
from .betting import binary_log_wealth, running_log_wealth

Decision = Literal["above", "below", "open"]
"""Whether the mean is above the target, below it, or not settled."""


@dataclass(frozen=True)
class Settled:
    """The decision from a sequence of answers or of values.

    Attributes:
        decision: "open" if neither e-process reached 1 / delta.
        trials: answers up to the decision; all of them if it is open.
        successes: right answers among these; of `settle_mean` the sum of their values.
        log_wealth_above: evidence that the mean is above the target, after `trials`, in nats.
        log_wealth_below: evidence that it is below, likewise.
    """

    decision: Decision
    trials: int
    successes: float
    log_wealth_above: float
    log_wealth_below: float


def settle(right: Numbers, *, target: float, delta: float) -> Settled:
    """The first answer after which it is settled whether an accuracy is above a target.

    The decision is "above" where `binary_log_wealth` of the right answers against a mean of
    `target` reaches ln(1 / delta), and "below" where that of the wrong answers against 1 - `target`
    does. Each of the two is false with probability at most delta.

    Args:
        right: bool[n] or 0 and 1, n at least 1, in an order that does not depend on the answers.
        target: in (0, 1).
        delta: in (0, 1).

    Returns:
        The decision and the evidence. Answers after the decision change nothing.

    Raises:
        ValueError: an argument outside its range, or an answer that is neither 0 nor 1.
    """
    hits = arguments.answers("right", right)
    m = arguments.one_target(target)
    trials, successes = np.arange(1, hits.size + 1), hits.cumsum()
    above = np.atleast_1d(binary_log_wealth(successes, trials, m))
    below = np.atleast_1d(binary_log_wealth(trials - successes, trials, 1 - m))
    return _first(hits, above, below, delta)


def settle_mean(values: Numbers, *, target: float, delta: float) -> Settled:
    """The first value after which it is settled whether the mean of their law is above a target.

    As `settle`, by `running_log_wealth` of the values, and of 1 - values against 1 - `target`.

    Args:
        values: f64[n] in [0, 1], one per question, n at least 1, in an order as for `settle`.
        target: in (0, 1).
        delta: in (0, 1).

    Returns:
        The decision and the evidence. Values after the decision change nothing.

    Raises:
        ValueError: an argument outside its range.
    """
    x = arguments.sample("values", values)
    m = arguments.one_target(target)
    return _first(x, running_log_wealth(x, m), running_log_wealth(1 - x, 1 - m), delta)


def _first(x: Array, above: Array, below: Array, delta: float) -> Settled:
    """The first place where one of two paths of evidence reaches ln(1 / delta)."""
    needed = -float(np.log(arguments.one_error_rate(delta)))
    reached = (above >= needed) | (below >= needed)
    at = int(np.argmax(reached)) if reached.any() else x.size - 1
    decision: Decision = "open"
    if reached[at]:
        decision = "above" if above[at] >= needed else "below"
    total = float(x[: at + 1].sum())
    return Settled(decision, at + 1, total, float(above[at]), float(below[at]))
