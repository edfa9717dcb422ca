"""Where a run searches: the options that `evaluate` and `demo` have in common."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

from ..errors import BadInputError, quoted


@dataclass(frozen=True)
class RayOptions:
    """Where questions are searched: in this process, or by the workers of a Ray cluster.

    Attributes:
        ray: search on a Ray cluster: its address, or "local" for one on this machine.
        ray_workers: workers on the cluster; default: one for each GPU or core.
    """

    ray: str | None = None
    ray_workers: int | None = None

    def check(self) -> None:
        """Raise BadInputError for an option of a wrong type, or for workers without a cluster."""
        if self.ray is not None and not isinstance(self.ray, str):
            raise BadInputError(
                f"ray={quoted(self.ray)}: must be the address of a cluster as a text, or 'local'"
            )
        workers = self.ray_workers
        is_count = isinstance(workers, numbers.Integral) and not isinstance(workers, bool)
        if workers is not None and not (is_count and workers >= 1):
            raise BadInputError(f"ray_workers={quoted(workers)}: must be an integer of at least 1")
        if workers is not None and self.ray is None:
            raise BadInputError(
                f"--ray-workers {workers}: this process searches: give --ray local or an "
                "address, too"
            )


IN_THIS_PROCESS = RayOptions()
"""No cluster."""
