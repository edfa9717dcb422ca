"""Two evaluation harnesses ask the server: each finishes, and counts the answers that are right."""

import json
import os
import pathlib
import subprocess

import pytest
from search_server import running

from cats_jax import datasets
from cats_jax.commands.serve import _WORLD
from cats_jax.models.source import ModelFolders
from cats_jax.server.offer import Offer
from cats_jax.specs.recipe import parse_recipe
from cats_jax.storage.yaml_reading import load_yaml

HARNESSES = pathlib.Path(__file__).parents[2] / ".venv-clients" / "bin"
RECIPE = {
    **load_yaml(_WORLD, "recipe"),
    "strategies": ["beam"],
    "num_candidates": [4],
    "in_flight": 10,
}
IGNORED = ("temperature", "max_tokens", "stop")
SEED = 7

HARNESS_TASK = r"""
task: arithmetic
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["Question:"], max_gen_toks: 256, temperature: 0}
filter_list:
  - name: boxed
    filter: [{function: regex, regex_pattern: '\\boxed\{(\d+)\}'}, {function: take_first}]
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
"""

HARNESS = """
import json
import sys

import lm_eval
from lm_eval.tasks import TaskManager

found = lm_eval.simple_evaluate(
    model="local-chat-completions",
    model_args=sys.argv[1],
    tasks=["arithmetic"],
    task_manager=TaskManager(include_path=".", include_defaults=False),
    apply_chat_template=True,
    bootstrap_iters=0,
)
with open("harness.json", "w") as file:
    json.dump(found["results"]["arithmetic"], file)
"""
"""What its command line does, without an index of all its own tasks, which takes half a minute."""

INSPECT_TASK = r"""
from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate


@task
def arithmetic():
    questions = json_dataset("questions.jsonl", FieldSpec(input="question", target="answer"))
    return Task(dataset=questions, solver=generate(), scorer=pattern(r"\\boxed\{(\d+)\}"))
"""


@pytest.mark.slow
def test_evaluation_harnesses_finish(tmp_path):
    """Ten questions each, with the parameters that they send by themselves."""
    if not HARNESSES.exists():
        pytest.skip(f"{HARNESSES} is not there: `make clients-env` makes it")
    found = datasets.world_questions("test", 10, seed=3)
    rows = [
        {"question": question.text, "answer": found.answers[question.id]}
        for question in found.questions
    ]
    (tmp_path / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "arithmetic.yaml").write_text(HARNESS_TASK)
    (tmp_path / "arithmetic.py").write_text(INSPECT_TASK)
    recipe = parse_recipe(RECIPE)
    offer = Offer(recipe, name="weak", max_prompt_characters=200, ignore_sampling=IGNORED)
    with running(offer.load(ModelFolders())) as server:
        right = sum(is_right(server.client(), row) for row in rows)
        assert 0 < right < 10
        for accuracy in (
            lm_evaluation_harness(server.url, tmp_path),
            inspect(server.url, tmp_path),
        ):
            assert accuracy == pytest.approx(right / 10)
        assert server.metric("cats_jax_requests_rejected_total") == 0


def is_right(client, row):
    answer = client.chat.completions.create(
        model="weak", messages=[{"role": "user", "content": row["question"]}], seed=SEED
    )
    return f"\\boxed{{{row['answer']}}}" in answer.choices[0].message.content


def run(folder, name, *arguments, **environment):
    subprocess.run(
        [HARNESSES / name, *arguments],
        cwd=folder,
        env={
            **os.environ,
            **{"HOME": str(folder), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
            **environment,
        },
        check=True,
    )


def lm_evaluation_harness(url, folder):
    """The accuracy that lm-evaluation-harness finds."""
    model = f"model=weak,base_url={url}/chat/completions,num_concurrent=10,seed={SEED}"
    run(folder, "python", "-c", HARNESS, model)
    return json.loads((folder / "harness.json").read_text())["exact_match,boxed"]


def inspect(url, folder):
    """The accuracy that Inspect finds."""
    run(
        folder,
        "inspect",
        *("eval", "arithmetic.py", "--model", "openai-api/here/weak", "--seed", str(SEED)),
        *("--temperature", "0", "--max-tokens", "256", "--display", "none"),
        *("--log-format", "json", "--log-dir", "inspect"),
        HERE_API_KEY="none",
        HERE_BASE_URL=url,
    )
    (path,) = (folder / "inspect").glob("*.json")
    (score,) = json.loads(path.read_text())["results"]["scores"]
    return score["metrics"]["accuracy"]["value"]
