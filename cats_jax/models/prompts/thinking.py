"""How a model thinks before it answers, as data of a policy format."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import BadInputError, quoted
from ...grading.thinking import TAGS

MAX_TOKENS = 1 << 20
"""Largest number of tokens of a thought."""

MAX_WAITS = 64
"""Largest number of times that a thought is prolonged."""


@dataclass(frozen=True, slots=True)
class Thinking:
    r"""The thought of a policy: its tags, its cut into steps, and the tokens that it may have.

    A path begins with one thought. If the prompt does not open it, the start tag and a newline are
    put before the first token. The step in which the thought ends also holds the answer's first
    step, so that it has a text to score. Budget forcing is that of s1 (Muennighoff et al., 2025,
    arXiv:2501.19393): a thought that reaches the budget is closed, and one that ends early may be
    prolonged. Unlike there, a thought that ends with the end-of-text token is not prolonged.

    Attributes:
        budget: largest number of tokens of a thought, with the end tag and `wait`, without the
            start tag that was put in; at the budget `close` follows.
        start, end: the tags, a pair of `grading.thinking.TAGS`, so that no answer is read from a
            thought.
        close: text that ends a thought at the budget; it contains `end` once. "" stands for the end
            tag on a line of its own, and a blank line.
        waits: number of times that `wait` replaces the end tag.
        wait: text that prolongs a thought.
        step_separator: text that closes a step within a thought; None for no such text.
        step_tokens: number of tokens at which a step within a thought is cut; None for no cut.

    Raises:
        BadInputError: a value breaks its rule.
    """

    budget: int
    start: str = "<think>"
    end: str = "</think>"
    close: str = ""
    waits: int = 0
    wait: str = "Wait"
    step_separator: str | None = None
    step_tokens: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.budget <= MAX_TOKENS:
            self._refuse("budget", f"must be a number from 1 to {MAX_TOKENS}")
        if (self.start, self.end) not in TAGS:
            pairs = ", ".join(f"{start} {end}" for start, end in TAGS)
            self._refuse("end", f"with start={self.start!r} must be one of the pairs {pairs}")
        if not self.close:
            object.__setattr__(self, "close", f"\n{self.end}\n\n")
        if self.close.count(self.end) != 1:
            self._refuse("close", f"must contain {self.end!r} once")
        if not 0 <= self.waits <= MAX_WAITS:
            self._refuse("waits", f"must be a number from 0 to {MAX_WAITS}")
        if not self.wait.strip() or self.end in self.wait:
            self._refuse("wait", f"must be a text without {self.end!r}, such as 'Wait'")
        separator = self.step_separator
        if separator is not None and (not separator or separator in self.end):
            self._refuse("step_separator", f"must be a text that is not part of {self.end!r}")
        if self.step_tokens is not None and not 1 <= self.step_tokens <= self.budget:
            self._refuse("step_tokens", f"must be a number from 1 to the budget, {self.budget}")
        if self.waits and self.in_steps:
            # How often a thought was prolonged would have to be read from its text.
            self._refuse(
                "waits", "needs a thought in one step: leave step_separator and step_tokens out"
            )

    @property
    def in_steps(self) -> bool:
        """Whether a thought may have several steps."""
        return self.step_separator is not None or self.step_tokens is not None

    @property
    def most_tokens(self) -> int:
        """Largest number of tokens of a thought with its tags; a byte of these is a token."""
        return self.budget + len(f"{self.start}\n{self.close}".encode())

    def _refuse(self, key: str, rule: str) -> None:
        raise BadInputError(f"thinking: {key}={quoted(getattr(self, key))} {rule}")
