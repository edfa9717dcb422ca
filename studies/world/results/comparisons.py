"""Strategies with actions against fixed ones: at equal cost, at equal N, chosen on validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cats_jax.errors import BadInputError
from cats_jax.reporting.groups import Group, best_at_similar_compute, compare
from cats_jax.reporting.statistics import Paired, bootstrap_mean

from .groups import PRMS, SIZES, cell, find, of_seeds, value, value_by_question
from .markdown import Table, at_cost, difference

_VERDICTS = ("wins", "ties", "loses")


def equal_cost_table(name: str, groups: Sequence[Group], labels: Sequence[str], cost: str) -> Table:
    """Each group of some policies against the best fixed strategy of at most 1.25 times its cost.

    `groups` are of one language model; `cost` is a column of the ledger, such as "tokens".
    """
    baselines = [group for group in groups if not group.takes_actions]
    lines = []
    for group in groups:
        rival = group.strategy in labels and best_at_similar_compute(group, baselines, cost)
        if rival:
            result = _compared(group, rival)
            mine, its = (at_cost(one.accuracy().value, one.mean(cost)) for one in (group, rival))
            line = [group.strategy, str(group.num_candidates), str(group.prm), mine]
            line += [f"{rival.name}: {its}", difference(result.difference)]
            lines.append([*line, f"{result.p_value:.2g}", result.verdict])
    header = ["strategy", "N", "PRM", f"its accuracy ({cost})", "best fixed strategy of that cost"]
    return Table(name, [*header, "difference, 95 % interval", "p", "result"], lines)


def verdict_table(name: str, compared: Mapping[str, Table]) -> Table:
    """Wins, ties and losses of each policy in tables of `equal_cost_table`.

    The keys of `compared` are titles, with {} in place of the policy's label.
    """
    lines = []
    for title, table in compared.items():
        for label in dict.fromkeys(line[0] for line in table.lines):
            verdicts = [line[-1] for line in table.lines if line[0] == label]
            lines.append([title.format(label), *_counts(verdicts)])
    return Table(name, ["comparison", *_VERDICTS], lines)


def same_size_table(name: str, groups: Sequence[Group], label: str) -> Table:
    """A policy against each fixed strategy at the same N, over PRMs.

    A cell has wins/ties/losses, the mean difference in accuracy, and how many times the policy's
    tokens the baseline takes.
    """
    lines = [
        [strategy, *(_at_same_size(groups, label, strategy, size) for size in SIZES)]
        for strategy in dict.fromkeys(group.strategy for group in groups if not group.takes_actions)
    ]
    header = ["against", *(f"N = {size}" for size in SIZES)]
    return Table(name, header, [line for line in lines if any(line[1:])])


def _at_same_size(groups: Sequence[Group], label: str, strategy: str, size: int) -> str:
    results, tokens = [], []
    for prm in PRMS:
        mine, other = find(groups, label, size, prm), find(groups, strategy, size, prm)
        if mine is None or other is None:
            return ""
        results.append(_compared(mine, other))
        tokens.append(other.mean("tokens") / mine.mean("tokens"))
    counts = "/".join(_counts([result.verdict for result in results]))
    mean = np.mean([result.difference.value for result in results])
    return f"{counts}, {mean:+.3f}, {np.mean(tokens):.1f}"


def chosen_table(name: str, validation: Sequence[Group], test: Sequence[Group], size: int) -> Table:
    """The fixed strategy of the highest value on validation, on test beside CATS, for each PRM.

    Raises:
        BadInputError: the strategy or CATS was not run on test at N = `size`.
    """
    lines = []
    for prm in PRMS:
        fixed = [
            group
            for group in validation
            if group.prm in (None, prm) and group.num_candidates in (1, size)
            if group.strategy.split("-")[0] != "cats"
        ]
        best = max(fixed, key=value).strategy
        rival, mine = find(test, best, size, prm), find(test, "cats", size, prm)
        if rival is None or mine is None:
            raise BadInputError(
                f"the test rows lack {best!r} or 'cats' at N={size} with PRM {prm!r}: keep a run "
                "of the strategies of the validation rows"
            )
        one, two = value_by_question(mine), value_by_question(rival)
        more = difference(bootstrap_mean([one[question] - two[question] for question in one]))
        seeds = [value(group) for group in of_seeds(test, "cats-seed", size, prm)]
        spread = f"{min(seeds):.3f}-{max(seeds):.3f}" if seeds else ""
        lines.append([prm, best, cell(rival), cell(mine), more, f"{value(rival):.3f}", spread])
    header = ["PRM", "best of validation", "on test", "CATS", "CATS' value minus the rival's"]
    return Table(name, [*header, "the rival's value", "five seeds of CATS"], lines)


def _compared(first: Group, second: Group) -> Paired:
    result = compare(first, second)
    if result is None:
        raise BadInputError(
            f"{first.name} and {second.name} share no question: keep runs of the same questions"
        )
    return result


def _counts(verdicts: Sequence[str]) -> list[str]:
    return [str(verdicts.count(each)) for each in _VERDICTS]
