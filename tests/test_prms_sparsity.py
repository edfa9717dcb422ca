"""Sparsity: the count, and the files it is read from."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cats_jax.errors import BadInputError
from cats_jax.prms.format import WORLD
from cats_jax.prms.sparsity import checkpoint_sparsity, last_layer_sparsity
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


def test_a_sharded_checkpoint_counts_each_tensor_once(tmp_path):
    head = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.bfloat16)
    save_file({"lm_head.weight": head}, tmp_path / "model-1.safetensors")
    body = {"body": torch.zeros(6), "counter": torch.zeros(3, dtype=torch.long)}
    save_file(body, tmp_path / "model-2.safetensors")
    save_file({"stray": torch.zeros(100)}, tmp_path / "adapter.safetensors")
    index = {"lm_head.weight": "model-1.safetensors", "body": "model-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    result = checkpoint_sparsity(tmp_path)
    assert dict(result.sizes) == {"lm_head.weight": 4, "body": 6}
    assert result.total == 7 / 10
    assert last_layer_sparsity(result, WORLD) == 1 / 4


def test_a_tied_head_is_the_embedding(tmp_path):
    tensors = {"model.embed_tokens.weight": torch.tensor([0.0, 1.0]), "body": torch.ones(8)}
    save_file(tensors, tmp_path / "model.safetensors")
    result = checkpoint_sparsity(tmp_path)
    assert result.total == 1 / 10
    assert last_layer_sparsity(result, WORLD) == 1 / 2


def test_checkpoints_without_an_answer_are_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"no \*\.safetensors"):
        checkpoint_sparsity(tmp_path)
    save_file({"body": torch.tensor([1.0, float("nan")])}, tmp_path / "model.safetensors")
    with pytest.raises(BadInputError, match="'body' holds NaN"):
        checkpoint_sparsity(tmp_path)
    save_file({"body": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInputError, match="no read-out of format 'world'"):
        last_layer_sparsity(checkpoint_sparsity(tmp_path), WORLD)


def test_a_truncated_file_is_refused(tmp_path):
    save_file({"body": torch.ones(50)}, tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-20])
    with pytest.raises(BadInputError, match="sparsity is undefined"):
        checkpoint_sparsity(tmp_path)
