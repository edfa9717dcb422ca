"""Sparsity: the count, and the files it is read from."""

import json
import tracemalloc

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cats_jax.cli import run
from cats_jax.errors import BadInputError
from cats_jax.models.prm import sparsity as prms_sparsity
from cats_jax.models.prm.format import PRM_FORMATS, WORLD, Head
from cats_jax.models.prm.sparsity import checkpoint_sparsity
from theory import sparsity as theory_sparsity
from theory.sparsity import measure_sparsity


def test_counts_what_is_strictly_below_the_threshold():
    values = np.array([0.0, -9.9e-5, 1e-4, -1e-4, 1.0, -2.0])
    result = measure_sparsity([("a", values), ("b", np.zeros((2, 3), np.float32))])
    assert dict(result.sizes) == {"a": 6, "b": 6}
    assert dict(result.zeros) == {"a": 2, "b": 6}
    assert result.total == 8 / 12
    assert result.share(["a"]) == 2 / 6


def test_blocks_change_nothing(monkeypatch):
    values = np.random.default_rng(0).normal(scale=2e-4, size=(37, 11))
    expected = (np.abs(values) < 1e-4).mean()
    monkeypatch.setattr(theory_sparsity, "_BLOCK", 10)
    assert measure_sparsity([("a", values)]).total == expected


def test_arrays_are_taken_one_at_a_time():
    alive = 0

    def stream():
        nonlocal alive
        for i in range(5):
            alive += 1
            yield f"t{i}", np.ones(3)
            alive -= 1
            assert alive == 0

    assert measure_sparsity(stream()).total == 0.0


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ([("a", np.ones(2)), ("a", np.ones(2))], "'a' comes twice"),
        ([("a", np.ones(2, np.int64))], "'a' has dtype int64"),
        ([("a", np.array([1.0, np.nan]))], "'a' holds NaN"),
        ([("a", np.array([1.0, np.inf]))], "'a' holds NaN or infinity"),
    ],
)
def test_undefined_input_is_refused(arrays, match):
    with pytest.raises(ValueError, match=match):
        measure_sparsity(arrays)


def test_a_share_of_nothing_is_refused():
    with pytest.raises(ValueError, match="hold no parameter"):
        _ = measure_sparsity([]).total
    with pytest.raises(ValueError, match="'b'"):
        measure_sparsity([("a", np.ones(2))]).share(["b"])


# --- files ---

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_stored_bits_are_compared_as_the_numbers_they_are(tmp_path, dtype):
    """Around the threshold, to the last bit: zeros, denormals, neighbours of 1e-4, large values."""
    edge = torch.tensor(1e-4, dtype=dtype)
    up, down = (torch.full_like(edge, x) for x in (torch.inf, -torch.inf))
    near = [edge]
    for _ in range(3):
        near += [torch.nextafter(near[-1], up)]
    near += [torch.nextafter(edge, down)]
    tiny = torch.finfo(dtype).smallest_normal
    others = torch.tensor([0.0, -0.0, tiny, -tiny / 2, 1.0, -3e4, 9e-5, -2e-4], dtype=dtype)
    values = torch.cat([torch.stack(near), -torch.stack(near), others])
    save_file({"a": values}, tmp_path / "model.safetensors")
    expected = int((values.double().abs() < 1e-4).sum())
    counts = checkpoint_sparsity(tmp_path).counts
    assert (counts.zeros["a"], counts.sizes["a"]) == (expected, len(values))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block", [16, 1 << 20])
def test_streamed_counts_equal_those_of_whole_arrays(tmp_path, monkeypatch, dtype, block):
    monkeypatch.setattr(prms_sparsity, "_BLOCK", block)
    torch.manual_seed(0)
    tensors = {name: torch.randn(size) * 2e-4 for name, size in (("a", (37, 11)), ("b", 1000))}
    tensors = {name: values.to(dtype) for name, values in tensors.items()}
    save_file({**tensors, "scalar": torch.zeros((), dtype=dtype)}, tmp_path / "model.safetensors")
    counts = checkpoint_sparsity(tmp_path).counts
    expected = measure_sparsity([(n, v.double().numpy()) for n, v in tensors.items()])
    assert {n: counts.zeros[n] for n in tensors} == dict(expected.zeros)
    assert counts.sizes == {"a": 407, "b": 1000, "scalar": 1}


def test_memory_is_bounded_by_a_block(tmp_path):
    save_file({"a": torch.zeros(1 << 24, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    tracemalloc.start()
    checkpoint_sparsity(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20  # of 32 MiB


def test_a_sharded_checkpoint_counts_each_tensor_once(tmp_path):
    head = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.bfloat16)
    save_file({"lm_head.weight": head}, tmp_path / "model-1.safetensors")
    body = {"body": torch.zeros(6), "counter": torch.zeros(3, dtype=torch.long)}
    save_file(body, tmp_path / "model-2.safetensors")
    save_file({"stray": torch.zeros(100)}, tmp_path / "adapter.safetensors")
    index = {"lm_head.weight": "model-1.safetensors", "body": "model-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    shares = []
    result = checkpoint_sparsity(tmp_path, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert dict(result.counts.sizes) == {"lm_head.weight": 4, "body": 6}
    assert result.total == 7 / 10
    assert result.last_layer == 1 / 4
    assert result.read_out == ("lm_head.weight",)


def test_an_index_beside_a_file_that_it_does_not_name_is_refused(tmp_path):
    for name in ("model", "model-1"):
        save_file({"body": torch.ones(2)}, tmp_path / f"{name}.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"body": "model-1.safetensors"}}))
    with pytest.raises(BadInputError, match=r"index of other files.*remove model\.safetensors, or"):
        checkpoint_sparsity(tmp_path)
    index.write_text(json.dumps({"weight_map": {"body": "model.safetensors"}}))
    assert dict(checkpoint_sparsity(tmp_path).counts.sizes) == {"body": 2}


def save(folder, config, **tensors):
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return checkpoint_sparsity(folder)


def embedding(values):
    return {"model.embed_tokens.weight": torch.tensor(values)}


def test_a_tied_head_is_the_embedding(tmp_path):
    config = {"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True}
    tensors = {**embedding([0.0, 1.0]), "body": torch.ones(8)}
    result = save(tmp_path, config, **tensors)
    assert (result.total, result.last_layer) == (1 / 10, 1 / 2)
    assert result.read_out == ("model.embed_tokens.weight",)
    # Stored a second time, it does not count again.
    again = save(tmp_path, config, **tensors, **{"lm_head.weight": torch.tensor([0.0, 1.0])})
    assert (again.total, again.last_layer) == (1 / 10, 1 / 2)
    assert again.duplicates == ("lm_head.weight",)
    # The classes of some model types tie the head unless config.json says otherwise.
    both = tensors | {"lm_head.weight": torch.tensor([0.0, 1.0])}
    for model_type, duplicates in (("gemma", ("lm_head.weight",)), ("llama", ()), ("other", ())):
        assert save(tmp_path, {"model_type": model_type}, **both).duplicates == duplicates


def test_an_equal_or_different_head_that_is_not_tied_counts(tmp_path):
    head = {"lm_head.weight": torch.tensor([0.0, 1.0])}
    result = save(tmp_path, {"tie_word_embeddings": False}, **embedding([0.0, 1.0]), **head)
    assert (result.total, result.duplicates) == (2 / 4, ())
    result = save(tmp_path, {"tie_word_embeddings": True}, **embedding([1.0, 1.0]), **head)
    assert (result.total, result.last_layer, result.duplicates) == (1 / 4, 1 / 2, ())


def test_an_unused_head_is_counted_and_named(tmp_path):
    head = {"score.0.weight": torch.zeros(2), "score.0.bias": torch.ones(2)}
    head |= {"score.2.weight": torch.ones(3)}
    result = save(tmp_path, {}, **head, **{"lm_head.weight": torch.zeros(3)})
    assert (result.total, result.last_layer) == (5 / 10, 2 / 7)
    assert result.read_out == ("score.0.weight", "score.0.bias", "score.2.weight")
    assert result.unused == ("lm_head.weight",)
    save(tmp_path, {}, **embedding([1.0]), **{"lm_head.weight": torch.zeros(3)})
    own = checkpoint_sparsity(tmp_path, Head(("lm_head",)))
    assert (own.read_out, own.unused) == (("lm_head.weight",), ())


@pytest.mark.parametrize("architectures", [["Qwen2ForOther"], 5, None])
def test_an_unknown_head_has_a_total_and_a_reason(tmp_path, architectures):
    result = save(tmp_path, {"architectures": architectures}, body=torch.zeros(2))
    assert result.total == 1.0
    assert np.isnan(result.last_layer)
    assert (result.read_out, result.unknown) == (
        (),
        "no language-model head, and the head of no known family",
    )


def test_checkpoints_without_an_answer_are_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"needs config\.json and \*\.safetensors"):
        checkpoint_sparsity(tmp_path)
    save_file({"body": torch.tensor([1.0, float("nan")])}, tmp_path / "model.safetensors")
    with pytest.raises(BadInputError, match="'body' holds NaN"):
        checkpoint_sparsity(tmp_path)
    save_file({"body": -torch.tensor([1.0, torch.inf]).half()}, tmp_path / "model.safetensors")
    with pytest.raises(BadInputError, match="'body' holds NaN or infinity"):
        checkpoint_sparsity(tmp_path)
    save_file({"body": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInputError, match=r"stores no 'lm_head\.weight'"):
        checkpoint_sparsity(tmp_path, WORLD.read_out)
    with pytest.raises(BadInputError, match=r"stores no 'score\.0\.weight'"):
        checkpoint_sparsity(tmp_path, PRM_FORMATS["qwen2.5-math-prm"].read_out)
    save_file({"ids": torch.ones(2, dtype=torch.long)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInputError, match="stores no weights"):
        checkpoint_sparsity(tmp_path)
    with pytest.raises(BadInputError, match="does not exist"):
        checkpoint_sparsity(tmp_path / "none")


def test_quantised_weights_are_refused(tmp_path):
    packed = torch.ones(2).to(torch.float8_e4m3fn)
    save_file({"body": packed}, tmp_path / "model.safetensors")
    with pytest.raises(BadInputError, match="'body' is F8_E4M3"):
        checkpoint_sparsity(tmp_path)
    with pytest.raises(BadInputError, match=r"quantised weights \(config\.json says so\)"):
        save(tmp_path, {"quantization_config": {"bits": 4}}, body=torch.ones(2))


def test_a_truncated_file_is_refused(tmp_path):
    save_file({"body": torch.ones(50)}, tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-20])
    with pytest.raises(BadInputError, match=r"not a complete safetensors file.*download it again"):
        checkpoint_sparsity(tmp_path)


@pytest.mark.parametrize(
    "index",
    ["{", "{}", '{"weight_map": {"a": "../secret.safetensors"}}', '{"weight_map": {"a": 1}}'],
)
def test_a_broken_index_is_refused(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(BadInputError, match="is not an index of shards"):
        checkpoint_sparsity(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    for name in ("a", "b"):
        save_file({"body": torch.ones(2)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(BadInputError, match=r"'body' twice, in a\.safetensors and b\.safetensors"):
        checkpoint_sparsity(tmp_path)


# --- the command ---


def test_the_command_prints_a_table(tmp_path, capsys):
    head = {"v_head.summary.weight": torch.tensor([0.0, 1.0])}
    save(tmp_path, {}, body=torch.zeros(6), **head)
    assert run(["sparsity", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "0.875" in printed
    assert "last layer | 0.5" in printed
    assert "v_head.summary.weight" in printed


def test_the_command_prints_json(tmp_path, capsys):
    save(tmp_path, {}, body=torch.zeros(6))
    assert run(["sparsity", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["total"] == {"share": 1.0, "below": 6, "weights": 6, "tensors": 1}
    assert result["last_layer"] is None
    assert result["notes"] == [
        "no last layer: no language-model head, and the head of no known family; name it by "
        "--prm-format"
    ]


def test_the_command_takes_a_format_from_a_file(tmp_path, capsys):
    save(tmp_path, {}, **{"value.weight": torch.tensor([0.0, 1.0, 1.0, 1.0])})
    file = tmp_path / "mine.yaml"
    file.write_text("layout: text\ntag: x\nread_out: {layers: [value]}\n")
    assert run(["sparsity", str(tmp_path), "--prm-format", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last_layer"]["share"] == 0.25


def test_the_command_refuses_what_is_no_checkpoint(tmp_path, capsys):
    assert run(["sparsity", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
