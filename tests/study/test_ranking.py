"""Walks over a step bank: which steps are right, and what a ranking reaches."""

import types

import numpy as np
import pytest

from studies.world.results import ranking

# Below the root (0): a right step (1), a wrong one (2), a blank (3). Below 1: a right end (4) and a
# wrong one (5). Below 2: an end that is right by luck (6).
TEXTS = ["", "1+2=3", "1+2=4", "1+2=3", "\\boxed{6}", "\\boxed{5}", "\\boxed{6}"]


def fake_bank():
    nodes = {
        "parent": np.array([-1, 0, 0, 0, 1, 1, 2]),
        "text": np.array(TEXTS),
        "invalid": np.array([0, 0, 0, 1, 0, 0, 0], bool),
        "draws": np.array([[0, 0], [0, 1], [1, 3], [0, 9], [1, 1], [0, 1], [1, 2]]),
    }
    arrays = types.SimpleNamespace(
        root=np.array([0]),
        temperature=np.array([0.0, 1.0]),
        done=np.array([0, 0, 0, 0, 1, 1, 1], bool),
        answer=np.array([-1, -1, -1, -1, 0, 1, 0]),
    )
    return types.SimpleNamespace(nodes=nodes, arrays=arrays, texts=("(1+2)*2=?",))


def test_right_steps_are_those_of_the_worlds_checker():
    bank = fake_bank()
    bank.nodes["text"] = np.array(["", "1+2=3", "1+2=4", "1+2=3", "3*2=6", "3*2=5", "4*2=8"])
    assert ranking.right_steps(bank).tolist() == [True, True, False, False, True, False, False]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([0, 2, 1, 9, 1, 0, 0], 1.0),  # the right step, the right end
        ([0, 2, 1, 9, 0, 1, 0], 0.0),  # the right step, the wrong end
        ([0, 1, 2, 9, 0, 1, 0], 1.0),  # the wrong step, right by luck
    ],
)
def test_a_walk_takes_the_best_of_its_samples(order, expected):
    found = ranking.walk_accuracies(fake_bank(), np.array(order, float), 64)
    assert found.tolist() == [expected]


def test_few_samples_miss_what_is_rare(monkeypatch):
    monkeypatch.setattr(ranking, "_WALKS", 2000)
    order = np.array([0, 2, 1, 9, 0, 1, 0], float)
    # Of four draws at the root one is the right step, after which the wrong end is taken.
    assert ranking.walk_accuracies(fake_bank(), order, 64).tolist() == [0.0]
    one = ranking.walk_accuracies(fake_bank(), order, 1)
    # 3/4 take the wrong step and end right; of the others half take the right end.
    assert one[0] == pytest.approx(3 / 4 + 1 / 8, abs=0.04)


def test_the_table_has_a_line_for_each_ranking():
    measured = {"oracle": {str(samples): [0.5, 0.4, 0.6] for samples in ranking.SAMPLES}}
    table = ranking.ranking_table("ranking-weak", measured)
    assert table.lines == [["oracle", *[".500 (.400 to .600)"] * 3]]
