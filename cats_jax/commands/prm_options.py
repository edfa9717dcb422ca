"""How a command loads PRMs: the options that `score` and `quality` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BadInputError

if TYPE_CHECKING:
    from ..specs.recipe import PrmSpec


@dataclass(frozen=True)
class PrmOptions:
    """How PRMs are loaded.

    Attributes:
        family: how a PRM reads a solution: the name of a format, a .yaml file, or auto, which goes
            by the model's configuration, head and tokenizer.
        backend: hf (transformers), vllm (an engine started here), or the address of a server of
            vLLM that has this PRM.
        device: cpu, cuda or cuda:N; of the back end hf.
        dtype: float32 or bfloat16; a server has its own.
        batch_tokens: rows are scored together up to so many tokens, which the back end hf holds.
        num_threads: of torch; of the back end hf.
        gpu_memory_utilization: share of a GPU's memory for the engine of the back end vllm.
    """

    family: str = "auto"
    backend: str = "hf"
    device: str = "cpu"
    dtype: str = "float32"
    batch_tokens: int = 1 << 15
    num_threads: int = 1
    gpu_memory_utilization: float = 0.45

    def spec(self, prm: str) -> PrmSpec:
        """The PRM of this name or folder, loaded with these options.

        Raises:
            BadInputError: an option is out of its range.
        """
        from ..specs.recipe import PrmSpec

        if self.batch_tokens < 1:
            raise BadInputError(f"--batch-tokens={self.batch_tokens}: must be at least 1")
        settings = dict(vars(self))
        return PrmSpec(prm, format=settings.pop("family"), **settings)
