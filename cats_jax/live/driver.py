"""The host loop: the core's `plan` and `commit` around a real policy and a real PRM.

A `Cohort` holds a fixed number of slots, one question each, as one batched `SearchState`. A tick
plans all slots, calls the policy once, calls the PRM once if a candidate is to be scored, and
commits all slots. Models that several threads may call are called in threads, and a tick then
commits the slots whose samples and scores have arrived. If a call breaks the model's contract, see
`contract`, the model is called once per question. Keys and seeds come with the question, never from
its slot or its neighbours, so results do not depend on the order in which calls end.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import jax
import numpy as np

import search

from ..errors import GeneratorContractError, ScorerContractError
from ..protocols import (
    AnswerJudge,
    Generation,
    Path,
    Question,
    Scoring,
    StepGenerator,
    StepRequest,
    StepScorer,
    TokenUsage,
    shared_seconds,
)
from . import ticks
from .arrays import blank_expansion, of_slot, slot_mask, stack
from .calls import executor_for, generate, is_concurrent, score
from .compilations import num_compilations
from .jobs import Job, SearchSettings
from .ledger import Ledger
from .results import ROOT, SearchResult, Status, path_of
from .seeds import candidate_seed
from .slots import Asked, Grown, NewCandidate, Slot, decision_rows
from .timings import Stopwatch, Timings
from .tree import SearchTree, nothing_valid_in

_PATIENCE, _MOST_SECONDS = 2, 0.25
"""Factor of the least time that the driver waits for models, and the limit of that time in seconds.

The factor multiplies the time of the driver's own work in the last tick, without calls and waiting.
The limit is for ticks that compiled, which take seconds.
"""

_GATHER = 8
"""The core commits when one in this many questions has its candidates and scores."""


class Cohort:
    """A batch of questions that advance together.

    If the policy is concurrent, it is called once for each question, and the core waits for an
    eighth of the questions, not for all of them. Samples that have arrived are scored in one call
    of the PRM while the policy samples others.

    `run` searches the waiting questions. A caller whose questions arrive during the search calls
    `advance` repeatedly instead, and `close` at the end.
    """

    def __init__(
        self,
        *,
        settings: SearchSettings,
        params: Any,
        policy: StepGenerator,
        scorer: StepScorer | None,
        judge: AnswerJudge,
        waiting: deque[Job],
        slots: int,
        finish: Callable[[SearchResult], None],
        timings: Timings,
    ) -> None:
        """Set up empty slots for the questions in `waiting`; `finish` gets each result.

        The caller may append to `waiting` between two calls of `advance`. A slot is empty if its
        budget is 0: its search is over before it begins.
        """
        self._settings = settings
        self._params = params
        self._policy = policy
        self._scorer = scorer
        self._judge = judge
        self._waiting = waiting
        self._finish = finish
        self._timings = timings
        self._slots: list[Slot | None] = [None] * slots
        # The live paths of each question, handed over with the engine's next call.
        self._policy_forgets: dict[Question, list[Path]] = {}
        self._scorer_forgets: dict[Question, list[Path]] = {}
        context = jax.tree.map(np.float32, search.Context())
        key = np.asarray(jax.random.key_data(jax.random.key(0)))
        self._idle = ticks.Terms(np.int32(1), np.int32(0), context, key)
        self._terms = [self._idle] * slots
        self._stacked = stack(self._terms)
        started, compiled = time.perf_counter(), num_compilations()
        self._state = ticks.first_states(self._stacked, **settings.shapes)
        if num_compilations() > compiled:
            timings.add("compiling", time.perf_counter() - started)
        self._memory: Any = None
        # Slots whose question is gone from `_slots` but not yet from the arrays.
        self._closed: set[int] = set()
        # Seconds of the last tick without calls of models and waiting for them.
        self._own_seconds = 0.0
        # Calls in progress.
        self._sampling: dict[Future[Generation], list[Asked]] = {}
        self._scoring: dict[Future[Scoring], Grown] = {}
        self._policy_calls = executor_for(policy, slots)
        self._scorer_calls = executor_for(scorer, slots)

    def run(self) -> None:
        """Search until no question is left."""
        try:
            while self.advance():
                pass
        finally:
            self.close()

    def advance(self) -> bool:
        """Put waiting questions into free slots, then advance some questions by one phase.

        Returns:
            False if there is no question; the models then hold nothing of earlier ones.
        """
        started = time.perf_counter()
        self._refill()
        self._timings.add("host", time.perf_counter() - started)
        if all(slot is None for slot in self._slots):
            self._forget(self._policy, self._policy_forgets)
            if self._scorer is not None:
                self._forget(self._scorer, self._scorer_forgets)
            return False
        observed, advanced = self._tick()
        started = time.perf_counter()
        results = self._settle(observed, advanced)
        self._timings.add("host", time.perf_counter() - started)
        for result in results:
            self._finish(result)
        return True

    def drop(self, ids: Container[str]) -> list[str]:
        """End open questions without a result; those with a call in progress stay open.

        Args:
            ids: ids of the questions.

        Returns:
            Ids of the questions that ended. Their slots are free for the next call of `advance`.
        """
        away = self._away()
        dropped: list[str] = []
        for index, slot in enumerate(self._slots):
            if slot is not None and index not in away and slot.job.question.id in ids:
                self._free(index)
                dropped.append(slot.job.question.id)
        return dropped

    def progress(self) -> Iterator[tuple[str, int, Ledger]]:
        """Id, completed steps and costs so far of each open question."""
        for slot in self._slots:
            if slot is not None:
                yield slot.job.question.id, slot.step, slot.tree.ledger

    def close(self) -> None:
        """End the threads of concurrent models; calls in progress are not awaited."""
        self._policy_calls.shutdown(wait=False, cancel_futures=True)
        self._scorer_calls.shutdown(wait=False, cancel_futures=True)

    # One tick, in the order in which it happens.

    def _tick(self) -> tuple[dict[str, Any], list[int]]:
        """Advance some questions by one phase; also return the slots that advanced.

        Questions that request no samples advance alone, without a call of an engine, and the others
        keep their states. When the policy is called, all questions without a call in progress
        therefore request samples.
        """
        started, compiled = time.perf_counter(), num_compilations()
        busy = Stopwatch()
        with busy("core"):
            planned = self._plan()
            request = jax.device_get(planned.request)
        away = self._away()
        here = [i for i, slot in enumerate(self._slots) if slot is not None and i not in away]
        asking = np.any(request.num_samples > 0, axis=1)
        ready = [index for index in here if not asking[index]]
        if ready:
            advancing = ready
            blank = blank_expansion(len(self._slots), self._settings.capacity)
            expansion = search.Expansion(**blank)
        else:
            self._sample(self._requests(request, here), busy)
            advancing, expansion = self._receive(busy)
        with busy("core"):
            observed = self._commit(planned, expansion, advancing)
        self._record(observed, advancing)
        wall = time.perf_counter() - started
        self._charge(wall, busy, compiled=num_compilations() > compiled)
        return observed, advancing

    def _away(self) -> set[int]:
        """Slots with a call in progress."""
        away = {item.slot for asked in self._sampling.values() for item in asked}
        away.update(slot for grown in self._scoring.values() for slot in grown.slots)
        return away

    def _plan(self) -> search.Plan:
        strategy = self._settings.strategy
        counts = [
            0 if slot is None else slot.step * strategy.num_phases + slot.phase
            for slot in self._slots
        ]
        # Questions may be in different phases, so that no phase is promised.
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
            mask = slot_mask(advancing, len(self._slots))
            after = ticks.where_slots(mask, after, before)
            if memory is not None:
                self._memory = ticks.where_slots(mask, self._memory, memory)
        self._state = after
        return jax.device_get(observed)

    def _requests(self, request: search.Request, slots: Sequence[int]) -> list[Asked]:
        asked: list[Asked] = []
        for index in slots:
            slot = self._slots[index]
            assert slot is not None
            job, row = slot.job, slot.used
            for parent_slot in np.flatnonzero(request.num_samples[index]):
                count = int(request.num_samples[index, parent_slot])
                parent = int(request.embedding[index, parent_slot])
                seeds = tuple(
                    candidate_seed(job.seed, job.seed_name, slot.step, slot.phase, row + offset)
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
                asked.append(
                    Asked(
                        slot=index,
                        parent_slot=int(parent_slot),
                        parent=parent,
                        first_row=row,
                        scored=bool(request.scored[index, parent_slot]),
                        score_ends=bool(request.score_ends[index, parent_slot]),
                        request=step_request,
                        copy=slot.greedy.get(parent) if step_request.temperature == 0.0 else None,
                    )
                )
                row += count
        return asked

    def _sample(self, asked: list[Asked], busy: Stopwatch) -> None:
        """Begin calls of the policy: one for each question if it is concurrent, or one for all."""
        groups: dict[int, list[Asked]] = {}
        for item in asked:
            groups.setdefault(item.slot if is_concurrent(self._policy) else 0, []).append(item)
        with busy("policy"):
            self._forget(self._policy, self._policy_forgets)
            for group in groups.values():
                self._sampling[self._ask(group)] = group

    def _ask(self, asked: Sequence[Asked]) -> Future[Generation]:
        """Begin one call of the policy."""
        requests = [item.request for item in asked if item.copy is None]
        if not requests:
            return _nothing_generated()
        return self._policy_calls.submit(generate, self._policy, requests)

    def _receive(self, busy: Stopwatch) -> tuple[list[int], search.Expansion]:
        """Wait until an eighth of the questions have their candidates and scores.

        A call of the PRM has the samples of that many questions, or of all that are awaited. If
        there is something to wait for, the driver waits at least twice as long as its own work in
        the last tick took, so that fast models get one call with all questions in place of many
        small calls.
        """
        enough = -(-sum(slot is not None for slot in self._slots) // _GATHER)
        least = time.perf_counter() + min(_PATIENCE * self._own_seconds, _MOST_SECONDS)
        arrived: list[int] = []
        arrays = blank_expansion(len(self._slots), self._settings.capacity)
        while self._sampling or self._scoring:
            rest = least - time.perf_counter()
            if len(arrived) >= enough and rest <= 0:
                break
            calls = [*self._sampling, *self._scoring]
            done = {call for call in calls if call.done()}
            complete = [
                self._add_scores(call, busy) for call in list(self._scoring) if call in done
            ]
            sampled = [call for call in self._sampling if call in done]
            for call in sampled:
                if not isinstance(call.exception(), GeneratorContractError):
                    call.result()  # raises what it raised, whatever the other calls do
            wanted = enough if rest <= 0 else len(self._sampling)
            if sampled and len(sampled) >= min(wanted, len(self._sampling)):
                grown = self._grow(sampled, busy)
                if self._scorer is not None and grown.to_score:
                    self._score(grown, busy)
                else:
                    complete.append(grown)
            elif not complete:
                with busy("waiting"):
                    wait(
                        [call for call in calls if call not in done],
                        timeout=rest if rest > 0 else None,
                        return_when=FIRST_COMPLETED,
                    )
            for grown in complete:
                self._fill(arrays, grown)
                arrived += grown.slots
        return sorted(arrived), search.Expansion(**arrays)

    def _grow(self, calls: Sequence[Future[Generation]], busy: Stopwatch) -> Grown:
        """Add the samples of calls that are done to the trees."""
        grown = Grown([], [], [])
        made: list[tuple[list[Asked], Generation]] = []
        for call in calls:
            asked = self._sampling.pop(call)
            grown.slots += sorted({item.slot for item in asked})
            made += self._generated(call, asked, busy)
        for asked, generation in made:
            busy.inside("policy", generation.inside_seconds)
            seconds = generation.seconds
            if seconds is None:
                seconds = shared_seconds(generation.usage, generation.inside_seconds)
            sampled = zip(generation.samples, generation.usage, seconds, strict=True)
            rows: dict[int, int] = {}
            called: set[int] = set()
            for item in asked:
                slot = self._slots[item.slot]
                assert slot is not None
                if item.copy is None:
                    children, usage, part = next(sampled)
                    self._charge_policy(item, usage, part, first=item.slot not in called)
                    called.add(item.slot)
                    if item.request.temperature == 0.0:
                        slot.greedy[item.parent] = children[0]
                else:
                    children = [item.copy] * len(item.request.seeds)
                    slot.tree.ledger.candidates += len(children)
                if children[0].log_prob is None and self._reads_log_probs(slot):
                    slot.failure = _NO_LOG_PROBS
                for offset, sample in enumerate(children):
                    candidate = slot.tree.add(
                        item.parent,
                        sample,
                        step=slot.step,
                        phase=slot.phase,
                        pool_row=item.first_row + offset,
                    )
                    row = rows.get(item.slot, 0)
                    rows[item.slot] = row + 1
                    new = NewCandidate(item.slot, row, item.parent_slot, candidate)
                    grown.candidates.append(new)
                    asks = item.scored or (item.score_ends and candidate.done)
                    if candidate.invalid is None and asks:
                        grown.to_score.append(new)
                    elif candidate.invalid is None:
                        key = (candidate.parent, candidate.text)
                        slot.unscored.setdefault(key, []).append(candidate)
        return grown

    def _generated(
        self, call: Future[Generation], asked: list[Asked], busy: Stopwatch
    ) -> list[tuple[list[Asked], Generation]]:
        """What a finished call returned, with its requests.

        If the call broke the policy's contract, the policy is called again for each question, so
        that only the question at fault fails. No question is charged for the broken call.
        """
        try:
            return [(asked, call.result())]
        except GeneratorContractError as error:
            questions = sorted({item.slot for item in asked})
            if len(questions) == 1:
                slot = self._slots[questions[0]]
                assert slot is not None
                slot.failure = str(error)
                return []
        made: list[tuple[list[Asked], Generation]] = []
        for index in questions:
            own = [item for item in asked if item.slot == index]
            with busy("policy"):
                again = self._ask(own)
            made += self._generated(again, own, busy)
        return made

    def _charge_policy(
        self, item: Asked, usage: TokenUsage, seconds: float, *, first: bool
    ) -> None:
        ledger = self._tree(item.slot).ledger
        ledger.candidates += len(item.request.seeds)
        ledger.prompt_computed += usage.computed
        ledger.prompt_cached += usage.cached
        ledger.generated += usage.generated
        ledger.flops += 2.0 * self._policy.num_parameters * usage.computed
        ledger.policy_seconds += seconds
        ledger.policy_calls += first

    def _score(self, grown: Grown, busy: Stopwatch) -> None:
        """Begin a call of the PRM for the newest step of each candidate."""
        assert self._scorer is not None
        with busy("prm"):
            self._forget(self._scorer, self._scorer_forgets)
            asked = self._scorer_paths(grown.to_score)
            future = self._scorer_calls.submit(score, self._scorer, *asked)
            self._scoring[future] = grown

    def _scorer_paths(self, wanted: Sequence[NewCandidate]) -> tuple[list[Question], list[Path]]:
        trees = [self._tree(new.slot) for new in wanted]
        paths = [tree.path(new.candidate.id) for tree, new in zip(trees, wanted, strict=True)]
        return [tree.question for tree in trees], paths

    def _add_scores(self, call: Future[Scoring], busy: Stopwatch) -> Grown:
        """Give candidates the scores of a call that is done.

        If the call broke the PRM's contract, the questions are scored one by one, so that only
        the question at fault fails.
        """
        assert self._scorer is not None
        grown = self._scoring.pop(call)
        try:
            self._add(call.result(), grown.to_score, busy)
        except ScorerContractError:
            for index in sorted({new.slot for new in grown.to_score}):
                slot, own = self._slots[index], [n for n in grown.to_score if n.slot == index]
                assert slot is not None
                try:
                    with busy("prm"):
                        scoring = score(self._scorer, *self._scorer_paths(own))
                    self._add(scoring, own, busy)
                except ScorerContractError as error:
                    slot.failure = str(error)
        return grown

    def _add(self, scoring: Scoring, scored: Sequence[NewCandidate], busy: Stopwatch) -> None:
        assert self._scorer is not None
        trees = [self._tree(new.slot) for new in scored]
        busy.inside("prm", scoring.inside_seconds)
        seconds = scoring.seconds
        if seconds is None:
            seconds = shared_seconds(scoring.usage, scoring.inside_seconds)
        called: set[int] = set()
        for tree, new, value, usage, part in zip(
            trees, scored, scoring.scores, scoring.usage, seconds, strict=True
        ):
            ledger = tree.ledger
            if value is None:
                tree.refuse(new.candidate)
                ledger.prm_refused += 1
            else:
                slot = self._slots[new.slot]
                assert slot is not None
                for candidate in slot.of_equal_text(new.candidate):
                    candidate.score = float(value)
            ledger.prm_computed += usage.computed
            ledger.prm_cached += usage.cached
            flops = 2.0 * self._scorer.num_parameters * usage.computed
            ledger.flops += flops
            ledger.prm_flops += flops
            ledger.prm_seconds += part
            ledger.prm_calls += new.slot not in called
            called.add(new.slot)

    def _fill(self, arrays: dict[str, Any], grown: Grown) -> None:
        """Write candidates into the arrays of an expansion."""
        for new in grown.candidates:
            slot, candidate, at = self._slots[new.slot], new.candidate, (new.slot, new.row)
            assert slot is not None
            arrays["parent"][at] = new.parent_slot
            arrays["num_tokens"][at] = candidate.num_tokens
            if candidate.invalid is not None:  # also where the PRM can't read the path
                continue
            slot.valid_in_step += 1
            arrays["valid"][at] = slot.failure is None
            arrays["score"][at] = candidate.score or 0.0
            arrays["done"][at] = candidate.done
            arrays["answer"][at] = slot.tree.answer_class(candidate.answer)
            arrays["text"][at] = slot.tree.text_class(candidate.text)
            # A strategy that reads a missing value must not take it for a probability of 1.
            arrays["log_prob"][at] = np.nan if candidate.log_prob is None else candidate.log_prob
            arrays["embedding"][at] = candidate.id

    def _record(self, observed: dict[str, Any], advanced: list[int]) -> None:
        """Add this tick's record, decisions, path scores and kept candidates to the questions."""
        output: search.StepOutput = observed["output"]
        for index in advanced:
            slot = self._slots[index]
            assert slot is not None
            if "record" in observed:
                place = slot.step * self._settings.strategy.num_phases + slot.phase
                slot.records += [None] * (place - len(slot.records))
                slot.records.append(of_slot(observed["record"], index))
            if isinstance(output.report, search.Decision):
                slot.tree.decisions.extend(decision_rows(slot, observed, index))
            for candidate in slot.tree.candidates[slot.num_recorded :]:
                if candidate.score is not None:
                    path_score = float(output.path_score[index, candidate.pool_row])
                    for each in slot.of_equal_text(candidate):
                        each.path_score = path_score
            slot.num_recorded = len(slot.tree.candidates)
            slot.step = int(observed["step"][index])
            slot.phase = int(observed["phase"][index])
            slot.used = int(observed["used"][index])
            if slot.phase == 0:
                slot.greedy.clear()
                slot.unscored.clear()
                for part in ("frontier", "finished"):
                    for node in self._alive(observed, index, part):
                        if node != ROOT:
                            slot.tree.candidates[node - 1].kept = True

    def _charge(self, wall: float, busy: Stopwatch, *, compiled: bool) -> None:
        """Divide the tick's core and remaining time equally among the open questions.

        The core of a tick that compiled took seconds instead of milliseconds; no question is
        charged for it.
        """
        core = busy.seconds("core")
        calls = {part: busy.seconds(part) for part in ("policy", "prm")}
        inside = {part: busy.seconds(f"{part} inside") for part in calls}
        here = {"policy": self._policy, "prm": self._scorer}
        # The seconds inside a concurrent model are spent by other threads.
        outside = {
            part: calls[part] - (0.0 if is_concurrent(here[part]) else inside[part])
            for part in calls
        }
        self._own_seconds = wall - busy.seconds("waiting") - sum(calls.values())
        host = self._own_seconds - core
        open_slots = [slot for slot in self._slots if slot is not None]
        for slot in open_slots:
            rest = max(0.0, host + sum(outside.values()))
            slot.tree.ledger.core_seconds += 0.0 if compiled else core / len(open_slots)
            slot.tree.ledger.rest_seconds += rest / len(open_slots)
        for part in calls:
            self._timings.add(f"{part} inside", inside[part])
            self._timings.add(f"{part} outside", outside[part])
        self._timings.add("compiling" if compiled else "core", core)
        self._timings.add("host", host)

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
            # Paths that finished earlier still give an answer, and a method with a memory
            # continues.
            over = nothing_valid and observed["terminal"][index]
            if over and not self._alive(observed, index, "finished"):
                last = slot.step >= self._settings.max_depth
                slot.failure = nothing_valid_in(slot.tree.candidates, slot.step - 1, last=last)
            if slot.failure is not None:
                results.append(self._close(index, observed, "failed", slot.failure))
            elif observed["terminal"][index]:
                cut = bool(observed["cut_by_budget"][index])
                reason = f"budget of {slot.job.terms.budget} candidates spent" if cut else ""
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
        self._free(index)
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
                job = self._waiting.popleft()
                self._slots[index] = Slot(job, SearchTree(job.question, self._judge))
                self._terms[index] = job.terms
                opened.add(index)
        for index in self._closed - opened:
            self._terms[index] = self._idle
        replaced = opened | self._closed
        if replaced:
            self._stacked = stack(self._terms)
            fresh = ticks.first_states(self._stacked, **self._settings.shapes)
            mask = slot_mask(replaced, len(self._slots))
            self._state = ticks.where_slots(mask, fresh, self._state)
            self._closed.clear()

    def _free(self, index: int) -> None:
        self._keep_only(self._tree(index).question, [])
        self._slots[index] = None
        self._closed.add(index)

    def _reads_log_probs(self, slot: Slot) -> bool:
        strategy, calibration = self._settings.strategy, slot.job.terms.context.calibration
        return strategy.needs_log_probs or (strategy.calibrated and calibration.likelihood != 0.0)

    def _tree(self, index: int) -> SearchTree:
        slot = self._slots[index]
        assert slot is not None
        return slot.tree

    def _alive(self, observed: dict[str, Any], index: int, part: str) -> list[int]:
        valid = observed[f"{part}_valid"][index]
        return [int(node) for node in observed[f"{part}_embedding"][index][valid]]

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


_NO_LOG_PROBS = (
    "the policy reports no log-probabilities, which the strategy reads: leave out the policy's "
    "log_probs=False, or take another strategy"
)


def _nothing_generated() -> Future[Generation]:
    """The result of a call of the policy without requests."""
    future: Future[Generation] = Future()
    future.set_result(Generation([], [], 0.0))
    return future
