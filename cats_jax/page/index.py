"""The index of each part of a page: configurations, questions and rows, without the trees."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..reporting.appearance import appearances
from ..reporting.groups import Group, groups
from ..reporting.selection import in_question_order, level_of
from ..reporting.sheets import count, share
from ..runs.folder import Row, RunFolder
from .texts import bounded, shortened

_MAX_LABEL, _MAX_ANSWER, _MAX_REASON = 80, 300, 500
_MAX_NOTES = 8
"""Most entries of a question's `meta` that a page shows."""

Question = tuple[str, str]
"""Label of the data set, and id of the question in it."""


def rows_by_question(rows: Iterable[Row]) -> dict[Question, list[Row]]:
    """Rows of each question, in the order of `in_question_order`."""
    found: defaultdict[Question, list[Row]] = defaultdict(list)
    for row in in_question_order(rows):
        found[row.dataset, row.question].append(row)
    return dict(found)


def encode_part(
    run: RunFolder, texts: Mapping[Question, str], places: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """The index of a merged run as JSON values.

    Args:
        run: a run of `merge_runs`, with at least one row.
        texts: text of each question of which a tree was found.
        places: block and place of each tree, by the key of its row.

    Returns:
        A mapping with "name", "facts" (pairs of texts), "strategies" (label, title and colour),
        "configurations" ([index of the strategy, N, PRM, seed]), "questions", "rows" (columns; one
        entry per row, ordered by question and configuration) and "groups" (the summary's rows).
    """
    looks = appearances(row.strategy for row in run.rows)
    labels = list(looks)
    found = groups(run.rows)
    settings = _configurations(found)
    number = {setting: index for index, setting in enumerate(settings)}
    questions = rows_by_question(run.rows)
    columns: dict[str, list[Any]] = {name: [] for name in _ROW}
    for index, rows in enumerate(questions.values()):
        for row in sorted(rows, key=lambda row: number[_setting(row)]):
            values = (index, number[_setting(row)], *_of_row(row), places.get(row.key))
            for name, value in zip(_ROW, values, strict=True):
                columns[name].append(value)
    return {
        "name": shortened(run.manifest["config"]["name"], _MAX_LABEL),
        "facts": _facts(run),
        "strategies": [
            [shortened(label, _MAX_LABEL), shortened(look.title, _MAX_LABEL), look.color]
            for label, look in looks.items()
        ],
        "configurations": [
            [labels.index(strategy), n, prm and shortened(prm, _MAX_LABEL), seed]
            for strategy, n, prm, seed in settings
        ],
        "questions": [
            _question(question, rows[0], texts.get(question))
            for question, rows in questions.items()
        ],
        "rows": columns,
        "groups": [_group(group, labels) for group in found],
    }


_ROW = (
    *("question", "configuration", "answer", "correct", "covered", "status", "reason", "steps"),
    *("candidates", "tokens", "generated", "prm_computed", "flops", "seconds", "tree"),
)

_Setting = tuple[str, int, str | None, int]


def _setting(row: Row) -> _Setting:
    return row.strategy, row.num_candidates, row.prm, row.seed


def _configurations(found: Sequence[Group]) -> list[_Setting]:
    """Settings of all rows: in the order of groups, then by seed."""
    return list(
        dict.fromkeys(
            setting
            for group in found
            for setting in sorted(map(_setting, group.rows), key=operator.itemgetter(3))
        )
    )


def _of_row(row: Row) -> tuple[Any, ...]:
    ledger = row.ledger
    return (
        None if row.answer is None else shortened(row.answer, _MAX_ANSWER),
        int(row.correct),
        int(row.covered),
        row.status,
        shortened(row.reason, _MAX_REASON),
        row.steps,
        ledger.candidates,
        ledger.tokens,
        ledger.generated,
        ledger.prm_computed,
        float(f"{ledger.flops:.3e}"),
        round(ledger.seconds, 3),
    )


def _question(question: Question, row: Row, text: str | None) -> dict[str, Any]:
    dataset, name = question
    notes = [(k, v) for k, v in row.meta.items() if v is not None][:_MAX_NOTES]
    return {
        "id": shortened(name, _MAX_LABEL),
        "dataset": shortened(dataset, _MAX_LABEL),
        "text": None if text is None else bounded(text),
        "gold": shortened(row.gold, _MAX_ANSWER),
        "level": shortened(level_of(row), _MAX_ANSWER) or None,
        "notes": [[shortened(k, _MAX_LABEL), shortened(v, _MAX_ANSWER)] for k, v in notes],
    }


def _group(group: Group, labels: Sequence[str]) -> dict[str, Any]:
    accuracy = group.accuracy()
    return {
        "dataset": shortened(group.dataset, _MAX_LABEL),
        "strategy": labels.index(group.strategy),
        "num_candidates": group.num_candidates,
        "prm": group.prm and shortened(group.prm, _MAX_LABEL),
        "questions": len(group.by_question()),
        "rows": len(group.rows),
        # Rounded here as in tables, because a number that is rounded twice may differ.
        "accuracy": [float(share(x)) for x in (accuracy.value, accuracy.low, accuracy.high)],
        "covered": float(share(group.mean("covered"))),
        **{name: int(count(group.mean(name))) for name in ("tokens", "generated", "prm_computed")},
        "flops": float(f"{group.mean('flops'):.2e}"),
        "seconds": float(share(group.mean("seconds"))),
        "failed": sum(row.status == "failed" for row in group.rows),
    }


def _facts(run: RunFolder) -> list[list[str]]:
    manifest = run.manifest
    questions = manifest["questions"]
    facts = {
        "policy": manifest["models"].get("policy", {}).get("name", ""),
        "PRMs": ", ".join(dict.fromkeys(row.prm for row in run.rows if row.prm is not None)),
        "questions": f"{questions.get('source', '')}, {questions.get('count', '')} questions",
        "started": manifest["created"],
        "cats-jax": manifest["versions"].get("cats-jax", ""),
    }
    return [[name, shortened(value, _MAX_REASON)] for name, value in facts.items() if value]
