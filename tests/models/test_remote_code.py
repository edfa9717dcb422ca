"""Python code in a model folder never runs, whatever stands on standard input."""

import ast
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

import cats_jax
from cats_jax import world

PRODUCT = pathlib.Path(cats_jax.__file__).parent

# What a hostile folder would do: leave a file that shows that its code ran.
CODE = """
import pathlib
pathlib.Path({mark!r}).write_text("ran")
from transformers import PretrainedConfig, PreTrainedTokenizerFast
class Own(PretrainedConfig):
    model_type = "own"
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def hostile(tmp_path):
    """A copy of a policy with Python code, not yet named in any `auto_map`, and the code's mark."""
    folder, mark = tmp_path / "hostile", tmp_path / "mark"
    shutil.copytree(world.policy_path("weak"), folder)
    (folder / "own.py").write_text(CODE.format(mark=str(mark)))
    return folder, mark


def change(file, **values):
    settings = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(settings | values))


def name_model(folder):
    names = ("AutoConfig", "AutoModelForCausalLM", "AutoModel")
    change(folder / "config.json", model_type="own", auto_map=dict.fromkeys(names, "own.Own"))


def name_model_of_a_known_type(folder):
    change(folder / "config.json", auto_map={"AutoModelForCausalLM": "own.Own"})


def name_tokenizer(folder):
    change(
        folder / "tokenizer_config.json",
        tokenizer_class="OwnTokenizer",
        auto_map={"AutoTokenizer": [None, "own.OwnTokenizer"]},
    )


LOADS = """
from cats_jax.models.huggingface import HuggingFaceGenerator, HuggingFaceScorer
from cats_jax.models.prm.family import _vocabulary
from cats_jax.models.prm.format import prm_format

def scorer(folder):
    return HuggingFaceScorer(folder, prm_format("world"))


for load in (HuggingFaceGenerator, scorer, _vocabulary):
    try:
        load({folder!r})
    except Exception as error:
        print("refused:", error)
"""


@pytest.mark.parametrize("name", [name_model, name_model_of_a_known_type, name_tokenizer])
def test_a_yes_on_standard_input_runs_nothing(hostile, name):
    folder, mark = hostile
    name(folder)
    done = subprocess.run(
        [sys.executable, "-c", LOADS.format(folder=str(folder))],
        input="y\n" * 100,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not mark.exists()
    assert "[y/N]" not in done.stdout + done.stderr
    assert "trust_remote_code=True" not in done.stdout
    if name is name_model:
        assert done.stdout.count("needs Python code from the folder itself") >= 2


def test_a_dry_run_asks_nothing(hostile, tmp_path):
    folder, mark = hostile
    name_model(folder)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: hostile\npolicy: {{path: {folder}}}\nprms: [exact]\nstrategies: [greedy]\n"
        "num_candidates: [4]\nquestions: {world: test, count: 1}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "cats_jax.cli", "evaluate", str(recipe), "--dry-run"],
        input="y\n" * 100,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert not mark.exists()
    assert "[y/N]" not in done.stdout + done.stderr
    assert done.returncode == 2, done.stdout + done.stderr
    assert "needs Python code from the folder itself" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_every_auto_class_is_told_to_run_no_code():
    """A new call without the argument would ask on the terminal again."""
    checked = 0
    for file in sorted(PRODUCT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = ast.unparse(node.func.value).lower()
            if node.func.attr not in ("from_pretrained", "from_config") or "auto" not in owner:
                continue
            checked += 1
            given = {ast.unparse(each.value) for each in node.keywords if each.arg is None}
            named = {each.arg: ast.unparse(each.value) for each in node.keywords if each.arg}
            assert "LOCAL_FILES" in given or named.get("trust_remote_code") == "False", (
                f"{file}:{node.lineno}: pass **LOCAL_FILES"
            )
    assert checked >= 4
