"""A LoRA adapter: merged equals unmerged, what is refused, and where a run's records have it."""

import dataclasses
import json
import shutil

import pytest
import tiny_models
import torch
from lora import edit, rslora, run_beside, save_adapter
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Conv1D

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.live.method import Origin
from cats_jax.models import merged_folder as merging
from cats_jax.models import source
from cats_jax.models.adapter import Adapter
from cats_jax.models.huggingface.model import CausalModel
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.merged_folder import merged_folder
from cats_jax.models.prm.format import WORLD
from cats_jax.models.prm.sparsity import checkpoint_sparsity
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step
from cats_jax.runs.folder import read_run
from cats_jax.specs.models import PolicySpec, PrmSpec
from cats_jax.specs.recipe import parse_recipe

IDS = torch.tensor([[3, 9, 4, 12, 10, 7, 9, 5]])
HERE = {"device": "cpu", "dtype": "float32", "num_threads": 1, "format": None}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_models.save_model(tmp_path_factory.mktemp("models") / "base", seed=1)


@pytest.fixture
def adapter(base, tmp_path):
    return save_adapter(tmp_path / "sums", base)


def unmerged(base, adapter, scale=None):
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    run_beside(model, adapter, scale)
    return model


def logits(model):
    with torch.inference_mode():
        return model(IDS).logits


def merged(base, adapter):
    """Logits of transformers' model with the weights that the bridge has after loading."""
    ours = CausalModel(base, **HERE, adapter=adapter)
    ours.load_weights()
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    model.load_state_dict(ours.model.state_dict())
    return logits(model)


# --- merged equals unmerged ---


def test_merged_equals_unmerged(base, adapter):
    plain = logits(AutoModelForCausalLM.from_pretrained(base).eval())
    expected = logits(unmerged(base, adapter))
    assert (plain - expected).abs().max() > 0.1
    torch.testing.assert_close(merged(base, adapter), expected, atol=1e-5, rtol=1e-5)


def test_rank_and_alpha_of_single_layers(base, tmp_path):
    """By the ends of their names, but not by ends of a part ("roj")."""
    adapter = save_adapter(
        tmp_path / "ranks",
        base,
        ranks={"layers.1.self_attn.q_proj": 2, "up_proj": 3},
        rank_pattern={r"layers\.1.*q_proj": 2, "up_proj": 3, "roj": 7},
        alpha_pattern={"^model.layers.0.mlp.up_proj": 12, "q_proj": 1.5},
        use_rslora=True,
    )

    def scale(module):
        rank = 3 if "up_proj" in module else 2 if module.endswith("1.self_attn.q_proj") else 4
        alpha = 1.5 if "q_proj" in module else 12 if "0.mlp.up" in module else 6
        return rslora(alpha, rank)

    torch.testing.assert_close(
        merged(base, adapter), logits(unmerged(base, adapter, scale)), atol=1e-5, rtol=1e-5
    )


def test_weights_that_are_stored_with_their_inputs_first(tmp_path):
    layer = Conv1D(6, 4)  # GPT-2's: 4 inputs, 6 outputs
    (tmp_path / "config.json").write_text("{}")
    save_file({"transformer.h.0.c.weight": layer.weight.data}, tmp_path / "model.safetensors")
    a, b = torch.randn(2, 4), torch.randn(6, 2)
    folder = tmp_path / "adapter"
    folder.mkdir()
    names = [f"base_model.model.transformer.h.0.c.lora_{half}.weight" for half in "AB"]
    save_file(dict(zip(names, (a, b), strict=True)), folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "fan_in_fan_out": True}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    x = torch.randn(3, 4)
    expected = layer(x) + 2 * (x @ a.T @ b.T)
    model = torch.nn.ModuleDict({"h": torch.nn.ModuleList([torch.nn.ModuleDict({"c": layer})])})
    Adapter(folder, tmp_path).merge_into(model)
    torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)


def test_bfloat16_is_the_rounded_sum(base, adapter):
    model = CausalModel(base, **(HERE | {"dtype": "bfloat16"}), adapter=adapter)
    model.load_weights()
    name = "model.layers.1.mlp.up_proj.weight"
    weight = load_file(base / "model.safetensors")[name].bfloat16()
    expected = Adapter(adapter, base).merged(name, weight, torch.bfloat16)
    got = model.model.get_parameter(name)
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_factors_of_8_bits_are_their_numbers(base, adapter, dtype):
    """As large as the format takes, with a small lora_alpha: 8 bits need no scale of their own."""
    plain = load_file(base / "model.safetensors")
    name = f"{_Q.removeprefix('base_model.model.')}.weight"

    def round_to_8_bits(tensors):
        tensors.update({key: (t * 64).to(dtype) for key, t in tensors.items()})

    edit(adapter, round_to_8_bits)
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["lora_alpha"] /= 64 * 64
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    tensors = load_file(adapter / "adapter_model.safetensors")
    assert tensors[f"{_Q}.lora_A.weight"].dtype == dtype
    a, b = (tensors[f"{_Q}.lora_{half}.weight"].float() / 64 for half in "AB")
    got = Adapter(adapter, base).merged(name, plain[name], torch.float32)
    torch.testing.assert_close(got, plain[name] + 6 / 4 * (b @ a))


# --- what is refused, before a weight is read ---


def _drop(name):
    return lambda tensors: tensors.pop(name)


_Q = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3', not 'LORA': merge it by the package that"),
        ({"use_dora": True}, "it has use_dora: merge"),
        ({"bias": "all"}, "it has bias 'all': merge"),
        ({"modules_to_save": ["lm_head"]}, "it has modules_to_save: merge"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights 'pissa_niter_4'"),
        ({"r": 8}, "rank 8: take both files from one release"),
        ({"rank_pattern": {"o_proj": 5}}, "rank 5: take both files from one release"),
        ({"r": 0}, "a rank must be a whole number"),
        ({"lora_alpha": "16"}, "lora_alpha must be a number"),
        ({"rank_pattern": {"(a+)+": 4}}, r"pattern '\(a\+\)\+' is more than names of layers"),
        ({"alpha_pattern": {"[": 4}}, "can't be read as an adapter's"),
        ({"fan_in_fan_out": True}, "give the base that it was trained on .*someone/base"),
    ],
)
def test_what_is_not_merged_is_refused_in_one_line(base, tmp_path, changes, message):
    adapter = save_adapter(tmp_path / "a", base, **changes)
    with pytest.raises(BadInputError, match=message) as caught:
        ModelFolders().check(PolicySpec(str(base), adapter=str(adapter)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({f"{_Q}.lora_magnitude_vector": torch.ones(4)}), "is not a lora_A or"),
        (lambda t: t.update({f"{_Q}.lora_A.weight": torch.ones(4, 60)}), "has 60 inputs and 128"),
        (
            lambda t: t.update({f"{_Q}.lora_A.weight": torch.ones(4, 64).to(torch.int8)}),
            "is not a lora_A or",
        ),
        (_drop(f"{_Q}.lora_B.weight"), "one of lora_A and lora_B of 'model.layers.0.self_attn.q"),
        (lambda t: t.clear(), "it holds no tensor"),
        (
            lambda t: t.update(
                {f"base_model.model.h.c_attn.lora_{x}.weight": torch.ones(4, 4) for x in "AB"}
            ),
            "it changes 'h.c_attn', which the base does not store: give the base",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(base, adapter, change, message):
    edit(adapter, change)
    with pytest.raises(BadInputError, match=message):
        ModelFolders().check(PolicySpec(str(base), adapter=str(adapter)))


def test_another_base_a_tied_head_and_a_folder_without_adapter(base, adapter, tmp_path):
    other = tiny_models.save_model(tmp_path / "other", hidden_size=32)
    with pytest.raises(
        BadInputError, match=r"shape \(\d+, 32\) in the base: give the base.*named?"
    ):
        Adapter(adapter, other)

    def head(tensors):
        for half, shape in (("A", (4, 64)), ("B", (len_vocabulary, 4))):
            tensors[f"base_model.model.lm_head.lora_{half}.weight"] = torch.ones(shape)

    len_vocabulary = json.loads((base / "config.json").read_text())["vocab_size"]
    with pytest.raises(BadInputError, match="'lm_head', which the base does not store"):
        Adapter(edit(shutil.copytree(adapter, tmp_path / "h"), head), base)
    stored = shutil.copytree(base, tmp_path / "stored")
    tensors = load_file(stored / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, stored / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInputError, match="lm_head, which the base ties to its embeddings"):
        Adapter(tmp_path / "h", stored)
    # Gemma's class ties the two unless the file says otherwise.
    config = json.loads((stored / "config.json").read_text())
    del config["tie_word_embeddings"]
    (stored / "config.json").write_text(json.dumps(config | {"model_type": "gemma"}))
    with pytest.raises(BadInputError, match="lm_head, which the base ties to its embeddings"):
        Adapter(tmp_path / "h", stored)

    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(
        BadInputError, match=r"no adapter_model.safetensors; adapter_model.bin is a"
    ):
        Adapter(adapter, base)
    with pytest.raises(BadInputError, match=r"adapter folder .* does not exist"):
        Adapter(tmp_path / "none", base)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_number_after_merging(base, adapter, value):
    edit(adapter, lambda tensors: tensors[f"{_Q}.lora_A.weight"].fill_(value))
    model = CausalModel(base, **HERE, adapter=adapter)
    with pytest.raises(BadInputError, match=r"q_proj.weight' holds NaN or infinity when"):
        model.load_weights()


def test_a_server_has_its_own(adapter):
    with pytest.raises(
        BadInputError, match=r"adapter='.*' has no effect with the backend http://h"
    ):
        PolicySpec("m", backend="http://h", adapter=str(adapter))
    with pytest.raises(BadInputError, match="policy: adapter=3: must be the path of a file"):
        _recipe({"path": "weak", "adapter": 3})


# --- sparsity, the copy for engines ---


def test_sparsity_is_that_of_the_merged_weights(base, adapter, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # An adapter that takes away what the base has, in one row.
    weight = load_file(base / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"]

    def cancel(tensors):
        a, b = tensors[f"{_Q}.lora_A.weight"], tensors[f"{_Q}.lora_B.weight"]
        a.zero_()
        b.zero_()
        a[0], b[0, 0] = weight[0], -1 / 1.5

    edit(adapter, cancel)
    scorer = HuggingFaceScorer(base, WORLD, adapter=adapter)
    plain = checkpoint_sparsity(base, WORLD.read_out)
    assert scorer.sparsity_total > plain.total
    assert (
        scorer.sparsity_total
        == checkpoint_sparsity(merged_folder(base, adapter, "float32"), WORLD.read_out).total
    )
    assert scorer.name == "base+sums"


def test_the_copy_is_written_once_and_a_torn_one_is_not_reused(
    base, adapter, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    written = []
    save = merging.save_file
    monkeypatch.setattr(merging, "save_file", lambda *a, **k: written.append(a[1]) or save(*a, **k))
    copy = merged_folder(base, adapter, "float32")
    assert merged_folder(base, adapter, "float32") == copy
    assert len(written) == 1
    assert copy.name == "base+sums"
    expected = logits(unmerged(base, adapter))
    torch.testing.assert_close(
        logits(AutoModelForCausalLM.from_pretrained(copy).eval()), expected, atol=1e-5, rtol=1e-5
    )
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert merged_folder(base, adapter, "float32") == copy
    assert len(written) == 2
    assert merged_folder(base, adapter, "bfloat16") != copy
    # The copy has the tokenizer and the chat template, too.
    newer = tmp_path / base.name
    shutil.copytree(base, newer)
    assert merged_folder(newer, adapter, "float32") == copy
    (newer / "chat_template.jinja").write_text("{{ messages }}")
    assert (merged_folder(newer, adapter, "float32") / "chat_template.jinja").is_file()

    # A write that ends early leaves nothing that would be taken.
    def torn(tensors, path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    other = save_adapter(tmp_path / "other", base, seed=5)
    monkeypatch.setattr(merging, "save_file", torn)
    with pytest.raises(BadInputError, match=r"No space left on device.*use backend hf"):
        merged_folder(base, other, "float32")
    found = {file.parent.name for file in (tmp_path / "cache").rglob("*.safetensors")}
    assert found == {"base+sums"}
    monkeypatch.setattr(merging, "save_file", save)
    assert (merged_folder(base, other, "float32") / "tokenizer.json").is_file()


def test_the_copy_wants_room(base, adapter, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(merging, "_SPARE_BYTES", 1 << 60)
    with pytest.raises(BadInputError, match=r"it needs .* GiB, and .* GiB are free: name another"):
        merged_folder(base, adapter, "float32")


def test_vllm_gets_the_copy(base, adapter, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(source, "_engine_policy", lambda spec, form, folder: folder)
    monkeypatch.setattr(source, "choose_backend", lambda spec: spec)
    spec = PolicySpec(str(base), backend="vllm", device="cpu", adapter=str(adapter))
    assert ModelFolders().policy(spec) == merged_folder(base, adapter, "float32")
    plain = dataclasses.replace(spec, adapter=None)
    assert ModelFolders().policy(plain) == base


# --- a run ---


def _recipe(policy, prm="exact"):
    content = {
        "name": "t",
        "strategies": ["best_of_n"],
        "num_candidates": [2],
        "questions": {"world": "validation", "count": 2},
        "policy": policy,
        "prms": [prm],
        "max_depth": 3,
    }
    return parse_recipe(content)


def _run(folder, base, adapter, prm="exact"):
    policy = {"path": str(base), "adapter": str(adapter), "format": "plain"}
    policy |= {"max_step_tokens": 8, "max_answer_tokens": 16}
    models = ModelFolders()
    evaluation = evaluate.prepare(_recipe(policy, prm), models)
    return evaluate.evaluate(evaluation, models, folder)[0]


def test_a_recipe_runs_with_adapters_and_records_them(base, adapter, tmp_path):
    prm = {"path": str(base), "adapter": str(adapter), "format": "world"}
    run = _run(tmp_path / "run", base, adapter, prm)
    assert len(run.rows) == 2
    assert {row.prm for row in run.rows} == {"base+sums"}
    models = run.manifest["models"]
    assert models["policy"]["name"] == "base+sums"
    assert models["policy"] == models["prm base+sums"]
    assert set(models["policy"]["adapter"]) == {"adapter_config.json", "adapter_model.safetensors"}
    again = read_run(tmp_path / "run")
    _run(tmp_path / "run", base, adapter, prm)  # resumes
    assert read_run(tmp_path / "run").rows == again.rows
    edit(adapter, lambda tensors: tensors[f"{_Q}.lora_A.weight"].mul_(2))
    with pytest.raises(BadInputError, match=r"models\.policy\.adapter\.adapter_model\.safetensors"):
        _run(tmp_path / "run", base, adapter, prm)


def test_a_controller_knows_its_adapter(base, adapter):
    spec = PolicySpec(str(base), adapter=str(adapter))
    known = {"policy": ModelFolders().fingerprint(spec)}
    origin = Origin("mine", models=known)
    assert origin.warning(known) is None
    edit(adapter, lambda tensors: tensors[f"{_Q}.lora_A.weight"].mul_(2))
    other = {"policy": ModelFolders().fingerprint(spec)}
    assert "was not trained with policy 'base+sums'" in (origin.warning(other) or "")
    assert "'base'" in (origin.warning({"policy": {"name": "base"}}) or "")


def test_score_and_solve_take_it_on_the_command_line(base, adapter, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"question": "1+2+3=?", "steps": ["1+2=3", "3+3=6"]}) + "\n")
    loading = ["--prm", base, "--prm-format", "world", "--adapter", adapter]
    command = ["score", *loading, "--input", rows, "--output", tmp_path / "out.jsonl"]
    assert cli.run(list(map(str, command))) == 0
    got = json.loads((tmp_path / "out.jsonl").read_text())["scores"]
    scorer = ModelFolders().prm(PrmSpec(str(base), format="world", adapter=str(adapter)))
    path = (Step("1+2=3", ()), Step("3+3=6", ()))
    ends = [path[:1], path]
    expected = scorer.score([Question("q", "1+2+3=?")] * 2, ends).all_scores()
    assert got == pytest.approx(expected, abs=1e-6)
    command = ["solve", "1+2+3=?", "--policy", base, "--policy-format", "plain", "-n", "2"]
    command += ["--policy-adapter", adapter, "--max-depth", "2", "--max-step-tokens", "8"]
    assert cli.run(list(map(str, command))) in (0, 1)
    (adapter / "adapter_config.json").unlink()
    capsys.readouterr()
    assert cli.run(list(map(str, command))) == 2
    assert "has no adapter_config.json" in capsys.readouterr().err
