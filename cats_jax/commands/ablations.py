"""`cats-jax ablations`: trainings that differ in one thing, on a step bank."""

from __future__ import annotations

import pathlib

import tyro


def ablations(
    tables: tyro.conf.Positional[tuple[str, ...]] = (),
    *,
    output: pathlib.Path,
    bank: pathlib.Path,
    test: pathlib.Path,
    calibration: str | None = None,
    actions: str | None = None,
    num_seeds: int = 5,
    num_iterations: int | None = None,
    set: tuple[str, ...] = (),
    seed: int = 0,
) -> int:
    """Train every row of the tables in cats_jax/training/ablations.yaml, and test it on questions.

    Repeat the command to resume a study that was killed.

    Args:
        tables: names of tables; none: all tables.
        output: folder for results and checkpoints.
        bank: step bank to train on.
        test: step bank of the questions that the rows are compared on.
        calibration: calibration of the PRMs: a file of `cats-jax calibrate`, or a policy's name
            such as "weak".
        actions: action table of every row, in place of the configurations' own: "temperature",
            "top-p", "top-k", "narrow" or "ask".
        num_seeds: controllers per row.
        num_iterations: iterations of each training, in place of the configurations' own.
        set: NAME=VALUE for every row, as in `cats-jax train --set`.
        seed: random seed of the trainings and of the tests.
    """
    from rich.table import Table

    from ..reporting.printing import show_table
    from ..training.ablations import PRICE, SIZES, run
    from .terminal import make_console

    console = make_console()
    results = run(
        tables or None,
        output=output,
        bank=bank,
        test=test,
        calibration=calibration,
        actions=actions,
        num_seeds=num_seeds,
        num_iterations=num_iterations,
        settings=set,
        seed=seed,
        report=lambda line: console.print(line, markup=False, soft_wrap=True),
    )
    for name, rows in results.items():
        title = f"{name}: accuracy (candidates); value: accuracy minus {PRICE:g} per 100 candidates"
        table = Table("row", *(f"N={size}" for size in SIZES), title=title, title_justify="left")
        for column in ("value", "95 % over seeds", "entropy", "collapsed"):
            table.add_column(column)
        for row in rows:
            value = row.value()
            table.add_row(
                row.label,
                *(
                    f"{row.accuracy[:, place].mean():.3f} ({row.candidates[:, place].mean():.0f})"
                    for place in range(len(SIZES))
                ),
                f"{value.value:.3f}",
                f"{value.low:.3f} to {value.high:.3f}",
                f"{sum(row.entropy) / len(row.entropy):.2f}",
                f"{sum(row.collapsed)}/{len(row.collapsed)}",
            )
        show_table(console, table)
    return 0
