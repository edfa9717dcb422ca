"""The end of a command by Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

_RESUMING = ("evaluate", "bank", "collect", "rescore", "ablations")
"""Commands that keep finished work and resume; `train` does so with --online."""

_SOON = 0.05
"""Seconds after which an ignored KeyboardInterrupt is raised again."""


def resumes(words: Sequence[str]) -> bool:
    """Whether repeating a command line resumes it."""
    command = next(iter(words), "")
    return command in _RESUMING or (command == "train" and "--online" in words)


def interrupted(words: Sequence[str]) -> str:
    """The message for a command line that was interrupted, in one line."""
    command = next(iter(words), "")
    if resumes(words):
        return "interrupted; what is finished is kept: the same command resumes"
    if command == "train":
        return (
            "interrupted; `train` does not resume: begin anew, with another --output if this one "
            "has checkpoints"
        )
    return f"interrupted; `{command}` keeps nothing unfinished: the same command begins anew"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM end the `with` block by a KeyboardInterrupt, as Ctrl-C does.

    Files that are being written are then closed, and child processes ended. Python ignores an
    exception in some places, such as a callback of the garbage collector. A KeyboardInterrupt that
    is ignored there is raised once more. Outside the main thread, which alone receives signals,
    this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def again() -> None:
        main = threading.main_thread().ident
        # After the block, SIGTERM would end the process.
        if main is not None and signal.getsignal(signal.SIGTERM) is interrupt:
            signal.pthread_kill(main, signal.SIGTERM)

    def ignored(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            hook_before(unraisable)
            return
        # Raised at once, it would be ignored again: Python still runs what ignores it.
        timer = threading.Timer(_SOON, again)
        timer.daemon = True
        timer.start()

    before, hook_before = signal.signal(signal.SIGTERM, interrupt), sys.unraisablehook
    sys.unraisablehook = ignored
    try:
        yield
    finally:
        sys.unraisablehook = hook_before
        if before is not None:  # None: a handler that is not Python's
            signal.signal(signal.SIGTERM, before)
