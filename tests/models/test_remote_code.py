"""Python code in a model folder never runs, whatever stands on standard input."""

import ast
import io
import json
import pathlib
import shutil
import sys

import pytest

import cats_jax
from cats_jax import cli, world
from cats_jax.models.huggingface import HuggingFaceGenerator, HuggingFaceScorer
from cats_jax.models.prm.family import _tokenizer_facts
from cats_jax.models.prm.format import prm_format

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
def hostile(tmp_path, monkeypatch):
    """A copy of a policy with Python code, not yet named in any `auto_map`, and the code's mark.

    Standard input says yes.
    """
    folder, mark = tmp_path / "hostile", tmp_path / "mark"
    shutil.copytree(world.policy_path("weak"), folder)
    (folder / "own.py").write_text(CODE.format(mark=str(mark)))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 100))
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


def scorer(folder):
    return HuggingFaceScorer(folder, prm_format("world"))


@pytest.mark.parametrize("name", [name_model, name_model_of_a_known_type, name_tokenizer])
def test_a_yes_on_standard_input_runs_nothing(hostile, name, capfd):
    folder, mark = hostile
    name(folder)
    refused = []
    for load in (HuggingFaceGenerator, scorer, _tokenizer_facts):
        try:
            load(folder)
        except Exception as error:
            refused.append(str(error))
    printed = capfd.readouterr()
    assert not mark.exists()
    assert "[y/N]" not in printed.out + printed.err
    assert not any("trust_remote_code=True" in words for words in refused)
    if name is name_model:
        found = [words for words in refused if "needs Python code from the folder itself" in words]
        assert len(found) >= 2


def test_a_dry_run_asks_nothing(hostile, tmp_path, capfd):
    folder, mark = hostile
    name_model(folder)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: hostile\npolicy: {{path: {folder}}}\nprms: [exact]\nstrategies: [greedy]\n"
        "num_candidates: [4]\nquestions: {world: test, count: 1}\n"
    )
    code = cli.run(["evaluate", str(recipe), "--dry-run"])
    printed = capfd.readouterr()
    assert not mark.exists()
    assert "[y/N]" not in printed.out + printed.err
    assert code == 2, printed
    assert "needs Python code from the folder itself" in printed.err
    assert len(printed.err.strip().splitlines()) == 1


def test_every_auto_class_is_told_to_run_no_code():
    """A new call without the argument would ask on the terminal again."""
    checked = 0
    for file in sorted(PRODUCT.rglob("*.py")):
        text = file.read_text()
        if "from_" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
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
