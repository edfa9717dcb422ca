"""The policy on an endpoint of OpenAI's chat completions, which exchanges texts, not token ids.

This module makes up the ids of a step. The step's text, with separator and blank lines, is cut into
as many parts as the step has tokens. A part's id is the number whose bytes are 1 and the part's
UTF-8. So a step has as many ids as tokens, and the text of a path follows from its ids, see
`path_text`. No model reads these ids: PRMs read texts.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from ...errors import BadInputError, GeneratorContractError, RunWarning
from ...protocols import (
    Answer,
    AnswerGeneration,
    Finish,
    Generation,
    Path,
    Question,
    Step,
    StepRequest,
    StepSample,
    TokenUsage,
    total_usage,
)
from ...specs.models import PolicySpec
from ..prompts.policy_format import PolicyFormat, choose_format
from ..prompts.step_text import check_parameters, without_beginning
from .chat_endpoint import OF_QUESTION, ChatEndpoint, ChatReply
from .http_engine import RefusedCallError
from .shared_time import SharedTime

_CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
"""Settings that make vLLM, SGLang and others continue a turn; OpenRouter and others always do."""

_TELL_STOP = {"include_stop_str_in_output": True, "no_stop_trim": True}
"""Settings that make vLLM and SGLang leave a stop text in the sample."""

_NO_CHOICES = (400, 422)
"""Statuses by which endpoints refuse a parameter, such as n."""

_FAULTS = (500, 501)
"""Statuses of endpoints that fail at a parameter, such as n. Others mean an overloaded server."""

_LONG, _WARM = 32, 0.5
"""Numbers of tokens and temperature from which on samples of different seeds should differ."""

_ASKED, _BEGUN, _REST, _STOP = "Write the days of the week.", "Monday Tuesday Wednes", "day", "Fri"
"""The probe's question, a turn that ends in half a word, the other half, and a stop text."""

_CUT = 3
"""Limit of the tokens of a sample in the probe of `n`: fewer than a terse answer has."""


class ChatPolicy:
    """`AnswerGenerator` on a `ChatEndpoint`.

    Whole answers take one request, or one for each sample if the endpoint does not honour `n`. A
    step is sampled as a continuation of the assistant's turn, if the endpoint supports that.
    Requests at the start test both. Steps are cut at the separator here. If the endpoint shows that
    it has stopped at a text, the separator is sent as a stop text, which saves the tokens after it.

    Args:
        format, step_separator, max_step_tokens, max_answer_tokens: as in `StepPolicy`; "auto" is
            the format "chat". `max_step_tokens` limits steps that are sampled by themselves.

    Attributes:
        found: what the endpoint can do, in one line.
        whole_only: why no single steps can be sampled; None if they can.

    Raises:
        BadInputError: the format is unknown or has thoughts, or the endpoint refuses a request.
        RunStoppedError: it does not answer.
    """

    concurrent = True
    reads_system = True
    num_parameters = 0

    def __init__(
        self,
        endpoint: ChatEndpoint,
        *,
        format: str | PolicyFormat = "auto",
        step_separator: str | None = None,
        max_step_tokens: int = 256,
        max_answer_tokens: int = 2048,
    ):
        self._endpoint = endpoint
        self._format = choose_format(format, ())
        if self._format.thinking is not None:
            raise BadInputError(
                f"policy format {self._format.name!r}: thinking is for models whose token ids are "
                "known, and a chat endpoint cuts thoughts by its own rules: leave it out"
            )
        self._separator = step_separator or self._format.step_separator
        self._max_step_tokens = max_step_tokens
        self._max_answer_tokens = max_answer_tokens
        self.name = endpoint.model
        self._time = SharedTime()
        self._warned = False
        self._probes: list[ChatReply] = []
        self._continues, self._echoes, self._stops = self._probe()
        self._honours_n = self._probe_n()
        self.whole_only: str | None = None
        steps = "and single steps by continuation"
        if not self._continues:
            self.whole_only = (
                f"server {endpoint.url} does not continue an assistant's turn, so that "
                f"{self.name!r} samples whole answers only: take strategies that keep all paths, "
                "without budget, max_tokens and max_seconds, or another endpoint"
            )
            steps = "only: it does not continue an assistant's turn"
        elif not self._stops:
            steps += ", each to max_step_tokens: it does not tell that it has stopped at a text"
        alone = "" if self._honours_n else "; each sample is a request of its own"
        tokens = sum(reply.prompt + reply.completion for reply in self._probes)
        self.found = (
            f"policy {self.name!r} at {endpoint.url}: whole answers {steps}{alone}; a start "
            f"without kept replies takes {tokens} tokens for tests, which no ledger counts"
        )

    def check_question(self, question: Question) -> None:
        """Does nothing: the endpoint states no context, and refuses questions that are too long."""

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Does nothing: only the endpoint has a cache."""

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Sample every request; see `StepGenerator.generate`.

        `usage[i].generated` is the endpoint's count, which includes text after a step. A step's
        share of its sample's tokens is its text's share of the sample's bytes. Log-probabilities
        are None.

        Raises:
            GeneratorContractError: the endpoint can't sample steps, or refuses the question.
            BadInputError: it refuses all requests, or a sampling parameter is outside its range.
            RunStoppedError: see `ChatEndpoint.ask`.
        """
        sampled, each, seconds = self._sample(requests, whole=False)
        samples = [
            [self._step_sample(each, to_end=request.to_end) for each in row]
            for request, row in zip(requests, sampled, strict=True)
        ]
        return Generation(samples, list(map(total_usage, each)), seconds, each)

    def generate_answers(self, requests: Sequence[StepRequest], max_depth: int) -> AnswerGeneration:
        """Sample whole answers; see `AnswerGenerator`.

        Steps are not cut at `max_step_tokens`, because only the endpoint counts tokens. If it does
        not continue turns, an answer that is cut at `max_answer_tokens` ends with "length".

        Raises:
            GeneratorContractError, BadInputError, RunStoppedError: see `generate`.
        """
        sampled, each, seconds = self._sample(requests, whole=True)
        answers = [
            [self._answer(each, max_depth - len(request.path)) for each in row]
            for request, row in zip(requests, sampled, strict=True)
        ]
        return AnswerGeneration(answers, list(map(total_usage, each)), seconds, each)

    def _sample(
        self, requests: Sequence[StepRequest], *, whole: bool
    ) -> tuple[list[list[_Sampled]], list[list[TokenUsage]], float]:
        """Samples of every request and their usages, by seed, and the seconds."""
        for request in requests:
            check_parameters(request)
            if self.whole_only and (request.path or not (whole or request.to_end)):
                raise GeneratorContractError(self.whole_only, question_id=request.question.id)
        bodies = [self._body(request, whole=whole) for request in requests]
        greedy = [request.temperature == 0 for request in requests]
        seeds = [r.seeds[:1] if once else r.seeds for r, once in zip(requests, greedy, strict=True)]
        with self._time.call(max(1, sum(map(len, seeds)))) as share:
            try:
                replies = self._ask(bodies, seeds)
            except RefusedCallError as error:
                if error.status in OF_QUESTION:
                    raise GeneratorContractError(str(error)) from error
                raise
        sampled = [[sample for reply in row for sample in _sampled(reply)] for row in replies]
        usage = [[each for reply in row for each in self._usages(reply)] for row in replies]
        for request, row in zip(requests, sampled, strict=True):
            self._check_differ(request, row)
        for request, row, costs, once in zip(requests, sampled, usage, greedy, strict=True):
            if once:  # its other samples are copies
                row *= len(request.seeds)
                costs += [TokenUsage()] * (len(request.seeds) - 1)
        return sampled, usage, share.seconds

    def _check_differ(self, request: StepRequest, samples: Sequence[_Sampled]) -> None:
        """Warn once if long samples of different seeds are equal at a temperature that is not low.

        Some servers ignore the temperature; equal samples vote as if they agreed.
        """
        is_long = min((each.tokens for each in samples), default=0) >= _LONG
        is_same = len(samples) > 1 and len({each.text for each in samples}) == 1
        if self._warned or request.temperature < _WARM or not (is_long and is_same):
            return
        self._warned = True
        warnings.warn(
            f"server {self._endpoint.url}: {len(samples)} samples of question "
            f"{request.question.id!r} with temperature {request.temperature:g} and different seeds "
            f"are equal: {self.name!r} may be sampled greedily there, and then votes and search "
            "are of no use; transformers serve needs do_sample: true in generation_config.json",
            RunWarning,
            stacklevel=2,
        )

    def _ask(
        self, bodies: Sequence[dict[str, Any]], seeds: Sequence[Sequence[int]]
    ) -> list[list[ChatReply]]:
        """The replies with all samples of each body."""
        several = [i for i, each in enumerate(seeds) if len(each) > 1 and self._honours_n]
        together = self._endpoint.each(
            lambda i, at: self._together(bodies[i], seeds[i], at), several
        )
        replies: list[list[ChatReply]] = [[] for _ in bodies]
        for i, reply in zip(several, together, strict=True):
            replies[i] += [] if reply is None else [reply]
        missing = [
            (i, seed)
            for i, each in enumerate(seeds)
            for seed in each[sum(len(reply.samples) for reply in replies[i]) :]
        ]
        alone = self._endpoint.each(
            lambda it, at: self._reply({**bodies[it[0]], "seed": _short(it[1])}, at), missing
        )
        for (i, _), reply in zip(missing, alone, strict=True):
            replies[i].append(reply)
        if None in together:  # single samples are not refused, so n was the reason
            self._honours_n = False
        return replies

    def _together(
        self, body: dict[str, Any], seeds: Sequence[int], asked_at: float
    ) -> ChatReply | None:
        """All samples in one request, as many as the endpoint gives; None if it is refused."""
        try:
            reply = self._reply({**body, "seed": _short(seeds[0]), "n": len(seeds)}, asked_at)
        except RefusedCallError as error:
            if error.status not in _NO_CHOICES:
                raise
            return None  # a request for one sample shows whether n was the reason
        if len(reply.samples) < len(seeds):
            self._honours_n = False
        return reply

    def _reply(self, body: dict[str, Any], asked_at: float) -> ChatReply:
        """The reply to a request, which is repeated without stop if a sample stopped before a step.

        Some chat templates remove blank lines from the end of a turn. Samples that continue the
        turn then begin with these blank lines.
        """
        reply = self._rest(body, self._endpoint.ask(body, asked_at))
        stopped = [text for text, _ in reply.samples if self._separator in text]
        if "stop" not in body or all(text.strip() for text in stopped):
            return reply
        body = {key: value for key, value in body.items() if key not in ("stop", *_TELL_STOP)}
        again = self._rest(body, self._endpoint.ask(body, asked_at))
        counts = (first + second for first, second in zip(reply[1:], again[1:], strict=True))
        return ChatReply(again.samples, *counts)

    def _rest(self, body: dict[str, Any], reply: ChatReply) -> ChatReply:
        """The reply without the turn that it continues, if the endpoint repeats that."""
        turn = body["messages"][-1]
        if not self._echoes or turn["role"] != "assistant":
            return reply
        begun = turn["content"]
        if not all(text.startswith(begun) for text, _ in reply.samples):
            raise GeneratorContractError(
                f"server {self._endpoint.url} repeated other turns that it continued, and does not "
                "repeat this one"
            )
        return reply._replace(samples=tuple((t[len(begun) :], end) for t, end in reply.samples))

    def _body(self, request: StepRequest, *, whole: bool) -> dict[str, Any]:
        limit = self._max_answer_tokens if whole or request.to_end else self._max_step_tokens
        body: dict[str, Any] = {
            "messages": self._messages(request.question, path_text(request.path)),
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": max(limit, self._max_step_tokens) if whole else limit,
        }
        if request.top_k:
            body["top_k"] = request.top_k
        if self._format.enable_thinking is not None:  # as vLLM and SGLang take it
            body["chat_template_kwargs"] = {"enable_thinking": self._format.enable_thinking}
        if request.path:
            body |= _CONTINUE
        if self._stops and not (whole or request.to_end):
            body |= {"stop": [self._separator], **_TELL_STOP}
        return body

    def _messages(self, question: Question, begun: str) -> list[dict[str, str]]:
        system = self._format.system if question.system is None else question.system
        text = self._format.prompt.replace("{question}", question.text)
        texts = (("system", system), ("user", text), ("assistant", begun))
        return [{"role": role, "content": content} for role, content in texts if content]

    def _probe(self) -> tuple[bool, bool, bool]:
        """Whether the endpoint continues a turn, repeats it, and tells that it stopped at a text.

        A reply that begins with the turn repeats it, or is a new answer in the same words. These
        are more than one token. So a reply of one token that begins with the turn repeats it.
        """
        turns = [{"role": "user", "content": _ASKED}, {"role": "assistant", "content": _BEGUN}]
        body = {"messages": turns, "max_tokens": 16, "temperature": 0.0, "stop": [_STOP]}
        body |= _CONTINUE | _TELL_STOP
        try:
            text = self._try(body).samples[0][0]
            echoes = text.startswith(_BEGUN)
            if echoes:
                short = self._try(body | {"max_tokens": 1})
                echoes = short.samples[0][0].startswith(_BEGUN)
        except RefusedCallError as error:
            if error.status not in _NO_CHOICES:
                raise
            return False, False, False
        return echoes or text.startswith(_REST), echoes, text.rstrip().endswith(_STOP)

    def _probe_n(self) -> bool:
        """Whether the endpoint shows that it gives n samples and counts the tokens of all of them.

        The server of llama.cpp counts those of one.
        """
        body = {"messages": [{"role": "user", "content": _ASKED}], "max_tokens": _CUT}
        body |= {"temperature": 1.0, "seed": 0}
        failed = False
        while True:
            try:
                reply = self._try(body | {"n": 2}, final=_FAULTS)
            except RefusedCallError as error:
                # The endpoint has answered before, so `n` is the reason, or the endpoint fails.
                if failed or error.status not in _FAULTS:
                    return False
                failed = True
                self._try(body)  # waits for an endpoint that fails at every request
            else:
                ends = [finish for _, finish in reply.samples]
                return ends == ["length"] * 2 and reply.completion > _CUT

    def _try(self, body: dict[str, Any], final: Container[int] = ()) -> ChatReply:
        """The reply to a request at the start, which counts among the probes."""
        (reply,) = self._endpoint.each(lambda it, at: self._endpoint.ask(it, at, final), [body])
        self._probes.append(reply)
        return reply

    def _usages(self, reply: ChatReply) -> list[TokenUsage]:
        """What each sample of a reply cost; the first one pays for the prompt."""
        found = []
        for i, sample in enumerate(_sampled(reply)):
            prompt, cached = (reply.prompt, reply.cached) if i == 0 else (0, 0)
            # The last token of a sample is sampled but not fed to the model.
            fed = prompt - cached + max(0, sample.tokens - 1)
            cost = self._endpoint.cost(prompt, sample.tokens)
            found.append(TokenUsage(fed, cached, sample.tokens, cost))
        return found

    def _step_sample(self, sampled: _Sampled, *, to_end: bool) -> StepSample:
        steps, rest = ([], "") if to_end else split_steps(sampled.text, self._separator)
        ended = sampled.finish == "end" and not self._stops
        if len(steps) > 1 or (steps and not (ended and not rest.strip())):
            return self._piece(steps[0], "step", sampled)
        return self._piece(sampled.text, sampled.finish, sampled)

    def _answer(self, sampled: _Sampled, max_steps: int) -> Answer:
        steps, rest = split_steps(sampled.text, self._separator)
        if len(steps) >= max_steps:
            steps, rest = steps[: max_steps - 1], "".join(steps[max_steps - 1 :]) + rest
        # The rest of an answer that was cut may still become a step.
        continued = sampled.finish == "length" and self._continues and len(steps) > 0
        if not continued and steps and not rest.strip():
            rest = steps.pop() + rest
        pieces: list[tuple[str, Finish]] = [(step, "step") for step in steps]
        if not continued:
            pieces.append((rest, sampled.finish))
        return tuple(self._piece(raw, finish, sampled) for raw, finish in pieces)

    def _piece(self, raw: str, finish: Finish, sampled: _Sampled) -> StepSample:
        size, whole = len(raw.encode()), len(sampled.text.encode())
        count = sampled.tokens * size // whole if whole else sampled.tokens
        text = without_beginning(raw, self._separator)
        if finish != "length":
            text = text.removesuffix(self._separator)
        return StepSample(Step(text, text_ids(raw, max(1, count))), finish, None)


class _Sampled(NamedTuple):
    """Text of a sample, why it finished, and its share of the sampled tokens."""

    text: str
    finish: Finish
    tokens: int


def chat_policy(spec: PolicySpec, **server: Any) -> ChatPolicy:
    """The policy of a recipe with `chat: true`; `server` are further settings of `ChatEndpoint`.

    Raises:
        BadInputError, RunStoppedError: see `ChatEndpoint` and `ChatPolicy`.
    """
    if not spec.chat:
        raise BadInputError("policy: leave path out and set chat: true, backend and served_name")
    return ChatPolicy(
        ChatEndpoint.of(spec, **server),
        format=spec.format,
        step_separator=spec.step_separator,
        max_step_tokens=spec.max_step_tokens,
        max_answer_tokens=spec.max_answer_tokens,
    )


def split_steps(text: str, separator: str) -> tuple[list[str], str]:
    """The steps of a text that end with a separator, each with all its characters, and the rest.

    A step ends with the first separator after text that is not blank.
    """
    steps: list[str] = []
    start = known = at = 0  # text from `start` to `known` is blank
    while (at := text.find(separator, at)) >= 0:
        if text[known:at].strip():
            steps.append(text[start : at + len(separator)])
            start = at + len(separator)
        known = max(start, at)
        at += len(separator)
    return steps, text[start:]


def text_ids(text: str, count: int) -> tuple[int, ...]:
    """The made-up ids of a text, `[count]`; `path_text` converts them back to the text."""
    data = text.encode()
    places = [len(data) * i // count for i in range(count + 1)]
    return tuple(
        int.from_bytes(b"\1" + data[start:end], "big") for start, end in itertools.pairwise(places)
    )


def path_text(path: Path) -> str:
    """The text of a path as it was sampled, with separators and blank lines."""
    ids = (each for step in path for each in step.token_ids)
    return b"".join(each.to_bytes(each.bit_length() // 8 + 1, "big")[1:] for each in ids).decode()


def _sampled(reply: ChatReply) -> list[_Sampled]:
    """The samples of a reply; its tokens are divided among them by the bytes of their texts."""
    sizes = [len(text.encode()) for text, _ in reply.samples]
    if not any(sizes):  # thoughts that the endpoint hides are charged, too
        sizes = [1] * len(sizes)
    *ends, total = itertools.accumulate(sizes, initial=0)
    ends = [reply.completion * end // total for end in (*ends, total)]
    return [
        _Sampled(text, "end" if finish == "stop" else "length", end - start)
        for (text, finish), (start, end) in zip(
            reply.samples, itertools.pairwise(ends), strict=True
        )
    ]


def _short(seed: int) -> int:
    """A seed of 31 bits, which every endpoint can read."""
    return seed >> 33
