"""Where a run searches: the options that `evaluate` and `demo` have in common."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BadInputError


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
        """Raise BadInputError for a number of workers without a cluster."""
        if self.ray_workers is not None and self.ray is None:
            raise BadInputError(
                f"--ray-workers {self.ray_workers}: this process searches: give --ray local or an "
                "address, too"
            )


IN_THIS_PROCESS = RayOptions()
"""No cluster."""
