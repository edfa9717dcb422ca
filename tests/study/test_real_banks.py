"""The step banks of Qwen2.5-Coder-1.5B in the repository."""

import gzip
import json
import pathlib

from cats_jax.bank import layout
from cats_jax.datasets.digests import text_digest

ROOT = pathlib.Path(__file__).parents[2]


def test_the_banks_have_other_questions_than_each_other_and_the_layer():
    train, validation = (
        layout.load_bank(ROOT / "studies/real/qwen" / f"bank-{part}")
        for part in ("train", "validation")
    )
    assert (len(train.ids), len(validation.ids)) == (80, 20)
    layout.check_same_models(train, validation, "the banks")
    layout.check_disjoint(train.texts, validation.texts, "questions of the banks")
    with gzip.open(ROOT / "docs/results/rows/real-qwen-own-paths.jsonl.gz", "rt") as file:
        fitted = {text_digest(json.loads(line)["question"]) for line in file}
    assert len(fitted) == 120
    assert fitted.isdisjoint(map(text_digest, (*train.texts, *validation.texts)))
