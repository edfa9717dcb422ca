"""Estimates how long a run still takes, from the work that is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_LEAST_SHARE = 0.05
"""Share of the work that must be done before the rest is estimated."""


@dataclass
class _Part:
    total: int
    before: int
    done: int


@dataclass
class TimeLeft:
    """One estimate for all cells of a run.

    A cell's work is its number of questions times its weight, a question in progress counting half.
    The rest is assumed to take as long per unit as the work that this process has done.

    Attributes:
        weights: work of one question of each cell, by the cells' titles.
        questions, in_flight: numbers of questions of a cell, and of those searched at once.
        begun: the cells that have begun.
    """

    weights: Mapping[str, float]
    questions: int
    in_flight: int
    begun: dict[str, _Part] = field(default_factory=dict)

    def begin(self, title: str, total: int, before: int) -> None:
        """A cell begins, with `before` rows of an earlier start."""
        self.begun[title] = _Part(total, before, before)

    def end_question(self, title: str) -> None:
        """One more question of a cell has ended."""
        self.begun[title].done += 1

    @property
    def share(self) -> float:
        """Share of all work whose rows are finished, in [0, 1]."""
        done = sum(self.weights[title] * part.done for title, part in self.begun.items())
        return done / self._all

    def seconds(self, elapsed: float) -> float | None:
        """Seconds that are left after `elapsed` seconds of work; None while too little is done."""
        new, left = 0.0, self._all
        for title, part in self.begun.items():
            open_questions = min(self.in_flight, part.total - part.done)
            work = part.done - part.before + 0.5 * open_questions
            new += self.weights[title] * work
            left -= self.weights[title] * (part.before + work)
        ended = any(part.done > part.before for part in self.begun.values())
        if not ended or new < _LEAST_SHARE * (new + left):
            return None
        return elapsed * left / new

    @property
    def _all(self) -> float:
        return sum(
            weight * (self.begun[title].total if title in self.begun else self.questions)
            for title, weight in self.weights.items()
        )


def duration(seconds: float, *, hours: bool = False) -> str:
    """Seconds as minutes:seconds, and as hours:minutes:seconds from an hour on or if asked to."""
    minutes, seconds = divmod(round(seconds), 60)
    whole, rest = divmod(minutes, 60)
    return f"{whole}:{rest:02}:{seconds:02}" if whole or hours else f"{rest}:{seconds:02}"
