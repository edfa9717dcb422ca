"""Tables of trainings that differ in one setting: the rows of `ablations.yaml` in this folder.

Every row is trained with several seeds on a step bank and evaluated on another one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import learners
from theory.estimators import Estimate

from ..controllers import checkpoint
from ..errors import BadInputError, known_names, quoted
from ..reporting.statistics import mean_of_seeds
from ..storage import durable
from ..storage.reading import read_json, reading
from ..storage.schema import check_seed, checked, from_mapping
from ..storage.yaml_file import naming
from ..storage.yaml_reading import load_yaml
from .comparison import play_controllers
from .questions import TrainingQuestions, bank_questions
from .train import check_calibration, configure, seed_keys, train_seeds

ABLATIONS_FILE = pathlib.Path(__file__).with_name("ablations.yaml")

SIZES = (16, 64)
"""Values of N at which the rows are evaluated."""

PRICE = 0.2
"""Price of 100 candidates in the value of every row; it is a feature of some controllers."""

_QUESTIONS = 1000
"""Draws of a question and a PRM per N, the same for every row and seed."""


@dataclass(frozen=True)
class AblationRow:
    """One training of a table.

    Attributes:
        config: name of the configuration.
        settings: values in place of the configuration's, as in `cats-jax train --set`.
    """

    label: str
    config: str
    settings: tuple[str, ...]

    def configuration(self, **options: Any) -> learners.TrainConfig:
        """The row's training configuration; `options` are those of `train.configure`."""
        return configure(self.config, settings=self.settings, **options)


@checked
class _Entry:
    """A row in a file; `set` has texts such as `gae_lambda=1`."""

    config: str = "paper-bank"
    set: list[Any] = dataclasses.field(default_factory=list)


def load_ablations(path: pathlib.Path = ABLATIONS_FILE) -> dict[str, tuple[AblationRow, ...]]:
    """The rows of each table, by name of the table.

    Raises:
        BadInputError: there is no such file, or a row is not a training.
    """
    document = load_yaml(path, "file of ablations")
    if not isinstance(document, dict):
        raise BadInputError(f"{str(path)!r} must map names of tables to their rows")
    tables = {}
    for name, rows in document.items():
        where = f"{str(path)!r}: table {quoted(name)}"
        if not isinstance(rows, dict):
            raise BadInputError(f"{where} must map labels to rows")
        tables[str(name)] = tuple(
            _row(f"{where}, row {quoted(label)}", str(label), {} if row is None else row)
            for label, row in rows.items()
        )
        folders = [_folder_name(str(label)) for label in rows]
        if {"", ".", ".."} & set(folders) or len(set(folders)) < len(folders):
            raise BadInputError(
                f"{where}: its rows have folders, named by the ASCII letters, digits and dots of "
                "the labels, and two names are equal or one is empty: change these labels"
            )
    return tables


def run(
    tables: Sequence[str] | None,
    *,
    output: pathlib.Path,
    bank: pathlib.Path,
    test: pathlib.Path,
    calibration: str | None = None,
    actions: str | None = None,
    file: pathlib.Path = ABLATIONS_FILE,
    num_seeds: int = 5,
    num_iterations: int | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    report: Callable[[str], None] = print,
) -> dict[str, list[Result]]:
    """Train and evaluate every row of some tables. Finished rows are read from `output`.

    Args:
        tables: names of the tables; None: all tables of `file`.
        output: folder for `TABLE/ROW/result.json` and a checkpoint per seed.
        bank: bank of training questions.
        test: bank of test questions.
        calibration: calibration of the PRMs, see `questions.bank_questions`.
        actions: name of an action table, in place of the configurations' own.
        file: YAML file of the tables.
        num_seeds: controllers per row, at least 2.
        num_iterations: iterations of every training, in place of the configurations' own.
        settings: "NAME=VALUE" for every row, applied after its own, see `train.configure`.
        report: called with lines of progress.

    Returns:
        The results of each table, in the order of the file.

    Raises:
        BadInputError: a table is unknown, there are fewer than two seeds, a row needs a
            calibration, the banks don't fit, or `output` holds rows of other settings.
    """
    check_seed(seed)
    if num_seeds < 2:
        raise BadInputError(f"num_seeds={num_seeds}: an interval needs at least 2")
    known = {
        name: [dataclasses.replace(row, settings=(*row.settings, *settings)) for row in rows]
        for name, rows in load_ablations(file).items()
    }
    for name in tables or ():
        if name not in known:
            raise BadInputError(f"no table {name!r}: {known_names(name, sorted(known))}")
    for name in tables or known:
        for row in known[name]:
            check_calibration(row.configuration(actions=actions), calibration)
    load = functools.cache(
        lambda sampling: bank_questions(
            bank, validation=test, calibration=calibration, sampling=sampling
        )
    )
    tables_digest = functools.cache(lambda sampling: _tables_digest(load(sampling)))
    given = {
        "bank": str(bank),
        "test": str(test),
        "calibration": calibration,
        "num_seeds": num_seeds,
        "seed": seed,
    }
    with durable.hold(output):
        results: dict[str, list[Result]] = {}
        for name in tables or known:
            for row in known[name]:
                config = row.configuration(actions=actions, num_iterations=num_iterations)
                folder = output / name / _folder_name(row.label)
                questions = load(config.cats.sampling)
                made_of = {
                    **given,
                    "data": _digest(questions),
                    "tables": tables_digest(config.cats.sampling),
                    "row": dataclasses.asdict(config),
                }
                result = _finished(folder, made_of)
                if result is None:
                    report(f"{name}: {row.label} ...")
                    result = _train_and_play(row.label, config, questions, given, folder)
                    result = _write(folder, result, made_of)
                results.setdefault(name, []).append(result)
                report(f"{name}: {result.line()}")
    return results


@dataclass(frozen=True)
class Result:
    """Results of a row's controllers on the test questions, at `PRICE`.

    Attributes:
        accuracy, candidates: f64[R, M], per seed and N of `SIZES`.
        collapsed: per seed, whether nearly all greedy decisions are one action.
        entropy: per seed, entropy of the greedy actions, nats.
    """

    label: str
    accuracy: np.ndarray
    candidates: np.ndarray
    collapsed: tuple[bool, ...]
    entropy: tuple[float, ...]

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Result:
        """The result in a `result.json`."""
        return cls(
            label=document["label"],
            accuracy=np.array(document["accuracy"]),
            candidates=np.array(document["candidates"]),
            collapsed=tuple(document["collapsed"]),
            entropy=tuple(document["entropy"]),
        )

    def value(self) -> Estimate:
        """Accuracy minus price of the candidates, averaged over N, with its interval over seeds."""
        cost = PRICE * self.candidates / 100.0
        return mean_of_seeds(np.mean(self.accuracy - cost, axis=1))

    def line(self) -> str:
        """The result as a line of text."""
        value, count = self.value(), sum(self.collapsed)
        at_each = ", ".join(
            f"N={size}: {self.accuracy[:, place].mean():.3f} with "
            f"{self.candidates[:, place].mean():.1f} candidates"
            for place, size in enumerate(SIZES)
        )
        said = f"{self.label}: {value.value:.3f} ({value.low:.3f} to {value.high:.3f}); {at_each}"
        return said + (f"; {count} of {len(self.collapsed)} collapsed" if count else "")


def _train_and_play(
    label: str,
    config: learners.TrainConfig,
    questions: TrainingQuestions,
    info: dict[str, Any],
    folder: pathlib.Path,
) -> Result:
    config = dataclasses.replace(config, max_depth=questions.max_depth)
    count, seed = info["num_seeds"], info["seed"]
    keys = seed_keys(seed, count)
    states = train_seeds(config, questions, keys[1:]).learner_state
    figures = play_controllers(
        config, questions, states.actor, keys[0], SIZES, (PRICE,), num_questions=_QUESTIONS
    )
    collapsed = tuple((figures.top_action > learners.COLLAPSE_SHARE).tolist())
    for index in range(count):
        state = jax.tree.map(lambda leaf, index=index: leaf[index], states)
        path = folder / f"seed-{index}"
        document = {**questions.info, **info, "index": index, "collapsed": collapsed[index]}
        checkpoint.save(path, state, config, info=document, overwrite=True)
    return Result(
        label=label,
        accuracy=figures.accuracy[:, 0],
        candidates=figures.candidates[:, 0],
        collapsed=collapsed,
        entropy=tuple(figures.entropy.tolist()),
    )


def _digest(questions: TrainingQuestions) -> str:
    """Digest of questions and calibrations: a bank may grow between two runs."""
    data = json.dumps([questions.info, questions.held_out_ids])
    return hashlib.sha256(data.encode()).hexdigest()[:16]


def _tables_digest(questions: TrainingQuestions) -> str:
    """Digest of all tables and of the test questions' texts: a bank may be collected anew."""
    found = hashlib.sha256(json.dumps(questions.held_out_texts).encode())
    for leaf in jax.tree.leaves((questions.tables, questions.held_out)):
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()[:16]


def _folder_name(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-")


def _finished(folder: pathlib.Path, made_of: dict[str, Any]) -> Result | None:
    """The result in a row's folder; None if there is none."""
    path = folder / "result.json"
    if not path.is_file():
        return None
    with reading(repr(str(path)), "delete it, and the row is trained anew"):
        document = read_json(path)
        # Rows of earlier versions lack the digest of the tables.
        known = {"tables": made_of["tables"], **document["made_of"]}
        if known != json.loads(json.dumps(made_of)):
            raise BadInputError(
                f"{str(folder)!r} holds a row of other settings: choose another --output"
            )
        return Result.from_dict(document)


def _write(folder: pathlib.Path, result: Result, made_of: dict[str, Any]) -> Result:
    """Write a result, and return it as it is read: tables of a resumed study are the same."""
    document = {
        "label": result.label,
        "accuracy": np.round(result.accuracy, 4).tolist(),
        "candidates": np.round(result.candidates, 3).tolist(),
        "collapsed": list(result.collapsed),
        "entropy": np.round(result.entropy, 4).tolist(),
        "made_of": made_of,
    }
    durable.replace_json(folder / "result.json", document)
    return Result.from_dict(document)


def _row(where: str, label: str, values: Any) -> AblationRow:
    with naming(where):
        entry = from_mapping(_Entry, values)
        row = AblationRow(label, entry.config, tuple(map(str, entry.set)))
        row.configuration()
    return row
