"""The decisions of a CATS controller in a tick, as rows of a result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import search

from .arrays import of_slot
from .results import DecisionRow


def decision_rows(
    observed: dict[str, Any], index: int, *, step: int, phase: int
) -> Iterator[DecisionRow]:
    """The decisions at a question's nodes in this tick; none if its strategy reports none.

    `observed` is what `ticks.commit` returned, on the host. `index` is the slot of the question.
    """
    if not isinstance(observed["output"].report, search.cats.Decision):
        return
    decision: search.cats.Decision = of_slot(observed["output"].report, index)
    request: search.Request = of_slot(observed["request"], index)
    for node_slot in np.flatnonzero(decision.valid):
        yield DecisionRow(
            step=step,
            phase=phase,
            node=int(request.embedding[node_slot]),
            features=tuple(float(value) for value in decision.features[node_slot]),
            action=int(decision.action[node_slot]),
            num_extra=int(decision.num_extra[node_slot]),
            num_retain=int(decision.num_retain[node_slot]),
            temperature=float(request.temperature[node_slot]),
            top_p=float(request.top_p[node_slot]),
            top_k=int(request.top_k[node_slot]),
            granted=int(request.num_samples[node_slot]),
            reward=float(decision.reward[node_slot]),
        )
