"""Tables of the compute-optimal choice."""

from __future__ import annotations

from collections.abc import Sequence

from .compute_optimal import ComputeOptimal, compute_optimal
from .groups import Group, identity, interval
from .run_tables import COSTS, IDENTITY, Cost, unit
from .sheets import Column, Sheet, plain, share, signed, signed_span, span


def compute_optimal_sheets(
    found: Sequence[Group], title: str, cost: Cost = "tokens"
) -> tuple[Sheet, Sheet]:
    """Two tables: the choices at each budget over all questions, and the choices of each level.

    Args:
        found, title: groups of one data set, and what they are of.
        cost: cost that the budget limits.

    Raises:
        BadInputError: there are too few questions to choose on one half and evaluate on the other.
    """
    result = compute_optimal(found, cost)
    return _whole(result, title, cost), _by_level(result, title, cost)


def _whole(result: ComputeOptimal, title: str, cost: Cost) -> Sheet:
    records = tuple(
        {
            "budget": at.budget,
            **interval("accuracy", at.by_level.accuracy),
            "own_half": at.by_level.own,
            cost: at.by_level.cost,
            **{f"fixed_{name}": value for name, value in identity(at.fixed.group).items()},
            **interval("fixed_accuracy", at.fixed.accuracy),
            "fixed_own_half": at.fixed.own,
            **interval("difference", at.gain.difference),
        }
        for at in result.budgets
    )
    axis = COSTS[cost]
    columns = (
        Column(f"budget, {axis.title}", ("budget",), axis.text, 0),
        Column("by level", ("accuracy",), share, 1),
        Column("95 % interval", ("accuracy_low", "accuracy_high"), span, 3),
        Column("on its own half", ("own_half",), share, 8),
        Column(axis.title, (cost,), axis.text, 11),
        Column("one for all", ("fixed_accuracy",), share, 2),
        Column("95 % interval", ("fixed_accuracy_low", "fixed_accuracy_high"), span, 10),
        Column("on its own half", ("fixed_own_half",), share, 9),
        Column("which", ("fixed_strategy", "fixed_num_candidates"), "{} N={}".format, 6, left=True),
        Column("its PRM", ("fixed_prm",), plain, 7, left=True),
        Column("difference", ("difference",), signed, 4),
        Column("95 % interval", ("difference_low", "difference_high"), signed_span, 5),
    )
    return Sheet(
        "compute_optimal",
        f"compute-optimal choice (eq. 1), {title}: the best configuration for each level, and one "
        "for all levels",
        columns,
        records,
        notes=_notes(result, cost),
    )


def _notes(result: ComputeOptimal, cost: Cost) -> tuple[str, ...]:
    chosen, judged = (
        sum(len(questions) for questions in half)
        for half in zip(*((h.chosen_on, h.judged_on) for h in result.halves.values()), strict=True)
    )
    notes = [
        f"chosen on {chosen} questions, evaluated on the other {judged}; 'on its own half' is the "
        "accuracy on the questions of the choice, which favours it",
        f"a budget is the largest mean of {unit(cost)} of a question, at each level; budgets at "
        "which no choice changes are left out",
    ]
    if len(result.halves) == 1:
        notes.append("all questions are of one level: there is only one choice")
    if result.single:
        notes.append(f"levels with questions in one half only: {', '.join(result.single)}")
    if result.left_out:
        notes.append(f"configurations without all questions: {', '.join(result.left_out)}")
    return tuple(notes)


def _by_level(result: ComputeOptimal, title: str, cost: Cost) -> Sheet:
    records = []
    for level, half in result.halves.items():
        last = None
        for at in result.budgets:
            choice = at.levels[level]
            if choice.group is last:
                continue
            last = choice.group
            records.append(
                {
                    "level": level,
                    "budget": at.budget,
                    **identity(choice.group),
                    **interval("accuracy", choice.accuracy),
                    "own_half": choice.own,
                    cost: choice.cost,
                    "chosen_on": len(half.chosen_on),
                    "judged_on": len(half.judged_on),
                }
            )
    axis = COSTS[cost]
    columns = (
        Column("level", ("level",), plain, 0),
        Column(f"from {axis.title}", ("budget",), axis.text, 0),
        *IDENTITY,
        Column("accuracy", ("accuracy",), share, 1),
        Column("95 % interval", ("accuracy_low", "accuracy_high"), span, 2),
        Column("on its own half", ("own_half",), share, 3),
        Column(axis.title, (cost,), axis.text, 4),
        Column("questions", ("chosen_on", "judged_on"), "{} + {}".format, 5),
    )
    return Sheet(
        "compute_optimal_levels",
        f"compute-optimal choice of each level, {title}",
        columns,
        tuple(records),
        ("level",),
    )
