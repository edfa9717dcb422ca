"""The build: deterministic, resumable, and what it shipped."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from safetensors import safe_open

from cats_jax import world
from cats_jax.world import task

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = [world.ASSETS / "policies" / name for name in world.POLICY_NAMES] + [
    world.ASSETS / "prms" / name for name in world.PRM_NAMES
]
WORLD = json.loads((world.ASSETS / "world.json").read_text())


def quick_build(output: pathlib.Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "studies.world.models.build", "--quick"]
    command += ["--output", str(output), *arguments]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def files(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_importing_the_world_is_light():
    code = (
        "import sys; from cats_jax import world; from cats_jax.world import task; "
        "print(*[name for name in ('torch', 'transformers', 'tokenizers') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == ""


def test_all_assets_together_are_small():
    total = sum(path.stat().st_size for path in world.ASSETS.rglob("*") if path.is_file())
    assert total < 32e6


def test_there_is_nothing_but_the_named_models():
    for kind, names in (("policies", world.POLICY_NAMES), ("prms", world.PRM_NAMES)):
        assert {path.name for path in (world.ASSETS / kind).iterdir()} == set(names)
    rest = {"world.json", "simulator.json", "controllers", "calibrations"}
    assert {path.name for path in world.ASSETS.iterdir()} == {"policies", "prms", *rest}
    assert len(world.PRM_NAMES) >= 5


@pytest.mark.parametrize("folder", MODELS, ids=lambda path: path.name)
def test_model_folders(folder):
    """Qwen2 in safetensors, fp32, heads of 32 channels, with tokenizer and figures."""
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "qwen2"
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert config["hidden_size"] == 32 * config["num_attention_heads"]
    names = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "tokenizer_config.json", "info.json"} <= names
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in names)
    info = json.loads((folder / "info.json").read_text())
    assert info["name"] == folder.name
    with safe_open(folder / "model.safetensors", "np") as tensors:
        arrays = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    assert {str(array.dtype) for array in arrays.values()} == {"float32"}
    assert sum(array.size for array in arrays.values()) == info["parameters"]
    assert ("lm_head.weight" in arrays) == (info["kind"] == "prm")
    if info["kind"] == "prm":
        small = sum(int((abs(array) < 1e-4).sum()) for array in arrays.values())
        assert info["sparsity_total"] == pytest.approx(small / info["parameters"], abs=1e-6)
        head = float((abs(arrays["lm_head.weight"]) < 1e-4).mean())
        assert info["sparsity_last_layer"] == pytest.approx(head, abs=1e-6)


def test_the_weak_policy_is_weak_but_can():
    weak, strong = (WORLD["policies"][name]["figures"] for name in world.POLICY_NAMES)
    assert 0.15 < weak["pass@1"] < 0.45
    assert weak["pass@256"] > 0.85
    assert strong["pass@1"] > weak["pass@1"] + 0.2


def test_the_prms_differ_and_the_best_verifies():
    pairs = [WORLD["prms"][name]["pair"] for name in world.PRM_FAMILY]
    assert pairs == sorted(pairs, reverse=True)
    assert pairs[0] >= 0.95
    assert pairs[-1] < 0.8
    assert all(WORLD["prms"][name]["pairs"] >= 2000 for name in world.PRM_NAMES)
    best = WORLD["prms"][world.PRM_FAMILY[0]]["best_of_n"]
    best_of_64 = max(best.values(), key=lambda accuracies: accuracies["64"])
    assert best_of_64["64"] > best_of_64["16"] > best_of_64["4"]


def test_prms_that_saw_the_strong_policys_errors_rank_its_steps_better():
    of_strong = {name: figures["strong"]["pair"] for name, figures in WORLD["prms"].items()}
    best_of_family = max(of_strong[name] for name in world.PRM_FAMILY)
    assert of_strong["on-policy"] > best_of_family + 0.1
    assert of_strong["strong-errors"] > of_strong["on-policy"]
    assert WORLD["prms"]["on-policy"]["pair"] > 0.98


def test_paths_of_models():
    assert world.policy_path("weak").is_dir()
    assert world.prm_path(world.PRM_NAMES[0]).is_dir()
    with pytest.raises(ValueError, match=r"unknown policy 'medium'.*known: weak, strong"):
        world.policy_path("medium")
    with pytest.raises(ValueError, match=r"unknown PRM '../policies/weak'.*known: exact"):
        world.prm_path("../policies/weak")


def test_missing_assets_name_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setattr(world, "ASSETS", tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"in the repository with: python -m studies\.world\.models\.build"
    ):
        world.policy_path("weak")


def test_bad_arguments_end_with_usage(capsys):
    from studies.world.models import build

    for arguments, message in (
        (["--stage", "base"], "--stage needs --work"),
        (["--stage", "best", "--work", "x"], "unknown stage 'best'; known: policy-weak"),
    ):
        with pytest.raises(SystemExit) as exit_:
            build.main(arguments)
        assert exit_.value.code == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_second_build_gives_identical_files_also_where_it_was_interrupted(tmp_path, capsys):
    from studies.world.models import build

    # Whole builds have processes of their own. Parts of one run here: importing torch costs more.
    quick_build(tmp_path / "one")
    one = files(tmp_path / "one")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]  # nothing left over
    work = tmp_path / "work"
    again = ["--quick", "--output", str(tmp_path / "out"), "--work", str(work)]
    build.main([*again, "--stage", "paths"])
    assert not (tmp_path / "out").exists()
    made = (work / "policy-weak" / "stage.json").stat().st_mtime_ns
    (work / "pool-weak.partial").mkdir()  # as a killed build leaves it
    quick_build(tmp_path / "out", "--work", str(work))
    assert (work / "policy-weak" / "stage.json").stat().st_mtime_ns == made
    capsys.readouterr()
    build.main(again)
    assert "step" not in capsys.readouterr().out  # nothing was trained anew
    two = files(tmp_path / "out")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    # Another seed is another build from its first stage on.
    other = tmp_path / "other"
    three = ["--quick", "--output", str(tmp_path / "three"), "--work", str(other)]
    build.main([*three, "--stage", "policy-weak", "--seed", "1"])
    weights = "policy-weak/model/model.safetensors"
    assert (other / weights).read_bytes() != (work / weights).read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_shipped_figures_are_reproduced_on_a_sample():
    from transformers import Qwen2ForCausalLM

    from studies.world.models import labels, measure, sampling, training

    training.use_one_thread()
    problems = task.problems("validation", 150, seed=1)  # other questions than the shipped figures'
    policy = Qwen2ForCausalLM.from_pretrained(world.policy_path("weak")).eval()
    samples = sampling.sample_paths(policy, [problem.text for problem in problems], 16, seed=7)
    measured = measure.policy_figures(problems, samples)
    shipped = WORLD["policies"]["weak"]["figures"]
    assert measured["pass@1"] == pytest.approx(shipped["pass@1"], abs=0.07)
    paths = labels.label_paths(problems, samples)
    nodes = measure.siblings(paths)
    # Siblings begin whole paths, so together they cost nothing.
    children, whole = measure.sibling_paths(nodes), [(path.question, path.steps) for path in paths]
    for name in world.PRM_NAMES:
        model = Qwen2ForCausalLM.from_pretrained(world.prm_path(name)).eval()
        shipped = WORLD["prms"][name]
        scores = measure.score_paths(model, children + whole)
        pair = measure.rank_figures(nodes, scores[: len(children)])["pair"]
        assert pair == pytest.approx(shipped["pair"], abs=0.05), name
        exact = [path.exact for path in paths]
        figures = measure.step_figures(scores[len(children) :], exact)
        assert figures["auc"] == pytest.approx(shipped["auc"], abs=0.04), name
        entropy = shipped["cross_entropy"]
        assert figures["cross_entropy"] == pytest.approx(entropy, rel=0.35, abs=0.03), name
