"""Models of the Hugging Face hub by their ids, `owner/name`: in its cache, or downloaded to it."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from ..errors import BadInputError
from ..specs.models import PolicySpec, PrmSpec

# pathlib.Path makes one slash of the two in an address.
_ID = re.compile(r"(?:https?://?(?:www\.)?(?:huggingface\.co|hf\.co)/|hf:/{0,2})?"
                 r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:/tree/main)?/?")  # fmt: skip

_SHARD = re.compile(r".*-of-(\d{1,5})\.safetensors")

# First parts of paths in the documentation's examples, which are not owners on the hub.
_OWN_FOLDERS = ("models", "downloads", "runs", "checkpoints", "data")

_FILES: dict[str, Any] = {
    "allow_patterns": ["*.json", "*.jinja", "*.model", "*.safetensors", "*.tiktoken", "*.txt"],
    # Other formats of the same weights lie in folders, and Mistral's beside the first.
    "ignore_patterns": ["*/*", "consolidated*"],
}
"""What is downloaded: configuration, tokenizer and safetensors, and neither code nor pickles."""


def hub_id(path: str) -> str | None:
    """The id on the Hugging Face hub, `owner/name`, that a path or address may stand for."""
    if (found := _ID.fullmatch(path)) is None:
        return None
    owner = found[1].partition("/")[0]
    is_plain = path.rstrip("/") == found[1]
    is_path = is_plain and (owner in _OWN_FOLDERS or pathlib.Path(owner).is_dir())
    return None if is_path else found[1]


def cached_folder(name: str) -> pathlib.Path | None:
    """The folder of an id in the hub's cache; None unless it is complete. The hub is not called."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ModuleNotFoundError:
        return None
    try:
        folder = pathlib.Path(snapshot_download(name, local_files_only=True, **_FILES))
    except (HFValidationError, LocalEntryNotFoundError):
        return None
    return folder if _is_whole(folder) else None


def _is_whole(folder: pathlib.Path) -> bool:
    if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        shards = [_SHARD.fullmatch(file.name) for file in folder.glob("*.safetensors")]
        return len(shards) >= max((int(shard[1]) for shard in shards if shard), default=1)
    try:
        parts = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (KeyError, TypeError, ValueError, AttributeError):
        return True  # reading the file reports what is wrong with it
    return all((folder / str(part)).is_file() for part in parts)


def folder_name(folder: pathlib.Path) -> str:
    """The name of a resolved model folder; of one in the hub's cache, that of its repository."""
    repository = folder.parent.parent.name
    is_cached = folder.parent.name == "snapshots" and repository.startswith("models--")
    return repository.rpartition("--")[2] if is_cached else folder.name


def fetch_models(specs: Iterable[PolicySpec | PrmSpec | None]) -> list[str]:
    """Download the models and adapters that are named by ids of the hub, unless they are there.

    A path that exists is a folder, whatever the hub has under its name. Size, free space and
    licence are written to standard error before a download starts. An interrupted one resumes.

    Returns:
        The ids of what was downloaded.

    Raises:
        BadInputError: the hub can't be reached, does not know the id, wants its licence accepted,
            or has no safetensors under it; or the disk has no room.
    """
    paths = [path for spec in specs if spec for path in (spec.path, spec.adapter) if path]
    ids = [hub_id(path) for path in dict.fromkeys(paths) if not pathlib.Path(path).exists()]
    missing = [name for name in dict.fromkeys(ids) if name and cached_folder(name) is None]
    for name in missing:
        _download(name)
    return missing


def _download(name: str) -> None:
    try:
        from huggingface_hub import HfApi, constants, snapshot_download
    except ModuleNotFoundError as error:
        raise BadInputError(
            f"{name!r} is not a folder, and models of the Hugging Face hub need the extra 'hf': "
            "pip install 'cats-jax[hf]'"
        ) from error
    try:
        card = HfApi().model_info(name).card_data
        files = snapshot_download(name, dry_run=True, **_FILES)
        size = sum(file.file_size for file in files if file.will_download)  # pyright: ignore
    except Exception as error:  # whatever the network and the hub raise
        raise _refusal(name, error) from error
    if not any(file.filename.endswith(".safetensors") for file in files):  # pyright: ignore
        raise BadInputError(
            f"{name!r} on the Hugging Face hub has no *.safetensors: `hf download {name} "
            "--local-dir FOLDER` and `cats-jax convert FOLDER OUT` make them from other weights"
        )
    cache = pathlib.Path(constants.HF_HUB_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    licence = getattr(card, "license", None) or "not stated"
    print(
        f"{name}: {size / 1e9:.2f} GB from the Hugging Face hub to {cache}, where "
        f"{free / 1e9:.2f} GB are free; licence: {licence}",
        file=sys.stderr,
        flush=True,
    )
    if size > free:
        raise BadInputError(
            f"{name!r} takes {size / 1e9:.2f} GB and {free / 1e9:.2f} GB are free at "
            f"{str(cache)!r}: free space, or set HF_HUB_CACHE to a folder on another disk"
        )
    try:
        snapshot_download(name, **_FILES)
    except Exception as error:  # as above
        raise _refusal(name, error) from error


def _refusal(name: str, error: Exception) -> BadInputError:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    reasons: list[BaseException] = [error]
    while (earlier := reasons[-1].__cause__ or reasons[-1].__context__) is not None:
        reasons.append(earlier)
    # The error of a licence that is not accepted is a subclass of that of a missing model.
    if any(isinstance(reason, GatedRepoError) for reason in reasons):
        why = (
            f"its licence is to be accepted at https://huggingface.co/{name}, and HF_TOKEN or "
            "`hf auth login` to name who did"
        )
    elif any(isinstance(reason, RepositoryNotFoundError) for reason in reasons):
        why = "the hub has no such model, or not for you: check the name, or `hf auth login`"
    else:
        reason = " ".join(str(error).split())[:200]
        why = (
            f"the hub can't be reached ({type(error).__name__}: {reason}): `hf download {name}` "
            "downloads it where there is a connection, and the folder can be copied here"
        )
    return BadInputError(f"{name!r} is not a folder and not in the hub's cache, and {why}")
