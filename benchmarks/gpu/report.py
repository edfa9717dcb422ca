"""The report of one part: rows, written as soon as they are measured, never measured twice."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGES = ("torch", "transformers", "tokenizers", "jax", "jaxlib", "flax", "optax", "chex")

Values = dict[str, Any]


class NoGPUError(RuntimeError):
    """There is no GPU for a part that is to measure one."""


class TimeOverError(Exception):
    """The time of the part or of a row is over while a row is measured."""


class OtherMachineError(ValueError):
    """A report of another machine, of other versions or of another commit is in the folder."""


class Report:
    """Rows of one part in `PART.json`; `report.md` has the tables of all parts of the folder.

    Args:
        folder: where the files are; made if it is not there.
        part: name of the part.
        machine: what the figures belong to, see `describe_machine`.
        seconds: time of the part from now on; a row that is then being measured is given up.
        row_seconds: time of a row, without what it prepares; a row that takes longer is given up,
            and the part goes on with the next one.
        rehearse: whether the part runs on tiny shapes on a CPU.

    Raises:
        OtherMachineError: the file is there and belongs to another `machine`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        part: str,
        machine: Values,
        seconds: float,
        *,
        rehearse: bool,
        row_seconds: float = 20.0,
    ):
        self.rehearse = rehearse
        self._row_seconds = row_seconds
        self._folder = folder
        self._file = folder / f"{part}.json"
        self._end = time.monotonic() + seconds
        self._content: Values = {"part": part, "machine": machine, "rows": {}, "left_out": []}
        if self._file.is_file():
            before = json.loads(self._file.read_text())
            if before["machine"] != machine:
                changed = [
                    key
                    for key in {**machine, **before["machine"]}
                    if machine.get(key) != before["machine"].get(key)
                ]
                raise OtherMachineError(
                    f"{str(self._file)!r} has another {', '.join(changed)}: choose another "
                    "folder (--out) for this machine, its versions and this commit"
                )
            # A row that failed is measured again.
            good = {key: row for key, row in before["rows"].items() if "error" not in row}
            self._content["rows"] = good
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def rows(self) -> dict[str, Values]:
        """The rows so far, by name."""
        return self._content["rows"]

    @property
    def failed(self) -> list[str]:
        """Names of rows with an error."""
        return [name for name, row in self.rows.items() if "error" in row]

    @property
    def left_out(self) -> list[str]:
        """Names of rows for which no time was left."""
        return self._content["left_out"]

    def row(
        self, name: str, measure: Callable[[], Values], prepare: Callable[[], object] | None = None
    ) -> None:
        """Measures a row unless it is there already or the time is over, and writes the report.

        An error becomes the row's value `error`, so that the other rows are measured.

        Args:
            name: name of the row.
            measure: measures the values, within the time of a row.
            prepare: makes and loads what several rows need, within the time of the part.
        """
        if name in self.rows:
            return
        start = time.monotonic()
        try:
            if prepare is not None:
                with _limited(self._end - start):
                    prepare()
            with _limited(min(self._end - time.monotonic(), self._row_seconds)):
                values = measure()
        except TimeOverError:
            self.left_out.append(name)
            self.write()
            return
        except Exception as error:  # whatever makes a row fail, the others are measured
            traceback.print_exc()
            first = (str(error) or type(error).__name__).splitlines()[0]
            values = {"error": f"{type(error).__name__}: {first}"}
        self.rows[name] = {**values, "measured in s": round(time.monotonic() - start, 1)}
        print(f"{self._content['part']}, {name}: {_line(self.rows[name])}", flush=True)
        self.write()

    def note(self, text: str) -> None:
        """Adds a sentence under the table; the notes of the last call of a part stand."""
        self._content.setdefault("notes", []).append(text)
        self.write()

    def write(self) -> None:
        """Writes the part's file, and `report.md` from the files of all parts."""
        text = json.dumps(self._content, indent=1, ensure_ascii=False) + "\n"
        new = self._file.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(self._file)
        parts = [json.loads(file.read_text()) for file in sorted(self._folder.glob("*.json"))]
        (self._folder / "report.md").write_text(_markdown(parts), encoding="utf-8")


def describe_machine(*, rehearse: bool, commit: str | None) -> Values:
    """Device, processor, versions and commit: what figures must agree in to be in one report."""
    found: Values = {"rehearsal": rehearse, "device": "cpu"}
    with contextlib.suppress(ImportError):
        import torch

        if torch.cuda.is_available() and not rehearse:
            properties = torch.cuda.get_device_properties(0)
            found["device"] = properties.name
            found["device memory GiB"] = round(properties.total_memory / 2**30, 1)
            found["CUDA"] = torch.version.cuda
    found["processor"] = f"{os.cpu_count()} x {platform.machine()}"
    found["python"] = platform.python_version()
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    found["commit"] = commit or _commit()
    return found


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises TimeOverError in the block after this many seconds, at once if there are none."""

    def stop(*_: Any) -> None:
        raise TimeOverError

    if seconds <= 0:
        raise TimeOverError
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _commit() -> str:
    """The commit of the checkout, with "+" if files differ from it; "unknown" without git."""
    try:
        head, status = (
            subprocess.run(
                ["git", *command], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if status else "")


def _markdown(parts: list[Values]) -> str:
    lines = ["# GPU check", ""]
    for part in parts:
        machine = "; ".join(f"{key} {value}" for key, value in part["machine"].items())
        lines += [f"## {part['part']}", "", machine, ""]
        columns = list(dict.fromkeys(key for row in part["rows"].values() for key in row))
        if columns:
            lines += [f"| row | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for name, row in part["rows"].items():
            lines.append(f"| {name} | {' | '.join(_show(row.get(key)) for key in columns)} |")
        lines += ["", *part.get("notes", [])]
        if part["left_out"]:
            lines.append(f"Left out, because time was over: {'; '.join(part['left_out'])}.")
        lines.append("")
    return "\n".join(lines)


def _line(row: Values) -> str:
    return ", ".join(f"{key} {_show(value)}" for key, value in row.items())


def _show(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value).replace("|", "/")
