"""Certainty of a path: one number per path that methods without a PRM read.

A token's certainty depends on the distribution from which the token was sampled, at temperature 1
and without truncation, and not on the token. A strategy names the kind of token certainty, and how
the tokens of a path make one number. The bridge to the models computes this number.
"""

from __future__ import annotations

from dataclasses import dataclass

TOKEN_CERTAINTIES = ("top", "all")
"""A token's certainty, >= 0.

"top": minus the mean log-probability of the 20 most likely tokens, the token confidence of
DeepConf. "all": -1/V sum_j log(V p_j) over all V tokens, the self-certainty of Kang et al."""

SUMMARIES = ("mean", "tail", "bottom", "least")
"""How the certainties of a path's tokens make one number.

"mean": mean of all tokens. "tail": mean of the last `window` tokens. The other two read the means
of all runs of `window` consecutive tokens (a shorter path is one run): "least" is the smallest of
these means, "bottom" the mean of their lowest tenth (rounded down, at least one)."""


@dataclass(frozen=True)
class Certainty:
    """The definition of `Paths.certainty` for a strategy.

    Attributes:
        token: kind of the token certainty.
        summary: how the tokens of a path make one number.
        window: number of tokens, >= 1; no effect with "mean".

    Raises:
        ValueError: a value is out of range or unknown.
    """

    token: str
    summary: str = "mean"
    window: int = 2048

    def __post_init__(self) -> None:
        for name, value, known in (
            ("token", self.token, TOKEN_CERTAINTIES),
            ("summary", self.summary, SUMMARIES),
        ):
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
        if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 1:
            raise ValueError(f"window must be an integer >= 1, got {self.window!r}")
