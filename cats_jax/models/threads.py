"""How many threads of the CPU a model without `num_threads` gets."""

from __future__ import annotations

import os
import pathlib

from .weights import num_values

_SMALL = 1 << 25
"""Parameters below which more than one thread does not pay.

The embedded models have less than a million. Bitwise equality is known for one thread only.
"""


def default_threads(folder: str | pathlib.Path, device: str) -> int:
    """Threads of a model in a folder, by its number of parameters in the safetensors headers.

    Returns:
        On the device "cpu", the number of CPUs that this process may use; 1 for a model of fewer
        than 2**25 parameters, and on a GPU.

    Raises:
        BadInputError: a safetensors file is missing or broken.
    """
    if device != "cpu":
        return 1
    return 1 if num_values(folder) < _SMALL else available_cpus()


def available_cpus() -> int:
    """Number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
