"""Sparsity of a model's parameters, as the paper's prior sees it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

import numpy as np

THRESHOLD = 1e-4
"""A parameter w counts as zero if |w| is below this."""

# Elements looked at together, so that a tensor of any size needs little memory.
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Sparsity:
    """Counts per stored tensor.

    Attributes:
        sizes: name -> number of parameters.
        zeros: name -> how many of them are below the threshold.
    """

    sizes: Mapping[str, int]
    zeros: Mapping[str, int]

    @property
    def total(self) -> float:
        """Share of all parameters below the threshold, in [0, 1]."""
        return self.share(self.sizes)

    def share(self, names: Collection[str]) -> float:
        """The same share over the named tensors.

        Raises:
            ValueError: an unknown name, or no parameter at all (0 / 0).
        """
        unknown = [name for name in names if name not in self.sizes]
        if unknown:
            raise ValueError(f"names: {unknown} are not among the measured tensors")
        size = sum(self.sizes[name] for name in names)
        if size == 0:
            raise ValueError(f"names: {sorted(names)} hold no parameter, a share needs one")
        return sum(self.zeros[name] for name in names) / size


def measure_sparsity(arrays: Iterable[tuple[str, np.ndarray]]) -> Sparsity:
    """Counts the parameters with |w| < 1e-4, tensor by tensor.

    The share over the whole model is the number of such parameters divided by the number of
    parameters, each stored tensor counted once: a tied head is not stored a second time and does
    not count again; a head that is stored but unused does count.

    Args:
        arrays: (name, values) pairs, floating point, any shape; consumed one at a time, so they
            can be streamed from a file.

    Raises:
        ValueError: a name that comes twice, a tensor that is not floating point, NaN or infinity.
    """
    sizes: dict[str, int] = {}
    zeros: dict[str, int] = {}
    for name, array in arrays:
        if name in sizes:
            raise ValueError(f"arrays: tensor {name!r} comes twice, each is to be counted once")
        if not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"arrays: tensor {name!r} has dtype {array.dtype}, expected floats")
        flat = array.reshape(-1)
        count = 0
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK].astype(np.float64)
            if not np.isfinite(block).all():
                raise ValueError(f"arrays: tensor {name!r} holds NaN or infinity")
            count += int(np.count_nonzero(np.abs(block) < THRESHOLD))
        sizes[name], zeros[name] = flat.size, count
    return Sparsity(sizes, zeros)
