"""PRM heads on a frozen language model: hidden states, training, pruning, labels by outcome."""

import json
import pathlib
import sys

import made_runs
import numpy as np
import pytest
import tiny_models
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModel

from cats_jax.evaluation.rescore import Change, rescore
from cats_jax.grading import MathGrader
from cats_jax.live.ledger import Ledger
from cats_jax.live.results import Candidate, SearchResult, path_of
from cats_jax.models.huggingface.tokenizer import load_tokenizer
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step
from cats_jax.runs.folder import RunWriter, read_run
from cats_jax.scoring.labelled import read_labelled
from cats_jax.specs.models import PrmSpec
from studies.real import (
    head_quality,
    labelled_data,
    outcome_labels,
    prune,
    rescore_heads,
    scores_at_step,
    step_states,
    train_head,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMAT = ROOT / "studies" / "real" / "qwen" / "prm-format.yaml"

ROWS = [
    {"question": "((50*4)-21)+15=?", "steps": ["50*4=200", "200-21=179", "179+15=194"],
     "labels": [1, 1, 0]},
    {"question": "3+4=?", "steps": ["3+4=7"], "labels": [1]},
    {"question": "9*9=?", "steps": ["9*9=80", "80"], "labels": [0]},
]  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_models.save_model(tmp_path_factory.mktemp("models") / "base", seed=2)


def jsonl(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def rows(tmp_path):
    return jsonl(tmp_path / "steps.jsonl", ROWS)


@pytest.fixture
def run_script(monkeypatch):
    """Call the main function of a script with arguments of a command line."""

    def run(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, arguments)])
        script.main()

    return run


def test_a_head_on_the_states_gives_the_scores_of_a_search(base, rows, tmp_path):
    encoder = step_states.make_encoder(FORMAT, load_tokenizer(base))
    backbone = AutoModel.from_pretrained(base).eval()
    found = step_states.step_states(backbone, encoder, read_labelled([rows]).paths)
    assert found["labels"].tolist() == [1, 1, 0, 1, 0]
    assert len(set(found["group"][:3])) == 1
    assert len(set(found["group"])) == 3
    weight = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float32) / 8
    save_file({"weight": weight, "bias": np.array([0.3], np.float32)}, tmp_path / "h.safetensors")
    scorer = ModelFolders().prm(
        PrmSpec(str(base), format=str(FORMAT), head=str(tmp_path / "h.safetensors"))
    )
    paths = [(row, n + 1) for row in ROWS for n in range(len(row["labels"]))]
    scores = scorer.score(
        [Question(row["question"], row["question"]) for row, _ in paths],
        [tuple(Step(text, ()) for text in row["steps"][:n]) for row, n in paths],
    ).all_scores()
    logits = found["states"].astype(np.float64) @ weight[0] + 0.3
    assert 1 / (1 + np.exp(-logits)) == pytest.approx(scores, abs=2e-3)  # states in 16 bits


def test_a_block_is_computed_again_only_for_other_solutions(base, rows, tmp_path, run_script):
    states = tmp_path / "states"
    arguments = [base, states, "--steps", rows, "--format", FORMAT, "--dtype", "float32"]
    run_script(step_states, *arguments)
    (file,) = states.iterdir()
    arrays = load_file(file)
    assert arrays["states"].shape == (5, 64)
    save_file(arrays | {"states": arrays["states"] * 0}, file,
              step_states.digests_of(file))  # fmt: skip
    run_script(step_states, *arguments)
    assert not load_file(file)["states"].any()
    jsonl(rows, ROWS[::-1])
    rows.write_text(rows.read_text().replace("[1, 1, 0]", "[1, 0, 0]"))
    with pytest.raises(SystemExit, match=r"is of other solutions: run step_states on .* again"):
        train_head.load_steps(states, [rows])
    run_script(step_states, *arguments)
    assert load_file(file)["states"].any()
    before = step_states.digests_of(file)
    other = tmp_path / "format.yaml"
    other.write_text(FORMAT.read_text() + "# another format\n")
    run_script(step_states, *[other if each == FORMAT else each for each in arguments])
    assert step_states.digests_of(file) != before
    assert len(train_head.load_steps(states, [rows]).labels) == 5
    with pytest.raises(SystemExit, match=r"is missing: run step_states on .*other\.jsonl again"):
        train_head.load_steps(states, [rows.rename(tmp_path / "other.jsonl")])


def test_each_step_gets_its_own_held_out_score(base, rows, tmp_path):
    """The rows of two files are joined; a solution is found again by its text."""
    row = {"question": "2+2=?", "steps": ["2+2=4"], "labels": [1]}
    other = jsonl(tmp_path / "other.jsonl", [row])
    encoder = step_states.make_encoder(FORMAT, load_tokenizer(base))
    backbone = AutoModel.from_pretrained(base).eval()
    for file in (rows, other):
        block = step_states.by_length(file)
        found = step_states.step_states(backbone, encoder, block)
        target = tmp_path / f"{file.stem}-000000.safetensors"
        save_file(found, target, {step_states.DIGEST: step_states.digest(block)})
    steps = train_head.load_steps(tmp_path, [rows, other])
    assert steps.path.tolist() == [0, 1, 2, 2, 2, 3]
    scored = list(train_head.scored_rows([rows, other], steps, np.arange(6) / 8, "mine"))
    assert [row["scores"]["mine"] for row in scored] == [
        [0.0],
        [0.125],
        [0.25, 0.375, 0.5],
        [0.625],
    ]
    assert [row["steps"][0] for row in scored] == ["3+4=7", "9*9=80", "50*4=200", "2+2=4"]
    assert [row["data"] for row in scored] == ["steps", "steps", "steps", "other"]


def made_steps(questions=60, each=4, hidden=12, noise=0.5, seed=0):
    """Steps whose label is the sign of a direction, and questions that differ by an offset."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(questions * each, hidden))
    logits = 2 * states[:, 0] + noise * rng.normal(size=len(states))
    group = np.repeat(np.arange(questions), each)
    return train_head.Steps(3 * states + 1, (logits > 0).astype(float), group, group)


def test_the_fit_is_a_minimum():
    """The derivative of penalized log loss vanishes, by differences of a literal formula."""
    steps, penalty = made_steps(), 0.05
    weight, bias = train_head.fit_head(steps, penalty)
    spread = steps.states.std(0)

    def objective(weight, bias):
        total = 0.0
        for state, label in zip(steps.states, steps.labels, strict=True):
            p = 1 / (1 + np.exp(-(state @ weight + bias)))
            total -= np.log(p if label else 1 - p)
        return total / len(steps.labels) + penalty / 2 * ((weight * spread) ** 2).sum()

    least = objective(weight, bias)
    rng = np.random.default_rng(1)
    for _ in range(20):
        moved = objective(weight + 1e-3 * rng.normal(size=12), bias + 1e-3 * rng.normal())
        assert moved > least - 1e-9
    assert abs(weight[0]) > 5 * abs(weight[1:]).max()


def test_folds_hold_whole_questions_and_held_out_scores_are_honest():
    steps = made_steps()
    fold = train_head.folds(steps.group, 0)
    assert sorted(np.bincount(fold)) == [48] * 5
    for question in range(60):
        assert len(set(fold[steps.group == question])) == 1
    logits = train_head.held_out_logits(steps, 0.01, 0)
    assert train_head.auc(logits, steps.labels) > 0.95
    shuffled = train_head.Steps(
        np.random.default_rng(5).normal(size=(240, 200)), steps.labels, steps.group, steps.path
    )
    # More features than steps: a fit of its own steps separates them, held-out scores can't.
    assert train_head.auc(train_head.held_out_logits(shuffled, 0.01, 0), steps.labels) < 0.6


def test_auc_counts_pairs():
    labels = np.array([1, 0, 1, 0, 0], float)
    logits = np.array([2.0, 1.0, 1.0, 3.0, -1.0])
    pairs = [(a, b) for a in logits[labels > 0] for b in logits[labels == 0]]
    expected = sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs)
    assert train_head.auc(logits, labels) == pytest.approx(expected)


def test_a_share_has_whole_questions():
    steps = made_steps()
    chosen = train_head.of_some_questions(steps, 0.1, 0)
    assert len(set(steps.group[chosen])) == 6
    assert chosen.sum() == 24


def test_no_score_is_of_a_head_that_saw_the_question():
    steps = made_steps()
    trained = train_head.train(steps, 0.5, 0)
    chosen = train_head.of_some_questions(steps, 0.5, 0)
    logits = steps.states @ trained.weight + trained.bias
    others = 1 / (1 + np.exp(-logits[~chosen]))
    assert trained.scores[~chosen] == pytest.approx(others)
    held_out = train_head.held_out_logits(steps.where(chosen), trained.facts["penalty"], 0)
    assert trained.scores[chosen] == pytest.approx(1 / (1 + np.exp(-held_out)))
    assert trained.facts["questions"] == 30


def test_pruning_zeroes_the_smallest_weights_of_the_layers(base, tmp_path, run_script):
    target = tmp_path / "pruned"
    run_script(prune, base, target, "--sparsity", "0.3")
    before = AutoModel.from_pretrained(base).state_dict()
    after = AutoModel.from_pretrained(target).state_dict()
    assert before.keys() == after.keys()
    for name, weight in before.items():
        gone = (after[name] == 0) & (weight != 0)
        assert torch.equal(after[name][~gone], weight[~gone])
        if prune.is_pruned(f".{name}", weight):
            assert gone.float().mean() == pytest.approx(0.3, abs=0.01)
            assert weight[gone].abs().max() <= weight[~gone].abs().min()
        else:
            assert not gone.any()


def sampled(*, scored=False):
    """Answers 4, 5 and none, a path that was cut in its second step, and one that was dropped."""
    steps = [("2+2", 0), ("it is 4", 1), ("2+3", 0), ("it is 5", 3), ("?", 0), ("2-2", 0), ("", 6),
             ("2*2", 0)]  # fmt: skip
    candidates = [
        Candidate(id=i + 1, parent=parent, step=int(parent > 0), phase=0, pool_row=i, text=text,
                  token_ids=(), num_tokens=1, log_prob=None, done=i in (1, 3, 4),
                  answer=text.removeprefix("it is ") if parent in (1, 3) else None,
                  invalid="length" if i == 6 else None,
                  score=0.5 if scored and i < 6 else None)
        for i, (text, parent) in enumerate(steps)
    ]  # fmt: skip
    paths = [path_of(nodes, candidates) for nodes in [(1, 2), (3, 4), (5,)]]
    return SearchResult(
        Question("q0", "2+2=?"), "4", 0, "answered", "", 2, paths, candidates, [], Ledger()
    )


def written(folder, strategy, *, prm=None, twice=False):
    """A run with one tree, in one row or in two."""
    with RunWriter(folder, made_runs.manifest(strategies=[strategy])) as writer:
        for n in (4, 8) if twice else (4,):
            row = made_runs.row(strategy=strategy, n=n, prm=prm, answer="4", gold="4.0")
            writer.add(row, sampled(scored=prm is not None))
    return folder


def test_the_label_of_a_sampled_step_is_the_grade_of_its_path(tmp_path, run_script):
    """The gold answer is 4; the cut path has one whole step."""
    run_script(outcome_labels, written(tmp_path / "run", "majority", twice=True),
               tmp_path / "steps.jsonl")  # fmt: skip
    assert [
        (path.steps, path.labels) for path in read_labelled([tmp_path / "steps.jsonl"]).paths
    ] == [
        (("2+2", "it is 4"), (1, 1)),
        (("2+3", "it is 5"), (0, 0)),
        (("?",), (0,)),
        (("2-2",), (0,)),
    ]


def test_heads_on_kept_states_rescore_as_the_command_does(base, tmp_path, run_script):
    run, steps, states = tmp_path / "run", tmp_path / "steps.jsonl", tmp_path / "states"
    written(run, "best_of_n", prm="good")
    run_script(outcome_labels, run, steps)
    run_script(step_states, base, states, "--steps", steps, "--format", FORMAT,
               "--dtype", "float32")  # fmt: skip
    heads = [tmp_path / f"{name}.safetensors" for name in ("first", "second")]
    for seed, head in enumerate(heads):
        weight = np.random.default_rng(seed).normal(size=(1, 64)).astype(np.float32) / 8
        save_file({"weight": weight, "bias": np.array([0.3], np.float32)}, head)
    run_script(rescore_heads, run, states, "--steps", steps, "--model", base,
               "--format", FORMAT, "--heads", *heads)  # fmt: skip
    for head in heads:
        spec = PrmSpec(str(base), format=str(FORMAT), head=str(head), label=head.stem)
        scorer, expected = ModelFolders().prm(spec), tmp_path / f"expected-{head.stem}"
        rescore(read_run(run), expected, Change(prm=spec), MathGrader(), scorer)
        runs = [read_run(run.with_name(f"run-{head.stem}")), read_run(expected)]
        (mine,), (other,) = (found.rows for found in runs)
        assert (mine.prm, mine.answer, mine.correct) == (head.stem, other.answer, other.correct)
        for name in ("prm_computed", "prm_cached", "prm_flops", "flops"):
            assert getattr(mine.ledger, name) == getattr(other.ledger, name) > 0, name
        scores = [
            [candidate.score for candidate in found.tree(found.rows[0]).candidates]
            for found in runs
        ]
        assert scores[0][:6] == pytest.approx(scores[1][:6], abs=2e-3)  # states in 16 bits
        assert scores[0][6] is scores[1][6] is None


def test_heads_are_compared_by_the_paths_that_they_choose(tmp_path, run_script, capsys):
    """Two questions with two paths each; the states are chosen so that scores are known."""
    logits = {"a": [2.0, -1.0], "b": [0.0, 0.0], "c": [1.0, 3.0], "d": [0.5]}
    paths = [
        {"question": question, "steps": [f"{name}{i}" for i in range(len(logits[name]))],
         "labels": [label] * len(logits[name])}
        for question, name, label in (("p", "a", 1), ("p", "b", 0), ("q", "c", 1), ("q", "d", 0))
    ]  # fmt: skip
    steps, head = jsonl(tmp_path / "steps.jsonl", paths), tmp_path / "mine.safetensors"
    block = step_states.by_length(steps)
    states = [[logit] for path in block for logit in logits[path.steps[0][0]]]
    owner = [i for i, path in enumerate(block) for _ in path.steps]
    labels = [label for path in block for label in path.labels]
    save_file(
        {"states": np.array(states, np.float16), "labels": np.array(labels, np.int8),
         "group": np.zeros(len(owner), np.int64), "path": np.array(owner, np.int64)},
        tmp_path / "steps-000000.safetensors", {step_states.DIGEST: step_states.digest(block)},
    )  # fmt: skip
    save_file({"weight": np.ones((1, 1), np.float32), "bias": np.zeros(1, np.float32)}, head)
    rows = [{**row, "scores": {"other": [0.1] * len(row["steps"])}} for row in paths]
    del rows[-1]["scores"]  # as of a path that was cut
    trained = jsonl(tmp_path / "other.jsonl", rows)
    out = tmp_path / "paths.jsonl"
    run_script(head_quality, tmp_path, out, "--steps", steps, "--heads", head,
               "--held-out", trained, "--path-score", "min")  # fmt: skip
    assert "mine: the best path is right on 1 of 2 questions" in capsys.readouterr().out
    found = {
        row["steps"][0]: row["scores"] for row in map(json.loads, out.read_text().splitlines())
    }
    smallest = {"a0\n\na1": -1.0, "b0\n\nb1": 0.0, "c0\n\nc1": 1.0}
    assert {text: scores["mine"][0] for text, scores in found.items()} == pytest.approx(
        {text: 1 / (1 + np.exp(-logit)) for text, logit in smallest.items()}
    )
    assert {scores["other"][0] for scores in found.values()} == {0.1}


def test_labelled_questions_are_left_out_of_the_test_questions(tmp_path, run_script):
    labelled = [{"data": f"set-{i % 2}", **row, "scores": {}} for i, row in enumerate(ROWS)]
    every = jsonl(tmp_path / "all.jsonl", labelled)
    # The second text differs from the labelled one in a space and a comma.
    questions = [{"question": text, "answer": "7"} for text in ("2+2=?", "3 + 4=?,", "5=?")]
    problems = [{"problem": text, "answer": "7"} for text in ("3+4 = ?", "9=?")]
    files = [
        jsonl(tmp_path / "gsm8k.jsonl", questions),
        jsonl(tmp_path / "math.jsonl", problems),
    ]
    run_script(labelled_data, every, tmp_path / "data", "--questions", *files)
    found = {
        file.stem: [json.loads(line) for line in file.read_text().splitlines()]
        for file in (tmp_path / "data").iterdir()
    }
    assert found["set-0"] == [ROWS[0], ROWS[2]]
    assert found["set-1"] == [ROWS[1]]
    assert [row["question"] for row in found["gsm8k_unlabelled"]] == ["2+2=?", "5=?"]
    assert [row["problem"] for row in found["math500_unlabelled"]] == ["9=?"]


def test_the_scores_of_one_step_are_those_of_the_paths_that_have_it(tmp_path, run_script):
    paths = [
        {"question": "q", "steps": ["a", "b"], "labels": [1, 1], "scores": {"p": [0.1, 0.2]}},
        {"question": "q", "steps": ["c"], "labels": [0], "scores": {"p": [0.3]}},
        {"question": "q", "steps": ["d", "e"], "labels": [0, 0], "error": "too long"},
    ]
    made = jsonl(tmp_path / "paths.jsonl", paths)
    for step, scores in ((1, [[0.1], [0.3]]), (2, [[0.2]])):
        run_script(scores_at_step, made, tmp_path / "out.jsonl", "--step", str(step))
        rows = list(map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines()))
        assert [row["scores"]["p"] for row in rows] == scores
        assert [row["labels"] for row in rows] == [[1], [0]][: len(rows)]
