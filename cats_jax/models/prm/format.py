"""PRM formats, which say how a reward model reads a path, as data; and known families.

A format says how question and steps become tokens, where the tag of each step stands, and how the
score follows from the model's output there. `encoder.py` turns a path into token ids by a format.
The families' formats are those of their model cards; docs/own/prm.md says where each was published
and how to write a new format.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ...errors import BadInputError, known_names, quoted
from ...storage.yaml_file import checked_fields, naming
from ...storage.yaml_reading import load_yaml
from .verdict import TokenPair, WrittenVerdict

Layout = Literal["answer", "turns", "text", "conversation", "judge"]
"""Place of the steps; `PRMFormat` describes the layouts."""


@dataclass(frozen=True, slots=True)
class Head:
    """Read-out of a head on the last hidden state, after the final norm.

    Attributes:
        layers: stored names of the head's linear layers, first to last, without ".weight" and
            ".bias" (a layer may have no bias). A ReLU follows every layer but the last.
        label: index of the output whose probability under a softmax over all outputs is the score;
            None if the head has one output, whose sigmoid is the score.
        unbounded: whether the only output r is a reward without bounds. Its score is then
            `bounded(r)` in place of the sigmoid, which float32 rounds to 1 from r = 18 on.
    """

    layers: tuple[str, ...]
    label: int | None = None
    unbounded: bool = False


def bounded(reward: float) -> float:
    """The score of a reward without bounds: 1/2 + r / (2 (1 + |r|)), in [0, 1].

    It increases strictly with the reward, and 1/2 stands for 0. Of two rewards between -100 and 100
    that differ by .01, the larger one has the larger score in float32, too. NaN for NaN.
    """
    return 0.5 + 0.5 * reward / (1.0 + abs(reward))


@dataclass(frozen=True, slots=True)
class PRMFormat:
    """The format of one family of process reward models.

    Attributes:
        name: key in `PRM_FORMATS`.
        layout: "answer": the chat template's prompt, then all steps in the assistant's turn;
            "turns": every step, without the white space at its ends, is a user's turn, which the
            assistant answers with the tag;
            "text": the beginning-of-text token, then plain text, without a chat template. The token
            may be missing from the tokenizer if steps are encoded by themselves;
            "conversation" (outcome models): question and finished answer are two turns. The one
            score is read off at the last token of the chat, padding left out;
            "judge": a user's turn about the newest step, for a plain language model.
        tag: the token that closes every step; "" for "conversation" and "judge", which mark none.
        read_out: how the score follows from the model's output; a head for "conversation".
        read_at: "tag": the score of a step is read off at its tag; "before": at the token before.
        prompt: what comes before the first step, with {question} once: the user's message for
            "answer", the beginning of the first one for "turns", all of it for "text". For "judge"
            the user's message, with {path} once, the steps so far, and {step}, the newest one,
            at most once.
        system: the chat's system message; "" for none.
        between: text after a tag, before the next step; for "conversation" between two steps.
        joined: whether a step has the token ids that it has in the text as a whole. If False, each
            step is encoded by itself.
        newline: text that replaces a newline inside a step; None keeps newlines.
        thoughts: whether the model reads the thoughts in a path's steps, see `answer_steps`.
        architectures: names in config.json by which "auto" recognises a family with a head. The
            head's tensors in the weights are enough, too.
        tokens: tokens by which "auto" recognises the tokenizers of a family without a head.

    Raises:
        BadInputError: a value breaks its rule.
    """

    name: str
    layout: Layout
    tag: str
    read_out: TokenPair | Head
    read_at: Literal["tag", "before"] = "tag"
    prompt: str = "{question}"
    system: str = ""
    between: str = ""
    joined: bool = True
    newline: str | None = None
    thoughts: bool = False
    architectures: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in (("layout", get_args(Layout)), ("read_at", ("tag", "before"))):
            if getattr(self, name) not in allowed:
                self._refuse(name, f"must be one of {', '.join(allowed)}")
        if self.prompt.count("{question}") != 1:
            self._refuse("prompt", "must have {question} exactly once")
        if self.finished_only:
            self._check_conversation()
        elif self.layout == "judge":
            self._check_judge()
        elif isinstance(self.read_out, WrittenVerdict):
            self._refuse("read_out", "is that of a judge: set layout: judge")
        elif not self.tag:
            self._refuse("tag", "must name a token")
        if isinstance(self.read_out, Head):
            head = self.read_out
            if not head.layers:
                self._refuse("read_out", "must name the head's layers")
            if head.unbounded and head.label is not None:
                self._refuse("read_out", "has label and unbounded: give one of them")
        if self.layout == "text" and self.system:
            self._refuse("system", "belongs to a chat: leave it out, or write it into prompt")
        if self.layout == "turns" and self.between:
            self._refuse("between", "is what the chat template puts between turns: leave it out")

    @property
    def finished_only(self) -> bool:
        """Whether the model reads finished answers only, as an outcome model does."""
        return self.layout == "conversation"

    def _check_conversation(self) -> None:
        self._check_no_steps()
        if not isinstance(self.read_out, Head):
            self._refuse("read_out", "must be a head: give its layers")

    def _check_judge(self) -> None:
        self._check_no_steps()
        if self.between:
            self._refuse("between", "belongs to steps, which a judge reads in tags: leave it out")
        if self.prompt.count("{path}") != 1 or self.prompt.count("{step}") > 1:
            self._refuse("prompt", "must have {path} exactly once, and {step} at most once")
        if not isinstance(self.read_out, TokenPair):
            self._refuse("read_out", "must be two words: a judge has no head")

    def _check_no_steps(self) -> None:
        for name, default in (("tag", ""), ("read_at", "tag"), ("joined", True), ("newline", None)):
            if getattr(self, name) != default:
                self._refuse(
                    name,
                    f"belongs to steps, which the layout {self.layout} does not have: leave it out",
                )

    def _refuse(self, key: str, rule: str) -> None:
        raise BadInputError(f"PRM format {self.name!r}: {key}={getattr(self, key)!r} {rule}")


def load_format(path: str | pathlib.Path, defaults: Mapping[str, Any] | None = None) -> PRMFormat:
    """A format from a YAML file with the keys of `PRMFormat`; see docs/own/prm.md.

    `read_out` is `{positive: TOKEN, negative: TOKEN}`, `{layers: [NAME, ...], label: INDEX}`,
    `{layers: [NAME, ...], unbounded: true}`, or the fields of a `WrittenVerdict`.

    Raises:
        BadInputError: the file does not exist or is not valid YAML, a key is unknown or missing,
            or a value breaks its rule.
    """
    where = f"PRM format file {str(path)!r}"
    content = load_yaml(path, "PRM format")
    if isinstance(content, dict):  # any other type is refused below
        content = {**(defaults or {}), **content}
        if content.get("layout") in ("conversation", "judge"):
            content.setdefault("tag", "")
    values = checked_fields(where, content, PRMFormat)
    values.setdefault("name", pathlib.Path(path).stem)
    read_out = values["read_out"]
    kind = _read_out_kind(read_out)
    fields = checked_fields(f"{where}, read_out", read_out, kind)
    with naming(where):
        values["read_out"] = kind(**fields)
        return PRMFormat(**values)


def _read_out_kind(content: Any) -> type[TokenPair | Head]:
    """The read-out that a mapping has the keys of."""
    keys = set(content) if isinstance(content, dict) else set()
    if "layers" in keys:
        return Head
    of_verdicts = {field.name for field in dataclasses.fields(WrittenVerdict)}
    return WrittenVerdict if keys & of_verdicts - {"positive", "negative"} else TokenPair


_NAMES = (
    "world", "math-shepherd", "rlhflow", "skywork", "qwen2.5-math-prm", "trl", "outcome",
    "outcome-classifier", "judge-critique", "judge-probability",
)  # fmt: skip

_FOLDER = pathlib.Path(__file__).with_name("formats")

PRM_FORMATS = {name: load_format(_FOLDER / f"{name}.yaml") for name in _NAMES}

WORLD = PRM_FORMATS["world"]
QWEN_MATH_PRM = PRM_FORMATS["qwen2.5-math-prm"]
OUTCOME = PRM_FORMATS["outcome"]
JUDGE_CRITIQUE = PRM_FORMATS["judge-critique"]


def prm_format(name: str) -> PRMFormat:
    """The format of a published family, of TRL, of a judge or of the embedded world.

    Args:
        name: key of `PRM_FORMATS`, such as "qwen2.5-math-prm". A .yaml file is not read here.

    Raises:
        BadInputError: there is no such format.
    """
    if not isinstance(name, str):
        raise BadInputError(f"name={quoted(name)}: must be the name of a PRM format")
    if name not in PRM_FORMATS:
        known = known_names(name, [*PRM_FORMATS, "auto"])
        raise BadInputError(f"PRM format {name!r} is unknown: {known}, or a .yaml file")
    return PRM_FORMATS[name]
