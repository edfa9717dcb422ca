"""Certificates from published scores and solutions, in small; needs the reference material."""

import pathlib

import numpy as np
import pytest
from scipy import stats

import theory
from cats_jax.scoring.labelled import read_labelled
from studies.real import certify_published as study
from studies.real import prm_bounds
from studies.world.results import linear_heads

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "results"


def test_qwen(shared):
    found = study.read_rewarded(shared("real/qwen2.5_math_100x8.jsonl"))
    assert found.right.shape == found.scores.shape == (100, 8)
    assert [int(found.best_of(n).sum()) for n in (1, 8)] == [90, 94]
    line = study.accuracy_line("best of 8", found.best_of(8), 0.8, 1)
    assert line[5] == "yes"
    low = stats.binomtest(94, 100, alternative="greater").proportion_ci(0.95, "exact").low
    assert line[4] == f"at least {low:.3f}".replace("0.", ".")
    # Of 200 halves none contradicts what the other half has certified.
    assert int(line[6]) > 100
    assert line[7] == "0"


@pytest.fixture(scope="module")
def samples(shared):
    return study.read_samples(shared("real/smollm2/samples_1_660.jsonl.gz"))


def test_samples(samples):
    assert samples.right.shape == (660, 16)
    # A vote over one solution with an answer is that solution.
    first = samples.right[:, 0] & (samples.scores[:, 0] >= 0)
    assert samples.majority_of(1).sum() == first.sum()
    assert samples.majority_of(16).mean() == pytest.approx(0.115, abs=5e-4)


def test_selective_answers(samples):
    shares, votes = samples.majority_share(16), samples.majority_of(16)
    assert set(shares * 16) <= set(range(17))
    line = study.selective_line("votes", shares, votes, np.arange(1, 17) / 16, 0.25)
    # A share of 4 of 16 is certified; of lower shares too few are right.
    given = shares >= 4 / 16
    assert line[4:6] == [f"{given.mean():.1%}", study.share(votes[given].mean())]
    more = stats.binomtest(int(votes[given].sum()), int(given.sum()), 0.25, "greater").pvalue
    assert more < 0.05
    less = votes[shares >= 3 / 16]
    assert stats.binomtest(int(less.sum()), less.size, 0.25, "greater").pvalue > 0.05
    assert int(line[6]) > 100
    assert line[-1] == "0"


def test_nothing_is_answered_without_a_certificate():
    # Half of the answers are right, and the score does not tell which.
    score, right = np.tile([0.2, 0.8], 50), np.arange(100) % 4 < 2
    line = study.selective_line("chance", score, right, np.array([0.1, 0.5]), 0.8)
    assert line[3:] == [".500", "0.0%", "", "0", "", "", "0"]


def test_risks_of_six_prms(shared):
    labelled = read_labelled([shared("real/prm_steps/steps.jsonl")])
    scores, labels, question = prm_bounds.question_steps(labelled, labelled.prms)
    assert scores.shape == (3001, 6)
    assert question.max() + 1 == 679
    score = scores[:, 0]
    values = linear_heads.by_question(prm_bounds.LOSSES["0-1"](score, labels), question)
    mean = np.mean([np.mean(((score >= 0.5) != labels)[question == i]) for i in range(679)])
    assert values.mean() == pytest.approx(mean)
    (first, *_) = prm_bounds.risk_lines(scores[:, :1], labels, question)
    assert first[-1] == study.share(theory.betting_upper(values, delta=0.05))
    # A head of slope 1 without an offset is the PRM itself.
    grid = prm_bounds.heads(np.array([-1.0, 0.5]))
    assert grid.shape == (693, 2)
    assert any(np.allclose(row, 1 / (1 + np.exp([1.0, -0.5])), atol=0.03) for row in grid)


def test_the_gibbs_risk_of_a_sharp_head_is_its_risk():
    x = np.array([[1.0], [2.0], [-1.0], [3.0]])
    y, question = np.array([1.0, 1.0, 1.0, -1.0]), np.array([0, 0, 1, 2])
    # With the prior at the weights, the bound is that of the risk with ln 10 nats, or lower.
    bound = linear_heads.gibbs_bound(x, y, question, np.array([5.0]))
    most = theory.seeger_bound(2 / 3, np.log(10), num_samples=3, delta=0.05)
    assert bound <= most + 1e-9


@pytest.mark.slow
def test_the_committed_tables_are_what_the_reference_material_gives(shared, tmp_path):
    (tmp_path / "tables").mkdir()
    study.main(shared("real"), results=tmp_path)
    made = sorted((tmp_path / "tables").iterdir())
    assert len(made) == 5
    for path in made:
        assert path.read_text("utf-8") == (RESULTS / "tables" / path.name).read_text("utf-8")
