"""How a model thinks before it answers, as data of a policy format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import BadInputError, quoted
from ...grading.canonical import canonical
from ...grading.thinking import TAGS

MAX_TOKENS = 1 << 20
"""Largest number of tokens of a thought."""

MAX_WAITS = 64
"""Largest number of times that a thought is prolonged."""

MAX_PROBES = 1 << 10
"""Largest number of equal answers to probes, and of tokens of one."""

HESITATIONS = ("wait", "hold", "but", "okay", "no", "hmm")
"""Texts that make the answer to a probe uncertain, in lower case, also within words; as in
Dynasor's code."""


@dataclass(frozen=True, slots=True)
class Thinking:
    r"""The thought of a policy: its tags, its cut into steps, and the tokens that it may have.

    A path begins with one thought. If the prompt does not open it, the start tag and a newline are
    put before the first token. The step in which the thought ends also holds the answer's first
    step, so that it has a text to score. Budget forcing is that of s1 (Muennighoff et al., 2025,
    arXiv:2501.19393): a thought that reaches the budget is closed, and one that ends early may be
    prolonged. Unlike there, a thought that ends with the end-of-text token is not prolonged, the
    end tag may follow `wait` at once, and "Final Answer:" stands in `close` only if you put it
    there.

    With `probe_every` a thought is also closed as soon as the policy is certain of its answer, by
    the rule of Dynasor-CoT (Fu et al., 2024, arXiv:2412.20993, and its code): after every so many
    tokens a probe follows the thought, and the policy continues it by a few tokens. What stands
    before the first unpaired brace is the answer. If the last `probes` answers are given and equal,
    and no `HESITATIONS` stand in what was sampled for them, the thought is closed. Probes and their
    answers are charged, and are in no path. Unlike there, a probe is not sampled beside the next
    tokens, but before them; answers are equal if their canonical spellings are
    (`grading.canonical`); a greedy thought has greedy probes; and the policy writes the answer
    after the thought, so that a PRM has steps to read, where Dynasor puts in the last probe's
    answer.

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
        probe_every: number of tokens of the thought after which it is probed; None for no probes.
        probes: number of equal answers to probes, one after the other, that close the thought.
        probe: text of a probe; it ends within the braces of an answer.
        probe_tokens: largest number of tokens of an answer to a probe.

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
    probe_every: int | None = None
    probes: int = 3
    probe: str = "\n\n**Final Answer**\n\n\\[ \\boxed{"
    probe_tokens: int = 20

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
        for key, value in (("step_tokens", self.step_tokens), ("probe_every", self.probe_every)):
            if value is not None and not 1 <= value <= self.budget:
                self._refuse(key, f"must be a number from 1 to the budget, {self.budget}")
        for key in ("probes", "probe_tokens"):
            if not 1 <= getattr(self, key) <= MAX_PROBES:
                self._refuse(key, f"must be a number from 1 to {MAX_PROBES}")
        if not self.probe.endswith("{") or self.end in self.probe:
            self._refuse("probe", f"must end with '{{', as \\boxed{{ does, without {self.end!r}")
        # A path does not hold the answers to earlier probes, and only its text would show how often
        # a thought was prolonged.
        for key in ("probe_every", "waits"):
            if getattr(self, key) and self.in_steps:
                one = "needs a thought in one step: leave step_separator and step_tokens out"
                self._refuse(key, one)

    def answer_of(self, text: str) -> str | None:
        """The answer in the text sampled after a probe; None without one, or if it hesitates."""
        if any(word in text.lower() for word in HESITATIONS):
            return None
        depth = 0
        for place, character in enumerate(text):
            depth += (character == "{") - (character == "}")
            if depth < 0:
                return canonical(text[:place]) or None
        return None

    def is_certain(self, answers: Sequence[str | None]) -> bool:
        """Whether the last `probes` of the answers to all probes so far are given and equal."""
        last = answers[-self.probes :]
        return len(last) == self.probes and last[0] is not None and len(set(last)) == 1

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
