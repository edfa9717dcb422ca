"""What the core's programs are compiled with."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from cats_jax.compiled_programs import keep_compiled_programs
from cats_jax.live import core_program as module
from cats_jax.live.core_program import compiler_options, core_program

QUICK = {
    name: value
    for name, value in {
        "xla_cpu_use_fusion_emitters": False,
        "xla_backend_optimization_level": 1,
    }.items()
    if name == "xla_backend_optimization_level" or jax.__version_info__ < (0, 11)
}
"""Options for quick compilation that this release of JAX has."""


def test_a_cpu_gets_options_for_quick_compilation_and_other_platforms_none(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert compiler_options("cpu") == QUICK
    assert compiler_options("gpu") == {} == compiler_options("tpu")


@pytest.mark.parametrize("name", QUICK)
def test_options_that_the_user_sets_are_left_alone(monkeypatch, name):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=false --{name}=1")
    assert compiler_options("cpu") == {key: QUICK[key] for key in QUICK if key != name}


def test_a_program_is_jitted_once_with_the_options_of_its_platform(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert compiler_options("cpu") == QUICK  # what JAX knows is found before calls are counted
    made = []
    jit = jax.jit
    monkeypatch.setattr(
        jax, "jit", lambda function, **options: made.append(options) or jit(function, **options)
    )

    @core_program("power")
    def raised(x, power):
        return x**power

    assert made == []
    assert raised(jnp.float32(3), power=2) == 9
    assert raised(jnp.float32(2), power=3) == 8
    assert made == [{"static_argnames": ("power",), "compiler_options": QUICK}]
    assert raised.jitted._cache_size() == 2


def test_an_option_that_jax_does_not_have_is_left_out(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    known = {"xla_backend_optimization_level": 1}
    monkeypatch.setattr(module, "_QUICK", {"xla_cpu_invented": True, **known})
    assert compiler_options("cpu") == known

    @core_program()
    def doubled(x):
        return 2 * x

    assert doubled(jnp.float32(3)) == 6
    # JAX is asked once per process for each option.
    monkeypatch.setattr(jax, "jit", lambda *_, **__: pytest.fail("asked again"))
    assert compiler_options("cpu") == known


def test_a_jax_without_its_cache_of_programs_compiles_anew(monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "jax.experimental.compilation_cache", None)
    before = jax.config.values["jax_compilation_cache_dir"]
    keep_compiled_programs()
    assert jax.config.values["jax_compilation_cache_dir"] == before


def test_importing_the_programs_chooses_no_platform():
    code = (
        "import jax, cats_jax.live.ticks; from jax._src import xla_bridge; "
        "assert not xla_bridge.backends_are_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
