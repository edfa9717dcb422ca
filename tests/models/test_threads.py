"""Threads of a model on the CPU: one for small models, all CPUs for large ones, or as asked."""

import os

import pytest
import torch

from cats_jax import world
from cats_jax.errors import BadInputError
from cats_jax.models import resolve, threads
from cats_jax.models.huggingface import HuggingFaceGenerator
from cats_jax.models.serving import vllm_engine
from cats_jax.specs.models import PolicySpec, PrmSpec
from cats_jax.storage.manifest import with_current_names

SERVER = "http://localhost:8000"


@pytest.fixture
def large(monkeypatch):
    """Five CPUs, and the embedded strong policy counts as large, the weak one as small."""
    monkeypatch.setattr(threads, "_SMALL", 400_000)
    monkeypatch.setattr(threads, "available_cpus", lambda: 5)


def test_the_models_size_decides(large, tmp_path):
    weak, strong = (world.policy_path(name) for name in ("weak", "strong"))
    assert threads.default_threads(weak, "cpu") == 1
    assert threads.default_threads(strong, "cpu") == 5
    assert threads.default_threads(strong, "cuda:1") == 1
    with pytest.raises(BadInputError, match="model"):
        threads.default_threads(tmp_path, "cpu")


def test_embedded_models_have_one_thread_on_any_machine(monkeypatch):
    monkeypatch.setattr(threads, "available_cpus", lambda: 64)
    for name in world.POLICY_NAMES:
        assert threads.default_threads(world.policy_path(name), "cpu") == 1
    for name in world.PRM_NAMES:
        assert threads.default_threads(world.prm_path(name), "cpu") == 1


def test_a_run_settles_on_a_number_that_its_manifest_records(large):
    policy, prms = resolve.resolve_models(
        PolicySpec("strong"),
        (
            PrmSpec("exact", num_threads=3),
            PrmSpec("module:function"),
            PrmSpec("exact", backend=SERVER),
            PrmSpec("not-there", device="cpu"),
        ),
        [],
        4,
    )
    assert policy.num_threads == 5
    assert [prm.num_threads for prm in prms] == [3, 1, None, None]
    # A server's model had a number in earlier manifests, which meant nothing.
    earlier = {"prms": [{"backend": SERVER, "num_threads": 1}]}
    assert with_current_names(earlier)["prms"][0]["num_threads"] is None


def test_each_model_computes_with_its_own_number(large):
    """The last model that was loaded does not decide for the others of the process."""
    before = torch.get_num_threads()
    try:
        models = [
            HuggingFaceGenerator(world.policy_path("strong"), num_threads=2)._model,
            HuggingFaceGenerator(world.policy_path("weak"))._model,
        ]
        for model, expected in zip(models * 2, (2, 1) * 2, strict=True):
            with model.timed():
                assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def test_an_engine_of_vllm_starts_with_its_number(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    with vllm_engine._environment(vllm_engine._thread_variables(6)):
        assert os.environ["OMP_NUM_THREADS"] == "6"
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in os.environ
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-3")  # cores that the user chose
    assert vllm_engine._thread_variables(6) == {}
