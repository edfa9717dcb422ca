"""Every field of files that users write with a wrong value: read, or refused in one line.

Recipes, those of servers and banks among them, tables of trainings, formats and data files.
"""

import json

import pytest
from mutations import damaged, mutations, reads_or_refuses

from cats_jax.bank.recipe import load_bank_recipe
from cats_jax.datasets.loading import load_questions, read_questions
from cats_jax.evaluation.cells import grid
from cats_jax.models.prm.family import load_format
from cats_jax.models.prompts.policy_format import choose_format
from cats_jax.server.offer import Offer
from cats_jax.specs.recipe import load_recipe
from cats_jax.storage.yaml_file import naming
from cats_jax.training.ablations import load_ablations

_RECIPE = {
    "name": "a",
    "policy": {"path": "weak", "batch_tokens": 4096, "kv_cache_gib": 0.5, "max_step_tokens": 32},
    "prms": [{"path": "exact", "label": "e", "path_score": "last"}, "sparse"],
    "strategies": [
        "greedy",
        {"name": "beam", "label": "b", "expansion": 2},
        {"name": "cats", "checkpoint": "cats", "mode": "argmax", "price": 0.1},
        {"name": "cats_rule", "threshold": 0.6, "sample": {"num_extra": 8}},
    ],
    "num_candidates": [4, 16],
    "seeds": [0, 1],
    "max_depth": 6,
    "max_seconds": 5.5,
    "trees": True,
    "calibration": "none",
    "questions": [{"world": "test", "count": 3, "seed": 1, "levels": [1, 2], "label": "w"}],
}
_SERVER = {
    "policy": {
        "path": "weak",
        "backend": "http://localhost:1",
        "max_model_len": 256,
        "served_name": "m",
        "api_key_env": "KEY",
    },
    "prms": [
        {"path": "exact", "backend": "vllm", "device": "auto", "engine_args": {"a": 1}},
    ],
    "strategies": "greedy",
    "num_candidates": 1,
    "budget": 100,
    "questions": {"world": "test", "count": 1},
}
_BANK = {
    "policy": "weak",
    "prms": ["exact"],
    "questions": {"world": "prm", "count": 3},
    "max_depth": 4,
    "seed": 1,
    "sampling": [{"temperature": 0.6, "top_p": 0.9, "top_k": 3, "root_draws": 4}],
    "revisit_arrivals": 4,
}
_PRM = {
    "layout": "answer",
    "tag": "T",
    "read_out": {"positive": "+", "negative": "-"},
    "prompt": "{question}",
    "joined": True,
    "newline": " ",
    "architectures": ["A"],
}
_HEAD = {"layout": "text", "tag": "T", "read_out": {"layers": ["a"], "label": 1}}
_POLICY = {"prompt": "{question}", "step_separator": "\n\n", "end_tokens": ["a"]}


def _searches(path):
    recipe = load_recipe(path)
    with naming(str(path)):  # the messages name the strategy or the question set
        grid(recipe)
        load_questions(recipe.questions)


def _offered(path):
    recipe = load_recipe(path)
    with naming(str(path)):
        Offer(recipe, name="m", max_prompt_characters=100)


@pytest.mark.parametrize(
    ("content", "read", "every"),
    [
        (_RECIPE, _searches, 29),
        (_SERVER, _offered, 13),
        (_BANK, load_bank_recipe, 7),
        ({"t": {"r": {"config": "paper-bank", "set": ["gae_lambda=1"]}}}, load_ablations, 5),
        (_PRM, load_format, 5),
        (_HEAD, load_format, 5),
        (_POLICY, lambda path: choose_format(str(path), {"a"}), 5),
    ],
    ids=["recipe", "server", "bank", "ablations", "prm", "head", "policy"],
)
def test_a_file_with_one_wrong_value_is_read_or_refused_by_file(tmp_path, content, read, every):
    path = tmp_path / "file.yaml"
    whole = json.dumps(content)
    path.write_text(whole)
    assert reads_or_refuses(lambda: read(path), "file.yaml", "nothing")
    for text in mutations(content, every):
        path.write_text(text)
        reads_or_refuses(lambda: read(path), "file.yaml", text)
    for data in damaged(whole.encode(), 5):
        path.write_bytes(data)
        reads_or_refuses(lambda: read(path), "file.yaml", data)


def test_questions_with_one_wrong_value_are_read_or_refused_by_line(tmp_path):
    path = tmp_path / "q.jsonl"
    rows = [{"id": 1, "question": "How?", "answer": [5, 6.5], "level": 1}, {"question": "x"}]
    for text in mutations(rows[0], 1):
        path.write_text(text + "\n" + json.dumps(rows[0] | {"id": 2}) + "\n")
        reads_or_refuses(lambda: read_questions(path), "q.jsonl", text)
    for data in damaged(json.dumps(rows[0]).encode(), 20):
        path.write_bytes(data)
        reads_or_refuses(lambda: read_questions(path), "q.jsonl", data)
