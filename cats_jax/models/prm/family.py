"""Choice of a PRM's format: by name, from a YAML file, or detected from the checkpoint."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from ... import world
from ...errors import BadInputError
from ..folders import check_model_folder, existing_folder
from ..local_files import LOCAL_FILES, read_config, reason_of
from ..weights import StoredTensor, stored_tensors
from .format import (
    OUTCOME,
    PRM_FORMATS,
    Head,
    PRMFormat,
    TokenPair,
    load_format,
    prm_format,
)
from .head_file import LAYER, head_of_file

AUTO = "auto"
"""Choice of the format that `detect_format` finds by the checkpoint's files."""


def choose_format(
    choice: str, folder: str | pathlib.Path, head: str | pathlib.Path | None = None
) -> PRMFormat:
    """The format a user asked for.

    Args:
        choice: a key of `PRM_FORMATS`, the path of a .yaml file, or "auto".
        folder: model folder of the PRM, which "auto" reads.
        head: file of a linear head, whose output takes the place of the format's read-out.

    Raises:
        BadInputError: an unknown name or family, or a file that is not a format.
    """
    if choice == AUTO:
        found = detect_format(folder)
    elif choice.endswith((".yaml", ".yml")):
        # A head of its own needs no other read-out.
        found = load_format(choice, {} if head is None else {"read_out": {"layers": [LAYER]}})
    else:
        found = prm_format(choice)
    return found if head is None else dataclasses.replace(found, read_out=head_of_file(head))


def prm_folder(path: str | pathlib.Path) -> pathlib.Path:
    """A PRM's folder, by its path or by its name in the embedded world.

    Raises:
        BadInputError: there is no such folder.
    """
    if str(path) in world.PRM_NAMES:
        return world.prm_path(str(path))
    ways = f", or one of the embedded world's: {', '.join(world.PRM_NAMES)}"
    return existing_folder(path, "PRM", ways)


def detect_format(folder: str | pathlib.Path) -> PRMFormat:
    """The format of a checkpoint's family, by its configuration, head and tokenizer.

    A family with a head is recognised by the architecture or by the head's tensors, and any other
    family by the tokens it needs. A family that reads plain text is recognised only if the
    tokenizer has no chat template. A plain language model that looks like a family is therefore
    taken for a PRM of that family: training as a PRM leaves no trace in a causal language model's
    files. A sequence classifier with one label is an outcome model.

    Raises:
        BadInputError: not exactly one family fits, or a sequence classifier has several labels.
    """
    folder = check_model_folder(folder, "PRM")
    architectures = read_config(folder).get("architectures") or []
    tensors = stored_tensors(folder)
    for name in architectures:
        if name.endswith("ForSequenceClassification"):
            return _outcome_format(folder, name, tensors)

    def has_head(known: PRMFormat) -> bool:
        return isinstance(known.read_out, Head) and (
            not set(known.architectures).isdisjoint(architectures)
            or all(f"{layer}.weight" in tensors for layer in known.read_out.layers)
        )

    # A judge is a plain language model, and only a user can say that it is one.
    of_steps = [known for known in PRM_FORMATS.values() if known.tag]
    found = [known for known in of_steps if has_head(known)]
    causal = not architectures or any(name.endswith("ForCausalLM") for name in architectures)
    hint = ""
    if not found and causal:
        vocabulary, chats = _tokenizer_facts(folder)
        found = [
            known
            for known in of_steps
            if isinstance(known.read_out, TokenPair) and vocabulary.issuperset(known.tokens)
        ]
        # A model that reads plain text needs no chat template, which all chat models have.
        plain = [known for known in found if chats and known.layout == "text"]
        found = [known for known in found if known not in plain]
        if plain:
            names = " and ".join(known.name for known in plain)
            hint = f"; it has the tokens of {names}, which reads plain text, and a chat template"
    if len(found) != 1:
        which = " and ".join(known.name for known in found) or "no known PRM family"
        raise BadInputError(
            f"{str(folder)!r} ({', '.join(architectures) or 'no architecture named'}) looks like "
            f"{which}{hint}: name its format, one of {', '.join(sorted(PRM_FORMATS))} or a .yaml "
            "file"
        )
    (chosen,) = found
    return chosen


def _outcome_format(
    folder: pathlib.Path, architecture: str, tensors: Mapping[str, StoredTensor]
) -> PRMFormat:
    """The format of a sequence classifier with one label, which can only be a reward."""
    known = f"{str(folder)!r} ({architecture}) is an outcome model"
    if "score.weight" not in tensors:
        raise BadInputError(
            f"{known} without the tensor 'score.weight': give one of a decoder's, or name its head "
            "in a .yaml file with layout: conversation"
        )
    labels = tensors["score.weight"].shape[0]
    if labels == 2:
        raise BadInputError(
            f"{known} with 2 labels, whose files don't say which is the good one: set format: "
            "outcome-classifier if it is label 1, otherwise write a .yaml file"
        )
    if labels != 1:
        raise BadInputError(
            f"{known} with {labels} labels: name the good one in a .yaml file with layout: "
            "conversation and read_out: {layers: [score], label: INDEX}"
        )
    return OUTCOME


def _tokenizer_facts(folder: pathlib.Path) -> tuple[set[str], bool]:
    """The tokens of the folder's tokenizer, and whether it has a chat template."""
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, **LOCAL_FILES)
    except Exception as error:
        raise BadInputError(
            f"{str(folder)!r} has no tokenizer that can be read ({reason_of(error)}): copy the "
            "release's tokenizer files there"
        ) from error
    return set(tokenizer.get_vocab()), bool(tokenizer.chat_template)
