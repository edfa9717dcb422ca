"""`cats-jax certify`: which configurations of a run reach a target, with a guarantee."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import tyro

from ..errors import BadInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..reporting.sheets import Sheet
    from ..runs.folder import RunFolder


def certify(
    runs: tyro.conf.Positional[tuple[pathlib.Path, ...]],
    *,
    target: float | None = None,
    max_loss: float | None = None,
    against: str | None = None,
    selective: bool = False,
    stopping: bool = False,
    delta: float = 0.05,
    order: Literal["holm", "descending"] = "holm",
    strategies: tuple[str, ...] = (),
    num_candidates: tuple[int, ...] = (),
    prms: tuple[str, ...] = (),
    output: pathlib.Path | None = None,
) -> int:
    """Find the cheapest configuration that reaches a target, with probability 1 - delta.

    The run's questions must not have been used to train or choose anything: PRM, controller,
    calibration, list of configurations or target. Every configuration that is reported counts as a
    test, so name those of interest beforehand.

    Args:
        runs: a finished run folder, or several of the same questions, policy and limits, which are
            taken as one.
        target: certify an accuracy above this.
        max_loss: certify an accuracy that is at most this far below that of --against, or with
            --stopping below that of all N paths.
        against: strategy to compare with, such as best_of_n, at the largest N of those selected.
        selective: abstain below a threshold on the score of an answer: find the lowest threshold at
            which the accuracy of the answered questions is above the target.
        stopping: sample the paths of best-of-N one after the other, and stop at a good score: find
            the lowest score at which the accuracy is at most --max-loss below that of all N paths.
        delta: largest probability that anything that is certified is false.
        order: correction of the tests: holm, or from the largest N to the smallest (descending).
        strategies: labels of the strategies to test; default: all.
        num_candidates: values of N to test; strategies that ignore N stay. Default: all.
        prms: labels of the PRMs to test; strategies without a PRM stay. Default: all.
        output: also write the table to this folder as Markdown, CSV and LaTeX, its figure as PNG,
            SVG and PDF, and certificate.json with the digests of models and questions.
    """
    import json

    from ..reporting.figure_setup import FORMATS, drawing, save_figure
    from ..reporting.printing import show_sheet
    from ..reporting.selection import Selection, select_runs
    from ..reporting.sheet_files import output_folder, write_sheets
    from ..runs.folder import read_run
    from ..runs.merge import merge_runs
    from ..storage.durable import whole_text
    from .terminal import make_console

    make, sheet_of, draw = _steps(target, max_loss, against, selective, stopping, delta, order)
    if not runs:
        raise BadInputError("certify: name at least one run folder, such as runs/NAME")
    found = [read_run(run) for run in runs]
    merged = merge_runs(select_runs(found, Selection(strategies, num_candidates, prms)))
    if len(merged) > 1:
        raise BadInputError(
            f"certify: {str(merged[0].folder)!r} and {str(merged[1].folder)!r} differ in policy, "
            "questions or limits, and a certificate is about one setting: name runs of one"
        )
    (chosen,) = merged
    folder = None if output is None else output_folder(output)
    made = make(chosen)
    content, sheet = made.as_json(), sheet_of(made)
    show_sheet(make_console(), sheet)
    if folder is not None:
        write_sheets([sheet], folder)
        with drawing():
            drawn = draw(made)
            for kind in FORMATS:
                save_figure(drawn, folder / f"certificate.{kind}")
        with whole_text(folder / "certificate.json") as file:
            file.write(json.dumps(content, indent=1) + "\n")
    return 0 if content["chosen"] is not None else 1


def _steps(
    target: float | None,
    max_loss: float | None,
    against: str | None,
    selective: bool,
    stopping: bool,
    delta: float,
    order: Literal["holm", "descending"],
) -> tuple[Callable[[RunFolder], Any], Callable[[Any], Sheet], Callable[[Any], Figure]]:
    """What makes the options' certificate from a run, its table and its figure.

    Raises:
        BadInputError: options clash.
    """
    from ..reporting import certified_configurations as configurations
    from ..reporting import selective_answers as answers
    from ..reporting import stopping_thresholds as thresholds

    if stopping:
        if max_loss is None or selective or (target, against) != (None, None) or order != "holm":
            raise BadInputError("--stopping: takes --max-loss E, without other claims and --order")
        make = partial(thresholds.certify_stopping, max_loss=max_loss, delta=delta)
        return make, thresholds.stopping_sheet, thresholds.draw_stopping
    claim = configurations.Claim(target, max_loss, against)
    if selective:
        if target is None or order != "holm":
            raise BadInputError("--selective: takes --target A, without --max-loss and --order")
        make = partial(answers.certify_selective, target=target, delta=delta)
        return make, answers.selective_sheet, answers.draw_selective
    make = partial(configurations.certify_run, claim=claim, delta=delta, order=order)
    return make, configurations.certificate_sheet, configurations.draw_certificate
