"""The policy on transformers: sampled steps, batched over all nodes of all questions.

Rule of the cache: **a prompt's keys and values come from one pass over the prompt, a step's always
from decoding it token by token.** The last token of a path is never cached; feeding it is the first
tick of the next step. A step whose cache is gone is decoded again with its tokens forced, in the
same widths as when it was sampled, so the result is the same to the last bit whether a prefix was
kept, dropped, or comes from another process.

Samples of a node are one row of the batch as long as they agree: identical histories have identical
logits, so a row splits only where its samples choose different tokens.

A call is served in waves of questions whose paths fit the cache, see `prefix_cache`. What a request
is charged is settled before the first wave.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import RunStoppedError
from ...protocols import (
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
from ..prompts.step_text import check_parameters
from . import sampling
from .model import CHUNK_WIDTH, WIDTH, CausalModel, padded
from .policy import StepPolicy, check_positive
from .prefix_cache import Segment, missing
from .token_budget import TokenBudget

_FINISHES: tuple[Finish, ...] = ("step", "end", "length", "context")
_STEP, _END, _LENGTH, _CONTEXT = range(4)

# Rows that are done stay in the batch until they are this share of it: taking them out copies
# the keys and values of all others.
_MAX_DONE_SHARE = 0.25


class HuggingFaceGenerator(StepPolicy):
    r"""`StepGenerator` for a causal language model in a local folder.

    On the CPU in float32 a sample is a function of its path, parameters and seed alone, bit for
    bit. It does not depend on batch, order, micro-batches or the state of the cache.

    Args:
        path: model folder (config, tokenizer with a chat template, safetensors).
        device: "cpu", "cuda" or "cuda:N".
        dtype: "float32" or "bfloat16".
        batch_tokens: tokens (rows x width) of one micro-batch; halved when memory runs out.
        kv_cache_gib: bound of the cache, see `CausalModel`. It changes no sample and no usage.
        num_threads: torch's threads, for the whole process (see `CausalModel`).
        asked: `format`, `step_separator`, `max_step_tokens` and `max_answer_tokens`, see
            `StepPolicy`.

    Attributes:
        recomputed: number of tokens computed again because their keys and values had been put
            aside for lack of room, since the model was loaded. No usage contains them.

    Raises:
        BadInputError: before the weights are read, if the folder or a setting can't work.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        batch_tokens: int = 1 << 15,
        kv_cache_gib: float | None = None,
        num_threads: int = 1,
        **asked: Any,
    ):
        check_positive(batch_tokens=batch_tokens)
        super().__init__(
            path,
            device=device,
            dtype=dtype,
            kv_cache_gib=kv_cache_gib,
            num_threads=num_threads,
            **asked,
        )
        self._is_separator = _table(self._text.separators, self._model)
        self._is_end = _table(self._text.ends, self._model)
        self._model.load_weights()
        self.num_parameters = self._model.num_parameters
        self._budget = TokenBudget(batch_tokens)
        self._cache = self._model.new_cache()
        self.recomputed = 0

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Frees a question's cached state except prefixes of `paths`; without paths, all of it."""
        self._cache.keep_only(question, [_keys(path) for path in paths])

    @torch.inference_mode()
    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Samples every request; see `StepGenerator.generate`.

        `usage[i].computed` counts the tokens that went through the model for request i; a token
        shared with an earlier sample of the call, or computed in an earlier call and not dropped
        by `keep_only` since, counts as cached, also if it has to be computed again. If
        samples of a node fall into several micro-batches, their common tokens are computed in each
        but counted once, so that the counts do not depend on other requests of the call.

        Raises:
            BadInputError: a sampling parameter outside its range.
            RunStoppedError: a path that does not fit the cache, a row that does not fit the
                device's memory, or logits that are no numbers.
        """
        for request in requests:
            check_parameters(request)
        before = self._model.seconds
        ends, paths = self._paths(requests)
        samples = _Samples(requests)
        for wave in self._cache.waves(ends):
            self._fill([ends[i] for i in wave])
            self._run([row for i in wave for row in self._rows(i, requests[i], ends[i])], samples)
        sample_usage = _sample_usage(ends, paths, samples)
        return Generation(
            samples=self._step_samples(requests, samples),
            usage=[total_usage(each) for each in sample_usage],
            inside_seconds=self._model.seconds - before,
            sample_usage=sample_usage,
        )

    # --- the cache ---

    def _paths(self, requests: Sequence[StepRequest]) -> tuple[list[Segment], list[TokenUsage]]:
        """The end of each request's path, and what the path costs.

        A token to compute is charged to the first request that needs it.
        """
        charged: set[Segment] = set()
        histories = _Histories()
        ends: list[Segment] = []
        usage: list[TokenUsage] = []
        for request in requests:
            segment = self._cache.root(request.question)
            if segment is None:
                prompt = self._model.prompt_ids(request.question)
                segment = self._cache.add_root(request.question, prompt, len(prompt) - 1)
            computed = 0
            if not segment.computed and segment not in charged:
                charged.add(segment)
                computed += segment.own
            for step in _keys(request.path):
                parent, segment = segment, segment.child(step)
                if not segment.computed and segment not in charged:
                    charged.add(segment)
                    computed += histories.add(parent, step)
            ends.append(segment)
            usage.append(TokenUsage(computed=computed, cached=len(segment) - computed))
        return ends, usage

    def _fill(self, ends: Sequence[Segment]) -> None:
        """Computes what the cache lacks of some paths that it has room for."""
        for level in missing(ends):
            self.recomputed += sum(segment.own for segment in level if segment.computed)
            self._prefill([segment for segment in level if segment.parent is None])
            self._run([_forced(segment) for segment in level if segment.parent is not None], None)

    def _prefill(self, roots: Sequence[Segment]) -> None:
        """Caches each prompt without its last token."""
        widths: dict[int, list[Segment]] = {}
        for root in roots:
            widths.setdefault(padded(root.own, CHUNK_WIDTH), []).append(root)

        def run(part: Sequence[Segment]) -> None:
            heads = [root.tokens[: root.own] for root in part]
            _, kv = self._model.extend(self._cache, [None] * len(heads), heads)
            self._cache.store(part, kv)

        for width, group in sorted(widths.items()):
            self._budget.run(group, width, run)

    # --- decoding ---

    def _rows(self, index: int, request: StepRequest, end: Segment) -> list[_Row]:
        """One row per seed; none if the path leaves no room in the context."""
        room = self._model.context - len(end) - 1
        limit = self._limit(request)
        if room < 1:
            return []  # `_Samples` starts with empty ones that finish with "context"
        return [
            _Row(
                request=index,
                sample=j,
                segment=end,
                seed=seed,
                temperature=request.temperature,
                top_p=request.top_p,
                top_k=request.top_k,
                stop_at_separator=not request.to_end,
                limit=min(limit, room),
                at_limit=_LENGTH if limit <= room else _CONTEXT,
            )
            for j, seed in enumerate(request.seeds)
        ]

    def _run(self, rows: list[_Row], samples: _Samples | None) -> None:
        """Decodes all rows, grouped by the padded width of their prefix."""
        widths: dict[int, list[_Row]] = {}
        for row in rows:
            widths.setdefault(padded(len(row.segment), WIDTH), []).append(row)
        for width, group in sorted(widths.items()):
            # Samples of one node side by side, so that they share a micro-batch.
            order = {id(segment): i for i, segment in enumerate(_distinct(group))}
            group.sort(key=lambda row: order[id(row.segment)])
            self._budget.run(group, width + WIDTH, lambda part: self._decode(part, samples))

    def _decode(self, batch: Sequence[_Row], samples: _Samples | None) -> None:
        """Decodes one micro-batch to the end of every sample.

        S samples share R rows, R <= S: `row_of` says which row holds a sample's history.
        """
        device, vocab = self._model.device, self._model.vocab_size
        segments = _distinct(batch)
        place = {id(segment): i for i, segment in enumerate(segments)}
        p = _parameters(batch, device)
        node_of = torch.tensor([place[id(row.segment)] for row in batch], device=device)
        out = torch.zeros((len(batch), int(p.limit.max())), dtype=torch.long, device=device)
        count = torch.zeros(len(batch), dtype=torch.long, device=device)
        finish = torch.zeros(len(batch), dtype=torch.long, device=device)
        log_prob = torch.zeros(len(batch), dtype=torch.float64, device=device)

        rows = self._model.start_rows(self._cache, segments)
        tokens = torch.tensor([segment.tokens[-1] for segment in segments], device=device)
        alive = torch.arange(len(batch), device=device)
        row_of = node_of
        tick = 0
        while True:
            logits = rows.feed(tokens)
            with self._model.timed():
                log_probs = logits.double().log_softmax(-1)
                if p.forced is not None:
                    token = p.forced[alive, tick]
                else:
                    token = sampling.choose_tokens(
                        log_probs,
                        row_of,
                        sampling.uniforms(p.seed[alive], tick),
                        p.temperature[alive],
                        p.top_p[alive],
                        p.top_k[alive],
                        truncated=p.truncated,
                    )
                log_prob[alive] += log_probs[row_of, token]
                out[alive, tick] = token
                tick += 1
                # The samples' histories from here on: one key per (row, token).
                keys, history = torch.unique(row_of * vocab + token, return_inverse=True)
                done, code = self._finished(p, alive, token, tick)
            if bool(done.any()):
                finish[alive[done]] = code[done]
                count[alive[done]] = tick
                closed = done & (code == _STEP)
                if bool(closed.any()):
                    # One sample per distinct step: with equal histories any will do.
                    one = torch.full((len(keys),), -1, device=device)
                    one = one.scatter(0, history[closed], closed.nonzero()[:, 0])
                    one = one[one >= 0]
                    parents = node_of[alive[one]].tolist()
                    steps = out[alive[one], :tick].tolist()
                    children = [
                        segments[i].child(tuple(step))
                        for i, step in zip(parents, steps, strict=True)
                    ]
                    self._cache.store(children, rows.own(row_of[one]))
                alive, history = alive[~done], history[~done]
                if len(alive) == 0:
                    break
                kept, history = torch.unique(history, return_inverse=True)
                keys = keys[kept]
            parents, new_tokens = keys // vocab, keys % vocab
            splits = bool((parents[1:] == parents[:-1]).any())
            if splits or len(parents) < (1 - _MAX_DONE_SHARE) * rows.num_rows:
                rows.select(parents)
                tokens, row_of = new_tokens, history
            else:
                # Rows that are done go on with an arbitrary token that nobody looks at.
                tokens = torch.zeros(rows.num_rows, dtype=torch.long, device=device)
                tokens[parents] = new_tokens
                row_of = parents[history]

        if samples is not None:
            if not bool(log_prob.isfinite().all()):
                raise RunStoppedError(
                    f"policy {self._model.name!r}: log-probabilities of its tokens are not finite: "
                    "load it with dtype float32 or bfloat16, and check its weights"
                )
            samples.add(batch, out, count, finish, log_prob)

    def _finished(
        self, p: _Parameters, alive: Tensor, token: Tensor, num_tokens: int
    ) -> tuple[Tensor, Tensor]:
        """Which samples end with this token, bool[S], and why, i64[S]."""
        at_limit = p.limit[alive] <= num_tokens
        if p.forced is not None:
            return at_limit, torch.full_like(alive, _STEP)
        end = self._is_end[token]
        step = self._is_separator[token] & p.stop_at_separator[alive] & ~end
        code = torch.where(end, _END, torch.where(step, _STEP, p.at_limit[alive]))
        return end | step | at_limit, code

    # --- the answer ---

    def _step_samples(
        self, requests: Sequence[StepRequest], samples: _Samples
    ) -> list[list[StepSample]]:
        steps: dict[tuple[tuple[int, ...], int], Step] = {}
        answer = []
        for drafts in samples.drafts:
            row = []
            for ids, code, log_prob in drafts:
                step = steps.get((ids, code))
                if step is None:
                    step = steps[ids, code] = Step(self._text.text(ids, _FINISHES[code]), ids)
                row.append(StepSample(step, _FINISHES[code], log_prob))
            answer.append(row)
        return answer


@dataclass(frozen=True, slots=True)
class _Row:
    """One sample to decode after `segment`, or a step to replay (`forced`)."""

    request: int
    sample: int
    segment: Segment
    limit: int
    at_limit: int
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    stop_at_separator: bool = True
    forced: tuple[int, ...] | None = None


def _forced(segment: Segment) -> _Row:
    """The row that computes a step whose parent is resident."""
    assert segment.parent is not None
    return _Row(
        request=0,
        sample=0,
        segment=segment.parent,
        limit=segment.own,
        at_limit=_STEP,
        forced=segment.tokens,
    )


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The samples' parameters as tensors, [S]; `forced` is i64[S, T] or None."""

    seed: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    stop_at_separator: Tensor
    limit: Tensor
    at_limit: Tensor
    truncated: bool
    forced: Tensor | None


class _Samples:
    """The samples so far: `drafts[i][j]` is (token ids, finish code, log-probability)."""

    def __init__(self, requests: Sequence[StepRequest]):
        empty = ((), _CONTEXT, 0.0)
        self.drafts: list[list[tuple[tuple[int, ...], int, float]]] = [
            [empty] * len(request.seeds) for request in requests
        ]

    def add(
        self, batch: Sequence[_Row], out: Tensor, count: Tensor, finish: Tensor, log_prob: Tensor
    ) -> None:
        columns = (out.tolist(), count.tolist(), finish.tolist(), log_prob.tolist())
        for row, ids, length, code, value in zip(batch, *columns, strict=True):
            self.drafts[row.request][row.sample] = (tuple(ids[:length]), code, value)


class _Histories:
    """The token histories that were fed to the model, as a tree below each node."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}

    def add(self, segment: Segment, ids: tuple[int, ...]) -> int:
        """Number of histories fed for a sample that are new; a sample of n tokens has n of them."""
        known = len(self._children)
        at = self._children.setdefault((-1, id(segment)), known)
        for token in ids[:-1]:
            at = self._children.setdefault((at, token), len(self._children))
        return len(self._children) - known


def _sample_usage(
    ends: Sequence[Segment], paths: Sequence[TokenUsage], samples: _Samples
) -> list[list[TokenUsage]]:
    """Cost of each sample in addition to those before it; the first includes the request's path."""
    histories = _Histories()
    answer = []
    for end, path, drafts in zip(ends, paths, samples.drafts, strict=True):
        row = []
        for ids, _, _ in drafts:
            new = histories.add(end, ids) if ids else 0
            row.append(TokenUsage(computed=new, cached=len(ids) - new, generated=len(ids)))
        row[0] = total_usage([path, row[0]])
        answer.append(row)
    return answer


def _keys(path: Path) -> list[tuple[int, ...]]:
    """A path's steps as the cache addresses them; a step without tokens adds nothing."""
    return [step.token_ids for step in path if step.token_ids]


def _distinct(batch: Sequence[_Row]) -> list[Segment]:
    """The segments the rows continue, each once, in order of appearance."""
    return list({id(row.segment): row.segment for row in batch}.values())


def _parameters(batch: Sequence[_Row], device: torch.device) -> _Parameters:
    def column(values: list[Any], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    forced = None
    if batch[0].forced is not None:
        steps = np.zeros((len(batch), max(row.limit for row in batch)), dtype=np.int64)
        for i, row in enumerate(batch):
            assert row.forced is not None
            steps[i, : row.limit] = row.forced
        forced = torch.from_numpy(steps).to(device)
    return _Parameters(
        seed=sampling.seed_tensor([row.seed for row in batch], device),
        temperature=column([row.temperature for row in batch], torch.float64),
        top_p=column([row.top_p for row in batch], torch.float64),
        top_k=column([row.top_k for row in batch], torch.long),
        stop_at_separator=column([row.stop_at_separator for row in batch], torch.bool),
        limit=column([row.limit for row in batch], torch.long),
        at_limit=column([row.at_limit for row in batch], torch.long),
        truncated=any(row.top_p < 1 or row.top_k > 0 for row in batch),
        forced=forced,
    )


def _table(ids: list[int], model: CausalModel) -> Tensor:
    """bool[V], true at `ids`."""
    table = torch.zeros(model.vocab_size, dtype=torch.bool, device=model.device)
    table[ids] = True
    return table
