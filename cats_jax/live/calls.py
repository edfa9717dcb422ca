"""Calls of models: in the calling thread, or in threads of their own where a model allows that."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..protocols import StepGenerator, StepScorer

T = TypeVar("T")


def is_concurrent(model: StepGenerator | StepScorer | None) -> bool:
    """Whether several threads may call a model at a time: its attribute `concurrent`, if any."""
    return bool(getattr(model, "concurrent", False))


def executor_for(model: StepGenerator | StepScorer | None, most: int) -> Executor:
    """An executor for calls of a model, `most` at a time if the model is concurrent."""
    return ThreadPoolExecutor(most) if is_concurrent(model) else CallingThread()


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
