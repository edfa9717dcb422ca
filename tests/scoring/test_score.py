"""`cats-jax score`: rows in, the same rows with scores out."""

import json
import pathlib

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

from cats_jax.cli import run
from cats_jax.errors import ScorerContractError
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.format import WORLD
from cats_jax.protocols import Question, Scoring, Step, TokenUsage
from cats_jax.scoring.score_rows import ScoreTally, count_rows, score_file

ROWS = [
    {"question": "1+2*3=?", "steps": ["2*3=6", "1+6=7", "\\boxed{7}"], "id": 7, "é": [None, {}]},
    {"question": "1+2*3=?", "steps": ["2*3=6", "1+6=8"], "scores": [9], "error": "old"},
    {"steps": ["1"], "question": "7+8=?"},
    {"question": "", "steps": ["a\n\nb", "+-</s>", "🙂"]},
]
BAD = [
    ({"question": "1=?", "steps": ["1", " \n"]}, "steps[1]: the step is blank"),
    ({"question": "1=?", "steps": []}, "steps: must be a list of texts, one or more"),
    ({"question": "1=?", "steps": "1"}, "steps: must be a list of texts, one or more"),
    ({"question": "1=?"}, "steps: must be a list of texts, one or more"),
    ({"steps": ["1"]}, "question: must be a text"),
    ({"question": ["1"], "steps": ["1"]}, "question: must be a text"),
    ({"question": "1=?", "steps": ["1", 2]}, "steps[1]: must be a text"),
    ({"question": "1=?", "steps": ["\ud83d"]}, "steps[0]: must be a text"),
    (
        {"question": "1=?", "steps": ["1", "2" * 400, "3"]},
        "steps[1]: the path has 408 tokens here, the context 192",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.save_model(tmp_path_factory.mktemp("models") / "tiny", seed=3)


@pytest.fixture(scope="module")
def scorer(folder):
    return HuggingFaceScorer(folder, WORLD)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def alone(scorer, row):
    """Each prefix of a row's path, one call each, nothing kept in between."""
    question = Question("alone", row["question"])
    path = tuple(Step(text, ()) for text in row["steps"])
    scores = []
    for i in range(len(path)):
        scores += scorer.score([question], [path[: i + 1]]).scores
        scorer.keep_only(question, [])
    return scores


def test_rows_come_back_with_a_score_for_every_step(scorer, tmp_path):
    source = write(tmp_path / "in.jsonl", ROWS)
    tally = score_file(source, tmp_path / "out.jsonl", scorer)
    got = read(tmp_path / "out.jsonl")
    assert (tally.rows, tally.errors) == (4, 0)
    for row, result in zip(ROWS, got, strict=True):
        scores = result.pop("scores")
        assert result == {k: v for k, v in row.items() if k not in ("scores", "error")}
        assert scores == alone(scorer, row)


def test_what_rows_have_in_common_is_computed_once(scorer, tmp_path):
    rows = [ROWS[0], ROWS[1], ROWS[0]]
    tally = score_file(write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", scorer)

    def tokens(row):
        path = tuple(Step(text, ()) for text in row["steps"])
        return scorer.count_tokens(Question("", row["question"]), path)

    last = len("1+6=8") + 1
    assert tally.tokens == tokens(ROWS[0]) + last
    assert len(scorer._cache) == 0


def test_batches_change_nothing(scorer, tmp_path):
    rows = [*ROWS, *(row for row, _ in BAD)] * 3
    source = write(tmp_path / "in.jsonl", rows)
    score_file(source, tmp_path / "all.jsonl", scorer)
    for held_tokens in (1, 40):
        shown = []
        tally = score_file(
            source, tmp_path / "some.jsonl", scorer, held_tokens=held_tokens, on_rows=shown.append
        )
        assert (tmp_path / "some.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()
        assert (tally.rows, tally.errors) == (len(rows), 3 * len(BAD))
        assert shown == sorted(set(shown))
        assert shown[-1] == len(rows)


def test_rows_without_valid_scores_say_why(scorer, tmp_path):
    rows = [{**row, "more": 1} for row, _ in BAD]
    source = write(tmp_path / "in.jsonl", [ROWS[2], *rows, ROWS[2]])
    assert score_file(source, tmp_path / "out.jsonl", scorer).errors == len(BAD)
    before, *got, after = read(tmp_path / "out.jsonl")
    assert got == [{**row, "error": error} for row, (_, error) in zip(rows, BAD, strict=True)]
    assert before == after
    assert len(before["scores"]) == 1


class Scripted:
    """Breaks the contract, or the process, where a step says so."""

    name, num_parameters, sparsity_total, sparsity_last_layer = "scripted", 1, 0.0, 0.0

    def count_tokens(self, question, path):
        return len(path)

    def keep_only(self, question, paths):
        pass

    def score(self, questions, paths):
        for path in paths:
            if path[-1].text == "nan":
                step = len(path) - 1
                raise ScorerContractError(f"PRM 'x', step {step}: the score is nan", step=step)
            if path[-1].text == "refused":
                raise ScorerContractError("judge 'x': refused with status 400")
            if path[-1].text == "crash":
                raise RuntimeError("out of luck")
        scores = [len(path) / 10 for path in paths]
        return Scoring(scores, [TokenUsage(computed=1) for _ in paths], 0.0)


def test_a_broken_score_costs_its_own_row_only(tmp_path):
    texts = (["a", "b"], ["a", "nan"], ["c"], ["refused"])
    source = write(tmp_path / "in.jsonl", [{"question": "q", "steps": steps} for steps in texts])
    tally = score_file(source, tmp_path / "out.jsonl", Scripted())
    assert tally == ScoreTally(rows=4, errors=2, tokens=3)
    got = read(tmp_path / "out.jsonl")
    assert [row.get("scores") for row in got] == [[0.1, 0.2], None, [0.1], None]
    assert got[1]["error"] == "steps[1]: the score is nan"
    assert got[3]["error"] == "judge 'x': refused with status 400"


def test_the_output_appears_whole_or_not_at_all(tmp_path):
    rows = [{"question": "q", "steps": [text]} for text in ("a", "crash")]
    source = write(tmp_path / "in.jsonl", rows)
    target = tmp_path / "out.jsonl"
    target.write_text("before\n")
    with pytest.raises(RuntimeError, match="out of luck"):
        score_file(source, target, Scripted(), held_tokens=1)
    assert target.read_text() == "before\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_blank_lines_are_no_rows(tmp_path):
    (tmp_path / "in.jsonl").write_text('\n{"question": "1", "steps": ["1"]}\n\n')
    assert count_rows(tmp_path / "in.jsonl") == 1


# --- the command ---


def command(folder, source, target, *more):
    return run(
        ["score", "--prm", str(folder), "--input", str(source), "--output", str(target), *more]
    )


def test_the_command_finds_the_family_and_reports(folder, scorer, tmp_path, capsys):
    source = write(tmp_path / "in.jsonl", [*ROWS, BAD[0][0]])
    assert command(folder, source, tmp_path / "out.jsonl") == 0
    assert "5 rows, 1 without scores, " in capsys.readouterr().out
    assert read(tmp_path / "out.jsonl")[0]["scores"] == alone(scorer, ROWS[0])


def test_the_command_takes_a_format_file(folder, scorer, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        'layout: answer\ntag: "\\n\\n"\nread_out: {positive: "-", negative: "+"}\njoined: false\n'
    )
    source = write(tmp_path / "in.jsonl", ROWS[:1])
    assert command(folder, source, tmp_path / "out.jsonl", "--prm-format", str(file)) == 0
    (row,) = read(tmp_path / "out.jsonl")
    expected = [1 - score for score in alone(scorer, ROWS[0])]
    assert row["scores"] == pytest.approx(expected, abs=1e-12)


def test_the_command_fails_when_nothing_could_be_scored(folder, tmp_path):
    source = write(tmp_path / "in.jsonl", [BAD[0][0], BAD[1][0]])
    assert command(folder, source, tmp_path / "out.jsonl") == 1
    assert len(read(tmp_path / "out.jsonl")) == 2


def test_a_model_that_gives_no_numbers_fails_every_row(folder, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    tensors = load_file(broken / "model.safetensors")
    tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], 3e38)
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    source = write(tmp_path / "in.jsonl", ROWS[:2])
    assert command(broken, source, tmp_path / "out.jsonl") == 1
    assert "steps[0]: the score is nan" in read(tmp_path / "out.jsonl")[0]["error"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"question": "1", "steps": ["1"]}\nnot json\n', "in.jsonl:2: not a JSON object"),
        ("[1]\n", "in.jsonl:1: the line is a list: write one JSON object a line"),
        ("", "has no rows"),
    ],
)
def test_files_that_are_no_rows_are_refused(folder, tmp_path, capsys, content, match):
    (tmp_path / "in.jsonl").write_text(content)
    assert command(folder, tmp_path / "in.jsonl", tmp_path / "out.jsonl") == 2
    error = capsys.readouterr().err
    assert match in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out.jsonl").exists()


def test_bad_input_is_refused_before_the_model_is_read(tmp_path, capsys, folder, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the model was read")

    monkeypatch.setattr(HuggingFaceScorer, "__init__", refuse)
    source = write(tmp_path / "in.jsonl", ROWS)
    out = tmp_path / "out.jsonl"
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text("{}")
    cases = [
        ((folder, tmp_path / "none.jsonl", out), "none.jsonl' does not exist"),
        ((tmp_path / "none", source, out), "PRM folder"),
        ((folder, source, tmp_path), "is a folder: name a file"),
        ((folder, source, tmp_path / "none" / "out.jsonl"), "make it first"),
        ((folder, source, out, "--batch-tokens", "0"), "must be at least 1"),
        ((folder, source, out, "--prm-format", "other"), "PRM format 'other' is unknown"),
        ((empty, source, out), "has config.json but no weights"),
    ]
    for arguments, match in cases:
        assert command(*arguments) == 2
        error = capsys.readouterr().err
        assert match in error
        assert error.count("\n") == 1
    assert not pathlib.Path(out).exists()
