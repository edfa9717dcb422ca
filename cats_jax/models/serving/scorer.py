"""A process reward model on a serving engine.

Only the newest step of a path is scored, or all new steps in one pass. The engine reads the
beginning of a path from its prefix cache, so that each token is computed about once.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import threading
from collections.abc import Callable, Sequence

from ...errors import PathTooLongError
from ...protocols import AnswerScoring, Path, Question, Scoring, TokenUsage, total_usage
from ..huggingface.reward_model import RewardModel
from ..prm.answer_steps import AnswerStepScorer, score_whole_answers
from ..prm.format import Head, PRMFormat
from ..prm.newest_steps import check_score
from ..prm.sparsity import checkpoint_sparsity
from ..stored_model import check_complete, num_parameters
from .shared_time import SharedTime
from .token_engine import Classifier


class EngineScorer(AnswerStepScorer):
    """`StepScorer` on a serving engine.

    In float32 a score differs from that of `HuggingFaceScorer` by about 1e-5 at most.

    A call of `score` is one call of the engine, in which equal paths are one request. A path longer
    than the context has the score None and costs nothing. `usage[i].cached` counts the tokens that
    the engine reports as cached (0 if it reports none), or all tokens of a path that equals an
    earlier one of the call. `inside_seconds` is the time of the call to the engine, with scheduling
    and transfer. `score` raises ScorerContractError for a score that is not a number in [0, 1].

    Args:
        path: model folder: configuration, tokenizer, safetensors (read here for the sparsity).
        prm_format: how the PRM reads a path.
        start: makes the engine, given the model without weights (tokenizer and configuration).
        max_model_len: largest number of tokens of a path; None: the model's own.

    Attributes:
        finished_only: as for `HuggingFaceScorer`; `score_answers` is then of no use.

    Raises:
        BadInputError: folder or format can't work (before the start), or the engine does not start.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        prm_format: PRMFormat,
        start: Callable[[RewardModel], Classifier],
        *,
        max_model_len: int | None = None,
    ):
        super().__init__(thoughts=prm_format.thoughts)
        # Tokenizer, format and configuration only: the weights are the engine's.
        self._model = RewardModel(path, prm_format)
        self._model.limit_context(max_model_len)
        read_out = prm_format.read_out
        head = read_out.layers if isinstance(read_out, Head) else ()
        check_complete(pathlib.Path(path), self._model.config, head)
        sparsity = checkpoint_sparsity(path, read_out)
        self.sparsity_total = sparsity.total
        self.sparsity_last_layer = sparsity.last_layer
        self.name = self._model.name
        self.finished_only = prm_format.finished_only
        self._apart = prm_format.layout == "judge"
        tied = bool(self._model.config.tie_word_embeddings)
        headless = "lm_head" not in head and (tied or bool(head))
        self.num_parameters = num_parameters(path, self._model.config, headless=headless)
        self.engine = start(self._model)
        self._time = SharedTime()
        self._tokenizing = threading.Lock()  # a tokenizer can't encode in two threads at a time

    @property
    def concurrent(self) -> bool:
        """Whether several threads may call it at a time, see `Classifier`."""
        return self.engine.concurrent

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Does nothing: an engine drops the least recently used blocks of its cache by itself."""

    def _count_tokens(self, question: Question, path: Path) -> int:
        return len(self._ids(question, path))

    def _score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        first: dict[tuple[int, ...], int] = {}
        asked: dict[int, tuple[int, ...]] = {}
        for i, (question, path) in enumerate(zip(questions, paths, strict=True)):
            with contextlib.suppress(PathTooLongError):
                asked[i] = self._ids(question, path)
                first.setdefault(asked[i], i)
        with self._time.call(max(1, len(first))) as share:
            answers = self.engine.classify(list(first)) if first else []

        found = dict(zip(first, answers, strict=True))
        scores: list[float | None] = [None] * len(paths)
        usage = [TokenUsage(computed=0, cached=0)] * len(paths)
        for i, ids in asked.items():
            answer = found[ids]
            check_score(answer.score, questions[i], len(paths[i]) - 1, self.name)
            cached = answer.cached if first[ids] == i else len(ids)
            scores[i] = answer.score
            usage[i] = TokenUsage(computed=len(ids) - cached, cached=cached)
        return Scoring(scores, usage, inside_seconds=share.seconds)

    def score_answers(
        self, questions: Sequence[Question], paths: Sequence[Path], known: Sequence[int]
    ) -> AnswerScoring:
        """Scores several steps of each path in one pass over it; see `AnswerScorer`.

        Equal paths are one request. `usage` and `inside_seconds` are those of `score`. If the
        engine has read the end of a step from its cache and no other path of the call has its
        score, the beginning of the path is a request of its own. A judge reads each step in its own
        prompt.

        Raises:
            ScorerContractError: as `score`.
        """
        score = self._score_apart if self._apart else self._score_answers
        if self._reads_thoughts:
            return score(questions, paths, known)
        return score_whole_answers(score, questions, paths, known)

    def _score_answers(
        self, questions: Sequence[Question], paths: Sequence[Path], known: Sequence[int]
    ) -> AnswerScoring:
        asked = [self._readable(*each) for each in zip(questions, paths, known, strict=True)]
        prompts: dict[tuple[int, ...], tuple[int, ...]] = {}
        for ids, ends in asked:
            if ends:  # where steps contain the tag, paths of equal ids may have other ends
                prompts[ids] = tuple(sorted({*prompts.get(ids, ()), *ends}))
        with self._time.call(max(1, len(prompts))) as share:
            found = self.engine.classify_steps(list(prompts), list(prompts.values()))
        scores = {
            ids[:end]: score
            for (ids, ends), answer in zip(prompts.items(), found, strict=True)
            for end, score in zip(ends, answer.scores, strict=True)
            if score is not None
        }
        beginnings = (ids[:end] for ids, ends in prompts.items() for end in ends)
        cached = list(dict.fromkeys(each for each in beginnings if each not in scores))
        with self._time.call(max(1, len(cached))) as rest:
            again = dict(zip(cached, self.engine.classify(cached) if cached else [], strict=True))

        scores |= {ids: answer.score for ids, answer in again.items()}
        costs = {ids: answer.usage for ids, answer in zip(prompts, found, strict=True)}
        results: list[list[float | None]] = []
        usage: list[TokenUsage] = []
        for question, path, number, (ids, ends) in zip(questions, paths, known, asked, strict=True):
            results.append([None] * (len(path) - number))
            cost = [costs.pop(ids, TokenUsage(cached=len(ids)))]
            for step, end in enumerate(ends):
                score = scores[ids[:end]]
                check_score(score, question, number + step, self.name)
                results[-1][step] = score
                if (answer := again.pop(ids[:end], None)) is not None:
                    cost.append(TokenUsage(computed=end - answer.cached, cached=answer.cached))
            usage.append(total_usage(cost))
        return AnswerScoring(results, usage, share.seconds + rest.seconds)

    def _score_apart(
        self, questions: Sequence[Question], paths: Sequence[Path], known: Sequence[int]
    ) -> AnswerScoring:
        ends = [range(first + 1, len(path) + 1) for path, first in zip(paths, known, strict=True)]
        owners = [i for i, places in enumerate(ends) for _ in places]
        beginnings = [paths[i][:end] for i, places in enumerate(ends) for end in places]
        found = self._score([questions[i] for i in owners], beginnings)
        scores: list[list[float | None]] = [[] for _ in paths]
        usage: list[list[TokenUsage]] = [[] for _ in paths]
        for i, score, cost in zip(owners, found.scores, found.usage, strict=True):
            scores[i].append(score)
            usage[i].append(cost)
        return AnswerScoring(scores, [total_usage(own) for own in usage], found.inside_seconds)

    def _readable(
        self, question: Question, path: Path, known: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids of the path up to the last step that fits, and where its steps end from `known`."""
        if known >= len(path):
            return (), ()
        try:
            chunks = self._chunks(question, path)
        except PathTooLongError as error:
            return self._readable(question, path[: error.step or 0], known)
        ends = tuple(itertools.accumulate(map(len, chunks)))
        return tuple(itertools.chain.from_iterable(chunks)), ends[known - len(path) :]

    def _ids(self, question: Question, path: Path) -> tuple[int, ...]:
        return tuple(itertools.chain.from_iterable(self._chunks(question, path)))

    def _chunks(self, question: Question, path: Path) -> list[tuple[int, ...]]:
        with self._tokenizing:
            return self._model.chunks(question, path)
