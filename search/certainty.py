"""Certainty of a path: one number per path that methods without a PRM read.

A token's certainty is computed from the policy's distribution at the place where the token was
sampled, at temperature 1 and without truncation. It does not depend on which token was drawn. A
strategy names the kind of token certainty, and how the tokens of a path make one number. The bridge
to the models computes both, so the state holds one number per row.
"""

from __future__ import annotations

from dataclasses import dataclass

TOKEN_CERTAINTIES = ("top", "all")
"""A token's certainty, >= 0.

"top": minus the mean log-probability of the 20 most likely tokens, the token confidence of
DeepConf. "all": -1/V sum_j log(V p_j) over all V tokens, the self-certainty of Kang et al.
"""

SUMMARIES = ("mean", "tail", "bottom", "least")
"""How the certainties of a path's tokens make one number.

"mean": of all tokens. "tail": of the last `window` tokens. With the means of all `window`
consecutive tokens, or of all tokens of a path that has fewer: "least" is the smallest of them, and
"bottom" the mean of the lowest tenth of them, rounded down, at least one.
"""


@dataclass(frozen=True)
class Certainty:
    """What `Paths.certainty` is: the fact that a strategy needs from its policy.

    Attributes:
        token: kind of the token certainty.
        summary: from the tokens of a path to one number.
        window: tokens of a window, >= 1; no effect with "mean".

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
