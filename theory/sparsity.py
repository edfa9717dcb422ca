"""Sparsity of a model's parameters (the paper's appendix G) and the bound with it (eq. 8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

import numpy as np
from scipy import stats

from . import _arguments as arguments
from ._arguments import Floats, Numbers
from .pac_bayes import generalization_gap_bound

THRESHOLD = 1e-4
"""A parameter w counts as zero if |w| is below this: our reading of "values smaller than" it."""

# Elements processed together, so that a tensor of any size needs little memory.
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Sparsity:
    """Counts per stored tensor.

    Attributes:
        sizes: name -> number of parameters.
        zeros: name -> how many of them are below the threshold.
    """

    sizes: Mapping[str, int]
    zeros: Mapping[str, int]

    @property
    def total(self) -> float:
        """Share of all parameters below the threshold, in [0, 1]."""
        return self.share(self.sizes)

    def share(self, names: Collection[str]) -> float:
        """The same share over the named tensors.

        Raises:
            ValueError: an unknown name, or no parameter at all (0 / 0).
        """
        unknown = [name for name in names if name not in self.sizes]
        if unknown:
            raise ValueError(f"names: {unknown} are not among the measured tensors")
        size = sum(self.sizes[name] for name in names)
        if size == 0:
            raise ValueError(f"names: {sorted(names)} hold no parameter, a share needs one")
        return sum(self.zeros[name] for name in names) / size


def measure_sparsity(arrays: Iterable[tuple[str, np.ndarray]]) -> Sparsity:
    """Count the parameters with |w| < 1e-4, tensor by tensor.

    Each stored tensor counts once: a tied head does not count again, an unused one counts.

    Args:
        arrays: (name, values) pairs of NumPy's floating types, any shape; consumed one at a time.
            Convert bfloat16 to float32 first.

    Raises:
        ValueError: a mapping, a repeated name, a tensor of another type, NaN or infinity.
    """
    sizes: dict[str, int] = {}
    zeros: dict[str, int] = {}
    if isinstance(arrays, Mapping):
        raise ValueError("arrays: (name, values) pairs are needed, such as weights.items()")
    for name, values in arrays:
        array = np.asarray(values)
        if name in sizes:
            raise ValueError(f"arrays: tensor {name!r} comes twice, each is to be counted once")
        if not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"arrays: tensor {name!r} has dtype {array.dtype}, expected floats")
        flat = array.reshape(-1)
        count = 0
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK].astype(np.float64)
            if not np.isfinite(block).all():
                raise ValueError(f"arrays: tensor {name!r} holds NaN or infinity")
            count += int(np.count_nonzero(np.abs(block) < THRESHOLD))
        sizes[name], zeros[name] = flat.size, count
    return Sparsity(sizes, zeros)


def sparsity_bound(
    num_nonzero: Numbers,
    num_params: Numbers,
    *,
    num_samples: Numbers,
    delta: Numbers,
    c: Numbers = 1.0,
) -> Floats:
    """The paper's bound on L_D - L_S for a sparse model (section 5.1, eq. 8).

    sqrt((c k ln d + ln(n / delta)) / (2 (n - 1))) with k nonzero ones among d parameters: the
    paper's bound for one predictor under a prior that gives it the probability exp(-c k ln d).

    The paper gives no value of c and does not define d; the number of parameters is our reading.
    The bound is true from c = `support_code_c` on, the c of a code that stores positions and
    values. It is false in general for c = 1, for example at d = k = 1, where the predictor costs
    nothing. The other parameters must be 0: if they only have |w| < 1e-4, the bound is about the
    pruned model. For models with billions of parameters, every true bound is far above 1.

    Args:
        num_nonzero: k, at least 0 and at most d.
        num_params: d, at least 1.
        num_samples: n, at least 2.
        delta: in (0, 1].
        c: at least 0; inf (no code fits) gives inf.

    Returns:
        The bound, unclipped; vacuous from 1 on (`is_vacuous_upper`).

    Raises:
        ValueError: an argument outside its range.
    """
    nonzero, params = _counts(num_nonzero, num_params)
    c = arguments.nonnegative("c", c, "a code length can't be negative")
    nats = nonzero * np.log(params)
    with np.errstate(over="ignore"):
        cost = np.where((nats > 0) | np.isinf(c), c * np.where(nats > 0, nats, 1.0), 0.0)
    return generalization_gap_bound(cost, num_samples=num_samples, delta=delta)


def support_code_length(
    num_nonzero: Numbers, num_params: Numbers, *, bits_per_value: Numbers
) -> Floats:
    """Length in nats of a code for a sparse model, a `neg_log_prior` for `occam_bound`.

    ln(d + 1) + ln C(d, k) + k b ln 2: the number of nonzeros, their positions, their b-bit values.

    Args:
        num_nonzero: k, at least 0 and at most d.
        num_params: d, at least 1.
        bits_per_value: b, of the stored number format, at least 0.

    Raises:
        ValueError: an argument outside its range.
    """
    nonzero, params = _counts(num_nonzero, num_params)
    bits = arguments.magnitude("bits_per_value", bits_per_value)
    positions = np.log1p(params) + _log_binomial(params, nonzero)
    return arguments.plain(positions + nonzero * bits * np.log(2))


def support_code_c(num_nonzero: Numbers, num_params: Numbers, *, bits_per_value: Numbers) -> Floats:
    """The c with which `sparsity_bound` is true: `support_code_length` / (k ln d).

    Args:
        num_nonzero: k, at least 0 and at most d.
        num_params: d, at least 1.
        bits_per_value: b, of the stored number format, at least 0.

    Returns:
        c; inf for k = 0 or d = 1, where c k ln d is 0 for every c.

    Raises:
        ValueError: an argument outside its range.
    """
    nonzero, params = _counts(num_nonzero, num_params)
    length = support_code_length(nonzero, params, bits_per_value=bits_per_value)
    with np.errstate(divide="ignore"):
        return arguments.plain(length / (nonzero * np.log(params)))


def _counts(num_nonzero: Numbers, num_params: Numbers) -> tuple[Floats, Floats]:
    params = arguments.count("num_params", num_params, 1, "a model has at least one parameter")
    nonzero = arguments.count("num_nonzero", num_nonzero, 0, "a count can't be negative")
    arguments.require("num_params", params, params <= 2**53, "float64 counts exactly up to 2**53")
    nonzero, params = np.broadcast_arrays(nonzero, params)
    arguments.require(
        "num_nonzero", nonzero, nonzero <= params, "no more than num_params can be nonzero"
    )
    return nonzero, params


def _log_binomial(n: Floats, k: Floats) -> Floats:
    """ln C(n, k), also for billions.

    Differences of log-gamma lose precision (3e-5 absolute at n = 7e9). The binomial probability
    C(n, k) p**k (1 - p)**(n - k) at p = k / n is precise, and -ln of the other factors is positive.
    """
    inner = (k > 0) & (k < n)
    n, k = np.where(inner, n, 2.0), np.where(inner, k, 1.0)
    # C(n, k) = C(n, n - k); with p <= 1/2, 1 - p is precise.
    k = np.minimum(k, n - k)
    p = k / n
    value = np.log(stats.binom.pmf(k, n, p)) + k * np.log(n / k) - (n - k) * np.log1p(-p)
    return np.where(inner, value, 0.0)
