"""Writes a page: head, index, then the trees, with one block of them in memory at a time."""

from __future__ import annotations

import base64
import html
import pathlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import search

from ..errors import BadInputError
from ..grading.graders import make_grader, recorded_grader
from ..reporting.figures import write_figures
from ..reporting.groups import by_dataset, groups
from ..reporting.right_path import follow_right_path
from ..reporting.selection import in_question_order
from ..runs.folder import RunFolder
from ..runs.merge import merge_runs
from ..storage import durable
from ..version import __version__
from .assets import Assets, content_security_policy, load_assets
from .blocks import TreeBlocks, block
from .index import Question, encode_part
from .texts import shortened
from .trees import encode_tree

_MAX_TITLE, _MAX_FIGURE = 120, 80


@dataclass(frozen=True)
class PageSize:
    """Bytes of a page's file, its numbers of rows and trees, and the errors of damaged trees."""

    bytes: int
    rows: int
    trees: int
    damaged: tuple[str, ...]


def write_page(runs: Sequence[RunFolder], path: pathlib.Path) -> PageSize:
    """Write the page of runs, each with at least one row, replacing an old file.

    Runs of the same questions, policy and settings are one part of it.

    Raises:
        BadInputError: a run has no row, `merge_runs` refuses the runs, or the file can't be
            written.
    """
    for run in runs:
        if not run.rows:
            raise BadInputError(
                f"page: {str(run.folder)!r} has no finished row yet: leave it out, or wait for one"
            )
    merged = merge_runs(runs)
    assets = load_assets()
    damaged: list[str] = []
    trees = 0
    with tempfile.TemporaryFile("w+", encoding="ascii") as waiting:
        blocks = TreeBlocks(waiting)
        parts = []
        for run in merged:
            texts: dict[Question, str] = {}
            places: dict[str, tuple[int, int]] = {}
            before = len(damaged)
            grader = make_grader(recorded_grader(run.manifest["config"]))
            for row in in_question_order(run.rows):
                if row.tree is None:
                    continue
                try:
                    result = run.tree(row)
                except BadInputError as error:
                    damaged.append(str(error))
                    continue
                texts.setdefault((row.dataset, row.question), result.question.text)
                fate = follow_right_path(run, row, result, grader)
                places[row.key] = blocks.add(encode_tree(result, fate))
            blocks.close_block()
            trees += len(places)
            whole = run if len(damaged) == before else None
            parts.append({**encode_part(run, texts, places), "figures": _figures(run, whole)})
        waiting.seek(0)
        with durable.whole_text(path) as file:
            _write(file, assets, parts, waiting)
    return PageSize(
        bytes=path.stat().st_size,
        rows=sum(len(run.rows) for run in merged),
        trees=trees,
        damaged=tuple(damaged),
    )


def _figures(run: RunFolder, whole: RunFolder | None) -> list[dict[str, str]]:
    """Figures of each data set: {"name", "svg"}, the SVG as base64.

    Those of actions and scores are made only of `whole`, a run whose trees can all be read.
    """
    name = run.manifest["config"]["name"]
    with tempfile.TemporaryDirectory() as folder:
        return [
            {
                "name": shortened(path.stem.replace("-", " "), _MAX_FIGURE),
                "svg": base64.b64encode(path.read_bytes()).decode("ascii"),
            }
            for label, found in by_dataset(groups(run.rows)).items()
            for path in write_figures(
                found, folder, f"{name}{label and f', {label}'}", ("svg",), run=whole
            )
        ]


def _write(file: IO[str], assets: Assets, parts: list[dict[str, Any]], trees: IO[str]) -> None:
    title = shortened(" and ".join(part["name"] for part in parts), _MAX_TITLE)
    figures = [part.pop("figures") for part in parts]
    index = {
        "version": __version__,
        "feature_names": list(search.cats.FEATURE_NAMES),
        "parts": parts,
    }
    values = {
        "policy": html.escape(content_security_policy(assets)),
        "title": html.escape(title),
        "style": f"<style>{assets.style}</style>",
        "index": block("index", index)
        + "".join(block(f"figures-{number}", part) for number, part in enumerate(figures)),
        "scripts": "".join(f"<script>{script}</script>\n" for script in assets.scripts),
    }
    above, below = (
        re.sub(r"\{\{(\w+)\}\}", lambda name: values[name[1]], part)
        for part in assets.template.split("{{trees}}")
    )
    file.write(above)
    shutil.copyfileobj(trees, file)
    file.write(below)
