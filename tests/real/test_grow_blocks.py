"""A bank that several processes record equals one that a single process records."""

import pathlib
import sys

import pyarrow.parquet as parquet
import pytest

from cats_jax.bank.build import collect_bank
from cats_jax.bank.recipe import load_bank_recipe
from cats_jax.errors import BadInputError
from cats_jax.models.source import ModelFolders
from studies.real import grow_blocks

RECIPE = """
policy: {path: weak, max_step_tokens: 32, max_answer_tokens: 64}
prms: [exact, monte-carlo]
questions: {world: controller, count: 5}
sampling: [{temperature: 0.6, root_draws: 2}, {temperature: 1.0, root_draws: 3}]
revisits_per_prm: 0
"""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Both commands have the same number of questions a block."""
    monkeypatch.setattr(grow_blocks, "BLOCK_SIZE", 2)


@pytest.fixture
def run(monkeypatch):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["grow_blocks", *map(str, arguments)])
        grow_blocks.main()

    return call


def tables(folder: pathlib.Path):
    return {path.name: parquet.read_table(path) for path in folder.glob("*.parquet")}


def test_shares_and_prms_apart_make_the_bank_of_one_process(run, tmp_path):
    recipe, folder = tmp_path / "bank.yaml", tmp_path / "apart"
    recipe.write_text(RECIPE)
    run("begin", recipe, folder)
    run("grow", recipe, folder, "--share", "2/2")
    assert [path.name for path in sorted(folder.glob("questions-*"))] == ["questions-00001.parquet"]
    run("grow", recipe, folder, "--share", "1/2")
    for label in ("monte-carlo", "exact"):
        run("score", recipe, folder, "--prm", label)
    loaded, whole = load_bank_recipe(recipe), tmp_path / "whole"
    collect_bank(loaded, ModelFolders(), whole, block_size=2)
    assert tables(folder) == tables(whole)
    files = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    collect_bank(loaded, ModelFolders(), folder, block_size=2)
    assert files == {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    assert (folder / "sparsity.json").read_bytes() == (whole / "sparsity.json").read_bytes()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("revisits_per_prm: 0\nseed: 3\n", "another config"),
        ("revisits_per_prm: 2\n", "may not choose"),
    ],
)
def test_another_recipe_and_scores_that_choose_are_refused(run, tmp_path, changed, message):
    recipe, folder = tmp_path / "bank.yaml", tmp_path / "apart"
    recipe.write_text(RECIPE)
    run("begin", recipe, folder)
    recipe.write_text(RECIPE.replace("revisits_per_prm: 0\n", changed))
    with pytest.raises(BadInputError, match=message):
        run("grow", recipe, folder)
    assert not list(folder.glob("*.parquet"))
