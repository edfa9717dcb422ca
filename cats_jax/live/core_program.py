"""`jax.jit` for the functions of the core, with less work for XLA's compiler on a CPU."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax

_R = TypeVar("_R")

_QUICK: dict[str, bool | int] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 1,
}
"""Options of XLA for a CPU: programs compile in two thirds of the time and run about as fast.

`docs/results/speed.md` has the figures. Programs of level 0 run 2 to 10 times slower.
"""


class CoreProgram(Generic[_R]):
    """A jitted function; on a CPU it is compiled with `_QUICK`.

    Options in the environment variable XLA_FLAGS take precedence. `jax.jit` is called at the first
    use, because importing a module must not start JAX's platform.
    """

    def __init__(self, function: Callable[..., _R], static_argnames: tuple[str, ...]) -> None:
        self._function = function
        self._static_argnames = static_argnames
        functools.update_wrapper(self, function)

    @functools.cached_property
    def jitted(self) -> Any:
        """The function that `jax.jit` returns, with its methods, such as `lower`."""
        return jax.jit(
            self._function,
            static_argnames=self._static_argnames,
            compiler_options=compiler_options(jax.default_backend()),
        )

    def __call__(self, *args: Any, **kwargs: Any) -> _R:
        """Call the compiled function."""
        return self.jitted(*args, **kwargs)


def core_program(*static_argnames: str) -> Callable[[Callable[..., _R]], CoreProgram[_R]]:
    """Decorator that makes a `CoreProgram` with these static arguments."""
    return lambda function: CoreProgram(function, static_argnames)


def compiler_options(platform: str) -> dict[str, bool | int]:
    """Options of XLA for the core on this platform, for `jax.jit`.

    Options that XLA_FLAGS names are left out, and so are options that this release of JAX does not
    know (0.11 dropped `xla_cpu_use_fusion_emitters`): they only affect speed.
    """
    if platform != "cpu":
        return {}
    flags = os.environ.get("XLA_FLAGS", "")
    wanted = {name: value for name, value in _QUICK.items() if name not in flags}
    return {name: value for name, value in wanted.items() if _is_known(name, value)}


@functools.cache
def _is_known(name: str, value: bool | int) -> bool:
    """Whether JAX knows an option: tries to compile a constant with it, once per process.

    Any error means that JAX does not know the option. A fault of JAX itself appears when the core's
    own programs are compiled.
    """
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except Exception:
        return False
    return True
