"""The policy on transformers: sampled steps, batched over all nodes of all questions.

Rule of the cache: **a prompt's keys and values come from one pass over the prompt, a step's always
from decoding it token by token.** The last token of a path is never cached; it is fed in the first
tick of the next step. A step whose cache is gone is decoded again with its tokens forced, in the
same widths as before. So a sample is bitwise the same whether a prefix was kept, dropped, or comes
from another process.

Samples of a node share a row of the batch as long as they agree, because identical histories have
identical logits.

A call is served in waves of questions whose paths fit the cache, see `prefix_cache`. The usage of a
request is settled before the first wave.
"""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor

from ...errors import RunStoppedError
from ...protocols import (
    TOKEN_CERTAINTIES,
    Generation,
    Path,
    Question,
    Step,
    StepRequest,
    StepSample,
    TokenCertainty,
    TokenUsage,
    total_usage,
)
from ..prompts.step_text import StepEnd, check_parameters
from . import sampling
from .decoding_rows import DecodingRows, padded_width
from .draws import CONTEXT, END, FINISHES, STEP, Draws, forced_draws
from .model import CHUNK_WIDTH, WIDTH, CausalModel, padded
from .policy import PolicyOptions, StepPolicy
from .prefix_cache import Segment, missing
from .token_budget import TokenBudget
from .usage import Histories, sample_usage


class HuggingFaceGenerator(StepPolicy):
    r"""`StepGenerator` for a causal language model in a local folder.

    On the CPU in float32 a sample is a function of its path, parameters and seed alone, bit for
    bit. It does not depend on batch, order, micro-batches or the state of the cache.

    Args:
        path: model folder (config, tokenizer with a chat template, safetensors), or an id of the
            Hugging Face hub that is in its cache.
        batch_tokens: tokens (rows x width) of one micro-batch; halved when memory runs out.
        options: `format`, `step_separator`, `max_step_tokens`, `max_answer_tokens` of `StepPolicy`;
            `device` ("cpu" by default), `dtype` ("float32"), `kv_cache_gib`, `num_threads` and
            `adapter` of `CausalModel`. `kv_cache_gib` changes no sample and no usage.

    Attributes:
        recomputed: number of tokens computed again for lack of room in the cache, since the model
            was loaded. No usage contains them.

    Raises:
        BadInputError: before the weights are read, if the folder or a setting can't work.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        batch_tokens: int = 1 << 15,
        **options: Unpack[PolicyOptions],
    ):
        self._budget = TokenBudget(batch_tokens)
        super().__init__(path, **options)
        self._may_close = _table(self._closers, self._model)
        self._is_end = _table(self._text.ends, self._model)
        self._model.load_weights()
        self.num_parameters = self._model.num_parameters
        self._cache = self._model.new_cache()
        self.recomputed = 0

    @property
    def certainties(self) -> frozenset[str]:
        """Kinds of token certainty that it reports; none of a thought, which has tokens put in."""
        return frozenset() if self.adds_tokens else frozenset(TOKEN_CERTAINTIES)

    @property
    def vectors(self) -> bool:
        """Whether it reports vectors of steps: not of thoughts, which have tokens put in.

        A vector is the last hidden state from which a step's last token, usually its separator, was
        sampled. It depends on the question, the path and the step before this token. Steps of one
        token that continue one path have the same vector.
        """
        return not self.adds_tokens

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Frees a question's cached state except prefixes of `paths`; without paths, all of it."""
        self._cache.keep_only(question, [_keys(self._pieces(path)) for path in paths])

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Samples every request; see `StepGenerator.generate`.

        `usage[i].computed` counts the tokens that went through the model for request i. A token
        that an earlier sample of the call shares, or that an earlier call computed and `keep_only`
        has kept, counts as cached, even if it is computed again. A token that several micro-batches
        compute for one node counts once, so that the counts do not depend on other requests of the
        call.

        Raises:
            BadInputError: a sampling parameter outside its range.
            RunStoppedError: a path that does not fit the cache, a row that does not fit the
                device's memory, or logits that are not numbers.
        """
        for request in requests:
            check_parameters(request)
        return self._with_thoughts(requests, self._generate)

    @torch.inference_mode()
    def _generate(self, requests: Sequence[StepRequest]) -> Generation:
        before = self._model.seconds
        ends, paths = self._paths(requests)
        counts = [len(request.seeds) for request in requests]
        first = np.cumsum([0, *counts])
        drawn = _Drawn(int(first[-1]), requests[0] if requests else None)
        if drawn.vectors:
            self._model.watch_head()
        for wave in self._cache.waves(ends):
            self._fill([ends[i] for i in wave])
            self._run(self._draws(wave, requests, ends, first), drawn)
        of_request = [drawn.ending[i:j].tolist() for i, j in itertools.pairwise(first)]
        ids = [ending.ids for ending in drawn.endings]
        usage = sample_usage(ends, paths, of_request, ids)
        samples = _step_samples(drawn.endings)
        return Generation(
            samples=[[samples[each] for each in row] for row in of_request],
            usage=[total_usage(each) for each in usage],
            inside_seconds=self._model.seconds - before,
            sample_usage=usage,
        )

    # --- the cache ---

    def _paths(self, requests: Sequence[StepRequest]) -> tuple[list[Segment], list[TokenUsage]]:
        """The end of each request's path, and what the path costs.

        A token to compute is charged to the first request that needs it.
        """
        charged: set[Segment] = set()
        histories = Histories()
        ends: list[Segment] = []
        usage: list[TokenUsage] = []
        for request in requests:
            prompt = self._model.prompt_ids(request.question)
            segment = self._cache.root(request.question, prompt, len(prompt) - 1)
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
            if steps := [segment for segment in level if segment.parent is not None]:
                self._run(forced_draws(steps), None)

    def _prefill(self, roots: Sequence[Segment]) -> None:
        """Caches each prompt without its last token."""

        def run(part: Sequence[Segment]) -> None:
            heads = [root.tokens[: root.own] for root in part]
            _, kv = self._model.extend(self._cache, [None] * len(heads), heads)
            self._cache.store(part, kv)

        self._budget.run(roots, [padded(root.own, CHUNK_WIDTH) for root in roots], run)

    # --- decoding ---

    def _draws(
        self,
        wave: Sequence[int],
        requests: Sequence[StepRequest],
        ends: Sequence[Segment],
        first: np.ndarray,
    ) -> Draws:
        """The samples of some requests, without those whose path leaves no room in the context.

        `wave` has the requests' indices in `requests` and `ends`, those of the call, and `first`
        the number of each request's first sample, i64[len(requests) + 1].
        """
        rooms = {i: self._model.context - len(ends[i]) - 1 for i in wave}
        wave = [i for i in wave if rooms[i] > 0]  # `_Drawn` begins with empty samples
        asked = [requests[i] for i in wave]
        limits = [(self._limit(requests[i]), rooms[i]) for i in wave]
        nodes: dict[tuple[Segment, StepEnd], int] = {}
        node = [nodes.setdefault((ends[i], self._step_end(requests[i])), len(nodes)) for i in wave]
        counts = torch.tensor([len(request.seeds) for request in asked], dtype=torch.long)

        def column(values: Sequence[Any], dtype: torch.dtype = torch.long) -> Tensor:
            return torch.tensor(values, dtype=dtype).repeat_interleave(counts)

        parts = [np.arange(first[i], first[i + 1]) for i in wave]
        seeds = np.array([seed for each in asked for seed in each.seeds], dtype=np.uint64)
        at_limit = [
            FINISHES.index(self._at_limit(request)) if most <= room else CONTEXT
            for request, (most, room) in zip(asked, limits, strict=True)
        ]
        return Draws(
            nodes=[segment for segment, _ in nodes],
            step_ends=[rule for _, rule in nodes],
            node=column(node),
            sample=torch.from_numpy(np.concatenate([np.arange(0), *parts])),
            limit=column([min(pair) for pair in limits]),
            at_limit=column(at_limit),
            seed=torch.from_numpy(seeds.view(np.int64)),
            temperature=column([each.temperature for each in asked], torch.double),
            top_p=column([each.top_p for each in asked], torch.double),
            top_k=column([each.top_k for each in asked]),
            stop_at_separator=column([self._by_steps(each) for each in asked], torch.bool),
        )

    def _run(self, draws: Draws, drawn: _Drawn | None) -> None:
        """Decodes all samples, by ascending padded width of their prefix."""
        node = draws.node.numpy()
        width_of = np.array([padded_width(each) for each in draws.nodes], dtype=np.int64)[node]
        # Samples of one node side by side, so that they share a micro-batch.
        order = np.lexsort((node, width_of))
        self._budget.run(
            order.tolist(),
            (width_of[order] + WIDTH).tolist(),
            lambda part: self._decode(draws.take(part, self._model.device), drawn),
        )

    def _decode(self, p: Draws, drawn: _Drawn | None) -> None:
        """Decodes one micro-batch to the end of every sample.

        S samples share R rows, R <= S: `row_of` says which row holds a sample's history.
        """
        device, vocab = self._model.device, self._model.vocab_size
        size = len(p.node)
        out = torch.zeros((size, int(p.limit.max())), dtype=torch.long, device=device)
        log_prob = torch.zeros(size, dtype=torch.float64, device=device)
        ending = torch.zeros(size, dtype=torch.long, device=device)
        endings: list[_Ending] = []
        kind = None if drawn is None else drawn.certainty
        certainty = torch.zeros(out.shape if kind else (0,), dtype=torch.float32, device=device)

        most = torch.bincount(p.node).tolist()
        rows = DecodingRows(self._model, self._cache, p.nodes, most)
        tokens = torch.tensor([segment.tokens[-1] for segment in p.nodes], device=device)
        alive = torch.arange(size, device=device)
        row_of = p.node
        tick = 0
        while True:
            logits = rows.feed(tokens)
            with self._model.timed():
                log_probs = logits.double().log_softmax(-1)
                token = _next_token(log_probs, row_of, p, alive, tick)
                log_prob[alive] += log_probs[row_of, token]
                if kind is not None:
                    of_rows = sampling.token_certainties(log_probs, kind)
                    certainty[alive, tick] = of_rows[row_of].float()
                out[alive, tick] = token
                tick += 1
                # The samples' histories from here on: one key per (row, token).
                keys, history = torch.unique(row_of * vocab + token, return_inverse=True)
                done, code = self._finished(p, alive, token, tick)
            if bool(done.any()):
                found = _endings(p, out[:, :tick], alive, history, code, done)
                if p.forced is None and _open(found, p, alive, code, done):
                    found = _endings(p, out[:, :tick], alive, history, code, done)
                ending[alive[found.ended]] = found.kind + len(endings)
                one = alive[found.one]
                certain = None if kind is None else certainty[one, :tick].tolist()
                with_vectors = drawn is not None and drawn.vectors
                vectors = self._model.hidden[row_of[found.one]] if with_vectors else None
                new = _new_endings(found, log_prob[one].tolist(), certain, vectors)
                endings += new
                closed = [i for i, each in enumerate(new) if each.code == STEP]
                if closed:
                    children = [found.parents[i].child(found.steps[i]) for i in closed]
                    self._cache.store(children, rows.own(row_of[found.one[closed]]))
                left = ~done
                alive, history = alive[left], history[left]
                if len(alive) == 0:
                    break
                kept, history = torch.unique(history, return_inverse=True)
                keys = keys[kept]
            place = rows.follow(keys // vocab)
            tokens = torch.empty_like(keys).scatter_(0, place, keys % vocab)
            row_of = place[history]

        if drawn is not None:
            self._check_finite(endings)
            drawn.add(p.sample, ending, endings)

    def _check_finite(self, endings: Sequence[_Ending]) -> None:
        if not all(math.isfinite(each.log_prob) for each in endings):
            raise RunStoppedError(
                f"policy {self._model.name!r}: log-probabilities of its tokens are not finite: "
                "load it with dtype float32 or bfloat16, and check its weights"
            )

    def _finished(
        self, p: Draws, alive: Tensor, token: Tensor, num_tokens: int
    ) -> tuple[Tensor, Tensor]:
        """Which samples may end with this token, bool[S], and why, i64[S]."""
        at_limit = p.limit[alive] <= num_tokens
        if p.forced is not None:
            return at_limit, torch.full_like(alive, STEP)
        end = self._is_end[token]
        step = self._may_close[token] & p.stop_at_separator[alive] & ~end
        code = torch.where(end, END, torch.where(step, STEP, p.at_limit[alive]))
        return end | step | at_limit, code


class _Ending(NamedTuple):
    """Token ids of a sample, why it finished, its log-probability, and the rule of its end.

    The certainties of its tokens and the vector of its step are None if the call needs none.
    """

    ids: tuple[int, ...]
    code: int
    log_prob: float
    rule: StepEnd | None
    certainties: tuple[float, ...] | None
    vector: np.ndarray | None


def _step_samples(endings: Sequence[_Ending]) -> list[StepSample]:
    """The sample of each ending; equal ones share their step."""
    steps: dict[tuple[tuple[int, ...], int, StepEnd | None], Step] = {}
    samples = []
    for ids, code, log_prob, rule, certainties, vector in endings:
        if (ids, code, rule) not in steps:
            text = "" if rule is None else rule.text.text(ids, FINISHES[code], rule.rest)
            steps[ids, code, rule] = Step(text, ids)
        step = steps[ids, code, rule]
        samples.append(StepSample(step, FINISHES[code], log_prob, certainties, vector))
    return samples


@dataclass(frozen=True, slots=True)
class _Endings:
    """The E samples that end with one token, and the K distinct kinds among them.

    Attributes:
        ended, one: places among the samples alive: of all that end, i64[E], and of one of each
            kind, i64[K].
        kind, reasons: kind of each sample by its history and its reason, i64[E], and the kinds'
            reasons, i64[K].
        steps, parents, rules: tokens of each kind, the node that it continues, and the node's rule;
            there are no rules for steps that are decoded again.
    """

    ended: Tensor
    kind: Tensor
    one: Tensor
    reasons: Tensor
    steps: list[tuple[int, ...]]
    parents: list[Segment]
    rules: list[StepEnd]


def _new_endings(
    found: _Endings,
    log_probs: Sequence[float],
    certainties: Sequence[Sequence[float]] | None,
    vectors: Tensor | None,
) -> list[_Ending]:
    """One ending of each kind; the other arguments have a row for each kind, [K, ...]."""
    certain: Iterable[tuple[float, ...] | None] = itertools.repeat(None)
    if certainties is not None:
        certain = map(tuple, certainties)
    rows: Iterable[np.ndarray | None] = itertools.repeat(None)
    if vectors is not None:
        rows = vectors.float().cpu().numpy()
    rules = found.rules or itertools.repeat(None)
    reasons = found.reasons.tolist()
    return list(map(_Ending, found.steps, reasons, log_probs, rules, certain, rows))


def _next_token(log_probs: Tensor, row_of: Tensor, p: Draws, alive: Tensor, tick: int) -> Tensor:
    """The next token of each sample alive, i64[S]: the forced one, or a draw from its row."""
    if p.forced is not None:
        return p.forced[alive, tick]
    return sampling.choose_tokens(
        log_probs,
        row_of,
        sampling.uniforms(p.seed[alive], tick),
        p.temperature[alive],
        p.top_p[alive],
        p.top_k[alive],
        truncated=p.truncated,
    )


def _endings(
    p: Draws, out: Tensor, alive: Tensor, history: Tensor, code: Tensor, done: Tensor
) -> _Endings:
    """The samples that are done: one ending per distinct history and reason.

    `out` has the tokens of all samples so far, i64[S, T]; the other tensors are of those alive.
    """
    ended = done.nonzero()[:, 0]
    kinds, kind = torch.unique(history[ended] * len(FINISHES) + code[ended], return_inverse=True)
    one = torch.zeros_like(kinds).scatter_(0, kind, ended)
    steps = [tuple(ids) for ids in out[alive[one]].tolist()]
    nodes = p.node[alive[one]].tolist()
    return _Endings(
        ended,
        kind,
        one,
        reasons=kinds % len(FINISHES),
        steps=steps,
        parents=[p.nodes[i] for i in nodes],
        rules=[p.step_ends[i] for i in nodes if p.step_ends],
    )


def _open(found: _Endings, p: Draws, alive: Tensor, code: Tensor, done: Tensor) -> bool:
    """Takes steps whose texts are not closed out of `done`; returns whether there are any.

    A step at its limit stays in `done`, with the limit as its reason.
    """
    going_on = [
        reason == STEP and not rule.text.closes(ids, rule.rest)
        for reason, ids, rule in zip(found.reasons.tolist(), found.steps, found.rules, strict=True)
    ]
    if not any(going_on):
        return False
    open_ = found.ended[torch.tensor(going_on, device=done.device)[found.kind]]
    code[open_] = p.at_limit[alive[open_]]
    done[open_] = p.limit[alive[open_]] <= len(found.steps[0])
    return True


class _Drawn:
    """The samples so far.

    `certainty` and `vectors` are as in the request. `endings` are the distinct samples, of which
    the first is empty, for a path that leaves no room; `ending`, i64[S], is each sample's index in
    them.
    """

    def __init__(self, num_samples: int, asked: StepRequest | None):
        self.certainty: TokenCertainty | None = None if asked is None else asked.certainty
        self.vectors = asked is not None and asked.vectors
        self.endings: list[_Ending] = [_Ending((), CONTEXT, 0.0, None, (), None)]
        self.ending = np.zeros(num_samples, dtype=np.int64)

    def add(self, sample: Tensor, ending: Tensor, endings: Sequence[_Ending]) -> None:
        """Adds the endings of some samples; `ending` has each sample's index in `endings`."""
        self.ending[sample.cpu().numpy()] = ending.cpu().numpy() + len(self.endings)
        self.endings += endings


def _keys(path: Path) -> list[tuple[int, ...]]:
    """A path's steps as the cache addresses them; a step without tokens adds nothing."""
    return [step.token_ids for step in path if step.token_ids]


def _table(ids: list[int], model: CausalModel) -> Tensor:
    """bool[V], true at `ids`."""
    table = torch.zeros(model.vocab_size, dtype=torch.bool, device=model.device)
    table[ids] = True
    return table
