"""The figure of a selective certificate: accuracy against the share of questions answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import theory

from .appearance import appearances
from .drawing import frame, make_panels
from .selective_answers import THRESHOLDS, SelectiveCertificate

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_selective(certificate: SelectiveCertificate) -> Figure:
    """Each configuration's accuracy of the answered questions, threshold by threshold.

    A bar extends from the observed accuracy down to `selective_bounds`. The ring marks the
    certified threshold, and the line is the target.
    """
    figure, (axes,) = make_panels(1)
    found = certificate.configurations
    names = [f"{each.group.name} {each.group.prm}" for each in found]
    looks = appearances(names)
    bounds = selective_bounds(certificate)
    for each, name, low in zip(found, names, bounds, strict=True):
        some = each.found.answered > 0
        share = each.found.answered[some] / each.total
        accuracy = 1 - each.found.errors[some] / each.found.answered[some]
        look = looks[name]
        axes.errorbar(
            share,
            accuracy,
            yerr=[accuracy - low[some], np.zeros_like(accuracy)],
            color=look.color,
            marker=".",
            linewidth=1.0,
            elinewidth=0.6,
            label=name,
        )
        if each.place is not None:
            at = each.place
            axes.plot(
                each.answered / each.total,
                1 - each.found.errors[at] / each.answered,
                marker="o",
                markersize=11.0,
                fillstyle="none",
                color=look.color,
                linestyle="none",
            )
    target = certificate.target
    axes.axhline(target, color="#c1272d", linewidth=1.0, label=f"the target: {target:g}")
    title = f"accuracy above {target:g} of the answered questions"
    note = (
        f"ring: certified; bars: lower bounds of all points together; delta {certificate.delta:g}"
    )
    frame(figure, [axes], title, note, "share of questions answered", "accuracy of these")
    return figure


def selective_bounds(certificate: SelectiveCertificate) -> list[np.ndarray]:
    """Lower bounds on the accuracy of the answered questions, f64[31] of each configuration.

    They are exact binomial bounds, given the number of answered questions. The level of each is
    delta divided by the number of thresholds and by the number of configurations. All hold together
    with a probability of at least 1 - delta. This delta is spent in addition to that of the
    certificate. The bounds help to look at other targets. A bound is 0 where no question is
    answered.
    """
    found = certificate.configurations
    level = certificate.delta / (len(found) * THRESHOLDS.size)
    bounds = []
    for each in found:
        answered = each.found.answered
        right = answered - each.found.errors
        low = theory.binomial_lower(right, np.maximum(answered, 1), delta=level)
        bounds.append(np.where(answered > 0, low, 0.0))
    return bounds
