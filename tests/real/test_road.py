"""The page `docs/get_started/real_models.md` carried out: its commands, its recipes, small models.

A policy and a PRM under Qwen 2.5's published vocabulary, trained here on the world's questions,
stand in for the models of the small example; questions, candidates and limits are fewer.
"""

import collections
import contextlib
import io
import itertools
import json
import pathlib
import re
import shlex
import time

import pyarrow.parquet as pq
import pytest
import qwen_world
import real_tokenizers
import torch

from cats_jax import cli
from cats_jax.world import task

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/get_started/real_models.md"
RECIPES = ("bank-small", "bank-small-validation", "small-choose", "small")

SMALLER = {
    "backend: vllm, dtype: bfloat16": "backend: hf, dtype: float32",
    ", gpu_memory_utilization: 0.9": "",
    ", gpu_memory_utilization: 0.45": "",
    "max_step_tokens: 512, max_answer_tokens: 2048": "max_step_tokens: 24, max_answer_tokens: 96",
    "max_depth: 40": "max_depth: 10",
    "start: 1000, count: 200": "start: 20, count: 10",
    "count: 1000": "count: 12",
    "root_draws: 32, revisit_draws: 4": "root_draws: 4, revisit_draws: 1",
    "root_draws: 64, revisit_draws: 4": "root_draws: 4, revisit_draws: 1",
    "num_candidates: [4, 16, 64]": "num_candidates: [4]",
    "questions: math500": (
        "questions: {dataset: math12k, file: data/math12k.jsonl, shuffle: 0, start: 30, count: 3}"
    ),
}
"""What is put in place of what in the recipes of the page."""

TRAINING = ("--num-candidates", "4", "--num-iterations", "20", "--no-rivals")


def commands() -> list[list[str]]:
    """The commands of `cats-jax` in the page's shell blocks, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("cats-jax ")]


Road = tuple[pathlib.Path, list[tuple[str, str]]]
"""The folder after the last command, and each command with what it printed."""


def test_the_page_is_carried_out(shared, tmp_path):
    make_models_and_data(shared, tmp_path)
    road = tmp_path, carried_out(tmp_path)
    check_recipes(road)
    check_dry_run(road)
    check_policy_and_prm(road)
    check_choice(road)
    check_last_run(road)


def make_models_and_data(shared, folder: pathlib.Path) -> None:
    tokenizer = real_tokenizers.build_qwen(shared("real/tokenizers/build.py"), folder)
    for name in ("models", "downloads", "data", "recipes/real"):
        (folder / name).mkdir(parents=True)
    torch.set_num_threads(1)
    qwen_world.make_policy(tokenizer, folder / "models/Qwen2.5-Math-1.5B-Instruct", num_steps=200)
    qwen_world.make_prm(tokenizer, folder / "downloads/skywork", num_steps=60)
    write_questions(folder / "data/math12k.jsonl", 36)
    for name in RECIPES:
        text = (ROOT / f"recipes/real/{name}.yaml").read_text()
        for large, small in SMALLER.items():
            text = text.replace(large, small)
        (folder / f"recipes/real/{name}.yaml").write_text(text)


def write_questions(file: pathlib.Path, number: int) -> None:
    """Questions of the world that no model was trained on, in the columns of PRM800K's file."""
    streams = [task.problem_stream("validation", level, seed=0) for level in task.LEVELS]
    rows = []
    for index in range(number):
        problem = next(streams[index % len(streams)])
        rows.append(
            {
                "problem": qwen_world.question_text(problem.text),
                "solution": task.STEP_SEPARATOR.join(problem.steps),
                "answer": problem.answer,
                "subject": "Prealgebra",
                "level": problem.level,
                "unique_id": f"train/{problem.id}.json",
            }
        )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def carried_out(folder: pathlib.Path) -> list[tuple[str, str]]:
    """Each command and what it printed; all must succeed."""
    done = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for arguments in commands():
            # A minute's work, and a file that is not of the example: both have their own tests.
            if "--measure" in arguments or arguments[1].endswith(".gguf"):
                continue
            more = TRAINING if arguments[0] == "train" else ()
            printed, code, seconds = run([*arguments, *more])
            print(f"{seconds:6.1f} s  {shlex.join(arguments)}")
            assert code == 0, printed
            done.append((shlex.join(arguments), printed))
    return done


def run(arguments: list[str]) -> tuple[str, int, float]:
    """Output, exit code and seconds of one command."""
    output, started = io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = cli.run(arguments)
    return output.getvalue(), code, time.perf_counter() - started


def printed(road: Road, *words: str) -> str:
    """What the one command with these words printed."""
    (found,) = [text for command, text in road[1] if all(word in command for word in words)]
    return found


def check_recipes(road: Road) -> None:
    """All recipes of the example are used, and no change of them is in vain."""
    texts = [(ROOT / f"recipes/real/{name}.yaml").read_text() for name in RECIPES]
    assert all(any(large in text for text in texts) for large in SMALLER)
    used = {part for command, _ in road[1] for part in command.split() if part.endswith(".yaml")}
    assert used == {f"recipes/real/{name}.yaml" for name in RECIPES}


def check_dry_run(road: Road) -> None:
    """Before the first step it is said what fits, and what is missing."""
    text = printed(road, "--dry-run")
    assert "fits: policy" in text
    assert "not there yet: recipe 'recipes/real/small.yaml': calibration" in text
    assert "not there yet: strategy 'cats': controller folder" in text


def check_policy_and_prm(road: Road) -> None:
    """The policy is right sometimes, and the PRM tells when."""
    folder, _ = road
    rows = evaluation_rows(folder / "runs/small/choose")
    majority = [row["correct"] for row in rows if row["strategy"] == "majority"]
    assert 0 < sum(majority) < len(majority)
    siblings = [pair for name in ("bank", "validation") for pair in judged(folder, name)]
    assert len(siblings) > 20
    assert sum(right > wrong for right, wrong in siblings) > 0.9 * len(siblings)


def judged(folder: pathlib.Path, name: str) -> list[tuple[float, float]]:
    """Scores of a right and a wrong next step of one path, for every such pair of a bank.

    Which steps are right is computed here. The calibration's own figures are of the few siblings
    from which a right answer was reached, and vary with every draw.
    """
    columns = [
        pq.read_table(folder / f"runs/small/{name}/{part}-00000.parquet").to_pylist()
        for part in ("questions", "nodes", "scores-00")
    ]
    questions, nodes, scores = columns
    rest, pairs = iter(nodes), []
    for question, row in zip(questions, scores, strict=True):
        text = question["text"].replace("what", "?").replace(" ", "")
        paths, children = [()], collections.defaultdict(list)
        for number, node in enumerate(itertools.islice(rest, question["num_nodes"])):
            if number == 0:
                continue
            paths.append((*paths[node["parent"]], node["text"]))
            right = task.check_steps(text, paths[-1])[-1]
            children[node["parent"], right].append(row["score"][number])
        for (parent, right), found in list(children.items()):
            if right:
                pairs += itertools.product(found, children[parent, False])
    return pairs


def check_choice(road: Road) -> None:
    """The controllers are compared on the validation bank."""
    rows = evaluation_rows(road[0] / "runs/small/choose")
    cells = {(row["strategy"], row["num_candidates"]) for row in rows}
    names = ("majority", "best_of_n_weighted", "beam", "seed-0", "seed-1", "seed-2")
    assert cells == {(name, 4) for name in names}
    assert "trained with other models" not in printed(road, "small-choose.yaml")


def check_last_run(road: Road) -> None:
    """The last run is whole, and reported."""
    folder, _ = road
    rows = evaluation_rows(folder / "runs/small/math500")
    names = ("majority", "best_of_n_weighted", "beam", "cats")
    expected = {("greedy", 1), *((name, 4) for name in names)}
    cells = collections.Counter((row["strategy"], row["num_candidates"]) for row in rows)
    assert cells == dict.fromkeys(expected, 3)
    assert {row["status"] for row in rows} <= {"answered", "no_answer"}
    text = printed(road, "report")
    assert all(f"| {name} " in text for name, _ in expected)
    assert "trained with other models" not in printed(road, "small.yaml", "math500")


def evaluation_rows(folder: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
