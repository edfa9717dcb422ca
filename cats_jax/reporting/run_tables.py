"""The tables of a run: accuracy and compute, paired comparisons, actions, wall time."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ..evaluation.wall_times import WallTimes
from .actions import action_counts, action_entropy, describe_action
from .groups import SIMILAR_COMPUTE, Group, compare
from .statistics import Interval
from .tables import new_table

CATS_PAIRS_TITLE = (
    "policies against the best fixed baseline of at most "
    f"{SIMILAR_COMPUTE:g} times their tokens (chosen on these very questions, which favours it)"
)


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
    counts = {id(group): action_counts(group) for group in deciding}
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
        "core": "core: plan and commit",
        "compiling": "compilation of the core",
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
