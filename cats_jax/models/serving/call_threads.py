"""Threads that call a server, and that an interrupted command does not wait for.

Python waits for the threads of a `ThreadPoolExecutor` before a process ends, which takes minutes if
a server is slow.
"""

from __future__ import annotations

import functools
import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from ...errors import RunStoppedError

_GLANCE = 0.5
"""Seconds after which a thread that waits for a call sees that the calls are abandoned."""

_ABANDONED = "calls to this server are abandoned: start again"

T = TypeVar("T")
R = TypeVar("R")

_ALL: weakref.WeakSet[CallThreads] = weakref.WeakSet()


class CallThreads:
    """Threads of one server; each makes one call at a time."""

    def __init__(self, most: int) -> None:
        """Start without a thread; there are at most `most`."""
        self._most = most
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.abandoned = threading.Event()
        _ALL.add(self)

    def map(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        check: Callable[[], None] = lambda: None,
    ) -> list[R]:
        """The values of `function(item)` for all items, called concurrently, in order.

        `check` is called now and then, to raise an error if there is no use in waiting.

        Raises:
            RunStoppedError: the calls were abandoned.
            Exception: the error of the first call that failed, or of `check`; calls that wait are
                not made.
        """
        if self.abandoned.is_set():
            raise RunStoppedError(_ABANDONED)
        made: list[Future[R]] = []
        for item in items:
            made.append(Future())
            self._calls.put((made[-1], functools.partial(function, item)))
        with self._lock:
            for _ in range(min(len(made), self._most - len(self._threads))):
                thread = threading.Thread(
                    target=_work, args=(self._calls, self.abandoned), daemon=True
                )
                self._threads.append(thread)
                thread.start()
        made.reverse()
        values: list[R] = []
        try:
            while made:
                values.append(self._result(made.pop(), check))
        finally:
            while made:
                made.pop().cancel()
        return values

    def close(self) -> None:
        """End the threads, after their calls unless these are abandoned; any thread may call it."""
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            if not self.abandoned.is_set() and thread is not threading.current_thread():
                thread.join()

    def _result(self, future: Future[R], check: Callable[[], None]) -> R:
        try:
            while not wait([future], _GLANCE).done:
                if self.abandoned.is_set():
                    raise RunStoppedError(_ABANDONED)
                check()
            return future.result()
        finally:
            del future  # its error must not refer to itself, which would keep the server alive


def abandon_calls() -> None:
    """Let nothing in this process wait for a server's calls; calls that wait are not made."""
    for threads in list(_ALL):
        threads.abandoned.set()


def _work(calls: queue.SimpleQueue[Any], abandoned: threading.Event) -> None:
    while (call := calls.get()) is not None:
        if abandoned.is_set():
            call[0].cancel()
        else:
            _make(*call)
        del call  # while this thread waits, it must not keep the server alive


def _make(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
    finally:
        del future, call  # as above
