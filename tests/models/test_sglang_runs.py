"""`cats-jax evaluate` with a policy and a PRM on SGLang: rows of runs that fail and go on."""

import functools
import json

import pytest
from sglang_server import serving

from cats_jax import cli
from cats_jax.models.serving.http_engine import Server
from cats_jax.runs.folder import read_run

pytestmark = pytest.mark.slow

_QUESTIONS = 4
_ACTION = {"num_extra": 2, "num_retain": 1, "temperature": 0.6}
_STRATEGIES = ["greedy", "majority", "beam", {"name": "cats_constant", "action": _ACTION}]
_serving = functools.partial(serving, context=263)  # with room for the world's 256 tokens


def evaluate(url, folder, **policy):
    """The exit code of the command, and what must be the same in two runs."""
    limits = {"max_step_tokens": 32, "max_answer_tokens": 64, "log_probs": False}
    content = {
        "policy": {"path": "weak", "backend": url, **limits, **policy},
        "prms": [{"path": "exact", "backend": url}],
        "strategies": _STRATEGIES,
        "num_candidates": 4,
        "questions": {"world": "validation", "count": _QUESTIONS},
        "max_depth": 4,
    }
    recipe = folder.with_suffix(".json")
    recipe.write_text(json.dumps(content))
    code = cli.run(["evaluate", str(recipe), "--output", str(folder)])
    rows = {}
    if (folder / "results.jsonl").exists():
        run = read_run(folder)
        for row in run.rows:
            tree = run.tree(row)
            found = (row.status, row.answer, row.ledger.generated, tree.candidates, tree.paths)
            rows[row.key] = found
    return code, rows


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr("cats_jax.models.serving.http_engine._FIRST_WAIT", 0.01)
    monkeypatch.setattr("cats_jax.models.serving.http_engine._LONGEST_WAIT", 0.05)
    defaults = Server.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "timeout", 2.0)
    monkeypatch.setitem(defaults, "patience", 20.0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with _serving() as server:
        code, rows = evaluate(server.url, tmp_path_factory.mktemp("run") / "undisturbed")
    assert code == 0
    assert len(rows) == len(_STRATEGIES) * _QUESTIONS
    assert {row[0] for row in rows.values()} == {"answered"}
    assert len({row[1] for row in rows.values()}) > 3
    return rows


def test_a_tenth_of_the_calls_fails_and_the_rows_are_the_same(tmp_path, undisturbed):
    kinds = [500, "hang", "truncated", "missing", "drop", 503]
    faults = [fault for kind in kinds * 20 for fault in (*[None] * 9, kind)]
    with _serving(faults) as server:
        assert evaluate(server.url, tmp_path / "run") == (0, undisturbed)
        assert len(server.bodies) > 40


def test_a_run_that_lost_its_server_goes_on(tmp_path, undisturbed, monkeypatch, capsys):
    defaults = Server.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience", 0.2)
    with _serving([None] * 30 + [503] * 10_000) as server:
        port = server.server_port
        code, rows = evaluate(server.url, tmp_path / "run")
    assert code == 1
    assert rows.items() < undisturbed.items()
    assert "check the server and start again, nothing is lost" in capsys.readouterr().err
    with _serving(port=port) as server:
        assert evaluate(server.url, tmp_path / "run") == (0, undisturbed)


def test_a_temperature_without_log_probabilities_stops_the_run_in_one_line(tmp_path, capsys):
    with _serving() as server:
        assert evaluate(server.url, tmp_path / "run", log_probs=None)[0] != 0
    assert "at the temperature of sampling, 0.6, not at 1: sample at temperature 1" in (
        capsys.readouterr().err
    )
