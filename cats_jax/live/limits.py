"""The limits of a question on tokens and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from .ledger import Ledger
from .results import Status


@dataclass(frozen=True)
class Limits:
    """Limits per question; None is no limit.

    Attributes:
        max_tokens: tokens sampled by the policy plus tokens computed by the PRM.
        max_seconds: seconds spent on the question, as in its ledger.
    """

    max_tokens: int | None = None
    max_seconds: float | None = None

    def exceeded(self, ledger: Ledger) -> tuple[Status, str] | None:
        """The limit that a question has reached, with the reason in one line, or None."""
        tokens, seconds = ledger.tokens, ledger.seconds
        if self.max_tokens is not None and tokens >= self.max_tokens:
            return "max_tokens", f"{tokens} tokens, limit {self.max_tokens}"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return "max_seconds", f"{seconds:.1f} s spent, limit {self.max_seconds}"
        return None
