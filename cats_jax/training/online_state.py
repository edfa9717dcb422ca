"""The files that on-line training writes after an iteration: its state and a line of its curves.

`state.npz` has the learner's state with its optimisers and the number of finished iterations. The
line of an iteration is written before the state. A training that was killed between the two drops
the line and repeats the iteration.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import learners

from ..errors import BadInputError
from ..storage import durable
from ..storage.reading import bounded_lines, parse_json, reading
from ..storage.rules import Rule, check_entries

STATE = "state.npz"
CURVES = "curves.jsonl"

_ITERATION = "iteration"


class TrainingProgress:
    """The finished iterations of an on-line training, in a folder that this process has locked."""

    def __init__(self, folder: pathlib.Path, start: learners.LearnerState) -> None:
        """Read the folder.

        Args:
            start: learner state before the first iteration.

        Raises:
            BadInputError: the folder's state is damaged or from another version.
        """
        self._folder = folder
        self.state, self.iteration = start, 0
        if (folder / STATE).exists():
            self.state, self.iteration = _load(folder / STATE, start)
        self.lines = _lines(folder / CURVES)[: self.iteration]
        if len(self.lines) < self.iteration:
            raise BadInputError(
                f"{str(folder / CURVES)!r} lacks lines of finished iterations: restore it, or "
                "train anew with another --output"
            )

    def resume(self) -> None:
        """Drop the line of an iteration that is not in the state.

        Raises:
            RunStoppedError: the folder can't be written.
        """
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        with _writing(self._folder):
            durable.replace(self._folder / CURVES, text.encode())

    def add(self, state: learners.LearnerState, line: dict[str, Any]) -> None:
        """Write the line of an iteration, then the state after it.

        Raises:
            RunStoppedError: the folder can't be written any more.
        """
        leaves = {name: np.asarray(leaf) for name, leaf in _named(state)}
        buffer = io.BytesIO()
        np.savez(buffer, **{_ITERATION: np.int64(self.iteration + 1), **leaves})
        with _writing(self._folder):
            descriptor = durable.open_to_append(self._folder / CURVES)
            try:
                durable.append(descriptor, json.dumps(line).encode() + b"\n")
            finally:
                os.close(descriptor)
            durable.replace(self._folder / STATE, buffer.getvalue())
        self.lines.append(line)
        self.state, self.iteration = state, self.iteration + 1

    def curves(self) -> learners.Curves:
        """The curves of all finished iterations, leaves `[iterations]`."""
        names = [field.name for field in dataclasses.fields(learners.Curves)]
        return learners.Curves(
            **{name: jnp.asarray([line[name] for line in self.lines]) for name in names}
        )


@contextlib.contextmanager
def _writing(folder: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise durable.stopped(folder, error) from error


def _named(state: learners.LearnerState) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return [(jax.tree_util.keystr(where), leaf) for where, leaf in leaves]


def _load(path: pathlib.Path, like: learners.LearnerState) -> tuple[learners.LearnerState, int]:
    way_out = "restore it, or train anew with another --output"
    with reading(repr(str(path)), way_out, "can't be read"):
        # A small compressed file can hold a large array, so this file is never compressed.
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("it is compressed")
        with np.load(path) as arrays:
            leaves = [jnp.asarray(arrays[name]) for name, _ in _named(like)]
            iteration = int(arrays[_ITERATION])
        for leaf, (name, wanted) in zip(leaves, _named(like), strict=True):
            if (leaf.shape, leaf.dtype) != (wanted.shape, wanted.dtype):
                raise ValueError(f"{name} has another shape or type")
    return jax.tree.unflatten(jax.tree.structure(like), leaves), iteration


def _lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The whole lines of the curves; a kill may have cut the last one."""
    if not path.exists():
        return []
    with reading(repr(str(path)), "restore it, or train anew with another --output"):
        lines = [parse_json(line) for line in bounded_lines(path) if line.endswith(b"\n")]
        for line in lines:
            check_entries(line, _CURVES)
        return lines


# A training that diverged has numbers that are not finite.
_NUMBER = Rule("a number", lambda value: type(value) in (int, float))
_CURVES = {field.name: _NUMBER for field in dataclasses.fields(learners.Curves)}
