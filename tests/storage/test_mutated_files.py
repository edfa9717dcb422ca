"""Every field of files that are read, with wrong values: read, or refused in one line."""

import gzip
import json

from made_runs import manifest, row
from mutations import mutations, reads_or_refuses
from run_folders import candidate, searched

from cats_jax.live.results import DecisionRow
from cats_jax.runs.folder import RESULTS, TREES, RunWriter, read_run
from cats_jax.runs.run_manifest import check_described
from cats_jax.specs.calibrations import load_calibrations
from cats_jax.storage.manifest import MANIFEST

_EVERY = 5
"""Each how many-th mutation is tried: without a factor in common with their number per value."""


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
    check_described(run.folder, run.manifest)
    return [run.tree(each) for each in run.rows]


def test_a_run_with_one_wrong_value_is_read_or_refused_by_file(tmp_path):
    folder = _run(tmp_path / "run")
    assert len(_read(folder)) == 1
    for name in (MANIFEST, RESULTS):
        path = folder / name
        whole = path.read_text()
        for text in mutations(json.loads(whole), _EVERY):
            path.write_text(text + "\n")
            reads_or_refuses(lambda: _read(folder), str(folder), text)
        path.write_text(whole)


def test_a_tree_with_one_wrong_value_is_read_or_refused_by_file(tmp_path):
    folder = _run(tmp_path / "run")
    lines = gzip.decompress((folder / TREES).read_bytes()).decode().splitlines()
    kept = json.loads((folder / RESULTS).read_text())
    for number, line in enumerate(lines):
        for text in mutations(json.loads(line), _EVERY):
            changed = "\n".join([*lines[:number], text, *lines[number + 1 :]])
            member = gzip.compress(changed.encode(), 1)
            (folder / TREES).write_bytes(member)
            (folder / RESULTS).write_text(json.dumps({**kept, "tree": [0, len(member)]}) + "\n")
            reads_or_refuses(lambda: _read(folder), TREES, text)


def test_a_results_file_that_is_a_folder_is_refused(tmp_path):
    folder = _run(tmp_path / "run")
    (folder / RESULTS).unlink()
    (folder / RESULTS).mkdir()
    reads_or_refuses(lambda: _read(folder), RESULTS, "a folder")


def test_a_calibration_with_one_wrong_value_is_read_or_refused_by_file(tmp_path):
    path = tmp_path / "c.json"
    values = {"intercept": 0.5, "slope": 1.0, "agreement": 0.0}
    for text in mutations({"prms": {"exact": values}}):
        path.write_text(text)
        reads_or_refuses(lambda: load_calibrations(path), "c.json", text)
