"""Double precision for checks, while the rest of the process stays in single precision."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def double(
    function: Callable[..., Any] | None = None, *, static: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Jit a function in float64. An integer `seed` becomes a key; results are numpy arrays.

    Args:
        function: of arrays; its first argument may be a key.
        static: names of arguments that are not traced.
    """
    if function is None:
        return functools.partial(double, static=static)
    jitted = jax.jit(function, static_argnames=static)

    @functools.wraps(function)
    def call(*args: Any, seed: int | None = None, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            # "rbg" is several times faster on a CPU than the default.
            keys = () if seed is None else (jax.random.key(seed, impl="rbg"),)
            return jax.tree.map(np.asarray, jitted(*keys, *args, **kwargs))

    return call
