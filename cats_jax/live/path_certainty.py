"""From the certainties of a path's tokens to the one number that a strategy reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import search

_BOTTOM = 0.1
"""Share of the windows in the summary "bottom", as published."""


def path_certainty(
    tokens: Sequence[float] | np.ndarray, certainty: search.certainty.Certainty
) -> float:
    """The certainty of a path, see `search.certainty.Certainty`.

    `tokens` are the certainties of the path's tokens in order, finite; at least one.
    """
    values = np.asarray(tokens, np.float64)
    window = certainty.window
    if certainty.summary == "mean":
        return float(values.mean())
    if certainty.summary == "tail":
        return float(values[-window:].mean())
    if len(values) < window:
        return float(values.mean())
    sums = np.cumsum(np.concatenate([[0.0], values]))
    means = np.sort((sums[window:] - sums[:-window]) / window)
    if certainty.summary == "least":
        return float(means[0])
    return float(means[: max(1, int(len(means) * _BOTTOM))].mean())
