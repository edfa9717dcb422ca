"""Tables of the comparison of a controller with the frontier of strategies without training."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import BadInputError
from ...runs.folder import RunFolder
from ...runs.merge import check_labels, setting
from ..groups import Group, by_dataset, groups, interval
from ..run_tables import COSTS, Cost, unit
from ..sheets import Column, Record, Sheet, plain, share, signed, signed_span
from .comparison import FrontierComparison, even_budgets
from .controllers import Configurations, compare_controllers
from .difficulty import PILOT, ByDifficulty, mean_path_score
from .mixtures import Mixture

_WHO = (
    Column("controller", ("controller",), plain, 0, left=True),
    Column("PRM", ("prm",), plain, 0, left=True),
)

MOST_SHARED = 0.1
"""Largest share of the test questions that may have the id and answer of a validation question.

In numbered data sets, different questions may have the same number and the same answer.
"""


def frontier_sheets(
    found: Sequence[Group],
    run: RunFolder,
    validation: RunFolder,
    title: str,
    budgets: Sequence[float] = (),
    cost: Cost = "tokens",
) -> list[Sheet]:
    """Each trained controller of a run against the frontier of the strategies without training.

    Args:
        found: groups of one data set of the run.
        run: run on test questions.
        validation: run on other questions of the same policy, on which mixtures are chosen.
        title: what the groups are of.
        budgets: largest mean costs; if empty, they are spaced evenly, in logarithms, between the
            configurations' costs.
        cost: column of the ledger that is the cost.

    Raises:
        BadInputError: the runs differ in settings or share questions, there is no trained
            controller, a configuration lacks questions, or a budget is not positive.
    """
    _check(run, validation, budgets)
    chosen_on = _choose_on(validation, found[0].dataset)
    budgets = sorted(budgets) or even_budgets(chosen_on, cost)
    compared = compare_controllers(
        Configurations(
            chosen_on, functools.partial(mean_path_score, validation), str(validation.folder)
        ),
        Configurations(found, functools.partial(mean_path_score, run), str(run.folder)),
        _families([run, validation]),
        budgets,
        cost,
    )
    notes = (*_notes(chosen_on, found, cost), *_choices(compared, chosen_on))
    return [_by_budget(compared, title, cost, notes), _overall(compared, title, cost)]


def _check(run: RunFolder, validation: RunFolder, budgets: Sequence[float]) -> None:
    where, there = str(validation.folder), str(run.folder)
    settings = [setting(each) for each in (run, validation)]
    differing = [
        name
        for name in settings[0]
        # A mixture may be chosen on replays and tested by searches.
        if name not in ("questions", "step bank") and settings[0][name] != settings[1][name]
    ]
    if differing:
        raise BadInputError(f"--frontier: {where!r} has another {differing[0]} than {there!r}")
    check_labels([run, validation])
    # Ids alone do not identify questions: many data sets number their questions from 0.
    asked, chosen_on = (
        {(row.question, row.gold) for row in each.rows} for each in (run, validation)
    )
    texts = [set(each.manifest.get("texts") or ()) for each in (run, validation)]
    shared = max(len(asked & chosen_on), len(texts[0] & texts[1]))
    if shared > MOST_SHARED * len(asked):
        raise BadInputError(
            f"--frontier: {where!r} has {shared} of the {len(asked)} questions of {there!r}: "
            "choose on questions that are not evaluated on"
        )
    for budget in budgets:
        if not 0.0 < budget < float("inf"):
            raise BadInputError(f"--budgets {budget:g}: must be a positive number")


def _choose_on(validation: RunFolder, dataset: str) -> list[Group]:
    """The validation groups for a data set: those of the same label, or of the only data set."""
    sets = by_dataset(groups(validation.rows))
    if dataset in sets:
        return sets[dataset]
    if len(sets) > 1:
        raise BadInputError(
            f"--frontier: {str(validation.folder)!r} has the data sets {', '.join(sets)}, and none "
            f"is called {dataset!r}: give the data sets of both runs the same labels"
        )
    return next(iter(sets.values()))


def _families(runs: Sequence[RunFolder]) -> dict[str, frozenset[str]]:
    """By name of each trained controller, the labels of its strategies, which differ in price."""
    families: dict[str, set[str]] = {}
    for spec in (spec for run in runs for spec in run.manifest["config"]["strategies"]):
        if spec["name"] == "cats":
            checkpoint = dict(spec["options"]).get("checkpoint", "cats")
            families.setdefault(str(checkpoint), set()).add(spec["label"])
    return {name: frozenset(labels) for name, labels in families.items()}


def _by_budget(
    compared: Mapping[tuple[str, str], FrontierComparison],
    title: str,
    cost: Cost,
    notes: tuple[str, ...],
) -> Sheet:
    axis = COSTS[cost]
    records = tuple(
        {
            "controller": name,
            "prm": prm,
            "budget": meeting.budget,
            **_mixture("own", meeting.own, cost),
            **_mixture("rival", meeting.rival, cost),
            **interval("lead", None if meeting.lead is None else meeting.lead.difference),
        }
        for (name, prm), comparison in compared.items()
        for meeting in comparison.meetings
    )
    columns = (
        *_WHO,
        Column(f"budget, {axis.title}", ("budget",), axis.text, 0),
        Column("its choice", ("own",), plain, 7, left=True),
        Column("accuracy", ("own_accuracy",), share, 3),
        Column(axis.title, (f"own_{cost}",), axis.text, 5),
        Column("rivals' choice", ("rival",), plain, 6, left=True),
        Column("accuracy", ("rival_accuracy",), share, 4),
        Column(axis.title, (f"rival_{cost}",), axis.text, 5),
        Column("lead", ("lead",), signed, 1),
        Column("95 % interval", ("lead_low", "lead_high"), signed_span, 2),
    )
    return Sheet(
        "frontier",
        f"controllers against the frontier of all strategies without training, {title}",
        columns,
        records,
        ("controller", "prm"),
        notes,
    )


def _mixture(name: str, mixture: Mixture | None, cost: Cost) -> dict[str, Any]:
    if mixture is None:
        return dict.fromkeys((name, f"{name}_accuracy", f"{name}_{cost}"))
    return {
        name: mixture.name,
        f"{name}_accuracy": mixture.mean("correct"),
        f"{name}_{cost}": mixture.mean(cost),
    }


def _overall(
    compared: Mapping[tuple[str, str], FrontierComparison], title: str, cost: Cost
) -> Sheet:
    records: list[Record] = []
    for (name, prm), comparison in compared.items():
        leads = [meeting.lead for meeting in comparison.meetings if meeting.lead is not None]
        verdicts = [lead.verdict for lead in leads]
        mean_lead = comparison.mean_lead
        records.append(
            {
                "controller": name,
                "prm": prm,
                **interval("mean_lead", None if mean_lead is None else mean_lead.difference),
                "wins": verdicts.count("wins"),
                "ties": verdicts.count("ties"),
                "losses": verdicts.count("loses"),
                "lowest": min((lead.difference.low for lead in leads), default=None),
                "budgets": len(leads),
            }
        )
    columns = (
        *_WHO,
        Column("mean lead", ("mean_lead",), signed, 1),
        Column("95 % interval", ("mean_lead_low", "mean_lead_high"), signed_span, 2),
        Column("wins/ties/losses", ("wins", "ties", "losses"), "{}/{}/{}".format, 3),
        Column("lowest bound", ("lowest",), signed, 4),
        Column("budgets", ("budgets",), plain, 5),
    )
    return Sheet(
        "frontier_leads",
        "mean lead over the frontier of all strategies without training, over the budgets in "
        f"{unit(cost)}, {title}",
        columns,
        tuple(records),
        ("controller",),
    )


def _choices(
    compared: Mapping[tuple[str, str], FrontierComparison], validation: Sequence[Group]
) -> list[str]:
    """Notes: the configurations in each choice by difficulty, or why such choices are missing."""
    notes: dict[str, None] = {}
    for (_, prm), comparison in compared.items():
        for meeting in comparison.meetings:
            mixture = meeting.rival
            for point in () if mixture is None else (mixture.first, mixture.second):
                if isinstance(point, ByDifficulty):
                    bins = " | ".join(group.name for group in point.chosen)
                    notes[f"{point.name} with {prm}, from the hardest bin: {bins}"] = None
    if any(group.strategy == PILOT and group.rows[0].tree is None for group in validation):
        notes[f"no choice by difficulty where {PILOT} has no trees (trees: true)"] = None
    return list(notes)


def _notes(validation: Sequence[Group], test: Sequence[Group], cost: Cost) -> tuple[str, ...]:
    on_validation, on_test = (len(part[0].by_question()) for part in (validation, test))
    return (
        f"chosen on {on_validation} validation questions, evaluated on {on_test} test questions; a "
        f"budget is a mean of {unit(cost)} on validation",
        "A + 30% B: a coin has B search 30 % of the questions and A the others",
    )
