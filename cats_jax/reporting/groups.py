"""Groups of a run's rows, their figures, and comparisons of two groups."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from theory.estimators import Estimate

from ..runs.folder import Row, RunFolder
from . import statistics
from .statistics import Paired

SIMILAR_COMPUTE = 1.25
"""Largest cost of a baseline of similar compute, as a multiple of the policy's cost."""


Key = tuple[str, int, str | None]
"""The key of a configuration: strategy, N and PRM."""


class PerQuestion(abc.ABC):
    """Results of which each column, "correct" or one of the ledger, has a value a question."""

    @abc.abstractmethod
    def _column(self, value: str) -> dict[str, float]:
        """The column of this name."""

    def by_question(self, value: str = "correct") -> dict[str, float]:
        """A column by question id."""
        if value not in self._columns:
            self._columns[value] = self._column(value)
        return self._columns[value]

    @functools.cached_property
    def _columns(self) -> dict[str, dict[str, float]]:
        # Cached, because results are compared with many others, at many budgets.
        return {}

    def mean(self, value: str) -> float:
        """Mean over questions of a column."""
        values = self.by_question(value).values()
        return sum(values) / len(values)


class Point(PerQuestion):
    """A configuration with its results, a point in cost and accuracy."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Short name for tables and sentences."""

    @property
    @abc.abstractmethod
    def key(self) -> Key:
        """The configuration, without the data set."""


@dataclass(frozen=True)
class Group(Point):
    """The rows of one strategy, N and PRM on one data set: all its questions and seeds.

    Attributes:
        strategy, num_candidates, prm, dataset: values in the rows; prm is None if no PRM was
            called, dataset is "" in a run on one data set.
        rows: rows of the group, at least one.
    """

    strategy: str
    num_candidates: int
    prm: str | None
    rows: Sequence[Row]
    dataset: str = ""

    @property
    def name(self) -> str:
        """Short name of the group for use in sentences."""
        return f"{self.strategy} N={self.num_candidates}"

    @property
    def key(self) -> Key:
        """The configuration, without the data set."""
        return self.strategy, self.num_candidates, self.prm

    @property
    def takes_actions(self) -> bool:
        """Whether its searches took actions; fixed strategies take none."""
        return any(row.actions for row in self.rows)

    def _column(self, value: str) -> dict[str, float]:
        """Mean over seeds of a column of the ledger, or of "correct" or "covered"."""

        def of(row: Row) -> float:
            return float(getattr(row if value in ("correct", "covered") else row.ledger, value))

        return mean_by_question((row.question, of(row)) for row in self.rows)

    def accuracy(self) -> Estimate:
        """Share of right answers; failed questions are wrong."""
        return statistics.accuracy(list(self.by_question().values()))

    def accuracy_over_seeds(self) -> Estimate | None:
        """Mean of the run seeds' accuracies with Student's interval, cut off at 0 and 1.

        The interval covers the variation over seeds on these questions, that of `accuracy` the
        variation over questions, which more seeds do not reduce. Seeds without rows for all
        questions, as in a stopped run, are left out. None with fewer than two seeds, or if all have
        one accuracy, from which no variation can be estimated.
        """
        right: defaultdict[int, dict[str, bool]] = defaultdict(dict)
        for row in self.rows:
            right[row.seed][row.question] = row.correct
        questions = {row.question for row in self.rows}
        accuracies = [
            sum(found.values()) / len(found)
            for found in right.values()
            if found.keys() == questions
        ]
        if len(set(accuracies)) < 2:
            return None
        interval = statistics.mean_of_seeds(accuracies)
        return Estimate(interval.value, max(interval.low, 0.0), min(interval.high, 1.0))


def mean_by_question(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Mean of the values of each question, by its id."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for question, value in values:
        found[question].append(value)
    return {question: sum(each) / len(each) for question, each in found.items()}


def groups(rows: Iterable[Row]) -> list[Group]:
    """Rows by data set, strategy, PRM and N, in order of first appearance and then of N."""
    found: defaultdict[tuple[str, str, str | None, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.dataset, row.strategy, row.prm, row.num_candidates].append(row)
    sets = list(dict.fromkeys(dataset for dataset, *_ in found))
    order = list(dict.fromkeys((strategy, prm) for _, strategy, prm, _ in found))
    keys = sorted(found, key=lambda key: (sets.index(key[0]), order.index(key[1:3]), key[3]))
    return [
        Group(strategy, n, prm, tuple(found[dataset, strategy, prm, n]), dataset)
        for dataset, strategy, prm, n in keys
    ]


def identity(group: Group) -> dict[str, Any]:
    """The values of the columns `run_tables.IDENTITY`."""
    return {"strategy": group.strategy, "num_candidates": group.num_candidates, "prm": group.prm}


def interval(name: str, found: Estimate | None) -> dict[str, Any]:
    """Three values: the estimate, and the ends of its interval as NAME_low and NAME_high."""
    if found is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def by_dataset(found: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups by data set; a table or plot is about one data set."""
    sets: dict[str, list[Group]] = {}
    for group in found:
        sets.setdefault(group.dataset, []).append(group)
    return sets


def on_common_questions(first: Group, second: Group) -> tuple[Group, Group]:
    """Both groups without the rows of questions that only one has.

    In an unfinished run the means of the two are else of different questions.
    """
    common = first.by_question().keys() & second.by_question().keys()

    def part(group: Group) -> Group:
        if group.by_question().keys() == common:
            return group
        rows = tuple(row for row in group.rows if row.question in common)
        return dataclasses.replace(group, rows=rows)

    return part(first), part(second)


def compare(first: Group, second: Group) -> Paired | None:
    """Paired comparison of two groups on their common questions; None if they share none."""
    one, two = first.by_question(), second.by_question()
    shared = [question for question in one if question in two]
    if not shared:
        return None
    return statistics.paired([one[q] for q in shared], [two[q] for q in shared])


def best_at_similar_compute(
    target: Group, baselines: Sequence[Group], cost: str = "tokens"
) -> Group | None:
    """The most accurate baseline that costs at most `SIMILAR_COMPUTE` times as much.

    The baseline is chosen on the questions of the comparison, which favours it: each is compared
    on the questions that it has in common with the target. If all baselines cost more, the cheapest
    one is returned, and so it is if none has a question in common.

    Args:
        target: group to compare with.
        baselines: groups to choose from, of which those with the target's PRM or none count.
        cost: column of the ledger.

    Returns:
        The baseline; None if no baseline counts.
    """
    usable = [group for group in baselines if group.prm in (None, target.prm)]
    common = [(group, *on_common_questions(target, group)) for group in usable]
    shared = [(group, own, other) for group, own, other in common if other.rows]
    affordable = [
        (group, other)
        for group, own, other in shared
        if other.mean(cost) <= SIMILAR_COMPUTE * own.mean(cost)
    ]
    if affordable:

        def right(pair: tuple[Group, Group]) -> float:
            # Means that are equal may differ by rounding.
            return round(pair[1].mean("correct"), statistics.DIGITS)

        return max(affordable, key=right)[0]
    if shared:
        return min(shared, key=lambda each: each[2].mean(cost))[0]
    return min(usable, key=lambda group: group.mean(cost), default=None)


def summarize(run: RunFolder) -> dict[str, Any]:
    """Figures of every group as JSON values, for summary.json."""
    means = ("covered", "candidates", "tokens", "generated", "prompt_computed", "prm_computed")
    means += ("flops", "seconds")
    entries = []
    for group in groups(run.rows):
        over_seeds = group.accuracy_over_seeds()
        entries.append(
            {
                "dataset": group.dataset,
                **identity(group),
                "questions": len(group.by_question()),
                "rows": len(group.rows),
                **interval("accuracy", group.accuracy()),
                "accuracy_over_seeds": over_seeds and [over_seeds.low, over_seeds.high],
                **{name: group.mean(name) for name in means},
                "statuses": dict(Counter(row.status for row in group.rows)),
            }
        )
    return {"rows": len(run.rows), "groups": entries}


def cats_pairs(found: Sequence[Group], cost: str = "tokens") -> list[tuple[Group, Group]]:
    """Pairs of a group that takes actions and the best fixed strategy of similar `cost`."""
    baselines = [group for group in found if not group.takes_actions]
    deciding = [group for group in found if group.takes_actions]
    pairs = ((group, best_at_similar_compute(group, baselines, cost)) for group in deciding)
    return [(group, rival) for group, rival in pairs if rival is not None]


def neighbour_pairs(found: Sequence[Group]) -> list[tuple[Group, Group]]:
    """All pairs of two strategies with the same N, and with the same PRM or one without a PRM."""
    return [
        (first, second)
        for index, first in enumerate(found)
        for second in found[index + 1 :]
        if first.strategy != second.strategy
        and first.num_candidates == second.num_candidates
        and (first.prm == second.prm or None in (first.prm, second.prm))
    ]
