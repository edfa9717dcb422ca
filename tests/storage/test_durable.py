"""Output folders of strangers: nothing outside of them is written, whatever lies in them."""

import errno
import os
import pathlib

import pytest
from made_runs import manifest, row, write_run

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.evaluation.tracking import FOLDER, TensorBoard
from cats_jax.runs.folder import RESULTS, SUMMARY, TREES, RunWriter, write_summary
from cats_jax.storage import durable
from cats_jax.storage.manifest import MANIFEST

LINKS = {"symbolic": os.symlink, "hard": os.link}


@pytest.fixture
def precious(tmp_path) -> pathlib.Path:
    """A file outside of the folder, which must keep its content."""
    path = tmp_path / "precious"
    path.write_text("keep me")
    return path


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("name", [durable.LOCK, RESULTS, TREES])
def test_a_link_that_is_to_be_written_is_refused_by_name(tmp_path, precious, name, kind):
    folder = write_run(tmp_path / "run", []).folder
    (folder / name).unlink(missing_ok=True)
    LINKS[kind](precious, folder / name)
    # An empty file is a run's file as it stands at the beginning.
    precious.write_text("")
    with pytest.raises(BadInputError, match=rf"/{name}' is a link or no plain file, .*: delete it"):
        RunWriter(folder, manifest())
    assert precious.read_text() == ""


def test_what_waits_under_a_new_files_name_is_replaced(tmp_path, precious):
    folder = write_run(tmp_path / "run", [row()]).folder
    for name, link in zip(
        (SUMMARY, "page.html", RESULTS, MANIFEST), [*LINKS.values()] * 2, strict=True
    ):
        link(precious, folder / f"{name}.new")
    (folder / RESULTS).write_bytes((folder / RESULTS).read_bytes() + b'{"cut off')
    RunWriter(folder, manifest()).close()
    write_summary(folder, {"accuracy": 1.0})
    durable.replace(folder / MANIFEST, (folder / MANIFEST).read_bytes())
    assert cli.run(["page", str(folder)]) == 0
    assert precious.read_text() == "keep me"
    assert not list(folder.glob("*.new"))


def test_a_named_pipe_in_the_place_of_a_lock_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / durable.LOCK)
    with pytest.raises(BadInputError, match="no plain file"):
        durable.hold(tmp_path)


def test_a_folder_for_curves_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInputError, match="is a link"):
        TensorBoard(tmp_path)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_run_goes_on_without_curves_where_they_can_not_be_written(tmp_path):
    (tmp_path / FOLDER).write_text("a file")
    board = TensorBoard(tmp_path)
    board.scalar("accuracy", 1.0, 1)
    board.close()
    assert (tmp_path / FOLDER).read_text() == "a file"


def test_a_line_that_does_not_fit_leaves_no_part_of_it(tmp_path, monkeypatch):
    path = tmp_path / "lines"
    descriptor = durable.open_to_append(path)
    try:
        durable.append(descriptor, b"one\n")
        write = os.write

        def full(where, data):
            if len(data) < 4:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(where, bytes(data[:2]))

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match="No space"):
                durable.append(descriptor, b"four\n")
        durable.append(descriptor, b"two\n")
    finally:
        os.close(descriptor)
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    "error", [ConnectionError("no route to the PRM"), FileNotFoundError(2, "no file", "model")]
)
def test_an_error_of_the_work_is_not_one_of_the_file_that_is_written(tmp_path, error):
    def write():
        with durable.whole_text(tmp_path / "out") as file:
            file.write("a line")
            raise error

    with pytest.raises(type(error), match="no "):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_no_output(tmp_path):
    """A file that replaced /dev/null would get the output of all programs."""
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("pipe", "no plain file"), ("", "a folder")):
        with pytest.raises(BadInputError, match=f"--output '.*' is {kind}: name a file"):
            durable.check_output("--output", tmp_path / name)
    durable.check_output("--output", tmp_path / "new")


def _write_text(path):
    with durable.whole_text(path) as file:
        file.write("new")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: durable.replace(path, b"new"), "No space left on device"),
        (_write_text, "/file' can't be written .No space left on device.: free space, or choose"),
    ],
)
def test_a_file_that_does_not_fit_stays_as_it_was_and_leaves_no_part(
    tmp_path, monkeypatch, write, message
):
    path = tmp_path / "file"
    path.write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises((OSError, BadInputError), match=message):
        write(path)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"file": "old"}
