"""The table of all methods, against numbers worked out by hand."""

import pytest
from matplotlib.container import ErrorbarContainer

from cats_jax.reporting.figure_setup import drawing
from studies.world.results.methods import draw_methods, method_tables

from .test_study import greedy, group

GROUPS = [
    greedy(),
    group("majority", (1, 1, 0, 0), prm=None, tokens=250),
    group("best_of_n", (1, 1, 0, 0), size=4, tokens=150),
    group("best_of_n", (1, 1, 1, 0), size=16, tokens=350),
    group("beam", (1, 1, 1, 0), tokens=100),
    group("mcts", (1, 1, 1, 1), tokens=1000),
    group("dora", (1, 0, 0, 0), tokens=40),
]


@pytest.fixture(scope="module")
def lines():
    (table,) = method_tables("methods", GROUPS)
    assert table.name == "methods-exact"
    return {line["strategy"]: line for line in table.as_mappings()}


@pytest.mark.parametrize(
    ("strategy", "same_size", "same_tokens"),
    [
        # Half of the questions by greedy decoding (50 tokens), half by best-of-4 (150): .375.
        ("beam", "+0.000", "+0.375"),
        # Half by best-of-4, half by best-of-16 (350): .625, and the vote has .5.
        ("majority", "-0.250", "-0.125"),
        # More tokens than best-of-16, which is then the rival.
        ("mcts", "+0.250", "+0.250"),
    ],
)
def test_a_lead_is_over_best_of_n_at_n_and_over_its_mixture_of_equal_tokens(
    lines, strategy, same_size, same_tokens
):
    line = lines[strategy]
    assert line["lead at N = 16"].startswith(same_size)
    assert line["at its tokens"].startswith(same_tokens)


def test_a_lead_that_has_no_rival_is_left_out(lines):
    assert lines["dora"]["at its tokens"] == ""  # fewer tokens than greedy decoding
    assert lines["best_of_n"]["lead at N = 16"] == lines["best_of_n"]["at its tokens"] == ""
    assert lines["greedy"]["at its tokens"] == ""
    assert lines["best_of_n"]["N = 4"] == ".500 (150)"
    assert lines["best_of_n"]["N = 64"] == ""


def test_the_figure_draws_each_method_in_its_family_and_greedy_decoding_in_all():
    with drawing():
        figure = draw_methods(GROUPS, "exact", "all")
    drawn = {
        axes.get_title(): {
            each.get_label() for each in axes.containers if isinstance(each, ErrorbarContainer)
        }
        for axes in figure.axes
    }
    assert drawn["whole paths"] == {"majority voting", "best-of-N", "greedy decoding"}
    assert drawn["beams"] == {"beam search", "greedy decoding"}
    assert drawn["resampling"] == {"DORA", "greedy decoding"}
    assert drawn["trees"] == {"MCTS", "greedy decoding"}
