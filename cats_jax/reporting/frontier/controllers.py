"""Trained controllers against the frontier of the strategies that need no training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...errors import BadInputError
from ...runs.folder import Row
from ..groups import Group, Key, Point
from .comparison import FrontierComparison, compare_frontiers
from .difficulty import ByDifficulty, choices_by_difficulty, pilot_scores
from .mixtures import frontier_of

GREEDY = "greedy"
"""Label of the strategy that a controller may be mixed with."""


class Configurations(NamedTuple):
    """Configurations on one set of questions.

    Attributes:
        groups: the configurations.
        score_of: mean path score of a row's finished paths; None if it is not known.
        name: name of the questions in messages of errors, such as the folder of their run.
    """

    groups: Sequence[Group]
    score_of: Callable[[Row], float | None]
    name: str


def compare_controllers(
    validation: Configurations,
    test: Configurations,
    families: Mapping[str, frozenset[str]],
    budgets: Sequence[float],
    cost: str,
) -> dict[tuple[str, str], FrontierComparison]:
    """Compare each controller with the frontier of all strategies that are not controllers.

    Greedy decoding is a point of both frontiers, so that a mixture may leave a share of the
    questions to it.

    Args:
        validation: configurations from which the frontiers are chosen.
        test: configurations on other questions, at least those of the frontiers.
        families: labels of each controller's strategies, by its name.
        budgets: largest mean costs, ascending.
        cost: column of the ledger that is the cost.

    Returns:
        The comparisons by name of the controller and label of the PRM.

    Raises:
        BadInputError: a configuration lacks questions, `test` lacks a configuration, or there is no
            pair of a controller and other strategies.
    """
    for part in (validation, test):
        _check_complete(part)
    controllers = frozenset(label for labels in families.values() for label in labels)
    compared: dict[tuple[str, str], FrontierComparison] = {}
    lacking: dict[str, None] = {}
    with_controller = (group for group in validation.groups if group.strategy in controllers)
    for prm in dict.fromkeys(group.prm for group in with_controller):
        usable = [group for group in validation.groups if group.prm in (None, prm)]
        # Other controllers are not rivals, because rivals need no training.
        untrained = [group for group in usable if group.strategy not in controllers]
        scores = pilot_scores(untrained, validation.score_of)
        rivals = frontier_of([*untrained, *choices_by_difficulty(untrained, scores, cost)], cost)
        for name, labels in families.items():
            trained = [group for group in usable if group.strategy in labels]
            if not trained or not rivals:
                continue
            greedy = [group for group in untrained if group.strategy == GREEDY]
            own = frontier_of([*greedy, *trained], cost)
            on_test, missing = _on_test([*own, *rivals], test)
            lacking |= dict.fromkeys(missing)
            if not missing:
                compared[name, str(prm)] = compare_frontiers(own, rivals, on_test, budgets, cost)
    if lacking:
        raise BadInputError(
            f"--frontier: {test.name!r} lacks what is on the frontier of validation questions: "
            f"search the test questions with {', '.join(lacking)}"
        )
    if not compared:
        raise BadInputError(
            f"--frontier: {validation.name!r} has no trained controller (a strategy 'cats') beside "
            "other strategies"
        )
    return compared


def _on_test(points: Sequence[Point], test: Configurations) -> tuple[dict[Key, Point], list[str]]:
    """The same points on test questions by key, and descriptions of the missing ones."""
    groups_there = {group.key: group for group in test.groups}
    on_test: dict[Key, Point] = {}
    missing: list[str] = []
    scores: dict[Key, dict[str, float]] = {}
    for point in points:
        needs = point.needs if isinstance(point, ByDifficulty) else (point,)
        absent = [_describe(each) for each in needs if each.key not in groups_there]
        missing += absent
        if absent:
            continue
        if not isinstance(point, ByDifficulty):
            on_test[point.key] = groups_there[point.key]
            continue
        pilot = groups_there[point.pilot.key]
        if pilot.key not in scores:
            scores[pilot.key] = pilot_scores([pilot], test.score_of)
        if not scores[pilot.key]:
            missing.append(f"{_describe(pilot)} and 'trees: true'")
        on_test[point.key] = point.elsewhere(groups_there, scores[pilot.key])
    return on_test, missing


def _describe(point: Point) -> str:
    _, _, prm = point.key
    return f"{point.name}{f' with {prm}' if prm else ''}"


def _check_complete(part: Configurations) -> None:
    questions = {question for group in part.groups for question in group.by_question()}
    for group in part.groups:
        lacking = len(questions) - len(group.by_question())
        if lacking:
            raise BadInputError(
                f"--frontier: {part.name!r} lacks {lacking} of {len(questions)} questions of "
                f"{_describe(group)}: finish the run, or leave the configuration out by "
                "--strategies and --num-candidates"
            )
