"""Strategies of the user's own: named in a recipe as module:function, shared by what they say."""

import dataclasses
import sys

import pytest
import scripted

import search
from cats_jax.controllers.strategies import SearchMethod, build_strategy
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.evaluation.cells import grid
from cats_jax.evaluation.rescore import Change, rescorable_rows, rescore
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.models.source import ModelFolders
from cats_jax.specs.recipe import PrmSpec, parse_recipe, parse_strategy

_QUESTIONS = 4

_MODULE = '''
import dataclasses
import functools

import jax.numpy as jnp

import search
from cats_jax.controllers.strategies import SearchMethod


def _independent(params, key, state):
    first = state.step == 0
    return search.request(state, jnp.where(first, state.num_candidates, 1)), state.memory


@functools.cache
def independent(*, path_score="min", scores=True):
    """Best-of-N and majority vote under another name."""
    return search.Strategy(
        name="independent",
        plan=_independent,
        aggregation=search.aggregations.aggregation(path_score),
        answer=search.answers.answer_best if scores else search.answers.answer_majority,
        uses_scores=scores,
        keeps_all_paths=True,
    )


def unshared():
    """The same searches by a strategy that does not say that it keeps all paths."""
    return dataclasses.replace(independent(), name="majority", keeps_all_paths=False)


def _ends(params, key, state):
    number = jnp.where(state.step == 0, state.num_candidates, 1)
    return search.request(state, number, scored=False, score_ends=True), state.memory


def ends():
    """Best-of-N whose PRM scores finished paths only."""
    aggregation = search.aggregations.aggregation("last")
    return dataclasses.replace(
        independent(), name="ends", plan=_ends, aggregation=aggregation, needs_step_scores=False
    )


def likely():
    """The vote of one: the finished path whose last step is the likeliest."""

    def answer(params, finished, context, aggregation):
        best = jnp.argmax(jnp.where(finished.valid, finished.log_prob, -jnp.inf))
        return jnp.where(finished.valid.any(), best.astype(jnp.int32), -1)

    return dataclasses.replace(
        independent(scores=False), name="likely", answer=answer, needs_log_probs=True
    )


def one_score():
    return independent()


def one_line():
    sampling = search.Sampling(0.0)
    return search.Strategy(
        name="one line",
        plan=search.interface.same_for_all(lambda state: jnp.int32(1), sampling),
        width=search.interface.one_path,
        answer=search.answers.answer_majority,
        sampling=(sampling,),
        uses_scores=False,
        ignores_num_candidates=True,
    )


def _as_many_as_told(params, key, state):
    return search.request(state, params), state.memory


def told(*, number=1):
    strategy = search.Strategy(
        name="told", plan=_as_many_as_told, answer=search.answers.answer_majority, uses_scores=False
    )
    return SearchMethod(strategy, jnp.int32(number), price=0.25)


def number():
    return 3


def _private():
    pass


LIMIT = 5
'''


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """Name of a module with strategies, beside whatever else is imported."""
    folder = tmp_path_factory.mktemp("module")
    (folder / "my_searches.py").write_text(_MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield "my_searches"
    sys.modules.pop("my_searches", None)


def _recipe(strategies, **changes):
    content = {
        "name": "own",
        "strategies": strategies,
        "num_candidates": [4],
        "prms": ["good"],
        "questions": {"world": "test", "count": _QUESTIONS},
        "max_depth": 6,
        "in_flight": 2,
    }
    return parse_recipe({**content, **changes})


def _run(folder, recipe, models=None):
    models = models or scripted.ScriptedModels()
    evaluation = evaluate.prepare(recipe, models, scripted.question_set(_QUESTIONS))
    return evaluate.evaluate(evaluation, models, folder)[0]


def _content(run, label):
    """A strategy's rows without label, seconds and places in the file."""
    rows = {}
    for row in run.rows:
        if row.strategy == label:
            tree = run.tree(row)
            ledger = {n: v for n, v in row.ledger.as_dict().items() if not n.endswith("_seconds")}
            content = dataclasses.asdict(dataclasses.replace(row, tree=None, key="", strategy=""))
            place = (row.num_candidates, row.question)
            rows[place] = ({**content, "ledger": ledger}, tree.candidates, tree.paths, tree.chosen)
    return rows


def test_a_function_of_the_users_own_is_searched_like_a_strategy_of_ours(tmp_path, module):
    own = [
        {"name": f"{module}:independent", "label": "own vote", "scores": False},
        {"name": f"{module}:independent", "label": "own best", "path_score": "last"},
    ]
    ours = ["majority", {"name": "best_of_n", "path_score": "last"}]
    run = _run(tmp_path / "run", _recipe([*ours, *own]))
    for mine, yours in (("majority", "own vote"), ("best_of_n", "own best")):
        rows = _content(run, yours)
        assert len(rows) == _QUESTIONS
        assert rows == _content(run, mine)
    assert {row.prm for row in run.rows if row.strategy == "own vote"} == {None}


def test_a_width_and_a_prms_path_score_reach_a_function_of_the_users_own(module):
    spec = parse_strategy({"name": f"{module}:independent", "beam_width": 3})
    strategy = build_strategy(spec, "product").strategy
    assert strategy.width(64) == 3
    assert strategy.aggregation == search.aggregations.AGGREGATIONS["product"]
    # A function without such an option is not given one.
    assert build_strategy(parse_strategy(f"{module}:one_score"), "product")


def test_a_search_method_brings_its_parameters_and_its_price(tmp_path, module):
    strategies = [{"name": f"{module}:told", "label": "told", "number": 3}]
    recipe = _recipe(strategies, prms=[])
    assert isinstance(build_strategy(recipe.strategies[0]), SearchMethod)
    (cell,) = grid(recipe)
    assert (int(cell.params), cell.price) == (3, 0.25)
    run = _run(tmp_path / "run", recipe)
    for row in run.rows:
        first = [candidate for candidate in run.tree(row).candidates if candidate.step == 0]
        assert len(first) == 3


def test_a_strategy_that_keeps_all_paths_shares_them_between_values_of_n(tmp_path, module):
    def asked(name):
        seeds = []
        generate = scripted.ScriptedPolicy.generate

        def counted(self, requests):
            seeds.extend(seed for request in requests for seed in request.seeds)
            return generate(self, requests)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scripted.ScriptedPolicy, "generate", counted)
            strategies = [{"name": f"{module}:{name}", "label": name}]
            run = _run(tmp_path / name, _recipe(strategies, num_candidates=[2, 4]))
        sizes = {row.num_candidates: 0 for row in run.rows}
        for row in run.rows:
            sizes[row.num_candidates] += row.ledger.candidates
        assert set(sizes) == {2, 4}
        return len(seeds), sizes, _content(run, name)

    shared, sizes, rows = asked("independent")
    assert shared == sizes[4]
    # The rows, cost included, are those of searches of their own.
    unshared, sizes, others = asked("unshared")
    assert unshared == sizes[4] + sizes[2]
    assert rows == others


def test_rows_cost_what_they_cost_alone_if_strategies_score_other_steps(tmp_path, module):
    both = ["best_of_n", {"name": f"{module}:ends", "label": "ends"}]
    models = ModelFolders()
    found = []
    for number, strategies in enumerate((both, both[::-1], both[:1], both[1:])):
        changes = {"policy": {"path": "weak", "max_step_tokens": 32}, "prms": ["exact"]}
        recipe = _recipe(strategies, **changes, questions={"world": "test", "count": 2})
        run = evaluate.evaluate(evaluate.prepare(recipe, models), models, tmp_path / str(number))[0]
        found.append(
            {row.key: (row.correct, row.ledger.prm_computed, row.ledger.flops) for row in run.rows}
        )
    assert found[0] == found[1] == {**found[2], **found[3]}


def test_a_strategy_that_scores_some_steps_is_left_out_of_another_prm(tmp_path, module):
    strategies = ["best_of_n", {"name": f"{module}:ends", "label": "ends"}]
    run = _run(tmp_path / "run", _recipe(strategies))
    rows, left_out = rescorable_rows(run, tmp_path / "new", Change(prm=PrmSpec("bad")))
    assert {row.strategy for row in rows} == {"best_of_n"}
    assert left_out == {
        "ends": "its PRM scored some steps only, as an outcome model does: run it with the PRM"
    }


def test_an_answer_by_likelihood_stays_the_runs(tmp_path, module):
    run = _run(tmp_path / "run", _recipe([f"{module}:likely"], num_candidates=[8], prms=[]))
    again = rescore(run, tmp_path / "new", Change(), BoxedIntegerGrader()).run
    assert [row.answer for row in again.rows] == [row.answer for row in run.rows]
    chosen = [run.tree(row).chosen for row in run.rows]
    assert [again.tree(row).chosen for row in again.rows] == chosen
    assert set(chosen) != {0}


def test_a_strategy_that_ignores_n_runs_once(module):
    strategies = [f"{module}:one_line", f"{module}:unshared"]
    recipe = _recipe(strategies, num_candidates=[4, 8], seeds=[0, 1])
    titles = [cell.title for cell in grid(recipe)]
    assert [title for title in titles if "one_line" in title] == [f"{module}:one_line N=1 seed 0"]
    assert len(titles) == 1 + 2 * 2


def test_rescoring_goes_by_what_a_strategy_says(tmp_path, module):
    names = ("independent", "unshared", "one_score", "one_line")
    strategies = [{"name": f"{module}:{name}", "label": name} for name in names]
    run = _run(tmp_path / "run", _recipe(strategies))
    rescored = rescore(run, tmp_path / "last", Change("last"), BoxedIntegerGrader())
    assert rescored.left_out == {
        "unshared": "its search depends on path scores",
        "one_score": "it has one path score",
        "one_line": "it reads no scores",
    }
    last = [{"name": f"{module}:independent", "label": "independent", "path_score": "last"}]
    direct = _run(tmp_path / "direct", _recipe(last))
    answers = [
        {row.question: (row.answer, row.correct) for row in one.rows}
        for one in (rescored.run, direct)
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("no_such_searches:best", r"cannot import the module 'no_such_searches' .* on PYTHONPATH"),
        (
            "MODULE:independant",
            r"has no function 'independant': did you mean 'independent'\? known are",
        ),
        ("MODULE:LIMIT", "has no function 'LIMIT': known are .*independent, unshared"),
        ("MODULE:number", "the function returned a int: return a search.Strategy, or a SearchM"),
        (
            {"name": "MODULE:independent", "path_scor": "last"},
            r"unknown option 'path_scor': did you mean 'path_score'\? known are path_score, scores",
        ),
        ({"name": "MODULE:independent", "path_score": "best"}, "unknown aggregation 'best'"),
        ("my-searches", "unknown strategy 'my-searches': .* or name a function of your own as mod"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_way_out(module, entry, message):
    if isinstance(entry, str):
        entry = {"name": entry}
    entry = {**entry, "name": entry["name"].replace("MODULE", module)}
    with pytest.raises(BadInputError, match=message) as error:
        grid(_recipe([entry]))
    assert "\n" not in str(error.value)
    assert "_private" not in str(error.value)
