"""Processes to be killed, each forked from one that has imported what they need.

Importing JAX takes longer than what such a process does until it is killed. The common parent
starts no thread and no JAX backend, so its children are as good as new ones.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

_SUPPORT = pathlib.Path(__file__).resolve().parent
_FORK = """
import json, os, sys, traceback
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            run(*json.loads(line))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """Runs the function `run` of a piece of code in one process after another."""

    def __init__(self, parent: subprocess.Popen[str]):
        self._parent = parent
        self._child = 0

    def start(self, *arguments: object) -> None:
        """Begin `run(*arguments)` in a new process; the arguments arrive as text."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(json.dumps(list(map(str, arguments))) + "\n")
        self._parent.stdin.flush()
        self._child = self._number()

    def ending(self) -> int:
        """Wait for the process; returns its exit code, or -SIGNAL."""
        return self._number()

    def kill(self) -> int:
        """Kill the process, unless it has ended; returns as `ending`."""
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        return self.ending()

    def _number(self) -> int:
        assert self._parent.stdout is not None
        return int(self._parent.stdout.readline())


@contextmanager
def forks(code: str, env: Mapping[str, str]) -> Iterator[Forks]:
    """Import what `code` imports once; it may import modules of this folder, and defines `run`."""
    code = f"import sys; sys.path.append({str(_SUPPORT)!r})\n{code}\n{_FORK}"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **env},
        start_new_session=True,
        cwd=_SUPPORT.parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            yield Forks(parent)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
