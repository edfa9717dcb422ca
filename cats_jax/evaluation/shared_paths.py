"""Whole paths shared between cells: sampled once, and scored once by each PRM.

Majority and best-of-N at any N and with any PRM read the first N paths of one pool, because seeds
derive from run seed, question, step and row. The cell with the largest N is searched first, and its
samples and scores are stored. For the other cells, policy and PRM answer from the store. A row's
ledger has the cost of the row alone, because bridges report the additional cost of each sample over
the samples before it.

Only the samples and scores of questions in flight are in memory; see `paths_file` for the others.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..live.calls import generate, score
from ..live.proxies import GeneratorProxy, ScorerProxy
from ..live.results import SearchResult
from ..live.whole_answers import AnswerSource, whole_scores
from ..protocols import (
    Generation,
    Path,
    Question,
    Scoring,
    StepGenerator,
    StepRequest,
    StepScorer,
    TokenUsage,
    seconds_of,
    shared_seconds,
    total_usage,
)
from ..specs.functions import is_function_name
from .cells import Cell
from .paths_file import Name, PathsFile
from .stored_paths import (
    StoredSample,
    StoredScore,
    sample_keys,
    samples_from_json,
    samples_to_json,
    scores_from_json,
    scores_to_json,
    text_name,
    whole_paths,
)


class SharedPaths:
    """Store of samples and scores by pool, PRM and question.

    What can't be stored, as on a full disk, is sampled again.
    """

    def __init__(self, path: pathlib.Path | None = None) -> None:
        """Open or create the store in the file `path`; without a path it is temporary.

        Raises:
            BadInputError: the path is a link or no plain file.
        """
        self._file = PathsFile(path)

    def close(self) -> None:
        """Close the file; a temporary one is gone."""
        self._file.close()

    def share(
        self, cell: Cell, policy: StepGenerator, scorer: StepScorer | None
    ) -> tuple[StepGenerator, StepScorer | None, Callable[[SearchResult], None]]:
        """Wrap policy and PRM for a cell with a pool; they answer from the store where they can.

        They are called for samples and scores that are not stored.

        Returns:
            The wrapped policy, the wrapped PRM (None if `scorer` is None), and a function to call
            with each result when its question ends.
        """
        assert cell.pool is not None
        samples = _Parts(self._file, cell.pool, None, cell.num_candidates)
        parts = [samples]
        generator = RememberingGenerator(policy, samples)
        remembering = None
        if scorer is not None:
            label = "" if cell.prm is None else cell.prm.label
            scores = _Parts(self._file, _score_pool(cell), label, cell.num_candidates)
            parts.append(scores)
            remembering = RememberingScorer(whole_scores(scorer, generator), scores)

        def end(result: SearchResult) -> None:
            # A search that was cut short would leave gaps in the pool. So would a search whose PRM
            # could not read a path.
            whole = result.status in ("answered", "no_answer") and not result.ledger.prm_refused
            for part in parts:
                part.end(result.question, keep=whole)

        return generator, remembering, end

    def share_scores(
        self, pool: str, prm: str, num_paths: int, scorer: StepScorer
    ) -> tuple[StepScorer, Callable[[Question, bool], None]]:
        """Wrap a PRM that scores recorded paths, so that it answers from the store where it can.

        The paths are the first `num_paths` of `pool`, and `prm` is the PRM's label. The PRM is
        called for scores that are not stored.

        Returns:
            The wrapped PRM, and a function to call when a question ends, with the question and
            whether its scores are complete and may be stored.
        """
        part = _Parts(self._file, pool, prm, num_paths)
        return RememberingScorer(scorer, part), lambda question, keep: part.end(question, keep=keep)


def _score_pool(cell: Cell) -> str:
    """Name of the pool of scores: the cost of a score depends on the steps scored before it.

    Our strategies that keep all paths score every step. Functions may leave steps out.
    """
    assert cell.pool is not None
    own = f", {cell.spec.name} {cell.spec.options}" if is_function_name(cell.spec.name) else ""
    return f"{cell.pool}{own}"


@dataclass(slots=True)
class _Part:
    """One question's samples, or its scores.

    Attributes:
        known: `Samples` or `Scores`.
        recalled: whether `known` was loaded from the store; otherwise this search fills it.
        whole: whether all that was loaded belongs to this search.
        told: number of times each key was answered from `known`.
    """

    known: dict[Any, Any]
    recalled: bool
    whole: bool = False
    told: Counter[Any] = field(default_factory=Counter)


class _Parts:
    """The samples, or the scores, of one cell's questions in flight."""

    def __init__(self, file: PathsFile, pool: str, prm: str | None, num_paths: int) -> None:
        self._file = file
        self._where = (pool, prm)
        self._num_paths = num_paths
        self._open: dict[str, _Part] = {}
        self._to_json: Callable[[Any], Any] = samples_to_json if prm is None else scores_to_json
        self._from_json: Callable[[Any], Any] = (
            samples_from_json if prm is None else scores_from_json
        )

    def open(self, question: Question) -> _Part:
        """The question's part, loaded from the store at its first use."""
        part = self._open.get(question.id)
        if part is None:
            name = Name(*self._where, question.id)
            found = self._file.load(name, self._num_paths, self._from_json)
            if found is None:
                part = _Part({}, recalled=False)
            else:
                part = _Part(found[0], recalled=True, whole=found[1] == self._num_paths)
            self._open[question.id] = part
        return part

    def is_recalled(self, question: Question) -> bool:
        """Whether an open question is answered from memory."""
        part = self._open.get(question.id)
        return part is not None and part.recalled

    def end(self, question: Question, *, keep: bool) -> None:
        """Close a question's part; `keep` says whether newly filled parts are stored."""
        part = self._open.pop(question.id, None)
        if keep and part is not None and part.known and not part.recalled:
            name = Name(*self._where, question.id)
            self._file.save(name, self._num_paths, self._to_json(part.known))


class RememberingGenerator(GeneratorProxy[StepGenerator]):
    """`StepGenerator` that answers from stored samples and calls another one for the rest."""

    def __init__(self, policy: StepGenerator, parts: _Parts) -> None:
        super().__init__(policy)
        self._parts = parts
        self._scored: set[str] = set()

    def unscored(self, question: Question) -> Sequence[Path]:
        """See `AnswerSource.unscored`; whole answers from the store count as just sampled."""
        if not isinstance(self._model, AnswerSource):
            return []
        part = self._parts.open(question)
        if not part.recalled:
            return self._model.unscored(question)
        return whole_paths(part.known) if part.whole and question.id not in self._scored else []

    def scored(self, question: Question) -> None:
        """See `AnswerSource.scored`."""
        self._scored.add(question.id)
        if isinstance(self._model, AnswerSource):
            self._model.scored(question)

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Pass the call on to the wrapped policy, except for questions answered from the store."""
        if not paths:
            self._scored.discard(question.id)
        if not self._parts.is_recalled(question):
            super().keep_only(question, paths)

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Stored samples with their stored cost; the other samples come from the policy."""
        answers = [self._recall(request) for request in requests]
        new = [i for i, answer in enumerate(answers) if answer is None]
        inside = 0.0
        totals: dict[int, tuple[TokenUsage, float]] = {}
        if new:
            fresh = generate(self._model, [requests[i] for i in new])
            inside = fresh.inside_seconds
            seconds = seconds_of(fresh)
            for place, i in enumerate(new):
                totals[i] = fresh.usage[place], seconds[place]
                answers[i] = self._remember(requests[i], fresh, place, seconds[place])
        samples, usage, parts = [], [], []
        for i, answer in enumerate(answers):
            assert answer is not None
            samples.append([each.sample for each in answer])
            total = total_usage([each.usage for each in answer])
            own, spent = totals.get(i, (total, sum(each.seconds for each in answer)))
            usage.append(own)
            parts.append(spent)
        return Generation(samples, usage, inside, seconds=parts)

    def _recall(self, request: StepRequest) -> list[StoredSample] | None:
        part = self._parts.open(request.question)
        if not part.recalled:
            return None
        keys = sample_keys(request)
        return [part.known[key] for key in keys] if all(key in part.known for key in keys) else None

    def _remember(
        self, request: StepRequest, fresh: Generation, place: int, seconds: float
    ) -> list[StoredSample]:
        samples = fresh.samples[place]
        if fresh.sample_usage is None:  # the cost of each sample is unknown, so none is shared
            return [StoredSample(sample, TokenUsage(), 0.0) for sample in samples]
        usage = fresh.sample_usage[place]
        answer = list(map(StoredSample, samples, usage, shared_seconds(usage, seconds)))
        known = self._parts.open(request.question).known
        known.update(zip(sample_keys(request), answer, strict=True))
        return answer


class RememberingScorer(ScorerProxy[StepScorer]):
    """`StepScorer` that answers from stored scores and calls another one for the rest."""

    def __init__(self, scorer: StepScorer, parts: _Parts) -> None:
        super().__init__(scorer)
        self._parts = parts

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Pass the call on to the wrapped PRM, except for questions answered from the store."""
        if not self._parts.is_recalled(question):
            super().keep_only(question, paths)

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """Stored scores with their stored cost; the other scores come from the PRM."""
        parts = [self._parts.open(question) for question in questions]
        keys = [text_name(path) for path in paths]
        new = [
            i
            for i, (part, key) in enumerate(zip(parts, keys, strict=True))
            if not part.recalled or key not in part.known
        ]
        inside = 0.0
        answers: dict[int, StoredScore] = {}
        if new:
            fresh = score(self._model, [questions[i] for i in new], [paths[i] for i in new])
            inside = fresh.inside_seconds
            seconds = seconds_of(fresh)
            found = map(StoredScore, fresh.scores, fresh.usage, seconds)
            answers = dict(zip(new, found, strict=True))
            for i, answer in answers.items():
                parts[i].known.setdefault(keys[i], []).append(answer)
        for i, (part, key) in enumerate(zip(parts, keys, strict=True)):
            if i not in answers:
                entries = part.known[key]
                answers[i] = entries[min(part.told[key], len(entries) - 1)]
                part.told[key] += 1
        scored = [answers[i] for i in range(len(paths))]
        return Scoring(
            [score for score, _, _ in scored],
            [usage for _, usage, _ in scored],
            inside,
            seconds=[spent for _, _, spent in scored],
        )
