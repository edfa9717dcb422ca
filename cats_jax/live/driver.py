"""The host loop: the core's `plan` and `commit` around a real policy and a real PRM.

A `Cohort` holds a fixed number of slots, one question each, as one batched `SearchState`. A tick
plans all slots, calls the policy once, calls the PRM once if a candidate is to be scored, and
commits all slots. If that call breaks the PRM's contract, the PRM is called once per question. Keys
and seeds derive from the run seed and the question, never from its slot or its neighbours.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import search

from ..errors import ScorerContractError
from ..protocols import (
    AnswerJudge,
    Path,
    Question,
    Scoring,
    StepGenerator,
    StepRequest,
    StepSample,
    StepScorer,
    shared_seconds,
)
from . import ticks
from .results import ROOT, Candidate, DecisionRow, SearchResult, Status, path_of
from .seeds import candidate_seed
from .timings import Stopwatch, Timings
from .tree import SearchTree

_LEAST_ROWS = 64
"""Least number of rows of the arrays.

Smaller arrays would save a few milliseconds per tick, which is little beside the calls of the
models, and each of their sizes would cost seconds of compilation.
"""


@dataclass(frozen=True)
class Limits:
    """Limits per question; None is no limit.

    Attributes:
        max_tokens: tokens sampled by the policy plus tokens computed by the PRM.
        max_seconds: seconds spent on the question, as in its ledger.
    """

    max_tokens: int | None = None
    max_seconds: float | None = None

    def exceeded(self, tree: SearchTree) -> tuple[Status, str] | None:
        """The limit a question has hit, with one line of reason, or None."""
        tokens, seconds = tree.ledger.tokens, tree.ledger.seconds
        if self.max_tokens is not None and tokens >= self.max_tokens:
            return "max_tokens", f"{tokens} tokens, limit {self.max_tokens}"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return "max_seconds", f"{seconds:.1f} s spent, limit {self.max_seconds}"
        return None


@dataclass(frozen=True)
class SearchSettings:
    """Settings that all questions of a run share; `Searcher` checks them.

    `num_candidates` is the largest N of all questions.
    """

    strategy: search.Strategy
    num_candidates: int
    max_depth: int
    seed: int
    limits: Limits
    recorder: search.Recorder | None = None

    @property
    def capacity(self) -> int:
        """Number of rows of the pool."""
        return _capacity(self.num_candidates)

    @property
    def frontier_capacity(self) -> int:
        """Number of rows of the frontier and of the finished paths."""
        return _capacity(self.strategy.width(self.num_candidates))

    @property
    def shapes(self) -> dict[str, Any]:
        """Static arguments of `ticks.first_states`."""
        return {
            "strategy": self.strategy,
            "max_depth": self.max_depth,
            "capacity": self.capacity,
            "frontier_capacity": self.frontier_capacity,
        }


@dataclass(slots=True)
class _Slot:
    """A question in progress."""

    tree: SearchTree
    budget: int
    records: list[Any] = field(default_factory=list)
    step: int = 0
    phase: int = 0
    used: int = 0
    valid_in_step: int = 0
    num_recorded: int = 0
    failure: str | None = None


@dataclass(slots=True)
class _Asked:
    """A request sent to the policy, and the slot and pool rows of its children."""

    slot: int
    parent_slot: int
    parent: int
    first_row: int
    scored: bool
    request: StepRequest


class Cohort:
    """A batch of questions that advance together."""

    def __init__(
        self,
        *,
        settings: SearchSettings,
        params: Any,
        policy: StepGenerator,
        scorer: StepScorer | None,
        judge: AnswerJudge,
        waiting: deque[tuple[Question, ticks.Terms]],
        slots: int,
        finish: Callable[[SearchResult], None],
        timings: Timings,
    ) -> None:
        """Set up empty slots for the questions in `waiting`; `finish` gets each result.

        A slot is empty if its budget is 0: its search is over before it begins.
        """
        self._settings = settings
        self._params = params
        self._policy = policy
        self._scorer = scorer
        self._judge = judge
        self._waiting = waiting
        self._finish = finish
        self._timings = timings
        self._slots: list[_Slot | None] = [None] * slots
        # The live paths of each question, handed over with the engine's next call.
        self._policy_forgets: dict[Question, list[Path]] = {}
        self._scorer_forgets: dict[Question, list[Path]] = {}
        context = jax.tree.map(np.float32, search.Context())
        key = np.asarray(jax.random.key_data(jax.random.key(0)))
        self._idle = ticks.Terms(np.int32(1), np.int32(0), context, key)
        self._terms = [self._idle] * slots
        self._stacked = _stack(self._terms)
        self._state = ticks.first_states(self._stacked, **settings.shapes)
        self._memory: Any = None
        # Slots whose question is gone from `_slots` but not yet from the arrays.
        self._closed: set[int] = set()

    def run(self) -> None:
        """Search until no question is left."""
        self._refill()
        while any(slot is not None for slot in self._slots):
            observed, advanced = self._tick()
            started = time.perf_counter()
            results = self._settle(observed, advanced)
            self._refill()
            self._timings.add("host", time.perf_counter() - started)
            for result in results:
                self._finish(result)
        self._forget(self._policy, self._policy_forgets)
        if self._scorer is not None:
            self._forget(self._scorer, self._scorer_forgets)

    # One tick, in the order in which it happens.

    def _tick(self) -> tuple[dict[str, Any], list[int]]:
        """Advance the questions by one phase; also return which slots advanced.

        Questions that ask for no samples advance alone, without a call of an engine, and the
        others keep their states. All of them therefore ask for samples when the policy is called.
        """
        started = time.perf_counter()
        busy = Stopwatch()
        with busy("core"):
            planned = self._plan()
            request = jax.device_get(planned.request)
        open_slots = [index for index, slot in enumerate(self._slots) if slot is not None]
        asking = np.any(request.num_samples > 0, axis=1)
        ready = [index for index in open_slots if not asking[index]]
        if ready:
            advancing = ready
            blank = _blank_expansion(len(self._slots), self._settings.capacity)
            expansion = search.Expansion(**blank)
        else:
            advancing = open_slots
            asked = self._requests(request)
            samples = self._generate(asked, busy)
            expansion = self._grow(asked, samples, busy)
        with busy("core"):
            observed = self._commit(planned, expansion, advancing)
        self._record(observed, advancing)
        self._charge(time.perf_counter() - started, busy)
        return observed, advancing

    def _plan(self) -> search.Plan:
        strategy = self._settings.strategy
        counts = [
            0 if slot is None else slot.step * strategy.num_phases + slot.phase
            for slot in self._slots
        ]
        # Questions may be in different phases, so that none is promised.
        return ticks.plan(
            self._params,
            self._stacked.key,
            np.asarray(counts, np.int32),
            self._state,
            strategy,
            None,
        )

    def _commit(
        self, planned: search.Plan, expansion: search.Expansion, advancing: list[int]
    ) -> dict[str, Any]:
        """Commit the slots in `advancing`; those of other open questions keep their states."""
        before, memory = self._state, self._memory
        after, observed = ticks.commit(
            self._params, before, planned, expansion, self._settings.strategy, None
        )
        if self._settings.recorder is not None:
            tick = search.Tick(before, planned, expansion, observed["output"], after)
            self._memory, observed["record"] = ticks.record(memory, tick, self._settings.recorder)
        if len(advancing) < sum(slot is not None for slot in self._slots):
            mask = _mask(advancing, len(self._slots))
            after = ticks.where_slots(mask, after, before)
            if memory is not None:
                self._memory = ticks.where_slots(mask, self._memory, memory)
        self._state = after
        return jax.device_get(observed)

    def _requests(self, request: search.Request) -> list[_Asked]:
        settings = self._settings
        asked: list[_Asked] = []
        for index, slot in enumerate(self._slots):
            if slot is None or slot.failure is not None:
                continue
            row = slot.used
            for parent_slot in np.flatnonzero(request.num_samples[index]):
                count = int(request.num_samples[index, parent_slot])
                parent = int(request.embedding[index, parent_slot])
                seeds = tuple(
                    candidate_seed(
                        settings.seed, slot.tree.question.id, slot.step, slot.phase, row + offset
                    )
                    for offset in range(count)
                )
                step_request = StepRequest(
                    question=slot.tree.question,
                    path=slot.tree.path(parent),
                    seeds=seeds,
                    temperature=float(request.temperature[index, parent_slot]),
                    top_p=float(request.top_p[index, parent_slot]),
                    top_k=int(request.top_k[index, parent_slot]),
                    to_end=bool(request.to_end[index, parent_slot]),
                )
                scored = bool(request.scored[index, parent_slot])
                asked.append(_Asked(index, int(parent_slot), parent, row, scored, step_request))
                row += count
        return asked

    def _generate(self, asked: list[_Asked], busy: Stopwatch) -> list[list[StepSample]]:
        if not asked:
            return []
        with busy("policy"):
            self._forget(self._policy, self._policy_forgets)
            generation = self._policy.generate([item.request for item in asked])
        busy.split("policy", generation.inside_seconds)
        seconds = generation.seconds
        if seconds is None:
            seconds = shared_seconds(generation.usage, generation.inside_seconds)
        called: set[int] = set()
        for item, usage, part in zip(asked, generation.usage, seconds, strict=True):
            ledger = self._tree(item.slot).ledger
            ledger.candidates += len(item.request.seeds)
            ledger.prompt_computed += usage.computed
            ledger.prompt_cached += usage.cached
            ledger.generated += usage.generated
            ledger.flops += 2.0 * self._policy.num_parameters * usage.computed
            ledger.policy_seconds += part
            ledger.policy_calls += item.slot not in called
            called.add(item.slot)
        return generation.samples

    def _grow(
        self, asked: list[_Asked], samples: list[list[StepSample]], busy: Stopwatch
    ) -> search.Expansion:
        """Add the samples to the trees, score them, and write the expansion arrays."""
        slots, capacity = len(self._slots), self._settings.capacity
        arrays = _blank_expansion(slots, capacity)
        usable: list[tuple[int, int, Candidate]] = []
        to_score: list[tuple[int, int, Candidate]] = []
        next_row = [0] * slots
        for item, children in zip(asked, samples, strict=True):
            slot = self._slots[item.slot]
            assert slot is not None
            for offset, sample in enumerate(children):
                candidate = slot.tree.add(
                    item.parent,
                    sample,
                    step=slot.step,
                    phase=slot.phase,
                    pool_row=item.first_row + offset,
                )
                row = next_row[item.slot]
                next_row[item.slot] += 1
                arrays["parent"][item.slot, row] = item.parent_slot
                if candidate.invalid is None:
                    usable.append((item.slot, row, candidate))
                    if item.scored:
                        to_score.append(usable[-1])
        if self._scorer is not None and to_score:
            self._score(to_score, busy)
        for slot_index, row, candidate in usable:
            slot = self._slots[slot_index]
            assert slot is not None
            if candidate.invalid is not None:  # the PRM can't read the path
                continue
            slot.valid_in_step += 1
            arrays["valid"][slot_index, row] = slot.failure is None
            arrays["score"][slot_index, row] = candidate.score or 0.0
            arrays["done"][slot_index, row] = candidate.done
            arrays["answer"][slot_index, row] = slot.tree.answer_class(candidate.answer)
            arrays["text"][slot_index, row] = slot.tree.text_class(candidate.text)
            # A strategy that reads what is not there must not take it for a probability of 1.
            log_prob = np.nan if candidate.log_prob is None else candidate.log_prob
            arrays["log_prob"][slot_index, row] = log_prob
            arrays["num_tokens"][slot_index, row] = candidate.num_tokens
            arrays["embedding"][slot_index, row] = candidate.id
        return search.Expansion(**arrays)

    def _score(self, usable: list[tuple[int, int, Candidate]], busy: Stopwatch) -> None:
        """Ask the PRM for the newest step of each candidate.

        If the batch breaks the PRM's contract, the questions are scored one by one, so that only
        the question at fault fails.
        """
        assert self._scorer is not None
        with busy("prm"):
            self._forget(self._scorer, self._scorer_forgets)
            try:
                inside = self._score_batch(usable)
            except ScorerContractError:
                inside = 0.0
                for slot_index in sorted({entry[0] for entry in usable}):
                    slot = self._slots[slot_index]
                    assert slot is not None
                    try:
                        inside += self._score_batch([e for e in usable if e[0] == slot_index])
                    except ScorerContractError as error:
                        slot.failure = str(error)
        busy.split("prm", inside)

    def _score_batch(self, usable: list[tuple[int, int, Candidate]]) -> float:
        assert self._scorer is not None
        trees = [self._tree(slot_index) for slot_index, _, _ in usable]
        paths = [
            tree.path(candidate.id) for tree, (_, _, candidate) in zip(trees, usable, strict=True)
        ]
        scoring = self._scorer.score([tree.question for tree in trees], paths)
        _check_scores(scoring, trees, [candidate for _, _, candidate in usable])
        seconds = scoring.seconds
        if seconds is None:
            seconds = shared_seconds(scoring.usage, scoring.inside_seconds)
        called: set[int] = set()
        for tree, (slot_index, _, candidate), score, usage, part in zip(
            trees, usable, scoring.scores, scoring.usage, seconds, strict=True
        ):
            ledger = tree.ledger
            if score is None:
                tree.refuse(candidate)
                ledger.prm_refused += 1
            else:
                candidate.score = score
            ledger.prm_computed += usage.computed
            ledger.prm_cached += usage.cached
            flops = 2.0 * self._scorer.num_parameters * usage.computed
            ledger.flops += flops
            ledger.prm_flops += flops
            ledger.prm_seconds += part
            ledger.prm_calls += slot_index not in called
            called.add(slot_index)
        return scoring.inside_seconds

    def _record(self, observed: dict[str, Any], advanced: list[int]) -> None:
        """Add this tick's record, decisions, path scores and kept candidates to the questions."""
        output: search.StepOutput = observed["output"]
        for index in advanced:
            slot = self._slots[index]
            assert slot is not None
            if "record" in observed:
                slot.records.append(_of_slot(observed["record"], index))
            if isinstance(output.report, search.Decision):
                slot.tree.decisions.extend(_decision_rows(slot, observed, index))
            for candidate in slot.tree.candidates[slot.num_recorded :]:
                if candidate.score is not None:
                    path_score = output.path_score[index, candidate.pool_row]
                    candidate.path_score = float(path_score)
            slot.num_recorded = len(slot.tree.candidates)
            slot.step = int(observed["step"][index])
            slot.phase = int(observed["phase"][index])
            slot.used = int(observed["used"][index])
            if slot.phase == 0:
                for node in self._alive(observed, index, "frontier"):
                    slot.tree.candidates[node - 1].kept = True
                for node in self._alive(observed, index, "finished"):
                    slot.tree.candidates[node - 1].kept = True

    def _charge(self, wall: float, busy: Stopwatch) -> None:
        """Divide the tick's core and remaining time equally among the open questions."""
        inside = busy.seconds("policy inside") + busy.seconds("prm inside")
        core = busy.seconds("core")
        rest = max(0.0, wall - inside - core)
        open_slots = [slot for slot in self._slots if slot is not None]
        for slot in open_slots:
            slot.tree.ledger.core_seconds += core / len(open_slots)
            slot.tree.ledger.rest_seconds += rest / len(open_slots)
        for part, seconds in busy.parts():
            self._timings.add(part, seconds)
        self._timings.add("host", wall - sum(seconds for _, seconds in busy.parts()))

    def _settle(self, observed: dict[str, Any], advanced: list[int]) -> list[SearchResult]:
        """Close questions that ended, failed or hit a limit; release dead paths of the others.

        Returns the results of the closed questions.
        """
        results: list[SearchResult] = []
        for index in advanced:
            slot = self._slots[index]
            assert slot is not None
            at_step_end = slot.phase == 0
            limit = self._settings.limits.exceeded(slot.tree)
            nothing_valid = slot.failure is None and at_step_end and slot.valid_in_step == 0
            # Paths that finished earlier still give an answer.
            if nothing_valid and not self._alive(observed, index, "finished"):
                slot.failure = f"every candidate of step {slot.step - 1} is invalid"
            if slot.failure is not None:
                results.append(self._close(index, observed, "failed", slot.failure))
            elif observed["terminal"][index]:
                cut = bool(observed["cut_by_budget"][index])
                reason = f"budget of {slot.budget} candidates spent" if cut else ""
                status: Status = "budget" if cut else "answered"
                results.append(self._close(index, observed, status, reason))
            elif limit is not None:
                results.append(self._close(index, observed, *limit))
            elif at_step_end:
                slot.valid_in_step = 0
                live = slot.tree.forget_steps_outside(self._alive(observed, index, "frontier"))
                self._keep_only(slot.tree.question, live)
        return results

    def _close(
        self, index: int, observed: dict[str, Any], status: Status, reason: str
    ) -> SearchResult:
        slot = self._slots[index]
        assert slot is not None
        tree = slot.tree
        finished = self._alive(observed, index, "finished")
        row = int(observed["chosen"][index])
        chosen = None if row < 0 or status == "failed" else row
        paths = [path_of(tree.nodes(node), tree.candidates) for node in finished]
        answer = None if chosen is None else paths[chosen].answer
        if status in ("answered", "no_answer"):
            status = "no_answer" if answer is None else "answered"
        self._slots[index] = None
        self._closed.add(index)
        self._keep_only(tree.question, [])
        return SearchResult(
            question=tree.question,
            answer=answer,
            chosen=chosen,
            status=status,
            reason=reason,
            steps=slot.step,
            paths=paths,
            candidates=tree.candidates,
            decisions=tree.decisions,
            ledger=tree.ledger,
            records=slot.records,
        )

    # Helpers.

    def _refill(self) -> None:
        """Put waiting questions into free slots."""
        opened: set[int] = set()
        for index, slot in enumerate(self._slots):
            if slot is None and self._waiting:
                question, terms = self._waiting.popleft()
                self._slots[index] = _Slot(SearchTree(question, self._judge), int(terms.budget))
                self._terms[index] = terms
                opened.add(index)
        for index in self._closed - opened:
            self._terms[index] = self._idle
        replaced = opened | self._closed
        if replaced:
            self._stacked = _stack(self._terms)
            fresh = ticks.first_states(self._stacked, **self._settings.shapes)
            mask = _mask(replaced, len(self._slots))
            self._state = ticks.where_slots(mask, fresh, self._state)
            self._closed.clear()

    def _tree(self, index: int) -> SearchTree:
        slot = self._slots[index]
        assert slot is not None
        return slot.tree

    def _alive(self, observed: dict[str, Any], index: int, part: str) -> list[int]:
        valid = observed[f"{part}_valid"][index]
        return [int(node) for node in observed[f"{part}_embedding"][index][valid] if node != ROOT]

    def _keep_only(self, question: Question, live: list[Path]) -> None:
        # Later calls replace earlier ones: paths only ever die.
        self._policy_forgets[question] = live
        if self._scorer is not None:
            self._scorer_forgets[question] = live

    @staticmethod
    def _forget(engine: StepGenerator | StepScorer, forgets: dict[Question, list[Path]]) -> None:
        """Tell an engine which paths to keep of each question."""
        for question, live in forgets.items():
            engine.keep_only(question, live)
        forgets.clear()


def _capacity(size: int) -> int:
    """Rows for `size` candidates or paths, at least `_LEAST_ROWS`."""
    return search.capacity_for(max(size, _LEAST_ROWS))


def _stack(terms: Sequence[ticks.Terms]) -> ticks.Terms:
    """The terms of B slots as one value with leaves `[B, ...]`."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *terms)


def _of_slot(values: Any, index: int) -> Any:
    """The part of a pytree with leaves `[B, ...]` that belongs to one slot."""
    return jax.tree.map(lambda leaf: leaf[index], values)


def _mask(indices: Collection[int], size: int) -> np.ndarray:
    """bool[size], true at `indices`."""
    mask = np.zeros((size,), bool)
    mask[list(indices)] = True
    return mask


def _blank_expansion(slots: int, capacity: int) -> dict[str, Any]:
    shape = (slots, capacity)
    return {
        "valid": np.zeros(shape, bool),
        "parent": np.zeros(shape, np.int32),
        "score": np.zeros(shape, np.float32),
        "done": np.zeros(shape, bool),
        "answer": np.full(shape, -1, np.int32),
        "text": np.full(shape, -1, np.int32),
        "log_prob": np.zeros(shape, np.float32),
        "num_tokens": np.zeros(shape, np.int32),
        "embedding": np.zeros(shape, np.int32),
    }


def _check_scores(scoring: Scoring, trees: list[SearchTree], candidates: list[Candidate]) -> None:
    if len(scoring.scores) != len(candidates):
        raise ScorerContractError(
            f"the PRM returned {len(scoring.scores)} scores for {len(candidates)} paths, "
            f"the first of question {trees[0].question.id!r}, step {candidates[0].step}"
        )
    for tree, candidate, score in zip(trees, candidates, scoring.scores, strict=True):
        if score is not None and not 0.0 <= score <= 1.0:  # True for NaN, too
            raise ScorerContractError(
                f"the PRM scored step {candidate.step} of question {tree.question.id!r} with "
                f"{score}: a score must be in [0, 1]"
            )


def _decision_rows(slot: _Slot, observed: dict[str, Any], index: int) -> Iterator[DecisionRow]:
    """The decisions that a question's nodes took in this tick."""
    decision: search.Decision = _of_slot(observed["output"].report, index)
    request: search.Request = _of_slot(observed["request"], index)
    for node_slot in np.flatnonzero(decision.valid):
        yield DecisionRow(
            step=slot.step,
            phase=slot.phase,
            node=int(request.embedding[node_slot]),
            features=tuple(float(value) for value in decision.features[node_slot]),
            action=int(decision.action[node_slot]),
            num_extra=int(decision.num_extra[node_slot]),
            num_retain=int(decision.num_retain[node_slot]),
            temperature=float(request.temperature[node_slot]),
            top_p=float(request.top_p[node_slot]),
            top_k=int(request.top_k[node_slot]),
            granted=int(request.num_samples[node_slot]),
            reward=float(decision.reward[node_slot]),
        )
