"""Estimates how long a run still takes, from the work that is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LEAST_SHARE = 0.05
"""Share of the work that must be done before the rest is estimated."""


@dataclass
class _Part:
    total: int
    before: int
    done: int


class TimeLeft:
    """One estimate for all cells of a run.

    A cell's work is its number of questions times its weight, a question in progress counting half.
    The rest is assumed to take as long per unit as the work that this process has done.
    """

    def __init__(self, weights: Mapping[str, float], questions: int, in_flight: int) -> None:
        """Start without a cell.

        Args:
            weights: work of one question of each cell, by the cells' titles.
            questions, in_flight: numbers of questions of a cell, and of those searched at once.
        """
        self._weights = weights
        self._questions = questions
        self._in_flight = in_flight
        self._begun: dict[str, _Part] = {}

    def begin(self, title: str, total: int, before: int) -> None:
        """A cell begins, with `before` rows of an earlier start."""
        self._begun[title] = _Part(total, before, before)

    def end_question(self, title: str) -> None:
        """One more question of a cell has ended."""
        self._begun[title].done += 1

    @property
    def share(self) -> float:
        """Share of all work whose rows are finished, in [0, 1]."""
        done = sum(self._weights[title] * part.done for title, part in self._begun.items())
        return done / self._all

    def seconds(self, elapsed: float) -> float | None:
        """Seconds that are left after `elapsed` seconds of work; None while too little is done."""
        new, left = 0.0, self._all
        for title, part in self._begun.items():
            open_questions = min(self._in_flight, part.total - part.done)
            work = part.done - part.before + 0.5 * open_questions
            new += self._weights[title] * work
            left -= self._weights[title] * (part.before + work)
        ended = any(part.done > part.before for part in self._begun.values())
        if not ended or new < _LEAST_SHARE * (new + left):
            return None
        return elapsed * left / new

    @property
    def _all(self) -> float:
        return sum(
            weight * (self._begun[title].total if title in self._begun else self._questions)
            for title, weight in self._weights.items()
        )


def duration(seconds: float) -> str:
    """Seconds as minutes:seconds, or hours:minutes:seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
