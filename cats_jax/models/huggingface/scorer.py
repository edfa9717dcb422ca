"""Process reward models on transformers: every distinct step of every path is computed once.

Rule of the cache: **a step's keys and values, and its score, come from one pass over the step's own
tokens on top of its cached prefix**, in widths that follow from the two lengths. A prefix that is
not there is computed step by step in the same way, so a score does not depend on whether its
path was scored at once, grew step by step, or was dropped in between.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...errors import PathTooLongError
from ...protocols import Path, Question, Scoring, TokenUsage
from ..prm.format import PRMFormat
from ..prm.newest_steps import broken, checked_chunks
from ..prm.sparsity import checkpoint_sparsity
from .model import CHUNK_WIDTH, WIDTH, padded
from .prefix_cache import Segment
from .prm import RewardModel
from .token_budget import TokenBudget


class HuggingFaceScorer:
    """`StepScorer` for a PRM in a local folder.

    On the CPU in float32 a score is a function of its question and path alone, bit for bit.

    Args:
        path: model folder (config, tokenizer, safetensors).
        prm_format: how the PRM reads a path.
        device: "cpu", "cuda" or "cuda:N".
        dtype: "float32" or "bfloat16".
        batch_tokens: tokens (rows x width) of one micro-batch; halved when memory runs out.
        num_threads: torch's threads, for the whole process (see `CausalModel`).

    Raises:
        BadInputError: before the weights are read, if the folder or the format can't work.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        prm_format: PRMFormat,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        batch_tokens: int = 1 << 15,
        num_threads: int = 1,
    ):
        self._model = RewardModel(
            path, prm_format, device=device, dtype=dtype, num_threads=num_threads
        )
        sparsity = checkpoint_sparsity(path, prm_format.read_out)
        self.sparsity_total = sparsity.total
        self.sparsity_last_layer = sparsity.last_layer
        self._budget = TokenBudget(batch_tokens)
        self._model.load_weights()
        self.name = self._model.name
        self.num_parameters = self._model.num_parameters
        self._cache = self._model.new_cache()

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Frees a question's cached state except prefixes of `paths`; without paths, all of it."""
        encode = self._model.encoder.chunks
        keys = [encode(question.text, [s.text for s in path])[1:] if path else [] for path in paths]
        self._cache.keep_only(question, keys)

    def count_tokens(self, question: Question, path: Path) -> int:
        """Number of tokens of a path as the model reads it, prompt included.

        Raises:
            ScorerContractError: a path without steps, a blank step, or a path longer than the
                model's context.
        """
        return sum(map(len, self._chunks(question, path)))

    @torch.inference_mode()
    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """Scores the last step of each path; see `StepScorer.score`.

        A path longer than the model's context has the score None and costs nothing.
        `usage[i].computed` counts the tokens that went through the model for path i; a token that
        an earlier path of the call shares, or that was cached before, counts as cached.

        Raises:
            ValueError: not one question per path.
            ScorerContractError: a path without steps, a blank step (both before any work), or a
                score that is no number in [0, 1].
        """
        if len(questions) != len(paths):
            raise ValueError(f"{len(questions)} questions for {len(paths)} paths")
        before = self._model.seconds
        fitting: list[int] = []
        chunks: list[list[tuple[int, ...]]] = []
        for index, (question, path) in enumerate(zip(questions, paths, strict=True)):
            with contextlib.suppress(PathTooLongError):
                chunks.append(self._chunks(question, path))
                fitting.append(index)
        computed = [0] * len(fitting)
        ends = self._ensure_cached([questions[index] for index in fitting], chunks, computed)
        scores: list[float | None] = [None] * len(paths)
        usage = [TokenUsage(computed=0, cached=0)] * len(paths)
        for index, segment, new in zip(fitting, ends, computed, strict=True):
            score = segment.score
            assert score is not None
            if not 0.0 <= score <= 1.0:  # False for NaN, too
                reason = f"the score is {score}, expected [0, 1]"
                broken(questions[index], len(paths[index]) - 1, reason, self.name)
            scores[index] = score
            usage[index] = TokenUsage(computed=new, cached=len(segment) - new)
        return Scoring(scores, usage, inside_seconds=self._model.seconds - before)

    def _chunks(self, question: Question, path: Path) -> list[tuple[int, ...]]:
        """The prompt's chunks, then each step's, checked against the contract."""
        return checked_chunks(
            self._model.encoder, question, path, context=self._model.context, name=self.name
        )

    def _ensure_cached(
        self,
        questions: Sequence[Question],
        chunks: list[list[tuple[int, ...]]],
        computed: list[int],
    ) -> list[Segment]:
        """The segment at the end of each path; missing segments are computed, level by level."""
        at: list[Segment | None] = [None] * len(chunks)
        depth = [0] * len(chunks)  # chunks found so far
        while True:
            missing: dict[tuple[object, tuple[int, ...]], int] = {}
            for i, (question, path) in enumerate(zip(questions, chunks, strict=True)):
                while depth[i] < len(path):
                    here, chunk = at[i], path[depth[i]]
                    found = self._cache.root(question) if here is None else here.children.get(chunk)
                    if found is None:
                        missing.setdefault((question if here is None else id(here), chunk), i)
                        break
                    at[i] = found
                    depth[i] += 1
            if not missing:
                return [segment for segment in at if segment is not None]
            rows = [_Row(i, questions[i], at[i], chunks[i][depth[i]]) for i in missing.values()]
            self._compute(rows, computed)

    def _compute(self, rows: list[_Row], computed: list[int]) -> None:
        """Computes, scores and caches chunks, grouped by the widths of prefix and chunk."""
        groups: dict[tuple[int, int], list[_Row]] = {}
        for row in rows:
            prefix = 0 if row.prefix is None else len(row.prefix)
            widths = (padded(prefix, WIDTH), padded(len(row.chunk), CHUNK_WIDTH))
            groups.setdefault(widths, []).append(row)
        for widths, group in sorted(groups.items()):
            self._budget.run(group, sum(widths), lambda part: self._extend(part, computed))

    def _extend(self, rows: Sequence[_Row], computed: list[int]) -> None:
        logits, kv = self._model.extend(
            self._cache, [row.prefix for row in rows], [row.chunk for row in rows]
        )
        scores = self._model.scores(logits)
        if rows[0].prefix is None:
            segments = self._cache.add_roots(
                [row.question for row in rows], [row.chunk for row in rows], kv
            )
        else:
            parents = [row.prefix for row in rows if row.prefix is not None]
            segments = self._cache.add_children(parents, [row.chunk for row in rows], kv)
        for row, segment, score in zip(rows, segments, scores, strict=True):
            segment.score = score
            computed[row.path] += len(row.chunk)


@dataclass(frozen=True, slots=True)
class _Row:
    """One chunk to compute, for the path that needed it first."""

    path: int
    question: Question
    prefix: Segment | None
    chunk: tuple[int, ...]
