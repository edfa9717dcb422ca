"""Certificates in resampled worlds: on made populations, and on the kept rows and paths."""

import pathlib

import numpy as np
import pytest

import theory
from cats_jax.errors import BadInputError
from studies.world.results.certificate_worlds import (
    cost_worlds,
    fresh_parts,
    loss_worlds,
    resample,
    selective_worlds,
    stopping_worlds,
    study,
    target_worlds,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DELTA = 0.1


def ten():
    """Nine configurations that are right on 60 of 100 questions, and a perfect one."""
    rng = np.random.default_rng(1)
    right = np.stack([*(rng.permutation(100) < 60 for _ in range(9)), np.ones(100, bool)])
    return right, np.tile(np.arange(1.0, 11.0)[:, None], (1, 100))


def test_wrong_is_what_is_not_above_the_target():
    right, tokens = ten()
    times = resample(100, 60, 0, size=100)
    found = target_worlds(right, tokens, 0.6, times, DELTA)
    assert (found.num, found.certified) == (60, 60)
    assert found.wrong <= 12 < found.wrong_alone
    assert target_worlds(right, tokens, 0.59, times, DELTA).wrong == 0
    low, high = found.interval()
    assert low <= found.wrong / 60 <= high
    assert high == pytest.approx(theory.binomial_upper(found.wrong, 60, delta=0.025))


def test_wrong_is_what_loses_the_limit():
    right, tokens = ten()
    times = resample(100, 60, 0, size=100)
    found = loss_worlds(right, np.ones(100, bool), tokens, 0.4, times, DELTA)
    assert found.wrong <= 12 < found.wrong_alone
    assert loss_worlds(right, right[-1], tokens, 0.41, times, DELTA).wrong == 0


def test_wrong_is_a_bound_below_the_mean():
    right, _ = ten()
    # One question in fifty costs all of the limit.
    tokens = np.tile(np.where(np.arange(100) % 50 == 0, 100.0, 1.0), (10, 1))
    found = cost_worlds(right, tokens, 0.5, resample(100, 40, 0, size=100), DELTA)
    assert found.certified == 40
    assert found.wrong <= 8


def test_wrong_is_a_threshold_that_loses_the_limit():
    # At .5 every tenth question is harmful.
    scores = np.tile([0.6, 0.99], (100, 1))
    right = np.stack([np.arange(100) % 10 > 0, np.ones(100, bool)], axis=1)
    times = resample(100, 60, 0, size=100)
    found = stopping_worlds(scores, right, 0.1, times, DELTA)
    assert (found.num, found.certified) == (60, 60)  # a higher threshold, if not this one
    assert found.wrong <= 12
    assert stopping_worlds(scores, right, 0.101, times, DELTA).wrong == 0


def test_selective_certificates_are_wrong_where_the_population_is():
    # The score says nothing: at every threshold the accuracy is .8.
    rng = np.random.default_rng(2)
    scores, right = rng.random(2000), np.arange(2000) % 5 > 0
    scores[:5] = 0.5
    found = selective_worlds(scores, right, 0.82, resample(2000, 60, 0, size=200), DELTA)
    assert found.wrong <= 12
    assert found.wrong < found.wrong_alone
    # With a target below everything that is certified is right.
    below = selective_worlds(scores, right, 0.5, resample(2000, 5, 0, size=200), DELTA)
    assert (below.wrong, below.wrong_alone, below.certified) == (0, 0, 5)


def test_fresh_parts_are_the_rest():
    seen = []

    def make(used):
        seen.append(set(used.tolist()))
        return 0 if len(seen) % 2 else None

    good = np.arange(10.0)[None, :]
    part, value, cost = fresh_parts(make, good, 2 * good, used=4, splits=4, seed=0)
    rest = [np.mean([i for i in range(10) if i not in used]) for used in seen[::2]]
    assert (part, value, cost) == (0.5, pytest.approx(np.mean(rest)), pytest.approx(2 * value))


def test_on_the_kept_rows(capsys, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    for folder in ("tables", "figures"):
        (results / folder).mkdir()
    with pytest.raises(BadInputError, match=r"has no paths-weak.npz"):
        study(results=results)
    (results / "rows").symlink_to((ROOT / "docs/results/rows").resolve())
    study(worlds=3, results=results)
    printed = capsys.readouterr().out
    assert "| accuracy above a target |" in printed
    assert (results / "tables/certificates-worlds.md").read_text() in printed
    assert (results / "figures/certificates.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_committed_tables_are_what_the_committed_rows_give(tmp_path):
    results = ROOT / "docs" / "results"
    (tmp_path / "rows").symlink_to(results / "rows")
    for name in ("tables", "figures"):
        (tmp_path / name).mkdir()
    study(results=tmp_path)
    made = sorted((tmp_path / "tables").iterdir())
    assert [path.name for path in made] == ["certificates-fresh.md", "certificates-worlds.md"]
    for path in made:
        assert path.read_text("utf-8") == (results / "tables" / path.name).read_text("utf-8")
    assert (tmp_path / "figures" / "certificates.png").is_file()
