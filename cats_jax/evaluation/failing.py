"""Stops a run in which every search fails, before it has searched all questions."""

from __future__ import annotations

import pathlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ..errors import RunStoppedError
from ..runs.folder import Row

MOST_FAILURES = 20
"""Number of failures of one kind after which a run stops, if all its searches have failed."""

_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(\.\d+)?")
"""What differs between failures of one kind: names in quotes, and numbers."""


class FailureWatch:
    """A `recording.Observer` that stops a run at its `MOST_FAILURES`-th failure of one kind.

    The watch ends at the first search that does not fail, in this or an earlier start of the run.
    """

    def __init__(self, folder: str | pathlib.Path) -> None:
        self._folder = folder
        self._kinds: Counter[str] = Counter()
        self._over = False

    def begin_cell(self, title: str, total: int, rows: Sequence[Row]) -> None:
        """A cell begins; rows of an earlier start that did not fail end the watch."""
        self._over = self._over or any(row.status != "failed" for row in rows)

    def row(self, title: str, row: Row) -> None:
        """Count a search; RunStoppedError at the `MOST_FAILURES`-th failure of one kind."""
        self._over = self._over or row.status != "failed"
        if self._over:
            return
        kind = _VARIABLE.sub("", row.reason)
        self._kinds[kind] += 1
        if self._kinds[kind] == MOST_FAILURES:
            raise RunStoppedError(
                f"stopped, because every search failed, {MOST_FAILURES} of them alike: "
                f"{row.reason}. The rows are kept in {str(self._folder)!r}; with another setting "
                "give another --output. --keep-going searches the rest all the same"
            )


def commonest_reason(rows: Iterable[Row]) -> str:
    """The reason of the commonest kind of failure among some failed rows, at least one."""
    reasons = [row.reason for row in rows]
    kinds = Counter(_VARIABLE.sub("", reason) for reason in reasons)
    return max(reasons, key=lambda reason: kinds[_VARIABLE.sub("", reason)])
