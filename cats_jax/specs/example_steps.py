r"""Example steps for BoostStep: solved problems from a file, and the example most like a step.

Zhang et al.: "BoostStep: Boosting mathematical capability of Large Language Models via improved
single-step reasoning" (2025), arXiv:2501.03226. The rule is that of `example.py` in the authors'
code, beichenzbc/BoostStep at 8544d31, which calls scikit-learn's `TfidfVectorizer` with its default
settings: a step's words are the runs of at least two characters \w of its text in lower case. A
word that occurs c times in the step, and in d of the n steps of the file, has the weight
c (ln((1 + n) / (1 + d)) + 1). The similarity of two steps is the cosine of their weights. Words
that are not in the file do not count.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..errors import BadInputError
from ..storage.reading import bounded_lines, parse_json, reading
from .prompt_texts import fenced, load_prompts, text_digests

_WORD = re.compile(r"\b\w\w+\b")
_STEP = re.compile(r"Step ([1-9][0-9]{0,3})")
_PLACES = re.compile(r"\{(question|example)\}")


@dataclass(frozen=True, slots=True)
class ExamplePrompt:
    """The prompt of a step that follows an example.

    Attributes:
        name: name of the file, without its suffix.
        prompt: the user's message, with {question} and {example} once each. An example is a solved
            problem in which the line of one step begins with "Key Step: ".
    """

    name: str
    prompt: str

    def __post_init__(self) -> None:
        if sorted(_PLACES.findall(self.prompt)) != ["example", "question"]:
            raise BadInputError(
                f"example prompt {self.name!r}: prompt must have {{example}}, {{question}} once "
                "each, and no other"
            )

    def digests(self) -> dict[str, str]:
        """SHA-256 of the prompt; the name does not count."""
        return text_digests(prompt=self.prompt)

    def text(self, question: str, example: str) -> str:
        """The prompt with both texts between tags."""
        texts = {"question": question, "example": example}
        return _PLACES.sub(
            lambda place: fenced(place[1], texts[place[1]], tuple(texts)), self.prompt
        )


def load_example_prompt(choice: str) -> ExamplePrompt:
    """The prompt of a name in `prompts/example-prompt`, or of a .yaml file with its key.

    Raises:
        BadInputError: an unknown name, or a file that is not such a prompt.
    """
    return load_prompts("example prompt", choice, ExamplePrompt)


class ExampleSteps:
    """The steps of solved problems.

    Args:
        problems: each has the text "problem" and texts "Step 1", "Step 2" and so on, which count
            as steps in their own order; other keys are not read.
        where: name of the examples in messages.

    Raises:
        BadInputError: there is no problem or a problem breaks the rule.
    """

    def __init__(self, problems: list[Any], where: str = "example problems") -> None:
        self._problems: list[Mapping[str, str]] = []
        self._places: list[tuple[int, str]] = []
        for number, problem in enumerate(problems):
            steps = _steps(problem, f"{where}, problem {number + 1}")
            self._problems.append({"problem": problem["problem"], **steps})
            self._places += [(number, name) for name in steps]
        if not self._places:
            raise BadInputError(f"{where}: there is no problem: write one JSON object a line")
        counts = [_words(self._problems[number][name]) for number, name in self._places]
        in_steps = Counter(word for each in counts for word in each)
        self._column = {word: column for column, word in enumerate(in_steps)}
        shares = (1 + len(counts)) / (1 + np.array(list(in_steps.values()), np.float64))
        self._weights = np.log(shares) + 1.0
        rows = [self._unit(each) for each in counts]
        self._matrix: Any = csr_array(
            (
                np.concatenate([weights for _, weights in rows]),
                np.concatenate([columns for columns, _ in rows]),
                np.cumsum([0, *(len(columns) for columns, _ in rows)]),
            ),
            shape=(len(rows), len(self._column)),
        )

    @staticmethod
    def load(path: str | pathlib.Path) -> ExampleSteps:
        """The problems of a .jsonl file; the file of the authors, example-prm800k.jsonl, is one.

        Raises:
            BadInputError: the file can't be read, or breaks the rule.
        """
        where = f"example file {str(path)!r}"
        with reading(where, "write one JSON object a line", "is not JSON"):
            return _of_lines(tuple(bounded_lines(pathlib.Path(path))), where)

    @property
    def digest(self) -> str:
        """SHA-256 of the problems and their steps."""
        return text_digests(problems=json.dumps(self._problems))["problems"]

    @property
    def most_bytes(self) -> int:
        """Bytes of the longest example, which has at most as many tokens."""
        return max(len(self.text(number).encode()) for number in range(len(self._places)))

    def most_similar(self, step: str) -> tuple[int, float]:
        """Number of the example step most similar to a step's text, and the similarity in [0, 1].

        Ties: the earlier step.
        """
        columns, weights = self._unit(_words(step))
        vector = np.zeros(len(self._column))
        vector[columns] = weights
        similarities = np.round(self._matrix @ vector, 12)  # equal texts have 1
        number = int(np.argmax(similarities))
        return number, float(similarities[number])

    def text(self, number: int) -> str:
        """The problem and all steps around an example step, with that one marked as the key step.

        `number` is that of `most_similar`.
        """
        index, key = self._places[number]
        problem = self._problems[index]
        lines = [f"Problem: {problem['problem']}"]
        for name, text in problem.items():
            if name != "problem":
                lines.append(f"{'Key Step: ' if name == key else ''}{name}: {text}")
        return "\n".join(lines)

    def _unit(self, counts: Counter[str]) -> tuple[np.ndarray, np.ndarray]:
        """Columns of the words that the file has, and their weights, of norm 1."""
        known = [word for word in counts if word in self._column]
        columns = np.array([self._column[word] for word in known], np.int64)
        weights = np.array([counts[word] for word in known], np.float64) * self._weights[columns]
        return columns, weights / max(float(np.linalg.norm(weights)), 1e-300)


@functools.lru_cache(maxsize=1)  # a run loads its file at several checks
def _of_lines(lines: tuple[bytes, ...], where: str) -> ExampleSteps:
    return ExampleSteps([parse_json(line) for line in lines if line.strip()], where)


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def _steps(problem: Any, where: str) -> dict[str, str]:
    """The steps of a problem, in the order in which it has them."""
    if not isinstance(problem, dict) or not isinstance(problem.get("problem"), str):
        raise BadInputError(f"{where}: must be a JSON object with the text 'problem'")
    steps = {name: text for name, text in problem.items() if _STEP.fullmatch(str(name))}
    if not steps or not all(isinstance(text, str) for text in steps.values()):
        raise BadInputError(f"{where}: must have the texts 'Step 1', 'Step 2' and so on")
    if any("\ud800" <= char <= "\udfff" for text in problem.values() for char in str(text)):
        raise BadInputError(f"{where}: has half of a surrogate pair: write UTF-8 text")
    return steps
