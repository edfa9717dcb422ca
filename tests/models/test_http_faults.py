"""`cats-jax evaluate` on a server that fails: the rows are those of an undisturbed run."""

import functools
import hashlib
import json
import threading

import faulty_server
import pytest
import sglang_server

from cats_jax import cli
from cats_jax.models.serving.http_engine import ServerClient
from cats_jax.runs.folder import read_run
from cats_jax.world.tokenizer import BOX_OPEN, EOS_ID, SEPARATOR_ID, TOKEN_IDS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits", "impatient")]

_QUESTIONS = 6


def answer(path, body):
    """A policy and a PRM of the embedded world that answer by hashes of what they are asked."""
    if path == "/classify":
        scores = [digest(prompt)[0] / 255 for prompt in body["input"]]
        return {"data": [{"index": i, "probs": [score]} for i, score in enumerate(scores)]}
    choices = []
    for index in range(body["n"]):
        first, second, third = digest(body["prompt"], body["seed"], index)[:3]
        digits = [TOKEN_IDS[str(first % 10)], TOKEN_IDS[str(second % 4)]]
        ids = [*digits, SEPARATOR_ID]
        if third % 3 == 0 or SEPARATOR_ID not in body["stop_token_ids"]:
            ids = [TOKEN_IDS[BOX_OPEN], *digits, TOKEN_IDS["}"], EOS_ID]
        log_probs = {"token_logprobs": [-0.5] * len(ids)}
        choices.append(
            {"index": index, "token_ids": ids, "finish_reason": "stop", "logprobs": log_probs}
        )
    return {"choices": choices}


def digest(*parts):
    return hashlib.sha256(json.dumps(parts).encode()).digest()


_ACTION = {"num_extra": 2, "num_retain": 1, "temperature": 0.6}
# Servers by kind, what is searched on them, and settings of the policy.
KINDS = {
    "vllm": (
        functools.partial(faulty_server.serving, answer, context=256),
        ["greedy", "best_of_n", "beam"],
        {},
    ),
    "sglang": (
        functools.partial(sglang_server.serving, context=263),  # room for the world's 256 tokens
        ["greedy", "majority", "beam", {"name": "cats_constant", "action": _ACTION}],
        {"log_probs": False},
    ),
}
_serving = KINDS["vllm"][0]


def evaluate(url, folder, kind="vllm", **changes):
    """The exit code of the command, and what must be the same in two runs."""
    _, strategies, settings = KINDS[kind]
    limits = {"max_step_tokens": 32, "max_answer_tokens": 64, **settings, **changes}
    content = {
        "policy": {"path": "weak", "backend": url, **limits},
        "prms": [{"path": "exact", "backend": url}],
        "strategies": strategies,
        "num_candidates": 8,
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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The rows of a run without faults, by the kind of server."""

    @functools.cache
    def rows_of(kind="vllm"):
        serving, strategies, _ = KINDS[kind]
        with serving() as server:
            code, rows = evaluate(server.url, tmp_path_factory.mktemp("run") / kind, kind)
        assert code == 0
        assert len(rows) == len(strategies) * _QUESTIONS
        assert {row[0] for row in rows.values()} == {"answered"}
        assert len({row[1] for row in rows.values()}) > 3
        return rows

    return rows_of


@pytest.fixture
def impatient(monkeypatch):
    """Calls last a second; the function that it gives changes how long they are repeated."""
    defaults = ServerClient.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "timeout", 1.0)

    def repeat_for(seconds):
        monkeypatch.setitem(defaults, "patience", seconds)

    repeat_for(20.0)
    return repeat_for


_FAULTS = [500, "hang", "truncated", "missing", "drop", 503]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tenth_of_the_calls_fails_and_the_rows_are_the_same(tmp_path, undisturbed, kind):
    expected = undisturbed(kind)
    calls = [each for fault in _FAULTS for each in (*[None] * 4, fault, *[None] * 5)] * 100
    with KINDS[kind][0](calls) as server:
        code, rows = evaluate(server.url, tmp_path / "run", kind)
        assert len(server.bodies) >= 10 * len(_FAULTS) - 5  # the last fault was met, too
    assert (code, rows) == (0, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_stays_away_stops_the_run_which_can_be_gone_on_with(
    tmp_path, undisturbed, impatient, capsys, kind
):
    (serving, *_), expected, folder = KINDS[kind], undisturbed(kind), tmp_path / "run"
    impatient(0.2)
    with serving([None] * 25 + [503] * 10_000) as server:
        port = server.server_port
        code, rows = evaluate(server.url, folder, kind)
    assert code == 1
    assert rows.items() < expected.items()
    assert "check the server and start again, nothing is lost" in capsys.readouterr().err
    with serving(port=port) as server:
        assert evaluate(server.url, folder, kind) == (0, expected)


def test_a_broken_score_fails_its_question_by_name(tmp_path, undisturbed):
    expected, broken = undisturbed(), []

    def one_without_a_score(path, body):
        reply = answer(path, body)
        if path == "/classify":
            broken[:] = broken or [body["input"][0][:12]]
            for prompt, entry in zip(body["input"], reply["data"], strict=True):
                if prompt[:12] == broken[0]:
                    entry["probs"] = [float("nan")]
        return reply

    with faulty_server.serving(one_without_a_score, context=256) as server:
        code, rows = evaluate(server.url, tmp_path / "run")
    failed = {key for key, row in rows.items() if row[0] == "failed"}
    assert code == 0
    assert len(failed) == 2  # one question, by the two strategies that ask the PRM
    assert len({key.rpartition("|")[2] for key in failed}) == 1
    assert all(rows[key] == expected[key] for key in rows.keys() - failed)


def test_a_file_is_scored_on_a_server(tmp_path, capsys):
    rows = [{"question": "1+2*3=?", "steps": ["2*3=6", "1+6=7"]}, {"question": "1=?", "steps": []}]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["score", "--prm", "exact", "--input", str(source), "--output", str(target)]
    with _serving([500, "missing"]) as server:
        assert cli.run([*command, "--backend", server.url]) == 0
        prompts = sorted(server.bodies[-1]["input"], key=len)
    first, second = map(json.loads, target.read_text().splitlines())
    assert first["scores"] == [digest(prompt)[0] / 255 for prompt in prompts]
    assert "must be a list" in second["error"]
    assert "2 rows, 1 without scores" in capsys.readouterr().out


def test_a_server_killed_in_mid_run_and_started_again(tmp_path, undisturbed):
    expected, killed = undisturbed(), threading.Event()

    def kill_at(count):
        """Sound until this many calls; then the server is gone, in the middle of one of them."""
        calls = iter(range(count))

        def sound(path, body):
            if next(calls, None) is None and not killed.is_set():
                killed.set()
                threading.Thread(target=first.die).start()
            return answer(path, body)

        return sound

    def start_again(port):
        killed.wait(60)
        first.dead.wait(60)
        threading.Event().wait(0.5)  # calls that find nobody
        with _serving(port=port) as server:
            ended.wait(60)
            counts.append(len(server.bodies))

    ended, counts = threading.Event(), []
    with faulty_server.serving(kill_at(25), context=256) as first:
        again = threading.Thread(target=start_again, args=(first.server_port,))
        again.start()
        result = evaluate(first.url, tmp_path / "run")
    ended.set()
    again.join()
    assert killed.is_set()
    assert counts[0] > 10
    assert result == (0, expected)


def test_a_temperature_without_log_probabilities_stops_the_run_in_one_line(tmp_path, capsys):
    with KINDS["sglang"][0]() as server:
        assert evaluate(server.url, tmp_path / "run", "sglang", log_probs=None)[0] != 0
    assert "at the temperature of sampling, 0.6, not at 1: sample at temperature 1" in (
        capsys.readouterr().err
    )
