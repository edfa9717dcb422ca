"""`cats-jax score`: a reward model's scores for a file of solutions."""

from __future__ import annotations

import pathlib

import tyro

from .model_options import PrmOptions


def score(
    *,
    prm: str,
    input: pathlib.Path,
    output: pathlib.Path,
    loading: tyro.conf.OmitArgPrefixes[PrmOptions],
) -> int:
    """Score rows {"question", "steps": [...]}: the same rows, with "scores", one for each step.

    An outcome model reads the steps as one finished answer: its rows have one "score". A row
    without valid scores (a blank step, no step, more tokens than the model has positions) says why
    in "error". The output is written as a whole or not at all. The exit code is 1 if no row could
    be scored.

    Args:
        prm: model folder with safetensors weights of a PRM or an outcome model, a PRM of the
            embedded world, or chat-judge, the model --served-name of the endpoint --backend.
        input: JSONL file.
        output: JSONL file, replaced if it exists.
        loading: how the PRM is loaded.
    """
    from ..models.footprint import Work
    from ..models.hub import fetch_models
    from ..models.source import ModelFolders, check_models, format_to_read, silence_transformers
    from ..protocols import warn_note
    from ..scoring.score_rows import count_rows, score_file
    from ..storage.durable import check_output
    from .progress import ProgressBar
    from .terminal import make_console

    spec = loading.spec(prm)
    fetch_models([spec])
    prm_format = format_to_read(spec)
    check_output("--output", output)
    rows = count_rows(input)
    silence_transformers()
    models = ModelFolders()
    check_models(models, None, [spec], Work())
    scorer = models.prm(spec)
    with ProgressBar(make_console(stderr=True), f"scoring with {scorer.name}", rows) as bar:
        tally = score_file(input, output, scorer, held_tokens=spec.batch_tokens, on_rows=bar.show)
    print(
        f"{tally.rows} rows, {tally.errors} without scores, {tally.tokens} tokens computed, "
        f"format {prm_format.name}: {output}"
    )
    warn_note(scorer)
    return int(tally.errors == tally.rows)
