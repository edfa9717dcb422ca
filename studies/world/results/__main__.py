"""The command `python -m studies.world.results`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import tyro

from cats_jax.errors import BadInputError

from . import ablations
from .banks import measure_prms
from .pages import make
from .ranking import measure_ranking
from .rows import keep_run


def study(
    keep: tuple[pathlib.Path, ...] = (),
    measure: str | None = None,
    ranking: str | None = None,
    banks: pathlib.Path = pathlib.Path("runs/bank"),
    results: pathlib.Path = pathlib.Path("docs/results"),
) -> None:
    """Make the tables and figures of the study from its kept rows; earlier ones are overwritten.

    Prints each file that was written.

    Args:
        keep: folders of finished runs of `cats-jax evaluate` or `cats-jax ablations`. Their rows
            are added to the kept rows first.
        measure: policy, `weak` or `strong`, on whose step banks the PRMs and their ceilings are
            measured first, which takes minutes.
        ranking: policy on whose step bank walks by different rankings are measured first.
        banks: folder with the banks `POLICY-controller` and `POLICY-test` for `measure`, and with
            `POLICY-controller-deep` for `ranking`.
        results: folder that has `rows`, and to which `tables` and `figures` are written.

    Raises:
        BadInputError: `results` has no `rows`, a folder to keep is no run, or a bank is missing.
    """
    rows = results / "rows"
    if not rows.is_dir():
        raise BadInputError(
            f"{str(results)!r} has no folder 'rows': start the command in the root of the "
            "repository, or name the folder by --results"
        )
    for folder in keep:
        new = ablations.read_results(folder)
        if new:
            path = rows / f"{folder.name}.json"
            kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
            _write(path, ablations.merge(kept, new), 0)
        else:
            print(f"wrote {keep_run(folder, rows)}")
    if measure is not None:
        _write(rows / f"bank-{measure}.json", measure_prms(measure, banks), 1)
    if ranking is not None:
        _write(rows / f"ranking-{ranking}.json", measure_ranking(ranking, banks), 1)
    for path in make(results):
        print(f"wrote {path}")


def _write(path: pathlib.Path, content: Any, indent: int) -> None:
    path.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    try:
        tyro.cli(study, prog="python -m studies.world.results")
    except BadInputError as error:
        print(f"studies.world.results: {error}", file=sys.stderr)
        sys.exit(2)
