"""Methods that rewrite answers in a run: on an engine with its cache, and what is refused."""

import json
import types
from typing import Any

import pytest
from toy_bank import toy_bank

import search
from cats_jax.batch.planning import plan_run
from cats_jax.commands.dry_run import _as_resolved, show_bounds
from cats_jax.commands.solve import _check_memory, _planned
from cats_jax.commands.terminal import make_console
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.evaluation.cells import grid
from cats_jax.evaluation.replay import replay
from cats_jax.evaluation.runners import check_steps, largest_work
from cats_jax.models.footprint import MARK_TOKENS, PROMPT_TOKENS, PromptLoad, Work
from cats_jax.models.source import ModelFolders
from cats_jax.runs import run_manifest
from cats_jax.specs.models import PolicySpec, PrmSpec
from cats_jax.specs.recipe import parse_recipe
from cats_jax.specs.rewriting import load_rewriting


def _recipe(**changes):
    content = {
        "name": "rewrites",
        "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
        "prms": ["exact"],
        "calibration": "none",
        "strategies": ["mctsr"],
        "num_candidates": [4],
        "questions": {"world": "validation", "count": 2},
    }
    return parse_recipe({**content, **changes})


@pytest.mark.slow
def test_a_run_on_transformers(tmp_path):
    """The embedded policy reads any text; what it writes after an answer does not matter here."""
    own = tmp_path / "own.yaml"
    own.write_text('prompt: "{answer}{critique}{question}"\ncritique: "{question}{answer}"\n')
    option = {"name": "mctsr", "rewriting": str(own), "label": "refine"}
    models = ModelFolders()
    prepared = evaluate.prepare(_recipe(strategies=[option]), models)
    assert prepared.manifest["formats"]["rewriting refine"] == "own"
    run, _ = evaluate.evaluate(prepared, models, tmp_path / "run")
    assert len(run.rows) == 2
    for row in run.rows:
        tree = run.tree(row)
        assert row.ledger.candidates == 4
        assert all(node.parent == 0 for node in tree.candidates)
        # Critiques are among the tokens.
        rewrites = [node for node in tree.candidates if node.rewrites]
        answers = sum(node.num_tokens for node in tree.candidates)
        assert (row.ledger.generated > answers) == bool(rewrites)


def test_a_run_can_not_be_resumed_with_other_prompts(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text('prompt: "{answer}{critique}{question}"\ncritique: "{question}{answer}"\n')
    option = {"name": "mctsr", "rewriting": str(own), "label": "refine"}
    prepared = evaluate.prepare(_recipe(strategies=[option]), ModelFolders())
    before = json.loads(json.dumps(prepared.manifest))
    own.write_text('prompt: "{critique}{answer}{question}"\ncritique: "{question}{answer}"\n')
    after = evaluate.prepare(_recipe(strategies=[option]), ModelFolders()).manifest
    with pytest.raises(BadInputError, match=r"asked\.rewriting refine\.file"):
        run_manifest.begin(tmp_path, before, after, filled=True)
    run_manifest.begin(tmp_path, before, before, filled=True)


@pytest.mark.parametrize("use", ["dry run", "run", "solve"])
def test_prompts_are_read_once(use, tmp_path):
    """Memory is estimated for the prompts that the searches use, even if their file is gone."""
    own = tmp_path / "own.yaml"
    own.write_text('prompt: "{answer}{critique}{question}"\ncritique: "{question}{answer}"\n')
    recipe = _recipe(strategies=[{"name": "mctsr", "rewriting": str(own)}])
    estimated = []

    class Models(ModelFolders):
        def check(self, spec):
            own.unlink(missing_ok=True)
            super().check(spec)

        def footprint(self, spec, work):
            estimated.extend(work.prompts)
            return super().footprint(spec, work)

    if use == "dry run":
        show_bounds(make_console(), recipe, Models())
    elif use == "run":
        plan_run(recipe, Models(), tmp_path / "run")
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cats_jax.models.source.ModelFolders", Models)
            _check_memory(_planned(recipe, "((50*4)-21)+15=?"))
    assert not own.exists()
    assert {load.count for load in estimated} == {4}


def test_what_is_refused_before_a_run():
    with pytest.raises(BadInputError, match="strategy 'mine': rewriting 'nothing' is unknown"):
        grid(_recipe(strategies=[{"name": "mctsr", "rewriting": "nothing", "label": "mine"}]))
    with pytest.raises(BadInputError, match="'mctsr' rewrites the texts of answers, which no"):
        replay(toy_bank(), search.methods.mctsr(), prm=1, num_candidates=4)


def test_the_bounds_of_a_dry_run_hold_answers_and_critiques():
    recipe = _recipe(strategies=["llama_berry", "mctsr", "ab_mcts_a"])
    found = evaluate.cost_bounds(recipe, grid(recipe), 1)
    scored = PROMPT_TOKENS + 4 * 64 + 4 * MARK_TOKENS
    assert [each[1:] for each in found] == [
        (1, 4, (8 + 12) * 64, 0),
        (1, 4, 8 * 64, scored),
        (1, 4, 4 * 64, scored),
    ]
    recipe = _recipe(budget=3)
    ((_, *bounds),) = evaluate.cost_bounds(recipe, grid(recipe), 1)
    assert bounds[:2] == [1, 3]


@pytest.mark.parametrize(("strategies", "texts"), [(["mctsr", "ab_mcts_a"], 2), (["ab_mcts_a"], 1)])
def test_the_memory_of_a_run_has_room_for_the_longest_prompt(strategies, texts):
    """`critique` has an answer and a critique in its prompt, `revise` an answer."""
    recipe, plain = _recipe(strategies=strategies), _recipe(strategies=["beam"])
    prompts = largest_work(recipe, grid(recipe)).prompts
    assert all(each.count == 4 for each in prompts)
    tokens = max(each.tokens for each in prompts)
    longest = "\n".join(load_rewriting(name).prompt for name in ("revise", "critique")).encode()
    assert texts * 64 < tokens < texts * 64 + len(longest)
    assert largest_work(plain, grid(plain)).prompts == ()


def test_an_endpoint_that_continues_nothing_can_rewrite():
    endpoint: Any = types.SimpleNamespace(whole_only="it continues nothing")
    recipe, plain = _recipe(), _recipe(strategies=["beam"])
    check_steps(endpoint, recipe, grid(recipe))
    with pytest.raises(BadInputError, match=r"beam .* needs single steps: it continues nothing"):
        check_steps(endpoint, plain, grid(plain))


def test_the_context_in_a_dry_run_is_that_of_a_run():
    """A policy on vLLM has room for the prompts of rewrites; a PRM does not read them."""
    prompts = (PromptLoad(1000, 4),)
    work = Work(steps=2, step_tokens=100, answer_tokens=400, prompts=prompts)
    policy = PolicySpec("models/absent", backend="vllm", device="cpu")
    prm = PrmSpec("models/absent", label="prm", backend="vllm", device="cpu")
    assert _as_resolved(policy, work).max_model_len == PROMPT_TOKENS + 1000 + 400
    assert (
        _as_resolved(prm, work).max_model_len == 2 * (PROMPT_TOKENS + 100 + 400) + 2 * MARK_TOKENS
    )
