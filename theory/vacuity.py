"""Whether a bound is vacuous; bounds are returned as they come, never clipped."""

from __future__ import annotations

import numpy as np

from . import _arguments as arguments
from ._arguments import Flags, Numbers


def is_vacuous_upper(bound: Numbers) -> Flags:
    """Whether an upper bound on a risk, a gap of risks or a probability is at least 1."""
    return np.asarray(arguments.real("bound", bound) >= 1)[()]


def is_vacuous_lower(bound: Numbers) -> Flags:
    """Whether a lower bound on an accuracy is at most 0."""
    return np.asarray(arguments.real("bound", bound) <= 0)[()]
