"""Every field of a model folder's files with a wrong value: read, or one line with the folder."""

import json
import struct

import pytest
from mutations import damaged, mutations, reads_or_refuses
from tiny_models import save_model

from cats_jax.errors import BadInputError
from cats_jax.models.footprint import model_shape
from cats_jax.models.huggingface.model import CausalModel
from cats_jax.models.prm.family import detect_format
from cats_jax.models.prm.sparsity import checkpoint_sparsity
from cats_jax.models.threads import default_threads

_SIZES = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "num_hidden_layers": 1,
}
_SMALL = "config.json", "generation_config.json", "tokenizer_config.json"


@pytest.fixture
def folder(tmp_path):
    return save_model(tmp_path / "m", **_SIZES)


def _load(folder):
    """As a policy: what a run reads before the weights, and the weights."""
    model_shape(folder)
    model = CausalModel(folder, device="cpu", dtype="float32", num_threads=1)
    model.end_ids()
    model.load_weights()


def _read_headers(folder):
    model_shape(folder)
    default_threads(folder, "cpu")
    detect_format(folder)
    checkpoint_sparsity(folder)


def _check(file, contents, *reads):
    """Each content of the file is read, or refused in one line that names the folder."""
    for content in contents:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        for read in reads:
            reads_or_refuses(lambda read=read: read(file.parent), str(file.parent), content)


@pytest.mark.parametrize(
    ("name", "every"), [*[(name, 13) for name in _SMALL], ("tokenizer.json", 53)]
)
def test_a_model_with_one_wrong_value_is_read_or_refused_by_folder(folder, name, every):
    assert reads_or_refuses(lambda: _load(folder), str(folder), "nothing")
    file = folder / name
    whole = file.read_bytes()
    _check(file, [*mutations(json.loads(whole), every), *damaged(whole, 3)], _load)
    file.unlink()
    reads_or_refuses(lambda: _load(folder), str(folder), "no such file")


def test_sizes_are_refused_before_anything_is_made_of_them(folder):
    file = folder / "config.json"
    whole = json.loads(file.read_text())
    for name in _SIZES:
        file.write_text(json.dumps({**whole, name: 1_000_000_000}))
        assert not reads_or_refuses(lambda: _load(folder), str(folder), name)
    # Within the bounds, but transformers would make the layers for a minute.
    whole.pop("layer_types", None)
    file.write_text(json.dumps({**whole, "num_hidden_layers": 10_000}))
    with pytest.raises(BadInputError, match="10000 layers of width 8"):
        _load(folder)


def test_a_header_with_one_wrong_value_is_read_or_refused_by_folder(folder):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    rest = whole[8 + size :]
    headers = (text.encode() for text in mutations(header, 7))
    _check(file, [struct.pack("<Q", len(each)) + each + rest for each in headers], _read_headers)
    _check(file, damaged(whole, 20), _read_headers, _load)


def test_an_index_with_one_wrong_value_is_read_or_refused_by_folder(folder):
    index = folder / "model.safetensors.index.json"
    names = ("model.norm.weight", "model.embed_tokens.weight")
    sound = {
        "metadata": {"total_size": 10},
        "weight_map": dict.fromkeys(names, "model.safetensors"),
    }
    faults = [*mutations(sound), *damaged(json.dumps(sound).encode(), 10)]
    _check(index, faults, _read_headers)
