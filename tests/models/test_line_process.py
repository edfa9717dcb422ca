"""A child process that answers by lines: what is left of it when an answer does not come."""

import os
import signal
import sys
import time

import pytest

from cats_jax.line_process import LineProcess, NoReplyError

ECHO = "import sys\nfor line in sys.stdin: print(line.strip()[:3], flush=True)"


def test_lines_longer_than_a_pipe_are_answered():
    process = LineProcess([sys.executable, "-c", ECHO])
    try:
        assert process.ask(b"abc" * 100_000, 30.0) == b"abc\n"
        assert process.ask(b"xyz", 30.0) == b"xyz\n"
        assert process.served == 2
    finally:
        process.end()


def test_a_line_that_is_not_read_takes_no_longer_than_its_time():
    process = LineProcess([sys.executable, "-c", ECHO])
    assert process.ask(b"abc", 30.0) == b"abc\n"
    os.kill(process.pid, signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(NoReplyError) as found:
        process.ask(b"a" * 300_000, 0.3)
    assert found.value.code is None
    assert time.monotonic() - started < 5
    assert process.poll() == -signal.SIGKILL


def test_after_an_interruption_no_reply_is_taken_for_that_of_another_line(monkeypatch):
    """Ctrl-C while the reply is awaited; workers of pytest ignore the signal itself."""

    def interrupted(descriptor, size):
        raise KeyboardInterrupt

    process = LineProcess([sys.executable, "-c", ECHO])
    assert process.ask(b"abc", 30.0) == b"abc\n"
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            process.ask(b"xyz", 30.0)
    assert process.poll() == -signal.SIGKILL


def test_a_process_that_ends_says_with_which_code():
    process = LineProcess([sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit(3)"])
    with pytest.raises(NoReplyError) as found:
        process.ask(b"x", 30.0)
    assert found.value.code == 3
