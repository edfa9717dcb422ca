"""Calls of a model that are in progress, and what it may forget: all but the live paths."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import Future
from typing import Generic, TypeVar

from ..protocols import Path, Question
from .calls import executor_for
from .proxies import Model, Proxy
from .slots import Slot

Returned = TypeVar("Returned")
Asked = TypeVar("Asked")


class ModelCalls(Generic[Model, Returned, Asked]):
    """Calls of the policy or the PRM, and the live paths of the open questions.

    Attributes:
        in_progress: what each call was made for.
    """

    def __init__(self, model: Model, most: int) -> None:
        """Start without a call; at most `most` calls run at a time."""
        self._model = model
        self._executor = executor_for(model, most)
        self.in_progress: dict[Future[Returned], Asked] = {}
        self._untold: dict[Question, list[Path]] = {}
        self._live: dict[Question, list[Path]] = {}

    def keep_only(self, question: Question, live: list[Path]) -> None:
        """Note that only the paths `live` of a question can still grow; empty if it has ended."""
        # The newest list is enough: an earlier path that it lacks is dead.
        self._untold[question] = live

    def tell(self) -> None:
        """Pass the live paths to the model, which frees all others."""
        for question, live in self._untold.items():
            self._model.keep_only(question, live)
            self._live[question] = live
            if not live:
                del self._live[question]
        self._untold.clear()

    def take_back(self, slots: Iterable[Slot], new: Collection[int] = ()) -> None:
        """Let the model forget what a call that broke the contract computed for some questions.

        No question is charged for that call, so the call that is made again must not find its
        tokens in a cache. A proxy, which remembers whole answers, is not told: its question would
        have ended.

        Args:
            slots: slots of the questions.
            new: ids of the candidates for which the call was made.
        """
        for slot in () if isinstance(self._model, Proxy) else slots:
            tree = slot.tree
            earlier = [
                tree.path(each.id)
                for each in tree.candidates
                if each.step == slot.step and each.invalid is None and each.id not in new
            ]
            first = [()] if slot.phase else []
            live = self._live.get(tree.question, first)
            self._model.keep_only(tree.question, [*live, *earlier])

    def close(self) -> None:
        """End the threads; calls in progress are not awaited."""
        self._executor.shutdown(wait=False, cancel_futures=True)
