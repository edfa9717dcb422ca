"""Methods that compare answers in a run: on an engine with its cache, and what is refused."""

import dataclasses
import json

import made_runs
import pytest
from toy_bank import toy_bank

import search
from cats_jax import world
from cats_jax.commands.dry_run import _as_resolved, _ranked
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.evaluation.cells import check_outcome_models, grid, prompt_tokens_of
from cats_jax.evaluation.replay import replay
from cats_jax.evaluation.rescore import Change, rescore
from cats_jax.evaluation.runners import largest_work
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.models.footprint import PROMPT_TOKENS, PromptLoad, Work
from cats_jax.models.resolve import prm_context
from cats_jax.models.source import ModelFolders
from cats_jax.reporting.groups import groups
from cats_jax.reporting.run_tables import accuracy_sheet
from cats_jax.runs import run_manifest
from cats_jax.runs.rows import Row
from cats_jax.specs.recipe import PrmSpec, parse_recipe

OWN = 'prompt: "{answers}{question}"\n'


def _recipe(**changes):
    content = {
        "name": "compares",
        "policy": {"path": "weak", "max_step_tokens": 16, "max_answer_tokens": 32},
        "strategies": ["gen_select", "universal_self_consistency", "pairwise_borda"],
        "num_candidates": [8],
        "max_depth": 4,
        "questions": {"world": "validation", "count": 2},
    }
    return parse_recipe({**content, **changes})


@pytest.mark.slow
def test_a_run_on_transformers(tmp_path):
    """The embedded policy can't compare: each reply is read as no choice, and reported so."""
    own = tmp_path / "own.yaml"
    own.write_text(OWN)
    option = {"name": "gen_select", "comparison": str(own), "window_size": 2, "label": "mine"}
    models = ModelFolders()
    recipe = _recipe(strategies=["majority", option], num_candidates=[4])
    prepared = evaluate.prepare(recipe, models)
    assert prepared.manifest["formats"]["comparison mine"] == "own"
    with pytest.warns(UserWarning, match="'gen_select', N=4: .* by judge 'weak' had no choice"):
        run, _ = evaluate.evaluate(prepared, models, tmp_path / "run")
    of = {(row.strategy, row.question): row for row in run.rows}
    assert len(of) == 4
    made = 0
    for (strategy, question), row in of.items():
        if strategy == "majority":
            assert row.ledger.comparisons == 0
            continue
        other, ledger = of["majority", question], row.ledger
        made += ledger.comparisons
        assert ledger.comparisons == ledger.comparisons_unread
        assert row.answer == other.answer  # the vote decides what the judge does not
        assert ledger.candidates == other.ledger.candidates
        # The paths are shared with `majority`, the replies are not.
        extra = ledger.generated - other.ledger.generated
        assert ledger.comparisons <= extra <= 32 * ledger.comparisons
        assert (ledger.policy_seconds > other.ledger.policy_seconds) == (ledger.comparisons > 0)
    assert made > 0
    sheet = accuracy_sheet(groups(run.rows), "accuracy")
    (column,) = [each for each in sheet.columns if each.title == "unread comparisons"]
    assert [record[column.values[0]] for record in sheet.records] == [0, made]


@pytest.mark.slow
def test_a_judge_of_another_model_compares(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(OWN)
    judge = {"path": str(world.policy_path("strong")), "format": "judge-critique", "label": "judge"}
    option = {
        "name": "gen_select",
        "comparison": str(own),
        "judge": "prm",
        "window_size": 2,
    }
    recipe = _recipe(strategies=["majority", option], prms=[judge], num_candidates=[4])
    models = ModelFolders()
    with pytest.warns(UserWarning, match="comparisons by judge 'strong' had no choice"):
        run, _ = evaluate.evaluate(evaluate.prepare(recipe, models), models, tmp_path / "run")
    of = {(row.strategy, row.question): row for row in run.rows}
    for question in {row.question for row in run.rows}:
        row, other = of["gen_select", question], of["majority", question]
        assert (row.prm, other.prm) == ("judge", None)
        assert row.answer == other.answer
        assert row.ledger.generated == other.ledger.generated
        assert row.ledger.comparisons == row.ledger.comparisons_unread > 0
        assert bool(row.ledger.prm_computed) == bool(row.ledger.prm_calls)
    # Some prompts are longer than the 256 tokens of the model.
    assert any(row.ledger.prm_computed for row in run.rows)


def test_a_run_can_not_be_resumed_with_another_prompt(tmp_path):
    own = tmp_path / "own.yaml"
    option = {"name": "pairwise_borda", "comparison": str(own), "label": "pairs"}
    prepared = []
    for text in (OWN, OWN, OWN + "choice: 'Best:'\n"):
        own.write_text(text)
        made = evaluate.prepare(_recipe(strategies=[option]), ModelFolders()).manifest
        prepared.append(json.loads(json.dumps(made)))
    run_manifest.begin(tmp_path, prepared[0], prepared[1], filled=True)
    with pytest.raises(BadInputError, match=r"asked\.comparison pairs\.file"):
        run_manifest.begin(tmp_path, prepared[0], prepared[2], filled=True)


def test_what_is_refused_before_a_run():
    option = {"name": "gen_select", "comparison": "nothing", "label": "mine"}
    with pytest.raises(BadInputError, match="strategy 'mine': comparison 'nothing' is unknown"):
        grid(_recipe(strategies=[option]))
    option = {"name": "gen_select", "window_size": 1}
    with pytest.raises(BadInputError, match="'gen_select': window_size must be an integer >= 2"):
        grid(_recipe(strategies=[option]))
    by_prm = _recipe(strategies=[{"name": "gen_select", "judge": "prm"}], prms=["exact"])
    with pytest.raises(BadInputError, match=r"by its PRM 'exact', which is not a language model"):
        check_outcome_models(grid(by_prm))
    with pytest.raises(BadInputError, match=r"'gen_select' reads PRM scores, but the recipe has"):
        grid(_recipe(strategies=[{"name": "gen_select", "judge": "prm"}]))
    with pytest.raises(BadInputError, match="'gen_select' compares the texts of answers, which no"):
        replay(toy_bank(), search.methods.gen_select(), prm=1, num_candidates=4)


def test_a_run_is_not_rescored(tmp_path):
    row = made_runs.row("mine", prm=None, tree=(0, 1))
    run = made_runs.write_run(tmp_path / "run", [row], strategies=[("gen_select", "mine")])
    with pytest.raises(BadInputError, match="mine: a judge chose its answers, and trees do not"):
        rescore(run, tmp_path / "new", Change(), BoxedIntegerGrader())


def test_rows_of_earlier_versions_have_no_comparisons():
    row = made_runs.row()
    kept = {key: value for key, value in row.as_dict().items() if "comparisons" not in key}
    assert len(kept) == len(row.as_dict()) - 2
    assert Row.from_dict(kept) == row


def test_a_dry_run_says_what_its_table_does_not_count():
    recipe = _recipe(strategies=["llama_berry", "gen_select"])
    (line,) = _ranked(grid(recipe))
    assert line.startswith("strategy 'llama_berry' compares each answer with all others")


def test_the_bounds_of_a_dry_run_hold_the_replies():
    """At most 8 answers in one prompt: 12 answers are 2 windows and a final, or 132 pairs."""
    recipe = _recipe(num_candidates=[12])
    plain = _recipe(strategies=["majority"], num_candidates=[12])
    (usual,) = evaluate.cost_bounds(plain, grid(plain), 1)
    found = evaluate.cost_bounds(recipe, grid(recipe), 1)
    assert [each[3] - usual[3] for each in found] == [3 * 32, 1 * 32, 132 * 32]
    assert [each[4] for each in found] == [0, 0, 0]


def test_the_memory_of_a_run_holds_the_prompts_of_comparisons():
    """12 answers are 2 windows, 1 prompt of all, or 132 pairs at once."""
    strategies = ["gen_select", "universal_self_consistency", "pairwise_borda"]
    for name, count in zip(strategies, (2, 1, 132), strict=True):
        recipe = _recipe(strategies=[name], num_candidates=[12])
        work = largest_work(recipe, grid(recipe))
        assert work.prompts == (PromptLoad(prompt_tokens_of(grid(recipe), recipe), count),)
        assert work.of_prms().prompts == ()
        by_prm = [{"name": name, "judge": "prm"}]
        recipe = _recipe(strategies=by_prm, num_candidates=[12], prms=["exact"])
        judged = largest_work(recipe, grid(recipe))
        assert (judged.prompts, judged.of_prms().prompts) == ((), work.prompts)


def test_the_context_of_a_judge_in_a_dry_run_holds_the_answers():
    """As `resolve_models` does: twice the tokens of the policy, besides those of the path."""
    judge = PrmSpec("models/absent", format="judge-critique", backend="vllm", device="cpu")
    work = Work(steps=2, step_tokens=100, answer_tokens=400)
    usual = _as_resolved(judge, work).max_model_len
    more = dataclasses.replace(work, prm_prompts=(PromptLoad(5000, 1),))
    path = PROMPT_TOKENS + 100 + 400
    longer = _as_resolved(judge, more).max_model_len
    assert longer == prm_context(judge, path, 2, 5000)
    assert usual is not None
    assert longer is not None
    assert usual == prm_context(judge, path, 2)
    assert longer > usual + 5000


def test_the_context_of_an_engine_holds_all_answers():
    """An answer has at most 3 steps of 16 tokens and a last one of 32."""
    recipe = _recipe(num_candidates=[12])
    by_name = {cell.spec.label: prompt_tokens_of([cell], recipe) for cell in grid(recipe)}
    least = {name: shown * 80 for name, shown in zip(by_name, (8, 12, 2), strict=True)}
    assert all(least[name] < found < least[name] + 1500 for name, found in by_name.items())
    assert prompt_tokens_of(grid(recipe), recipe) == max(by_name.values())
    assert prompt_tokens_of(grid(_recipe(strategies=["majority"])), recipe) == 0
    by_prm = _recipe(strategies=[{"name": "gen_select", "judge": "prm"}], prms=["exact"])
    assert prompt_tokens_of(grid(by_prm), by_prm) == 0
    assert prompt_tokens_of(grid(by_prm), by_prm, "prm") == by_name["gen_select"]
