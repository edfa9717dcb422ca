"""The paper's claims on losses (eq. 2, 10, 11), its reward (eq. 9) and its table of PRMs."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from ..estimators import spearman
from ..paper import SPARSITY, PrmSparsity
from .report import CheckReport, Measured, exact, judge, shares

_TABLE = "appendix G, tab:sparse, 'a clear correlation'"
_REWARD = "section 5.2, eq. 9"
_WEIGHTS = (0.2, 0.5, 0.3)  # lambda_c, lambda_m, lambda_r (section 6.1)


def check_loss_as_printed(*, seed: int, sign: float = 1.0) -> CheckReport:
    """The PRM objective as printed, read as a loss to minimise."""
    return _descent(
        seed,
        sign,
        claim="Minimising sum y ln r + (1 - y) ln(1 - r) teaches the labels: better than chance.",
        remedy="it is a log-likelihood: minimise its negative",
    )


def check_loss_negated(*, seed: int, sign: float = -1.0) -> CheckReport:
    """The negative log-likelihood."""
    return _descent(
        seed,
        sign,
        claim="Minimising the negative of it teaches the labels: better than chance.",
        proof="convex, and minimised by the true log-odds",
    )


def check_raw_cost(*, scale: float = 1.0) -> CheckReport:
    """The reward with C a number of samples; the paper does not say how C is scaled."""
    return _cost(
        scale,
        claim="With C the number of extra samples, asking for 5 or more can pay: for some scores "
        "its reward is at least that of asking for none.",
        remedy="C / N",
    )


def check_normalised_cost(*, scale: float = 1.0 / 64.0) -> CheckReport:
    """The reward with C divided by N."""
    return _cost(
        scale,
        claim="With C divided by N = 64 it can.",
        proof="at most lambda_c is paid, lambda_m + lambda_r can be earned",
    )


def check_reward_on_noise(*, seed: int, noise: float = 0.2) -> CheckReport:
    """Winner's curse: more samples seem better, although all paths are equally good."""
    sizes = (2, 4, 16, 64, 256)
    trials = 4000
    draws = np.random.default_rng(seed).uniform(-noise, noise, (trials, sizes[-1]))
    means = np.array([0.5 + draws[:, :n].max(axis=1).mean() for n in sizes])
    # Hoeffding's interval; a mean of bounded values is not a binomial share.
    half = 2 * noise * np.sqrt(np.log(2 / 1e-4) / (2 * trials))
    return judge(
        claim="Among paths that are all equally good, the reward does not rise with the number of "
        "samples.",
        source="here, of eq. 9",
        measured=Measured(means[1:], means[1:] - half, means[1:] + half, trials),
        at_most=means[0] + half,
        where=lambda i: f"R*=.5, noise +-{noise}, {sizes[i + 1]} samples against 2; mean of max R",
        remedy="a term for the correctness of the final answer",
    )


def check_longer_episodes(*, weight: float = _WEIGHTS[2]) -> CheckReport:
    """The reward contains max R >= 0 at every step."""
    lengths, discount = np.array([1, 2, 5, 10]), 0.9
    returns = np.array([weight * 0.8 * (discount ** np.arange(n)).sum() for n in lengths])
    return judge(
        claim="The return does not depend on how many steps an equally good solution takes "
        "(R = .8 throughout, discount .9).",
        source="here, of eq. 9",
        measured=exact(returns[1:]),
        at_most=returns[0],
        where=lambda i: f"{lengths[i + 1]} steps against 1; return",
        remedy="compare solutions of equal length, or pay for the last step only",
    )


def check_residual_gradient(*, stop_gradient: bool = False) -> CheckReport:
    """The literal gradient of delta^2 / 2, also through V(s')."""
    return _td(
        stop_gradient,
        claim="Descending the gradient of delta^2/2, taken literally, leads to the value function "
        "(A goes to B or C; B earns 1, C nothing).",
        remedy="stop the gradient of the target",
    )


def check_stopped_gradient(*, stop_gradient: bool = True) -> CheckReport:
    """The usual semi-gradient."""
    return _td(
        stop_gradient,
        claim="With the gradient of the target stopped it does.",
        proof="the expected update is a contraction towards V",
    )


def check_terminal_mask(*, mask: float = 1.0) -> CheckReport:
    """Bootstrapping beyond the end of an episode."""
    discount, value = 0.9, 0.0
    for _ in range(400):
        # The episode ends after one reward of 1; without a mask its end counts as itself again.
        value = 1.0 + mask * discount * value
    return judge(
        claim="V = r + gamma V(s') needs no exception where the episode ends (true value 1).",
        source="section 5.2, eq. 10, which has none",
        measured=exact(abs(value - 1.0)),
        at_most=1e-6,
        where=lambda i: "one step, reward 1, discount .9; error of the value",
        remedy="discount 0 at the end",
    )


def check_sparsity_total(*, error: tuple[float, ...] | None = None) -> CheckReport:
    """Total sparsity against test error in the paper's table."""
    return _table(
        SPARSITY,
        "total_sparsity",
        error,
        claim="Total sparsity and test error are correlated by rank (5 PRMs): p <= .05.",
    )


def check_sparsity_last_layer(*, error: tuple[float, ...] | None = None) -> CheckReport:
    """The last layer's sparsity, with two equal rows counted twice."""
    return _table(
        SPARSITY,
        "last_layer_sparsity",
        error,
        claim="Last-layer sparsity and test error are correlated by rank (5 PRMs, two of them with "
        "equal rows): p <= .05.",
        proof="all 120 orders",
    )


def check_sparsity_last_layer_distinct(*, level: float = 0.05) -> CheckReport:
    """The same without the repeated row: four PRMs can't reach p <= .05."""
    return _table(
        _distinct(SPARSITY),
        "last_layer_sparsity",
        None,
        level,
        claim=f"The same with the repeated row counted once (4 PRMs): p <= {level:g}.",
        remedy="no rank correlation of 4 PRMs has a p below .083: more PRMs are needed",
    )


def check_sparsity_nonzeros(*, error: tuple[float, ...] | None = None) -> CheckReport:
    """The number of nonzero parameters, which the sparsity bound contains."""
    return _table(
        SPARSITY,
        "nonzero_parameters",
        error,
        claim="The number of nonzero parameters, which is what eq. 8 contains, and test error are "
        "correlated by rank (5 PRMs): p <= .05.",
    )


def _descent(seed: int, sign: float, **texts: Any) -> CheckReport:
    """How often a logistic model is right after descent on `sign` x objective."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=4000)
    y = rng.random(4000) < special.expit(2.0 * x)
    slope = intercept = 0.0
    for _ in range(500):
        # The derivative of y ln r + (1 - y) ln(1 - r) by the log-odds of r is y - r.
        rise = y - special.expit(slope * x + intercept)
        slope -= 0.5 * sign * (rise * x).mean()
        intercept -= 0.5 * sign * rise.mean()
    right = int(((slope * x + intercept > 0.0) == y).sum())
    return judge(
        source="section 3.2, eq. 2",
        measured=shares(right, 4000),
        at_least=0.5,
        where=lambda i: "logistic model in one dimension, 500 steps; accuracy",
        **texts,
    )


def _td(stop_gradient: bool, **texts: Any) -> CheckReport:
    """(V(A), V(B), V(C)) after gradient descent on the expected delta^2 / 2, discount 1.

    A goes to B or C, B ends with reward 1, and C with 0: half of the deltas are those of A.
    """
    values = np.zeros(3)
    for _ in range(400):
        of_a = values[1:] - values[0]
        gradient = np.array([-of_a.sum(), values[1] - 1.0, values[2]])
        if not stop_gradient:
            gradient[1:] += of_a
        values -= 0.25 * gradient
    return judge(
        source="section 5.2, eq. 11",
        measured=exact(np.abs(values - np.array([0.5, 1.0, 0.0]))),
        at_most=1e-6,
        where=lambda i: (
            f"V = ({', '.join(f'{v:.2f}' for v in values)}), true (.5, 1, 0); error at {'ABC'[i]}"
        ),
        **texts,
    )


def _cost(scale: float, **texts: Any) -> CheckReport:
    counts = np.arange(5, 65)
    # Samples gain at most 1 in the margin and 1 in the best score.
    gain = _WEIGHTS[1] + _WEIGHTS[2] - _WEIGHTS[0] * counts * scale
    return judge(
        source=_REWARD,
        measured=exact(gain),
        at_least=0.0,
        where=lambda i: f"C={counts[i]}; largest gain over C=0",
        **texts,
    )


def _distinct(rows: tuple[PrmSparsity, ...]) -> tuple[PrmSparsity, ...]:
    """The rows without those that repeat another in all columns but the name."""
    return tuple({row[1:]: row for row in rows}.values())


def _table(
    rows: tuple[PrmSparsity, ...],
    predictor: str,
    error: tuple[float, ...] | None,
    level: float = 0.05,
    **texts: Any,
) -> CheckReport:
    errors = [row.test_error for row in rows] if error is None else error
    found = spearman([getattr(row, predictor) for row in rows], errors)
    if "proof" not in texts:
        texts.setdefault("remedy", "too few PRMs to tell")
    return judge(
        source=_TABLE,
        measured=exact(found.p_value),
        at_most=level,
        where=lambda i: f"Spearman {found.value:.3f}, n={found.num}; exact p",
        **texts,
    )
