"""Whether the paths of a run were cut into steps at all."""

from __future__ import annotations

from ..runs.folder import RunFolder

_LONG_STEP = 32
"""Samples with at least this mean number of tokens look like whole answers."""

_KEEP_ALL_PATHS = ("greedy", "majority", "best_of_n")
"""Strategies whose results are the same if a path is one step."""


def without_boundaries(run: RunFolder) -> str | None:
    """A one-line warning that no path of a run holds a step boundary; None if one may hold it.

    The evidence: every search ended after one step, and its samples were long. Strategies that keep
    all their paths are left out, because their results do not depend on steps.
    """
    config = run.manifest["config"]
    if config.get("max_depth") == 1:
        return None
    kept = {
        spec["label"] for spec in config.get("strategies", ()) if spec["name"] in _KEEP_ALL_PATHS
    }
    rows = [row for row in run.rows if row.strategy not in kept and row.ledger.candidates > 0]
    generated = sum(row.ledger.generated for row in rows)
    candidates = sum(row.ledger.candidates for row in rows)
    if not rows or max(row.steps for row in rows) > 1 or generated < _LONG_STEP * candidates:
        return None
    return (
        "warning: no path of this run holds a step boundary: every answer is one step, "
        f"{generated / candidates:.0f} tokens long on average, so each search did what best-of-N "
        "does: set step_separator in the policy's format to what stands between its steps, or ask "
        "for steps in its prompt"
    )
