"""A pool of processes that compare answers, each killed and replaced when it breaks a limit.

The processes run a program of their own (`worker`). A fork of a process that runs JAX may deadlock,
and `multiprocessing` would run the user's main module again. The pool works from any thread, in
notebooks, in Ray actors and under asyncio.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import weakref
from typing import Any

from ..line_process import LineProcess, NoReplyError
from .worker import MEMORY

_REQUESTS_PER_WORKER = 5000
"""Requests after which a worker is replaced, which keeps sympy's caches small."""

_MOST_KILLS = 3
"""Workers that may be killed from outside in one request before it fails."""

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that a worker never sends itself."""

_START_SECONDS = 60.0
_WALL_FACTOR = 60.0
"""Limit of wall time per request, as a multiple of the limit of CPU time. The CPU limit makes
grades independent of the machine's load; the wall limit ends workers that wait without computing.
"""

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from cats_jax.grading.worker import main; main()"
)


class WorkerFailure(RuntimeError):
    """A request had no reply within the limits; the message says which limit.

    Attributes:
        passes: whether the reason is the state of the machine, which may be another one later.
    """

    passes = False


class _OutOfMemory(WorkerFailure):
    """A request ran out of memory, perhaps because earlier ones had left little."""


class _Killed(WorkerFailure):
    """A worker was killed from outside, by a person or because the machine ran out of memory."""

    passes = True


class WorkerPool:
    """Worker processes, started when they are first needed, with the limits of `MathGrader`."""

    def __init__(self, workers: int, seconds: float, memory_mb: int) -> None:
        self._workers = workers
        self._seconds = seconds
        self._memory_mb = memory_mb
        self._lock = threading.Lock()
        self._owner = -1

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Reply to one request; waits while all workers are busy. Safe in any thread.

        Raises:
            WorkerFailure: the request broke a limit, or its worker ended without a reply.
        """
        idle = self._idle_workers()
        worker = idle.get()
        kills = 0
        try:
            while True:
                worker.prepare()
                fresh = worker.served == 0
                try:
                    return worker.ask(request)
                except _OutOfMemory:
                    if fresh:
                        raise
                except _Killed:
                    kills += 1
                    if kills == _MOST_KILLS:
                        raise
                worker.kill()
        except BaseException:
            worker.kill()
            raise
        finally:
            idle.put(worker)

    def close(self) -> None:
        """End all processes; a later request starts new ones."""
        with self._lock:
            if self._owner == os.getpid():
                _kill_all(self._all)
            self._owner = -1

    def _idle_workers(self) -> queue.LifoQueue[_Worker]:
        with self._lock:
            # A forked child has its parent's pipes, but must not write to them.
            if self._owner != os.getpid():
                self._all = [_Worker(self._seconds, self._memory_mb) for _ in range(self._workers)]
                # The worker used last is used again first, so that no more are started than needed.
                self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
                for worker in self._all:
                    self._idle.put(worker)
                self._owner = os.getpid()
                weakref.finalize(self, _kill_all, self._all)
            return self._idle


class _Worker:
    """A worker process, which `prepare` starts and replaces."""

    def __init__(self, seconds: float, memory_mb: int) -> None:
        self._seconds = seconds
        self._memory_mb = memory_mb
        self._process: LineProcess | None = None

    @property
    def served(self) -> int:
        """Number of replies of the process; 0 without one."""
        return 0 if self._process is None else self._process.served

    def prepare(self) -> None:
        """Start a process if there is none, or replace one that has ended or served enough."""
        if self.served >= _REQUESTS_PER_WORKER or (
            self._process is not None and self._process.poll() is not None
        ):
            self.kill()
        if self._process is None:
            arguments = [json.dumps(sys.path), str(self._seconds), str(self._memory_mb << 20)]
            # Sets of symbols then have the same order in every process.
            environment = {**os.environ, "PYTHONHASHSEED": "0"}
            self._process = LineProcess([sys.executable, "-c", _PROGRAM, *arguments], environment)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        limit = self._seconds * _WALL_FACTOR + (_START_SECONDS if self.served == 0 else 0.0)
        try:
            reply = self._process.ask(json.dumps(request).encode(), limit)
        except NoReplyError as error:
            if error.code is None:
                raise WorkerFailure(f"no end in sight after {limit:.0f} s") from None
            raise self._failure(error.code) from None
        answer: dict[str, Any] = json.loads(reply)
        if answer.get("error") == MEMORY:
            raise _OutOfMemory(self._memory_message)
        return answer

    def kill(self) -> None:
        """End the process if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _failure(self, code: int) -> WorkerFailure:
        """Why the process ended with a return code, without a reply."""
        if code == -signal.SIGPROF:
            return WorkerFailure(f"takes more than {self._seconds:g} s")
        if code > 0 and self.served == 0:
            return WorkerFailure(
                "the comparing process does not start: is math-verify installed "
                "(pip install 'cats-jax[eval]')?"
            )
        if code == 1:
            return _OutOfMemory(self._memory_message)
        if -code in _FROM_OUTSIDE:
            return _Killed(
                f"the comparing process was killed {_MOST_KILLS} times, which the system does if "
                "the machine runs out of memory: free memory, or use fewer workers"
            )
        return WorkerFailure(f"ends the comparing process (code {code})")

    @property
    def _memory_message(self) -> str:
        return f"needs more than {self._memory_mb} MiB"


def _kill_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.kill()
