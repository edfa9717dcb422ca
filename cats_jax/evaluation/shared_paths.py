"""Whole paths shared between cells: sampled once, and scored once by each PRM.

Majority and best-of-N at any N and with any PRM read the first N paths of one pool, because seeds
derive from run seed, question, step and row. The cell with the largest N is searched first, and its
samples and scores are stored. For the other cells, policy and PRM answer from the store. A row's
ledger has the cost of the row alone, because bridges report the additional cost of each sample over
the samples before it.

Only the samples and scores of questions in flight are in memory.
"""

from __future__ import annotations

import pickle
import sqlite3
import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..live.calls import generate, score
from ..live.proxies import GeneratorProxy, ScorerProxy
from ..live.results import SearchResult
from ..live.tree import why_invalid
from ..live.whole_answers import AnswerSource, whole_scores
from ..protocols import (
    Generation,
    Path,
    Question,
    Scoring,
    Step,
    StepGenerator,
    StepRequest,
    StepSample,
    StepScorer,
    TokenUsage,
    shared_seconds,
    total_usage,
)
from .cells import Cell


class SharedPaths:
    """Store of samples and scores by pool, PRM and question.

    It is a temporary SQLite file, private to this process and removed with it. On a full disk,
    samples are not stored; they are sampled again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prm: str | None = None
        # An empty name is a temporary file, which SQLite removes.
        self._file = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._file.execute(
            "CREATE TABLE parts (pool TEXT, prm TEXT, question TEXT, paths INTEGER, content BLOB, "
            "PRIMARY KEY (pool, prm, question))"
        )

    def close(self) -> None:
        """Remove the file."""
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
        parts = [_Parts(self, cell.pool, "", cell.num_candidates)]
        generator = RememberingGenerator(policy, parts[0])
        remembering = None
        if scorer is not None:
            label = "" if cell.prm is None else cell.prm.label
            self._forget_other_prms(label)
            parts.append(_Parts(self, cell.pool, f"prm {label}", cell.num_candidates))
            remembering = RememberingScorer(whole_scores(scorer, generator), parts[1])

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
        self._forget_other_prms(prm)
        part = _Parts(self, pool, f"prm {prm}", num_paths)
        return RememberingScorer(scorer, part), lambda question, keep: part.end(question, keep=keep)

    def load(
        self, pool: str, prm: str, question: str, paths: int
    ) -> tuple[dict[Any, Any], int] | None:
        """Stored samples or scores of a question, and their number of paths, `paths` or more."""
        with self._lock:
            found = self._file.execute(
                "SELECT content, paths FROM parts "
                "WHERE pool=? AND prm=? AND question=? AND paths>=?",
                (pool, prm, question, paths),
            ).fetchone()
        # This process wrote the content, so it is safe to unpickle.
        return None if found is None else (pickle.loads(zlib.decompress(found[0])), found[1])

    def save(self, pool: str, prm: str, question: str, paths: int, known: dict[Any, Any]) -> None:
        """Store samples or scores of a question with `paths` paths, replacing the stored ones."""
        content = zlib.compress(pickle.dumps(known, pickle.HIGHEST_PROTOCOL), 1)
        with self._lock:
            try:
                self._file.execute(
                    "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?)",
                    (pool, prm, question, paths, content),
                )
            except sqlite3.OperationalError:
                return  # no room on the disk: other rows sample again

    def _forget_other_prms(self, label: str) -> None:
        """Delete stored scores of all PRMs but one; cells come by PRM, so none is needed again."""
        if label == self._prm:
            return
        self._prm = label
        with self._lock:
            self._file.execute("DELETE FROM parts WHERE prm NOT IN ('', ?)", (f"prm {label}",))


@dataclass(slots=True)
class _Part:
    """One question's samples, or its scores.

    Attributes:
        known: samples by request and seed, or lists of scores by path.
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

    def __init__(self, store: SharedPaths, pool: str, prm: str, num_paths: int) -> None:
        self._store = store
        self._where = (pool, prm)
        self._num_paths = num_paths
        self._open: dict[str, _Part] = {}

    def open(self, question: Question) -> _Part:
        """The question's part, loaded from the store at its first use."""
        part = self._open.get(question.id)
        if part is None:
            found = self._store.load(*self._where, question.id, self._num_paths)
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
            self._store.save(*self._where, question.id, self._num_paths, part.known)


@dataclass(frozen=True, slots=True)
class _Sampled:
    sample: StepSample
    usage: TokenUsage
    seconds: float


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
        return _paths(part.known) if part.whole and question.id not in self._scored else []

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
            seconds = fresh.seconds or shared_seconds(fresh.usage, inside)
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

    def _recall(self, request: StepRequest) -> list[_Sampled] | None:
        part = self._parts.open(request.question)
        if not part.recalled:
            return None
        keys = _sample_keys(request)
        return [part.known[key] for key in keys] if all(key in part.known for key in keys) else None

    def _remember(
        self, request: StepRequest, fresh: Generation, place: int, seconds: float
    ) -> list[_Sampled]:
        samples = fresh.samples[place]
        if fresh.sample_usage is None:  # the cost of each sample is unknown, so none is shared
            return [_Sampled(sample, TokenUsage(), 0.0) for sample in samples]
        usage = fresh.sample_usage[place]
        answer = list(map(_Sampled, samples, usage, shared_seconds(usage, seconds)))
        known = self._parts.open(request.question).known
        known.update(zip(_sample_keys(request), answer, strict=True))
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
        keys = [tuple(step.text for step in path) for path in paths]
        new = [
            i
            for i, (part, key) in enumerate(zip(parts, keys, strict=True))
            if not part.recalled or key not in part.known
        ]
        inside = 0.0
        answers: dict[int, tuple[float | None, TokenUsage, float]] = {}
        if new:
            fresh = score(self._model, [questions[i] for i in new], [paths[i] for i in new])
            inside = fresh.inside_seconds
            seconds = fresh.seconds or shared_seconds(fresh.usage, inside)
            found = zip(fresh.scores, fresh.usage, seconds, strict=True)
            answers = dict(zip(new, found, strict=True))
            for i, answer in answers.items():
                # Of equal paths the first costs most: each has its own entry.
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


def _paths(known: dict[Any, _Sampled]) -> list[Path]:
    """The paths in a store of samples, by row, each up to its last usable step."""
    paths: list[list[Step]] = []
    growing: dict[Any, deque[list[Step]]] = {}
    # Within a step, samples are in the order of their rows, and so are the paths they belong to.
    for (_, (before, *_)), sampled in sorted(known.items(), key=lambda entry: len(entry[0][1][0])):
        sample = sampled.sample
        if before:
            path = growing[before].popleft()
        else:
            paths.append(path := [])
        if why_invalid(sample) is None:
            path.append(sample.step)
            growing.setdefault((*before, sample.step.token_ids), deque()).append(path)
    return [tuple(path) for path in paths if path]


def _sample_keys(request: StepRequest) -> list[Any]:
    """One key per seed: everything that a sample depends on apart from its question."""
    path = tuple(step.token_ids for step in request.path)
    rest = (path, request.temperature, request.top_p, request.top_k, request.to_end)
    return [(seed, rest) for seed in request.seeds]
