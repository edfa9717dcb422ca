"""Bounds on a risk: PAC-Bayes, description lengths, sharper forms, hold-out, and what follows.

The theorem, its printed proof and its assumptions come first; the steps from the gap of risks to
the error of scores, valid and invalid ones, come last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special, stats

from ..accuracy import accuracy_lower_bound, coverage
from ..pac_bayes import (
    deviation_probability,
    dirac_bound,
    generalization_gap_bound,
    holdout_bound,
    maurer_pinsker_bound,
    occam_bound,
    seeger_bound,
)
from ..paper import SPARSITY
from ..sparsity import sparsity_bound, support_code_length
from .report import CheckReport, exact, judge, shares

_SIZES = (*range(2, 61), 100, 200, 500, 1000, 5000)
_EVERY_SIZE = tuple(range(2, 102))
_DELTAS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.01, 0.001)
_DELTA = 0.05
_PRINTED = "theorem 4.2, eq. 4 and 5"

Bound = Callable[..., Any]
"""A bound on L_D - L_S, with the arguments (kl, *, num_samples, delta), or on L_D."""


def check_gap_bound_one_hypothesis(*, bound: Bound = generalization_gap_bound) -> CheckReport:
    """One hypothesis, every risk, exactly."""
    return _violations(
        lambda risk, n, delta: risk + bound(np.zeros_like(n), num_samples=n, delta=delta),
        _SIZES,
        claim="For a hypothesis fixed before the data (KL = 0), the gap exceeds the paper's bound "
        "with probability at most delta; shown as probability / delta.",
        source=_PRINTED,
        proof="Hoeffding's inequality is stronger here",
    )


def check_gap_bound_all_posteriors(
    *, seed: int, bound: Bound = generalization_gap_bound
) -> CheckReport:
    """Every posterior Q at once, also those chosen after the data."""
    return _all_posteriors(
        bound,
        seed,
        claim="With probability at least 1 - delta the paper's bound holds for every posterior Q "
        "at once (P fixed before the data, independent data).",
        source=_PRINTED,
        proof="moment of the squared deviation, Donsker-Varadhan, Jensen (the printed proof "
        "does not give it)",
    )


def _union_free(kl: Any, *, num_samples: Any, delta: Any) -> Any:
    return np.sqrt((kl + math.log(1.0 / delta)) / (2.0 * num_samples))


def check_union_free_bound(*, seed: int, bound: Bound = _union_free) -> CheckReport:
    """Open: the bound that the printed proof would give if its lambda were the best one."""
    return _all_posteriors(
        bound,
        seed,
        claim="sqrt((KL + ln(1/delta)) / 2n) holds for every posterior Q at once.",
        source="here",
    )


def check_printed_proof(*, bound: Bound = generalization_gap_bound) -> CheckReport:
    """The lambda of the printed proof does not give its formula."""
    n = 800_000
    kl = np.array([0.0, 1.0, 5.0, 5.5, 10.0, 1e3, 1e6])
    rate = math.sqrt(8.0 * (n - 1))
    derived = rate / (8.0 * n) + (kl + math.log(1.0 / _DELTA)) / rate
    return judge(
        claim="The printed proof, with the lambda it sets, gives a value no larger than the bound "
        "it claims (n = 800 000, delta = 0.05: our choice).",
        source="appendix B, proof of theorem 4.2",
        measured=exact(derived),
        at_most=bound(kl, num_samples=n, delta=_DELTA),
        where=lambda i: f"KL={kl[i]:g}",
        remedy="the theorem is true by another proof",
    )


def check_prior_after_data(*, seed: int, bound: Bound = generalization_gap_bound) -> CheckReport:
    """P must not depend on S: a memorising learner with P = Q has KL = 0 and a large gap."""
    gaps = memoriser_gaps(seed=seed, num_inputs=2000, num_samples=100, trials=2000)
    limit = float(bound(0.0, num_samples=100, delta=_DELTA))
    return _memorised(
        gaps,
        limit,
        f"memoriser, n=100, mean gap {gaps.mean():.3f} against {limit:.3f}",
        claim="The bound also holds for a prior chosen after the data (P = Q, KL = 0).",
        source="theorem 4.2, 'any prior'; section 4.1 asks for one 'before seeing data'",
        remedy="fix P before S",
    )


def check_steps_as_samples(*, bound: Bound = generalization_gap_bound) -> CheckReport:
    """n counts independent units: identical steps of one question count once."""
    questions, steps = (120, 12_000), 66
    violations = worst_violations(
        lambda risk, m: risk + bound(np.zeros_like(m), num_samples=steps * m, delta=_DELTA),
        questions,
    )
    return judge(
        claim="n may count the steps of all questions, although those of one question are not "
        "independent (66 equal steps each).",
        source="n of section 4.1 for the steps of section 3.2, against assumption 4.1",
        measured=exact(violations),
        at_most=_DELTA,
        where=lambda i: (
            f"{questions[i]} questions, n={questions[i] * steps}; probability beyond the bound"
        ),
        remedy="n = number of questions",
    )


_AT_ONCE = 500
"""Trainings that are sampled together."""


def posterior_suprema(
    low: float,
    high: float,
    precisions: np.ndarray,
    *,
    seed: int,
    num_samples: int,
    num_hypotheses: int,
    shared: bool,
    trials: int,
) -> np.ndarray:
    """sup over lambda of ln E_P exp(lambda gap) - lambda^2 / (8 m), for each m of `precisions`.

    Some posterior Q violates sqrt((KL + L) / 2m) iff this is above L (Donsker-Varadhan). The
    supremum over a grid of lambda is at most the true one.

    Args:
        low, high: risks of the hypotheses, evenly spread; P is uniform on them.
        precisions: m, f64[M].
        num_hypotheses: of the class.
        shared: losses on one example come from one draw for all hypotheses, or are independent.
    """
    rng = np.random.default_rng(seed)
    risks = np.linspace(low, high, num_hypotheses)
    rates = np.geomspace(0.05, 1.0, 96)[:, None] * 4.0 * precisions
    suprema = []
    for first in range(0, trials, _AT_ONCE):
        shape = min(_AT_ONCE, trials - first), num_samples, 1 if shared else num_hypotheses
        gaps = risks - (rng.random(shape, np.float32) < risks).mean(axis=1)
        exponents = rates[None, :, :, None] * gaps[:, None, None, :]
        log_moment = special.logsumexp(exponents, axis=3) - np.log(num_hypotheses)
        suprema.append((log_moment - rates**2 / (8.0 * precisions)).max(axis=1))
    return np.concatenate(suprema)


def _all_posteriors(bound: Bound, seed: int, **texts: Any):
    trials = 10_000
    counts, limits, cases = [], [], []
    deltas = (0.05, 0.2)
    for n in (5, 40):
        forms = [_square_is_affine(bound, n, delta) for delta in deltas]
        for shared in (False, True):
            for low, high in ((0.5, 0.5), (0.05, 0.95)):
                suprema = posterior_suprema(
                    low,
                    high,
                    np.array([precision for precision, _ in forms]),
                    seed=seed,
                    num_samples=n,
                    num_hypotheses=16,
                    shared=shared,
                    trials=trials,
                )
                for column, (delta, (_, log_term)) in enumerate(zip(deltas, forms, strict=True)):
                    counts.append((suprema[:, column] > log_term).sum())
                    limits.append(delta)
                    cases.append(f"n={n}, risks {low}..{high}, " + ("shared" if shared else "own"))
    return judge(
        measured=shares(counts, trials),
        at_most=limits,
        where=lambda i: (
            f"{cases[i]} draws, delta={limits[i]:g}; share of trainings with a violating Q"
        ),
        **texts,
    )


def _square_is_affine(bound: Bound, n: int, delta: float) -> tuple[float, float]:
    """(m, L) of a bound of the form sqrt((KL + L) / 2m)."""
    at_0, at_1, at_9 = (float(bound(kl, num_samples=n, delta=delta)) ** 2 for kl in (0.0, 1.0, 9.0))
    if not math.isclose(at_9, at_0 + 9 * (at_1 - at_0), rel_tol=1e-9):
        raise ValueError("bound: its square must be affine in KL for the supremum over Q")
    precision = 1.0 / (2.0 * (at_1 - at_0))
    return precision, at_0 * 2.0 * precision


def check_dirac_atom(*, bound: Bound = dirac_bound) -> CheckReport:
    """The Dirac specialisation, for a prior with atoms."""
    return _atoms(
        bound,
        (2, 5, 20, 100, 400),
        claim="Dirac posterior on an atom of the prior: all 16 hypotheses of a class with a "
        "geometric prior obey the bound at once with probability at least 1 - delta; shown as "
        "probability of a violation / delta.",
        source="section 4.1, Dirac posterior",
        proof="the theorem, KL = ln 1/P",
    )


def check_occam(*, bound: Bound = occam_bound) -> CheckReport:
    """The Occam bound is sharper than the Dirac specialisation and no harder to prove."""
    return _atoms(
        bound,
        (1, 2, 5, 20, 100, 400),
        claim="sqrt((ln 1/P + ln 1/delta) / 2n) holds for all atoms at once, from n = 1 on; shown "
        "as probability of a violation / delta.",
        source="literature",
        proof="Hoeffding's inequality and a weighted union bound",
    )


def check_dirac_density(*, seed: int, bound: Bound = dirac_bound) -> CheckReport:
    """A density is not a probability: KL to a continuous prior is infinite."""
    # phi is uniform on [0, 1), density 1; the reward model of phi reads off its binary digits,
    # one per input, and empirical risk minimisation writes the labels seen into them.
    gaps = memoriser_gaps(seed=seed, num_inputs=2000, num_samples=100, trials=2000)
    limit = float(bound(0.0, 0.0, num_samples=100, delta=_DELTA))
    return _memorised(
        gaps,
        limit,
        f"binary digits, n=100, mean gap {gaps.mean():.3f} against {limit:.3f}",
        claim="For a continuous prior, ln 1/P may be the logarithm of its inverse density "
        "(density 1: 0).",
        source="section 5.1, 'prior density'",
        remedy="only atoms have a finite KL: a stored 16-bit model costs 16 ln 2 nats a weight",
    )


def check_sparsity_unit_constant(*, seed: int, bound: Bound = sparsity_bound) -> CheckReport:
    """The bound with c = 1, against eight weights that store 416 labels."""
    num_weights, n = 8, 200
    gaps = stored_label_gaps(seed=seed, num_weights=num_weights, num_samples=n, trials=1000)
    limit = float(bound(num_weights, num_weights, num_samples=n, delta=_DELTA, c=1.0))
    return _memorised(
        gaps,
        limit,
        f"labels in the mantissas, n={n}, mean gap {gaps.mean():.4f} against {limit:.4f}",
        claim="The sparsity bound holds with c = 1 (8 nonzero float64 weights of 8).",
        source="section 5.1, eq. 8; c = 1 is our choice",
        remedy="c = code length / (nonzeros ln d)",
    )


def check_sparsity_code(*, code_length: Bound = support_code_length) -> CheckReport:
    """With c = (code length) / (nonzeros ln d) the sparsity bound is an Occam bound."""
    cases = [(d, bits) for d in range(1, 9) for bits in range(1, 5)]
    masses = [
        sum(
            math.comb(d, k) * 2 ** (bits * k) * math.exp(-code_length(k, d, bits_per_value=bits))
            for k in range(d + 1)
        )
        for d, bits in cases
    ]
    return judge(
        claim="exp(-(ln(d+1) + ln C(d,k) + k b ln 2)), summed over all vectors of d weights with "
        "b-bit nonzeros, is a probability (at most 1), so the bound holds with "
        "c = code length / (k ln d).",
        source="section 5.1, eq. 8, repaired here",
        measured=exact(masses),
        at_most=1.0,
        where=lambda i: "d={}, b={}; mass".format(*cases[i]),
        proof="a prefix code: k, then the support, then the values",
    )


def check_sparsity_says_something(*, bound: Bound = sparsity_bound) -> CheckReport:
    """The sparsity bound of the paper's own five PRMs.

    The paper computes no value of its bound: n, delta, c and the meaning of d are our choice. n is
    the number of labelled steps in section 2 ("800k human-labeled reasoning steps").
    """
    values = bound(
        np.round([row.nonzero_parameters for row in SPARSITY]),
        [row.parameters for row in SPARSITY],
        num_samples=800_000,
        delta=_DELTA,
    )
    return judge(
        claim="For the five PRMs of tab:sparse the sparsity bound is below 1, the largest gap "
        "there can be (n = 800 000, delta = 0.05, c = 1 and d = number of parameters are our "
        "choice).",
        source="section 5.1, eq. 8; appendix G, tab:sparse",
        measured=exact(values),
        at_most=1.0,
        where=lambda i: f"{SPARSITY[i].prm}; value of the bound",
        remedy="a hold-out bound: 10 000 questions give the risk within .006",
    )


def _atoms(bound: Bound, sizes: tuple[int, ...], **texts: Any) -> CheckReport:
    prior = 0.5 ** np.minimum(np.arange(1, 17), 15)
    cases = [(n, delta) for delta in (0.5, 0.05, 0.01) for n in sizes]
    ratios = []
    for n, delta in cases:
        each = [
            worst_violations(
                lambda risk, m, p=p, d=delta: bound(risk, -math.log(p), num_samples=m, delta=d), [n]
            )[0]
            for p in prior
        ]
        # For independent hypotheses the probability of the union is largest.
        ratios.append((1.0 - float(np.prod(1.0 - np.array(each)))) / delta)
    return judge(
        measured=exact(ratios),
        at_most=1.0,
        where=lambda i: "n={}, delta={:g}".format(*cases[i]),
        **texts,
    )


def check_tighter_bounds(*, bound: Bound = maurer_pinsker_bound) -> CheckReport:
    """The kl form is never above Maurer-Pinsker, which is never above the paper's bound."""
    grid = np.meshgrid(
        [0.0, 0.01, 0.1, 0.5, 0.9, 1.0],
        [0.0, 0.1, 1.0, 10.0, 1e3, 1e6],
        [2.0, 3, 4, 5, 7, 8, 10, 100, 1e4, 1e6, 1e10],
        [1.0, 0.5, 0.05, 1e-6],
    )
    risk, kl, n, delta = (axis.ravel() for axis in grid)
    tighter = bound(risk, kl, num_samples=n, delta=delta)
    paper = risk + generalization_gap_bound(kl, num_samples=n, delta=delta)
    sharpest = seeger_bound(risk, kl, num_samples=n, delta=delta)

    def where(i: int) -> str:
        j = i % risk.size
        pair = ("Maurer-Pinsker - paper", "kl - Maurer-Pinsker")[i // risk.size]
        return f"{pair}, L_S={risk[j]:g}, KL={kl[j]:g}, n={n[j]:g}, delta={delta[j]:g}"

    return judge(
        claim="kl form <= Maurer-Pinsker <= the paper's bound, for every n >= 2.",
        source="Maurer 2004, Seeger 2002",
        # By ratios, because the values span nine orders of magnitude.
        measured=exact(np.concatenate([tighter / paper, sharpest / tighter])),
        at_most=1.0,
        where=where,
        proof="ln(2 sqrt n)/2n <= ln(n)/2(n-1), and Pinsker's inequality",
    )


def check_seeger(*, bound: Bound = seeger_bound) -> CheckReport:
    """The kl form, one hypothesis, every risk, exactly."""
    return _violations(
        lambda risk, n, delta: bound(risk, np.zeros_like(n), num_samples=n, delta=delta),
        _EVERY_SIZE,
        claim="kl(L_S || L_D) <= (KL + ln(2 sqrt n / delta)) / n holds with probability at least "
        "1 - delta (one hypothesis); shown as probability of a violation / delta.",
        source="Maurer 2004, Seeger 2002",
        proof="E exp(n kl) <= 2 sqrt n and Markov's inequality",
    )


def check_holdout(*, bound: Bound = holdout_bound) -> CheckReport:
    """The three hold-out bounds, every risk, exactly."""
    methods = ("hoeffding", "kl", "clopper-pearson")
    cases = [(method, delta) for method in methods for delta in _DELTAS if delta < 1]
    names = [f"{method}, m={m}, delta={delta:g}" for method, delta in cases for m in _EVERY_SIZE]
    ratios = [
        worst_violations(
            lambda risk, m, by=method, d=delta: bound(risk, num_samples=m, delta=d, method=by),
            _EVERY_SIZE,
        )
        / delta
        for method, delta in cases
    ]
    return judge(
        claim="The hold-out bounds (Hoeffding, kl, Clopper-Pearson) hold with probability at least "
        "1 - delta; shown as probability of a violation / delta.",
        source="literature",
        measured=exact(np.concatenate(ratios)),
        at_most=1.0,
        where=names.__getitem__,
        proof="Chernoff's bound; the exact binomial tail",
    )


def check_moment_constant(
    *, limit: Callable[[np.ndarray], np.ndarray] = lambda n: n**0.25
) -> CheckReport:
    """Open: the smallest n inside the paper's logarithm."""
    sizes = (*range(2, 41), 50, 100, 200, 500, 1000)
    values = [_squared_moment(n) for n in sizes]
    return judge(
        claim="sup over risks of E exp(2 (n-1) (L_D - L_S)_+^2) is at most n^(1/4), so ln n in "
        "the paper's bound could be (ln n)/4.",
        source="here",
        measured=exact(np.array(values) / limit(np.array(sizes, np.float64))),
        at_most=1.0,
        where=lambda i: f"n={sizes[i]}; moment / n^(1/4)",
    )


def _squared_moment(n: int) -> float:
    """sup over mu of E exp(2 (n-1) (mu - mean)_+^2), on a grid of 2000 risks and the law's end."""
    mu = np.linspace(0.0, 1.0, 2001)[1:, None]
    k = np.arange(n + 1.0)[None, :]
    log_pmf = stats.binom.logpmf(k, n, np.minimum(mu, 1.0))
    exponent = 2.0 * (n - 1) * np.maximum(mu - k / n, 0.0) ** 2
    return float(np.exp(np.logaddexp.reduce(log_pmf + exponent, axis=1)).max())


def check_gap_as_epsilon(*, epsilon: Bound = generalization_gap_bound) -> CheckReport:
    """The PAC-Bayes value, used as the largest deviation of a score."""
    p1, sizes = 0.3, np.array([2.0, 4.0, 8.0])
    value = float(epsilon(0.0, num_samples=800_000, delta=0.05))
    # R_phi = 1 - R*: its gap is 0 on any data, and it selects a wrong path whenever there is one.
    bounds = accuracy_lower_bound(coverage(p1, sizes), 1.0, value, num_candidates=sizes, delta=0.05)
    return judge(
        claim="The bound on the generalization gap bounds the deviation of scores, so it may stand "
        "for epsilon in the accuracy theorem (n = 800 000, delta = .05 and KL = 0 are our choice).",
        source="section 4.2, 'Define this upper-bound as epsilon'",
        measured=exact(p1**sizes),
        at_least=bounds,
        where=lambda i: f"R_phi = 1 - R*, p1=.3, N={sizes[i]:.0f}, gap bound {value:.5f}; accuracy",
        remedy="Pr[some |R_phi - R*| > eps] <= N L_D / eps (deviation_probability)",
    )


def check_deviation_probability(*, bound: Bound = deviation_probability) -> CheckReport:
    """The valid step from a risk to deviations."""
    # Each path deviates by `size` with probability q, else not at all: risk q * size.
    q, size, n = (
        axis.ravel()
        for axis in np.meshgrid([1e-6, 1e-3, 0.05, 0.5, 1.0], [0.05, 0.1, 0.7, 1.0], [1.0, 4, 64])
    )
    return judge(
        claim="Pr[some of N paths has |R_phi - R*| >= eps] <= N E|R_phi - R*| / eps.",
        source="section 4.2, repaired here",
        measured=exact(coverage(q, n)),
        at_most=bound(q * size, size, num_candidates=n),
        where=lambda i: f"deviations of {size[i]} with probability {q[i]}, N={n[i]:.0f}",
        proof="Markov's inequality and a union over paths",
    )


def check_small_risk(*, share: float = 0.007) -> CheckReport:
    """A search with large N finds the rare paths about which a PRM is wrong."""
    p1, sizes = 0.3, np.array([4.0, 16, 64, 256, 1024])
    # Exact, except for wrong paths of probability `share`, which it scores highest of all.
    accuracy = (1.0 - share) ** sizes - (1.0 - share - p1) ** sizes
    return judge(
        claim="A PRM of small risk (exact but for 0.7 % of the paths) keeps its accuracy at N = 16 "
        "when N grows.",
        source="section 4.2, 'Define this upper-bound as epsilon'; our example",
        measured=exact(accuracy[2:]),
        at_least=accuracy[1],
        where=lambda i: f"p1=.3, N={sizes[i + 2]:.0f} against 16; accuracy",
        remedy="the chance that some path deviates grows like N L_D",
    )


def check_absolute_loss(
    *, loss: Callable[[np.ndarray, float], np.ndarray] = lambda score, label: np.abs(score - label)
) -> CheckReport:
    """|R - y| is not minimised by the true reward."""
    scores, truth = np.linspace(0.0, 1.0, 101), 0.6
    risks = truth * loss(scores, 1.0) + (1.0 - truth) * loss(scores, 0.0)
    return judge(
        claim="The loss |R - y| is smallest at the true reward (R* = .6).",
        source="here, of the loss of section 4.1",
        measured=exact(risks),
        at_least=risks[60],
        where=lambda i: f"R={scores[i]:.2f} against R=.60; risk",
        remedy="proper losses: (R - y)^2, cross-entropy",
    )


def _violations(bound: Bound, sizes: Sequence[int], **texts: Any) -> CheckReport:
    """A bound on the risk, with the arguments (risk, n, delta), against every true risk."""
    ratios = [
        worst_violations(lambda risk, n, d=delta: bound(risk, n, d), sizes) / delta
        for delta in _DELTAS
    ]
    return judge(
        measured=exact(np.concatenate(ratios)),
        at_most=1.0,
        where=lambda i: f"n={sizes[i % len(sizes)]}, delta={_DELTAS[i // len(sizes)]:g}",
        **texts,
    )


def _memorised(gaps: np.ndarray, limit: float, where: str, **texts: Any) -> CheckReport:
    """How often the gap of a learner that remembers its labels is beyond a bound."""
    return judge(
        measured=shares((gaps > limit).sum(), gaps.size),
        at_most=_DELTA,
        where=lambda i: where + "; share of trainings beyond the bound",
        **texts,
    )


def worst_violations(
    risk_bound: Callable[[np.ndarray, np.ndarray], np.ndarray], sizes: Sequence[int]
) -> np.ndarray:
    """sup over risks of Pr[risk > bound] for one hypothesis with a 0/1 loss, one value per n.

    The number of errors k on n examples is binomial. A bound that grows with k is violated at risk
    mu iff k is at most some k0, so the worst risk is just above one of the bound's values: their
    enumeration is exact over all risks. By convexity, no other law of losses is worse.

    Args:
        risk_bound: from the empirical risk k / n, in which it does not decrease, and n.
        sizes: values of n.
    """
    n = np.repeat(np.array(sizes, np.float64), sizes)
    starts = np.cumsum([0, *sizes[:-1]])
    k = np.arange(n.size, dtype=np.float64) - np.repeat(starts, sizes)
    values = risk_bound(k / n, n)
    # Pr[Bin(n, p) <= k] is an incomplete beta integral.
    tail = special.betainc(n - k, k + 1.0, 1.0 - np.clip(values, 0.0, 1.0))
    violated = np.where(values < 1.0, tail, 0.0)
    return np.maximum.reduceat(violated, starts)


_BITS = 52
"""Bits of a mantissa in float64."""


def memoriser_gaps(*, seed: int, num_inputs: int, num_samples: int, trials: int) -> np.ndarray:
    """Gap L_D - L_S of a learner that remembers labels of a fair coin and says 0 otherwise."""
    labels, _, seen = _trainings(seed, num_inputs, num_samples, trials)
    return (labels & ~seen).mean(axis=1)


def stored_label_gaps(*, seed: int, num_weights: int, num_samples: int, trials: int) -> np.ndarray:
    """The same learner with its memory in the mantissas of float64 weights in [1, 2)."""
    labels, drawn, seen = _trainings(seed, _BITS * num_weights, num_samples, trials)
    place = np.arange(_BITS, dtype=np.uint64)
    memory = (labels & seen).reshape(trials, num_weights, _BITS).astype(np.uint64)
    exponent_of_one = np.uint64(1023 << _BITS)
    weights = ((memory << place).sum(axis=2, dtype=np.uint64) | exponent_of_one).view(np.float64)

    # The reward model: input i reads bit i % 52 of weight i // 52.
    stored = weights.view(np.uint64)[:, :, None] >> place
    wrong = (stored & np.uint64(1)).astype(bool).reshape(labels.shape) != labels
    return wrong.mean(axis=1) - np.take_along_axis(wrong, drawn, axis=1).mean(axis=1)


def _trainings(
    seed: int, num_inputs: int, num_samples: int, trials: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of all inputs, inputs drawn, and whether each was drawn; a row for each training."""
    rng = np.random.default_rng(seed)
    labels = rng.random((trials, num_inputs)) < 0.5
    drawn = rng.integers(0, num_inputs, (trials, num_samples))
    seen = np.zeros(labels.shape, bool)
    np.put_along_axis(seen, drawn, True, axis=1)
    return labels, drawn, seen
