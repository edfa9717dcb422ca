"""How a language model as judge compares finished answers: the prompt as data, and its choice.

The prompt stands in the place of the question in the judge's own format, so that every policy can
compare. Question and answers are treated as hostile text: each stands between two tags, which it
can't contain. A line of an answer that would state a choice gets a bar before it, so that a judge
that repeats the line chooses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadInputError
from .prompt_texts import fenced, load_prompts, text_digests

_PLACES = re.compile(r"\{(question|answers|count)\}")
_BAR = "| "
_MAX_LINE = 120
"""Most characters of a line that states a choice."""

MOST_ANSWERS = 999
"""Largest number that a choice can state."""

_EMPHASIS = str.maketrans("", "", "*_`#")
_NUMBER = re.compile(r"\W{0,9}(?:boxed\W?)?(?:answer\W?)?([0-9]{1,3})\W{0,9}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ComparisonPrompt:
    """The prompt of a comparison, and how its choice is read.

    Attributes:
        name: name of the file, without its suffix.
        prompt: the user's message, with {question} and {answers} once each. {answers} are the
            answers between the tags <answer_1>, <answer_2> and so on; {count} is their number.
        choice: beginning of the line that states the choice, such as "Judgment:", in any case and
            without marks of emphasis; the rest of the line is the number of an answer.
    """

    name: str
    prompt: str
    choice: str = "Judgment:"

    def __post_init__(self) -> None:
        places = [place for place in _PLACES.findall(self.prompt) if place != "count"]
        if sorted(places) != ["answers", "question"]:
            raise BadInputError(
                f"comparison {self.name!r}: prompt must have {{answers}} and {{question}} once each"
            )
        begin = self.choice.translate(_EMPHASIS).strip()
        if not begin or len(self.choice.splitlines()) > 1 or len(self.choice) >= _MAX_LINE // 2:
            raise BadInputError(
                f"comparison {self.name!r}: choice must be the beginning of one line of fewer than "
                f"{_MAX_LINE // 2} characters, such as 'Judgment:'"
            )

    def digests(self) -> dict[str, str]:
        """SHA-256 of each text, by its key; the name of a comparison does not count.

        `system` is the policy's system message, which earlier versions sent with the prompt.
        """
        return text_digests(prompt=self.prompt, choice=self.choice, system="")

    def text(self, question: str, answers: Sequence[str]) -> str:
        """The judge's message for answers that are numbered from 1."""
        shown = [fenced(f"answer_{i}", self._quoted(text)) for i, text in enumerate(answers, 1)]
        texts = {
            "question": fenced("question", question),
            "answers": "\n".join(shown),
            "count": str(len(answers)),
        }
        # In one pass: inserted texts are not searched for places.
        return _PLACES.sub(lambda place: texts[place[1]], self.prompt)

    def read(self, reply: str, count: int) -> int | None:
        """The chosen answer, from 0; None without a choice among `count` answers.

        The last line of `reply` that states a number counts; `reply` has no thoughts.
        """
        stated = (self._number(line) for line in reversed(reply.split("\n")))
        number = next((each for each in stated if each is not None), 0)
        return number - 1 if 1 <= number <= count else None

    def prompt_tokens(self, answer_tokens: int, count: int) -> int:
        """Most tokens that a prompt has besides the question's.

        Args:
            answer_tokens: most tokens of an answer. All other text counts one token per byte.
            count: most answers in a prompt.
        """
        return len(self.text("", [""] * count).encode()) + count * answer_tokens

    def _quoted(self, answer: str) -> str:
        lines = answer.split("\n")
        return "\n".join(line if self._number(line) is None else f"{_BAR}{line}" for line in lines)

    def _number(self, line: str) -> int | None:
        """The number that a line states, or None."""
        if len(line) > _MAX_LINE:
            return None
        said = line.translate(_EMPHASIS).strip().casefold()
        begin = self.choice.translate(_EMPHASIS).strip().casefold()
        found = _NUMBER.fullmatch(said[len(begin) :]) if said.startswith(begin) else None
        return None if found is None else int(found[1])


def load_comparison(choice: str) -> ComparisonPrompt:
    """The prompt of a name in `prompts/comparison`, or of a .yaml file with its keys.

    Raises:
        BadInputError: an unknown name, or a file that is not the prompt of a comparison.
    """
    return load_prompts("comparison", choice, ComparisonPrompt)
