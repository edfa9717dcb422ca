"""How a command loads models: the options that several commands have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import BadInputError

if TYPE_CHECKING:
    from ..specs.recipe import PrmSpec

_BATCH_TOKENS = 1 << 15
"""Default on the backend hf; whole solutions are computed at once, unlike a search's steps."""


@dataclass(frozen=True)
class ModelOptions:
    """How models are loaded; the settings are those of a model in a recipe.

    Attributes:
        backend: hf (transformers), vllm (an engine started here), auto (vllm where it is installed
            and a GPU is there, else hf), or the address of a server of vLLM or SGLang that has the
            model.
        device: cpu, cuda, cuda:N or auto; default: cpu on the backend hf, auto on others.
        dtype: float32 or bfloat16, on vLLM also float16; a server has its own.
        batch_tokens: largest number of tokens that the backend hf computes together, in memory.
            Default: 65536, and 32768 for score and quality.
        kv_cache_gib: size of the cache of keys and values in GiB; for the backend hf. Default: a
            quarter of the memory that is free after loading.
        num_threads: threads on a CPU, without a server. Default: one for a model of less than 2**25
            parameters, otherwise all CPUs.
        max_model_len: largest number of tokens of a sequence; on an engine. Default: the model's;
            for solve what the question needs.
        gpu_memory_utilization: share of a GPU's memory for the engine of the backend vllm.
        served_name: which of a server's models is meant; default: its only one.
        api_key_env: name of the environment variable that holds a server's API key.
        price: prices of a million tokens that a chat endpoint reads, and of a million that it
            writes. This option and the next three are for chat endpoints.
        max_cost: largest cost of all requests, in the unit of the prices.
        max_requests_per_minute: largest number of requests in a minute.
        replies: file of the endpoint's replies; no request in it is sent again.
    """

    backend: str = "hf"
    device: str | None = None
    dtype: str = "float32"
    batch_tokens: int | None = None
    kv_cache_gib: float | None = None
    num_threads: int | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.45
    served_name: str | None = None
    api_key_env: str | None = None
    price: tuple[float, float] | None = None
    max_cost: float | None = None
    max_requests_per_minute: float | None = None
    replies: str | None = None

    def settings(self) -> dict[str, Any]:
        """The settings of a `ModelSpec` that are not None; BadInputError if one is out of range."""
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise BadInputError(f"--batch-tokens={self.batch_tokens}: must be at least 1")
        names = [entry.name for entry in dataclasses.fields(ModelOptions)]
        values = {name: getattr(self, name) for name in names}
        if self.price is not None:
            values["price"] = dict(zip(("input", "output"), self.price, strict=True))
        return {name: value for name, value in values.items() if value is not None}

    def given(self) -> list[str]:
        """The options that differ from their defaults, as on the command line."""
        return [
            "--" + entry.name.replace("_", "-")
            for entry in dataclasses.fields(self)
            if getattr(self, entry.name) != entry.default
        ]


@dataclass(frozen=True)
class PrmOptions(ModelOptions):
    """How PRMs are loaded, for `score` and `quality`.

    Attributes:
        prm_format: format in which a PRM reads a solution: its name, a .yaml file, or auto, which
            infers it from the model's configuration, head and tokenizer.
        adapter: folder of a LoRA adapter in PEFT's layout, merged into the weights of every PRM.
        head: .safetensors file of a linear head (weight, bias) on the last hidden state of a plain
            language model, whose sigmoid is the score; for the backend hf.
    """

    prm_format: str = "auto"
    adapter: str | None = None
    head: str | None = None

    def spec(self, prm: str) -> PrmSpec:
        """The PRM of this name or folder; BadInputError if an option is out of range."""
        from ..specs.recipe import PrmSpec

        settings = self.settings()
        if self.backend in ("hf", "auto"):
            settings.setdefault("batch_tokens", _BATCH_TOKENS)
        return PrmSpec(
            prm, format=self.prm_format, adapter=self.adapter, head=self.head, **settings
        )
