"""A linear head in a file of its own, over a plain language model."""

import itertools
import json
import math

import pytest
import tiny_models
import torch
from lora import run_beside, save_adapter
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.models import backend
from cats_jax.models.backend import choose_backend
from cats_jax.models.huggingface.model import CausalModel
from cats_jax.models.prm.encoder import StepEncoder
from cats_jax.models.prm.family import choose_format
from cats_jax.models.prm.format import Head, TokenPair
from cats_jax.models.source import ModelFolders, is_judge, is_outcome_model
from cats_jax.protocols import Question, Step
from cats_jax.specs.models import PrmSpec
from cats_jax.specs.recipe import parse_recipe

WEIGHT = torch.randn(1, 64, generator=torch.Generator().manual_seed(3)) / 16
QUESTION, STEPS = "((50*4)-21)+15=?", ["50*4=200", "200-21=179", "179+15=194"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_models.save_model(tmp_path_factory.mktemp("models") / "base", seed=2)


def save_head(path, weight=None, **more):
    weight = WEIGHT if weight is None else weight
    save_file({"weight": weight, **more}, path)
    return path


@pytest.fixture(scope="module")
def by_transformers(base, tmp_path_factory):
    """The plain model, chunks of the path, and the last hidden states of one pass over all."""
    head = save_head(tmp_path_factory.mktemp("head") / "h.safetensors")
    model = AutoModel.from_pretrained(base).eval()
    tokenizer = CausalModel(
        base, device="cpu", dtype="float32", num_threads=1, format=None
    ).tokenizer
    chunks = StepEncoder(choose_format("world", base, head), tokenizer).chunks(QUESTION, STEPS)
    with torch.inference_mode():
        hidden = model(torch.tensor([ids_of(chunks)])).last_hidden_state[0]
    return model, chunks, hidden


def ids_of(chunks):
    return [token for chunk in chunks for token in chunk]


@pytest.mark.parametrize(("bias", "flat"), [(0.7, False), (None, True)])
def test_the_score_is_the_sigmoid_at_the_tag(base, by_transformers, tmp_path, bias, flat):
    more = {} if bias is None else {"bias": torch.tensor([bias])}
    head = save_head(tmp_path / "h.safetensors", WEIGHT[0] if flat else WEIGHT, **more)
    scorer = ModelFolders().prm(PrmSpec(str(base), format="world", head=str(head)))
    path = tuple(Step(text, ()) for text in STEPS)
    ends = [path[: i + 1] for i in range(3)]
    got = scorer.score([Question("q", QUESTION)] * 3, ends).all_scores()
    model, chunks, hidden = by_transformers
    places = [end - 1 for end in itertools.accumulate(map(len, chunks))]
    outputs = hidden @ WEIGHT[0] + (bias or 0.0)
    expected = [1 / (1 + math.exp(-outputs[place].item())) for place in places[-3:]]
    assert got == pytest.approx(expected, abs=1e-5)
    plain = sum(parameter.numel() for parameter in model.parameters())
    assert scorer.num_parameters == plain + 64 + len(more)


def test_sparsity_counts_the_head_as_the_last_layer(base, tmp_path):
    weight = torch.ones(64)
    weight[:16] = 0.0
    head = save_head(tmp_path / "h.safetensors", weight)
    scorer = ModelFolders().prm(PrmSpec(str(base), format="world", head=str(head)))
    assert scorer.sparsity_last_layer == 0.25


def test_with_an_adapter(base, by_transformers, tmp_path):
    head, adapter = save_head(tmp_path / "h.safetensors"), save_adapter(tmp_path / "a", base)
    spec = PrmSpec(str(base), format="world", head=str(head), adapter=str(adapter))
    assert spec.label == "base+a+h"
    path = tuple(Step(text, ()) for text in STEPS)
    scorer = ModelFolders().prm(spec)
    assert scorer.name == spec.label
    (got,) = scorer.score([Question("q", QUESTION)], [path]).all_scores()
    _, chunks, plain = by_transformers
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    run_beside(model, adapter)
    with torch.inference_mode():
        hidden = model.model(torch.tensor([ids_of(chunks)])).last_hidden_state[0]
    assert got == pytest.approx(torch.sigmoid(hidden[-1] @ WEIGHT[0]).item(), abs=1e-5)
    assert abs(got - torch.sigmoid(plain[-1] @ WEIGHT[0]).item()) > 1e-3


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"weight": torch.ones(60)}, r"'weight' has shape \(1, 60\), the .* of 'base' need .*64"),
        ({"weight": torch.ones(2, 64)}, r"shape \(2, 64\), .* need \(1, inputs\): give the head"),
        ({"weight": torch.ones(64), "bias": torch.ones(2)}, r"'bias' has shape \(2,\), .*\(1,\)"),
        ({"weight": torch.ones(64, dtype=torch.int8)}, "'weight' is I8: save it in 16 or 32 bits"),
        ({"w": torch.ones(64)}, "holds 'w': it needs the tensor 'weight', and may have 'bias'"),
        ({"weight": torch.ones(64), "x": torch.ones(1)}, "holds 'weight', 'x': it needs"),
    ],
)
def test_what_is_no_head_is_refused_before_weights_are_read(base, tmp_path, tensors, message):
    save_file(tensors, tmp_path / "h.safetensors")
    with pytest.raises(BadInputError, match=message) as caught:
        ModelFolders().check(
            PrmSpec(str(base), format="world", head=str(tmp_path / "h.safetensors"))
        )
    assert "\n" not in str(caught.value)


def test_no_file_and_other_backends(base, tmp_path, monkeypatch):
    with pytest.raises(BadInputError, match=r"does not exist: give a .safetensors file"):
        ModelFolders().check(PrmSpec(str(base), format="world", head=str(tmp_path / "none")))
    for other in ("vllm", "http://h"):
        with pytest.raises(
            BadInputError, match=r"head='h' has no effect .*leave it out, or take hf"
        ):
            PrmSpec(str(base), backend=other, head="h")
    with pytest.raises(BadInputError, match="unknown key 'head'"):
        parse_recipe({"name": "t", "strategies": ["beam"], "num_candidates": [4],
                      "questions": {"world": "test", "count": 1},
                      "policy": {"path": "weak", "head": "h"}, "prms": ["exact"]})  # fmt: skip
    # "auto" must not drop it.
    monkeypatch.setattr(backend, "count_gpus", lambda: 1)
    monkeypatch.setattr(backend, "has_vllm", lambda: True)
    assert choose_backend(PrmSpec(str(base), backend="auto")).backend == "vllm"
    chosen = choose_backend(PrmSpec(str(base), backend="auto", head="h"))
    assert (chosen.backend, chosen.head) == ("hf", "h")


def test_the_format_says_where_and_needs_no_other_read_out(base, tmp_path):
    head = save_head(tmp_path / "h.safetensors")
    file = tmp_path / "mine.yaml"
    file.write_text('layout: answer\ntag: "\\n\\n"\njoined: false\n')
    with pytest.raises(BadInputError, match="read_out"):
        choose_format(str(file), base)
    assert isinstance(choose_format(str(file), base, head).read_out, Head)
    assert isinstance(choose_format("world", base).read_out, TokenPair)


def test_a_recipe_may_name_a_format_without_read_out(base, tmp_path):
    """The format is also read to tell judges and outcome models from PRMs."""
    file = tmp_path / "f.yaml"
    file.write_text('name: f\nlayout: answer\ntag: "\\n"\n')
    head = save_head(tmp_path / "h.safetensors")
    spec = PrmSpec(path=str(base), head=str(head), format=str(file))
    assert not is_outcome_model(spec)
    assert not is_judge(spec)
    with pytest.raises(BadInputError, match="key 'read_out' is missing"):
        is_outcome_model(PrmSpec(path=str(base), format=str(file)))


def test_the_digest_stands_in_the_manifest(base, tmp_path):
    head = save_head(tmp_path / "h.safetensors")
    spec = PrmSpec(str(base), format="world", head=str(head))
    first = ModelFolders().fingerprint(spec)
    assert first["name"] == "base+h"
    save_head(head, bias=torch.ones(1))
    second = ModelFolders().fingerprint(spec)
    assert (first["sha256"], first["head"]) != (second["sha256"], second["head"])
    assert first["sha256"] == second["sha256"]
    assert "head" not in ModelFolders().fingerprint(PrmSpec(str(base), format="world"))


def test_score_takes_it_on_the_command_line(base, by_transformers, tmp_path):
    head = save_head(tmp_path / "h.safetensors")
    rows, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text(json.dumps({"question": QUESTION, "steps": STEPS}) + "\n")
    command = ["score", "--prm", base, "--prm-format", "world", "--head", head]
    assert cli.run([*map(str, command), "--input", str(rows), "--output", str(output)]) == 0
    _, _, hidden = by_transformers
    scores = json.loads(output.read_text())["scores"]
    assert scores[-1] == pytest.approx(torch.sigmoid(hidden[-1] @ WEIGHT[0]).item(), abs=1e-5)
