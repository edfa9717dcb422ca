"""The shipped recipes: those of the paper are its experiments, and every one can be counted."""

import functools
import pathlib

import pytest
from unfitted_recipes import load_before_fitting

import search
from cats_jax import cli
from cats_jax.bank.recipe import load_bank_recipe
from cats_jax.datasets import count_questions
from cats_jax.errors import BadInputError
from cats_jax.evaluation import cells, evaluate
from cats_jax.specs.recipe import load_recipe, parse_recipe
from cats_jax.training import ablations
from theory import paper

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
STUDIES = ROOT / "studies"
PAPER = RECIPES / "paper"
MODELS = {name: f"models/{hub_id.split('/')[1]}" for name, hub_id in paper.HUB_IDS.items()}
PRMS = {MODELS[row.prm]: row.prm for row in paper.SPARSITY}
POLICIES = {MODELS[name]: name for name in paper.POLICIES}
METHODS = ("best_of_n", "beam", "majority", "cats")


def _recipes(pattern):
    paths = sorted(PAPER.glob(pattern))
    assert paths
    return {path: load_recipe(path) for path in paths}


def _searches(recipe):
    """(policy, PRM, data set, N, strategy, seed) of a recipe; a vote without PRM counts for all."""
    recipe, _ = evaluate.with_stand_ins(recipe)
    for cell in cells.grid(recipe):
        prms = [spec.path for spec in recipe.prms] if cell.prm is None else [cell.prm.path]
        for prm in prms:
            for questions in recipe.questions:
                yield (
                    POLICIES[recipe.policy.path],
                    PRMS[prm],
                    questions.label,
                    cell.num_candidates,
                    cell.spec.label,
                    cell.seed,
                )


def test_the_papers_grid_is_the_papers():
    searches = []
    for recipe in (*_recipes("*-math500.yaml").values(), *_recipes("*-aime24.yaml").values()):
        if "ablation" not in recipe.name:
            searches += _searches(recipe)
    assert len(set(searches)) == len(searches)
    wanted = {
        (policy, row.prm, questions, size, method, seed)
        for policy in paper.POLICIES
        for row in paper.SPARSITY
        for questions, seeds in (("math500", 1), ("aime24", 8))
        for size in paper.NUM_CANDIDATES
        for method in METHODS
        for seed in range(seeds)
    }
    assert set(searches) == wanted
    # 5 policies, 5 PRMs, 2 data sets, 7 N, 4 methods.
    assert len({search[:-1] for search in searches}) == 5 * 5 * 2 * 7 * 4


def test_the_grids_beam_has_width_4_and_its_controllers_their_policy():
    for path, recipe in _recipes("[lq]*.yaml").items():
        options = {spec.name: dict(spec.options) for spec in recipe.strategies}
        assert options["beam"] == {"expansion": 4}
        policy = path.stem.rpartition("-")[0]
        assert options["cats"] == {"checkpoint": f"runs/train/{policy}/seed-0"}
        assert recipe.policy.path.lower() == f"models/{policy}-instruct"


def test_the_comparison_has_all_rows_of_cats():
    recipes = _recipes("comparison-*.yaml")
    rows = {MODELS[row.base_model] for row in paper.COMPARISON if row.method == "CATS"}
    assert {recipe.policy.path for recipe in recipes.values()} == rows
    assert len(recipes) == 4
    for recipe in recipes.values():
        # Most of `math` is in the training questions.
        assert [spec.label for spec in recipe.questions] == ["gsm8k", "math500", "olympiadbench"]
        assert [spec.name for spec in recipe.strategies] == ["cats"]
        best = max(paper.SPARSITY_ABLATION, key=lambda row: row.math500_with)
        assert [spec.path for spec in recipe.prms] == [MODELS[best.prm]]
        assert recipe.num_candidates == (max(paper.NUM_CANDIDATES),)


_ABLATIONS = {
    "sparsity-math500": ["with", "without"],
    "sparsity-aime24": ["with", "without"],
    "reward": [
        f"cost {row.lambda_c:g}, margin {row.lambda_m:g}, score {row.lambda_r:g}"
        for row in paper.REWARD_ABLATION
    ],
    "networks": [
        f"actor {row.actor_layers}x{row.actor_dim}, critic {row.critic_layers}x{row.critic_dim}"
        for row in paper.NETWORK_ABLATION
    ],
    "discount": [f"{row.discount:g}" for row in paper.DISCOUNT_ABLATION],
}


_load_ablations = functools.cache(ablations.load_ablations)


@pytest.mark.parametrize("name", _ABLATIONS)
def test_ablations_are_the_papers_rows_as_they_are_trained(name):
    recipe = load_recipe(PAPER / f"ablation-{name}.yaml")
    table = name.partition("-")[0]
    labels = [spec.label for spec in recipe.strategies]
    assert labels == _ABLATIONS[name]
    assert labels == [row.label for row in _load_ablations()[table]]
    for spec in recipe.strategies:
        folder = ablations._folder_name(spec.label)
        checkpoint = f"runs/ablations-qwen2.5-7b/{table}/{folder}/seed-0"
        assert dict(spec.options) == {"checkpoint": checkpoint}
    # The policy whose mean accuracy the ablations' best row has, see `paper.REWARD_ABLATION`.
    assert recipe.policy.path == MODELS["Qwen2.5-Instruct-7B"]
    assert [PRMS[spec.path] for spec in recipe.prms] == [row.prm for row in paper.SPARSITY]
    assert recipe.num_candidates == paper.NUM_CANDIDATES
    assert [spec.label for spec in recipe.questions] == [name.partition("-")[2] or "math500"]


def test_no_ablation_of_the_paper_is_missing():
    assert {path.stem for path in PAPER.glob("ablation-*")} == {f"ablation-{n}" for n in _ABLATIONS}


@pytest.mark.parametrize("policy", paper.POLICIES)
def test_banks_hold_the_training_split_apart_from_validation(policy):
    stem = MODELS[policy].removeprefix("models/").removesuffix("-Instruct").lower()
    training, validation = (
        load_bank_recipe(PAPER / f"bank-{stem}{part}.yaml") for part in ("", "-validation")
    )
    for loaded in (training, validation):
        assert loaded.policy.path == MODELS[policy]
        assert [PRMS[spec.path] for spec in loaded.prms] == [row.prm for row in paper.SPARSITY]
        recorded = {entry.sampling for entry in loaded.allocation.draws}
        settings = set(search.cats.action_table("top-k").sampling_settings())
        # The greedy step is the first child of our own controllers.
        assert recorded == settings | {search.Sampling(0.0)}
    assert training.allocation == validation.allocation
    assert training.max_depth == validation.max_depth == 40
    (first,), (second,) = training.questions, validation.questions
    assert (first.dataset, first.file, first.shuffle) == ("math12k", "data/math12k.jsonl", 0)
    assert (second.dataset, second.file, second.shuffle) == ("math12k", "data/math12k.jsonl", 0)
    assert (first.start, first.count) == (0, second.start)
    assert second.count is None


_EVALUATED = [
    pytest.param(path, id=path.stem, marks=() if path.parent == PAPER else pytest.mark.slow)
    for path in (*sorted(RECIPES.rglob("*.yaml")), *sorted(STUDIES.rglob("*.yaml")))
    if path.parent.name != "bank"
    and not path.name.startswith("bank-")
    and not path.name.endswith("-format.yaml")
]


@functools.cache
def _number_of(questions):
    """Most recipes share their questions, and those of the world are made one after another."""
    return count_questions(questions)[0]


@pytest.mark.parametrize("path", _EVALUATED)
def test_every_recipe_can_be_counted(path):
    """Also those whose controllers are trained first, and whose calibrations are fitted first."""
    recipe = load_before_fitting(path)
    counted, missing = evaluate.with_stand_ins(recipe)
    folders = [dict(spec.options).get("checkpoint", "") for spec in recipe.strategies]
    absent = [name for name in folders if name.startswith("runs/") and not (ROOT / name).is_dir()]
    assert len(missing) == len(absent)
    found = cells.grid(counted)
    assert {cell.spec.label for cell in found} == {spec.label for spec in recipe.strategies}
    assert all(_number_of(spec) > 0 for spec in recipe.questions)
    assert len(evaluate.cost_bounds(counted, found, 1)) == len(found)


@pytest.mark.parametrize("size", ["small", "large"])
def test_recipes_of_real_models_belong_together(size, capsys, monkeypatch):
    """One policy and PRM, questions of their own for each bank, and a dry run before the first."""
    monkeypatch.chdir(ROOT)
    folder = RECIPES / "real"
    banks = [load_bank_recipe(folder / f"bank-{size}{part}.yaml") for part in ("", "-validation")]
    training, validation = banks
    assert not training.allocation.reads_scores
    assert (training.allocation, training.max_depth) == (validation.allocation, 40)
    (first,), (second,) = training.questions, validation.questions
    assert first.count is not None
    assert (first.shuffle, first.start + first.count) == (second.shuffle, second.start)
    recorded = {entry.sampling for entry in training.allocation.draws}
    assert recorded == set(search.cats.CATS.sampling)
    for name in (size, f"{size}-choose"):
        recipe = load_recipe(folder / f"{name}.yaml", {"calibration": "none"})
        for bank in banks:
            assert recipe.policy.path == bank.policy.path
            assert recipe.policy.max_step_tokens == bank.policy.max_step_tokens
            assert [spec.label for spec in recipe.prms] == [spec.label for spec in bank.prms]
        assert recipe.max_depth == training.max_depth
        assert cli.run(["evaluate", str(folder / f"{name}.yaml"), "--dry-run"]) == 0
        out = capsys.readouterr().out
        if name != size:
            assert "not there yet: question file 'data/math12k.jsonl'" in out
        assert f"calibration 'runs/{size}/calibration.json': no such file" in out
        assert f"controller folder 'runs/{size}/train/seed-0' does not exist" in out


@pytest.mark.parametrize("name", ["qwen2.5-7b-aime24", "ablation-reward"])
def test_a_dry_run_says_what_is_not_there_yet(name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = PAPER / f"{name}.yaml"
    assert cli.run(["evaluate", str(path), "--dry-run"]) == 0
    out = capsys.readouterr().out
    recipe = load_recipe(path)
    for model in (recipe.policy, *recipe.prms):
        assert f"folder {model.path!r} does not exist" in out
    for spec in recipe.strategies:
        assert spec.label in out
        folder = dict(spec.options).get("checkpoint")
        line = f"strategy {spec.label!r}: controller folder {folder!r} does not exist"
        assert (line in out) == (spec.name == "cats")


def test_a_dry_run_still_refuses_what_is_wrong():
    content = {
        "name": "wrong",
        "strategies": [{"name": "cats", "checkpoint": "runs/none", "prise": 0.2}],
        "num_candidates": 4,
        "prms": ["exact"],
        "questions": "math500",
    }
    with pytest.raises(BadInputError, match="unknown option 'prise'"):
        evaluate.with_stand_ins(parse_recipe(content))
