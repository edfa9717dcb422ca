"""Policy formats: prompts, step separators and end tokens, as data.

The paper prints no prompts. Prompts and separator of the published models are those of the
evaluation code of Liu et al. (2025, arXiv:2502.06703), a test-time scaling study with the same
policies, PRMs and data sets. The system messages come from Meta's evaluation of Llama 3.1 on MATH
and from Qwen2.5-Math's model card.
"""

from __future__ import annotations

import pathlib
from collections.abc import Collection
from dataclasses import dataclass

from ...errors import BadInputError, known_names
from ...storage.yaml_file import checked_fields, naming
from ...storage.yaml_reading import load_yaml
from .thinking import Thinking


@dataclass(frozen=True, slots=True)
class PolicyFormat:
    r"""The format of one family of policies.

    Attributes:
        name: key in `POLICY_FORMATS`.
        system: the chat's system message; "" for none. Where the chat template has no place for it,
            it stands at the beginning of the user's message.
        prompt: the user's message, with {question} once.
        step_separator: text that closes a step, by one token or by several; see `StepText`.
        end_tokens: tokens that end an answer, in addition to those that the model itself names.
            Members of a family lack some of them; a user's file must name tokens that are there.
        tokens: tokens by which "auto" recognises the tokenizers of this family.
        thinking: how the model thinks before it answers; None: a thought is like any other text.
        enable_thinking: value of the switch that some chat templates have under this name; None
            leaves it as the template has it.

    Raises:
        BadInputError: a value breaks its rule.
    """

    name: str
    system: str = ""
    prompt: str = "{question}"
    step_separator: str = "\n\n"
    end_tokens: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    thinking: Thinking | None = None
    enable_thinking: bool | None = None

    def __post_init__(self) -> None:
        if self.thinking is not None and self.enable_thinking is False:
            raise BadInputError(
                f"policy format {self.name!r}: thinking and enable_thinking=False exclude "
                "each other: leave one of them out"
            )
        if self.prompt.count("{question}") != 1:
            raise BadInputError(
                f"policy format {self.name!r}: prompt={self.prompt!r} must have {{question}} once"
            )
        if not self.step_separator:
            raise BadInputError(
                f"policy format {self.name!r}: step_separator must not be empty: use '\\n\\n'"
            )


def load_format(path: str | pathlib.Path) -> PolicyFormat:
    """A format from a YAML file with the keys of `PolicyFormat`.

    Raises:
        BadInputError: the file is not a format.
    """
    where = f"policy format file {str(path)!r}"
    values = checked_fields(where, load_yaml(path, "policy format"), PolicyFormat)
    with naming(where):
        if values.get("thinking") is not None:
            content = checked_fields("thinking", values["thinking"], Thinking)
            values["thinking"] = Thinking(**content)
        return PolicyFormat(**{"name": pathlib.Path(path).stem, **values})


_FOLDER = pathlib.Path(__file__).with_name("formats")

PLAIN, CHAT, LLAMA_3, QWEN_2_5 = (
    load_format(_FOLDER / f"{name}.yaml") for name in ("plain", "chat", "llama-3", "qwen2.5")
)
POLICY_FORMATS = {each.name: each for each in (PLAIN, CHAT, LLAMA_3, QWEN_2_5)}

AUTO = "auto"
"""Choice of the format whose `tokens` the policy's tokenizer has."""


def choose_format(choice: str | PolicyFormat, vocabulary: Collection[str]) -> PolicyFormat:
    """The format a user asked for.

    Args:
        choice: a key of `POLICY_FORMATS`, the path of a .yaml file, "auto", or a format itself.
        vocabulary: tokens of the policy's tokenizer, which "auto" reads and which must have the end
            tokens of a file. Empty: not known, so that a name or a file is checked by itself.

    Raises:
        BadInputError: an unknown name, or a file that is not a format or has unknown end tokens.
    """
    if isinstance(choice, PolicyFormat):
        return choice
    if choice == AUTO:
        return detect_format(vocabulary)
    if choice.endswith((".yaml", ".yml")):
        found = load_format(choice)
        if vocabulary:
            _check_end_tokens(f"policy format file {choice!r}", found, vocabulary)
        return found
    if choice not in POLICY_FORMATS:
        known = known_names(choice, [*POLICY_FORMATS, AUTO])
        raise BadInputError(f"policy format {choice!r} is unknown: {known}, or a .yaml file")
    return POLICY_FORMATS[choice]


def detect_format(vocabulary: Collection[str]) -> PolicyFormat:
    """The format of the first family whose tokens a tokenizer has; `CHAT` if there is none."""
    for each in POLICY_FORMATS.values():
        if each.tokens and all(token in vocabulary for token in each.tokens):
            return each
    return CHAT


def _check_end_tokens(where: str, chosen: PolicyFormat, vocabulary: Collection[str]) -> None:
    """Raise BadInputError if an end token is not a token: answers would never end at it."""
    for token in chosen.end_tokens:
        if token not in vocabulary:
            marks = sorted(name for name in vocabulary if name[:1] == "<" and name[-1:] == ">")
            near = known_names(token, marks).rpartition("known are")[0]  # of hundreds
            raise BadInputError(
                f"{where}: end_tokens: {token!r} is not a token of the tokenizer: {near}name "
                "tokens that it has, or leave end_tokens out: those that the model names end "
                "answers, too"
            )
