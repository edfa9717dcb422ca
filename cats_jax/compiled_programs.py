"""Where compiled programs of the search core are kept between processes."""

from __future__ import annotations

import contextlib
import os

_DIR = "JAX_COMPILATION_CACHE_DIR"
_MIN_SECONDS = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def cache_environment() -> dict[str, str]:
    """Environment variables that make JAX keep compiled programs in the user's cache folder.

    Cached programs are executed, so only the user's own folder is used: without XDG_CACHE_HOME and
    HOME, the result is empty. Programs that compile in under .05 seconds are not kept.
    """
    home = os.environ.get("HOME")
    base = os.environ.get("XDG_CACHE_HOME") or (home and os.path.join(home, ".cache"))
    if not base:
        return {}
    return {_DIR: os.path.join(base, "cats-jax", "xla"), _MIN_SECONDS: "0.05"}


def keep_compiled_programs() -> None:
    """Make JAX keep compiled programs between processes, as the command line does.

    `Searcher.run` calls this before it compiles anything. JAX's settings stay as they are if they
    name a folder (`jax_compilation_cache_dir`), if `jax_enable_compilation_cache` is False, or if
    the environment variable JAX_COMPILATION_CACHE_DIR is set; an empty value keeps nothing. A
    release of JAX without these settings compiles anew in every process.
    """
    # The names below are internal to JAX and may change.
    with contextlib.suppress(ImportError, AttributeError, KeyError):
        _keep_compiled_programs()


def _keep_compiled_programs() -> None:
    import jax  # the command line reads this module before it sets JAX's environment variables
    from jax.experimental.compilation_cache import compilation_cache

    config, values = jax.config, jax.config.values
    decided = values["jax_compilation_cache_dir"] or not values["jax_enable_compilation_cache"]
    settings = cache_environment()
    if decided or _DIR in os.environ or not settings:
        return
    config.update("jax_compilation_cache_dir", settings[_DIR])
    if _MIN_SECONDS not in os.environ:
        config.update("jax_persistent_cache_min_compile_time_secs", float(settings[_MIN_SECONDS]))
    # JAX decides at its first compilation, which may be over, whether it uses a cache.
    compilation_cache.reset_cache()
