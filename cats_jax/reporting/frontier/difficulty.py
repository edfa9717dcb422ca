"""The choice of a strategy by the predicted difficulty of a question, as a rival.

Snell et al. (arXiv:2408.03314) predict how difficult a question is from the PRM's scores of whole
answers. They divide the questions into five bins of equal size and use the strategy that is best in
the question's bin. Here the mean path score of a small best-of-N search, the *pilot*, predicts the
difficulty. Every question pays for the pilot and for what is chosen. Best-of-N and its weighted
vote share their first paths with the pilot, so a question pays for the larger N of the two. The
paper predicts from 2048 answers and does not count their cost.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...runs.folder import Row, RunFolder
from ..groups import Group, Key, Point, mean_by_question
from .mixtures import frontier_of

NUM_BINS = 5
"""Number of bins of questions, as in the paper."""

PILOT = "best_of_n"
"""Label of the strategy whose smallest N is the pilot."""

_SAME_PATHS = (PILOT, "best_of_n_weighted")
"""Labels of strategies whose paths begin with the paths of the pilot, with the same scores."""


@dataclass(frozen=True)
class ByDifficulty(Point):
    """A configuration for each bin of questions.

    Attributes:
        label: name of the choice.
        pilot: configuration that every question is searched with first.
        chosen: configuration of each bin, from the lowest scores to the highest.
        edges: f64[NUM_BINS - 1], ascending scores between the bins.
        scores: mean path score of the pilot by question.
    """

    label: str
    pilot: Group
    chosen: tuple[Group, ...]
    edges: np.ndarray
    scores: Mapping[str, float]

    @property
    def name(self) -> str:
        """Name for tables."""
        return self.label

    @property
    def key(self) -> Key:
        """The choice as a configuration, with N and PRM of the pilot."""
        return self.label, self.pilot.num_candidates, self.pilot.prm

    @property
    def needs(self) -> tuple[Group, ...]:
        """The configurations that it consists of."""
        return (self.pilot, *self.chosen)

    def _column(self, value: str) -> dict[str, float]:
        """A column by question id; costs include those of the pilot."""
        of_pilot = self.pilot.by_question(value)
        columns = [group.by_question(value) for group in self.chosen]
        if value == "correct":
            return {question: columns[index][question] for question, index in self._bins.items()}
        shares = [group.strategy in _SAME_PATHS for group in self.chosen]
        return {
            question: (max if shares[index] else operator.add)(
                columns[index][question], of_pilot[question]
            )
            for question, index in self._bins.items()
        }

    @functools.cached_property
    def _bins(self) -> dict[str, int]:
        """The bin of each question."""
        found = np.searchsorted(self.edges, list(self.scores.values()), side="right")
        return dict(zip(self.scores, found.tolist(), strict=True))

    def elsewhere(self, points: Mapping[Key, Group], scores: Mapping[str, float]) -> ByDifficulty:
        """The same choice on other questions, with the pilot's scores there."""
        return dataclasses.replace(
            self,
            pilot=points[self.pilot.key],
            chosen=tuple(points[group.key] for group in self.chosen),
            scores=scores,
        )


def choices_by_difficulty(
    rivals: Sequence[Group], scores: Mapping[str, float], cost: str
) -> list[ByDifficulty]:
    """The best choices by difficulty for one PRM.

    At a given price, a choice takes in each bin the configuration with the largest accuracy minus
    price times cost. There is one choice for each interval of prices without a change in any bin.

    Args:
        rivals: configurations on validation questions, with that PRM or none.
        scores: mean path score of the pilot by question; bins are its quantiles.
        cost: column of the ledger.

    Returns:
        The choices; an empty list without a pilot or its scores.
    """
    pilot = _pilot(rivals)
    if pilot is None or not scores:
        return []
    edges = np.quantile(list(scores.values()), np.arange(1, NUM_BINS) / NUM_BINS)
    bins = np.searchsorted(edges, list(scores.values()), side="right").tolist()
    hulls = []
    for index in range(NUM_BINS):
        members = {
            question: score
            for (question, score), own in zip(scores.items(), bins, strict=True)
            if own == index
        }
        alone = [
            ByDifficulty("", pilot, (group,) * NUM_BINS, edges, members or scores)
            for group in rivals
        ]
        hulls.append(frontier_of(alone, cost))
    slopes = sorted({0.0, *(slope for hull in hulls for slope in _slopes(hull, cost))})
    # At a price between two slopes, every bin has one best configuration.
    prices = [*((a + b) / 2 for a, b in itertools.pairwise(slopes)), 2.0 * slopes[-1] + 1.0]
    found = [tuple(_best(hull, price, cost) for hull in hulls) for price in prices]
    distinct = {tuple(group.key for group in chosen): chosen for chosen in found}
    return [
        ByDifficulty(f"by difficulty, choice {number}", pilot, groups, edges, scores)
        for number, groups in enumerate(distinct.values(), start=1)
    ]


def pilot_scores(
    found: Sequence[Group], score_of: Callable[[Row], float | None]
) -> dict[str, float]:
    """Mean path score of the pilot's finished paths by question, over its seeds.

    Empty if there is no pilot among the groups, or a score is not known.
    """
    pilot = _pilot(found)
    rows = () if pilot is None else pilot.rows
    scores = [(row.question, score) for row in rows if (score := score_of(row)) is not None]
    return mean_by_question(scores) if len(scores) == len(rows) else {}


def mean_path_score(run: RunFolder, row: Row) -> float | None:
    """Mean path score of a row's finished paths, 0 if there is none; None without a tree."""
    if row.tree is None:
        return None
    scores = [path.path_score for path in run.tree(row).paths if path.path_score is not None]
    return sum(scores) / max(len(scores), 1)


def _pilot(found: Sequence[Group]) -> Group | None:
    usable = [group for group in found if group.strategy == PILOT and group.prm is not None]
    return min(usable, key=lambda group: group.num_candidates, default=None)


def _slopes(hull: Sequence[Point], cost: str) -> list[float]:
    """Accuracy gained per unit of cost along a frontier."""
    return [
        (right.mean("correct") - left.mean("correct")) / (right.mean(cost) - left.mean(cost))
        for left, right in itertools.pairwise(hull)
    ]


def _best(hull: Sequence[ByDifficulty], price: float, cost: str) -> Group:
    best = max(hull, key=lambda point: point.mean("correct") - price * point.mean(cost))
    return best.chosen[0]
