"""Engines on a Ray cluster: actors that hold the models, questions streamed to them in batches.

Ray places the actors, restarts one that dies on whatever node has room, and gives it the questions
it was at again (`max_restarts`, `max_task_retries`). A question's result depends on its seed alone,
so the rows are those of a single machine. Gold answers never leave the driver.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import re
import socket
from collections.abc import Callable, Sequence
from typing import Any

from .cells import Cell, grid
from .config import PrmSpec, Recipe
from .engines import LocalEngines
from .errors import BadInputError
from .models import ModelSource
from .protocols import AnswerJudge, Question
from .results import SearchResult
from .wall_times import WallTimes

LOCAL = "local"
"""Address of a new cluster on this machine."""

_HOST_AND_PORT = re.compile(r"(?:ray://)?\[?([^\[\]/]+)\]?:(\d{1,5})")

_ENVIRONMENT = ("JAX_PLATFORMS", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE")


class RayEngines:
    """Searches questions in the actors of a cluster.

    Use it as a context manager: leaving it ends the actors, and the cluster if it was made here.
    """

    def __init__(
        self,
        recipe: Recipe,
        models: ModelSource,
        judge: AnswerJudge,
        *,
        address: str,
        workers: int | None = None,
    ) -> None:
        """Connect and place the actors; they load no model before their first question.

        Args:
            recipe: what is run; its `in_flight` holds for each actor.
            models: where models come from; its folders must exist on every node.
            judge: a copy goes to every actor.
            address: of a running cluster, or "local" for a new one on this machine.
            workers: actors; default: one for each GPU if a model is on one, else for each core.

        Raises:
            BadInputError: Ray is not installed, does not answer, or has no room.
        """
        if importlib.util.find_spec("ray") is None:
            raise BadInputError("--ray: Ray is not installed: pip install 'cats-jax[ray]'")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray
        from ray.util import ActorPool

        self._ray = ray
        self._in_flight = recipe.in_flight
        self._started = not ray.is_initialized()
        if self._started:
            _connect(ray, address)
        devices = (recipe.policy.device, *(spec.device for spec in recipe.prms))
        resource = "GPU" if any(device.startswith("cuda") for device in devices) else "CPU"
        room = int(ray.cluster_resources().get(resource, 0))
        self.num_workers = room if workers is None else workers
        if not 1 <= self.num_workers <= room:
            self.close()
            raise BadInputError(
                f"--ray: {self.num_workers} workers, but the cluster has {room} {resource}s: each "
                "worker needs one"
            )
        actor = ray.remote(
            num_cpus=1,
            num_gpus=1 if resource == "GPU" else 0,
            max_restarts=-1,
            max_task_retries=-1,
            runtime_env={
                "env_vars": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            },
        )(_Worker)
        self._actors = [actor.remote(recipe, models, judge) for _ in range(self.num_workers)]
        self._pool: Any = ActorPool(self._actors)
        self._cells = {_identity(cell): index for index, cell in enumerate(grid(recipe))}

    def __enter__(self) -> RayEngines:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors; disconnect if this object connected."""
        for actor in getattr(self, "_actors", ()):
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()

    def search(
        self, cell: Cell, questions: Sequence[Question], on_result: Callable[[SearchResult], None]
    ) -> None:
        """Search all questions; an actor that is free gets the next batch."""
        index = self._cells[_identity(cell)]
        size = min(self._in_flight, math.ceil(len(questions) / self.num_workers))
        batches = [questions[start : start + size] for start in range(0, len(questions), size)]

        def send(actor: Any, batch: Sequence[Question]) -> Any:
            return actor.search.remote(index, list(batch))

        for results in self._pool.map_unordered(send, batches):
            for result in results:
                on_result(result)


class _Worker:
    """An actor: engines of its own, and the grid made anew, so that nothing compiles twice."""

    def __init__(self, recipe: Recipe, models: ModelSource, judge: AnswerJudge) -> None:
        self._cells = grid(recipe)
        self._engines = LocalEngines(recipe, models, judge, WallTimes())

    def search(self, cell: int, questions: list[Question]) -> list[SearchResult]:
        results: list[SearchResult] = []
        self._engines.search(self._cells[cell], questions, results.append)
        return results


def _connect(ray: Any, address: str) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        # Without an address Ray would join a cluster that happens to run here.
        options |= {"address": LOCAL, "include_dashboard": False}
    else:
        options |= {"address": address}
    try:
        # Ray itself goes on trying for minutes.
        if (place := _HOST_AND_PORT.fullmatch(address)) is not None:
            socket.create_connection((place[1], int(place[2])), timeout=10).close()
        ray.init(**options)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInputError(
            f"--ray {address}: no cluster answers there ({reason}): start one with `ray start "
            "--head`, or use --ray local"
        ) from error


def _identity(cell: Cell) -> tuple[str, int, PrmSpec | None, int]:
    return cell.spec.label, cell.num_candidates, cell.prm, cell.seed
