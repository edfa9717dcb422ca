"""Certificates of runs whose rows are made, without a search."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import made_runs

from cats_jax.evaluation.evaluate import prepare
from cats_jax.models.source import ModelSource
from cats_jax.reporting.certified_configurations import Claim, certify_run
from cats_jax.runs.folder import RunFolder
from cats_jax.specs.recipe import parse_recipe

CERTIFIED: dict[str, Any] = {
    "name": "certified",
    "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
    "prms": ["exact"],
    "calibration": "weak",
    "strategies": ["majority", {"name": "beam", "label": "two", "beam_width": 2}],
    "num_candidates": [4, 8],
    "questions": {"world": "test", "count": 40},
}
"""A recipe of which "two" at N = 8 is right on 36 questions, and the others on 10."""


def write_certificate(
    path: pathlib.Path, models: ModelSource, *, target: float = 0.6, **changes: Any
) -> str:
    """Write the certificate of a recipe's made rows; returns its path."""
    evaluation = prepare(parse_recipe({**CERTIFIED, **changes}), models)
    rows = [
        made_runs.row(
            cell.spec.label,
            cell.num_candidates,
            None if cell.prm is None else cell.prm.label,
            question=item.id,
            correct=i < (36 if (cell.spec.label, cell.num_candidates) == ("two", 8) else 10),
        )
        for cell in evaluation.cells
        for i, item in enumerate(evaluation.questions.questions)
    ]
    run = RunFolder(path.parent, json.loads(json.dumps(evaluation.manifest)), tuple(rows))
    certificate = certify_run(run, Claim(target=target), delta=0.05)
    path.write_text(json.dumps(certificate.as_json()))
    return str(path)
