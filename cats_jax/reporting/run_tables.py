"""The tables of a run: accuracy and compute, paired comparisons, actions, wall time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from rich.table import Table

from ..evaluation.failing import commonest_reason
from ..evaluation.wall_times import WallTimes
from .actions import ACTION, action_counts, action_entropy, describe_action
from .groups import (
    SIMILAR_COMPUTE,
    Group,
    cats_pairs,
    compare,
    identity,
    interval,
    on_common_questions,
)
from .printing import new_table
from .sheets import (
    Column,
    Record,
    Sheet,
    count,
    giga,
    plain,
    share,
    signed,
    signed_span,
    span,
    three_digits,
)
from .statistics import FEWEST

Cost = Literal["tokens", "flops"]
"""The cost by which two configurations are of similar compute; a column of the ledger."""

IDENTITY = (
    Column("strategy", ("strategy",), plain, 0, left=True),
    Column("N", ("num_candidates",), plain, 0),
    Column("PRM", ("prm",), plain, 0, left=True),
)
"""The columns that name a group."""

_VERDICT = (
    "wins, loses: the 95 % interval of the difference, a bootstrap over questions, excludes 0. "
    f"Strategies that differ on fewer than {FEWEST} questions tie. p is of an exact test, which "
    "may disagree where questions are few"
)

COSTS = {
    "tokens": Column("tokens", ("tokens",), count, 3),
    "flops": Column("GFLOP", ("flops",), giga, 3),
}
"""Column of each cost."""

_CHARGED = {"policy_cost": "policy cost", "prm_cost": "PRM cost"}
_RARE = {
    "prm_refused": "too long for the PRM",
    "comparisons_unread": "unread comparisons",
    "unsolved": "unsolved programs",
}
"""What chat endpoints charge, and what goes wrong in few runs, by column of the ledger. Each has a
column in tables with a value other than 0."""

_NAME = "{} N={}".format


def unit(cost: Cost) -> str:
    """The unit of the cost in words, in the plural."""
    return "FLOPs" if cost == "flops" else "tokens"


def run_sheets(found: Sequence[Group], title: str, cost: Cost = "tokens") -> list[Sheet]:
    """The tables of one data set's groups: accuracy, comparisons with fixed strategies, actions.

    Args:
        found: groups of one data set, at least one.
        title: what the groups are of.
        cost: cost by which a baseline is of similar compute.
    """
    sheets = [accuracy_sheet(found, title)]
    pairs = cats_pairs(found, cost)
    if pairs:
        sheets.append(_against_fixed(pairs, cost))
    actions = action_sheet(found)
    return sheets if actions is None else [*sheets, actions]


def _against_fixed(pairs: Sequence[tuple[Group, Group]], cost: Cost) -> Sheet:
    title = (
        "strategies that take actions against the best fixed strategy of at most "
        f"{SIMILAR_COMPUTE:g} times their {unit(cost)} (chosen on these very questions, which "
        "favours it)"
    )
    sheet = paired_sheet(pairs, title, "against_fixed", cost)
    dear = [
        _NAME(str(record["strategy"]), int(record["num_candidates"] or 0))
        + ("" if record["prm"] is None else f" with {record['prm']}")
        for record in sheet.records
        if float(record[f"against_{cost}"] or 0) > SIMILAR_COMPUTE * float(record[cost] or 0)
    ]
    if not dear:
        return sheet
    note = (
        f"no fixed strategy of this table is that cheap, and the cheapest one stands against: "
        f"{', '.join(dear)}"
    )
    return dataclasses.replace(sheet, notes=(*sheet.notes, note))


def accuracy_sheet(found: Sequence[Group], title: str) -> Sheet:
    """Accuracy with its interval over questions, and mean compute per question.

    Several run seeds add an interval over seeds. Numbers of seeds and of questions have a column if
    they differ between the groups. The ceiling is the share of questions with a right answer among
    the finished paths: pass@N where a strategy keeps all N paths.
    """
    records = [_record(group) for group in found]
    over_seeds = any(record["seeds_low"] is not None for record in records)
    failed = any(record["failed"] for record in records)
    there = {name for name in (*_CHARGED, *_RARE) if any(record[name] for record in records)}
    # A replay of a step bank has no FLOPs and no seconds.
    known = {"tokens", *(n for n in ("flops", "seconds") if any(each[n] for each in records))}
    unequal = [name for name in ("seeds", "questions") if len({r[name] for r in records}) > 1]
    columns = (
        *IDENTITY,
        Column("accuracy", ("accuracy",), share, 1),
        Column("95 % interval", ("accuracy_low", "accuracy_high"), span, 2),
        *([Column("95 % over seeds", ("seeds_low", "seeds_high"), span, 5)] if over_seeds else []),
        Column("ceiling", ("covered",), share, 7),
        Column("candidates", ("candidates",), count, 12),
        *(column for name, column in COSTS.items() if name in known),
        Column("policy tokens", ("generated",), count, 9),
        Column("PRM tokens", ("prm_computed",), count, 10),
        *(Column(title, (n,), three_digits, 3) for n, title in _CHARGED.items() if n in there),
        *([Column("s/question", ("seconds",), share, 8)] if "seconds" in known else []),
        Column("failed", ("failed",), plain, 4 if failed else 11),
        *(Column(title, (n,), plain, 6) for n, title in _RARE.items() if n in there),
        *(Column(name, (name,), plain, 3) for name in unequal),
    )
    notes = tuple(
        f"every search of {group.name} failed: {commonest_reason(group.rows)}"
        for group in found
        if all(row.status == "failed" for row in group.rows)
    )
    return Sheet("accuracy", title, columns, tuple(records), ("strategy", "prm"), notes)


def _record(group: Group) -> Record:
    accuracy, of_seeds = group.accuracy(), group.accuracy_over_seeds()
    means = ("covered", "candidates", "tokens", "flops", "generated", "prm_computed", "seconds")
    means += tuple(_CHARGED)
    return {
        **identity(group),
        **interval("accuracy", accuracy),
        "seeds_low": None if of_seeds is None else of_seeds.low,
        "seeds_high": None if of_seeds is None else of_seeds.high,
        **{name: group.mean(name) for name in means},
        "failed": sum(row.status == "failed" for row in group.rows),
        **{name: sum(getattr(row.ledger, name) for row in group.rows) for name in _RARE},
        "questions": len(group.by_question()),
        "seeds": len({row.seed for row in group.rows}),
    }


def paired_sheet(
    pairs: Sequence[tuple[Group, Group]], title: str, name: str, cost: Cost = "tokens"
) -> Sheet:
    """Each first group against its second, on the questions that both have."""
    records = []
    for pair in pairs:
        first, second = on_common_questions(*pair)
        result = compare(first, second)
        if result is None:
            continue
        records.append(
            {
                "strategy": first.strategy,
                "num_candidates": first.num_candidates,
                "against": second.strategy,
                "against_num_candidates": second.num_candidates,
                "prm": first.prm or second.prm,
                cost: first.mean(cost),
                f"against_{cost}": second.mean(cost),
                "accuracy": first.accuracy().value,
                "against_accuracy": second.accuracy().value,
                **interval("difference", result.difference),
                "better": result.wins,
                "worse": result.losses,
                "questions": result.questions,
                "p": result.p_value,
                "verdict": result.verdict,
            }
        )
    axis = COSTS[cost]
    columns = (
        Column("one", ("strategy", "num_candidates"), _NAME, 0, left=True),
        Column("against", ("against", "against_num_candidates"), _NAME, 0, left=True),
        IDENTITY[-1],
        Column(axis.title, (cost, f"against_{cost}"), _versus(axis.text), 5),
        Column("accuracy", ("accuracy", "against_accuracy"), _versus(share), 4),
        Column("difference", ("difference",), signed, 1),
        Column("95 % interval", ("difference_low", "difference_high"), signed_span, 2),
        Column("better/worse", ("better", "worse", "questions"), "{}/{} of {}".format, 7),
        Column("p", ("p",), "{:.3g}".format, 6),
        Column("the one", ("verdict",), plain, 3, left=True),
    )
    return Sheet(name, title, columns, tuple(records), notes=(_VERDICT,) if records else ())


def _versus(text: Callable[..., str]) -> Callable[..., str]:
    return lambda first, second: f"{text(first)} : {text(second)}"


def action_sheet(found: Sequence[Group]) -> Sheet | None:
    """Shares of decisions by number of extra candidates, and the actions' entropy, per group."""
    deciding = [group for group in found if group.takes_actions]
    if not deciding:
        return None
    counts = [action_counts(group) for group in deciding]
    extras = sorted({action[0] for actions in counts for action in actions})
    records = []
    for group, actions in zip(deciding, counts, strict=True):
        total = sum(actions.values())
        (top, times), *_ = actions.most_common(1)
        of_extra = {
            f"extra_{extra}": sum(n for action, n in actions.items() if action[0] == extra) / total
            for extra in extras
        }
        records.append(
            {
                **identity(group),
                "decisions": total,
                **of_extra,
                "distinct": len(actions),
                "entropy": action_entropy(actions),
                **dict(zip(ACTION, top, strict=True)),
                "most_frequent_share": times / total,
            }
        )
    columns = (
        *IDENTITY,
        Column("decisions", ("decisions",), plain, 4),
        *(Column(f"+{extra}", (f"extra_{extra}",), "{:.0%}".format, 1) for extra in extras),
        Column("distinct", ("distinct",), plain, 5),
        Column("entropy, nats", ("entropy",), "{:.2f}".format, 3),
        Column(
            "most frequent action", (*ACTION, "most_frequent_share"), _most_frequent, 2, left=True
        ),
    )
    title = "actions: share of decisions by how many more they ask"
    return Sheet("actions", title, columns, tuple(records), ("strategy", "prm"))


def _most_frequent(*action_and_share: Any) -> str:
    *action, share_of_all = action_and_share
    return f"{describe_action(*action)} ({share_of_all:.0%})"


def timing_table(times: WallTimes, title: str = "where the time went") -> Table:
    """All parts of an evaluation's time: first the work, then the wall time.

    Files are compressed and written in the background, so that the work may exceed the wall time.
    The share outside policy and PRM is a share of the work. With workers, the work, the loading of
    models and the searching are sums over the workers; loading and searching are shares of the wall
    time times the number of workers.
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
    if times.workers:
        add(f"workers ({times.workers}): loading models", times.loading, times.workers * wall)
        add(f"workers ({times.workers}): searching", times.searching, times.workers * wall)
    else:
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
