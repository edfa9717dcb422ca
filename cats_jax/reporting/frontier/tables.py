"""Tables of the comparison of a controller with the frontier of all other strategies."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import BadInputError
from ...runs.folder import Run
from ..groups import Group, by_dataset, groups
from ..run_tables import COSTS, Cost, interval, unit
from ..sheets import Column, Record, Sheet, plain, share, signed, signed_span
from .comparison import Comparison, Meeting, even_budgets
from .controllers import Searched, compare_controllers
from .difficulty import mean_path_score
from .mixtures import Mixture


def frontier_sheets(
    found: Sequence[Group],
    run: Run,
    validation: Run,
    title: str,
    budgets: Sequence[float] = (),
    cost: Cost = "tokens",
) -> list[Sheet]:
    """Each trained controller of a run against the frontier of the strategies that are none.

    Args:
        found: groups of one data set of the run.
        run: run on test questions.
        validation: run on other questions of the same policy, on which mixtures are chosen.
        title: what the groups are of.
        budgets: largest mean costs; none: evenly spaced between the configurations' costs.
        cost: column of the ledger that is the cost.

    Raises:
        BadInputError: the runs do not fit, the run has no trained controller, a question has no row
            of some configuration, or a budget is not positive.
    """
    _check(run, validation, budgets)
    sets = by_dataset(groups(validation.rows))
    chosen_on = sets.get(found[0].dataset) or next(iter(sets.values()))
    budgets = sorted(budgets) or even_budgets(chosen_on, cost)
    compared = compare_controllers(
        Searched(chosen_on, functools.partial(mean_path_score, validation), str(validation.folder)),
        Searched(found, functools.partial(mean_path_score, run), str(run.folder)),
        _families(run),
        budgets,
        cost,
    )
    notes = _notes(chosen_on, found, cost)
    return [_by_budget(compared, title, cost, notes), _overall(compared, title, cost)]


def _check(run: Run, validation: Run, budgets: Sequence[float]) -> None:
    of_test, of_validation = ({row.question for row in each.rows} for each in (run, validation))
    where = str(validation.folder)
    if run.manifest["models"]["policy"] != validation.manifest["models"]["policy"]:
        raise BadInputError(f"--frontier: {where!r} has another policy than {str(run.folder)!r}")
    shared = len(of_test & of_validation)
    if shared:
        raise BadInputError(
            f"--frontier: {where!r} has {shared} of the questions of {str(run.folder)!r}: choose "
            "on questions that are not judged on"
        )
    for budget in budgets:
        if not 0.0 < budget < float("inf"):
            raise BadInputError(f"--budgets {budget:g}: must be a positive number")


def _families(run: Run) -> dict[str, frozenset[str]]:
    """Labels of the strategies of each trained controller, which differ in price, by its name."""
    families: dict[str, set[str]] = {}
    for spec in run.manifest["config"]["strategies"]:
        if spec["name"] == "cats":
            checkpoint = dict(spec["options"]).get("checkpoint", "cats")
            families.setdefault(str(checkpoint), set()).add(spec["label"])
    return {name: frozenset(labels) for name, labels in families.items()}


def _by_budget(
    compared: Mapping[tuple[str, str], Comparison],
    title: str,
    cost: Cost,
    notes: tuple[str, ...],
) -> Sheet:
    axis = COSTS[cost]
    records = tuple(
        {"controller": name, "prm": prm, **_meeting(meeting, cost)}
        for (name, prm), comparison in compared.items()
        for meeting in comparison.meetings
    )
    columns = (
        Column("controller", ("controller",), plain, 0, left=True),
        Column("PRM", ("prm",), plain, 0, left=True),
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
        f"controllers against the frontier of all other strategies, {title}",
        columns,
        records,
        ("controller", "prm"),
        notes,
    )


def _meeting(meeting: Meeting, cost: Cost) -> dict[str, Any]:
    return {
        "budget": meeting.budget,
        **_mixture("own", meeting.own, cost),
        **_mixture("rival", meeting.rival, cost),
        **interval("lead", None if meeting.lead is None else meeting.lead.difference),
    }


def _mixture(name: str, mixture: Mixture | None, cost: Cost) -> dict[str, Any]:
    if mixture is None:
        return dict.fromkeys((name, f"{name}_accuracy", f"{name}_{cost}"))
    return {
        name: mixture.name,
        f"{name}_accuracy": mixture.mean("correct"),
        f"{name}_{cost}": mixture.mean(cost),
    }


def _overall(compared: Mapping[tuple[str, str], Comparison], title: str, cost: Cost) -> Sheet:
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
        Column("controller", ("controller",), plain, 0, left=True),
        Column("PRM", ("prm",), plain, 0, left=True),
        Column("mean lead", ("mean_lead",), signed, 1),
        Column("95 % interval", ("mean_lead_low", "mean_lead_high"), signed_span, 2),
        Column("wins/ties/losses", ("wins", "ties", "losses"), "{}/{}/{}".format, 3),
        Column("lowest bound", ("lowest",), signed, 4),
        Column("budgets", ("budgets",), plain, 5),
    )
    return Sheet(
        "frontier_leads",
        f"mean lead over the frontier of all other strategies, over the budgets in {unit(cost)}, "
        f"{title}",
        columns,
        tuple(records),
        ("controller",),
    )


def _notes(validation: Sequence[Group], test: Sequence[Group], cost: Cost) -> tuple[str, ...]:
    on_validation, on_test = (len(part[0].by_question()) for part in (validation, test))
    return (
        f"chosen on {on_validation} validation questions, judged on {on_test} test questions; a "
        f"budget is a mean of {unit(cost)} on validation",
        "A + 30% B: a coin has B search 30 % of the questions and A the others",
    )
