"""The command `cats-jax`: parses, sets the environment up, and turns errors into exit codes.

Exit codes: 0 done, 1 the run failed, 2 bad input (one line on stderr names fault and way out).
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from .commands.interruption import interrupted, interruptible
from .compiled_programs import cache_environment
from .errors import (
    BadInputError,
    ModelContractError,
    RunStoppedError,
    RunWarning,
    other_release,
)
from .models.serving.call_threads import abandon_calls
from .reporting.plain_text import printable
from .storage.former_names import COMMAND_OPTIONS, FormerNameWarning
from .storage.reading import reason
from .version import __version__

_NAMES = (
    *("demo", "solve", "serve", "evaluate", "bank", "calibrate", "collect", "train", "ablations"),
    *("rescore", "report", "certify", "show", "page", "score", "quality", "sparsity", "theory"),
    *("convert", "grade"),
)
_COMMANDS: dict[str, Callable[..., int]] = {
    # The file of a command, and its function there, have the command's name.
    name: getattr(importlib.import_module(f"cats_jax.commands.{name}"), name)
    for name in _NAMES
}

_ENVIRONMENT = {
    # The search core is small: on a GPU it would wait for transfers, and JAX would take most of
    # the memory that the models need.
    "JAX_PLATFORMS": "cpu",
    # For numpy and the processes that a command starts, whose work is small. A model's threads are
    # its setting `num_threads`, see `models.threads`.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Environment variables set unless the user has set them. JAX and torch read them on import."""


_TRACEBACK = "CATS_JAX_TRACEBACK"
"""Environment variable that lets an unforeseen error through, with its traceback."""

_USUAL_FORMAT = warnings.formatwarning

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, a full quota, or a file larger than the limit."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run one command and end the process with its exit code."""
    for name, value in (_ENVIRONMENT | cache_environment()).items():
        os.environ.setdefault(name, value)
    warnings.formatwarning = _formatted
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that lacks a character shows "?": an error would stop a run of hours.
        sys.stdout.reconfigure(errors="replace")
    code = run(arguments)
    if threading.current_thread() is threading.main_thread():
        # Everything is written: Ctrl-C while Python ends needs no traceback of its exit functions.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _formatted(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: Any = None
) -> str:
    """A warning for the user as one line; other warnings as Python shows them."""
    if issubclass(category, (FormerNameWarning, RunWarning)):
        return f"cats-jax: warning: {printable(str(message))}\n"
    return _USUAL_FORMAT(message, category, filename, lineno, line)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words == ["--version"]:
            print(f"cats-jax {__version__}")
            return _flushed(0)
        with interruptible():
            code = tyro.extras.subcommand_cli_from_dict(
                _COMMANDS,
                args=_current(words),
                prog="cats-jax",
                description="Compute-Aware Tree Search and its baselines. Commands set "
                "JAX_PLATFORMS=cpu and OMP_NUM_THREADS=1 unless they are set already. --version "
                "prints the version.",
            )
        return _flushed(code)
    except (BadInputError, RunStoppedError, ModelContractError) as error:
        # A message may quote a file's or a model's text.
        print(f"cats-jax: {printable(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, BadInputError) else 1
    except ImportError as error:
        print(f"cats-jax: {printable(other_release(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        abandon_calls()
        print(f"cats-jax: {interrupted(words)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has closed the pipe (`| head`), so nobody reads a report.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        with contextlib.suppress(OSError):
            _flushed(1)  # a command may have left text that can't be written
        line = _full(error) if error.errno in _FULL else _unexpected(error)
        print(f"cats-jax: {line}", file=sys.stderr)
        return 1
    # Code that reads files reports their errors itself; any other error is a bug here.
    except Exception as error:
        print(f"cats-jax: {_unexpected(error)}", file=sys.stderr)
        return 1


def _flushed(code: int) -> int:
    """The exit code, once the output is written; Python can't report an error of its own flush."""
    if sys.stdout is None:  # the user has closed it
        return code
    try:
        sys.stdout.flush()
    except OSError:
        # What can't be written is dropped, or Python tries again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
    return code


def _current(words: Sequence[str]) -> list[str]:
    """A command line by the current names, with a FormerNameWarning for each former one.

    Raises:
        BadInputError: an option is given by both names.
    """
    given = [word.split("=", 1)[0].replace("_", "-") for word in words]
    current = []
    for option, word in zip(given, words, strict=True):
        name = COMMAND_OPTIONS.get((words[0], option))
        if name is not None:
            if name in given:
                raise BadInputError(f"{option} is the former name of {name}: leave it out")
            line = f"{option} is now called {name}: rename the option"
            warnings.warn(line, FormerNameWarning, stacklevel=2)
        current.append(word if name is None else name + word[len(option) :])
    return current


def _full(error: OSError) -> str:
    return (
        f"nothing more can be written ({error.strerror}): free space and give the same command "
        "again"
    )


def _unexpected(error: Exception) -> str:
    """One line about an unforeseen error; raises the error itself if `_TRACEBACK` is set."""
    if os.environ.get(_TRACEBACK):
        raise error
    # A line of Python's traceback, so that a report of the fault says where it occurred.
    last = traceback.extract_tb(error.__traceback__)[-1]
    name, said = type(error).__name__, reason(error)
    said = said if said.startswith(name) else f"{name}: {said}"
    return printable(
        f"unexpected error, {said} ({os.path.basename(last.filename)}:{last.lineno}): check the "
        f"input; {_TRACEBACK}=1 shows the traceback for a report of the fault"
    )


if __name__ == "__main__":
    main()
