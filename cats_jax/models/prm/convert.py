"""Conversion of checkpoints in pickled .bin files to safetensors, without running code in them.

A .bin file is a pickle, which can call any function while it is read. torch reads it with
`weights_only`, which calls only functions that build tensors, in a process of its own with limits
on memory and time. The new folder gets its name when it is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import BadInputError
from ..folders import MissingModelError, existing_folder, what_is_lacking
from ..weights import shard_names

RECORD = "conversion.json"
"""Name of the file that records the sources' SHA-256, versions, and tensors left out."""

_INDEX = "pytorch_model.bin.index.json"
_HOME = pathlib.Path(__file__).resolve().parents[3]

# Configuration, tokenizer, documentation. No code, and no weights in other formats.
_COPIED_SUFFIXES = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".md")
_COPIED_NAMES = ("LICENSE", "NOTICE")

# Reading and writing on a slow disk, in bytes a second, and the start of Python and torch.
_SLOWEST_BYTES = 20e6
_STARTING_SECONDS = 120.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Conversion:
    """Summary of a converted checkpoint.

    Attributes:
        num_tensors, num_bytes: number of stored tensors, and of bytes of their values.
        files: names of the safetensors files.
        left_out: for each tied tensor that is not stored, the stored tensor that it equals.
    """

    num_tensors: int
    num_bytes: int
    files: tuple[str, ...]
    left_out: dict[str, str]


def convert_checkpoint(
    source: str | pathlib.Path,
    target: str | pathlib.Path,
    *,
    max_seconds: float | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Conversion:
    """Writes the folder `target` with the weights of `source` as safetensors.

    Dtypes and values stay. A head that config.json ties to the embedding is stored once.

    Args:
        source: a model folder with `pytorch_model.bin`, or shards of it and their index.
        target: a folder that does not exist yet, or an empty one.
        max_seconds: the process is killed after this time; default: by the files' size.
        progress: called several times a second with the share that is written, in [0, 1].

    Raises:
        BadInputError: there are no .bin files, `target` is not empty, a file is broken, asks for
            code to be run or holds anything but tensors, or a limit was hit. `target` is untouched.
    """
    source, target = existing_folder(source), pathlib.Path(target)
    names = _bin_files(source)
    check_absent(target)
    size = max(1, sum((source / name).stat().st_size for name in names))
    seconds = _STARTING_SECONDS + 3 * size / _SLOWEST_BYTES if max_seconds is None else max_seconds
    with new_folder(target) as folder:
        report = _run_worker(source, names, folder, seconds, lambda n: progress(min(1.0, n / size)))
        _copy_texts(source, folder)
        record = {key: report[key] for key in ("source", "torch", "cats_jax", "left_out")}
        (folder / RECORD).write_text(json.dumps({"format": 1, **record}, indent=1) + "\n")
    return Conversion(
        report["num_tensors"], report["num_bytes"], tuple(report["files"]), report["left_out"]
    )


def check_absent(target: pathlib.Path) -> None:
    """Raise BadInputError if something stands at a path that is to become a folder."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInputError(f"{str(target)!r} exists already: name a new folder")


@contextlib.contextmanager
def new_folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder to write in, which gets the name `target` when the `with` block ends.

    An error leaves no file behind; a kill leaves a folder of another name.

    Raises:
        BadInputError: something can't be written.
    """
    work = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = pathlib.Path(tempfile.mkdtemp(prefix=f"{target.name}.partial-", dir=target.parent))
        yield work
        work.chmod(0o755)
        work.replace(target)
    except OSError as error:
        raise BadInputError(
            f"{str(target)!r} can't be written ({error.strerror}): free space, or choose another "
            "place"
        ) from error
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def _bin_files(source: pathlib.Path) -> list[str]:
    if any(source.glob("*.safetensors")):
        raise BadInputError(f"{str(source)!r} has safetensors files already: use it as it is")
    if (source / _INDEX).is_file():
        return shard_names(source / _INDEX)
    if not any(source.glob("*.bin")) and any(source.iterdir()):
        raise MissingModelError(f"model folder {str(source)!r} {what_is_lacking(source)}")
    if not (source / "pytorch_model.bin").is_file():
        raise BadInputError(
            f"{str(source)!r} has neither pytorch_model.bin nor {_INDEX}: give the folder of a "
            "released checkpoint"
        )
    return ["pytorch_model.bin"]


def _run_worker(
    source: pathlib.Path,
    names: list[str],
    folder: pathlib.Path,
    max_seconds: float,
    progress: Callable[[int], None],
) -> dict[str, Any]:
    """Run the worker and return its report; it is killed at its time limit or on an interrupt."""
    # -P: a file in the working directory must not pass for a module.
    worker = "cats_jax.models.prm.convert_worker"
    command = [sys.executable, "-P", "-m", worker, source, folder, *names]
    path = os.pathsep.join(filter(None, (str(_HOME), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    deadline = time.monotonic() + max_seconds
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,  # closed when this process ends, however it ends
            stdout=output,
            stderr=errors,
            env=environment,
        ) as process:
            try:
                while process.poll() is None:
                    if time.monotonic() > deadline:
                        raise BadInputError(
                            f"{str(source)!r} took more than {max_seconds:.0f} s to convert: check "
                            "the files, or allow more by --max-seconds"
                        )
                    time.sleep(_POLL_SECONDS)
                    progress(sum(file.stat().st_size for file in folder.glob("*.safetensors")))
            finally:
                process.kill()
        output.seek(0)
        errors.seek(0)
        try:
            report = json.loads(output.read())
        except ValueError:
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
            reason = ": ".join((f"its process ended with code {process.returncode}", *last))
            report = {"error": f"{reason}; check that memory and disk suffice"}
    if "error" in report:
        raise BadInputError(f"{str(source)!r} can't be converted: {report['error']}")
    return report


def _copy_texts(source: pathlib.Path, folder: pathlib.Path) -> None:
    for file in sorted(source.iterdir()):
        wanted = file.suffix in _COPIED_SUFFIXES or file.name in _COPIED_NAMES
        if wanted and file.is_file() and file.name not in (_INDEX, RECORD):
            shutil.copyfile(file, folder / file.name)
