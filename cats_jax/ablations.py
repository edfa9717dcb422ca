"""Tables of trainings that differ in one thing: the rows of `recipes/study/ablations.yaml`."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Any

import yaml

import learners

from .errors import BadInputError, known_names
from .train import configure

ABLATIONS_FILE = (
    pathlib.Path(__file__).resolve().parents[1] / "recipes" / "study" / "ablations.yaml"
)

_KEYS = ("config", "set")


@dataclass(frozen=True)
class Row:
    """One training of a table.

    Attributes:
        label: in the table.
        config: name of the configuration it starts from.
        settings: what differs, as of `cats-jax train --set`.
    """

    label: str
    config: str
    settings: tuple[str, ...]

    def configuration(self, **options: Any) -> learners.TrainConfig:
        """The training; `options` as of `train.configure`, for example num_iterations."""
        return configure(self.config, settings=self.settings, **options)


def load_ablations(path: pathlib.Path = ABLATIONS_FILE) -> dict[str, tuple[Row, ...]]:
    """Table -> rows; train one by `train.train_seeds(row.configuration(), environment, keys)`.

    Raises:
        BadInputError: no such file, or a row that is no training.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise BadInputError(f"{str(path)!r} is not YAML, or not there: {said}") from error
    tables = {}
    for name, rows in (document if isinstance(document, dict) else {}).items():
        if not isinstance(rows, dict):
            raise BadInputError(f"{str(path)!r}: table {name!r} must map labels to rows")
        tables[str(name)] = tuple(_row(name, str(label), row or {}) for label, row in rows.items())
    return tables


def _row(table: str, label: str, values: dict[str, Any]) -> Row:
    where = f"table {table!r}, row {label!r}"
    for key in values:
        if key not in _KEYS:
            raise BadInputError(f"{where}: unknown key {key!r}: {known_names(key, _KEYS)}")
    row = Row(
        label=label,
        config=str(values.get("config", "paper-bank")),
        settings=tuple(str(setting) for setting in values.get("set", ())),
    )
    try:
        row.configuration()
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error
    return row
