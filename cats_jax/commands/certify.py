"""`cats-jax certify`: which configurations of a run reach a target, with a guarantee."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import tyro

from ..errors import BadInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..reporting.sheets import Sheet
    from ..runs.folder import Run


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
        against: strategy to compare with, such as best_of_n, at its largest N in the run.
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

    from ..reporting.drawing import FORMATS, drawing, save_figure
    from ..reporting.printing import show_sheet
    from ..reporting.selection import Selection, select_runs
    from ..reporting.sheet_files import output_folder, write_sheets
    from ..runs.folder import read_run
    from ..runs.merge import merge_runs
    from ..storage.durable import whole_text
    from .terminal import make_console

    make = _maker(target, max_loss, against, selective, stopping, delta, order)
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
    show_sheet(make_console(), made.sheet)
    if folder is not None:
        write_sheets([made.sheet], folder)
        with drawing():
            drawn = made.draw()
            for kind in FORMATS:
                save_figure(drawn, folder / f"certificate.{kind}")
        with whole_text(folder / "certificate.json") as file:
            file.write(json.dumps(made.content, indent=1) + "\n")
    return 0 if made.content["chosen"] is not None else 1


class _Made(NamedTuple):
    """A certificate in the three forms that are shown or written."""

    content: dict[str, Any]
    sheet: Sheet
    draw: Callable[[], Figure]


def _maker(
    target: float | None,
    max_loss: float | None,
    against: str | None,
    selective: bool,
    stopping: bool,
    delta: float,
    order: Literal["holm", "descending"],
) -> Callable[[Run], _Made]:
    """The function that makes the options' certificate from a run; BadInputError if they clash."""
    from ..reporting import certified_configurations as configurations
    from ..reporting import selective_answers
    from ..reporting import stopping_thresholds as thresholds

    if stopping:
        if max_loss is None or selective or (target, against) != (None, None) or order != "holm":
            raise BadInputError("--stopping: takes --max-loss E, without other claims and --order")

        def of_stopping(run: Run) -> _Made:
            found = thresholds.certify_stopping(run, max_loss, delta=delta)
            sheet = thresholds.stopping_sheet(found)
            return _Made(found.as_json(), sheet, partial(thresholds.draw_stopping, found))

        return of_stopping
    claim = configurations.Claim(target, max_loss, against)
    if selective:
        if target is None or order != "holm":
            raise BadInputError("--selective: takes --target A, without --max-loss and --order")

        def of_answers(run: Run) -> _Made:
            found = selective_answers.certify_selective(run, target, delta=delta)
            sheet = selective_answers.selective_sheet(found)
            return _Made(found.as_json(), sheet, partial(selective_answers.draw_selective, found))

        return of_answers

    def of_configurations(run: Run) -> _Made:
        found = configurations.certify_run(run, claim, delta=delta, order=order)
        sheet = configurations.certificate_sheet(found)
        return _Made(found.as_json(), sheet, partial(configurations.draw_certificate, found))

    return of_configurations
