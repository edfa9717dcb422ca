"""Bounds on the risk of a reward model from its training data: PAC-Bayes, Occam, hold-out.

All of them need a loss in [0, 1], independent examples from the distribution of the risk, and a
prior chosen before the data. n counts independent units: questions, because the steps of one
solution depend on each other. The PAC-Bayes bounds hold for every posterior Q at once, so Q may
depend on the data. They are one-sided: with probability at least 1 - delta the risk is *below* the
value. None of them bounds the deviation of a single path's score: never use one as epsilon in
`accuracy_lower_bound`; `deviation_probability` gives the valid step.

In the formulas L_S is the risk on the data (of Q on average), L_D the risk on the distribution, n =
`num_samples` and KL = KL(Q || P) in nats. KL may be inf, as for a single predictor under a
continuous prior. The bound is then infinite, or the largest value of the formula.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import special

from . import _arguments as arguments
from ._arguments import Floats, Numbers
from .bernoulli import kl_inverse


def generalization_gap_bound(kl: Numbers, *, num_samples: Numbers, delta: Numbers) -> Floats:
    """The paper's bound on L_D - L_S (section 4.1, eq. 5).

    sqrt((KL + ln(n / delta)) / (2 (n - 1))), with probability at least 1 - delta, for every Q.

    True for every n >= 2 by the moment generating function of the squared deviation (McAllester
    1999; Shalev-Shwartz and Ben-David 2014, theorem 31.1), but not by the proof of appendix B.
    `maurer_pinsker_bound` is smaller for every n >= 2.

    Args:
        kl: KL(Q || P) in nats, at least 0; inf gives inf.
        num_samples: n, independent examples, at least 2.
        delta: in (0, 1].

    Returns:
        The bound; vacuous from 1 on (`is_vacuous_upper`).

    Raises:
        ValueError: an argument outside its range.
    """
    kl = arguments.divergence("kl", kl)
    n, delta = arguments.num_samples(num_samples), arguments.confidence(delta)
    return arguments.plain(_gap(kl, n, delta))


def mcallester_bound(
    empirical_risk: Numbers, kl: Numbers, *, num_samples: Numbers, delta: Numbers
) -> Floats:
    """The paper's bound on L_D itself: L_S + `generalization_gap_bound`.

    L_S + sqrt((KL + ln(n / delta)) / (2 (n - 1))) (theorem 4.2, eq. 4; McAllester 1999, 2003).

    Args:
        empirical_risk: L_S, mean of a loss in [0, 1].
        kl: KL(Q || P) in nats; inf gives inf.
        num_samples: n, at least 2.
        delta: in (0, 1].

    Returns:
        The bound; vacuous from 1 on.

    Raises:
        ValueError: an argument outside its range.
    """
    risk, kl = arguments.risk("empirical_risk", empirical_risk), arguments.divergence("kl", kl)
    n, delta = arguments.num_samples(num_samples), arguments.confidence(delta)
    return arguments.plain(risk + _gap(kl, n, delta))


def dirac_bound(
    empirical_risk: Numbers, neg_log_prior: Numbers, *, num_samples: Numbers, delta: Numbers
) -> Floats:
    """The paper's bound for one predictor, Q = Dirac, so that KL = -ln P(predictor).

    L_S + sqrt((-ln P + ln(n / delta)) / (2 (n - 1))) (section 4.1, after eq. 5). True for all atoms
    of the prior at once, P(predictor) > 0. With the prior's *density* (section 5.1), KL is infinite
    and the formula false. `occam_bound` is smaller.

    Args:
        empirical_risk: L_S, mean of a loss in [0, 1].
        neg_log_prior: -ln P(predictor) in nats, at least 0; inf (no atom) gives inf.
        num_samples: n, at least 2.
        delta: in (0, 1].

    Returns:
        The bound; vacuous from 1 on.

    Raises:
        ValueError: an argument outside its range; a negative `neg_log_prior` is a density.
    """
    risk = arguments.risk("empirical_risk", empirical_risk)
    cost = arguments.neg_log_probability("neg_log_prior", neg_log_prior)
    n, delta = arguments.num_samples(num_samples), arguments.confidence(delta)
    return arguments.plain(risk + _gap(cost, n, delta))


def occam_bound(
    empirical_risk: Numbers, neg_log_prior: Numbers, *, num_samples: Numbers, delta: Numbers
) -> Floats:
    """Hoeffding's inequality and a weighted union over the atoms of the prior.

    L_S + sqrt((-ln P + ln(1 / delta)) / (2 n)), for all atoms at once (Blumer et al. 1987;
    Langford 2005). It holds from n = 1 on and is never above `dirac_bound`.

    Args:
        empirical_risk: L_S, mean of a loss in [0, 1].
        neg_log_prior: -ln P(predictor) in nats, at least 0; inf gives inf.
        num_samples: n, at least 1.
        delta: in (0, 1].

    Returns:
        The bound; vacuous from 1 on.

    Raises:
        ValueError: an argument outside its range; a negative `neg_log_prior` is a density.
    """
    risk = arguments.risk("empirical_risk", empirical_risk)
    cost = arguments.neg_log_probability("neg_log_prior", neg_log_prior)
    n = arguments.count("num_samples", num_samples, 1, "at least one example is needed")
    delta = arguments.confidence(delta)
    return arguments.plain(risk + np.sqrt(cost - np.log(delta)) / np.sqrt(2 * n))


def occam_kl_bound(
    empirical_risk: Numbers, neg_log_prior: Numbers, *, num_samples: Numbers, delta: Numbers
) -> Floats:
    """The kl form of Hoeffding's inequality and a weighted union over the atoms of the prior.

    The largest p with kl(L_S || p) <= (-ln P + ln(1 / delta)) / n, for all atoms at once: a test of
    each atom at the level delta P (Langford 2005, section 3.2). Never above `occam_bound`.

    Args:
        empirical_risk: L_S, mean of a loss in [0, 1].
        neg_log_prior: -ln P(predictor) in nats, at least 0; inf gives 1.
        num_samples: n, at least 1.
        delta: in (0, 1].

    Returns:
        The bound, always in [0, 1]; vacuous at 1.

    Raises:
        ValueError: an argument outside its range; a negative `neg_log_prior` is a density.
    """
    risk = arguments.risk("empirical_risk", empirical_risk)
    cost = arguments.neg_log_probability("neg_log_prior", neg_log_prior)
    n = arguments.count("num_samples", num_samples, 1, "at least one example is needed")
    return kl_inverse(risk, (cost - np.log(arguments.confidence(delta))) / n)


def maurer_pinsker_bound(
    empirical_risk: Numbers, kl: Numbers, *, num_samples: Numbers, delta: Numbers
) -> Floats:
    """Maurer's bound weakened by Pinsker's inequality; below the paper's for every n >= 2.

    L_S + sqrt((KL + ln(2 sqrt(n) / delta)) / (2 n)) (Maurer 2004; Pinsker: 2 x**2 <= kl).

    Args:
        empirical_risk: L_S, mean of a loss in [0, 1].
        kl: KL(Q || P) in nats; inf gives inf.
        num_samples: n, at least 2.
        delta: in (0, 1].

    Returns:
        The bound; vacuous from 1 on.

    Raises:
        ValueError: an argument outside its range.
    """
    risk, rate = _risk_and_rate(empirical_risk, kl, num_samples, delta)
    return arguments.plain(risk + np.sqrt(rate / 2))


def seeger_bound(
    empirical_risk: Numbers, kl: Numbers, *, num_samples: Numbers, delta: Numbers
) -> Floats:
    """The kl bound of Seeger with Maurer's constant; the sharpest here that needs no parameter.

    The largest p with kl(L_S || p) <= (KL + ln(2 sqrt(n) / delta)) / n, kl of two Bernoulli laws
    (Seeger 2002; Maurer 2004). At L_S = 0 it is of the order 1 / n, square-root bounds 1 / sqrt(n).

    Args:
        empirical_risk: L_S, mean of a loss in [0, 1].
        kl: KL(Q || P) in nats; inf gives 1.
        num_samples: n, at least 2.
        delta: in (0, 1].

    Returns:
        The bound, always in [0, 1]; vacuous at 1.

    Raises:
        ValueError: an argument outside its range.
    """
    return kl_inverse(*_risk_and_rate(empirical_risk, kl, num_samples, delta))


def catoni_bound(
    empirical_risk: Numbers, kl: Numbers, *, num_samples: Numbers, delta: Numbers, c: Numbers
) -> Floats:
    """Catoni's bound for one constant chosen before the data.

    (1 - exp(-c L_S - (KL + ln(1 / delta)) / n)) / (1 - exp(-c)) (Catoni 2007, theorem 1.2.6). To
    choose c after the data, divide delta by the number of points of a grid of c.

    Args:
        empirical_risk: L_S, mean of a loss in [0, 1].
        kl: KL(Q || P) in nats; inf gives 1 / (1 - exp(-c)).
        num_samples: n, at least 2.
        delta: in (0, 1].
        c: positive.

    Returns:
        The bound; vacuous from 1 on.

    Raises:
        ValueError: an argument outside its range.
    """
    risk, kl = arguments.risk("empirical_risk", empirical_risk), arguments.divergence("kl", kl)
    n, delta = arguments.num_samples(num_samples), arguments.confidence(delta)
    c = arguments.positive("c", c)
    return arguments.plain(np.expm1(-c * risk - (kl - np.log(delta)) / n) / np.expm1(-c))


def lambda_bound(
    empirical_risk: Numbers,
    kl: Numbers,
    *,
    num_samples: Numbers,
    delta: Numbers,
    lam: Numbers | None = None,
) -> Floats:
    """The PAC-Bayes-lambda bound, linear in KL and true for all lambda at once.

    L_S / (1 - lambda / 2) + (KL + ln(2 sqrt(n) / delta)) / (n lambda (1 - lambda / 2)) (Thiemann
    et al. 2017, theorem 3).

    Args:
        empirical_risk: L_S, mean of a loss in [0, 1].
        kl: KL(Q || P) in nats; inf gives inf.
        num_samples: n, at least 2.
        delta: in (0, 1].
        lam: lambda in (0, 2); without it the minimising one, 2 / (1 + sqrt(1 + 2 L_S / rate))
            with rate = (KL + ln(2 sqrt(n) / delta)) / n.

    Returns:
        The bound; vacuous from 1 on.

    Raises:
        ValueError: an argument outside its range.
    """
    risk, rate = _risk_and_rate(empirical_risk, kl, num_samples, delta)
    if lam is None:
        weight = np.asarray(2 / (1 + np.sqrt(1 + 2 * risk / rate)))
    else:
        weight = arguments.checked(
            "lam", lam, lambda x: (x > 0) & (x < 2), "the bound needs lambda in (0, 2)"
        )
    return arguments.plain((risk + rate / weight) / (1 - weight / 2))


def tolstikhin_seldin_bound(
    empirical_risk: Numbers, kl: Numbers, *, num_samples: Numbers, delta: Numbers
) -> Floats:
    """An explicit upper bound on the kl bound; fast where L_S is small.

    L_S + sqrt(2 L_S b) + 2 b with b = (KL + ln(2 sqrt(n) / delta)) / n (Tolstikhin and Seldin
    2013, eq. 3). Never below `seeger_bound`.

    Args:
        empirical_risk: L_S, mean of a loss in [0, 1].
        kl: KL(Q || P) in nats; inf gives inf.
        num_samples: n, at least 2.
        delta: in (0, 1].

    Returns:
        The bound; vacuous from 1 on.

    Raises:
        ValueError: an argument outside its range.
    """
    risk, rate = _risk_and_rate(empirical_risk, kl, num_samples, delta)
    # With L_S = 0 and KL = inf the root is 0 * inf.
    root = np.sqrt(2 * risk) * np.sqrt(np.where(np.isinf(rate), 1.0, rate))
    return arguments.plain(risk + root + 2 * rate)


def holdout_bound(
    empirical_risk: Numbers,
    *,
    num_samples: Numbers,
    delta: Numbers,
    method: Literal["hoeffding", "kl", "clopper-pearson"] = "kl",
) -> Floats:
    """Risk of a frozen model from examples it was not trained on; no prior, no KL.

    * `hoeffding`: L + sqrt(ln(1 / delta) / (2 m)) (Hoeffding 1963, theorem 1);
    * `kl`: the largest p with kl(L || p) <= ln(1 / delta) / m (Hoeffding 1963 in the form of
      Chernoff), never above the former;
    * `clopper-pearson`: exact for losses that are 0 or 1 (Clopper and Pearson 1934).

    All other bounds here are vacuous for a large reward model.

    Args:
        empirical_risk: mean loss on the held-out examples, in [0, 1].
        num_samples: m, independent held-out examples, at least 1.
        delta: in (0, 1].
        method: one of the three.

    Returns:
        The bound; vacuous from 1 on.

    Raises:
        ValueError: an argument outside its range; `clopper-pearson`: no mean of m zeros and ones.
    """
    risk = arguments.risk("empirical_risk", empirical_risk)
    m = arguments.count("num_samples", num_samples, 1, "at least one held-out example is needed")
    delta = arguments.confidence(delta)
    match method:
        case "hoeffding":
            return arguments.plain(risk + np.sqrt(-np.log(delta)) / np.sqrt(2 * m))
        case "kl":
            return kl_inverse(risk, -np.log(delta) / m)
        case "clopper-pearson":
            return arguments.plain(_clopper_pearson(risk, m, delta))
        case _:
            raise ValueError(
                f"method={method!r}: one of 'hoeffding', 'kl', 'clopper-pearson' is needed"
            )


def deviation_probability(risk: Numbers, epsilon: Numbers, *, num_candidates: Numbers) -> Floats:
    """From a bound on the risk to the deviations of N paths' scores: the step from 4.1 to 4.2.

    Pr[some of N paths has |score - true value| > epsilon] <= N E|score - true value| / epsilon
    (Markov's inequality and a union). The value is the delta of this epsilon in the accuracy
    bounds. Section 4.2 of the paper instead uses the bound of eq. 5 as epsilon, which does not
    follow. With labels y of mean R* the risk E|score - y| bounds E|score - R*|.

    Args:
        risk: an upper bound on E|score - true value| for the law of the paths, in [0, 1].
        epsilon: largest deviation allowed, at least 0.
        num_candidates: N, at least 1.

    Returns:
        The bound on the probability; vacuous from 1 on. inf for epsilon = 0 and risk > 0.

    Raises:
        ValueError: an argument outside its range, or risk and epsilon both 0.
    """
    risk, epsilon = np.broadcast_arrays(
        arguments.risk("risk", risk), arguments.magnitude("epsilon", epsilon)
    )
    arguments.require("risk", risk, (risk > 0) | (epsilon > 0), "risk / epsilon is 0 / 0")
    with np.errstate(divide="ignore", over="ignore"):
        return arguments.plain(arguments.num_candidates(num_candidates) * (risk / epsilon))


def _gap(kl: Floats, n: Floats, delta: Floats) -> Floats:
    return np.asarray(np.sqrt((kl + np.log(n) - np.log(delta)) / (2 * (n - 1))))


def _risk_and_rate(
    empirical_risk: Numbers, kl: Numbers, num_samples: Numbers, delta: Numbers
) -> tuple[Floats, Floats]:
    """L_S, and Maurer's (KL + ln(2 sqrt(n) / delta)) / n."""
    risk, kl = arguments.risk("empirical_risk", empirical_risk), arguments.divergence("kl", kl)
    n, delta = arguments.num_samples(num_samples), arguments.confidence(delta)
    return risk, np.asarray((kl + np.log(2) + np.log(n) / 2 - np.log(delta)) / n)


def _clopper_pearson(risk: Floats, m: Floats, delta: Floats) -> Floats:
    risk, m, delta = np.broadcast_arrays(risk, m, delta)
    errors = np.rint(risk * m)
    arguments.require(
        "empirical_risk",
        risk,
        np.abs(risk * m - errors) <= np.minimum(1e-6 * np.maximum(errors, 1), 0.1),
        "Clopper-Pearson needs losses that are 0 or 1, so a multiple of 1 / num_samples",
    )
    # The quantile of Beta(errors + 1, m - errors); without an error or a success it is explicit.
    some = (errors > 0) & (errors < m)
    shapes = np.where(some, errors + 1, 1), np.where(some, m - errors, 1)
    quantile = special.betainccinv(*shapes, delta)
    # For delta below 1e-180 scipy's quantile may be NaN or too small. The bound of Chernoff is
    # higher than the quantile, and true.
    is_found = special.betaincc(*shapes, quantile) <= delta * (1 + 1e-6)
    quantile = np.where(is_found, quantile, kl_inverse(errors / m, -np.log(delta) / m))
    none_wrong = -np.expm1(np.log(delta) / m)
    return np.where(errors == m, 1.0, np.where(errors == 0, none_wrong, quantile))
