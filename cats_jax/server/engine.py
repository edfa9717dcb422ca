"""The thread that owns the models and runs the searches of all requests.

Searches with the same strategy, N and kind of budget are in one batch, whose questions advance
together. The batches take turns, one tick each. Any thread may call `submit` to add a search and
`drop` to end one. The engine reports each event of a search by the `notify` of its ticket.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ..compiled_programs import keep_compiled_programs
from ..errors import BadInputError
from ..live.driver import SearchBatch
from ..live.jobs import Job
from ..live.results import SearchResult
from ..protocols import Question
from .metrics import ServerMetrics
from .offer import SEED_NAME, Loaded, Settings
from .refusals import RefusedRequestError, bad_request, unavailable

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The question fits the policy; its search waits for a place."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Completed steps, sampled steps, and tokens that the policy sampled and the PRM computed."""

    step: int
    candidates: int
    tokens: int


Event = Accepted | SearchProgress | SearchResult | RefusedRequestError
"""An event of a search; a `SearchResult` or a `RefusedRequestError` is the last one."""

State = Literal["ready", "draining", "stopped", "failed"]
"""In the state `draining` no new searches are accepted; `failed` means that a model broke."""


@dataclass(slots=True)
class Ticket:
    """One request's search.

    Attributes:
        question: the question; its id is that of the request, and unique.
        settings: settings of the search.
        notify: called with each event, in the engine's thread; must not block.
    """

    question: Question
    settings: Settings
    notify: Callable[[Event], None]
    arrived: float = field(default_factory=time.monotonic)
    progress: SearchProgress | None = None

    @property
    def id(self) -> str:
        """Id of the request."""
        return self.question.id


@dataclass(slots=True)
class _Batch:
    """A batch of searches and the jobs that it has not opened yet."""

    searches: SearchBatch
    jobs: deque[Job]


class Engine:
    """Runs searches in a thread of its own.

    At most `max_waiting` searches wait for a place; the recipe's `in_flight` is the number of
    places.
    """

    def __init__(self, loaded: Loaded, *, max_waiting: int, metrics: ServerMetrics) -> None:
        self._loaded = loaded
        self._places = loaded.offer.recipe.in_flight
        self._max_waiting = max_waiting
        self._metrics = metrics
        self._thread = threading.Thread(target=self._run, name="cats-jax engine", daemon=True)
        # Shared with other threads, guarded by the condition.
        self._changed = threading.Condition()
        self._state: State = "ready"
        self._tickets: dict[str, Ticket] = {}
        self._arrived: deque[Ticket] = deque()
        self._leaving: set[str] = set()
        # Used by the engine's thread only.
        self._waiting: deque[Ticket] = deque()
        self._open: set[str] = set()
        self._batches: dict[tuple[str, int, bool], _Batch] = {}
        metrics.watch(in_flight=lambda: self.in_flight, waiting=lambda: self.waiting)

    @property
    def state(self) -> State:
        """Whether searches are accepted, and if not, why not."""
        return self._state

    @property
    def in_flight(self) -> int:
        """Number of searches that have a place."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """Number of searches that wait for a place."""
        return max(0, len(self._tickets) - len(self._open))

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, ticket: Ticket) -> None:
        """Accept a search.

        Raises:
            RefusedRequestError: too many searches wait, or the engine no longer accepts searches.
        """
        with self._changed:
            self._check_ready()
            if len(self._tickets) >= self._places + self._max_waiting:
                raise RefusedRequestError(
                    429,
                    "overloaded",
                    f"{self._places} searches are in flight and {self._max_waiting} wait, which is "
                    "the most: try again later",
                    headers={"Retry-After": "1"},
                )
            self._tickets[ticket.id] = ticket
            self._arrived.append(ticket)
            self._changed.notify_all()

    def drop(self, ticket: Ticket) -> None:
        """End a search whose client has left, at the next tick; no effect if it has ended."""
        with self._changed:
            if ticket.id in self._tickets:
                self._leaving.add(ticket.id)
                self._changed.notify_all()

    def drain(self) -> None:
        """Accept no new searches; those in flight and waiting continue."""
        with self._changed:
            if self._state == "ready":
                self._state = "draining"

    def is_idle(self) -> bool:
        """Whether no search is in flight or waiting."""
        return not self._tickets

    def stop(self, patience: float = 10.0) -> None:
        """End the thread after its tick, within `patience` seconds, and refuse all searches."""
        with self._changed:
            if self._state != "failed":
                self._state = "stopped"
            self._changed.notify_all()
        self._thread.join(patience)

    def _check_ready(self) -> None:
        if self._state == "failed":
            raise unavailable("failed", "a model of this server has failed: it must be restarted")
        if self._state != "ready":
            raise unavailable("draining", "this server is shutting down: ask another one")

    # The engine's thread.

    def _run(self) -> None:
        said = "this server has shut down before the search ended"
        reason = unavailable("draining", said, ended=True)
        try:
            keep_compiled_programs()
            while self._take():
                self._fill_places()
                for batch, each in list(self._batches.items()):
                    if not each.searches.advance():
                        each.searches.close()
                        del self._batches[batch]
                    self._tell_progress(each)
        except Exception as error:  # of any model: clients wait for an answer
            with self._changed:
                is_stopped = self._state == "stopped"  # its calls may have been abandoned
                self._state = "stopped" if is_stopped else "failed"
            if not is_stopped:
                _LOG.exception("a search broke the models")
                said = f"a model of this server has failed: {_short(error)}"
                reason = unavailable("failed", said, ended=True)
        for each in self._batches.values():
            each.searches.close()
        for ticket in list(self._tickets.values()):
            self._end(ticket, reason)

    def _take(self) -> bool:
        """Wait for work and take what other threads submitted and dropped; False: stop."""
        with self._changed:
            self._changed.wait_for(self._has_work)
            if self._state == "stopped":
                return False
            arrived, leaving = list(self._arrived), set(self._leaving)
            self._arrived.clear()
        for ticket in arrived:
            if ticket.id not in leaving:
                self._admit(ticket)
        self._let_go(leaving)
        return True

    def _has_work(self) -> bool:
        busy = self._arrived or self._leaving or self._waiting or self._batches
        return bool(busy) or self._state == "stopped"

    def _admit(self, ticket: Ticket) -> None:
        """Let the models check the request; a search that they can't carry out ends."""
        name = "budget"
        try:
            self._loaded.check_budget(ticket.settings)
            name = "messages"
            self._loaded.check_question(ticket.question, ticket.settings)
        except BadInputError as error:
            reason = str(error).replace(repr(ticket.id), "of this request")
            self._end(ticket, bad_request(reason, name))
        else:
            self._waiting.append(ticket)
            ticket.notify(Accepted())

    def _let_go(self, leaving: set[str]) -> None:
        """End searches whose client has left; one with a call in progress stays for a tick."""
        gone = leaving - self._open
        for each in self._batches.values():
            gone.update(each.searches.drop(leaving))
        for ticket in [self._tickets[name] for name in gone if name in self._tickets]:
            self._end(ticket, unavailable("dropped", "the client went away", ended=True))
        self._waiting = deque(ticket for ticket in self._waiting if ticket.id not in gone)

    def _fill_places(self) -> None:
        """Give free places to the searches that wait, in the order of their arrival."""
        while self._waiting and len(self._open) < self._places:
            ticket = self._waiting.popleft()
            searcher = self._loaded.searcher(ticket.settings)
            batch = self._batches.get(ticket.settings.batch)
            if batch is None:
                jobs: deque[Job] = deque()
                batch = _Batch(searcher.cohort(jobs, self._finish, slots=self._places), jobs)
                self._batches[ticket.settings.batch] = batch
            batch.jobs.append(searcher.job(ticket.question, SEED_NAME))
            self._open.add(ticket.id)

    def _tell_progress(self, batch: _Batch) -> None:
        for name, step, ledger in batch.searches.progress():
            ticket = self._tickets[name]
            progress = SearchProgress(step, ledger.candidates, ledger.tokens)
            if progress != ticket.progress:
                ticket.progress = progress
                ticket.notify(progress)

    def _finish(self, result: SearchResult) -> None:
        ticket = self._tickets[result.question.id]
        self._end(ticket, self._loaded.offer.decided(result, ticket.settings))

    def _end(self, ticket: Ticket, event: SearchResult | RefusedRequestError) -> None:
        with self._changed:
            del self._tickets[ticket.id]
            self._leaving.discard(ticket.id)
            self._open.discard(ticket.id)
        seconds = time.monotonic() - ticket.arrived
        if isinstance(event, SearchResult):
            self._metrics.finished(event, seconds)
        elif event.reason == "dropped":
            self._metrics.dropped()
        elif event.ended:
            self._metrics.stopped(event.reason)
        ticket.notify(event)


def _short(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
