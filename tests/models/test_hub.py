"""Models by their ids on the Hugging Face hub, against a hub on this machine."""

import http.server
import json
import pathlib
import shutil
import threading

import huggingface_hub.constants
import pytest

from cats_jax import cli, world
from cats_jax.errors import BadInputError
from cats_jax.models import hub as hub_module
from cats_jax.models.folders import check_model_folder, what_is_lacking
from cats_jax.models.hub import cached_folder, fetch_models
from cats_jax.models.huggingface import HuggingFaceGenerator, HuggingFaceScorer
from cats_jax.models.prm.convert import convert_checkpoint
from cats_jax.models.prm.family import choose_format
from cats_jax.models.prm.format import WORLD
from cats_jax.models.prm.sparsity import checkpoint_sparsity
from cats_jax.models.source import ModelFolders
from cats_jax.specs.models import PolicySpec

NAME = "someone/weak"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """What the client asks of a hub: the facts of one repository, and its files."""

    files: dict[str, bytes]
    gated = False
    asked: list[str]

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, body):
        path = self.path.partition("?")[0]
        self.asked.append(path)
        if not path.startswith((f"/api/models/{NAME}", f"/{NAME}/")):
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, body)
        if self.gated:
            return self._send(403, b"", {"X-Error-Code": "GatedRepo"}, body)
        if "/tree/" in path:
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
                for name, data in self.files.items()
            ]
            return self._send(200, json.dumps(tree).encode(), {}, body)
        if path.startswith("/api/"):
            facts = {
                "id": NAME,
                "sha": COMMIT,
                "siblings": [{"rfilename": name} for name in self.files],
                "cardData": {"license": "apache-2.0"},
            }
            return self._send(200, json.dumps(facts).encode(), {}, body)
        name = path.split("/", 5)[-1]
        headers = {"ETag": f'"{name}"', "X-Repo-Commit": COMMIT}
        return self._send(200, self.files[name], headers, body)

    def _send(self, code, data, headers, body):
        self.send_response(code)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_request(self, code="-", size="-"):
        """Nothing, in place of a line on standard error."""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with the embedded weak policy; the working directory and the cache are empty."""
    here, cache = tmp_path / "here", tmp_path / "cache"
    here.mkdir()
    monkeypatch.chdir(here)
    files = {path.name: path.read_bytes() for path in world.policy_path("weak").iterdir()}
    more = {"model.py": b"1/0", "pytorch_model.bin": b"pickle", "onnx/model.safetensors": b"no"}
    handler = type("This", (Hub,), {"files": {**files, **more}, "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    constants = huggingface_hub.constants
    _turn_to(f"http://127.0.0.1:{server.server_port}", monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield handler
    server.shutdown()
    server.server_close()


def _turn_to(address, monkeypatch):
    """Make an address the hub's, as HF_ENDPOINT would in a new process."""
    constants = huggingface_hub.constants
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", address)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_model_is_downloaded_once_and_found_by_its_id(hub, capsys):
    assert cached_folder(NAME) is None
    assert fetch_models([PolicySpec(NAME), None]) == [NAME]
    said = capsys.readouterr()
    assert "apache-2.0" in said.err
    assert " GB are free" in said.err
    assert not said.out
    folder = cached_folder(NAME)
    # Neither code nor pickles nor copies of the weights.
    assert files_of(folder) == files_of(world.policy_path("weak"))
    assert check_model_folder(NAME) == folder
    asked = len(hub.asked)
    assert fetch_models([PolicySpec(NAME)]) == []
    assert len(hub.asked) == asked
    theirs, ours = (ModelFolders().fingerprint(PolicySpec(path)) for path in (NAME, "weak"))
    assert theirs == ours


def test_a_training_without_weights_has_none_to_convert(tmp_path):
    for name in ("config.json", "training_args.bin"):
        (tmp_path / name).touch()
    assert what_is_lacking(tmp_path).startswith("has config.json but no weights")
    (tmp_path / "pytorch_model-00001-of-00002.bin").touch()
    assert what_is_lacking(tmp_path).startswith("holds weights as .bin files")


def test_a_cached_model_is_read_by_its_id_and_has_its_name(hub, tmp_path):
    fetch_models([PolicySpec(NAME)])
    assert HuggingFaceGenerator(NAME).name == PolicySpec(NAME).name == "weak"
    assert HuggingFaceScorer(NAME, WORLD).name == "weak"
    assert checkpoint_sparsity(NAME) == checkpoint_sparsity(world.policy_path("weak"))
    assert choose_format("auto", NAME) == WORLD
    with pytest.raises(BadInputError, match="has safetensors files already"):
        convert_checkpoint(NAME, tmp_path / "out")


def test_a_command_takes_an_id(hub, capsys):
    question = ("solve", "1+1=?", "-n", "1", "--strategy", "greedy")
    assert cli.run([*question, "--policy", NAME]) == 0
    said = capsys.readouterr()
    assert f"{NAME}: " in said.err
    assert "status: answered" in said.out


def test_a_dry_run_downloads_nothing(hub, capsys):
    pathlib.Path("recipe.yaml").write_text(
        f"policy: {NAME}\nprms: [exact]\nstrategies: [beam]\nnum_candidates: [4]\n"
        "questions: {world: test, count: 2}\n"
    )
    assert cli.run(["evaluate", "recipe.yaml", "--dry-run"]) == 0
    assert f"`hf download {NAME}`" in capsys.readouterr().out
    assert not hub.asked


def test_a_folder_with_the_name_of_an_id_is_the_model(hub):
    shutil.copytree(world.policy_path("weak"), NAME)
    assert fetch_models([PolicySpec(NAME)]) == []
    assert check_model_folder(NAME) == pathlib.Path(NAME)
    assert not hub.asked


def test_a_shard_without_its_index_is_not_a_model(tmp_path):
    (tmp_path / "config.json").touch()
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    assert not hub_module._is_whole(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").touch()
    assert hub_module._is_whole(tmp_path)


def test_a_model_that_lacks_a_part_is_not_whole(hub):
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    parts = {
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-2.safetensors": b"2",
    }
    hub.files = {**hub.files, **parts}
    fetch_models([PolicySpec(NAME)])
    whole = cached_folder(NAME)
    assert whole is not None
    part = whole / "model-2.safetensors"
    part.unlink()  # as if the download had been interrupted
    assert cached_folder(NAME) is None
    assert fetch_models([PolicySpec(NAME)]) == [NAME]
    assert part.read_bytes() == b"2"


def without_safetensors(hub, monkeypatch):
    hub.files = {name: data for name, data in hub.files.items() if "safetensors" not in name}


def without_room(hub, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


def behind_a_licence(hub, monkeypatch):
    hub.gated = True


def unknown(hub, monkeypatch):
    _turn_to(f"{huggingface_hub.constants.ENDPOINT}/elsewhere", monkeypatch)


def unreachable(hub, monkeypatch):
    _turn_to("http://127.0.0.1:9", monkeypatch)


def off_line(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


REFUSALS = {
    without_safetensors: r"no \*.safetensors: .*cats-jax convert",
    without_room: r"takes .* GB and 0\.00 GB are free at .*HF_HUB_CACHE",
    behind_a_licence: f"licence is to be accepted at https://huggingface.co/{NAME}",
    unknown: "no such model, or not for you",
    unreachable: f"can't be reached .*`hf download {NAME}`",
    off_line: f"can't be reached .*`hf download {NAME}`",
}


@pytest.mark.parametrize("trouble", REFUSALS, ids=lambda trouble: trouble.__name__)
def test_a_refusal_is_one_line_with_the_way_out(hub, monkeypatch, trouble):
    trouble(hub, monkeypatch)
    with pytest.raises(BadInputError, match=REFUSALS[trouble]) as caught:
        fetch_models([PolicySpec(NAME)])
    assert "\n" not in str(caught.value)
    assert cached_folder(NAME) is None
