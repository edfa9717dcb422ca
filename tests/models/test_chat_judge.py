"""A model of a chat endpoint as judge, in searches and commands, and what the endpoint bills."""

import csv
import json
import re

import chat_server
import pytest
import scripted
from chat_server import SECRET, serving

import search
from cats_jax import cli
from cats_jax.errors import BadInputError, RunStoppedError, ScorerContractError
from cats_jax.live.searcher import Searcher
from cats_jax.models.judge import JudgeScorer
from cats_jax.models.resolve import resolve_format
from cats_jax.models.source import ModelFolders, is_judge
from cats_jax.protocols import Question, Step
from cats_jax.reporting import run_report
from cats_jax.runs.folder import read_run
from cats_jax.specs.models import PrmSpec
from cats_jax.specs.recipe import parse_recipe


@pytest.fixture
def knows(monkeypatch):
    """Lets the endpoint judge sums as the scripted PRM without noise does."""

    def write(asked, begun, seed):
        (text,) = re.findall(r"<question>\n(.*?)\n</question>", asked, re.DOTALL)
        steps = re.findall(r"<step_\d+>\n(.*?)\n</step_\d+>", asked, re.DOTALL)
        path = tuple(Step(step, (1,)) for step in steps)
        (score,) = scripted.ScriptedPrm(noise=0.0).score([Question("q", text)], [path]).scores
        return f"I read {len(steps)} steps.\n\nJudgement: {'Yes' if score else 'No'}"

    monkeypatch.setattr(chat_server, "write", write)
    monkeypatch.setenv("A_KEY", SECRET)


def spec_of(server, **changes):
    values = {"backend": server.url, "served_name": "m", "api_key_env": "A_KEY", **changes}
    return PrmSpec("chat-judge", **values)


def charged(server):
    return (2 * server.prompt_tokens + 8 * server.completion_tokens) / 1e6


def searched(scorer, strategy):
    searcher = Searcher(
        policy=scripted.ScriptedPolicy(),
        scorer=scorer,
        strategy=strategy,
        num_candidates=4,
        max_depth=6,
    )
    return searcher.run(list(scripted.question_set(4).questions))


def test_a_search_is_that_with_a_prm_that_knows_the_same(knows):
    with serving(key=SECRET) as server:
        spec = spec_of(server, price={"input": 2, "output": 8})
        assert is_judge(spec)
        assert resolve_format(spec).format == "judge-critique"
        models = ModelFolders()
        models.check(spec)
        assert models.fingerprint(spec)["name"] == "m"
        judge = models.prm(spec)
        assert isinstance(judge, JudgeScorer)
        probed = server.prompt_tokens + server.completion_tokens - server.samples
        probe = charged(server)
        results = searched(judge, search.beam(expansion=2))
        billed = server.prompt_tokens + server.completion_tokens - server.samples - probed
        expected = searched(scripted.ScriptedPrm(noise=0.0), search.beam(expansion=2))
        assert [each.answer for each in results] == [each.answer for each in expected]
        scores = [[each.score for each in result.candidates] for result in results]
        assert scores == [[each.score for each in result.candidates] for result in expected]
        # The last token of a critique is not read by the model.
        assert sum(each.ledger.prm_computed for each in results) == billed
        costs = [each.ledger.prm_cost for each in results]
        assert sum(costs) == pytest.approx(charged(server) - probe, rel=1e-9)
        assert min(costs) > 0
        assert [each.ledger.policy_cost for each in results] == [0.0] * 4
        assert len({json.dumps(body) for body in server.bodies}) == len(server.bodies)
        assert judge.note is None


@pytest.mark.parametrize("command", ["score", "quality"])
def test_commands_that_read_given_steps(knows, tmp_path, capsys, command):
    rows = [
        {"id": "a", "question": "3+4+5", "steps": ["7", "12"], "labels": [1, 1]},
        {"id": "b", "question": "3+4+5", "steps": ["8", "13"], "labels": [0, 0]},
    ]
    file, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving(key=SECRET) as server:
        loading = ["--backend", server.url, "--served-name", "m", "--api-key-env", "A_KEY"]
        if command == "score":
            files = ["--prm", "chat-judge", "--input", str(file), "--output", str(out)]
        else:
            files = [str(file), "--prms", "chat-judge", "--scored", str(out)]
        assert cli.run([command, *files, *loading]) == 0, capsys.readouterr().err
    found = [json.loads(line) for line in out.read_text().splitlines()]
    scores = [row["scores"] for row in found]
    if command == "quality":
        scores = [each["chat-judge"] for each in scores]
    assert scores == [[1.0, 1.0], [0.0, 0.0]]
    assert SECRET not in out.read_text()


def test_a_judge_has_a_limit_of_its_cost_and_pays_for_nothing_twice(knows, tmp_path):
    """As a policy has: see the runs in test_chat_runs.py."""
    paid = {"price": {"input": 2, "output": 8}, "replies": str(tmp_path / "replies.jsonl")}
    with serving(key=SECRET) as server:
        with pytest.raises(RunStoppedError, match=r"max_cost=0\.0001 has no room"):
            ModelFolders().prm(spec_of(server, **paid, max_cost=0.0001))
        assert server.bodies == []
        answers = []
        for _ in range(2):
            judge = ModelFolders().prm(spec_of(server, **paid, max_cost=1.0))
            scores = judge.score([Question("q", "3+4+5")] * 2, [(Step("7", ()),), (Step("8", ()),)])
            answers.append((scores.scores, len(server.bodies)))
        assert answers[0] == answers[1]
        assert answers[0][0] == [1.0, 0.0]


def test_a_batch_with_a_refused_request_pays_for_the_others_once(knows):
    """The driver repeats such a batch, one question at a time."""
    long = "9" * 99
    paths = {Question(str(i), "3+4+5"): (Step(str(i), ()),) for i in range(4)}
    paths[Question("long", long)] = (Step("9", ()),)
    with serving(key=SECRET) as server:
        sound = server.reply

        def reply(body):
            if long in body["messages"][-1]["content"]:
                raise chat_server.RefusedError
            return sound(body)

        server.reply = reply
        judge = ModelFolders().prm(spec_of(server))
        probes = len(server.bodies)
        with pytest.raises(ScorerContractError, match="status 413"):
            judge.score([*paths], [*paths.values()])
        *questions, last = paths
        assert [judge.score([q], [paths[q]]).scores for q in questions] == [[0.0]] * 4
        with pytest.raises(ScorerContractError, match="status 413"):
            judge.score([last], [paths[last]])
        assert len(server.bodies) == probes + 4 + 2


@pytest.mark.slow
def test_a_run_and_its_scores_anew(knows, tmp_path, monkeypatch, capsys):
    content = {
        "name": "judged",
        "policy": {"path": "weak", "max_step_tokens": 32},
        "strategies": ["best_of_n"],
        "num_candidates": 2,
        "questions": {"world": "validation", "count": 2},
        "max_depth": 4,
    }
    with serving(key=SECRET) as server:
        judge = {"path": "chat-judge", "backend": server.url, "served_name": "m"}
        judge |= {"api_key_env": "A_KEY", "price": {"input": 2, "output": 8}}
        recipe = tmp_path / "judged.json"
        recipe.write_text(json.dumps({**content, "prms": [judge]}))
        # The scripted PRM does not know the world's questions, so a plain verdict is given.
        chat_server.write = lambda asked, begun, seed: "Judgement: Yes"
        assert cli.run(["evaluate", str(recipe), "--dry-run"]) == 0
        assert "is a judge" in capsys.readouterr().out
        folder, plain = tmp_path / "run", tmp_path / "plain.json"
        assert cli.run(["evaluate", str(recipe), "--output", str(folder)]) == 0
        manifest = json.loads((folder / "manifest.json").read_text())
        assert any("may change without notice" in note for note in manifest["notes"])
        assert manifest["formats"]["prm chat-judge"] == "auto: judge-critique"
        assert manifest["config"]["prms"][0]["format"] == "judge-critique"
        assert cli.run(["report", str(folder), "--output", str(tmp_path / "tables")]) == 0
        (table,) = (tmp_path / "tables").rglob("*accuracy*.csv")
        (line,) = csv.DictReader(table.read_text().splitlines())
        cost = sum(row.ledger.prm_cost for row in read_run(folder).rows)
        assert 2 * float(line["prm_cost"]) == pytest.approx(cost)
        assert cost > 0
        assert float(line["policy_cost"]) == 0
        monkeypatch.setattr(run_report, "write_overview", lambda run: [])  # figures take seconds
        plain.write_text(json.dumps({**content, "prms": ["exact"]}))
        before, again = tmp_path / "before", tmp_path / "again"
        assert cli.run(["evaluate", str(plain), "--output", str(before)]) == 0
        loading = ["--backend", server.url, "--served-name", "m", "--api-key-env", "A_KEY"]
        arguments = ["rescore", str(before), "--prm", "chat-judge", "--output", str(again)]
        assert cli.run([*arguments, *loading, "--price", "2", "8"]) == 0, capsys.readouterr().err
        assert "PRM cost" in capsys.readouterr().out
        for row in read_run(again).rows:
            assert min(row.ledger.prm_computed, row.ledger.prm_cost) > 0
        # The other way round: a run with the judge becomes the run with the world's PRM.
        exact = tmp_path / "exact"
        assert cli.run(["rescore", str(folder), "--prm", "exact", "--output", str(exact)]) == 0
        found = zip(read_run(exact).rows, read_run(before).rows, strict=True)
        for row, expected in found:
            assert (row.key, row.answer) == (expected.key, expected.answer)
            for column in ("prm_computed", "flops", "prm_flops", "prm_cost", "generated"):
                assert getattr(row.ledger, column) == getattr(expected.ledger, column), column
        assert cli.run(["solve", "((50*4)-21)+15=?", "--recipe", str(recipe), "-n", "2"]) == 0
    assert SECRET.encode() not in b"".join(p.read_bytes() for p in tmp_path.rglob("*.json*"))


def test_what_can_not_work_is_one_line(knows):
    for values in ({}, {"backend": "http://h:1"}, {"served_name": "m"}):
        with pytest.raises(BadInputError, match="needs backend, the address of a chat endpoint"):
            PrmSpec("chat-judge", **values)
    for values in ({"max_model_len": 8}, {"head": "h.safetensors"}, {"device": "cuda"}):
        with pytest.raises(BadInputError, match=f"{next(iter(values))}=.* has no effect with"):
            PrmSpec("chat-judge", backend="http://h:1", served_name="m", **values)
    with pytest.raises(BadInputError, match="prms: max_cost needs price"):
        PrmSpec("chat-judge", backend="http://h:1", served_name="m", max_cost=1.0)
    with pytest.raises(BadInputError, match=r"prms: price=.* has no effect with the backend hf"):
        PrmSpec("exact", price={"input": 1, "output": 1})
    policy = {"backend": "http://h:1", "chat": True, "served_name": "p", "replies": "a/../r.jsonl"}
    prm = {"path": "chat-judge", "backend": "http://h:1", "served_name": "m", "replies": "r.jsonl"}
    rest = {"name": "r", "strategies": ["beam"], "questions": {"world": "test", "count": 1}}
    with pytest.raises(BadInputError, match=r"'r\.jsonl' is the file of another model"):
        parse_recipe({**rest, "policy": policy, "prms": [prm], "num_candidates": 4})
    with serving(key=SECRET) as server:
        with pytest.raises(BadInputError, match="reads probabilities of tokens"):
            ModelFolders().check(spec_of(server, format="judge-probability"))
        assert server.bodies == []
