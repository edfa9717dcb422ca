"""The errors a user of cats-jax can meet, and what each means for the process."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInputError(ValueError):
    """The caller's input breaks a rule; raised before expensive work starts (exit code 2).

    The message is one line that names the input, the rule it breaks and the way out.
    """


class RunStoppedError(RuntimeError):
    """A run can't go on, and can be gone on with later (exit code 1).

    The message is one line that says why and the way out.
    """


class ScorerContractError(RuntimeError):
    """A process reward model broke its contract: wrong number of scores, NaN, or outside [0, 1].

    Names the question and the step. It fails that question; it is never turned into a score.

    Attributes:
        question_id: of the question that fails, so that the others of its batch can go on.
        step: index of the offending step in its path.
    """

    def __init__(self, message: str, *, question_id: str | None = None, step: int | None = None):
        super().__init__(message)
        self.question_id = question_id
        self.step = step


def known_names(name: object, known: Iterable[str]) -> str:
    """The way out of a misspelt name: the nearest valid one, if any is near, and all of them."""
    names = list(known)
    near = difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known are {', '.join(names)}"
