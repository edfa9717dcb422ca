"""The figure of a certificate for searches that stop early: loss against paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .drawing import frame, make_panels
from .stopping_thresholds import StoppingCertificate

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_stopping(certificate: StoppingCertificate) -> Figure:
    """The observed loss of each threshold with its bound, against the paths of a question."""
    figure, (axes,) = make_panels(1)
    certified, lost = certificate.found.certified, certificate.lost
    for mine, color in ((certified, "#2f7d4f"), (~certified, "#999999")):
        axes.errorbar(
            certificate.paths[mine],
            lost[mine],
            yerr=[np.zeros(mine.sum()), (certificate.bounds - lost)[mine]],
            color=color,
            marker="o",
            linestyle="none",
            capsize=2.0,
            label="certified" if mine is certified else "not certified",
        )
    label = f"the claim: {certificate.max_loss:g}"
    axes.axhspan(0.0, certificate.max_loss, color="#2f7d4f", alpha=0.12, linewidth=0.0)
    axes.axhline(certificate.max_loss, color="#c1272d", linewidth=1.0, label=label)
    axes.set_ylim(0.0, max(4 * certificate.max_loss, 0.05))
    note = f"bars: to the bounds, which hold together; delta {certificate.delta:g}"
    frame(figure, [axes], certificate.words, note, "paths of a question", "share of harmful")
    return figure
