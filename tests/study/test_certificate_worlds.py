"""Certificates in resampled worlds: on a made population, and on the kept rows."""

import numpy as np
import pytest

from cats_jax.errors import BadInputError
from studies.world.results.certificate_worlds import resampled_worlds, selective_worlds, study


def test_wrong_is_what_is_not_above_the_target():
    # Nine configurations of one accuracy, and a perfect one.
    rng = np.random.default_rng(1)
    right = np.stack([*(rng.permutation(100) < 60 for _ in range(9)), np.ones(100, bool)])
    (found,) = resampled_worlds(right, [0.6], size=100, worlds=60, delta=0.1)
    assert found.certified == 1.0
    assert found.wrong <= 0.2 < found.wrong_alone
    (below,) = resampled_worlds(right, [0.59], size=100, worlds=3, delta=0.1)
    assert below.wrong == below.wrong_alone == 0.0


def test_on_the_kept_rows(capsys, tmp_path):
    study(worlds=5)
    header, _, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("21 configurations, 500 questions, 5 worlds")
    assert len(lines) == 6
    with pytest.raises(BadInputError, match="has no rows of 'weak' with 'exact'"):
        study(rows=tmp_path)


def test_selective_certificates_are_wrong_where_the_population_is():
    # The score says nothing: at every threshold the accuracy is .8.
    rng = np.random.default_rng(2)
    scores, right = rng.random(2000), np.arange(2000) % 5 > 0
    scores[:5] = 0.5
    (found,) = selective_worlds(scores, right, [0.82], size=200, worlds=60, delta=0.1)
    assert found.wrong <= 0.2
    assert found.wrong < found.wrong_alone
    # With a target below everything that is certified is right.
    (below,) = selective_worlds(scores, right, [0.5], size=200, worlds=5, delta=0.1)
    assert (below.wrong, below.wrong_alone, below.certified) == (0.0, 0.0, 1.0)
