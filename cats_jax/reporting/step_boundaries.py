"""Whether the paths of a run were cut into steps at all."""

from __future__ import annotations

from ..runs.folder import RunFolder

_LONG_STEP = 32
"""Samples with at least this mean number of tokens look like whole answers."""

_KEEP_ALL_PATHS = ("greedy", "majority", "best_of_n")
"""Names of strategies whose results are the same if a path is one step."""


def without_boundaries(run: RunFolder) -> str | None:
    """A one-line warning that no path of a run holds a step boundary; None if one may hold it.

    The evidence: every search ended after one step, and its samples were long. Strategies of
    `_KEEP_ALL_PATHS` do not count, nor do those that rewrite answers, whose steps are answers. The
    rows of a replay of a step bank have no number of steps.
    """
    config, formats = run.manifest["config"], run.manifest.get("formats") or {}
    if config.get("max_depth") == 1 or run.manifest["models"].get("bank") is not None:
        return None
    whole = {
        spec.get("label")
        for spec in config.get("strategies", ())
        if spec.get("name") in _KEEP_ALL_PATHS or f"rewriting {spec.get('label')}" in formats
    }
    rows = [row for row in run.rows if row.strategy not in whole and row.ledger.candidates > 0]
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
