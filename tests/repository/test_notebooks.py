"""Notebooks agree with their text, hold their outputs, and run."""

import json
import os
import pathlib
import subprocess
import sys

import jupytext
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def cells(name, suffix):
    notebook = jupytext.read(FOLDER / f"{name}{suffix}")
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_every_text_has_a_notebook():
    texts = {path.stem for path in FOLDER.glob("*.py")} - {"execute"}
    assert texts == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_notebook_and_text_agree(name):
    assert cells(name, ".ipynb") == cells(name, ".py"), "run `make notebooks`"


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_there_and_clean(name):
    text = (FOLDER / f"{name}.ipynb").read_text()
    notebook = json.loads(text)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # From top to bottom in a fresh kernel.
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    kinds = {output["output_type"] for output in outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    # Each cell that computes asserts what the text says of it, somewhere.
    assert sum("assert " in "".join(cell["source"]) for cell in code) >= 3
    assert str(FOLDER.parent) not in text


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs(name):
    command = [sys.executable, str(FOLDER / "execute.py"), "--check", name]
    # As a user runs it: the flag with which tests compile programs that run once is not for it.
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
