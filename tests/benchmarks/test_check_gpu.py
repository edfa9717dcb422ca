"""The GPU check: reports that go on where they stopped, made models, a rehearsal of all parts."""

import importlib
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]

sys.path.append(str(ROOT / "benchmarks"))
bridge, core, float32, made_models, report = (
    importlib.import_module(f"gpu.{name}")
    for name in ("bridge", "core", "float32", "made_models", "report")
)
check_gpu = importlib.import_module("check_gpu")

_MACHINE = {"device": "a card", "commit": "abc"}


def _report(folder, *, machine=_MACHINE, seconds=60.0, **options):
    return report.Report(folder, "part", machine, seconds, rehearse=True, **options)


def _stored(folder):
    return json.loads((folder / "part.json").read_text())


# Reports


def test_a_row_is_written_as_soon_as_it_is_measured(tmp_path):
    _report(tmp_path).row("first", lambda: {"speed": 3.0})
    assert _stored(tmp_path)["rows"]["first"]["speed"] == 3.0
    assert "| first | 3 |" in (tmp_path / "report.md").read_text()
    assert "a card" in (tmp_path / "report.md").read_text()


def test_a_measured_row_is_not_measured_again(tmp_path):
    _report(tmp_path).row("first", lambda: {"speed": 3.0})
    again = _report(tmp_path)
    again.row("first", lambda: pytest.fail("measured again"))
    again.row("second", lambda: {"speed": 4.0})
    assert list(_stored(tmp_path)["rows"]) == ["first", "second"]


def test_a_failed_row_is_told_and_measured_again(tmp_path):
    def fail():
        raise RuntimeError("out of memory\nand more")

    first = _report(tmp_path)
    first.row("first", fail)
    first.row("second", lambda: {"speed": 4.0})
    assert first.failed == ["first"]
    assert _stored(tmp_path)["rows"]["first"]["error"] == "RuntimeError: out of memory"
    again = _report(tmp_path)
    again.row("first", lambda: {"speed": 3.0})
    assert again.failed == []
    assert _stored(tmp_path)["rows"]["first"]["speed"] == 3.0


def test_a_row_that_takes_longer_than_the_part_is_left_out(tmp_path):
    late = _report(tmp_path, seconds=0.2)
    start = time.monotonic()
    late.row("slow", lambda: time.sleep(20))
    late.row("later", lambda: pytest.fail("begun after the end"))
    assert time.monotonic() - start < 10
    assert late.left_out == ["slow", "later"]
    assert "slow; later" in (tmp_path / "report.md").read_text()
    time.sleep(0.3)  # no alarm is left behind
    again = _report(tmp_path)
    again.row("slow", lambda: {"speed": 1.0})
    again.row("later", lambda: {"speed": 1.0})
    assert _stored(tmp_path)["left_out"] == []


def test_a_row_that_takes_longer_than_a_row_leaves_time_for_the_others(tmp_path):
    part = _report(tmp_path, row_seconds=0.2)
    start = time.monotonic()
    part.row("small", lambda: {"speed": 1.0}, prepare=lambda: time.sleep(0.3))  # not its time
    part.row("slow", lambda: time.sleep(20))
    assert time.monotonic() - start < 10
    assert part.left_out == ["slow"]
    part.row("later", lambda: {"speed": 2.0})
    assert list(_stored(tmp_path)["rows"]) == ["small", "later"]


def test_small_rows_come_first(monkeypatch):
    asked = []
    monkeypatch.setattr(core, "devices", lambda report: (None, None))
    monkeypatch.setattr(core, "crossover", lambda report, name: "")

    class Asked:
        rehearse = False
        row = staticmethod(lambda name, measure: asked.append(int(name.split()[1])))
        note = staticmethod(lambda text: None)

    core.run(Asked())
    assert asked == sorted(asked)
    assert asked[0] < asked[-1]
    for sizes in (bridge.SIZES, [(n,) for n in core.QUESTIONS]):
        assert list(sizes) == sorted(sizes)


def test_figures_of_another_machine_are_refused(tmp_path):
    _report(tmp_path).row("first", lambda: {"speed": 3.0})
    with pytest.raises(report.OtherMachineError, match=r"another commit: choose another folder"):
        _report(tmp_path, machine={**_MACHINE, "commit": "def"})


def test_only_integers_and_flags_must_be_equal():
    ours = [np.array([[1, 2], [3, 4]]), np.array([0.1, 0.2]), np.array([True, False])]
    theirs = [np.array([[1, 2], [3, 5]]), np.array([0.3, 0.4]), np.array([True, False])]
    assert core.num_different(ours, ours) == 0
    assert core.num_different(ours, theirs) == 1


def test_without_a_gpu_a_part_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "environ", dict(os.environ))  # the part sets some of them
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", "core", "--out", str(tmp_path)])
    assert check_gpu.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "sees no CUDA device" in line
    assert "--rehearse" in line


# Made models


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return bridge.MadeModels(tmp_path_factory.mktemp("made"), made_models.TINY, "cpu")


@pytest.fixture(scope="module")
def model(made):
    return float32.causal_model(made.policy_folder(), "cpu", 1)


@pytest.fixture(scope="module")
def plain(made):
    return AutoModelForCausalLM.from_pretrained(made.policy_folder(), dtype=torch.float32)


def test_steps_and_answers_end_like_those_of_text(made, model):
    vocabulary = model.tokenizer.get_vocab()
    separators = [vocabulary[text.replace("\n", "Ċ")] for text in made_models.SEPARATORS]
    unigram = made_models.unigram(vocabulary, made_models.TINY.vocabulary)
    assert float(unigram[separators].exp().sum()) == pytest.approx(1 / 40)
    assert float(unigram[vocabulary[made_models.END]].exp()) == pytest.approx(1 / 160)
    # The model itself: a sample ends with either after 32 tokens on average.
    samples = float32.samples_of(made.policy(dtype="float32"))
    assert 20 < np.mean([len(tokens) for tokens, _ in samples]) < 50


def test_the_models_numbers_depend_on_the_tokens_before(model):
    tokens = torch.tensor([[300, 301, 302, 303], [310, 311, 312, 303]])
    kv = torch.zeros(4, 2, 2, 4, 16)
    mask = torch.full((4, 4), -torch.inf).triu(1).expand(2, 1, 4, 4)
    with torch.inference_mode():
        part = model.part(kv, 0, mask)
        last = model.forward([part], tokens.flatten(), torch.arange(4).repeat(2))
    change = (last[0] - last[1]).std()
    assert 0.02 < float(change) < 2.0


def test_no_layer_writes_to_the_constant_channel(plain):
    seen = []
    plain.model.norm.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.inference_mode():
        plain(torch.arange(300, 340)[None])
    constant, others = seen[0][..., 0], seen[0][..., 1:]
    assert len(constant.unique()) == 1
    assert float(constant[0, 0]) > 5 * float(others.norm(dim=-1).max())


def test_log_probabilities_are_those_of_transformers(model, plain):
    in_one_pass = float32.forced_log_probs(model, one_by_one=False)
    token_by_token = float32.forced_log_probs(model, one_by_one=True)
    np.testing.assert_allclose(in_one_pass, token_by_token, atol=1e-4)
    path = made_models.made_path(4, np.random.default_rng(0))
    ids = model.tokenizer("".join(step.text for step in path))["input_ids"][: float32.TOKENS]
    with torch.inference_mode():
        expected = plain(torch.tensor([ids])).logits.double().log_softmax(-1)[0]
    expected = [float(expected[i, token]) for i, token in enumerate(ids[1:])]
    np.testing.assert_allclose(in_one_pass[0], expected, atol=1e-4)


def test_made_text_has_one_token_per_word(made):
    tokenizer = made.policy()._model.tokenizer
    path = made_models.made_path(2, np.random.default_rng(0))
    for step in path:
        ids = tokenizer(step.text)["input_ids"]
        assert len(ids) == len(step.text.split())
        assert tokenizer.decode(ids) == step.text


def test_shapes_are_those_of_the_published_models():
    # Numbers of parameters of the model cards without embeddings: 0.36, 1.31 and 6.53 billion.
    found = {}
    for name, shape in made_models.SHAPES.items():
        kv = shape.hidden // shape.heads * shape.kv_heads
        layer = 2 * shape.hidden * (shape.hidden + kv) + 3 * shape.hidden * shape.intermediate
        found[name] = round(shape.layers * layer / 1e9, 2)
    assert found == {"0.5b": 0.36, "1.5b": 1.31, "7b": 6.53}


# All parts


_ROWS = {
    "core": ("cats, 2 questions x 4", "beam, 2 questions x 4"),
    "training": ("2 searches x 4",),
    **dict.fromkeys(
        ("bridge-0.5b", "bridge-1.5b", "bridge-7b"),
        ("PRM, 2 questions x 4", "policy, 2 questions x 4"),
    ),
    "float32": (
        "log-probabilities, in one pass",
        "log-probabilities, token by token",
        "PRM's scores",
        "samples",
    ),
    "search": ("core on the CPU",),
}


@pytest.mark.slow
@pytest.mark.timeout(900)  # every part once, and two processes that import JAX and torch
def test_rehearsal(tmp_path):
    script = [sys.executable, str(ROOT / "benchmarks" / "check_gpu.py"), *check_gpu.PARTS]
    options = ["--rehearse", "--out", str(tmp_path), "--minutes", "10", "--row-seconds", "600"]
    done = subprocess.run(
        [*script, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for part in check_gpu.PARTS:  # one test: each worker would rehearse all parts for its own
        check_part(part, json.loads((tmp_path / f"{part}.json").read_text()))
        assert f"## {part}\n" in (tmp_path / "report.md").read_text()


def check_part(part, content):
    assert tuple(content["rows"]) == _ROWS[part]
    assert content["machine"]["rehearsal"] is True
    assert {"torch", "jax", "commit", "python"} <= set(content["machine"])
    for row in content["rows"].values():
        assert "error" not in row
        numbers = [value for value in row.values() if isinstance(value, float)]
        assert all(math.isfinite(value) for value in numbers)
        # Both devices are the same one.
        assert row.get("questions with other integers", 0) == 0
        assert row.get("largest difference", 0.0) == 0.0
        assert row.get("beam failed", 0) == row.get("cats failed", 0) == 0
