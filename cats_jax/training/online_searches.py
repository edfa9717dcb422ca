"""The searches of on-line training, which a killed training repeats exactly."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import learners
import search
from learners.episodes import Played, episode_recorder, search_keys
from learners.update_fns import QuestionBatch, QuestionDraws

from ..datasets import QuestionSet
from ..errors import RunStoppedError
from ..live.calls import score
from ..live.results import SearchResult
from ..live.searcher import Searcher
from ..live.ticks import SearchInputs
from ..protocols import AnswerGrader, Path, Question, Scoring, StepGenerator, StepScorer, TokenUsage


@dataclass(frozen=True)
class CalibratedPrm:
    """A loaded PRM with its calibration (see `search.Calibration`)."""

    scorer: StepScorer
    calibration: tuple[float, ...]


@dataclass(frozen=True)
class Models:
    """The loaded models of an on-line training, and the grader of the answers."""

    policy: StepGenerator
    prms: tuple[CalibratedPrm, ...]
    grader: AnswerGrader


class IterationSearches(NamedTuple):
    """The searches of one iteration.

    Attributes:
        played: searches of each batch, for `learners.episodes.episodes_of`.
        reason: reason of the first failure, or empty.
    """

    played: list[Played]
    num_searches: int
    num_failed: int
    reason: str


@dataclass(frozen=True)
class OnlineSearches:
    """The searches of an iteration, all at once.

    The seed orders the questions and seeds the policy's samples.
    """

    config: learners.TrainConfig
    questions: QuestionSet
    models: Models
    seed: int
    in_flight: int

    @functools.cached_property
    def _updates(self) -> learners.UpdateFns:
        return learners.make_update_fns(self.config)

    def search(
        self, actor: Any, iteration: int, draws: Sequence[QuestionDraws]
    ) -> IterationSearches:
        """Search the questions of an iteration.

        If a search of a question fails, the records of all its searches are zeros.

        Args:
            iteration: number of the iteration, from 0.
            draws: draws of each batch, see `learners.UpdateFns`.

        Raises:
            RunStoppedError: all searches failed.
        """
        asked = self._asked(iteration, draws)
        prms = [prm.scorer for prm in self.models.prms]
        searcher = Searcher(
            policy=self.models.policy,
            scorer=_PrmOfQuestion(prms, {each.question: each.prm for each in asked}),
            strategy=self._updates.strategy,
            params=actor,
            num_candidates=max(self.config.num_candidates),
            calibration="none",  # the inputs of each question have that of its PRM
            seed=self.seed,
            grader=self.models.grader,
            max_depth=self.config.max_depth,
            in_flight=self.in_flight,
            recorder=episode_recorder(self.config.cats.reward.discount, self.config.cats.cost_unit),
        )
        results = searcher.run(
            [each.question for each in asked], terms=[each.inputs for each in asked]
        )
        failed = [result for result in results if result.status == "failed"]
        if len(failed) == len(results):
            raise RunStoppedError(
                f"all {len(results)} searches of iteration {iteration} failed, such as that of "
                f"question {failed[0].question.id!r}: {failed[0].reason}. Check the policy and its "
                "limits of tokens; the same command resumes with this iteration"
            )
        rollouts = self.config.searches_per_question
        played, start = [], 0
        for batch, drawn in zip(self._updates.batches, draws, strict=True):
            stop = start + batch.num_questions * rollouts
            price = np.repeat(np.asarray(drawn.price), rollouts)
            played.append(self._played(batch, price, asked[start:stop], results[start:stop]))
            start = stop
        reason = failed[0].reason if failed else ""
        return IterationSearches(played, len(results), len(failed), reason)

    def _asked(self, iteration: int, draws: Sequence[QuestionDraws]) -> list[_Asked]:
        """The searches of an iteration, batch by batch; those of a question are adjacent."""
        rollouts = self.config.searches_per_question
        place = iteration * sum(batch.num_questions for batch in self._updates.batches)
        asked: list[_Asked] = []
        for drawn in draws:
            question_keys, keys = search_keys(drawn.keys, rollouts)
            which = jax.vmap(lambda key: jax.random.randint(key, (), 0, len(self.models.prms)))
            prms = np.asarray(which(question_keys))
            data = np.asarray(jax.random.key_data(keys))
            sizes, prices = np.asarray(drawn.num_candidates), np.asarray(drawn.price)
            rates = np.asarray(drawn.prm_token_cost)
            for row in range(len(prms)):
                number, rollout = divmod(row, rollouts)
                index = question_at(place + number, len(self.questions.questions), self.seed)
                original = self.questions.questions[index]
                # Each search has its own id, and therefore its own random numbers.
                name = f"{original.id} #{place + number}.{rollout}"
                inputs = SearchInputs(
                    num_candidates=sizes[number],
                    budget=np.int32(sizes[number] * self.config.max_depth),
                    context=_context(self.models.prms[prms[row]], prices[number], rates[number]),
                    key=data[row],
                )
                question = dataclasses.replace(original, id=name)
                asked.append(_Asked(question, original.id, int(prms[row]), inputs))
            place += len(prms) // rollouts
        return asked

    def _played(
        self,
        batch: QuestionBatch,
        price: np.ndarray,
        asked: Sequence[_Asked],
        results: Sequence[SearchResult],
    ) -> Played:
        config, strategy = self.config, self._updates.strategy
        slots = strategy.width(batch.capacity)
        blank = jax.tree.map(np.zeros_like, _in_slots(results[0].records[0], slots))
        rollouts = config.searches_per_question
        steps = strategy.num_steps(batch.capacity, config.max_depth)
        columns = []
        for row, result in enumerate(results):
            first = row - row % rollouts
            group = results[first : first + rollouts]
            failed = any(each.status == "failed" for each in group)
            records = [] if failed else _with_skipped(result.records, slots)
            columns.append([*records, *[blank] * (steps * strategy.num_phases - len(records))])
        rows = [column[tick] for tick in range(len(columns[0])) for column in columns]
        shape = (steps, strategy.num_phases, len(results))
        return Played(
            ticks=jax.tree.map(
                lambda *leaves: np.stack(leaves).reshape((*shape, *leaves[0].shape)), *rows
            ),
            price=jnp.asarray(price),
            correct=jnp.asarray(
                [
                    self.questions.is_right(self.models.grader, each.original, result.answer)
                    for each, result in zip(asked, results, strict=True)
                ],
                bool,
            ),
            candidates=jnp.asarray([each.ledger.candidates for each in results], jnp.int32),
        )


def _with_skipped(records: Sequence[learners.Episode | None], slots: int) -> list[learners.Episode]:
    """The records of a search's ticks; in a skipped round no path moves and none ends.

    A round is skipped if no decision of the step samples more. It follows the tick that has ended
    the step.
    """
    found: list[learners.Episode] = []
    for each in records:
        if each is not None:
            found.append(_in_slots(each, slots))
        else:
            still = jax.tree.map(np.zeros_like, found[-1])
            same = np.arange(slots, dtype=np.int32)
            found.append(still.replace(source=same, holds=found[-1].holds))
    return found


def question_at(place: int, num_questions: int, seed: int) -> int:
    """Index of the question at a place in the endless order of a training.

    Each epoch has all questions once, in its own random order.

    Args:
        place: place in the order, from 0.
    """
    epoch, within = divmod(place, num_questions)
    return int(_order(seed, epoch, num_questions)[within])


@functools.lru_cache(maxsize=2)  # an iteration may end one epoch and begin the next
def _order(seed: int, epoch: int, num_questions: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(num_questions)


class _Asked(NamedTuple):
    """One search: its question under the id of the search, the question's own id, and its PRM."""

    question: Question
    original: str
    prm: int
    inputs: SearchInputs


def _context(prm: CalibratedPrm, price: np.ndarray, rate: np.ndarray) -> search.Context:
    scorer, calibration = prm.scorer, search.Calibration(*prm.calibration)
    context = search.Context(
        price, scorer.sparsity_total, scorer.sparsity_last_layer, calibration, rate
    )
    return jax.tree.map(np.float32, context)


def _in_slots(record: learners.Episode, slots: int) -> learners.Episode:
    """The first slots of a record: the driver pads its arrays to more slots."""
    padded = record.source.shape[0]

    def both(leaf: Any) -> Any:
        return np.concatenate([leaf[:slots], leaf[padded : padded + slots]])

    firsts = {
        name: jax.tree.map(lambda leaf: leaf[:slots], getattr(record, name))
        for name in ("decision", "source", "holds", "ends", "last_reward")
    }
    return record.replace(transition=jax.tree.map(both, record.transition), **firsts)


class _PrmOfQuestion:
    """Several PRMs as one `StepScorer`, which scores each path by the PRM of its question."""

    name = "the PRM of each question"
    # The context of each search has the sparsity of its own PRM.
    num_parameters = 0
    sparsity_total = 0.0
    sparsity_last_layer = 0.0

    def __init__(self, prms: Sequence[StepScorer], prm_of: Mapping[Question, int]) -> None:
        self._prms = prms
        self._prm_of = prm_of

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        scores: list[float | None] = [None] * len(paths)
        usage = [TokenUsage()] * len(paths)
        inside = 0.0
        owners = [self._prm_of[question] for question in questions]
        for number in sorted(set(owners)):
            rows = [row for row, owner in enumerate(owners) if owner == number]
            own = [questions[row] for row in rows], [paths[row] for row in rows]
            scoring = score(self._prms[number], *own)
            inside += scoring.inside_seconds
            for row, value, used in zip(rows, scoring.scores, scoring.usage, strict=True):
                scores[row], usage[row] = value, used
        return Scoring(scores, usage, inside)

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        self._prms[self._prm_of[question]].keep_only(question, paths)
