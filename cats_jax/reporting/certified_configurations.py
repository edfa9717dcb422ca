"""Which configurations of a run reach a target, with a guarantee; see `theory.testing`.

The claim about a configuration is that its accuracy is above a target, or that it loses at most a
given accuracy against another configuration. With one answer per question, the test is exact and
binomial: it counts right answers, or harmful questions, which only the other configuration answers
right. With several seeds, the value of a question is the mean of its rows, and the test is a
betting test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import theory
from theory.testing import Order

from ..errors import BadInputError, known_names
from ..runs.folder import RunFolder
from ..specs.certificates import KIND, probability
from .certificate_premises import COST_SHARE, about_run, check_rows, check_shares
from .cost_bounds import PREMISE, CostBounds, cost_bounds
from .groups import Group, groups, identity
from .run_tables import COSTS, IDENTITY
from .sheets import Column, Record, Sheet, count, down, giga, giga_up, plain, share, up

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_QUESTIONS = 1 << 24


@dataclass(frozen=True)
class Claim:
    """The claim about a configuration; one of the two numbers is given.

    Attributes:
        target: its accuracy is above this.
        max_loss: its accuracy is at most this far below that of `against`.
        against: label of the strategy to compare with.
        against_num_candidates: its N, which the run determines: the largest one.
    """

    target: float | None = None
    max_loss: float | None = None
    against: str | None = None
    against_num_candidates: int | None = None

    def __post_init__(self) -> None:
        """Raise BadInputError unless one claim is given, with a number between 0 and 1."""
        if (self.target is None) == (self.max_loss is None):
            raise BadInputError("certify: give --target A, or --max-loss E with --against STRATEGY")
        if (self.max_loss is None) != (self.against is None):
            raise BadInputError("certify: --max-loss E and --against STRATEGY belong together")
        known = {"target": self.target, "max_loss": self.max_loss}
        check_shares(**{name: value for name, value in known.items() if value is not None})

    @property
    def words(self) -> str:
        """The claim as a clause."""
        if self.target is not None:
            return f"accuracy above {self.target:g}"
        number = self.against_num_candidates
        at = "" if number is None else f" N={number}"
        return f"accuracy at most {self.max_loss:g} below that of {self.against}{at}"


@dataclass(frozen=True)
class Configuration:
    """A configuration and the results of its test.

    Attributes:
        group: its rows.
        p_value: p value of the claim's negation, before the correction for several tests.
        lost: the observed loss: the share of harmful questions, or with several seeds the mean
            difference; 0 for a claim on the accuracy.
        bound: lower bound on its accuracy, or upper bound on its loss. The bounds of all
            configurations hold together, at the level of the claims and beside them.
        costs: upper bounds on its mean candidates, tokens and FLOPs per question. They also hold if
            the configuration was chosen by the results.
        certified: whether the claim is certified.
    """

    group: Group
    p_value: float
    lost: float
    bound: float
    costs: CostBounds
    certified: bool


@dataclass(frozen=True)
class Certificate:
    """The result of testing a claim on all configurations of a run.

    Attributes:
        claim, order: the claim, and the correction of the tests, see `theory.reject`.
        delta: largest probability that any certified claim or any bound on a cost is false.
        num_questions: questions of each configuration.
        configurations: all that were tested, the cheapest in tokens first.
        run: the run.
    """

    claim: Claim
    delta: float
    order: Order
    num_questions: int
    configurations: tuple[Configuration, ...]
    run: RunFolder

    @property
    def chosen(self) -> Configuration | None:
        """The cheapest certified configuration."""
        return next((each for each in self.configurations if each.certified), None)

    def as_json(self) -> dict[str, Any]:
        """The certificate with the run's models, questions, digests and settings."""
        chosen = self.chosen
        return {
            "kind": KIND,
            "words": self.claim.words,
            "claim": dataclasses.asdict(self.claim),
            "delta": self.delta,
            "cost_share": COST_SHARE,
            "order": self.order,
            "num_questions": self.num_questions,
            "chosen": None if chosen is None else self.configurations.index(chosen),
            "configurations": list(map(_record, self.configurations)),
            **about_run(self.run),
        }


def certify_run(
    run: RunFolder, claim: Claim, *, delta: float, order: Order = "holm"
) -> Certificate:
    """Test a claim about every configuration of a run.

    Args:
        run, claim: a run whose configurations all have rows of the same questions, and the claim.
        delta: largest probability that any certified claim is false, in (0, 1).
        order: "holm", or "descending" from the largest N to the smallest.

    Raises:
        BadInputError: the run can't certify the claim; the message states the reason.
    """
    check_shares(delta=delta)
    found = groups(run.rows)
    number = check_rows(run, found)
    level = (1 - COST_SHARE) * delta
    rival = None
    if claim.against is not None:
        rival = _rival(found, claim.against)
        claim = dataclasses.replace(claim, against_num_candidates=rival.num_candidates)
        found = [group for group in found if group is not rival]
        if not found:
            raise BadInputError(f"the run has no other configuration than {rival.name}")
    if order == "descending":
        _check_order(found)
    several = len({row.seed for row in run.rows}) > 1
    _check_number(claim, number, level, len(found) if order == "holm" else 1, several=several)
    tested = [_test(group, rival, claim, level / len(found)) for group in found]
    place = list(range(len(found)))
    if order == "descending":
        place.sort(key=lambda i: found[i].num_candidates)
    certified = np.zeros(len(found), bool)
    certified[place] = theory.reject([tested[i][0] for i in place], delta=level, order=order)
    configurations = []
    for group, numbers, is_certified in zip(found, tested, certified, strict=True):
        bounds = cost_bounds(run, group, delta=COST_SHARE * delta, choices=len(found))
        configurations.append(Configuration(group, *numbers, bounds, bool(is_certified)))
    configurations.sort(key=lambda each: each.group.mean("tokens"))
    return Certificate(claim, delta, order, number, tuple(configurations), run)


def certificate_sheet(certificate: Certificate) -> Sheet:
    """The table of all configurations; a note below it names the cheapest certified one."""
    claim = certificate.claim
    bound, rounded = (
        ("accuracy at least", down) if claim.target is not None else ("loss at most", up)
    )
    columns = (
        *IDENTITY,
        Column("certified", ("certified",), plain, 0),
        Column("accuracy", ("accuracy",), share, 1),
        Column(bound, ("bound",), rounded, 2),
        Column("p", ("p_value",), lambda value: f"{value:.2g}", 3),
        COSTS["tokens"],
        Column("tokens at most", ("tokens_bound",), lambda value: up(value, 0), 4),
        Column("GFLOP", ("flops",), giga, 7),
        Column("GFLOP at most", ("flops_bound",), giga_up, 5),
        Column("candidates", ("candidates",), count, 8),
        Column("candidates at most", ("candidates_bound",), lambda value: up(value, 1), 6),
    )
    return Sheet(
        name="certificate",
        title=(
            f"{claim.words}, tested on {certificate.num_questions} questions; what is certified "
            f"holds with probability {probability(certificate.delta)}"
        ),
        columns=columns,
        records=tuple(map(_record, certificate.configurations)),
        notes=(_conclusion(certificate), *_premises(certificate)),
    )


def draw_certificate(certificate: Certificate) -> Figure:
    """Each configuration's accuracy or loss with its bound, against tokens.

    A bar extends from the observed value to the bound. The line is the target or the largest loss
    of the claim.
    """
    from .accuracy_figures import TOKENS
    from .figure_setup import frame, label_log_axis, make_panels

    claim, configurations = certificate.claim, certificate.configurations
    figure, (axes,) = make_panels(1)
    draw_tested(
        axes,
        np.array([each.certified for each in configurations]),
        np.array([each.group.mean("tokens") for each in configurations]),
        np.array([_observed(each, claim) for each in configurations]),
        np.array([each.bound for each in configurations]),
    )
    wanted = claim.target if claim.target is not None else claim.max_loss
    assert wanted is not None
    axes.axhline(wanted, color="#c1272d", linewidth=1.0, label=f"the claim: {wanted:g}")
    _shade(axes, claim)
    if all(each.group.mean("tokens") > 0 for each in configurations):
        axes.set_xscale("log")  # it has no place for 0
        label_log_axis(axes.xaxis)
    what = "accuracy" if claim.target is not None else f"accuracy lost against {claim.against}"
    note = f"bars: to bounds that hold together, beside the claims; delta {certificate.delta:g}"
    frame(figure, [axes], claim.words, note, TOKENS.title, what)
    return figure


def draw_tested(
    axes: Axes, certified: np.ndarray, x: np.ndarray, values: np.ndarray, bounds: np.ndarray
) -> None:
    """Draw observed values with bars to their bounds, and certified ones in a colour.

    Args:
        axes: the panel.
        certified: bool[n], whether the claim of each value is certified.
        x, values, bounds: f[n], places on the x axis, observed values, and a bound on each.
    """
    for mine, color, label in (
        (certified, "#2f7d4f", "certified"),
        (~certified, "#999999", "not certified"),
    ):
        if mine.any():
            below = (values - bounds)[mine]
            bars = np.maximum([below, -below], 0.0).tolist()
            look: dict[str, Any] = {"marker": "o", "linestyle": "none", "capsize": 2.0}
            axes.errorbar(x[mine], values[mine], yerr=bars, color=color, label=label, **look)


def _shade(axes: Axes, claim: Claim) -> None:
    """Shade the values of which the claim is true."""
    low, high = axes.get_ylim()
    if claim.target is not None:
        low = claim.target
    if claim.max_loss is not None:
        low, high = min(low, 0.0), claim.max_loss
    axes.axhspan(low, high, color="#2f7d4f", alpha=0.12, linewidth=0.0, label="the claim is true")
    axes.margins(y=0.0)


def _observed(each: Configuration, claim: Claim) -> float:
    """The observed accuracy; for a claim on the loss, the observed loss."""
    return each.group.mean("correct") if claim.target is not None else each.lost


def _record(each: Configuration) -> Record:
    group = each.group
    return {
        **identity(group),
        "certified": "yes" if each.certified else "no",
        "accuracy": group.mean("correct"),
        "bound": each.bound,
        "p_value": each.p_value,
        "tokens": group.mean("tokens"),
        "tokens_bound": each.costs.tokens,
        "flops": group.mean("flops"),
        "flops_bound": each.costs.flops,
        "candidates": group.mean("candidates"),
        "candidates_bound": each.costs.candidates,
    }


def _conclusion(certificate: Certificate) -> str:
    chosen, claim = certificate.chosen, certificate.claim
    if chosen is not None:
        return (
            f"the cheapest certified configuration is {chosen.group.name}: "
            f"{chosen.group.mean('tokens'):.0f} tokens a question"
        )
    level = (1 - COST_SHARE) * certificate.delta
    if certificate.order == "holm":
        best = min(certificate.configurations, key=lambda each: each.p_value)
        line = f"no configuration is certified; {best.group.name} has the smallest p value"
        level /= len(certificate.configurations)
    else:  # the others are not tested before it is certified
        best = max(certificate.configurations, key=lambda each: each.group.num_candidates)
        line = f"no configuration is certified; {best.group.name} is tested first"
    if claim.target is None:
        return line
    accuracy = best.group.mean("correct")
    needed = _questions_needed(accuracy, claim.target, level)
    if needed is None:
        return f"{line}, and its accuracy of {accuracy:.3f} is not above the target"
    if not np.isin(list(best.group.by_question().values()), (0.0, 1.0)).all():
        return f"{line}; it takes more than {certificate.num_questions} questions, and new ones"
    return f"{line}: at its accuracy of {accuracy:.3f} about {needed} new questions would do"


def _premises(certificate: Certificate) -> tuple[str, ...]:
    several = {len(each.group.rows) for each in certificate.configurations} != {
        certificate.num_questions
    }
    means = ("of several seeds a question has the mean of its rows",) if several else ()
    bounded = any(each.costs.tokens is not None for each in certificate.configurations)
    return (
        *means,
        *((PREMISE,) if bounded else ()),
        "the questions must be independent of each other and may have trained or chosen nothing "
        "here; the certificate is about the distribution that they are drawn from",
    )


def _check_order(found: Sequence[Group]) -> None:
    if len({(group.strategy, group.prm) for group in found}) > 1:
        raise BadInputError(
            "--order descending tests from the largest N to the smallest, an order that is fixed "
            "before the data for one strategy with one PRM alone: take --order holm"
        )


def _check_number(claim: Claim, number: int, level: float, parts: int, *, several: bool) -> None:
    """Refuse too few questions for the first test, which has a part of the level."""
    # In the best case all answers are right, or no question is harmful. Of several seeds, the
    # betting test also counts gains: the best loss is -1.
    chance = claim.target if claim.target is not None else 1 - (claim.max_loss or 0.0)
    if several and claim.target is None:
        chance /= 2
    needed = int(np.ceil(np.log(level / parts) / np.log(chance)))
    if number < needed:
        shared = f" with {parts} configurations" if parts > 1 else ""
        raise BadInputError(
            f"{number} questions certify nothing here, whatever the answers are: {claim.words} "
            f"takes at least {needed} questions{shared}"
        )


def _rival(found: Sequence[Group], label: str) -> Group:
    mine = [group for group in found if group.strategy == label]
    if not mine:
        labels = list(dict.fromkeys(group.strategy for group in found))
        raise BadInputError(f"--against {label!r}: {known_names(label, labels)}")
    largest = max(group.num_candidates for group in mine)
    mine = [group for group in mine if group.num_candidates == largest]
    if len(mine) > 1:
        raise BadInputError(
            f"--against {label!r} stands with {len(mine)} PRMs in the run: report one by --prms"
        )
    return mine[0]


def _test(
    group: Group, rival: Group | None, claim: Claim, share_of: float
) -> tuple[float, float, float]:
    """`p_value`, `lost` and `bound` of a configuration; the bound has the level `share_of`."""
    mine = group.by_question()
    right = np.array(list(mine.values()))
    number = right.size
    if rival is None:
        assert claim.target is not None
        if np.isin(right, (0.0, 1.0)).all():
            hits = int(right.sum())
            tested = theory.certify([hits], number, target=claim.target, delta=share_of)
            bound = float(theory.binomial_lower(hits, number, delta=share_of))
            return float(tested.p_values[0]), 0.0, bound
        p_value = float(theory.betting_p(right, claim.target))
        return p_value, 0.0, theory.betting_lower(right, delta=share_of)
    assert claim.max_loss is not None
    other = rival.by_question()
    lost = np.array([other[question] - mine[question] for question in mine])
    if np.isin(lost, (-1.0, 0.0, 1.0)).all():
        harmful = int((lost > 0).sum())
        p_value = float(theory.selective_p(harmful, number, claim.max_loss))
        bound = float(theory.binomial_upper(harmful, number, delta=share_of))
        return p_value, harmful / number, bound
    # The mean loss is at least E exactly if the mean of (1 - loss) / 2 is at most (1 - E) / 2.
    p_value = float(theory.betting_p((1 - lost) / 2, (1 - claim.max_loss) / 2))
    return p_value, float(lost.mean()), theory.paired_upper(lost, delta=share_of)


def _questions_needed(accuracy: float, target: float, level: float) -> int | None:
    """Number of questions, each right or wrong, that would certify this accuracy.

    None if no number is enough.
    """
    if accuracy <= target:
        return None

    def does(number: int) -> bool:
        hits = int(accuracy * number)
        return bool(theory.certify([hits], number, target=target, delta=level).certified.any())

    high = 1
    while not does(high):
        high *= 2
        if high > _MOST_QUESTIONS:
            return None
    low = high // 2
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle, high)
    return high
