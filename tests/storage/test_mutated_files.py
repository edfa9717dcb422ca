"""Every field of files that are read, with wrong values: read, or refused in one line."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

from made_runs import manifest, row
from run_folders import candidate, searched

from cats_jax.errors import BadInputError
from cats_jax.live.results import DecisionRow
from cats_jax.runs.folder import RESULTS, TREES, RunWriter, check_described, read_run
from cats_jax.specs.calibrations import load_calibrations
from cats_jax.storage.manifest import MANIFEST

VALUES = (
    "-5", "1.5", str(10**400), "1e308", "1e999", "NaN", "true", "[]", "{}", "null", '""',
    "[" * 100_000, '{"a":' * 100_000, json.dumps("x" * 100_000), '"\\ud800"', '"\\u0000"',
    "[-5, 5]", "[1.5, 3.5]", f"[0, {1 << 62}]", f"[{1 << 62}, 1]",
)  # fmt: skip
"""Documents that take the place of a value."""

_MARK = '"\\u0001"'


def mutations(value: Any) -> Iterator[str]:
    """A document's text with each of its values, at every depth, in turn replaced or left out."""
    for place in _places(value):
        marked = _with_mark(value, place)
        for other in VALUES:
            yield json.dumps(marked).replace(_MARK, other)
        yield json.dumps(_without(value, place))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from _places(item, (*path, key))


def _with_mark(value: Any, place: tuple[Any, ...]) -> Any:
    if not place:
        return "\u0001"
    copy = value.copy()
    copy[place[0]] = _with_mark(value[place[0]], place[1:])
    return copy


def _without(value: Any, place: tuple[Any, ...]) -> Any:
    copy = value.copy()
    if len(place) == 1:
        del copy[place[0]]
    else:
        copy[place[0]] = _without(value[place[0]], place[1:])
    return copy


def _reads_or_refuses(read: Any, name: str, text: str) -> None:
    try:
        read()
    except BadInputError as error:
        said = str(error)
        assert name in said, (text[:200], said[:300])
        assert "\n" not in said
        assert len(said) < 1500, said[:300]


def _run(folder):
    result = searched(
        "q0", "How?", [candidate(1, 0, 0, "a", 0.5, done=True, kept=True, answer="1")], 1
    )
    result.decisions.append(DecisionRow(0, 0, 0, (0.5, 1.0), 3, 2, 1, 1.0, 0.9, 0, 1, 0.25))
    with RunWriter(folder, manifest(max_depth=3)) as writer:
        writer.add(row(actions=((1, 1, 1.0, 1.0, 0, 2),)), result)
    return folder


def _read(folder):
    run = read_run(folder)
    check_described(run)
    return [run.tree(each) for each in run.rows]


def test_a_run_with_one_wrong_value_is_read_or_refused_by_file(tmp_path):
    folder = _run(tmp_path / "run")
    assert len(_read(folder)) == 1
    for name in (MANIFEST, RESULTS):
        path = folder / name
        whole = path.read_text()
        for text in mutations(json.loads(whole)):
            path.write_text(text + "\n")
            _reads_or_refuses(lambda: _read(folder), str(folder), text)
        path.write_text(whole)


def test_a_tree_with_one_wrong_value_is_read_or_refused_by_file(tmp_path):
    folder = _run(tmp_path / "run")
    lines = gzip.decompress((folder / TREES).read_bytes()).decode().splitlines()
    kept = json.loads((folder / RESULTS).read_text())
    for number, line in enumerate(lines):
        for text in mutations(json.loads(line)):
            changed = "\n".join([*lines[:number], text, *lines[number + 1 :]])
            member = gzip.compress(changed.encode(), 1)
            (folder / TREES).write_bytes(member)
            (folder / RESULTS).write_text(json.dumps({**kept, "tree": [0, len(member)]}) + "\n")
            _reads_or_refuses(lambda: _read(folder), TREES, text)


def test_a_results_file_that_is_a_folder_is_refused(tmp_path):
    folder = _run(tmp_path / "run")
    (folder / RESULTS).unlink()
    (folder / RESULTS).mkdir()
    _reads_or_refuses(lambda: _read(folder), RESULTS, "a folder")


def test_a_calibration_with_one_wrong_value_is_read_or_refused_by_file(tmp_path):
    path = tmp_path / "c.json"
    values = {"intercept": 0.5, "slope": 1.0, "agreement": 0.0}
    for text in mutations({"prms": {"exact": values}}):
        path.write_text(text)
        _reads_or_refuses(lambda: load_calibrations(path), "c.json", text)
