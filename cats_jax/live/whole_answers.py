"""Whole answers in one request, for strategies that discard no path.

Such a strategy needs each of its paths to the end. Step by step, each step would cost a request,
and each tick would wait for its longest step. Here the first request of a question samples whole
answers, and requests for later steps are served from them. The PRM reads each answer once, and its
scores of later steps are kept in the same way.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import search

from ..protocols import (
    Answer,
    AnswerGenerator,
    AnswerScorer,
    Generation,
    Path,
    Question,
    Scoring,
    StepGenerator,
    StepRequest,
    StepSample,
    StepScorer,
    TokenUsage,
    facts_of,
    total_usage,
)
from .calls import generate, generate_answers, score_answers
from .prompt_proxy import Made, parts_of
from .proxies import GeneratorProxy, ScorerProxy
from .tree import why_invalid


def whole_answers(
    policy: StepGenerator, strategy: search.Strategy, *, max_depth: int, limited: bool
) -> StepGenerator:
    """The policy, wrapped to sample whole answers if the strategy needs them and the policy can.

    If a limit on candidates, tokens or seconds may end a question early (`limited`), steps are
    sampled one by one, so that no step beyond the limit is charged. A strategy with several
    sampling settings may sample later steps with others than the first.
    """
    keeps_all = strategy.keeps_all_paths or strategy.ignores_num_candidates
    whole = keeps_all and len(strategy.sampling) == 1 and not limited
    if whole and isinstance(policy, AnswerGenerator):
        return WholeAnswers(policy, max_depth)
    return policy


def whole_scores(scorer: StepScorer, policy: StepGenerator) -> StepScorer:
    """The PRM, wrapped to score whole answers in one pass if it can and the policy has them.

    An outcome model is not wrapped: it scores finished answers only, each in one pass.
    """
    by_steps = not facts_of(scorer).finished_only
    if by_steps and isinstance(scorer, AnswerScorer) and isinstance(policy, AnswerSource):
        return WholeScores(scorer, policy)
    return scorer


class WholeAnswers(GeneratorProxy[AnswerGenerator]):
    """`StepGenerator` whose samples are the first steps of whole answers.

    All tokens of an answer are charged when it is sampled; its later steps cost nothing. If an
    answer was cut at the limit for answers, the rest of it is sampled in the same way. The answers
    of a request depend on the request alone; the first ones are the same for any number of answers.
    The last of `max_depth` steps runs to the end of the answer.
    """

    def __init__(self, policy: AnswerGenerator, max_depth: int) -> None:
        super().__init__(policy)
        self._max_depth = max_depth
        # Rests of sampled answers that are not requested yet: question -> path -> rests.
        self._rests: dict[str, dict[Any, deque[Answer]]] = {}
        # Sampled paths that are not passed to the PRM yet, without unusable steps.
        self._unscored: dict[str, list[Path]] = {}

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Free a question's cached state except prefixes of `paths`; without paths, all of it."""
        if not paths:
            self._rests.pop(question.id, None)
            self._unscored.pop(question.id, None)
        super().keep_only(question, paths)

    def unscored(self, question: Question) -> list[Path]:
        """See `AnswerSource.unscored`."""
        return self._unscored.get(question.id, [])

    def scored(self, question: Question) -> None:
        """See `AnswerSource.scored`."""
        self._unscored.pop(question.id, None)

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Sample every request; see `StepGenerator.generate`."""
        parts: dict[int, Made] = {}
        answers: list[int] = []
        last_steps: list[int] = []
        known: dict[int, Answer] = {}
        taken: Counter[tuple[str, Any]] = Counter()
        for i, request in enumerate(requests):
            if rest := self._next_rest(request, taken):
                known[i] = rest
            else:
                (last_steps if request.to_end else answers).append(i)
        inside = 0.0
        # State changes last: a call that broke the contract is repeated question by question.
        if last_steps:
            generation = generate(self._model, [requests[i] for i in last_steps])
            inside += generation.inside_seconds
            parts |= zip(last_steps, parts_of(generation, generation.samples), strict=True)
        if answers:
            asked = [requests[i] for i in answers]
            whole = generate_answers(self._model, asked, self._max_depth)
            inside += whole.inside_seconds
            samples = [
                [self._sampled(requests[i].question, requests[i].path, each) for each in found]
                for i, found in zip(answers, whole.answers, strict=True)
            ]
            parts |= zip(answers, parts_of(whole, samples), strict=True)
        for (question, path), count in taken.items():
            for _ in range(count):
                self._rests[question][path].popleft()
        for i, rest in known.items():
            sample = self._first(requests[i].question, requests[i].path, rest)
            parts[i] = Made([sample], TokenUsage(), 0.0, [TokenUsage()])
        found = [parts[i] for i in range(len(requests))]
        each = [part.sample_usage for part in found if part.sample_usage is not None]
        return Generation(
            samples=[part.samples for part in found],
            usage=[part.usage for part in found],
            inside_seconds=inside,
            sample_usage=each if len(each) == len(found) else None,
            seconds=[part.seconds for part in found],
        )

    def _next_rest(self, request: StepRequest, taken: Counter[tuple[str, Any]]) -> Answer:
        """The rest of a sampled answer that continues the request's path; empty without one.

        Answers with the same beginning are served in the order in which they were sampled. `taken`
        counts the rests that requests of the call took, by question and path; this one is added.
        """
        place = request.question.id, _key(request.path)
        rests = self._rests.get(place[0], {}).get(place[1], ())
        if len(request.seeds) != 1 or len(rests) <= taken[place]:
            return ()
        taken[place] += 1
        return rests[taken[place] - 1]

    def _sampled(self, question: Question, path: Path, answer: Answer) -> StepSample:
        """The first step of a new answer."""
        usable = itertools.takewhile(lambda sample: why_invalid(sample) is None, answer)
        steps = tuple(sample.step for sample in usable)
        if steps:
            self._unscored.setdefault(question.id, []).append((*path, *steps))
        return self._first(question, path, answer)

    def _first(self, question: Question, path: Path, answer: Answer) -> StepSample:
        """The first step of an answer or of its rest; what follows is kept for later requests."""
        first, *rest = answer
        if first.finish == "step":
            rests = self._rests.setdefault(question.id, {})
            # A cut answer has an empty rest, which keeps its place among others.
            rests.setdefault(_key((*path, first.step)), deque()).append(tuple(rest))
        return first


@runtime_checkable
class AnswerSource(Protocol):
    """Source of the answers that were sampled whole."""

    def unscored(self, question: Question) -> Sequence[Path]:
        """The question's paths for which `scored` was not called, up to their last usable steps."""
        ...

    def scored(self, question: Question) -> None:
        """Forget the paths that `unscored` returned."""
        ...


class WholeScores(ScorerProxy[AnswerScorer]):
    """`StepScorer` that scores each whole answer in one pass.

    All of an answer is charged when its first step is scored; its later steps cost nothing.
    """

    def __init__(self, scorer: AnswerScorer, answers: AnswerSource) -> None:
        super().__init__(scorer)
        self._answers = answers
        # The scores of a question's paths.
        self._known: dict[str, dict[Any, float | None]] = {}

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Free a question's cached state except prefixes of `paths`; without paths, all of it."""
        if not paths:
            self._known.pop(question.id, None)
            self._answers.scored(question)
        super().keep_only(question, paths)

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """Score the last step of each path; see `StepScorer.score`."""
        places: dict[Question, list[int]] = {}
        for i, question in enumerate(questions):
            places.setdefault(question, []).append(i)
        asked = [
            (question, path, payer)
            for question, own in places.items()
            for path, payer in self._asked(question, {i: paths[i] for i in own})
        ]
        usage = [TokenUsage()] * len(paths)
        inside = 0.0
        if asked:
            scoring = score_answers(
                self._model,
                [question for question, _, _ in asked],
                [path for _, path, _ in asked],
                [self._steps_known(question, path) for question, path, _ in asked],
            )
            inside = scoring.inside_seconds
            for (question, path, payer), scores, cost in zip(
                asked, scoring.scores, scoring.usage, strict=True
            ):
                usage[payer] = total_usage([usage[payer], cost])
                known = self._known.setdefault(question.id, {})
                key = _texts(path)
                for end, score in enumerate(scores, start=len(path) - len(scores) + 1):
                    known[key[:end]] = score
            for question in places:
                self._answers.scored(question)
        found = [
            self._known[question.id][_texts(path)]
            for question, path in zip(questions, paths, strict=True)
        ]
        return Scoring(found, usage, inside_seconds=inside)

    def _asked(self, question: Question, paths: dict[int, Path]) -> list[tuple[Path, int]]:
        """The paths of a question to send to the PRM, and the place in the call that pays for each.

        `paths` are the paths to score by their places in the call. If a path occurs several times,
        its first place pays for the first answer that begins with it, its second place for the
        second answer, and so on.
        """
        waiting: dict[Any, deque[int]] = {}
        for i, path in paths.items():
            waiting.setdefault(_texts(path), deque()).append(i)
        asked: list[tuple[Path, int]] = []
        covered = set(self._known.get(question.id, {}))
        for path in self._answers.unscored(question):
            key = _texts(path)
            beginnings = [key[:end] for end in range(len(key), 0, -1)]
            covered.update(beginnings)
            payers = next((waiting[each] for each in beginnings if each in waiting), None)
            if payers is None:
                payer = next(iter(paths))
            else:
                payer = payers.popleft() if len(payers) > 1 else payers[0]
            asked.append((path, payer))
        return asked + [(path, i) for i, path in paths.items() if _texts(path) not in covered]

    def _steps_known(self, question: Question, path: Path) -> int:
        """Number of the path's steps, from the first, whose scores are known."""
        known, key = self._known.get(question.id, {}), _texts(path)
        return next((end for end in range(len(path)) if key[: end + 1] not in known), len(path))


def _key(path: Path) -> tuple[tuple[int, ...], ...]:
    return tuple(step.token_ids for step in path)


def _texts(path: Path) -> tuple[str, ...]:
    """What a PRM reads of a path; steps with different tokens may have the same text."""
    return tuple(step.text for step in path)
