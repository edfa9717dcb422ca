"""Process reward models on transformers: every distinct step of every path is computed once.

Rule of the cache: **a step's keys and values, and its score, come from one pass over the step's own
tokens on top of its cached prefix**, in widths that follow from the two lengths. A missing prefix
is computed step by step in the same way. So a score does not depend on whether its path was scored
at once, grew step by step, or was dropped in between.

A call is served in waves of questions whose paths fit the cache, see `prefix_cache`. A segment
keeps its score, so the last step of a path needs no room in the cache.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Sequence
from typing import Unpack

import torch

from ...errors import PathTooLongError
from ...protocols import Path, Question, Scoring, TokenUsage
from ..prm.answer_steps import AnswerStepScorer, answer_steps
from ..prm.format import PRMFormat
from ..prm.format import prm_format as format_of
from ..prm.newest_steps import check_score
from ..prm.sparsity import checkpoint_sparsity
from .model import CHUNK_WIDTH, WIDTH, LoadOptions, padded
from .prefix_cache import Segment, missing
from .reward_model import RewardModel
from .token_budget import TokenBudget


class HuggingFaceScorer(AnswerStepScorer):
    """`StepScorer` for a PRM in a local folder.

    On the CPU in float32 a score is a function of its question and path alone, bit for bit.

    A path longer than the model's context has the score None and costs nothing.
    `usage[i].computed` counts the tokens that went through the model for path i. A token that an
    earlier path of the call shares, or that an earlier call computed and `keep_only` has kept,
    counts as cached, even if it is computed again. `score` raises ScorerContractError for a score
    that is not a number in [0, 1], and RunStoppedError for a path that does not fit the cache, or a
    row that does not fit the device's memory.

    Args:
        prm_format: how the PRM reads a path, or the name of a format that does not need the folder.
        path, batch_tokens, options: as for `HuggingFaceGenerator`; `kv_cache_gib` changes no score
            and no usage.

    Attributes:
        finished_only: whether the format is that of an outcome model: a path is then a finished
            answer, and its score that of the whole.
        recomputed: see `HuggingFaceGenerator`.

    Raises:
        BadInputError: before the weights are loaded, if an argument can't work.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        prm_format: PRMFormat | str,
        *,
        batch_tokens: int = 1 << 15,
        **options: Unpack[LoadOptions],
    ):
        if isinstance(prm_format, str):
            prm_format = format_of(prm_format)
        super().__init__(thoughts=prm_format.thoughts)
        self._budget = TokenBudget(batch_tokens)
        self._model = RewardModel(path, prm_format, **options)
        sparsity = checkpoint_sparsity(path, prm_format.read_out, adapter=self._model.adapter)
        self.sparsity_total = sparsity.total
        self.sparsity_last_layer = sparsity.last_layer
        self._model.load_weights()
        self.name = self._model.name
        self.finished_only = prm_format.finished_only
        self.num_parameters = self._model.num_parameters
        self._cache = self._model.new_cache()
        self.recomputed = 0

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Frees a question's cached state except prefixes of `paths`; without paths, all of it."""
        encode = self._model.encoder.chunks
        texts = [[step.text for step in self._read(path)] for path in paths]
        keys = [encode(question.text, each)[1:] if each else [] for each in texts]
        self._cache.keep_only(question, keys)

    def _count_tokens(self, question: Question, path: Path) -> int:
        return sum(map(len, self._model.chunks(question, path)))

    def _read(self, path: Path) -> Path:
        return path if self._reads_thoughts else answer_steps(path)[0]

    @torch.inference_mode()
    def _score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        before = self._model.seconds
        # Paths are equal if they consist of the same objects: equal samples share their steps, so
        # texts need no comparison.
        places: dict[tuple[int, ...], list[int]] = {}
        for index, (question, path) in enumerate(zip(questions, paths, strict=True)):
            places.setdefault((id(question), *map(id, path)), []).append(index)
        fitting: list[list[int]] = []
        chunks: list[list[tuple[int, ...]]] = []
        for equal in places.values():
            with contextlib.suppress(PathTooLongError):
                chunks.append(self._model.chunks(questions[equal[0]], paths[equal[0]]))
                fitting.append(equal)
        ends, computed = self._paths([questions[equal[0]] for equal in fitting], chunks)
        self._compute_all([end for end in dict.fromkeys(ends) if not end.computed])
        scores: list[float | None] = [None] * len(paths)
        usage = [TokenUsage()] * len(paths)
        for equal, segment, new in zip(fitting, ends, computed, strict=True):
            assert segment.score is not None
            first = equal[0]
            check_score(segment.score, questions[first], len(paths[first]) - 1, self.name)
            for index in equal:
                scores[index], usage[index] = segment.score, TokenUsage(cached=len(segment))
            usage[first] = TokenUsage(computed=new, cached=len(segment) - new)
        return Scoring(scores, usage, inside_seconds=self._model.seconds - before)

    def _paths(
        self, questions: Sequence[Question], chunks: Sequence[list[tuple[int, ...]]]
    ) -> tuple[list[Segment], list[int]]:
        """The end of each path, and its tokens to compute; the first path that has one pays."""
        charged: set[Segment] = set()
        ends: list[Segment] = []
        computed: list[int] = []
        for question, (prompt, *steps) in zip(questions, chunks, strict=True):
            path = [self._cache.root(question, prompt, len(prompt))]
            for step in steps:
                path.append(path[-1].child(step))
            new = [each for each in path if not each.computed and each not in charged]
            charged.update(new)
            ends.append(path[-1])
            computed.append(sum(each.own for each in new))
        return ends, computed

    def _compute_all(self, ends: Sequence[Segment]) -> None:
        """Computes and scores some paths' last steps, and before them what their paths lack."""
        parents = [end.parent for end in ends if end.parent is not None]  # none is a prompt
        for wave in self._cache.waves(parents):
            for level in missing([parents[i] for i in wave]):
                self.recomputed += sum(segment.own for segment in level if segment.computed)
                self._compute(level)
            self._compute([ends[i] for i in wave if not ends[i].computed])

    def _compute(self, segments: Sequence[Segment]) -> None:
        """Computes, scores and caches segments."""
        widths = [
            padded(len(each) - each.own, WIDTH) + padded(each.own, CHUNK_WIDTH) for each in segments
        ]
        self._budget.run(segments, widths, self._extend)

    def _extend(self, segments: Sequence[Segment]) -> None:
        prefixes = [segment.parent for segment in segments]
        logits, kv = self._model.extend(self._cache, prefixes, [each.tokens for each in segments])
        for segment, score in zip(segments, self._model.scores(logits), strict=True):
            if segment.score is None:
                segment.score = score
        self._cache.store(segments, kv)
