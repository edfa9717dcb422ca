"""`cats-jax evaluate` with a policy on a scripted chat endpoint."""

import json
import signal
import subprocess
import sys
import time

import pytest
import search_server
from chat_server import PROBES, SECRET, serving

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.models.serving.chat import ChatPolicy, chat_policy
from cats_jax.protocols import Question, StepRequest
from cats_jax.reporting import run_report
from cats_jax.runs.folder import read_run
from cats_jax.specs.models import PolicySpec

_SERVED = {"backend": "http://localhost:1", "chat": True, "served_name": "llama3.1:8b"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backend": "vllm"}, "backend='vllm': chat: true needs the address of an endpoint"),
        *(
            ({"backend": url}, "policy: backend: an address has a host, and neither blanks")
            for url in ("http://", "https:///v1", "http://h/v1?key=1", "http://h#f", "http://a b")
        ),
        ({"served_name": None}, "needs served_name"),
        ({"path": "a/folder"}, "leave path out"),
        ({"chat": "yes"}, "chat='yes': must be true or false"),
        ({"log_probs": True}, "log_probs=True has no effect"),
        ({"max_model_len": 100}, "max_model_len=100 has no effect"),
        ({"chat": None, "max_cost": 1.0, "price": {"input": 1, "output": 1}}, "a chat endpoint"),
        ({"max_cost": 1.0}, "max_cost needs price"),
        ({"price": {"input": 1}}, "price=.*must be {input: X, output: Y}"),
        ({"price": {"input": 1, "output": True}}, "price="),
        ({"price": {"input": 1, "output": -1}}, "price="),
        ({"price": {"input": 1, "output": float("nan")}}, "price="),
        ({"max_requests_per_minute": 0}, "must be a number above 0"),
        ({"max_cost": "2"}, "max_cost='2': must be a number"),
        ({"replies": ""}, "replies='': must be the path"),
    ],
)
def test_a_setting_that_can_not_work_is_one_line(changes, words):
    with pytest.raises(BadInputError, match=words):
        PolicySpec(**{**_SERVED, **changes})


def test_a_name_of_a_model_is_no_function_of_the_user():
    assert PolicySpec(**_SERVED).name == "llama3.1:8b"
    assert PolicySpec(**PolicySpec(**_SERVED).__dict__) == PolicySpec(**_SERVED)


def _recipe(folder, server, strategies, **policy):
    content = {
        "name": folder.name,
        "policy": {
            "backend": server.url,
            "chat": True,
            "served_name": "llama3.1:8b",
            "format": "plain",
            "max_step_tokens": 16,
            "max_answer_tokens": 64,
            **policy,
        },
        "prms": ["exact"],
        "strategies": strategies,
        "num_candidates": 4,
        "questions": {"world": "validation", "count": 6},
        "max_depth": 4,
    }
    recipe = folder.with_suffix(".json")
    recipe.write_text(json.dumps(content))
    return str(recipe)


def _evaluate(folder, *arguments):
    code = cli.run(["evaluate", *arguments, "--output", str(folder)])
    rows = {}
    if (folder / "results.jsonl").exists():
        run = read_run(folder)
        for row in run.rows:
            tree = run.tree(row)
            rows[row.key] = (row.status, row.answer, row.ledger.generated, tree.candidates)
    return code, rows


def _written(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_run_stops_at_its_cost_and_goes_on_without_paying_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("A_KEY", SECRET)
    kinds = ["greedy", "majority", "best_of_n", "beam"]
    paid = {"api_key_env": "A_KEY", "price": {"input": 2, "output": 8}}
    with serving(key=SECRET) as server:
        recipe = _recipe(tmp_path / "whole", server, kinds, **paid)
        code, expected = _evaluate(tmp_path / "whole", recipe)
        assert code == 0
        manifest = json.loads((tmp_path / "whole" / "manifest.json").read_text())
        probes = server.bodies[:PROBES]
    assert len(expected) == 24
    assert {row[0] for row in expected.values()} == {"answered"}
    assert any("can't be repeated" in note for note in manifest["notes"])
    assert manifest["models"]["policy"]["name"] == "llama3.1:8b"
    with serving(key=SECRET) as once:
        for probe in probes:
            once.reply(probe)
    ledger = sum(row[2] for row in expected.values())
    # Rows that share samples each cost what they cost alone.
    assert ledger > server.completion_tokens - once.completion_tokens

    monkeypatch.setattr(run_report, "write_overview", lambda run: [])  # figures take seconds
    folder = tmp_path / "stopped"
    limits = {**paid, "replies": str(tmp_path / "replies.jsonl")}
    with serving(key=SECRET) as server:
        codes, rows = [], {}
        for limit in (0.001, 0.005, 1.0):
            recipe = _recipe(folder, server, kinds, **limits, max_cost=limit)
            code, rows = _evaluate(folder, recipe)
            codes.append(code)
            billed = (2 * server.prompt_tokens + 8 * server.completion_tokens) / 1e6
            assert billed <= limit
        bodies = [json.dumps(body, sort_keys=True) for body in server.bodies]
    assert codes == [1, 1, 0]
    assert len(set(bodies)) == len(bodies)
    assert "has no room for another request" in capsys.readouterr().err
    assert {key: row[:2] for key, row in rows.items()} == {
        key: row[:2] for key, row in expected.items()
    }
    assert SECRET.encode() not in _written(tmp_path)


@pytest.mark.slow
def test_an_interrupted_run_ends_within_seconds_and_keeps_the_replies_that_have_come(tmp_path):
    replies = tmp_path / "replies.jsonl"
    said = [None] * 10  # the probes and 8 samples
    with serving(*said, *["never"] * 1000, honours_n=False) as server:
        recipe = _recipe(tmp_path / "run", server, ["majority"], replies=str(replies))
        command = ["evaluate", recipe, "--output", str(tmp_path / "run")]
        # A suite that runs in the background may have SIGINT ignored, and so would the command.
        program = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT]); "
            "from cats_jax.cli import main; main(sys.argv[1:])"
        )
        with subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", program, *command],
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            until = time.monotonic() + 200
            while len(server.bodies) < 20:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            started = time.monotonic()
            try:
                _, error = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # prints what its threads do
                pytest.fail(process.communicate()[1])
        assert time.monotonic() - started < 20  # the server would be waited for for 300 s
    assert process.returncode == 1
    assert "cats-jax: interrupted" in error
    lines = [json.loads(line) for line in replies.read_text().splitlines()]
    assert sum(line["samples"] is not None for line in lines) == len(said)  # others are lost ones


@pytest.mark.slow
def test_strategies_that_need_steps_are_refused_where_no_turn_is_continued(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(run_report, "write_overview", lambda run: [])  # figures take seconds
    with serving(continues=False) as server:
        recipe = _recipe(tmp_path / "a", server, ["majority", "beam"])
        assert cli.run(["evaluate", recipe, "--dry-run"]) == 0
        assert "whole answers only: it does not continue" in capsys.readouterr().out
        code, rows = _evaluate(tmp_path / "a", recipe)
        assert (code, rows) == (2, {})
        assert "beam" in (said := capsys.readouterr().err)
        assert "needs single steps: server http://127.0.0.1" in said
        assert len(server.bodies) == 2 * (PROBES + 1)  # the probes of each command
        recipe = _recipe(tmp_path / "b", server, ["majority", "greedy", "best_of_n"])
        code, rows = _evaluate(tmp_path / "b", recipe)
    assert code == 0
    assert len(rows) == 18


@pytest.mark.slow
def test_a_server_of_searches_is_an_endpoint_of_whole_answers():
    """The one server of another make that the tests' environment has: `cats-jax serve`."""
    ignored = ("max_tokens", "temperature", "top_p", "top_k")
    loaded = search_server.letters(ignore_sampling=ignored)
    with search_server.running(loaded) as server:
        spec = PolicySpec(backend=server.url, chat=True, served_name="letters", format="plain")
        policy = chat_policy(spec)
        assert isinstance(policy, ChatPolicy)
        assert policy.whole_only
        question = Question("q", "text 1")
        asked = StepRequest(question, (), (7 << 33, 8 << 33), 1.0, 1.0, 0, False)
        found = policy.generate_answers([asked], 9)
        replies = [
            server.client().chat.completions.create(
                model="letters",
                seed=seed,
                messages=[{"role": "user", "content": question.text}],
            )
            for seed in (7, 8)
        ]
    for reply, answer in zip(replies, found.answers[0], strict=True):
        assert reply.choices[0].message.content == "\n\n".join(s.step.text for s in answer)
    counts = [reply.usage.completion_tokens for reply in replies if reply.usage]
    assert found.usage[0].generated == sum(counts)
