"""The policy on transformers: sampled steps, batched over all nodes of all questions.

Rule of the cache: **a prompt's keys and values come from one pass over the prompt, a step's always
from decoding it token by token.** The last token of a path is never cached; feeding it is the first
tick of the next step. A step whose cache is gone is decoded again with its tokens forced, in the
same widths as when it was sampled, so the result is the same to the last bit whether a prefix was
kept, dropped, or comes from another process.

Samples of a node are one row of the batch as long as they agree: identical histories have identical
logits, so a row splits only where its samples choose different tokens.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
from .prefix_cache import Segment
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
        num_threads: torch's threads, for the whole process (see `CausalModel`).
        asked: `format`, `step_separator`, `max_step_tokens` and `max_answer_tokens`, see
            `StepPolicy`.

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
        num_threads: int = 1,
        **asked: Any,
    ):
        check_positive(batch_tokens=batch_tokens)
        super().__init__(path, device=device, dtype=dtype, num_threads=num_threads, **asked)
        self._is_separator = _table(self._text.separators, self._model)
        self._is_end = _table(self._text.ends, self._model)
        self._model.load_weights()
        self.num_parameters = self._model.num_parameters
        self._budget = TokenBudget(batch_tokens)
        self._cache = self._model.new_cache()

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Frees a question's cached state except prefixes of `paths`; without paths, all of it."""
        self._cache.keep_only(question, [_keys(path) for path in paths])

    @torch.inference_mode()
    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Samples every request; see `StepGenerator.generate`.

        `usage[i].computed` counts the tokens that went through the model for request i; a token
        shared with an earlier sample of the call, or found in the cache, counts as cached. If
        samples of a node fall into several micro-batches, their common tokens are computed in each
        but counted once, so that the counts do not depend on other requests of the call.

        Raises:
            BadInputError: a sampling parameter outside its range.
        """
        for request in requests:
            check_parameters(request)
        before = self._model.seconds
        nodes, paths = self._ensure_cached(requests)
        samples = _Samples(requests)
        rows: list[_Row] = []
        for i, (request, node) in enumerate(zip(requests, nodes, strict=True)):
            room = self._model.context - len(node.segment) - 1
            limit = self._limit(request)
            if room < 1:
                continue  # `samples` starts with empty ones that finish with "context"
            for j, seed in enumerate(request.seeds):
                rows.append(
                    _Row(
                        request=i,
                        sample=j,
                        node=node,
                        seed=seed,
                        temperature=request.temperature,
                        top_p=request.top_p,
                        top_k=request.top_k,
                        stop_at_separator=not request.to_end,
                        limit=min(limit, room),
                        at_limit=_LENGTH if limit <= room else _CONTEXT,
                    )
                )
        self._run(rows, samples)
        sample_usage = _sample_usage(nodes, paths, samples)
        return Generation(
            samples=self._step_samples(requests, samples),
            usage=[total_usage(each) for each in sample_usage],
            inside_seconds=self._model.seconds - before,
            sample_usage=sample_usage,
        )

    # --- the cache ---

    def _ensure_cached(
        self, requests: Sequence[StepRequest]
    ) -> tuple[list[_Node], list[TokenUsage]]:
        """The cached path of each request; missing steps are computed, shorter paths first.

        Returns:
            The ends of the paths, and what each path cost. A computed token is charged to the
            first request that needs it.
        """
        new: dict[Question, int] = {}
        for i, request in enumerate(requests):
            if self._cache.root(request.question) is None:
                new.setdefault(request.question, i)
        computed = [0] * len(requests)
        for i, tokens in zip(new.values(), self._prefill(list(new)), strict=True):
            computed[i] += tokens

        nodes: list[_Node] = []
        for request in requests:
            root = self._cache.root(request.question)
            assert root is not None
            nodes.append(_Node(root, root.tokens[-1]))
        keys = [_keys(request.path) for request in requests]
        depth = [0] * len(requests)
        while True:
            missing: dict[tuple[int, tuple[int, ...]], _Row] = {}
            for i, key in enumerate(keys):
                while depth[i] < len(key):
                    child = nodes[i].segment.children.get(key[depth[i]])
                    if child is None:
                        break
                    nodes[i] = _Node(child, child.tokens[-1])
                    depth[i] += 1
                if depth[i] < len(key):
                    step = key[depth[i]]
                    missing.setdefault(
                        (id(nodes[i].segment), step),
                        _Row(
                            request=i,
                            sample=0,
                            node=nodes[i],
                            limit=len(step),
                            at_limit=_STEP,
                            forced=step,
                        ),
                    )
            if not missing:
                break
            self._run(list(missing.values()), None)
            histories = _Histories()
            for (_, step), row in missing.items():
                computed[row.request] += histories.add(row.node.segment, step)
        # All but what was just computed on a request's account was there already.
        paths = [
            TokenUsage(computed=own, cached=len(node.segment) - own)
            for own, node in zip(computed, nodes, strict=True)
        ]
        return nodes, paths

    def _prefill(self, questions: list[Question]) -> list[int]:
        """Caches each prompt without its last token; returns the number of tokens of each."""
        prompts = [self._model.prompt_ids(question) for question in questions]
        widths: dict[int, list[int]] = {}
        for i, prompt in enumerate(prompts):
            widths.setdefault(padded(len(prompt) - 1, CHUNK_WIDTH), []).append(i)

        def run(indices: Sequence[int]) -> None:
            heads = [prompts[i][:-1] for i in indices]
            _, kv = self._model.extend(self._cache, [None] * len(heads), heads)
            self._cache.add_roots(
                [questions[i] for i in indices], [prompts[i] for i in indices], kv
            )

        for width, indices in sorted(widths.items()):
            self._budget.run(indices, width, run)
        return [len(prompt) - 1 for prompt in prompts]

    # --- decoding ---

    def _run(self, rows: list[_Row], samples: _Samples | None) -> None:
        """Decodes all rows, grouped by the padded width of their prefix."""
        widths: dict[int, list[_Row]] = {}
        for row in rows:
            widths.setdefault(padded(len(row.node.segment), WIDTH), []).append(row)
        for width, group in sorted(widths.items()):
            # Samples of one node side by side, so that they share a micro-batch.
            order = {id(segment): i for i, segment in enumerate(_distinct(group))}
            group.sort(key=lambda row: order[id(row.node.segment)])
            self._budget.run(group, width + WIDTH, lambda part: self._decode(part, samples))

    def _decode(self, batch: Sequence[_Row], samples: _Samples | None) -> None:
        """Decodes one micro-batch to the end of every sample.

        S samples share R rows, R <= S: `row_of` says which row holds a sample's history.
        """
        device, vocab = self._model.device, self._model.vocab_size
        segments = _distinct(batch)
        place = {id(segment): i for i, segment in enumerate(segments)}
        tails = {id(row.node.segment): row.node.tail for row in batch}
        p = _parameters(batch, device)
        node_of = torch.tensor([place[id(row.node.segment)] for row in batch], device=device)
        out = torch.zeros((len(batch), int(p.limit.max())), dtype=torch.long, device=device)
        count = torch.zeros(len(batch), dtype=torch.long, device=device)
        finish = torch.zeros(len(batch), dtype=torch.long, device=device)
        log_prob = torch.zeros(len(batch), dtype=torch.float64, device=device)

        rows = self._model.start_rows(self._cache, segments)
        tokens = torch.tensor([tails[id(segment)] for segment in segments], device=device)
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
                        log_probs[row_of],
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
                    parents = [segments[i] for i in node_of[alive[one]].tolist()]
                    steps = [tuple(step) for step in out[alive[one], :tick].tolist()]
                    self._cache.add_children(parents, steps, rows.own(row_of[one]))
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
class _Node:
    """A path to continue: `segment` is its cached part, `tail` its last token, never cached."""

    segment: Segment
    tail: int


@dataclass(frozen=True, slots=True)
class _Row:
    """One sample to decode, or a step to replay (`forced`)."""

    request: int
    sample: int
    node: _Node
    limit: int
    at_limit: int
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    stop_at_separator: bool = True
    forced: tuple[int, ...] | None = None


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
    nodes: Sequence[_Node], paths: Sequence[TokenUsage], samples: _Samples
) -> list[list[TokenUsage]]:
    """Cost of each sample in addition to those before it; the first includes the request's path."""
    histories = _Histories()
    answer = []
    for node, path, drafts in zip(nodes, paths, samples.drafts, strict=True):
        row = []
        for ids, _, _ in drafts:
            new = histories.add(node.segment, ids) if ids else 0
            row.append(TokenUsage(computed=new, cached=len(ids) - new, generated=len(ids)))
        row[0] = total_usage([path, row[0]])
        answer.append(row)
    return answer


def _keys(path: Path) -> list[tuple[int, ...]]:
    """A path's steps as the cache addresses them; a step without tokens adds nothing."""
    return [step.token_ids for step in path if step.token_ids]


def _distinct(batch: Sequence[_Row]) -> list[Segment]:
    """The segments the rows continue, each once, in order of appearance."""
    return list({id(row.node.segment): row.node.segment for row in batch}.values())


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
