"""A child process that answers each line of its input by one line, within a time."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence


class NoReplyError(RuntimeError):
    """There was no reply.

    Attributes:
        code: return code of the process, which has ended; None if the time was over.
    """

    def __init__(self, code: int | None) -> None:
        super().__init__("no reply")
        self.code = code


class LineProcess(subprocess.Popen[bytes]):
    """A child process, for one thread at a time.

    It ends when its owner does, because its standard input is closed. Ctrl-C reaches the owner
    only.

    Attributes:
        served: number of replies so far.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start `command`; `environment` takes the place of this process's own."""
        super().__init__(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )
        self._owner = os.getpid()
        self.served = 0
        assert self.stdin is not None
        os.set_blocking(self.stdin.fileno(), False)

    def ask(self, line: bytes, seconds: float) -> bytes:
        """The line of reply to a line, which has no newline.

        Without a reply the process ends: a late reply would be taken for that to a later line.

        Raises:
            NoReplyError: the process has ended, or `seconds` are over.
        """
        try:
            reply = self._reply(memoryview(line + b"\n"), time.monotonic() + seconds)
        except BaseException:  # Ctrl-C, too
            self.end()
            raise
        self.served += 1
        return reply

    def _reply(self, rest: memoryview, deadline: float) -> bytes:
        assert self.stdin is not None
        assert self.stdout is not None
        writes, reads = self.stdin.fileno(), self.stdout.fileno()
        poll = select.poll()
        poll.register(writes, select.POLLOUT)
        poll.register(reads, select.POLLIN)
        reply = bytearray()
        while not reply.endswith(b"\n"):
            wait = deadline - time.monotonic()
            ready = dict(poll.poll(wait * 1000)) if wait > 0 else {}
            if not ready:
                raise NoReplyError(None)
            if writes in ready:
                try:
                    rest = rest[os.write(writes, rest) :]
                except BrokenPipeError:
                    raise NoReplyError(self.wait()) from None
                if not rest:
                    poll.unregister(writes)
            if reads in ready:
                part = os.read(reads, 1 << 16)
                if not part:
                    raise NoReplyError(self.wait())
                reply += part
        return bytes(reply)

    def end(self) -> None:
        """End the process; no effect in a fork of the process that started it."""
        if self._owner != os.getpid():
            return
        self.kill()
        self.wait()
        for pipe in (self.stdin, self.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
