"""How a policy rewrites a finished answer: prompts as data.

A rewrite is a new whole answer, written after the question, an earlier answer, and optionally a
critique of that answer. The prompt stands in the place of the question in the policy's own format,
so that every policy can rewrite. Question, answer and critique are treated as hostile text: each
stands between two tags, which it can't contain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import BadInputError
from .prompt_texts import fenced, load_prompts, text_digests

_PLACES = re.compile(r"\{(question|answer|critique)\}")


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The prompts of a rewrite.

    Attributes:
        name: name of the file, without its suffix.
        prompt: the user's message for the new answer, with {question} and {answer} once each, and
            {critique} once if there is a critique.
        critique: the user's message for the critique, with {question} and {answer} once each; ""
            for a rewrite without a critique.
    """

    name: str
    prompt: str
    critique: str = ""

    def __post_init__(self) -> None:
        places = {
            "prompt": ["answer", *(["critique"] if self.critique else []), "question"],
            **({"critique": ["answer", "question"]} if self.critique else {}),
        }
        for key, wanted in places.items():
            if sorted(_PLACES.findall(getattr(self, key))) != wanted:
                shown = ", ".join(f"{{{place}}}" for place in wanted)
                raise BadInputError(
                    f"rewriting {self.name!r}: {key} must have {shown} once each, and no other"
                )

    def digests(self) -> dict[str, str]:
        """SHA-256 of each prompt, by its key; the name of a rewriting does not count.

        `system` is the system message of a critique; earlier versions sent the policy's.
        """
        critique = {"critique": self.critique, "system": ""} if self.critique else {"critique": ""}
        return text_digests(prompt=self.prompt, **critique)

    def prompt_tokens(self, answer_tokens: int) -> int:
        """Most tokens that a prompt of a rewrite has besides the question's.

        `answer_tokens` is for an answer or a critique; the prompts' own text counts a token per
        byte.
        """
        prompts = (self.prompt, self.critique)
        own = max(
            len(rewriting_text(each, question="", answer="", critique="").encode())
            for each in prompts
        )
        return own + answer_tokens * (2 if self.critique else 1)


def load_rewriting(choice: str) -> Rewriting:
    """The rewriting of a name in `prompts/rewriting`, or of a .yaml file with its keys.

    Raises:
        BadInputError: an unknown name, or a file that is not a rewriting.
    """
    return load_prompts("rewriting", choice, Rewriting)


def rewriting_text(prompt: str, **texts: str) -> str:
    """A prompt with texts in its places, each between tags of the place's name."""
    # In one pass: inserted texts are not searched for places.
    return _PLACES.sub(lambda place: fenced(place[1], texts[place[1]]), prompt)
