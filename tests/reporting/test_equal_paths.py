"""Candidates that are drawn as one line: by hand."""

from run_folders import candidate

from cats_jax.reporting.equal_paths import first_equals


def test_equal_texts_are_equal_only_after_equal_paths():
    nodes = [
        candidate(1, 0, 0, "a"),
        candidate(2, 0, 0, "b"),
        candidate(3, 0, 0, "a", kept=True),
        candidate(4, 0, 0, "a", invalid="length"),
        candidate(5, 1, 1, "c"),
        candidate(6, 2, 1, "c"),
        candidate(7, 3, 1, "c"),
        candidate(8, 7, 2, "a"),
        candidate(9, 6, 2, "a"),
        candidate(10, 5, 2, "a"),
    ]
    assert first_equals(nodes) == {
        0: 0, 1: 1, 2: 2, 3: 1, 4: 4, 5: 5, 6: 6, 7: 5, 8: 8, 9: 9, 10: 8,
    }  # fmt: skip
    assert first_equals([]) == {0: 0}
