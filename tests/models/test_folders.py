"""Paths that hold no model: one line with what is lacking and the way out."""

import pathlib

import pytest

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.models.folders import MissingModelError, check_model_folder
from cats_jax.models.hub import hub_id
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.prm.convert import convert_checkpoint
from cats_jax.models.prm.sparsity import checkpoint_sparsity


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("https://huggingface.co/Qwen/Qwen3-0.6B/tree/main", "Qwen/Qwen3-0.6B"),
        ("https://huggingface.co/Qwen/Qwen3-0.6B/tree/v2", None),  # only main is downloaded
        ("https:/huggingface.co/Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),  # as pathlib has it
        ("hf:google/gemma-3-1b-it", "google/gemma-3-1b-it"),
        ("hf:/google/gemma-3-1b-it", "google/gemma-3-1b-it"),  # likewise, of two slashes
        ("/no/such", None),
        ("no/such/folder", None),
        ("./Qwen/Qwen3", None),
        ("models/Qwen3", None),
        ("models/Qwen3/", None),
        ("there/Qwen3", None),
        ("there/Qwen3/", None),
        ("Qwen/Qwen3/", "Qwen/Qwen3"),
        ("Qwen3", None),
    ],
)
def test_ids_of_the_hub_are_told_from_paths(tmp_path, monkeypatch, path, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert hub_id(path) == expected


_ID = "org/some-model"
_RECIPE = """
strategies: [beam]
num_candidates: [4]
questions: {world: test, count: 2}
"""


@pytest.mark.parametrize(
    "command",
    [
        ("solve", "1+1=?", "--policy", _ID),
        ("solve", "1+1=?", "--prm", _ID),
        ("score", "--prm", _ID, "--input", "rows.jsonl", "--output", "out.jsonl"),
        ("quality", "rows.jsonl", "--prms", _ID),
        ("sparsity", _ID),
        ("convert", _ID, "out"),
        ("evaluate", "policy.yaml"),
        ("evaluate", "prm.yaml"),
        ("bank", "bank.yaml", "--output", "out"),
        ("serve", "policy.yaml", "--port", "0"),
    ],
)
def test_an_id_of_the_hub_is_answered_with_the_line_that_downloads_it(
    tmp_path, monkeypatch, capsys, command
):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("policy.yaml").write_text(f"policy: {_ID}\nprms: [exact]{_RECIPE}")
    pathlib.Path("prm.yaml").write_text(f"prms: [{_ID}]{_RECIPE}")
    pathlib.Path("bank.yaml").write_text(
        f"policy: {_ID}\nprms: [exact]\nquestions: {{world: test, count: 2}}\n"
        "sampling: [{temperature: 1.0, root_draws: 4}]\n"
    )
    pathlib.Path("rows.jsonl").write_text('{"problem": "1+1=?", "steps": ["2"], "label": -1}\n')
    assert cli.run(list(command)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"`hf download {_ID}`" in line
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".jsonl", *[".yaml"] * 3]


def test_from_python_too(tmp_path):
    for load in (HuggingFaceGenerator, checkpoint_sparsity):
        with pytest.raises(MissingModelError, match=f"`hf download {_ID}` "):
            load(_ID)
    with pytest.raises(MissingModelError, match=f"`hf download {_ID}` "):
        convert_checkpoint(_ID, "out")
    (tmp_path / "model.gguf").touch()
    with pytest.raises(MissingModelError, match=r"`cats-jax convert .*/model\.gguf OUT`"):
        convert_checkpoint(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            ["model-Q4_K_M.gguf"],
            r"`cats-jax convert .*/m/model-Q4_K_M.gguf OUT` makes a model folder",
        ),
        (["config.json", "model.gguf"], "holds GGUF files"),
        (["config.json", "pytorch_model.bin"], r"`cats-jax convert .*/m OUT`"),
        (
            ["adapter_config.json", "adapter_model.safetensors"],
            "an adapter alone.*of its base model",
        ),
        (["config.json", "tokenizer.json"], r"no weights: download the release's \*.safetensors"),
        (["model.safetensors"], r"no config.json: copy"),
        (["snapshots/0a1b/config.json"], r"a cache of the Hugging Face hub: give .*snapshots/0a1b"),
        (["Qwen3/config.json"], r"give '.*/m/Qwen3'"),
        ([], r"it needs config.json and \*.safetensors"),
    ],
)
def test_a_folder_without_a_model_is_told_what_it_lacks(tmp_path, files, expected):
    folder = tmp_path / "m"
    folder.mkdir()
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    with pytest.raises(MissingModelError, match=expected) as refused:
        check_model_folder(folder)
    if "pytorch_model.bin" not in files and not any(name.endswith(".gguf") for name in files):
        assert "convert" not in str(refused.value)


def test_a_file_is_not_a_folder(tmp_path):
    for name, match in (
        ("model.safetensors", "is a file: give the folder of a model"),
        ("model.gguf", r"is a GGUF file: `cats-jax convert .*/model\.gguf OUT`"),
    ):
        file = tmp_path / name
        file.touch()
        with pytest.raises(BadInputError, match=match):
            check_model_folder(file)
