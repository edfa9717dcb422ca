"""`cats-jax calibrate`: calibrations of PRMs, from the training questions of a bank."""

from __future__ import annotations

import pathlib

import tyro


def calibrate(
    bank: tyro.conf.Positional[pathlib.Path],
    *,
    output: pathlib.Path,
    held_out: pathlib.Path | None = None,
    likelihood: bool = False,
    seed: int = 0,
) -> int:
    """Fit each PRM's calibration by logistic regression, and write the file that recipes name.

    Args:
        bank: step bank of training questions.
        output: JSON file, replaced if it exists.
        held_out: step bank of other questions, for the figures; default: the bank itself.
        likelihood: weigh a step's likelihood under the policy in place of its siblings' votes, and
            fit the value of a step that the PRM has not scored. Controllers that choose what the
            PRM scores need this.
        seed: random seed of the groups of siblings.
    """
    from rich.markup import escape
    from rich.table import Table

    from ..bank.calibrate import calibrate_bank, write_calibration
    from ..bank.layout import load_bank
    from ..reporting.printing import show_table
    from ..specs.calibrations import NAMES
    from ..storage.durable import check_output
    from .terminal import make_console

    check_output("--output", output)
    loaded = load_bank(bank)
    other = None if held_out is None else load_bank(held_out)
    content = calibrate_bank(loaded, other, likelihood=likelihood, seed=seed)
    write_calibration(output, content)
    names = [name for name in NAMES if any(row[name] != 0.0 for row in content["prms"].values())]
    table = Table(
        "PRM", *(name.replace("_", " ") for name in names), "CE: raw, fitted", "pair: raw, fitted"
    )
    for label, row in content["prms"].items():
        pairs = [", ".join(str(value) for value in row[n]) for n in ("cross_entropy", "pair")]
        numbers = [f"{row[name]:.3f}" for name in names]
        table.add_row(escape(label), *numbers, *pairs)
    console = make_console()
    show_table(console, table)
    console.print(f"calibration: {output}", markup=False, soft_wrap=True)
    return 0
