"""The estimate of a recipe's time: its arithmetic on given samples, and a real one."""

import pathlib

import pytest
import scripted

from cats_jax import cli
from cats_jax.datasets import load_questions
from cats_jax.evaluation import measure
from cats_jax.evaluation.cells import grid
from cats_jax.evaluation.measure import Sample
from cats_jax.live.ledger import Ledger
from cats_jax.specs.recipe import parse_recipe

RECIPES = pathlib.Path(__file__).resolve().parents[2] / "recipes"


def _recipe(**changes):
    content = {
        "name": "timed",
        "strategies": ["beam"],
        "num_candidates": [4, 16],
        "prms": ["good"],
        "questions": {"world": "test", "count": 100},
        "in_flight": 4,
    }
    return parse_recipe({**content, **changes})


def _sample(cell, tokens=(100, 100, 100, 100), *, prm_tokens=50, startup=0.0):
    """20 ms per sampled token, 10 ms per PRM token, and 0.5 s of other work per question."""
    ledgers = [
        Ledger(
            generated=count,
            prm_computed=prm_tokens,
            policy_seconds=0.02 * count,
            prm_seconds=0.01 * prm_tokens,
            rest_seconds=0.5,
        )
        for count in tokens
    ]
    return Sample(cell, tuple(ledgers), sum(ledger.seconds for ledger in ledgers), startup)


def _times(recipe, samples, rows=100):
    found = measure._estimate(recipe, grid(recipe), samples, rows)
    return {time.cell.title: (time.low, time.high) for time in found}


def test_rates_share_the_wall_time():
    (cell, _) = grid(_recipe())
    sample = _sample(cell)
    assert sample.rates() == pytest.approx((0.02, 0.01, 0.5))
    # Half the wall time for the same seconds of questions: half of each rate.
    overlapped = Sample(cell, sample.ledgers, sample.seconds / 2, 0.0)
    assert overlapped.rates() == pytest.approx((0.01, 0.005, 0.25))


def test_a_measured_cell_takes_its_rows_times_its_tokens():
    recipe = _recipe()
    samples = [_sample(cell, startup=7.0) for cell in grid(recipe)]
    each = 100 * 0.02 + 50 * 0.01 + 0.5
    for low, high in _times(recipe, samples).values():
        assert low == pytest.approx(7 + 100 * each)
        assert high == pytest.approx(7 + 100 * each)


def test_an_n_that_was_not_measured_is_between_no_growth_and_linear_growth():
    recipe = _recipe()
    (small, _) = grid(recipe)
    low, high = _times(recipe, [_sample(small)])["beam N=16 good seed 0"]
    assert (low, high) == pytest.approx((300, 4 * 300))


def test_fewer_questions_at_once_than_in_flight_widen_the_range():
    recipe = _recipe(in_flight=16)
    samples = [_sample(cell) for cell in grid(recipe)]
    assert _times(recipe, samples)["beam N=4 good seed 0"] == pytest.approx((300 / 4, 300))
    # A run of no more questions than were measured gains nothing.
    assert _times(recipe, samples, rows=4)["beam N=4 good seed 0"] == pytest.approx((12, 12))


def test_the_spread_between_questions_is_in_the_range():
    recipe = _recipe(num_candidates=[4])
    (cell,) = grid(recipe)
    low, high = _times(recipe, [_sample(cell, (60, 80, 120, 140))])["beam N=4 good seed 0"]
    # Student's t with 3 degrees of freedom; costs 2.2, 2.6, 3.4 and 3.8 s.
    half = 100 * 3.18245 * (1.6 / 3) ** 0.5 * (1 / 4 + 1 / 100) ** 0.5
    assert (low + high) / 2 == pytest.approx(300)
    assert (high - low) / 2 == pytest.approx(half, rel=0.01)


def test_shared_paths_are_paid_once():
    recipe = _recipe(strategies=["majority", "best_of_n"], prms=["good", "bad"])
    cells = {cell.title: cell for cell in grid(recipe)}
    samples = [
        _sample(cells["majority N=16 seed 0"], prm_tokens=0),
        _sample(cells["best_of_n N=16 good seed 0"]),
        _sample(cells["best_of_n N=16 bad seed 0"], prm_tokens=100),
    ]
    times = {title: high for title, (_, high) in _times(recipe, samples).items()}
    assert times["majority N=16 seed 0"] == pytest.approx(100 * (2 + 0.5))
    assert times["majority N=4 seed 0"] == pytest.approx(100 * 0.5 / 4)
    assert times["best_of_n N=16 good seed 0"] == pytest.approx(100 * (0.5 + 0.5))
    assert times["best_of_n N=4 good seed 0"] == pytest.approx(100 * 0.5 / 4)
    assert times["best_of_n N=16 bad seed 0"] == pytest.approx(100 * (1 + 0.5))
    # A row that can be cut short is searched by itself.
    alone = _times(_recipe(strategies=["majority", "best_of_n"], budget=50), samples)
    assert alone["majority N=4 seed 0"][1] == pytest.approx(100 * 2.5 / 4)


def test_a_prm_that_was_measured_with_another_strategy_gives_its_rate():
    recipe = _recipe(strategies=["best_of_n", "beam"], prms=["good", "bad"], num_candidates=[4])
    cells = {cell.title: cell for cell in grid(recipe)}
    slow = _sample(cells["best_of_n N=4 bad seed 0"])
    slow = Sample(
        slow.cell,
        tuple(Ledger(generated=100, prm_computed=10, prm_seconds=1.0) for _ in range(4)),
        4.0,
        0.0,
    )
    samples = [
        _sample(cells["best_of_n N=4 good seed 0"]),
        _sample(cells["beam N=4 good seed 0"]),
        slow,
    ]
    _, high = _times(recipe, samples)["beam N=4 bad seed 0"]
    assert high == pytest.approx(100 * (2 + 50 * 0.1 + 0.5))


def test_every_strategy_and_every_prm_is_measured():
    more = {"prms": ["good", "bad"], "seeds": [0, 1], "in_flight": 8}
    recipe = _recipe(strategies=["greedy", "majority", "beam"], **more)
    models = scripted.ScriptedModels()
    titles = []
    found = measure.measure(
        recipe,
        grid(recipe),
        scripted.question_set(8).questions,
        models,
        seconds=0.0,
        report=titles.append,
    )
    assert titles == [
        "greedy N=1 seed 0",
        "majority N=4 seed 0",
        "beam N=4 good seed 0",
        "beam N=4 bad seed 0",
    ]
    assert len(models.loaded) == 3  # the policy and each PRM once
    assert len(found.cells) == len(grid(recipe))
    assert all(0 < time.low <= time.high for time in found.cells)


def test_more_time_measures_larger_n_and_more_questions():
    recipe = _recipe(num_candidates=[2, 4], in_flight=16)
    found = measure.measure(
        recipe,
        grid(recipe),
        scripted.question_set(20).questions,
        scripted.ScriptedModels(),
        seconds=30.0,
    )
    for time in found.cells:
        assert time.sample.cell is time.cell
        assert time.basis == "16 questions at once"


def test_an_engine_is_measured_with_the_context_of_the_run(monkeypatch):
    class Stop(Exception):
        pass

    def runner(recipe, cells, *arguments):
        given.extend((recipe.policy.max_model_len, *(cell.prm.max_model_len for cell in cells)))
        raise Stop

    given = []
    monkeypatch.setattr(measure, "LocalRunner", runner)
    engines = {"policy": {"path": "weak", "backend": "vllm"}, "num_candidates": [4]}
    recipe = _recipe(prms=[{"path": "exact", "backend": "vllm"}], **engines)
    with pytest.raises(Stop):
        measure.measure(recipe, grid(recipe), load_questions(recipe.questions).questions, None)
    assert all(given)


def test_measure_is_part_of_a_dry_run(capsys):
    assert cli.run(["evaluate", str(RECIPES / "quick.yaml"), "--measure"]) == 2
    assert "give it with --dry-run" in capsys.readouterr().err


@pytest.mark.slow
def test_quick_takes_about_what_was_estimated(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    command = ["evaluate", str(RECIPES / "quick.yaml"), "--strategies", "majority", "beam"]
    assert cli.run([*command, "--dry-run", "--measure"]) == 0
    out = capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    (total,) = [line for line in out.splitlines() if line.startswith("| all ") and ":" in line]
    low, high = (_seconds(text) for text in total.split("|")[3:5])

    assert cli.run([*command, "--timings"]) == 0
    (wall,) = [line for line in capsys.readouterr().out.splitlines() if "| wall time  " in line]
    true = float(wall.split("|")[2])
    # Other work on the machine comes and goes between the two.
    assert low / 3 <= true <= 3 * high


def _seconds(text):
    hours, minutes, seconds = map(int, text.strip().split(":"))
    return 3600 * hours + 60 * minutes + seconds
