"""Groups of a run's rows, their figures, and the tables of these figures."""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from ..evaluation.wall_times import WallTimes
from ..runs.folder import Row, Run
from . import statistics
from .statistics import Interval, Paired
from .tables import new_table

SIMILAR_COMPUTE = 1.25
"""Most cost of a baseline of similar compute, as a multiple of the policy's cost."""

CATS_PAIRS_TITLE = (
    "policies against the best fixed baseline of at most "
    f"{SIMILAR_COMPUTE:g} times their tokens (chosen on these very questions, which favours it)"
)


@dataclass(frozen=True)
class Group:
    """The rows of one strategy, N and PRM on one data set: all its questions and seeds.

    Attributes:
        strategy, num_candidates, prm, dataset: values in the rows; prm is None if no PRM was
            called, dataset is "" in a run on one data set.
        rows: rows of the group, at least one.
    """

    strategy: str
    num_candidates: int
    prm: str | None
    rows: tuple[Row, ...]
    dataset: str = ""

    @property
    def name(self) -> str:
        """Short name of the group for use in sentences."""
        return f"{self.strategy} N={self.num_candidates}"

    @property
    def has_policy(self) -> bool:
        """Whether a policy took actions; fixed baselines take none."""
        return any(row.actions for row in self.rows)

    def by_question(self, value: str = "correct") -> dict[str, float]:
        """Mean over seeds of a column, by question id."""
        if value not in self._columns:
            self._columns[value] = self._mean_over_seeds(value)
        return self._columns[value]

    @functools.cached_property
    def _columns(self) -> dict[str, dict[str, float]]:
        # A group is compared with many others.
        return {}

    def _mean_over_seeds(self, value: str) -> dict[str, float]:
        values: defaultdict[str, list[float]] = defaultdict(list)
        for row in self.rows:
            source = row if value in ("correct", "covered") else row.ledger
            values[row.question].append(float(getattr(source, value)))
        return {question: sum(found) / len(found) for question, found in values.items()}

    def accuracy(self) -> Interval:
        """Share of right answers; failed questions are wrong."""
        return statistics.accuracy(list(self.by_question().values()))

    def accuracy_over_seeds(self) -> Interval | None:
        """Mean of the run seeds' accuracies with Student's interval, cut off at 0 and 1.

        The interval covers the variation over seeds on these questions. That of `accuracy` covers
        the variation over questions, which more seeds do not remove. Seeds without rows for all
        questions, as in a run that was stopped, are left out.

        Returns:
            The interval; None with fewer than two seeds.
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
        if len(accuracies) < 2:
            return None
        interval = statistics.mean_of_seeds(accuracies)
        return Interval(interval.value, max(interval.low, 0.0), min(interval.high, 1.0))

    def mean(self, value: str) -> float:
        """Mean over questions of a column of the ledger, or of "correct" or "covered"."""
        values = self.by_question(value).values()
        return sum(values) / len(values)


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


def by_dataset(found: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups by data set; tables and plots are of one."""
    sets: dict[str, list[Group]] = {}
    for group in found:
        sets.setdefault(group.dataset, []).append(group)
    return sets


def compare(first: Group, second: Group) -> Paired | None:
    """Paired comparison of two groups on their common questions; None if there are none."""
    one, two = first.by_question(), second.by_question()
    shared = [question for question in one if question in two]
    if not shared:
        return None
    return statistics.paired([one[q] for q in shared], [two[q] for q in shared])


def best_at_similar_compute(
    target: Group, baselines: Sequence[Group], cost: str = "tokens"
) -> Group | None:
    """The most accurate baseline that costs at most `SIMILAR_COMPUTE` times as much.

    The baseline is chosen on the questions of the comparison, which favours it. If all baselines
    cost more, the cheapest one is returned.

    Args:
        target: group to compare with.
        baselines: groups to choose from; only those with the target's PRM or none are considered.
        cost: column of the ledger.

    Returns:
        The baseline; None if no baseline is considered.
    """
    usable = [group for group in baselines if group.prm in (None, target.prm)]
    if not usable:
        return None
    limit = SIMILAR_COMPUTE * target.mean(cost)
    affordable = [group for group in usable if group.mean(cost) <= limit]
    if not affordable:
        return min(usable, key=lambda group: group.mean(cost))
    return max(affordable, key=lambda group: group.accuracy().value)


def summarize(run: Run) -> dict[str, Any]:
    """Figures of every group as JSON values, for summary.json."""
    entries = []
    for group in groups(run.rows):
        accuracy, over_seeds = group.accuracy(), group.accuracy_over_seeds()
        entries.append(
            {
                "dataset": group.dataset,
                "strategy": group.strategy,
                "num_candidates": group.num_candidates,
                "prm": group.prm,
                "questions": len(group.by_question()),
                "rows": len(group.rows),
                "accuracy": accuracy.value,
                "accuracy_low": accuracy.low,
                "accuracy_high": accuracy.high,
                "accuracy_over_seeds": over_seeds and [over_seeds.low, over_seeds.high],
                "covered": group.mean("covered"),
                "candidates": group.mean("candidates"),
                "tokens": group.mean("tokens"),
                "policy_tokens": group.mean("prompt_computed"),
                "prm_tokens": group.mean("prm_computed"),
                "generated": group.mean("generated"),
                "flops": group.mean("flops"),
                "seconds": group.mean("seconds"),
                "statuses": dict(Counter(row.status for row in group.rows)),
            }
        )
    return {"rows": len(run.rows), "groups": entries}


# Tables


def accuracy_table(found: Sequence[Group], title: str) -> Table:
    """Accuracy with its interval over questions, and mean compute per question.

    Where a group has several run seeds, the interval over seeds stands beside it.
    The ceiling is the share of questions with a right answer among the finished paths: pass@N where
    a strategy keeps all N.
    """
    over_seeds = [group.accuracy_over_seeds() for group in found]
    figures = ("candidates", "tokens", "generated", "prm_computed")
    refused = any(row.ledger.prm_refused for group in found for row in group.rows)
    table = new_table(
        title,
        *("<strategy", "N", "<PRM", "accuracy", "95 % interval"),
        *(["95 % over seeds"] if any(over_seeds) else []),
        *("ceiling", "candidates", "tokens", "policy", "PRM", "s/question", "failed"),
    )
    if refused:
        table.add_column("too long for the PRM", justify="right")
    previous = None
    for group, of_seeds in zip(found, over_seeds, strict=True):
        if previous not in (None, (group.strategy, group.prm)):
            table.add_section()
        previous = (group.strategy, group.prm)
        accuracy = group.accuracy()
        table.add_row(
            group.strategy,
            str(group.num_candidates),
            group.prm or "-",
            f"{accuracy.value:.3f}",
            _range(accuracy),
            *([_range(of_seeds)] if any(over_seeds) else []),
            f"{group.mean('covered'):.3f}",
            *(f"{group.mean(name):.0f}" for name in figures),
            f"{group.mean('seconds'):.3f}",
            str(sum(row.status == "failed" for row in group.rows)),
            *([str(sum(row.ledger.prm_refused for row in group.rows))] if refused else []),
        )
    return table


def _range(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval.low:.3f}-{interval.high:.3f}"


def paired_table(pairs: Sequence[tuple[Group, Group]], title: str) -> Table:
    """Each first group against its second, question by question."""
    numbers = ("tokens", "accuracy", "difference", "95 % interval", "better/worse", "p")
    table = new_table(title, "<one", "<against", "<PRM", *numbers, "<the one")
    for first, second in pairs:
        result = compare(first, second)
        if result is None:
            continue
        difference = result.difference
        table.add_row(
            first.name,
            second.name,
            first.prm or "-",
            f"{first.mean('tokens'):.0f} : {second.mean('tokens'):.0f}",
            f"{first.accuracy().value:.3f} : {second.accuracy().value:.3f}",
            f"{difference.value:+.3f}",
            f"{difference.low:+.3f} to {difference.high:+.3f}",
            f"{result.wins}/{result.losses} of {result.questions}",
            f"{result.p_value:.3g}",
            result.verdict,
        )
    return table


def action_table(found: Sequence[Group], title: str) -> Table | None:
    """Shares of the actions by number of extra children, and their entropy, per group."""
    deciding = [group for group in found if group.has_policy]
    if not deciding:
        return None
    counts = {id(group): _action_counts(group) for group in deciding}
    extras = sorted({action[0] for count in counts.values() for action in count})
    table = new_table(title, "<strategy", "N", "<PRM")
    table.add_column("decisions", justify="right")
    for extra in extras:
        table.add_column(f"+{extra}", justify="right", no_wrap=True)
    table.add_column("distinct", justify="right")
    table.add_column("entropy, nats", justify="right")
    table.add_column("most frequent action", no_wrap=True)
    for group in deciding:
        count = counts[id(group)]
        total = sum(count.values())
        shares = [
            sum(times for action, times in count.items() if action[0] == extra) / total
            for extra in extras
        ]
        (top, times), *_ = count.most_common(1)
        table.add_row(
            group.strategy,
            str(group.num_candidates),
            group.prm or "-",
            str(total),
            *(f"{share:.0%}" for share in shares),
            str(len(count)),
            f"{action_entropy(count):.2f}",
            f"{describe_action(*top)} ({times / total:.0%})",
        )
    return table


def action_entropy(counts: Mapping[Any, int]) -> float:
    """Entropy of the empirical distribution, in nats; 0 for a constant policy."""
    total = sum(counts.values())
    return sum(times / total * math.log(total / times) for times in counts.values())


def describe_action(
    num_extra: int, num_retain: int, temperature: float, top_p: float, top_k: int
) -> str:
    """A short text that describes an action."""
    if num_extra == 0:
        return f"+0, keep {num_retain}"
    text = f"+{num_extra}, keep {num_retain}, T={temperature:g}"
    text += f", top-p {top_p:g}" if top_p < 1 else ""
    return text + (f", top-k {top_k}" if top_k else "")


def cats_pairs(found: Sequence[Group]) -> list[tuple[Group, Group]]:
    """Each group with a policy against the best fixed baseline at similar compute."""
    is_policy = [group.has_policy for group in found]
    baselines = [group for group, policy in zip(found, is_policy, strict=True) if not policy]
    pairs = []
    for group, policy in zip(found, is_policy, strict=True):
        rival = best_at_similar_compute(group, baselines) if policy else None
        if rival is not None:
            pairs.append((group, rival))
    return pairs


def neighbour_pairs(found: Sequence[Group]) -> list[tuple[Group, Group]]:
    """Every two strategies at the same N and PRM (or none)."""
    return [
        (first, second)
        for index, first in enumerate(found)
        for second in found[index + 1 :]
        if first.strategy != second.strategy
        and first.num_candidates == second.num_candidates
        and (first.prm == second.prm or None in (first.prm, second.prm))
    ]


def _action_counts(group: Group) -> Counter[tuple[int, int, float, float, int]]:
    counts: Counter[tuple[int, int, float, float, int]] = Counter()
    for row in group.rows:
        for *action, times in row.actions:
            num_extra, num_retain, temperature, top_p, top_k = action
            key = (int(num_extra), int(num_retain), temperature, top_p, int(top_k))
            counts[key] += times
    return counts


def timing_table(times: WallTimes, title: str = "where the time went") -> Table:
    """All parts of an evaluation's time: first the work, then the wall time.

    Files are compressed and written in the background, so that the work may exceed the wall time.
    The share outside is a share of the work.
    """
    work: dict[str, float] = {**times.parts, "recording": times.recording, "writing": times.writing}
    names = {
        "policy inside": "policy: forward passes, sampling of token ids",
        "prm inside": "PRM: forward passes",
        "policy outside": "policy: tokens, cache, splitting",
        "prm outside": "PRM: tokens, cache",
        "core": "core: plan and commit (and their compilation)",
        "host": "driver: requests, trees, ledger",
        "recording": "grading, rows and trees as text",
        "writing": "compressing and writing them, in the background",
    }
    table = new_table(title, "<part", "seconds", "share")
    total = sum(work.values()) or 1.0

    def add(part: str, seconds: float, of: float) -> None:
        table.add_row(part, f"{seconds:.2f}", f"{seconds / of:.1%}")

    for key, name in names.items():
        add(name, work.get(key, 0.0), total)
    table.add_section()
    inside = work.get("policy inside", 0.0) + work.get("prm inside", 0.0)
    add("work outside policy and PRM", total - inside, total)
    add("work", total, total)
    table.add_section()
    wall = times.total or 1.0
    add("wall time: loading models", times.loading, wall)
    add("wall time: searching", times.searching + times.recording, wall)
    rest = times.total - times.loading - times.searching - times.recording
    add("wall time: rest", rest, wall)
    add("wall time", times.total, wall)
    if times.recomputed:
        table.add_section()
        # Tokens in a column of seconds would be misread.
        table.add_row(f"computed again for lack of kv_cache_gib: {times.recomputed:,} tokens")
    return table
