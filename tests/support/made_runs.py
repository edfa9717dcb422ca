"""Run folders that are written row by row, without a search."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Any

from cats_jax.live.ledger import Ledger
from cats_jax.runs.folder import Row, RunFolder, RunWriter, read_run, row_key
from cats_jax.storage.manifest import make_manifest


def row(strategy: str = "beam", n: int = 4, prm: str | None = "good", **changes: Any) -> Row:
    """A row whose key is that of its values."""
    tokens = changes.pop("tokens", 10 * n)
    flops = changes.pop("flops", 1e6 * n)
    fields = {
        "question": "q0",
        "seed": 0,
        "meta": {},
        "answer": "1",
        "gold": "1",
        "correct": True,
        "status": "answered",
        "reason": "",
        "steps": 2,
        **changes,
    }
    return Row(
        key=row_key(strategy, n, prm, fields["seed"], fields["question"]),
        strategy=strategy,
        num_candidates=n,
        prm=prm,
        ledger=Ledger(generated=tokens, flops=flops),
        **fields,
    )


def manifest(
    name: str = "run",
    *,
    strategies: Iterable[Any] = ("beam",),
    prms: Iterable[str] = ("good",),
    policy: str = "weak",
    questions: Any = ({"world": "test", "dataset": None, "label": "world-test"},),
    **config: Any,
) -> dict[str, Any]:
    """A manifest with what reports read. A strategy is a label, or a pair of name and label."""
    pairs = [(item, item) if isinstance(item, str) else item for item in strategies]
    return make_manifest(
        config={
            "name": name,
            "policy": {"path": policy},
            "strategies": [{"name": of, "label": label, "options": []} for of, label in pairs],
            "prms": [{"path": label, "label": label} for label in prms],
            "questions": list(questions),
            **config,
        },
        models={"policy": {"name": policy.rsplit("/", 1)[-1]}},
        questions={"source": "sums", "count": 3, "sha256": "0"},
        seeds=[0],
    )


def write_run(folder: pathlib.Path, rows: Iterable[Row], **changes: Any) -> RunFolder:
    """Write rows to a new run folder, and read it."""
    with RunWriter(folder, manifest(**changes)) as writer:
        for one in rows:
            writer.add(one, None)
    return read_run(folder)


def contents(run: RunFolder) -> dict[str, tuple[Any, ...]]:
    """By key, each row with its tree: all that is the same in two runs of one recipe.

    Seconds and places in the file are left out.
    """
    found = {}
    for one in run.rows:
        tree = run.tree(one)
        ledger = {n: v for n, v in one.ledger.as_dict().items() if not n.endswith("_seconds")}
        content = {**dataclasses.asdict(dataclasses.replace(one, tree=None)), "ledger": ledger}
        found[one.key] = content, tree.candidates, tree.decisions, tree.paths, tree.chosen
    return found
