"""Read-outs of two words: by their probabilities, or from a critique that the model writes.

The model that writes a critique has read hostile text, so reading the critique must take bounded
time. Only one line of bounded length is read, by a pattern that can't run for long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import BadInputError, quoted

MAX_LINE = 120
"""Largest number of characters of a line with a verdict; a longer line states no verdict."""

BAR = "|"
"""Beginning of a line that was only shown to a judge; such a line states no verdict."""

MAX_PATTERN = 200
"""Largest number of characters of a pattern."""

MAX_TOKENS = 1 << 15
"""Largest limit for the tokens of a critique."""

MAX_SAMPLES = 64
"""Largest number of critiques of a step."""

# With at most these numbers of repetitions and choices, matching takes at most about
# MAX_LINE**3 / 6 * 2**3 steps.
_MAX_REPEATS, _MAX_CHOICES = 3, 6

_EMPHASIS = str.maketrans("", "", "*_`#")
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class TokenPair:
    """Read-out of a causal model: the softmax over the logits of two tokens.

    The score is the probability of `positive`.
    """

    positive: str
    negative: str


@dataclass(frozen=True, slots=True)
class WrittenVerdict(TokenPair):
    r"""Read-out of a judge that writes: the verdict on the last line of its critique.

    The score of a critique is 1 for the positive word, 0 for the negative word, and the number
    divided by `scale` for a number. A critique without such a line has no score. Only the last line
    that is not blank is read, so a judge may quote any text before it.

    Attributes:
        positive, negative: the two words, in any case.
        verdict: beginning of the last line, such as "Judgement:", in any case and without marks of
            emphasis; the rest of the line is the word or the number.
        pattern: regular expression in place of `verdict`, matched at the beginning of the last
            line; its one group is the word or the number.
        scale: the number that stands for the score 1; 0: numbers are not verdicts.
        max_tokens: largest number of tokens of a critique; a longer one is cut and has no verdict.
        temperature: temperature of sampling, in [0, 2]; 0 is greedy.
        samples: number of critiques whose scores are averaged.

    Raises:
        BadInputError: a value breaks its rule.
    """

    verdict: str = ""
    pattern: str = ""
    scale: int = 0
    max_tokens: int = 1024
    temperature: float = 0.0
    samples: int = 1

    def __post_init__(self) -> None:
        for name, most in (("max_tokens", MAX_TOKENS), ("samples", MAX_SAMPLES)):
            if not 1 <= getattr(self, name) <= most:
                self._refuse(name, f"must be a number from 1 to {most}")
        warm = self.temperature
        if isinstance(warm, bool) or not isinstance(warm, int | float) or not 0 <= warm <= 2:
            self._refuse("temperature", "must be a number from 0 to 2")
        if self.samples > 1 and not warm:
            self._refuse("samples", "are equal at temperature 0: give a temperature, or 1 sample")
        positive, negative = self._words()
        if not positive or positive == negative:
            self._refuse("positive", f"must be another word than negative={self.negative!r}")
        if bool(self.verdict) == bool(self.pattern):
            self._refuse("verdict", "or pattern: give one of them")
        if self.verdict and (not self.verdict.strip() or len(self.verdict.splitlines()) > 1):
            self._refuse("verdict", "must be the beginning of one line, such as 'Judgement:'")
        if len(self.verdict) >= MAX_LINE:
            self._refuse("verdict", f"must have fewer than {MAX_LINE} characters")
        if self.pattern and (fault := _fault_of_pattern(self.pattern)) is not None:
            self._refuse("pattern", fault)

    def read(self, critique: str) -> float | None:
        """The score of a whole critique, in [0, 1]; None without a verdict."""
        return self.of_line(critique.rstrip().rpartition("\n")[2])

    def of_line(self, line: str) -> float | None:
        """The score that one line states, in [0, 1]; None without a verdict."""
        line = line.strip()
        if len(line) > MAX_LINE or line.startswith(BAR):
            return None
        if self.pattern:
            match = re.match(self.pattern, line)
            return None if match is None else self._value(match[1] or "")
        line = line.translate(_EMPHASIS).strip()
        begin = re.match(re.escape(self.verdict.translate(_EMPHASIS).strip()), line, re.IGNORECASE)
        return None if begin is None else self._value(line[begin.end() :])

    def _value(self, said: str) -> float | None:
        said, words = _word(said), self._words()
        if said in words:
            return 1.0 - words.index(said)
        if not self.scale or _NUMBER.fullmatch(said) is None:
            return None
        score = float(said) / self.scale
        return score if score <= 1.0 else None

    def _words(self) -> tuple[str, str]:
        """The positive and the negative word as `_value` compares them."""
        unread = {} if self.pattern else _EMPHASIS  # `of_line` has removed these marks
        return _word(self.positive.translate(unread)), _word(self.negative.translate(unread))

    def _refuse(self, key: str, rule: str) -> None:
        raise BadInputError(f"read_out: {key}={quoted(getattr(self, key))} {rule}")


def _word(text: str) -> str:
    return text.strip(" \t.,!\"'").casefold()


def _fault_of_pattern(pattern: str) -> str | None:
    """The rule that a pattern breaks, or None.

    Repeated groups, references to groups, and many repetitions or choices could take exponential
    time on a hostile text.
    """
    if len(pattern) > MAX_PATTERN:
        return f"must have at most {MAX_PATTERN} characters"
    plain = re.sub(r"\\.", "x", pattern.replace("(?:", "("))
    if "(?" in plain or re.search(r"\\[1-9]", pattern) or re.search(r"\)[*+{]", plain):
        return "must have no group that is repeated, named or referred to, and no (?...) but (?:"
    repeats, choices = (sum(map(plain.count, marks)) for marks in ("*+{", "*+{?|"))
    if repeats > _MAX_REPEATS or choices > _MAX_CHOICES:
        return (
            f"must have at most {_MAX_REPEATS} of * + {{, and at most {_MAX_CHOICES} of these and "
            "of ? |"
        )
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression ({error})"
    return None if groups == 1 else f"must have one group, and has {groups}"
