"""The command `python -m studies.world.results`."""

from __future__ import annotations

import json
import pathlib
import sys

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
            merged = json.dumps(ablations.merge(kept, new), indent=0)
            path.write_text(merged + "\n", encoding="utf-8")
        else:
            path = keep_run(folder, rows)
        print(f"wrote {path}")
    if measure is not None:
        measured = json.dumps(measure_prms(measure, banks), indent=1)
        path = rows / f"bank-{measure}.json"
        path.write_text(measured + "\n", encoding="utf-8")
        print(f"wrote {path}")
    if ranking is not None:
        walked = json.dumps(measure_ranking(ranking, banks), indent=1)
        path = rows / f"ranking-{ranking}.json"
        path.write_text(walked + "\n", encoding="utf-8")
        print(f"wrote {path}")
    for path in make(results):
        print(f"wrote {path}")


if __name__ == "__main__":
    try:
        tyro.cli(study, prog="python -m studies.world.results")
    except BadInputError as error:
        print(f"studies.world.results: {error}", file=sys.stderr)
        sys.exit(2)
