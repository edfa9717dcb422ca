"""Servers of searches on a free port, and models whose searches a test can hold up."""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
from letters import HashScorer, LetterPolicy

from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.live.seeds import stable_seed
from cats_jax.server.app import make_app
from cats_jax.server.engine import Engine
from cats_jax.server.metrics import ServerMetrics
from cats_jax.server.offer import Loaded, Offer
from cats_jax.server.run import Server, bind, url
from cats_jax.specs.recipe import parse_recipe

LETTERS = {
    "name": "letters",
    "policy": {"path": "letters:policy"},
    "prms": [{"path": "letters:prm"}],
    "calibration": "none",
    "strategies": ["beam", "best_of_n", "cats_random"],
    "num_candidates": [4, 8],
    "questions": {"world": "test", "count": 1},
    "max_depth": 6,
    "in_flight": 4,
}
"""A recipe of models that a test makes itself."""


class HeldPolicy(LetterPolicy):
    """Its calls wait for permission after `hold` and until `free`."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Exception | None = None
        self._held = False
        self._called = threading.Semaphore(0)
        self._allowed = threading.Semaphore(0)

    def hold(self) -> None:
        """Let no call go on."""
        self._held = True

    def wait_for_call(self) -> None:
        """Wait until one more call has begun and waits."""
        assert self._called.acquire(timeout=30)

    def allow(self) -> None:
        """Let one call go on."""
        self._allowed.release()

    def free(self) -> None:
        """Let all calls go on."""
        self._held = False
        self._allowed.release(10)

    def generate(self, requests):
        if self._held:
            self._called.release()
            assert self._allowed.acquire(timeout=30)
        if self.fault is not None:
            raise self.fault
        return super().generate(requests)


class TextScorer(HashScorer):
    """Scores a path by a hash of question and path, whatever the question's id."""

    name = "text"

    def __init__(self) -> None:
        super().__init__(lambda question, texts, _: (stable_seed(question.text, *texts) % 17) / 16)


@dataclasses.dataclass
class Running:
    """A server that runs.

    Attributes:
        url: base URL of the API, which ends in /v1.
        loaded: its models.
        engine: its engine.
        server: its web side.
        thread: the thread of the web side.
    """

    url: str
    loaded: Loaded
    engine: Engine
    server: Server
    thread: threading.Thread
    clients: list[openai.OpenAI] = dataclasses.field(default_factory=list)

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    def client(self, key: str = "none") -> openai.OpenAI:
        """The official client, which does not try again by itself."""
        made = openai.OpenAI(base_url=self.url, api_key=key, max_retries=0, timeout=120)
        self.clients.append(made)
        return made

    def metric(self, name: str) -> float:
        """A metric by its name with labels; 0 if it is not there yet."""
        lines = httpx.get(f"{self.root}/metrics").text.splitlines()
        return float(next((line.split()[-1] for line in lines if line.startswith(name)), 0))


def own_fields(part: Any) -> dict[str, Any]:
    """The field `cats_jax` of an answer, a chunk or a usage, which OpenAI's types do not have."""
    return part.model_extra["cats_jax"]


@contextlib.contextmanager
def running(
    loaded: Loaded,
    *,
    host="127.0.0.1",
    told=None,
    token=None,
    max_waiting=64,
    grace=30.0,
    connections=1000,
) -> Iterator[Running]:
    """A server of these models, on a real port and in threads of this process.

    It is told to listen at the name `told`, for which `host` stands if it is None.
    """
    metrics = ServerMetrics()
    engine = Engine(loaded, max_waiting=max_waiting, metrics=metrics)
    sock = bind(host, 0, token)
    address = url(sock)
    app = make_app(loaded.offer, engine, metrics, token, host=told or host)
    listening = threading.Event()
    server = Server(app, engine, connections=connections, grace=grace, ready=listening.set)
    thread = threading.Thread(target=server.run_until_signal, args=(sock,))
    engine.start()
    thread.start()
    try:
        while not listening.wait(1):
            assert thread.is_alive()
        found = Running(address, loaded, engine, server, thread)
        try:
            yield found
        finally:
            for client in found.clients:
                client.close()
    finally:
        server.end()
        server.end()
        thread.join(30)
        sock.close()
    assert not thread.is_alive()


def letters(policy=None, *, ignore_sampling=(), **recipe) -> Loaded:
    """Models that write letters, with changes of the recipe."""
    offer = Offer(
        parse_recipe(LETTERS | recipe),
        name="letters",
        max_prompt_characters=200,
        ignore_sampling=ignore_sampling,
    )
    policy = LetterPolicy(5) if policy is None else policy
    return Loaded(offer, policy, TextScorer(), BoxedIntegerGrader())
