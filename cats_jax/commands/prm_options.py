"""How a command loads PRMs: the options that `score` and `quality` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .model_options import ModelOptions

if TYPE_CHECKING:
    from ..specs.recipe import PrmSpec

_BATCH_TOKENS = 1 << 15
"""Default on the back end hf; whole solutions come at once, unlike the steps of a search."""


@dataclass(frozen=True)
class PrmOptions(ModelOptions):
    """How PRMs are loaded.

    Attributes:
        family: format in which a PRM reads a solution: its name, a .yaml file, or auto, which
            infers it from the model's configuration, head and tokenizer.
    """

    family: str = "auto"

    def spec(self, prm: str) -> PrmSpec:
        """The PRM of this name or folder, loaded with these options.

        Raises:
            BadInputError: an option is out of its range.
        """
        from ..specs.recipe import PrmSpec

        settings = self.settings()
        if self.backend in ("hf", "auto"):
            settings.setdefault("batch_tokens", _BATCH_TOKENS)
        return PrmSpec(prm, format=self.family, **settings)
