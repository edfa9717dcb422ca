"""Thoughts of a policy: sampled in pieces, ended at their budget, joined with the first step."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...errors import BadInputError
from ...grading.thinking import TAGS
from ...live.seeds import stable_seed
from ...protocols import (
    AnswerGeneration,
    Finish,
    Generation,
    Path,
    Question,
    Step,
    StepRequest,
    StepSample,
    total_usage,
)
from ...storage.yaml_file import naming
from ..prompts.step_text import Rest, StepEnd, StepText
from ..prompts.thinking import Thinking
from .model import CausalModel

_TAIL = 32
"""Number of tokens at the end of a prompt in which an opening tag is looked for."""

_REMEMBERED = 1 << 12
"""Number of steps whose pieces are remembered."""

Sampling = Callable[[Sequence[StepRequest]], Generation]


def check_closed(model: CausalModel, question: Question) -> None:
    """Raise BadInputError if the prompt opens a thought, for a format without `thinking`.

    Nothing tells such a thought from the answer while it is written: a box in it would be one.
    """
    end = model.decode(model.prompt_ids(question)[-_TAIL:]).rstrip().lower()
    for opening, _ in TAGS:
        if end.endswith(opening.lower()):
            raise BadInputError(
                f"policy {model.name!r}: its prompt opens a thought ({opening}), whose guesses "
                "would count as answers: take a format with 'thinking', or one with "
                "enable_thinking: false if the chat template has this switch"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceRequest(StepRequest):
    """A request for a piece of a thought.

    `rule` ends the piece; at `max_tokens` tokens it is cut, with the finish "step".
    """

    rule: StepText
    max_tokens: int


@dataclass(slots=True)
class _Thought:
    """A sample whose thought is open.

    Attributes:
        place, request: indices of its request and of its seed, and its request, with one seed.
        spent: number of tokens of the thought in earlier steps, without those that open it.
        head: token ids that open the thought, if the step is the first.
        body: the other token ids of the step so far, as they were sampled or put in.
        sampled: number of sampled tokens, with end tags that were replaced.
        log_prob: of the sampled tokens; None if it is not known.
        waits: number of times that it was prolonged.
        probing: whether the next piece is the answer to a probe.
        answers: the answers to all probes so far; None for no certain one.
        ended: whether the thought is over, so that the answer's first step follows.
    """

    place: tuple[int, int]
    request: StepRequest
    spent: int
    head: tuple[int, ...]
    body: tuple[int, ...] = ()
    sampled: int = 0
    log_prob: float | None = 0.0
    waits: int = 0
    probing: bool = False
    answers: list[str | None] = field(default_factory=list)
    ended: bool = False

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids of the step so far."""
        return self.head + self.body


class Thoughts:
    """Samples of a policy that thinks; see `Thinking`.

    A sample is a function of its path, parameters and seed alone, as long as those of the policy
    are. Text that is put in has no probability: a step's log-probability is that of its sampled
    tokens, and `StepSample.num_sampled` is their number.

    Args:
        model, thinking: tokenizer and prompts of the policy, and how it thinks.

    Attributes:
        rules: texts that end the pieces of a thought.
        opening: token ids that open a thought; none if the prompt opens it.

    Raises:
        BadInputError: the prompt closes a thought, or the tokenizer can't write the end tag.
    """

    def __init__(self, model: CausalModel, thinking: Thinking):
        self._model, self._thinking = model, thinking
        separator = thinking.step_separator
        with naming(f"policy format {model.format.name!r}: thinking"):
            self._whole = self._cut = StepText(model, thinking.end, thinking.end)
            if separator is not None:
                self._cut = StepText(model, separator, thinking.end)
        self.rules = (self._whole, self._cut)
        # A cut at a number of tokens may split an end tag of several.
        for key, way_out in (
            ("step_tokens", "take step_separator"),
            ("probe_every", "leave it out"),
        ):
            if not self._whole.separators and getattr(thinking, key) is not None:
                raise BadInputError(
                    f"policy format {model.format.name!r}: thinking: {key} needs an end tag of one "
                    f"token, and {thinking.end!r} has several: {way_out}"
                )
        prompt = model.decode(model.prompt_ids(Question("?", "?"))).rstrip()
        if prompt.endswith(thinking.end):
            raise BadInputError(
                f"policy format {model.format.name!r}: the prompt of {model.name!r} closes the "
                "thought before it begins: leave thinking out, or set enable_thinking: true"
            )
        opened = prompt.endswith(thinking.start)
        self.opening = () if opened else model.text_ids(f"{thinking.start}\n")
        self._close, self._wait = model.text_ids(thinking.close), model.text_ids(thinking.wait)
        self._probe = model.text_ids(thinking.probe)
        self._split = functools.lru_cache(_REMEMBERED)(self._pieces_of)

    def check_room(self, question: Question, prompt: int, step: int, context: int) -> None:
        """Raise BadInputError if a context has no room for a prompt, a thought and a step."""
        needed = prompt + self._thinking.most_tokens + step
        if needed > context:
            raise BadInputError(
                f"question {question.id!r}: prompt, thought and one step need {needed} tokens, and "
                f"{self._model.name!r} has a context of {context}: lower the budget of thinking "
                f"(now {self._thinking.budget}) or max_step_tokens, or raise max_model_len"
            )

    def pieces(self, path: Path) -> Path:
        """A path with each step as the pieces that a policy computes one after the other.

        They follow from the token ids alone, so a sample does not depend on the cache.
        """
        found: list[Step] = []
        spent = 0
        for i, step in enumerate(path):
            if not self.is_open(path[:i]):
                return (*found, *path[i:])
            head = self.opening if i == 0 else ()
            body = step.token_ids[len(head) :]
            found += self._split_step(path[:i], head, body, spent)
            spent += len(body)
        return tuple(found)

    def _split_step(
        self, before: Path, head: tuple[int, ...], body: tuple[int, ...], spent: int
    ) -> list[Step]:
        parts = self._split(body, spent, self._cut.rest_of(before))
        return [Step("", ids) for ids in (head, *parts) if ids]

    def _pieces_of(
        self, body: tuple[int, ...], spent: int, rest: Rest | None
    ) -> list[tuple[int, ...]]:
        """The thought between its probes, what was put in to close it, and the answer's step."""
        end = StepEnd(self._whole, rest).place(body)
        closed = None if end is None else self._closed_at(body, end, spent)
        if closed is None:
            places = [len(body) if end is None else end]
        else:
            places = [closed, closed + len(self._close)]
        every = self._thinking.probe_every
        probed = range(every, places[0], every) if every else ()
        cuts = [0, *probed, *places, len(body)]
        return [body[start:stop] for start, stop in itertools.pairwise(cuts)]

    def _closed_at(self, body: tuple[int, ...], end: int, spent: int) -> int | None:
        """Where a thought was closed, at its budget or after a probe; None if it ended itself.

        Of the token ids `body` of a step, `end` go up to the end tag; earlier steps have `spent`.
        """
        left, every = self._thinking.budget - spent, self._thinking.probe_every
        if end > left:
            return left
        probed = range(every, end, every) if every else ()
        close = self._close
        return next((at for at in probed if body[at : at + len(close)] == close), None)

    def is_open(self, path: Path) -> bool:
        """Whether the thought of a path is not over."""
        return not any(self._thinking.end in step.text for step in path)

    def answers(
        self,
        requests: Sequence[StepRequest],
        max_depth: int,
        sample: Sampling,
        sample_answers: Callable[[Sequence[StepRequest], int], AnswerGeneration],
    ) -> AnswerGeneration:
        """Whole answers; a path whose thought is open gets its next step only.

        The rest of such an answer is sampled as that of a cut answer, see `AnswerGeneration`.
        """
        open_ = [i for i, request in enumerate(requests) if self.is_open(request.path)]
        over = sorted({*range(len(requests))} - {*open_})
        asked = [
            dataclasses.replace(requests[i], to_end=len(requests[i].path) + 1 >= max_depth)
            for i in open_
        ]
        steps = self.generate(asked, sample)
        rest = sample_answers([requests[i] for i in over], max_depth)
        answers = [[(each,) for each in row] for row in steps.samples] + rest.answers
        each = [*(steps.sample_usage or ()), *(rest.sample_usage or ())]
        usage = [*steps.usage, *rest.usage]
        at = [place for _, place in sorted(zip([*open_, *over], range(len(requests)), strict=True))]
        return AnswerGeneration(
            [answers[i] for i in at],
            [usage[i] for i in at],
            steps.inside_seconds + rest.inside_seconds,
            [each[i] for i in at],
        )

    def generate(self, requests: Sequence[StepRequest], sample: Sampling) -> Generation:
        """Sample every request; `sample` is the policy without thoughts."""
        made = sample([self._first(request) for request in requests])
        inside, samples = made.inside_seconds, made.samples
        assert made.sample_usage is not None
        usage = [[[one] for one in row] for row in made.sample_usage]
        waiting: list[_Thought] = []

        def add(thought: _Thought, piece: StepSample) -> None:
            i, j = thought.place
            if (step := self._add(thought, piece)) is None:
                waiting.append(thought)
            else:
                samples[i][j] = step

        for i, request in enumerate(requests):
            if self.is_open(request.path):
                for j, piece in enumerate(samples[i]):
                    add(self._begun(request, (i, j)), piece)
        while waiting:
            asked, waiting = waiting, []
            made = sample([self._next(thought) for thought in asked])
            inside += made.inside_seconds
            for thought, (piece,), cost in zip(asked, made.samples, made.usage, strict=True):
                i, j = thought.place
                usage[i][j].append(cost)
                add(thought, piece)
        each = [[total_usage(costs) for costs in row] for row in usage]
        return Generation(samples, [total_usage(row) for row in each], inside, each)

    def _first(self, request: StepRequest) -> StepRequest:
        """The request for the first piece of all samples of a request."""
        if not self.is_open(request.path):
            return dataclasses.replace(request, path=self.pieces(request.path))
        return self._piece(request, self._begun(request, (0, 0)))

    def _begun(self, request: StepRequest, place: tuple[int, int]) -> _Thought:
        """A sample of a request without a token."""
        spent = sum(len(step.token_ids) for step in request.path)
        spent -= len(self.opening) if request.path else 0
        request = dataclasses.replace(request, seeds=(request.seeds[place[1]],))
        return _Thought(place, request, spent, () if request.path else self.opening)

    def _next(self, thought: _Thought) -> StepRequest:
        """The request for the next piece of a sample."""
        request = thought.request
        seeds = (stable_seed("thought", request.seeds[0], len(thought.ids)),)
        request = dataclasses.replace(request, seeds=seeds)
        if thought.probing:
            return self._probe_request(request, thought)
        if thought.ended:
            return dataclasses.replace(request, path=self._path(thought))
        return self._piece(request, thought)

    def _piece(self, request: StepRequest, thought: _Thought) -> PieceRequest:
        limit, every = self._left(thought), self._thinking.probe_every
        if self._thinking.step_tokens is not None and not request.to_end:
            limit = min(limit, self._thinking.step_tokens)
        if every is not None:
            limit = min(limit, every - len(thought.body) % every)
        rule = self._whole if request.to_end else self._cut
        return _piece_request(request, self._path(thought), rule, limit)

    def _probe_request(self, request: StepRequest, thought: _Thought) -> PieceRequest:
        """The request for the answer to a probe, sampled as in Dynasor's code or greedily."""
        seeds = (stable_seed("probe", request.seeds[0]),)
        warm = 0.6 if request.temperature else 0.0
        request = dataclasses.replace(request, seeds=seeds, temperature=warm, top_p=0.95, top_k=0)
        path = (*self._path(thought), Step("", self._probe))
        return _piece_request(request, path, self._whole, self._thinking.probe_tokens)

    def _path(self, thought: _Thought) -> Path:
        """The path of a sample with all pieces so far."""
        before = thought.request.path
        own = self._split_step(before, thought.head, thought.body, thought.spent)
        return (*self.pieces(before), *own)

    def _left(self, thought: _Thought) -> int:
        """Number of tokens that a thought may still have."""
        return self._thinking.budget - thought.spent - len(thought.body)

    def _add(self, thought: _Thought, piece: StepSample) -> StepSample | None:
        """Add a piece to a sample; returns the step if it is complete."""
        if thought.probing:
            return self._answered(thought, piece)
        thought.body += piece.step.token_ids
        thought.sampled += piece.num_tokens
        if thought.log_prob is not None:
            known = piece.log_prob
            thought.log_prob = None if known is None else thought.log_prob + known
        if thought.ended:
            return self._step(thought, piece.finish, piece.step.text)
        if piece.finish != "step":
            return self._step(thought, piece.finish, "")
        thought.ended = self._thinking.end in self._said(thought)
        if thought.ended:
            self._prolong(thought)
        elif self._left(thought) == 0:
            self._end(thought)
        elif self._thinking.probe_every is not None:
            thought.probing = True
        else:
            return self._step(thought, "step", "")
        return None

    def _answered(self, thought: _Thought, piece: StepSample) -> None:
        """Add the answer to a probe; the thought ends if the last answers are equal."""
        thought.probing = False
        ids = piece.step.token_ids
        said = self._model.decode((*self._probe, *ids))[len(self._model.decode(self._probe)) :]
        thought.answers.append(self._thinking.answer_of(said))
        if self._thinking.is_certain(thought.answers):
            self._end(thought)

    def _end(self, thought: _Thought) -> None:
        """Put in what closes a thought."""
        thought.body += self._close
        thought.ended = True

    def _prolong(self, thought: _Thought) -> None:
        """Put `wait` in the place of the end tag, if the format and the budget allow it."""
        if thought.waits == self._thinking.waits:
            return
        body = self._without_end(thought.body) + self._wait
        if len(body) < self._thinking.budget:
            thought.body, thought.ended = body, False
            thought.waits += 1

    def _step(self, thought: _Thought, finish: Finish, answer: str) -> StepSample:
        """The step of a sample: its part of the thought, and the first step of the answer."""
        start, end = self._thinking.start, self._thinking.end
        text = self._said(thought, finish).partition(end)[0].strip()
        if not thought.request.path:
            text = f"{start}\n{text.removeprefix(start).lstrip()}"
        if thought.ended or finish == "end":
            text = f"{text}\n{end}\n\n{answer}".rstrip("\n")
        step = Step(text, thought.ids)
        return StepSample(step, finish, thought.log_prob, num_sampled=thought.sampled)

    def _said(self, thought: _Thought, finish: Finish = "step") -> str:
        """The text of a step so far, with the end tag if it is there."""
        rest = self._cut.rest_of(thought.request.path)
        return self._cut.text(thought.ids, "end" if finish == "end" else "length", rest)

    def _without_end(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Token ids before the first one that holds a part of the end tag."""
        at = self._model.decode(ids).find(self._thinking.end)
        count = len(ids)
        while count and len(self._model.decode(ids[:count])) > max(at, 0):
            count -= 1
        return ids[:count]


def _piece_request(
    request: StepRequest, path: Path, rule: StepText, max_tokens: int
) -> PieceRequest:
    values = {each.name: getattr(request, each.name) for each in dataclasses.fields(StepRequest)}
    return PieceRequest(**{**values, "path": path}, rule=rule, max_tokens=max_tokens)
