"""Accuracy in the simulator beside that in the embedded world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cats_jax.reporting.appearance import appearances
from cats_jax.reporting.figure_setup import frame, make_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = Mapping[str, Any]
"""A cell of simulator_vs_world.json: PRM, strategy, N, and both accuracies with their ends."""


def draw_simulator(cells: Sequence[Cell]) -> Figure:
    """A panel for each PRM: the world with bars, the simulator with open marks."""
    prms = list(dict.fromkeys(cell["prm"] for cell in cells))
    sizes = sorted({cell["num_candidates"] for cell in cells})
    looks = appearances(cell["strategy"] for cell in cells)
    figure, panels = make_panels(len(prms))
    for axes, prm in zip(panels, prms, strict=True):
        for place, (strategy, look) in enumerate(looks.items()):
            mine = [cell for cell in cells if (cell["prm"], cell["strategy"]) == (prm, strategy)]
            beside = 2 ** (0.06 * (2 * place - 1))
            x = [beside * cell["num_candidates"] for cell in mine]
            world = [cell["world"] for cell in mine]
            axes.errorbar(
                x,
                world,
                yerr=[
                    [cell["world"] - cell["world_low"] for cell in mine],
                    [cell["world_high"] - cell["world"] for cell in mine],
                ],
                color=look.color,
                marker=look.marker,
                linestyle="none",
                capsize=2.0,
                label=f"{look.title}, world",
            )
            axes.plot(
                x,
                [cell["simulator"] for cell in mine],
                color=look.color,
                marker=look.marker,
                markerfacecolor="white",
                linestyle=look.line,
                label=f"{look.title}, simulator",
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set_title(f"PRM {prm}")
    panels[0].set_ylim(bottom=0.0)
    frame(
        figure,
        panels,
        "The simulator against the embedded world",
        "filled, with 95 % intervals: the embedded world; open: the simulator",
        "N: candidates per reasoning step at most",
        "accuracy (share of questions)",
    )
    return figure
