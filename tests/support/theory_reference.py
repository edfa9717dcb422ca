"""The formulas of the theory in hundreds of digits, written down once more and nothing else.

Independent of `theory`: plain definitions in mpmath, no rearrangement, so that whatever float64
loses shows. Numbers come in as the float64 values they are.
"""

import functools
import itertools
import math

import mpmath
import numpy as np
from mpmath import mp

# 1 - (1 - p)**N for p = 1e-300 needs them.
mp.dps = 700

mpf = mpmath.mpf


def assert_close(value, reference, rel=1e-11, scale=0.0):
    """`value` within `rel` of `reference`; infinite together, tiny together.

    A final difference of float64 numbers of the size `scale` carries their rounding.
    """
    assert isinstance(value, (np.float64, float)), type(value)
    if mpmath.isinf(reference):
        assert math.isinf(value), (value, reference)
    elif abs(reference) < mpf(2.3e-308):  # subnormal: float64 has no relative precision there
        assert abs(value) < 2.3e-308, (value, reference)
    else:
        error = max(abs(mpf(float(value)) - reference) - mpf(scale) * 2**-52, 0) / abs(reference)
        assert error <= rel, (value, mpmath.nstr(reference, 20), mpmath.nstr(error, 3))


def _all(*values):
    return tuple(mpf(value) for value in values)


# PAC-Bayes


def gap_bound(kl, n, delta):
    kl, n, delta = _all(kl, n, delta)
    return mpmath.sqrt((kl + mpmath.log(n / delta)) / (2 * (n - 1)))


def occam(risk, cost, n, delta):
    """For n >= 1, where the other bounds on L_D from training data ask for n >= 2."""
    risk, cost, n, delta = _all(risk, cost, n, delta)
    return risk + mpmath.sqrt((cost + mpmath.log(1 / delta)) / (2 * n))


def occam_violations(prior, n, delta):
    """Sum over atoms of the worst probability that the risk exceeds `occam`, by enumeration.

    The loss is 0 or 1, so k of n examples are wrong with a binomial probability, and for each k the
    worst risk lies just above the bound. At most delta if the bound is true for all atoms at once.
    """
    total = mpf(0)
    with mp.workdps(40):
        for mass in prior:
            cost = -mpmath.log(mpf(mass))
            limits = [occam(mpf(k) / n, cost, n, delta) for k in range(n + 1)]
            total += max(
                (
                    sum(mpmath.binomial(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))
                    for k, p in enumerate(limits)
                    if p < 1
                ),
                default=mpf(0),
            )
    return total


def maurer_rate(kl, n, delta):
    kl, n, delta = _all(kl, n, delta)
    return (kl + mpmath.log(2 * mpmath.sqrt(n) / delta)) / n


def catoni(risk, kl, n, delta, c):
    risk, kl, n, delta, c = _all(risk, kl, n, delta, c)
    exponent = -c * risk - (kl + mpmath.log(1 / delta)) / n
    return (1 - mpmath.exp(exponent)) / (1 - mpmath.exp(-c))


def lambda_bound(risk, kl, n, delta, lam):
    risk, lam = _all(risk, lam)
    return risk / (1 - lam / 2) + maurer_rate(kl, n, delta) / (lam * (1 - lam / 2))


def tolstikhin_seldin(risk, kl, n, delta):
    risk, rate = mpf(risk), maurer_rate(kl, n, delta)
    return risk + mpmath.sqrt(2 * risk * rate) + 2 * rate


def kl_bernoulli(q, p):
    q, p = _all(q, p)
    total = mpf(0)
    for own, other in ((q, p), (1 - q, 1 - p)):
        if own > 0:
            total += own * mpmath.log(own / other) if other > 0 else mpf("inf")
    return total


def assert_kl_inverse(p, q, c, rel=1e-11):
    """That p is the upper inverse, by the definition: kl(q || .) crosses c within rel of p."""
    p, q, c = mpf(float(p)), mpf(q), mpf(c)
    assert q * (1 - mpf(rel)) <= p <= 1
    below, above = p * (1 - mpf(rel)), p * (1 + mpf(rel))
    assert below <= q or kl_bernoulli(q, below) <= c, mpmath.nstr(p, 20)
    assert above >= 1 or kl_bernoulli(q, above) >= c, mpmath.nstr(p, 20)


def assert_clopper_pearson(p, errors, m, delta, rel=1e-11):
    """That `errors` or fewer of m have probability delta at p, within rel of p."""
    p = mpf(float(p))

    def tail(p):
        return sum(mpmath.binomial(m, k) * p**k * (1 - p) ** (m - k) for k in range(errors + 1))

    with mp.workdps(40):
        assert tail(p * (1 - mpf(rel))) >= mpf(delta) >= tail(p * (1 + mpf(rel)))


def log_binomial(n, k):
    with mp.workdps(50):
        n, k = _all(n, k)
        return mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)


# Misranking


def exponential(gap, epsilon, divisor):
    gap, epsilon = _all(gap, epsilon)
    return mpf(0) if epsilon == 0 else mpmath.exp(-((gap / epsilon) ** 2) / divisor)


def bernstein(gap, epsilon, sd):
    gap, epsilon, sd = _all(gap, epsilon, sd)
    return mpmath.exp(-(gap**2) / (4 * sd**2 + mpf(2) / 3 * epsilon * gap))


def misranking_uniform(gap, epsilon, n):
    gap, epsilon, n = _all(gap, epsilon, n)
    if gap > 2 * epsilon:
        return mpf(0)
    half = gap / epsilon / 2
    return 1 - half - (1 - half**n) / n


def misranking_discrete(values, probabilities, gap, n):
    """By enumeration of every outcome of n independent deviations; exact numbers wanted."""
    total = 0
    for outcome in itertools.product(range(len(values)), repeat=n):
        best, *others = (values[index] for index in outcome)
        if any(best + gap <= other for other in others):
            total += math.prod(probabilities[index] for index in outcome)
    return total


def misranking_truncated_gaussian(gap, epsilon, scale, n):
    with mp.workdps(30):
        gap, epsilon, scale = _all(gap, epsilon, scale)
        if gap > 2 * epsilon or n == 1:
            return mpf(0)

        # The quadrature stops at an absolute error.
        size = mpmath.exp(-((gap / scale) ** 2) / 4)

        def integrand(x):
            density, above = _truncated_gaussian(x, gap, epsilon, scale)
            return density * -mpmath.expm1((n - 1) * mpmath.log1p(-min(above, 1))) / size

        low, high = -epsilon, epsilon - gap
        inner = {-gap / 2 + k * scale for k in range(-12, 13)} | {k * scale for k in range(-12, 5)}
        inner |= {high - (high - low) / 2**k for k in range(12)}
        points = sorted({low, high} | {x for x in inner if low < x < high})
        return size * mpmath.quad(integrand, points, method="gauss-legendre")


@functools.lru_cache(maxsize=1 << 16)  # one pair and scale; every n has the same points
def _truncated_gaussian(x, gap, epsilon, scale):
    """The density at x, and the probability to lie above x + gap."""
    mass = mpmath.erf(epsilon / scale / mpmath.sqrt(2))
    # As tails, so that nothing is lost far out.
    tail = mpmath.erfc((x + gap) / scale / mpmath.sqrt(2)) - mpmath.erfc(
        epsilon / scale / mpmath.sqrt(2)
    )
    return mpmath.npdf(x, 0, scale) / mass, tail / 2 / mass


# Accuracy and budget


def coverage(p1, n):
    p1, n = _all(p1, n)
    return 1 - (1 - p1) ** n


def paper_accuracy(covered, gap, epsilon, n, delta):
    covered, n, delta = _all(covered, n, delta)
    return covered * (1 - delta - (n - 1) * exponential(gap, epsilon, 8))


def margin_accuracy(p1, gap, epsilon, n, delta):
    p1, gap, epsilon, n, delta = _all(p1, gap, epsilon, n, delta)
    if gap <= epsilon:
        return -delta
    kept = p1 if gap > 2 * epsilon else p1 * (1 - epsilon / gap)
    return 1 - (1 - kept) ** n - delta


def two_level_discrete(p1, gap, n):
    """Accuracy for deviations of +1 or -1 and ties as errors, by enumeration."""
    kinds = [(True, 1), (True, -1), (False, 1), (False, -1)]
    weight = {True: p1 / 2, False: (1 - p1) / 2}
    total = 0
    for paths in itertools.product(kinds, repeat=n):
        right = [gap + sign for correct, sign in paths if correct]
        wrong = [sign for correct, sign in paths if not correct]
        if right and (not wrong or max(right) > max(wrong)):
            total += math.prod(weight[correct] for correct, _ in paths)
    return total


def two_level_uniform(p1, gap, epsilon, n):
    """By the number of correct paths and the law of the highest wrong score."""
    with mp.workdps(30):
        p1, gap, epsilon = _all(p1, gap, epsilon)
        shift = gap / (2 * epsilon)
        total = p1**n
        for k in range(1, n):
            wrong = n - k
            if shift >= 1:
                beaten = mpf(0)
            else:
                # The highest wrong score is x, in units of the width; all correct ones are below.
                beaten = mpf(
                    mpmath.quad(
                        lambda x, wrong=wrong, k=k: wrong * x ** (wrong - 1) * (x - shift) ** k,
                        [shift, 1],
                    )
                )
            total += mpmath.binomial(n, k) * p1**k * (1 - p1) ** wrong * (1 - beaten)
        return total


def paper_derivative(n, p1, gap, epsilon, delta):
    """Derivative in n of (1 - (1 - p1)**n) (1 - delta - (n - 1) c)."""
    n, p1, delta = _all(n, p1, delta)
    c = exponential(gap, epsilon, 8)
    rate = -mpmath.log(1 - p1)
    missed = mpmath.exp(-rate * n)
    return rate * missed * (1 - delta - (n - 1) * c) - (1 - missed) * c
