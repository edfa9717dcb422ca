"""Former names of keys in recipes, manifests and checkpoints and of options of commands.

Former names are still read. One in a recipe or a command causes a `FormerNameWarning`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "factor": "expansion",
        "width": "beam_width",
        "ask_below": "prm_threshold",
        "least_weight": "min_prm_weight",
        "prm_rate": "prm_token_cost",
    }
)
"""Options of the strategies of this package."""

SETTINGS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("policy", "recipe"): "format",
        ("cats", "factor"): "expansion",
        ("cats", "ask_below"): "prm_threshold",
        ("cats", "least_weight"): "min_prm_weight",
        ("cats", "charge"): "cost_unit",
        ("train_config", "prm_rates"): "prm_token_costs",
    }
)
"""Keys of mappings, by the key of the mapping and the former name."""

FEATURES: Mapping[str, str] = MappingProxyType({"prm_rate": "prm_token_cost"})
"""Features of a controller."""

COMMAND_OPTIONS: Mapping[tuple[str, str], str] = MappingProxyType(
    {(command, "--family"): "--prm-format" for command in ("score", "quality", "sparsity")}
)
"""Options, by the command and the former name."""

CHAT_JUDGE: Mapping[str, str] = MappingProxyType(
    {"path": "cats_jax.models.chat_judge:chat_judge", "format": "auto"}
)
"""Entries of the PRM chat-judge; the format that it always had is now called by its own name."""

CHAT_JUDGE_FORMAT = "judge-critique"


class FormerNameWarning(FutureWarning):
    """A recipe or a command has a former name; a later version will not read it."""


def option_names(strategy: str) -> Mapping[str, str]:
    """Former names of a strategy's options; of a user's `module:function` only that of K."""
    return {"width": OPTIONS["width"]} if ":" in strategy else OPTIONS
