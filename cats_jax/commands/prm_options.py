"""How a command loads PRMs: the options that `score` and `quality` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .model_options import ModelOptions

if TYPE_CHECKING:
    from ..specs.recipe import PrmSpec

_BATCH_TOKENS = 1 << 15
"""Default on the back end hf; whole solutions are computed at once, unlike a search's steps."""


@dataclass(frozen=True)
class PrmOptions(ModelOptions):
    """How PRMs are loaded.

    Attributes:
        family: format in which a PRM reads a solution: its name, a .yaml file, or auto, which
            infers it from the model's configuration, head and tokenizer.
        adapter: folder of a LoRA adapter in PEFT's layout, merged into the weights of every PRM.
        head: .safetensors file of a linear head (weight, bias) on the last hidden state of a plain
            language model, whose sigmoid is the score; for the back end hf.
    """

    family: str = "auto"
    adapter: str | None = None
    head: str | None = None

    def spec(self, prm: str) -> PrmSpec:
        """The PRM of this name or folder; BadInputError if an option is out of range."""
        from ..specs.recipe import PrmSpec

        settings = self.settings()
        if self.backend in ("hf", "auto"):
            settings.setdefault("batch_tokens", _BATCH_TOKENS)
        return PrmSpec(prm, format=self.family, adapter=self.adapter, head=self.head, **settings)
