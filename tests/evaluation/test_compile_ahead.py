"""Programs of the cells to come are compiled beside the search of a cell."""

import threading

import pytest
import scripted

from cats_jax.evaluation import compile_ahead
from cats_jax.evaluation.evaluate import evaluate, prepare
from cats_jax.live import ticks
from cats_jax.specs.recipe import parse_recipe

SECONDS = 60


def small_recipe(**changes):
    return parse_recipe(
        {
            "name": "sums",
            "strategies": ["beam", "best_of_n"],
            "num_candidates": [4],
            "prms": ["good"],
            "questions": {"world": "test", "count": 3},
            "max_depth": 4,
            **changes,
        }
    )


def test_later_cells_compile_while_a_cell_is_searched(tmp_path, monkeypatch):
    compiled = threading.Event()
    names = []
    compile_search = compile_ahead.compile_search

    def recording(settings, params, slots):
        compile_search(settings, params, slots)
        names.append(settings.strategy.name)
        if names == ["beam", "best_of_n"]:
            compiled.set()

    class Models(scripted.ScriptedModels):
        def policy(self, spec):
            policy = super().policy(spec)
            generate = policy.generate

            def waiting(requests):
                assert compiled.wait(SECONDS)
                return generate(requests)

            policy.generate = waiting
            return policy

    monkeypatch.setattr(compile_ahead, "compile_search", recording)
    models = Models()
    evaluation = prepare(small_recipe(), models, scripted.question_set(3))
    run, times = evaluate(evaluation, models, tmp_path / "run")
    assert len(run.rows) == 6
    assert names == ["beam", "best_of_n"]
    assert times.parts["compiling"] > 0
    assert not [thread for thread in threading.enumerate() if "compiler" in thread.name]


def test_cells_with_all_their_rows_are_not_compiled(tmp_path, monkeypatch):
    models, questions = scripted.ScriptedModels(), scripted.question_set(3)
    evaluation = prepare(small_recipe(), models, questions)
    evaluate(evaluation, models, tmp_path / "run")
    monkeypatch.setattr(compile_ahead, "compile_search", pytest.fail)
    run, _ = evaluate(evaluation, models, tmp_path / "run")
    assert len(run.rows) == 6


def test_a_run_that_stops_compiles_nothing_more(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    names = []

    def slow(settings, params, slots):
        names.append(settings.strategy.name)
        if len(names) == 2:
            begun.set()
            assert go_on.wait(SECONDS)

    class Models(scripted.ScriptedModels):
        def policy(self, spec):
            assert begun.wait(SECONDS)
            raise KeyboardInterrupt

    monkeypatch.setattr(compile_ahead, "compile_search", slow)
    models = Models()
    recipe = small_recipe(strategies=["beam", "best_of_n", "majority", "dvts"])
    evaluation = prepare(recipe, models, scripted.question_set(3))
    with pytest.raises(KeyboardInterrupt):
        evaluate(evaluation, models, tmp_path / "run")
    go_on.set()
    for thread in threading.enumerate():
        if "compiler" in thread.name:
            thread.join(SECONDS)
    assert len(names) == 2


def test_what_fails_to_compile_fails_the_run(tmp_path, monkeypatch):
    def failing(*arguments):
        raise RuntimeError("no program")

    monkeypatch.setattr(ticks, "plan", failing)
    models = scripted.ScriptedModels()
    evaluation = prepare(small_recipe(), models, scripted.question_set(3))
    with pytest.raises(RuntimeError, match="no program"):
        evaluate(evaluation, models, tmp_path / "run")
