"""Rows and trees of a policy that reports NumPy's numbers."""

from dataclasses import replace

import numpy as np
import scripted

from cats_jax.evaluation import evaluate
from cats_jax.protocols import TokenUsage
from cats_jax.specs.recipe import parse_recipe


class NumpyPolicy(scripted.ScriptedPolicy):
    def generate(self, requests):
        found = super().generate(requests)
        samples = [
            [replace(each, log_prob=np.float32(each.log_prob)) for each in own]
            for own in found.samples
        ]
        usage = [
            TokenUsage(*map(np.int64, (each.computed, each.cached, each.generated)))
            for each in found.usage
        ]
        return replace(found, samples=samples, usage=usage)


class NumpyModels(scripted.ScriptedModels):
    def policy(self, spec):
        return NumpyPolicy()


def test_they_are_stored_as_numbers(tmp_path):
    content = {
        "name": "numpy",
        "strategies": ["beam"],
        "num_candidates": [4],
        "prms": ["good"],
        "questions": {"world": "test", "count": 2},
        "max_depth": 4,
        "trees": True,
    }
    recipe, models = parse_recipe(content), NumpyModels()
    evaluation = evaluate.prepare(recipe, models, scripted.question_set(2))
    run, _ = evaluate.evaluate(evaluation, models, tmp_path / "run")
    usual = evaluate.prepare(recipe, scripted.ScriptedModels(), scripted.question_set(2))
    expected, _ = evaluate.evaluate(usual, scripted.ScriptedModels(), tmp_path / "usual")
    found = [(row.answer, row.ledger.generated, row.ledger.tokens) for row in run.rows]
    assert found == [(r.answer, r.ledger.generated, r.ledger.tokens) for r in expected.rows]
    trees = [run.tree(row) for row in run.rows]
    assert all(type(c.log_prob) is float for tree in trees for c in tree.candidates)
