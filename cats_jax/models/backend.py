"""Which backend and device a model takes on this machine, and whether they are there.

vLLM is not imported, and torch only where a GPU, or bfloat16 on a CPU, matters.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import warnings
from collections.abc import Sequence
from typing import TypeVar

from ..errors import BadInputError, RunWarning
from ..specs.functions import AT_ENDPOINTS, is_function_name
from ..specs.models import ModelSpec, of_backend

Spec = TypeVar("Spec", bound=ModelSpec)


def choose_backend(spec: Spec) -> Spec:
    """A spec with a backend and a device in place of "auto".

    The backend becomes "vllm" if vLLM is installed, a GPU is there, the device is not the CPU, and
    the model has no `head`; else "hf". The settings of the other backend get their defaults. The
    device becomes "cuda" if a GPU is there, else "cpu". A second call on the result changes
    nothing.
    """
    if _is_served(spec):
        return spec
    backend, device = spec.backend, spec.device or "auto"
    if device == "auto":
        device = "cuda" if count_gpus() else "cpu"
    if backend != "auto":
        return dataclasses.replace(spec, device=device)
    engine = device != "cpu" and count_gpus() and has_vllm() and not getattr(spec, "head", None)
    backend = "vllm" if engine else "hf"
    settings = {} if is_function_name(spec.path) else of_backend(spec, backend)
    return dataclasses.replace(spec, **{**settings, "backend": backend, "device": device})


def check_there(specs: Sequence[ModelSpec]) -> None:
    """Check that the devices and the engine of models are on this machine, before one is loaded.

    A `RunWarning` names each model with 16-bit numbers on a CPU that computes slowly with them.

    Raises:
        BadInputError: vLLM is not installed, a GPU is not there, or the variable of a server's API
            key is not set.
    """
    for spec in map(choose_backend, specs):
        if is_function_name(spec.path) and spec.path not in AT_ENDPOINTS:
            continue
        if _is_served(spec):
            if spec.api_key_env is not None:
                read_api_key(spec.api_key_env)
            continue
        if spec.backend == "vllm" and not has_vllm():
            raise BadInputError(
                f"{spec.where}: backend vllm: vLLM is not installed: install the extra 'vllm', or "
                "on a machine without a GPU `make vllm-env`"
            )
        gpus = gpu_numbers(spec)
        if gpus and gpus[-1] >= (count := count_gpus()):
            tensors = f" with tensor_parallel_size={len(gpus)}" if len(gpus) > 1 else ""
            raise BadInputError(
                f"{spec.where}: device {spec.device!r}{tensors} is not there: torch sees {count} "
                "GPUs; take a lower number, or 'cpu'"
            )
        if spec.dtype != "float32" and spec.device == "cpu" and not cpu_computes_bfloat16():
            warnings.warn(
                f"{spec.where}: this CPU has no AVX-512, without which {spec.dtype} takes several "
                "times as long as float32: set dtype: float32",
                RunWarning,
                stacklevel=2,
            )


def read_api_key(variable: str) -> str:
    """The API key in an environment variable, without white space at its ends.

    Raises:
        BadInputError: the variable is not set, or can't be sent. The message has no key.
    """
    key = os.environ.get(variable, "").strip()
    if not key:
        raise BadInputError(
            f"api_key_env: the environment variable {variable} is not set or empty: set it to the "
            "server's API key, or leave api_key_env out"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadInputError(
            f"api_key_env: the environment variable {variable} must hold one key of visible ASCII "
            "characters"
        )
    return key


def gpu_numbers(spec: ModelSpec) -> range:
    """The GPUs that a model takes, as torch numbers them; empty on the CPU and behind a server."""
    device = spec.device or ""
    if not device.startswith("cuda"):
        return range(0)
    first = int(device.partition(":")[2] or 0)
    return range(first, first + (spec.tensor_parallel_size or 1))


def count_gpus() -> int:
    """Number of GPUs that torch sees; no context is made on one."""
    import torch

    # Not `is_available`, after which forked processes can't use a GPU.
    return torch.cuda.device_count()


def cpu_computes_bfloat16() -> bool:
    """Whether this CPU can compute in bfloat16 about as fast as in float32.

    torch's kernels, and vLLM's, need AVX-512 for that on x86. CPUs of other kinds are taken to be
    able, because torch does not tell.
    """
    import torch

    return torch.backends.cpu.get_cpu_capability() not in ("NO AVX", "AVX2")


def has_vllm() -> bool:
    """Whether vLLM is installed; it is not imported."""
    return importlib.util.find_spec("vllm") is not None


def _is_served(spec: ModelSpec) -> bool:
    return spec.backend not in ("auto", "hf", "vllm")
