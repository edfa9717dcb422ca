"""`cats-jax quality`: how good PRMs' scores are on labelled steps."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import tyro

from ..errors import BadInputError
from .model_options import PrmOptions

if TYPE_CHECKING:
    from rich.console import Console

    from ..scoring.labelled import LabelledData
    from ..scoring.quality import GroupQuality
    from ..specs.recipe import PrmSpec

_DELTA = 0.05
_TRUST = 0.85


def quality(
    inputs: tyro.conf.Positional[tuple[pathlib.Path, ...]],
    *,
    prms: tuple[str, ...] = (),
    by: str | None = None,
    neutral: Literal["right", "wrong", "out"] = "right",
    quantile: float = 0.9,
    clip: float = 0.0,
    certified: bool = False,
    calibrated: bool = False,
    delta: float = _DELTA,
    trust: float = _TRUST,
    output: pathlib.Path | None = None,
    plot: pathlib.Path | None = None,
    scored: pathlib.Path | None = None,
    loading: tyro.conf.OmitArgPrefixes[PrmOptions],
) -> int:
    """Cross-entropy, Brier score, AUC, pair accuracy, calibration, risk and epsilon of PRMs.

    Rows are {"question", "steps", "labels"} with labels 1, 0 and null, or those of PRM800K or
    ProcessBench. The figures are for their "scores", one list or a mapping from names of PRMs to
    lists, and for the scores of the PRMs named by --prms.

    Args:
        inputs: JSONL files of labelled steps.
        prms: model folders with safetensors weights, or PRMs of the embedded world, to score the
            steps; the scores that rows have are kept beside them.
        by: column of the rows: each of its values is a group with its own figures.
        neutral: what PRM800K's rating 0 counts as: right, wrong, or no label (out).
        quantile: share of questions on which epsilon holds, in (0, 1].
        clip: scores are clipped to [clip, 1 - clip] for the cross-entropy; with 0 it is infinite
            where a score is certain and wrong.
        certified: also bound each PRM's risk and its gain over the constant score 1, and find the
            lowest score at which a step may be trusted; the questions must not have been used to
            train or choose anything.
        calibrated: with --certified, also bound the risk of each PRM after a calibration of its
            scores, which a random half of the questions fits and the other half certifies.
        delta: with --certified, largest probability that a bound is false.
        trust: with --certified, smallest probability that a trusted step is right.
        output: JSON file for all figures, replaced if it exists.
        plot: file for the calibration curves, .png, .svg or .pdf, replaced if it exists.
        scored: JSONL file for the rows with the scores of all PRMs, for the next call.
        loading: how PRMs are loaded.
    """
    from ..reporting.certificate_premises import check_shares
    from ..reporting.printing import show_sheet
    from ..scoring import quality_report
    from ..scoring.certified_quality import certified_quality, certified_sheets, check_calibrated
    from ..scoring.labelled import read_labelled
    from ..scoring.quality import check_settings
    from ..scoring.quality import quality as figures_of
    from ..scoring.score_labelled import write_labelled
    from .terminal import make_console

    if not inputs:
        raise BadInputError("quality: name at least one file of labelled steps")
    specs = [loading.spec(prm) for prm in prms]
    check_settings(quantile, clip)
    check_shares(delta=delta, trust=trust)
    if calibrated and not certified:
        raise BadInputError("--calibrated certifies calibrated scores: give it with --certified")
    if not certified and (delta, trust) != (_DELTA, _TRUST):
        raise BadInputError("--delta and --trust are those of --certified: give it, too")
    _check_prms(prms, loading, scored)
    _check_outputs(output, plot, scored)
    labelled = read_labelled(inputs, neutral=neutral, by=by)
    _check_names(labelled, specs)
    if calibrated:
        check_calibrated(labelled)  # before PRMs score for hours
    console = make_console()
    say = functools.partial(console.print, markup=False, soft_wrap=True)
    if labelled.num_unlabelled:
        of = f"{labelled.num_unlabelled} of {labelled.num_rows} rows"
        say(f"{of} have no labelled step and are left out")
    errors: list[str] = []
    if specs:
        labelled, errors = _score(labelled, specs)
        if errors:
            say(f"{len(errors)} paths can't be scored, their rows are left out: {errors[0]}")
        if scored is not None:
            write_labelled(scored, labelled, by=by)
    groups = figures_of(labelled, quantile=quantile, clip=clip)
    _show(console, groups, clip)
    bounds = []
    if certified:
        bounds = certified_quality(labelled, delta=delta, trust=trust, calibrated=calibrated)
    for sheet in (sheet for group in bounds for sheet in certified_sheets(group)):
        show_sheet(console, sheet)
    if output is not None:
        content = {
            "kind": "quality",
            "clip": clip,
            "unlabelled_rows": labelled.num_unlabelled,
            "unscored_paths": errors,
            "groups": quality_report.as_json(groups),
            "certified": [dataclasses.asdict(group) for group in bounds],
        }
        _write(output, content)
    if plot is not None:
        quality_report.plot_calibration(groups, plot)
    return 0


def _check_prms(prms: Sequence[str], loading: PrmOptions, scored: pathlib.Path | None) -> None:
    if not prms and (unread := loading.given()):
        raise BadInputError(f"{unread[0]}: is for PRMs that score the steps: name them by --prms")
    if scored is not None and not prms:
        raise BadInputError("--scored keeps new scores: name the PRMs by --prms, or leave it out")
    if len(prms) > 1 and loading.backend not in ("hf", "vllm", "auto"):
        raise BadInputError(
            f"--backend={loading.backend!r} has one PRM: name it alone, and keep its scores by "
            "--scored for the next call"
        )


def _check_outputs(
    output: pathlib.Path | None, plot: pathlib.Path | None, scored: pathlib.Path | None
) -> None:
    from ..reporting.figure_setup import check_suffix
    from ..storage.durable import check_output

    for option, path in (("--output", output), ("--plot", plot), ("--scored", scored)):
        if path is not None:
            check_output(option, path)
    if plot is not None:
        check_suffix("--plot", plot)


def _check_names(labelled: LabelledData, specs: Sequence[PrmSpec]) -> None:
    """Check that there are PRMs, and that no two have one name."""
    names = [*labelled.prms, *(spec.label for spec in specs)]
    if not names:
        raise BadInputError(
            f'{labelled.paths[0].row}: the rows have no "scores": name PRMs to score them by '
            "--prms, or give rows with scores"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(
            f"PRM {twice!r} stands twice among {', '.join(names)}: rename its folder or its scores"
        )


def _show(console: Console, groups: Sequence[GroupQuality], clip: float) -> None:
    """Print the figures of every group."""
    from ..reporting.printing import show_table
    from ..scoring import quality_report

    say = functools.partial(console.print, markup=False, soft_wrap=True)
    for group in groups:
        say(quality_report.describe_group(group))
        for table in quality_report.tables(group):
            show_table(console, table)
    infinite = sum(prm.certain_and_wrong for group in groups for prm in group.prms)
    if infinite and not clip:
        say(
            f"{infinite} scores are exactly 0 or 1 and wrong, which makes a cross-entropy "
            "infinite: --clip 1e-6 bounds it"
        )


def _write(output: pathlib.Path, content: dict[str, Any]) -> None:
    from ..storage.durable import whole_text

    with whole_text(output) as file:
        file.write(json.dumps(content, indent=1, allow_nan=False) + "\n")


def _score(labelled: LabelledData, specs: Sequence[PrmSpec]) -> tuple[LabelledData, list[str]]:
    """The labelled steps with the scores of every PRM, and the reasons why rows have no scores."""
    from ..models.footprint import Work
    from ..models.hub import fetch_models
    from ..models.source import (
        ModelFolders,
        check_models,
        check_scores_steps,
        format_to_read,
        silence_transformers,
    )
    from ..protocols import warn_note
    from ..scoring.score_labelled import add_scores
    from .progress import ProgressBar
    from .terminal import make_console

    silence_transformers()
    fetch_models(specs)
    for spec in specs:  # all are found before the first is loaded
        format_to_read(spec)
    check_scores_steps(specs, "a comparison on labelled steps")
    models = ModelFolders()
    check_models(models, None, specs, Work())
    errors: list[str] = []
    for spec in specs:
        scorer = models.prm(spec)
        title = f"scoring with {spec.label}"
        with ProgressBar(make_console(stderr=True), title, len(labelled.paths)) as bar:
            labelled, new = add_scores(
                labelled, scorer, spec.label, held_tokens=spec.batch_tokens, on_paths=bar.show
            )
        errors += new
        warn_note(scorer)
        del scorer  # before the next one is loaded
    return labelled, errors
