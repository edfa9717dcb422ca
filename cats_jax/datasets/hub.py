"""Rows of a data set on the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import BadInputError
from .published import Published


def chosen_split(published: Published, split: str | None) -> str:
    """The split named `split`, or the data set's default split; BadInputError if there is none."""
    if not published.on_hub:
        raise BadInputError(
            f"questions: this data set is read from a file only: get {published.path}, and name "
            "your copy by 'file' beside 'dataset'"
        )
    split = next(iter(published.splits)) if split is None else split
    if split not in published.splits:
        raise BadInputError(
            f"questions: {published.path} has no split {split!r}: "
            f"choose {' or '.join(published.splits)}"
        )
    return split


def hub_rows(published: Published, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each row of a split, downloaded or from the cache of `datasets`.

    Raises:
        BadInputError: `datasets` is not installed, or can't load the set.
    """
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise BadInputError(
            "data sets by name need the package datasets: pip install 'cats-jax[eval]', or give "
            "'file' with a copy on disk"
        ) from error
    for config in published.configs:
        try:
            table = datasets.load_dataset(published.path, config, split=split)
        except Exception as error:  # any error of the network, the hub or the cache
            reason = " ".join(str(error).split())[:200]
            raise BadInputError(
                f"data set {published.path!r} can't be loaded ({type(error).__name__}: {reason}): "
                "download it once with a connection, or give 'file' with a copy on disk"
            ) from error
        name = published.path if config is None else f"{published.path}/{config}"
        for number, row in enumerate(table, 1):
            yield f"{name}, split {split}, row {number}", dict(row)
