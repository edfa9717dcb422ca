"""How a command loads PRMs: the options that `score` and `quality` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BadInputError

if TYPE_CHECKING:
    from ..specs.recipe import PrmSpec

_BATCH_TOKENS = 1 << 15
"""Default on the back end hf; whole solutions come at once, unlike the steps of a search."""


@dataclass(frozen=True)
class PrmOptions:
    """How PRMs are loaded.

    Attributes:
        family: format in which a PRM reads a solution: its name, a .yaml file, or auto, which
            infers it from the model's configuration, head and tokenizer.
        backend: hf (transformers), vllm (an engine started here), auto (vllm where it is installed
            and a GPU is there, else hf), or the address of a server of vLLM that has this PRM.
        device: cpu, cuda, cuda:N or auto; default: cpu on the back end hf, auto on others.
        dtype: float32 or bfloat16; a server has its own.
        batch_tokens: most tokens of the rows that are scored together; the back end hf holds them
            in memory. Default: 32768.
        kv_cache_gib: size of the cache of keys and values in GiB; for the back end hf. Default: a
            quarter of the memory that is free after loading.
        num_threads: threads on a CPU, without a server. Default: one for a model of less than 2**25
            parameters, otherwise all CPUs.
        max_model_len: largest number of tokens of a solution; on an engine. Default: the model's.
        gpu_memory_utilization: share of a GPU's memory for the engine of the back end vllm.
    """

    family: str = "auto"
    backend: str = "hf"
    device: str | None = None
    dtype: str = "float32"
    batch_tokens: int | None = None
    kv_cache_gib: float | None = None
    num_threads: int | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.45

    def spec(self, prm: str) -> PrmSpec:
        """The PRM of this name or folder, loaded with these options.

        Raises:
            BadInputError: an option is out of its range.
        """
        from ..specs.recipe import PrmSpec

        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise BadInputError(f"--batch-tokens={self.batch_tokens}: must be at least 1")
        settings = {name: value for name, value in vars(self).items() if value is not None}
        if self.backend in ("hf", "auto"):
            settings.setdefault("batch_tokens", _BATCH_TOKENS)
        return PrmSpec(prm, format=settings.pop("family"), **settings)
