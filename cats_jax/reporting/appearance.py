"""How a strategy looks in every figure and on every page: its name in words, colour and marker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Appearance:
    """How a strategy is drawn: its title in words, and its colour as "#rrggbb".

    Matplotlib's marker and line style tell series apart in a print without colours.
    """

    title: str
    color: str
    marker: str
    line: str


_KNOWN = {
    "greedy": Appearance("greedy decoding", "#000000", "*", ":"),
    "majority": Appearance("majority voting", "#56779b", "s", "--"),
    "best_of_n": Appearance("best-of-N", "#b3541e", "^", "-."),
    "beam": Appearance("beam search", "#2f7d4f", "D", "--"),
    "dvts": Appearance("DVTS", "#8a7a1f", "P", "-."),
    "step_level_beam": Appearance("step-level beam search", "#4c8f76", "d", "-."),
    "vg_search": Appearance("VG-Search", "#6aa336", "8", ":"),
    "lookahead": Appearance("look-ahead search", "#1d5e3a", "4", "--"),
    "particle_filtering": Appearance("particle filtering", "#0d7f8c", "X", ":"),
    "particle_gibbs": Appearance("particle Gibbs", "#14586b", "d", "--"),
    "proportional_resampling": Appearance("proportional resampling", "#5b8f95", "x", ":"),
    "rebase": Appearance("REBASE", "#9a6d1d", "H", "-."),
    "dora": Appearance("DORA", "#6b4a12", "<", ":"),
    "ets": Appearance("ETS", "#c07f2c", ">", "--"),
    "mcts": Appearance("MCTS", "#7a4fa3", "v", "-."),
    "global_mcts": Appearance("MCTS with a global choice", "#9a5bb5", "v", ":"),
    "litesearch": Appearance("LiteSearch", "#5f3f8f", "2", "--"),
    "adaptive_consistency": Appearance("adaptive consistency", "#3f6fb5", "p", "--"),
    "early_stopping_consistency": Appearance("early-stopping consistency", "#274b86", "8", ":"),
    "speculative_rejection": Appearance("speculative rejection", "#8f3f63", "1", "--"),
    "sequential_halving": Appearance("sequential halving", "#6e2f2f", "3", "-."),
    "self_certainty": Appearance("self-certainty", "#3d8ea8", "P", "-."),
    "deepconf": Appearance("DeepConf", "#2f5f6f", "v", ":"),
    "deepconf_online": Appearance("DeepConf online", "#1f7fb5", "^", "--"),
    "sequential_best_of_n": Appearance("sequential best-of-N", "#d08a2e", "h", "-."),
    "learned_stopping": Appearance("learned stopping", "#c9772b", "*", "--"),
    "cats": Appearance("CATS", "#c1272d", "o", "-"),
    "cats_constant": Appearance("CATS, constant action", "#d98a8d", "<", "--"),
    "cats_random": Appearance("CATS, random actions", "#8c5a5c", ">", ":"),
}

_OTHERS = (
    ("#1f5fa8", "p", "--"),
    ("#6b6b6b", "h", "-."),
    ("#a8325e", "d", ":"),
    ("#4d8c4a", "H", "--"),
    ("#a0752c", "8", "-."),
    ("#4f4fa3", "1", ":"),
    ("#2b8c83", "2", "--"),
    ("#9b4fa3", "3", "-."),
)
"""Colour, marker and line for labels that are not the name of a strategy."""


def appearances(labels: Iterable[str]) -> dict[str, Appearance]:
    """How each strategy of a figure or page is drawn, by label, in the order of `labels`.

    A strategy of this package looks the same everywhere. Another label, which a recipe chose, is
    its own title and takes the next of eight further styles, cyclically.
    """
    found: dict[str, Appearance] = {}
    others = 0
    for label in dict.fromkeys(labels):
        if label in _KNOWN:
            found[label] = _KNOWN[label]
        else:
            color, marker, line = _OTHERS[others % len(_OTHERS)]
            found[label] = Appearance(label, color, marker, line)
            others += 1
    return found
