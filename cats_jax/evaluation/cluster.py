"""Searches on a Ray cluster: actors hold the models and get the questions in batches.

If an actor dies, Ray restarts it on any node with room and sends it its unfinished batch again
(`max_restarts`, `max_task_retries`). A result depends on the question and the seed alone, so the
rows equal those of a single machine. Gold answers never leave the driver.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import re
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import BadInputError, ModelContractError, RunStoppedError, RunWarning
from ..live.results import SearchResult
from ..models.backend import gpu_numbers
from ..models.source import ModelSource
from ..protocols import AnswerGrader, Question
from ..specs.models import PrmSpec
from ..specs.recipe import Recipe
from ..specs.strategy_prompts import StrategyPrompts
from .batch_queue import Batch, BatchQueue
from .cells import Cell, grid
from .runners import LocalRunner
from .wall_times import WallTimes

LOCAL = "local"
"""Address of a new cluster on this machine."""

_HOST_AND_PORT = re.compile(r"(?:ray://)?\[?([^\[\]/]+)\]?:(\d{1,5})")

_START_ONE = "start one with `ray start --head`, or use --ray local"

_ENVIRONMENT = ("JAX_PLATFORMS", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE")

_FORESEEN = (BadInputError, RunStoppedError, ModelContractError)
"""Errors whose one line tells the user what to do."""


class RayRunner:
    """Searches questions in the actors of a cluster, as a context manager.

    Leaving it ends the actors, and the cluster if the runner started it.
    """

    def __init__(
        self,
        recipe: Recipe,
        cells: Sequence[Cell],
        models: ModelSource,
        grader: AnswerGrader,
        *,
        address: str,
        workers: int | None = None,
    ) -> None:
        """Connect to the cluster and place the actors, which load models at their first batch.

        Args:
            recipe: the recipe to run; its `in_flight` holds for each actor.
            cells: its cells, whose prompts the actors use.
            models: source of the models; model folders must exist on every node.
            grader: decides which answers are the same; every actor gets a copy.
            address: address of a running cluster, or "local" for a new one on this machine.
            workers: number of actors; default: as many as the nodes have room for, see `needs`.

        Raises:
            BadInputError: Ray is not installed, does not answer, or has no room.
        """
        check_cluster(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self._ray: Any = ray
        self._in_flight = recipe.in_flight
        self._started = not ray.is_initialized()
        if self._started:
            _connect(ray, address)
        cpus, gpus = needs(recipe)
        room = sum(room_on(node["Resources"], cpus, gpus) for node in ray.nodes() if node["Alive"])
        self.num_workers = room if workers is None else workers
        if not 1 <= self.num_workers <= room:
            self.close()
            raise BadInputError(
                f"--ray: {self.num_workers} workers, but the cluster has room for {room}: each "
                f"needs {cpus} CPU(s) and {gpus:g} GPU(s) on one node"
                + ("; set num_threads of the models for fewer CPUs" if cpus > 1 else "")
            )
        actor = ray.remote(
            num_cpus=cpus,
            num_gpus=gpus,
            max_restarts=-1,
            max_task_retries=-1,
            runtime_env={
                "env_vars": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            },
        )(_Worker)
        # An actor may start later, on a node with another version of a file of prompts.
        prompts = {cell.spec.label: cell.prompts for cell in cells}
        self._actors: list[Any] = [
            actor.remote(recipe, prompts, models, grader) for _ in range(self.num_workers)
        ]
        self._idle = list(range(self.num_workers))
        self._used: set[int] = set()
        self._queue = BatchQueue()
        # By reference to the results: number of the actor, and the batch.
        self._running: dict[Any, tuple[int, Batch]] = {}
        self._times = WallTimes()
        self._cells = {_identity(cell): index for index, cell in enumerate(grid(recipe, prompts))}

    def __enter__(self) -> RayRunner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors, and disconnect from Ray if this runner connected to it."""
        for actor in getattr(self, "_actors", ()):
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()

    def search(
        self, cell: Cell, questions: Sequence[Question], on_result: Callable[[SearchResult], None]
    ) -> None:
        """Queue all questions in batches, and return as soon as an actor needs another cell."""
        index = self._cells[_identity(cell)]
        size = min(self._in_flight, math.ceil(len(questions) / self.num_workers))
        for start in range(0, len(questions), size):
            part = tuple(questions[start : start + size])
            self._queue.put(Batch(index, cell.pool, part, on_result))
        self._send(helping=False)
        while not self._idle:
            self._receive(helping=False)

    def finish(self, times: WallTimes) -> None:
        """Search all waiting batches on any actor that is idle, and add the actors' times.

        The last notes of the actors' models are shown as warnings.
        """
        self._send(helping=True)
        while self._running:
            self._receive(helping=True)
        ends = [self._actors[number].finish.remote() for number in sorted(self._used)]
        for end in ends:
            _warn(self._get(end))
        times.add(self._times.take())
        times.workers = self.num_workers

    def _send(self, *, helping: bool) -> None:
        """Give idle actors batches, see `BatchQueue.take`."""
        for actor in list(self._idle):
            batch = self._queue.take(actor, helping=helping)
            if batch is not None:
                self._idle.remove(actor)
                self._used.add(actor)
                sent = self._actors[actor].search.remote(batch.cell, list(batch.questions))
                self._running[sent] = actor, batch

    def _receive(self, *, helping: bool) -> None:
        """Wait for a batch, give its actor another one, and pass on the results.

        Raises:
            BadInputError, RunStoppedError, ModelContractError: the batch was stopped; the results
                that it had by then are passed on first.
        """
        (ended, *_), _ = self._ray.wait(list(self._running))
        actor, batch = self._running.pop(ended)
        self._idle.append(actor)
        self._send(helping=helping)
        searched: _Searched = self._get(ended)
        self._times.add(searched.times)
        for result in searched.results:
            batch.on_result(result)
        _warn(searched.notes)
        if searched.error is not None:
            raise searched.error

    def _get(self, ended: Any) -> Any:
        """The value that an actor returned.

        Raises:
            RayTaskError: an unforeseen error of the actor's code.
            RunStoppedError: the actor's node or process is lost, and Ray could not start another,
                or the actor can't be made on its node.
        """
        errors: Any = self._ray.exceptions
        try:
            return self._ray.get(ended)
        except errors.RayTaskError:
            raise
        except errors.RayError as error:
            lines = str(error).strip().splitlines() or [""]
            if "creation task" in lines[0]:  # the last line is that of the worker's own error
                raise RunStoppedError(
                    f"--ray: a worker can't start ({lines[-1].strip()[:300]}): mend this on its "
                    "node, such as a missing package or file, and the same command resumes"
                ) from error
            said = " ".join(str(error).split())[:160]
            raise RunStoppedError(
                f"--ray: a worker is lost ({type(error).__name__}: {said}): look after its node, "
                "and the same command resumes"
            ) from error


def check_cluster(address: str) -> None:
    """Check, without importing anything, that Ray is installed and that its address is in use.

    Raises:
        BadInputError: Ray is not installed, or nothing listens at a HOST:PORT.
    """
    if importlib.util.find_spec("ray") is None:
        raise BadInputError("--ray: Ray is not installed: pip install 'cats-jax[ray]'")
    if (place := _HOST_AND_PORT.fullmatch(address)) is not None:
        try:
            # Ray itself would retry for minutes.
            socket.create_connection((place[1], int(place[2])), timeout=10).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise _no_cluster(address, "no cluster answers there", error, _START_ONE) from error


def needs(recipe: Recipe) -> tuple[int, float]:
    """(CPUs, GPUs) that one worker reserves; it holds the policy and one PRM at a time.

    A model on the device "cpu" takes `num_threads` CPUs. If models use GPUs up to number K > 0, by
    `device` or `tensor_parallel_size`, the worker takes K + 1 whole GPUs. If a model of the backend
    "hf" uses the first GPU, the worker takes this GPU. If only vLLM engines use it, the worker
    takes the sum of the policy's and the largest PRM's `gpu_memory_utilization`, so that several
    workers may share the GPU. Models behind a server take nothing.
    """
    specs = (recipe.policy, *recipe.prms)
    local = [spec for spec in specs if spec.backend == "hf"]
    cpus = max((spec.num_threads or 1 for spec in specs if not gpu_numbers(spec)), default=1)
    whole = max((gpu_numbers(spec).stop for spec in specs), default=0)
    if whole > 1 or any(gpu_numbers(spec) for spec in local):
        return cpus, float(whole)
    shares = [
        s.gpu_memory_utilization if s.backend == "vllm" and gpu_numbers(s) else 0.0 for s in specs
    ]
    # Two decimals: recipes give hundredths of a GPU, and Ray counts in 1/10 000.
    return cpus, min(1.0, round(shares[0] + max(shares[1:], default=0.0), 2))


def room_on(resources: Mapping[str, float], cpus: int, gpus: float) -> int:
    """Number of workers that fit on a node; a worker's fraction of a GPU must be on one device."""
    by_cpu = int(resources.get("CPU", 0) // cpus)
    if gpus == 0:
        return by_cpu
    devices = resources.get("GPU", 0)
    by_gpu = devices // gpus if gpus >= 1 else int(devices) * int(1 / gpus + 1e-9)
    return min(by_cpu, int(by_gpu))


class _Searched(NamedTuple):
    """What an actor returns of a batch.

    Attributes:
        results: the results of the questions that have ended.
        times: wall times since the batch before.
        notes: the texts of the `RunWarning`s.
        error: what stopped the batch; None if all questions have ended.
    """

    results: list[SearchResult]
    times: WallTimes
    notes: list[str]
    error: Exception | None


class _Worker:
    """An actor with its own runner and grid; it gets cells by index, so nothing compiles twice."""

    def __init__(
        self,
        recipe: Recipe,
        prompts: Mapping[str, StrategyPrompts],
        models: ModelSource,
        grader: AnswerGrader,
    ) -> None:
        self._cells = grid(recipe, prompts)
        self._times = WallTimes()
        self._runner = LocalRunner(recipe, self._cells, models, grader, self._times)

    def search(self, cell: int, questions: list[Question]) -> _Searched:
        results: list[SearchResult] = []
        stopped: Exception | None = None
        with _notes() as notes:
            try:
                self._runner.search(self._cells[cell], questions, results.append)
            except _FORESEEN as error:
                # Of the plain class: the error itself may not come through a pickle.
                kind = next(each for each in _FORESEEN if isinstance(error, each))
                stopped = kind(str(error))
        return _Searched(results, self._times.take(), notes, stopped)

    def finish(self) -> list[str]:
        with _notes() as notes:
            self._runner.finish(self._times)
        return notes


@contextlib.contextmanager
def _notes() -> Iterator[list[str]]:
    """A list that has, after the block, the texts of the block's `RunWarning`s."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", RunWarning)
        yield notes
    notes += [str(each.message) for each in shown if issubclass(each.category, RunWarning)]


def _warn(notes: Sequence[str]) -> None:
    for note in notes:
        warnings.warn(note, RunWarning, stacklevel=3)


def _connect(ray: Any, address: str) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    fault, way_out = "no cluster answers there", _START_ONE
    if address == LOCAL:
        options["include_dashboard"] = False
        fault = "no cluster starts here"
        way_out = "this machine may be too busy: try again, or leave out --ray"
    elif _HOST_AND_PORT.fullmatch(address) is not None:
        way_out = (
            "if it asks for a token, set RAY_AUTH_MODE=token here, and RAY_AUTH_TOKEN_PATH if "
            "the token is not in ~/.ray/auth_token; it must be of this version of Ray"
        )
    try:
        with _quiet_core(), _same_sigterm():
            # Without an address Ray would join a cluster that happens to run here.
            ray.init(address=address, **options)
    except Exception as error:  # Ray raises plain ones, too, such as at the end of a start's time
        raise _no_cluster(address, fault, error, way_out) from error


def _no_cluster(address: str, fault: str, error: Exception, way_out: str) -> BadInputError:
    reason = " ".join(str(error).split())[:200]
    return BadInputError(f"--ray {address}: {fault} ({reason}): {way_out}")


@contextlib.contextmanager
def _quiet_core() -> Iterator[None]:
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def _same_sigterm() -> Iterator[None]:
    """Keep this process's handler of SIGTERM: Ray's prints a stack and aborts after 3 seconds."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _identity(cell: Cell) -> tuple[str, int, PrmSpec | None, int]:
    return cell.spec.label, cell.num_candidates, cell.prm, cell.seed
