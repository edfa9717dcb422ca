"""Calls of models, and what they return.

A call is made in the calling thread, or in a thread of its own where a model allows that.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..errors import BadInputError
from ..protocols import StepGenerator, StepScorer

T = TypeVar("T")


def is_concurrent(model: StepGenerator | StepScorer | None) -> bool:
    """Whether several threads may call a model at a time: its attribute `concurrent`, if any."""
    return bool(getattr(model, "concurrent", False))


def executor_for(model: StepGenerator | StepScorer | None, most: int) -> Executor:
    """An executor for calls of a model, `most` at a time if the model is concurrent."""
    return ThreadPoolExecutor(most) if is_concurrent(model) else CallingThread()


def checked(returned: Any, wanted: type[T], model: Any, method: str) -> T:
    """What a method of a model returned.

    Args:
        returned: value of the call.
        wanted: class of `cats_jax.protocols` that the method must return.
        model: object that was called.
        method: name of the method.

    Raises:
        BadInputError: the value is of another class.
    """
    if isinstance(returned, wanted):
        return returned
    got, name = type(returned).__name__, wanted.__name__
    raise BadInputError(
        f"{type(model).__name__}.{method} returned a value of type {got}: it must return a "
        f"cats_jax.protocols.{name}"
    )


class CallingThread(Executor):
    """An executor that makes each call at once; errors are raised by the future's `result`."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """The result of a call, which is there already."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
