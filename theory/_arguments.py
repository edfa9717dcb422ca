"""Checks of the arguments, which become float64; errors name argument, value and assumption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# The run-time checks of the tests find neither floats nor tuples in `ArrayLike`, and for an array
# they are 40 times as fast if arrays come first.
Numbers = npt.NDArray[Any] | float | int | Sequence[Any] | npt.ArrayLike

Array = npt.NDArray[np.float64]
# The result of a numpy computation: without axes a scalar, else an array.
Floats = np.float64 | Array
Flags = np.bool_ | npt.NDArray[np.bool_]


def floats(name: str, value: Numbers) -> Array:
    """As float64, with 0 for -0; NaN and infinity pass."""
    try:
        # A gap divided by an epsilon of -0 would be minus infinity.
        return np.asarray(np.asarray(value, np.float64) + 0.0)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name}={value!r:.80}: a number or an array of numbers within float64 is needed"
        ) from error


def real(name: str, value: Numbers) -> Array:
    """As float64, without NaN; infinity passes."""
    array = floats(name, value)
    require(name, array, ~np.isnan(array), "is not a number")
    return array


def checked(name: str, value: Numbers, holds: Callable[[Array], Flags], assumption: str) -> Array:
    """As `real`, with a condition on every element."""
    array = real(name, value)
    require(name, array, holds(array), assumption)
    return array


def nonnegative(name: str, value: Numbers, assumption: str) -> Array:
    """In [0, inf]."""
    return checked(name, value, lambda array: array >= 0, assumption)


def magnitude(name: str, value: Numbers) -> Array:
    """In [0, inf): a gap, a deviation."""
    array = nonnegative(name, value, "is a size and can't be negative")
    return checked(name, array, np.isfinite, "must be finite")


def positive(name: str, value: Numbers) -> Array:
    """In (0, inf)."""
    return checked(name, value, lambda x: (x > 0) & np.isfinite(x), "must be positive and finite")


def probability(name: str, value: Numbers) -> Array:
    """In [0, 1]."""
    return checked(name, value, lambda p: (p >= 0) & (p <= 1), "a probability lies in [0, 1]")


def risk(name: str, value: Numbers) -> Array:
    """The mean of a loss in [0, 1]."""
    array = nonnegative(name, value, "the mean of a loss in [0, 1] can't be negative")
    assumption = (
        "the bound is for losses in [0, 1], and a cross-entropy can exceed 1; "
        "take the mean of |r - y|, which is at most 1 - exp(-cross-entropy)"
    )
    return checked(name, array, lambda mean: mean <= 1, assumption)


def divergence(name: str, value: Numbers) -> Array:
    """KL(Q || P) in nats, in [0, inf]."""
    return nonnegative(name, value, "a Kullback-Leibler divergence can't be negative")


def neg_log_probability(name: str, value: Numbers) -> Array:
    """-ln P of a probability P, in [0, inf]."""
    return nonnegative(
        name,
        value,
        "-ln P of a probability can't be negative; P must be the probability that the prior gives "
        "to this one predictor, not the value of a density (for which KL is infinite)",
    )


def count(name: str, value: Numbers, minimum: int, assumption: str) -> Array:
    """A whole number; float64 is exact up to 2**53, so no integer type overflows."""
    array = checked(name, value, lambda x: x >= minimum, assumption)
    return checked(
        name, array, lambda x: np.isfinite(x) & (x == np.floor(x)), "must be a finite whole number"
    )


def num_samples(value: Numbers) -> Array:
    """n of a PAC-Bayes bound."""
    return count("num_samples", value, 2, "n >= 2 independent examples are needed")


def num_candidates(value: Numbers) -> Array:
    """N of the accuracy theorem."""
    return count("num_candidates", value, 1, "N >= 1 candidates are needed")


def confidence(value: Numbers) -> Array:
    """Delta of a PAC-Bayes bound, in (0, 1]."""
    assumption = "the bound holds with probability 1 - delta, delta in (0, 1]"
    return checked("delta", value, lambda delta: (delta > 0) & (delta <= 1), assumption)


def failure(value: Numbers) -> Array:
    """Delta of an accuracy bound, in [0, 1)."""
    assumption = "the deviations are bounded with probability 1 - delta, delta in [0, 1)"
    return checked("delta", value, lambda delta: (delta >= 0) & (delta < 1), assumption)


def error_rate(value: Numbers) -> Array:
    """Delta of a certificate, in (0, 1)."""
    assumption = "a certificate fails with probability delta at most, delta in (0, 1)"
    return checked("delta", value, lambda delta: (delta > 0) & (delta < 1), assumption)


def inner_mean(name: str, value: Numbers) -> Array:
    """A mean that is tested, in (0, 1)."""
    return checked(name, value, lambda m: (m > 0) & (m < 1), "a mean in (0, 1) is put to the test")


def one(name: str, checked_value: Array) -> float:
    """The number of an argument that is checked already and can't be a list."""
    if checked_value.size != 1:
        raise ValueError(f"{name} has shape {list(checked_value.shape)}: one number is needed")
    return float(checked_value.item())


def one_error_rate(value: Numbers) -> float:
    """Delta of one certificate, in (0, 1)."""
    return one("delta", error_rate(value))


def one_inner_mean(name: str, value: Numbers) -> float:
    """A mean that is tested, in (0, 1), the same for all values."""
    return one(name, inner_mean(name, value))


def one_target(value: Numbers) -> float:
    """A target that is tested from both sides, in (0, 1), with a complement below 1."""
    target = one_inner_mean("target", value)
    require("target", np.float64(target), np.bool_(1 - target < 1), "1 - target is 1 in float64")
    return target


def sample(name: str, values: Numbers, low: float = 0.0) -> Array:
    """Independent values in [low, 1], one per question: f64[n], n >= 1."""
    array = real(name, values)
    require_list(name, array)
    return checked(name, array, lambda x: (x >= low) & (x <= 1), f"values lie in [{low:g}, 1]")


def answers(name: str, values: Numbers) -> Array:
    """Verdicts, 0 or 1, one per question: f64[n], n >= 1."""
    array = sample(name, values)
    if not np.isin(array, (0.0, 1.0)).all():
        raise ValueError(f"{name}: each value must be 0 or 1, one answer a question")
    return array


def rising(name: str, grid: Array) -> Array:
    """A list of rising numbers, which are checked already: f64[G], G >= 1."""
    if grid.ndim != 1 or not grid.size or not (np.diff(grid) > 0).all():
        raise ValueError(f"{name}={grid.tolist()!r:.80}: must be a list of rising numbers")
    return grid


def require_list(name: str, array: Array) -> None:
    """Raises ValueError unless the array has one axis and an element."""
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} has shape {list(array.shape)}: a list of values is needed")


def successes(name: str, value: Numbers, trials_name: str, trials: Numbers) -> tuple[Array, Array]:
    """A number of successes in a number of trials, at least 1; broadcast against each other."""
    hits = count(name, value, 0, "a number of times can't be negative")
    total = count(trials_name, trials, 1, "at least one trial is needed")
    hits, total = np.broadcast_arrays(hits, total)
    require(name, hits, hits <= total, f"can't be more than {trials_name}")
    return hits, total


def gap_and_epsilon(gap: Numbers, epsilon: Numbers) -> tuple[Array, Array]:
    """A gap and a bound on the deviations, not both 0; broadcast against each other."""
    gap, epsilon = np.broadcast_arrays(magnitude("gap", gap), magnitude("epsilon", epsilon))
    require("gap", gap, (gap > 0) | (epsilon > 0), "gap / epsilon is 0 / 0, epsilon is 0 too")
    return gap, epsilon


def require(name: str, values: Floats, holds: Flags, assumption: str) -> None:
    """Raises ValueError for the first element that breaks the assumption."""
    if np.all(holds):
        return
    index = tuple(int(axis) for axis in np.argwhere(~np.asarray(holds))[0])
    place = f"[{', '.join(map(str, index))}]" if index else ""
    value = repr(float(np.asarray(values)[index])).removesuffix(".0")
    raise ValueError(f"{name}{place}={value}: {assumption}")


def ratio(gap: Floats, epsilon: Floats) -> Floats:
    """t = gap / epsilon; infinite for exact scores.

    Bounds are functions of t: gap**2 / epsilon**2 underflows where (gap / epsilon)**2 does not.
    """
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(gap / epsilon)


def plain(values: Numbers) -> Floats:
    """The array, as a number if it has no axes."""
    return np.asarray(values, np.float64)[()]
