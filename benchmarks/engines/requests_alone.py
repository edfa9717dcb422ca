"""The requests of a search without the search: how fast a driver that makes them could be.

A search waits for its engine, and its engine waits for the search. Sent again, the same requests
need what the engine and its client need: no PRM, no core, no trees. The requests of a question
still follow one another, because each continues samples of the one before.
"""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.token_engine import Sampler, SampleRequest, TokenSample


class Recorder:
    """A `Sampler` that passes calls on to another one and remembers them.

    Args:
        sampler: the engine's; it must be concurrent, so that each call is of one question.
    """

    def __init__(self, sampler: Any):
        assert sampler.concurrent
        self.concurrent = True
        self.sampler = sampler
        self._lock = threading.Lock()
        self._calls: list[Sequence[SampleRequest]] = []

    def forget(self) -> None:
        """Forget all calls."""
        self._calls.clear()

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[TokenSample]]:
        """The samples of the other sampler."""
        with self._lock:
            self._calls.append(requests)
        return self.sampler.sample(requests)

    def send_again(self) -> int:
        """Send the calls again, all questions at once; return the number of tokens sampled."""
        chains: dict[tuple[int, ...], list[Sequence[SampleRequest]]] = {}
        for requests in self._calls:
            prompt = requests[0].prompt
            # The first call of a question has the question alone as its prompt.
            question = next((each for each in chains if prompt[: len(each)] == each), prompt)
            chains.setdefault(question, []).append(requests)
        with ThreadPoolExecutor(len(chains)) as pool:
            return sum(pool.map(self._send, chains.values()))

    def _send(self, calls: Sequence[Sequence[SampleRequest]]) -> int:
        answers = [answer for requests in calls for answer in self.sampler.sample(requests)]
        return sum(len(sampled.ids) for answer in answers for sampled in answer)


def recorded_policy(
    path: pathlib.Path, start: Callable[[int], Sampler], **asked: Any
) -> tuple[EngineGenerator, Recorder]:
    """An `EngineGenerator` of these arguments, and the recorder of its requests."""
    recorders: list[Recorder] = []

    def start_recorded(context: int) -> Recorder:
        recorders.append(Recorder(start(context)))
        return recorders[0]

    policy = EngineGenerator(path, start_recorded, **asked)
    return policy, recorders[0]
