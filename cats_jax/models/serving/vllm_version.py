"""Which releases of vLLM are known, and what is said where another one lacks what is needed."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from ...errors import BadInputError

TESTED = ("0.32.",)
"""Beginnings of the versions of vLLM that tests run with."""

_RANGE = "vllm>=0.32,<0.33"


@contextlib.contextmanager
def of_this_release() -> Iterator[None]:
    """Turns what this release of vLLM lacks, or has under another name, into one line.

    Raises:
        BadInputError: a module, a name or an argument of vLLM is not there.
    """
    try:
        yield
    except (ImportError, AttributeError, TypeError) as error:
        version = getattr(sys.modules.get("vllm"), "__version__", "of an unknown release")
        reason = " ".join(str(error).split())
        raise BadInputError(
            f"vLLM {version} lacks what cats-jax needs of it ({reason}): install {_RANGE}, or "
            "take the backend hf"
        ) from error


@functools.cache
def takes(function: Any, option: str) -> bool:
    """Whether a function of this release has an option that only adds speed."""
    try:
        known = inspect.signature(function).parameters
    except ValueError:
        return False  # it does not tell
    return option in known


def dead_engine_error() -> type[Exception]:
    """vLLM's error for an engine whose process has ended; a release without one raises others."""
    try:
        from vllm.v1.engine.exceptions import (  # pyright: ignore[reportMissingImports]
            EngineDeadError,
        )
    except ImportError:
        return _NeverRaised
    return EngineDeadError


class _NeverRaised(Exception):
    """Stands for an error that this release of vLLM does not have."""
