"""`cats-jax convert`: the released .bin layouts, and files that are not what they say."""

import collections
import contextlib
import hashlib
import io
import json
import os
import pathlib
import sys
import threading

import prm_families
import pytest
import torch
from safetensors.torch import load_file

from cats_jax.cli import run
from cats_jax.errors import BadInputError
from cats_jax.models import shards
from cats_jax.models.prm import convert_worker
from cats_jax.models.prm.convert import RECORD, convert_checkpoint


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    folder = prm_families.math_shepherd(tmp_path_factory.mktemp("bin") / "sharded")
    (folder / "modeling.py").write_text("raise RuntimeError\n")
    return folder


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    return prm_families.skywork(tmp_path_factory.mktemp("bin") / "single")


@pytest.fixture(scope="module")
def from_shards(sharded, tmp_path_factory):
    """(source, target, what was reported, shares shown)."""
    folder = tmp_path_factory.mktemp("converted")
    # A file in the working directory is no module of the worker.
    (folder / "search.py").write_text("raise RuntimeError\n")
    shares = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = convert_checkpoint(sharded, pathlib.Path("out"), progress=shares.append)
    return sharded, folder / "out", done, shares


@pytest.fixture(scope="module")
def by_command(single, tmp_path_factory):
    """(source, target, what was printed)."""
    target = tmp_path_factory.mktemp("out")  # an empty folder is as good as none
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run(["convert", str(single), str(target)]) == 0
    return single, target, printed.getvalue()


def read(folder, pattern, load):
    found = {}
    for file in sorted(folder.glob(pattern)):
        found.update(load(file))
    return found


def sources(folder):
    return read(folder, "*.bin", torch.load)


def results(folder):
    return read(folder, "*.safetensors", load_file)


def test_shards_become_safetensors(from_shards):
    source, target, done, shares = from_shards
    expected, got = sources(source), results(target)
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], expected[name]) for name in expected)
    assert all(got[name].dtype == expected[name].dtype for name in expected)
    assert (done.num_tensors, done.files, done.left_out) == (len(got), ("model.safetensors",), {})
    assert done.num_bytes == sum(tensor.nbytes for tensor in got.values())
    assert shares
    assert all(0.0 <= share <= 1.0 for share in shares)


def test_everything_but_weights_and_code_is_copied(from_shards):
    source, target, *_ = from_shards
    names = {file.name for file in target.iterdir()}
    texts = {"config.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"}
    assert names == {*texts, "model.safetensors", RECORD}
    for name in texts:
        assert (target / name).read_bytes() == (source / name).read_bytes()


def test_the_sources_hashes_are_recorded(by_command):
    source, target, _ = by_command
    record = json.loads((target / RECORD).read_text())
    digest = hashlib.sha256((source / "pytorch_model.bin").read_bytes()).hexdigest()
    assert record["source"] == {"pytorch_model.bin": digest}
    assert record["left_out"] == {"lm_head.weight": "model.embed_tokens.weight"}
    assert record["format"] == 1
    assert record["torch"] == torch.__version__


def test_a_tied_head_is_stored_once(by_command):
    source, target, _ = by_command
    expected, got = sources(source), results(target)
    assert expected.keys() - got.keys() == {"lm_head.weight"}
    assert all(torch.equal(got[name], expected[name]) for name in got)


def save(folder, state, **config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(state, folder / "pytorch_model.bin")
    return folder


@pytest.fixture
def in_process(monkeypatch):
    """The worker called here, without its limit on memory, which would stay."""
    monkeypatch.setattr(convert_worker, "_limit_memory", lambda more: None)


@pytest.mark.usefixtures("in_process")
def test_tensors_that_only_share_memory_are_all_stored(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    state = {
        "model.embed_tokens.weight": whole,
        "lm_head.weight": whole,  # the configuration does not tie it
        "row": whole[1],
        "turned": whole.T,
        "half": whole.bfloat16(),
        "count": torch.tensor(3),
        "none": torch.zeros(0),
    }
    convert_worker.convert(save(tmp_path / "in", state), tmp_path, ["pytorch_model.bin"])
    got = results(tmp_path)
    assert got.keys() == state.keys()
    assert all(torch.equal(got[name], state[name]) for name in state)
    assert got["half"].dtype == torch.bfloat16


@pytest.mark.usefixtures("in_process")
def test_a_head_that_differs_from_the_embedding_stays(tmp_path):
    state = {"model.embed_tokens.weight": torch.zeros(2, 2), "lm_head.weight": torch.ones(2, 2)}
    folder = save(tmp_path / "in", state, tie_word_embeddings=True)
    done = convert_worker.convert(folder, tmp_path, ["pytorch_model.bin"])
    assert (done["num_tensors"], done["left_out"]) == (2, {})


@pytest.mark.usefixtures("in_process")
def test_large_checkpoints_are_written_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "_SHARD_BYTES", 100)
    state = {f"t{i}": torch.full((20,), float(i)) for i in range(3)}
    folder = save(tmp_path / "in", state)
    report = convert_worker.convert(folder, tmp_path, ["pytorch_model.bin"])
    assert report["files"] == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 240
    for name, file in index["weight_map"].items():
        assert torch.equal(load_file(tmp_path / file)[name], state[name])


# --- files that are not what they say ---


class Evil:
    """A pickle of this writes a file when it is loaded."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


class Huge:
    """A pickle of this asks for more than the limit, but not for more than machines have."""

    def __reduce__(self):
        return bytearray, (6 << 30,)


def refused(folder, tmp_path, match, **limits):
    target = tmp_path / "out"
    with pytest.raises(BadInputError, match=match) as caught:
        convert_checkpoint(folder, target, **limits)
    assert "\n" not in str(caught.value)
    assert not target.exists()
    assert not list(tmp_path.glob("out.partial-*"))


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("how", ["torch", "legacy"])
def test_a_malicious_pickle_is_not_run(tmp_path, how):
    marker = tmp_path / "was-run"
    state = collections.OrderedDict(weight=torch.ones(2), evil=Evil(marker))
    folder = save(tmp_path / "in", {"weight": torch.ones(2)})
    file = folder / "pytorch_model.bin"
    torch.save(state, file, _use_new_zipfile_serialization=how == "torch")
    if how == "torch":
        refused(folder, tmp_path, "asks for 'posix.system' while it is read.*nothing was run")
    else:
        worker_refuses(folder, [file.name], "is not a zip file")
    assert not marker.exists()
    # The marker works: a plain load runs the code.
    torch.load(file, weights_only=False)
    assert marker.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on address space")
def test_memory_is_limited(tmp_path):
    folder = save(tmp_path / "in", {"weight": torch.ones(2), "huge": Huge()})
    refused(folder, tmp_path, "asks for far more memory than its files hold")


def test_time_is_limited(sharded, tmp_path):
    refused(sharded, tmp_path, "more than 0 s to convert.*--max-seconds", max_seconds=0.01)


def worker_refuses(folder, names, match):
    with pytest.raises(convert_worker.Refusal, match=match) as caught:
        convert_worker.convert(folder, folder, names)
    assert "\n" not in str(caught.value)
    assert not list(folder.glob("*.safetensors"))


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("state", "match"),
    [
        ([torch.ones(2)], "holds a list, not tensors by name"),
        ({"model": {"weight": torch.ones(2)}}, "holds 'model', which is not a named tensor"),
        ({"weight": torch.eye(3).to_sparse()}, "holds 'weight', which is not a plain tensor"),
        ({}, "it holds no tensor"),
        (
            {"weight": torch.zeros(1).expand(1 << 40)},
            "claim 4398046511104 bytes, its files have",
        ),
    ],
)
def test_what_is_no_dictionary_of_tensors_is_refused(tmp_path, state, match):
    worker_refuses(save(tmp_path / "in", state), ["pytorch_model.bin"], match)


@pytest.mark.usefixtures("in_process")
def test_broken_files_are_refused(tmp_path):
    folder = save(tmp_path / "in", {"weight": torch.ones(1000)})
    file = folder / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:-500])
    worker_refuses(folder, [file.name], "is not a complete checkpoint file|is not a zip file")
    file.write_bytes(b"")
    worker_refuses(folder, [file.name], "is not a complete checkpoint file|is not a zip file")


def test_shards_are_checked(sharded, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    index = "pytorch_model.bin.index.json"
    (folder / index).write_bytes((sharded / index).read_bytes())
    refused(folder, tmp_path, "names 'pytorch_model-00001-of-00002.bin', which is not there")
    (folder / index).write_text('{"weight_map": {"a": "../x.bin"}}')
    refused(folder, tmp_path, "is not an index of shards")


@pytest.mark.usefixtures("in_process")
def test_a_tensor_in_two_shards_is_refused(tmp_path):
    folder = save(tmp_path / "in", {"weight": torch.ones(2)})
    for name in ("a.bin", "b.bin"):
        (folder / name).write_bytes((folder / "pytorch_model.bin").read_bytes())
    worker_refuses(folder, ["a.bin", "b.bin"], "b.bin holds 'weight', which another file has")


def test_folders_are_checked(by_command, tmp_path):
    refused(tmp_path / "none", tmp_path, "does not exist")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", tmp_path, "has neither pytorch_model.bin nor")
    refused(by_command[1], tmp_path, "has safetensors files already")


# --- the command ---


def test_the_command_reports(by_command, capsys):
    source, target, printed = by_command
    assert "in 1 file; lm_head.weight left out, tied to model.embed_tokens.weight" in printed
    assert run(["convert", str(source), str(target)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_worker_ends_with_its_owner(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: ended.set())
    reads, writes = os.pipe()
    convert_worker.end_with_owner(reads)
    assert not ended.wait(0.05)
    os.close(writes)
    assert ended.wait(10)
    os.close(reads)
