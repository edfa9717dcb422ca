"""The end of a command by Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

_GO_ON = ("evaluate", "bank", "collect", "rescore", "ablations")
"""Commands that keep finished work and resume; `train` does so with --online."""


def goes_on(words: Sequence[str]) -> bool:
    """Whether repeating a command line resumes it."""
    command = next(iter(words), "")
    return command in _GO_ON or (command == "train" and "--online" in words)


def interrupted(words: Sequence[str]) -> str:
    """The message for a command line that was interrupted, in one line."""
    command = next(iter(words), "")
    if goes_on(words):
        return "interrupted; what is finished is kept: the same command goes on where it stopped"
    return f"interrupted; `{command}` keeps nothing unfinished: the same command begins anew"


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end the `with` block by a KeyboardInterrupt, as Ctrl-C does.

    Files that are being written are then closed. Outside the main thread, which alone receives
    signals, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
