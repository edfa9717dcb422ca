"""Bounds by the length of a description: atoms of a prior, and the nonzero weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..pac_bayes import dirac_bound, occam_bound
from ..paper import SPARSITY
from ..sparsity import sparsity_bound, support_code_length
from .report import CheckReport, exact, judge
from .trainings import memorised, memoriser_gaps, stored_label_gaps, worst_violations

_DELTA = 0.05

Bound = Callable[..., Any]
"""A bound on L_D from the length of a description, with the arguments of `dirac_bound`."""


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
    return memorised(
        gaps,
        limit,
        f"binary digits, n=100, mean gap {gaps.mean():.3f} against {limit:.3f}",
        delta=_DELTA,
        claim="For a continuous prior, ln 1/P may be the logarithm of its inverse density "
        "(density 1: 0).",
        source="section 5.1, 'prior density'",
        remedy="only atoms have a finite KL: a stored 16-bit model costs 16 ln 2 nats a weight",
    )


def check_sparsity_unit_constant(
    *, seed: int, bound: Callable[..., Any] = sparsity_bound
) -> CheckReport:
    """The bound with c = 1, against eight weights that store 416 labels."""
    num_weights, n = 8, 200
    gaps = stored_label_gaps(seed=seed, num_weights=num_weights, num_samples=n, trials=1000)
    limit = float(bound(num_weights, num_weights, num_samples=n, delta=_DELTA, c=1.0))
    return memorised(
        gaps,
        limit,
        f"labels in the mantissas, n={n}, mean gap {gaps.mean():.4f} against {limit:.4f}",
        delta=_DELTA,
        claim="The sparsity bound holds with c = 1 (8 nonzero float64 weights of 8).",
        source="section 5.1, eq. 8; c = 1 is our choice",
        remedy="c = code length / (nonzeros ln d)",
    )


def check_sparsity_code(*, code_length: Callable[..., Any] = support_code_length) -> CheckReport:
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


def check_sparsity_says_something(*, bound: Callable[..., Any] = sparsity_bound) -> CheckReport:
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
