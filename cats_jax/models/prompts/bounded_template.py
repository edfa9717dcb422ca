"""Chat templates, rendered in a process of their own with limits on time, memory and text.

A chat template is a program of a model folder. jinja2's sandbox keeps it from files and from
Python, but not from loops without an end or from texts of gigabytes.
"""

from __future__ import annotations

import atexit
import functools
import json
import pathlib
import sys
import threading
from collections.abc import Mapping
from typing import Any

import jinja2
import markupsafe

from ...line_process import LineProcess, NoReplyError
from .template_worker import MAX_SECONDS

_WORKER = pathlib.Path(__file__).with_name("template_worker.py")
_MODULES = [str(pathlib.Path(str(module.__file__)).parents[1]) for module in (jinja2, markupsafe)]
_MAX_WAIT = 60.0
"""Seconds until a reply, on a machine that is busy with other work."""


class TemplateFailure(ValueError):
    """A template could not be rendered; the message says why, in one line."""


def render(template: str, variables: Mapping[str, Any]) -> str:
    """The text that a chat template makes of its variables, given as JSON values.

    Raises:
        TemplateFailure: the template raises an error, or needs more than the limits allow.
    """
    return _rendered(json.dumps({"template": template, "variables": variables}, default=str))


@functools.lru_cache(256)
def _rendered(request: str) -> str:
    reply = json.loads(_worker.ask(request))
    if "error" in reply:
        raise TemplateFailure(reply["error"])
    return reply["text"]


class _Worker:
    """The process, started on first use, and again after its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: LineProcess | None = None
        atexit.register(self.close)

    def ask(self, request: str) -> bytes:
        """The line of reply to a line of request.

        Raises:
            TemplateFailure: the process was ended at a limit.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.close()
                # -I: neither the working directory nor the environment chooses its modules.
                command = [sys.executable, "-I", str(_WORKER), *_MODULES]
                self._process = LineProcess(command)
            try:
                return self._process.ask(request.encode("ascii"), _MAX_WAIT)
            except NoReplyError:
                self.close()
                raise TemplateFailure(
                    f"it needs more than {MAX_SECONDS} s or more memory than a template gets"
                ) from None

    def close(self) -> None:
        """End the process, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.end()


_worker = _Worker()
