"""The folder at a model's or an adapter's path, with a check that it holds what is read."""

from __future__ import annotations

import pathlib

from ..errors import BadInputError
from .hub import cached_folder, hub_id

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The two files of an adapter."""


class MissingModelError(BadInputError):
    """There is no model at a path."""


def check_model_folder(
    path: str | pathlib.Path, what: str = "model", ways: str = ""
) -> pathlib.Path:
    """The folder of a model, which has a configuration and weights in safetensors files.

    Args:
        what: kind of the model, for messages.
        ways: what may stand in place of a folder, for messages; see `existing_folder`.

    Raises:
        MissingModelError: there is no such folder, or it lacks config.json or safetensors files.
    """
    folder = existing_folder(path, what, ways)
    if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        return folder
    raise MissingModelError(f"{what} folder {str(path)!r} {what_is_lacking(folder)}")


def adapter_folder(path: str | pathlib.Path) -> pathlib.Path:
    """The folder of an adapter.

    Raises:
        MissingModelError: it is not there, or lacks one of the two files.
    """
    folder = existing_folder(path, "adapter")
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        if not (folder / name).is_file():
            pickled = (folder / "adapter_model.bin").is_file()
            why = "; adapter_model.bin is a pickle, which is not read" if pickled else ""
            raise MissingModelError(
                f"adapter folder {str(path)!r} has no {name}{why}: give the folder that PEFT's "
                "save_pretrained writes"
            )
    return folder


def existing_folder(path: str | pathlib.Path, what: str = "model", ways: str = "") -> pathlib.Path:
    """A path as a folder; where there is none, the one in the hub's cache under that id.

    Args:
        path: path of the folder, or an id of the Hugging Face hub.
        what: kind of the model, for messages.
        ways: what else a user may name, such as ", or a function as module:function".

    Raises:
        MissingModelError: there is no such folder; for an id of the hub, with how to download it.
    """
    folder = pathlib.Path(path)
    if folder.is_dir():
        return folder
    if folder.is_file() and folder.suffix == ".gguf":
        raise MissingModelError(
            f"{what} {str(path)!r} is a GGUF file: `cats-jax convert {path} OUT` makes a model "
            "folder from it"
        )
    if folder.is_file():
        raise MissingModelError(
            f"{what} {str(path)!r} is a file: give the folder of a model, with config.json and "
            f"*.safetensors{ways}"
        )
    found = hub_id(str(path))
    if found is not None:
        cached = cached_folder(found)
        if cached is not None:
            return cached
        raise MissingModelError(
            f"{what} folder {str(path)!r} does not exist, and the Hugging Face hub's cache has "
            f"nothing whole under that name: if it is a model of the hub, `hf download {found}` "
            "downloads it, and it is then found by that name"
        )
    raise MissingModelError(
        f"{what} folder {str(path)!r} does not exist: give a local model folder{ways}"
    )


_LACKING = {
    "adapter_config.json": "holds an adapter alone (adapter_config.json), not a model: give the "
    "folder of its base model, and this one as its adapter",
    "*.safetensors": "has weights but no config.json: copy the release's config.json there",
    "*.gguf": "holds GGUF files: `cats-jax convert {file} OUT` makes a model folder from one",
    "pytorch_model*.bin": "holds weights as .bin files: `cats-jax convert {folder} OUT` makes "
    "safetensors from them",
    "snapshots/*/config.json": "is a cache of the Hugging Face hub: give the folder {parent!r} in "
    "it",
    "*/config.json": "has no config.json: if you mean the model in it, give {parent!r}",
    "config.json": "has config.json but no weights: download the release's *.safetensors, too",
}
"""What is wrong with a folder, by the first of these patterns that matches a file in it."""


def what_is_lacking(folder: pathlib.Path) -> str:
    """What a folder lacks to be a model, and what to do about it."""
    for pattern, words in _LACKING.items():
        if file := min(folder.glob(pattern), default=None):
            return words.format(file=file, folder=folder, parent=str(file.parent))
    return (
        "holds no model: it needs config.json and *.safetensors; download the release's "
        "config.json and *.safetensors"
    )
