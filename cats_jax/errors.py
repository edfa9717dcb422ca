"""The errors that users of cats-jax can meet, and what each means for the process."""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Iterable, Sequence


class BadInputError(ValueError):
    """The caller's input breaks a rule; raised before expensive work if possible (exit code 2).

    The message is one line of bounded length, whatever value it quotes. It names the input, the
    rule it breaks and the way out.
    """

    def __init__(self, message: object = ""):
        super().__init__(_one_line(str(message)))


_LONGEST = 1200
"""Most characters of a line; a longer one loses its middle, not the name or the way out."""


def _one_line(text: str) -> str:
    text = " ".join(text.splitlines()).encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else f"{text[:800]}...{text[-300:]}"


class RunStoppedError(RuntimeError):
    """A run has to stop; starting it again continues it (exit code 1).

    The message gives the reason and the way out in one line.
    """


class ModelContractError(RuntimeError):
    """A model returned what its protocol in `cats_jax.protocols` does not allow.

    The message names the model, the question and the rule. In a search the question fails; the
    broken output enters neither tree nor ledger.

    Attributes:
        question_id: id of the question that fails, or None if it is not known.
        step: index of the offending step in its path, or None if it is not known.
    """

    def __init__(self, message: str, *, question_id: str | None = None, step: int | None = None):
        super().__init__(message)
        self.question_id = question_id
        self.step = step


class GeneratorContractError(ModelContractError):
    """A policy broke its contract: number of samples, `finish`, token ids, log-probabilities."""


class ScorerContractError(ModelContractError):
    """A process reward model broke its contract: number of scores, NaN, or outside [0, 1]."""


class RunWarning(UserWarning):
    """What a user should know about a run or its models, in one line."""


class PathTooLongError(ScorerContractError):
    """A path has more tokens than the PRM can read."""


def quoted(value: object) -> str:
    """A value as a message quotes it: its `repr`, with the middle left out of a long one."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:80]}...{text[-20:]}"


def other_release(error: ImportError) -> str:
    """One line about a package that is missing, or whose release lacks an imported name."""
    package = (error.name or "").partition(".")[0]
    reason = " ".join(str(error).split())
    try:
        version = importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return (
            f"a package is missing ({reason}): install cats-jax with the extra that has it, see "
            "docs/get_started/install.md"
        )
    return (
        f"{package} {version} lacks what cats-jax needs of it ({reason}): install a version that "
        "docs/get_started/install.md lists, or those of constraints.txt"
    )


def known_names(name: object, known: Iterable[str]) -> str:
    """Hint for a misspelt name: the nearest valid name, if one is near, and all valid names."""
    names = list(known)
    return f"{_hint(str(name)[:100], names)}known are {', '.join(names)}"


def misspelt(name: str, known: Iterable[str]) -> str:
    """Hint for text that may be a name or a path: "" unless it is close to a valid name."""
    return "" if "/" in name else _hint(name, list(known))


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    return f"did you mean {near[0]!r}? " if near else ""
