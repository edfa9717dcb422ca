"""Figures of a run: what they show, that no label hides anything, and what the files hold."""

import dataclasses
import itertools
import re
from collections import Counter
from typing import Any

import made_runs
import numpy as np
import pytest
import run_folders
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.container import ErrorbarContainer
from matplotlib.path import Path
from matplotlib.text import Text
from run_folders import candidate, finished, row_of

from cats_jax.errors import BadInputError, RunWarning
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.live.results import DecisionRow
from cats_jax.reporting import accuracy_figures, action_figures, reliability_figures
from cats_jax.reporting.appearance import appearances
from cats_jax.reporting.figure_setup import drawing, file_name, make_panels
from cats_jax.reporting.figures import write_figures
from cats_jax.reporting.finished_paths import FinishedPaths, finished_paths
from cats_jax.reporting.groups import Group, groups
from cats_jax.reporting.point_labels import DrawnSeries, place_labels
from cats_jax.runs.folder import read_run
from cats_jax.scoring.quality_report import draw_calibration

STRATEGIES = ["greedy", "majority", "best_of_n", "beam", "cats", "cats_constant", "cats_random"]
STRATEGIES += ["mine"]


def group(
    strategy, right, *, size=16, prm="exact", tokens=100.0, actions=(), levels=None, flops=1e9
):
    rows = [
        made_runs.row(
            strategy,
            size,
            prm,
            question=f"q{number}",
            meta={} if levels is None else {"level": levels[number]},
            correct=bool(correct),
            tokens=int(tokens),
            flops=flops,
            actions=actions,
        )
        for number, correct in enumerate(right)
    ]
    return Group(strategy, size, prm, tuple(rows))


def grid(strategies, prms=("exact", "labels-only"), sizes=(4, 16, 64), seed=0):
    """Groups of a run: accuracies and costs at random, greedy decoding without a PRM and N."""
    rng = np.random.default_rng(seed)
    found = []
    for strategy in strategies:
        for prm in (None,) if strategy in ("greedy", "majority") else prms:
            for size in (1,) if strategy == "greedy" else sizes:
                tokens = 50 * size ** rng.uniform(0.3, 1.0)
                right = rng.random(40) < rng.uniform(0.2, 0.9)
                found.append(group(strategy, right, size=size, prm=prm, tokens=tokens))
    return found


def panels_of(figure):
    assert figure is not None
    return figure.axes


def bars_of(axes):
    return [each for each in axes.containers if isinstance(each, ErrorbarContainer)]


def points_of(line):
    return np.asarray(line.get_xydata(), float)


# Accuracy


def test_points_and_bars_are_the_groups_accuracies():
    found = [
        group("beam", (1, 1, 0, 0), size=4, tokens=100),
        group("beam", (1, 1, 1, 0), size=16, tokens=300),
        group("greedy", (1, 0, 0, 0), size=1, prm=None, tokens=50),
    ]
    with drawing():
        figure = accuracy_figures.plot_against_cost(found, "t", accuracy_figures.TOKENS)
    (axes,) = panels_of(figure)
    drawn = {each.get_label(): each for each in bars_of(axes)}
    assert list(drawn) == ["beam search", "greedy decoding"]
    beam = drawn["beam search"].lines[0]
    assert points_of(beam)[:, 0].tolist() == [100, 300]
    assert points_of(beam)[:, 1].tolist() == [0.5, 0.75]
    bars = [segment[:, 1].tolist() for segment in drawn["beam search"].lines[2][0].get_segments()]
    intervals = [each.accuracy() for each in found[:2]]
    assert np.allclose(bars, [[each.low, each.high] for each in intervals])
    assert axes.get_xscale() == "log"


def test_there_is_a_panel_for_each_prm_and_greedy_decoding_in_all():
    with drawing():
        figure = accuracy_figures.plot_against_num_candidates(grid(STRATEGIES[:4]), "t")
    assert [axes.get_title() for axes in panels_of(figure)] == ["PRM exact", "PRM labels-only"]
    for axes in panels_of(figure):
        names = [each.get_label() for each in bars_of(axes)]
        assert names == ["greedy decoding", "majority voting", "best-of-N", "beam search"]
    first, second = panels_of(figure)
    assert first.get_ylim() == second.get_ylim()
    assert first.get_xlim() == second.get_xlim()


def test_costs_that_were_not_counted_give_no_figure():
    found = [group("beam", (1, 0)), group("cats", (1, 0), flops=0.0)]
    with drawing():
        assert accuracy_figures.plot_against_cost(found, "t", accuracy_figures.FLOPS) is None
        assert accuracy_figures.plot_against_num_candidates(found, "t") is None  # one N
        assert accuracy_figures.plot_levels(found, "t") is None  # no levels


def test_accuracy_by_level_in_the_order_of_the_levels():
    levels = (10, 9, 10, "hard")
    with drawing():
        figure = accuracy_figures.plot_levels([group("beam", (1, 1, 0, 0), levels=levels)], "t")
    (axes,) = panels_of(figure)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["9", "10", "hard"]
    assert points_of(bars_of(axes)[0].lines[0])[:, 1].tolist() == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    "levels", [(1, None), (1, True), (1, "x" * 50), (1, 1), (1.5, 2), ([1], [2])]
)
def test_what_is_no_level_gives_no_figure(levels):
    with drawing():
        assert accuracy_figures.plot_levels([group("beam", (1, 0), levels=levels)], "t") is None


# Labels


def texts(figure):
    """(text, box) of every text that is drawn."""
    figure.draw_without_rendering()
    found = set(figure.findobj(Text))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        # Ticks outside of the view have labels too, which are not drawn.
        ticks = {text for tick in axis._update_ticks() for text in (tick.label1, tick.label2)}
        found -= set(axis.findobj(Text)) - ticks - {axis.label}
    for text in found:
        if text.get_visible() and text.get_text().strip():
            yield text, text.get_window_extent()


def marks(axes):
    """Paths in pixels of the lines, bars and caps of a panel's series, bar by bar."""
    for container in bars_of(axes):
        line, caps, bars = container.lines
        points = axes.transData.transform(points_of(line))
        yield from (Path(ends) for ends in itertools.pairwise(points))
        yield from (Path([point, point + 0.01]) for point in points)
        for each in bars:
            for segment in each.get_segments():
                yield Path(axes.transData.transform(segment))
        for cap in caps:
            for point in axes.transData.transform(points_of(cap)):
                yield Path([np.subtract(point, (2, 0)), np.add(point, (2, 0))])


def check_texts(figure):
    """Every text of a figure lies inside of it and on no other; returns texts and their boxes."""
    boxes = [(text, box.padded(-0.5)) for text, box in texts(figure)]
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        assert not first.overlaps(second), (one, other)
    width, height = figure.bbox.width, figure.bbox.height
    for text, box in boxes:
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0, text
    return boxes


@pytest.mark.parametrize("strategies", [2, 5, 8])
@pytest.mark.parametrize("prms", [("exact",), tuple("abcd")])
def test_no_text_lies_on_another_or_on_a_mark(strategies, prms):
    found = grid(STRATEGIES[-strategies:], prms=prms, seed=strategies)
    with drawing():
        figures = [
            accuracy_figures.plot_against_cost(found, "A title", accuracy_figures.TOKENS),
            accuracy_figures.plot_against_num_candidates(found, "A title"),
        ]
    for figure in figures:
        boxes = check_texts(figure)
        for axes in panels_of(figure):
            labels = [box for text, box in boxes if text in axes.texts]
            for mark in marks(axes):
                for box in labels:
                    assert not mark.intersects_bbox(box, filled=False)
    numbers = [text for axes in panels_of(figures[0]) for text in axes.texts]
    assert len(numbers) >= len(prms) * strategies  # most points have room


def panel_with(series):
    with drawing():
        figure, (axes,) = make_panels(1)
        axes.set(xlim=(0, 10), ylim=(0, 10))
        figure.draw_without_rendering()
        written = place_labels(axes, series)
        figure.draw_without_rendering()
        return axes, written


def test_a_label_stands_at_its_point_and_neighbours_on_one_another_share_it():
    points = [(2, 5, 5, 5), (2.01, 5, 5, 5), (8, 5, 5, 5)]
    axes, written = panel_with([DrawnSeries(points, ["4", "16", "64"], "#000000", False)])
    assert written == ["4, 16", "64"]
    assert panel_with([DrawnSeries(points, ["4", "", ""], "#000000", False)])[1] == ["4"]
    center = axes.transData.transform((8, 5))
    box = axes.texts[1].get_window_extent()
    assert abs((box.x0 + box.x1) / 2 - center[0]) < 2
    assert 3 < center[1] - box.y1 < 15  # just below the point


def test_a_label_without_room_is_left_out():
    fence = [(5 + x / 20, 5 + y / 3, 0, 10) for x in range(-12, 13) for y in range(-6, 7)]
    crowd = DrawnSeries(fence, [""] * len(fence), "#000000", False)
    _, written = panel_with([crowd, DrawnSeries([(5, 5, 5, 5)], ["64"], "#000000")])
    assert written == []


# Actions


def decision(step, phase, num_extra):
    return DecisionRow(step, phase, 0, (), 0, num_extra, 1, 1.0, 1.0, 0, num_extra, 0.0)


def test_a_decision_has_what_earlier_ticks_left_of_the_budget():
    ticks = ((0, 0), (0, 1), (0, 1), (1, 0), (1, 1))  # step and phase of each candidate
    nodes = [candidate(number, 0, step, "text") for number, (step, _) in enumerate(ticks, 1)]
    for node, (_, phase) in zip(nodes, ticks, strict=True):
        node.phase = phase
    result = run_folders.searched("q", "?", nodes)
    result.decisions = [decision(0, 1, 2), decision(0, 2, 0), decision(1, 1, 1)]
    placed = action_figures.placed_decisions(result, 10)
    # Before the first, one candidate was spent; before the second three; before the third four.
    assert [(each.step, each.left, each.num_extra) for each in placed] == [
        (1, 9, 2),
        (1, 7, 0),
        (2, 6, 1),
    ]


PLACED = st.builds(
    action_figures.PlacedDecision,
    step=st.integers(1, 6),
    left=st.integers(0, 30),
    num_extra=st.sampled_from([0, 1, 4]),
)


@given(st.lists(PLACED, min_size=1, max_size=60))
def test_ranges_of_the_budget_divide_all_decisions_and_no_value(decisions):
    bars = action_figures.shares_by_budget(decisions)
    assert len(bars) <= 4
    assert sum(bars.values(), Counter()) == Counter(each.num_extra for each in decisions)
    ends = [[int(end) for end in name.split("–")] for name in bars]
    flat = [end for pair in ends for end in pair]
    assert flat == sorted(flat, reverse=True)
    assert len(set(map(tuple, ends))) == len(ends)
    for (high, *low), counts in zip(ends, bars.values(), strict=True):
        inside = [each for each in decisions if (low or [high])[0] <= each.left <= high]
        assert Counter(each.num_extra for each in inside) == counts


def test_use_of_actions_over_the_reasoning_steps():
    placed = [
        action_figures.PlacedDecision(1, 9, 0),
        action_figures.PlacedDecision(3, 7, 4),
        action_figures.PlacedDecision(3, 7, 0),
    ]
    steps = action_figures.shares_by_step(placed)
    assert steps == {"1": {0: 1}, "2": {}, "3": {4: 1, 0: 1}}


def test_without_trees_actions_are_drawn_by_n(tmp_path):
    some = ((0, 1, 0.6, 1.0, 0, 30), (4, 2, 1.0, 1.0, 0, 10))
    found = [group("cats", (1, 0), size=size, actions=some) for size in (4, 16)]
    constant = group("cats_constant", (1, 0), actions=some[:1])
    with drawing():
        figures = action_figures.plot_actions([*found, constant], "t", None)
    assert list(figures) == ["actions-n-cats"]
    panel, strip = figures["actions-n-cats"].axes
    assert [bar.get_height() for bar in panel.containers[0]] == [0.75, 0.75]
    assert [bar.get_height() for bar in strip.containers[0]] == [80, 80]  # two rows each


def test_prms_whose_long_names_begin_alike_have_a_panel_each():
    some = ((0, 1, 0.6, 1.0, 0, 30), (4, 2, 1.0, 1.0, 0, 10))
    names = ["a" * 60 + end for end in "xy"]
    found = [group("cats", (1, 0), prm=name, actions=some) for name in names]
    with drawing():
        figure = action_figures.plot_actions(found, "t", None)["actions-n-cats"]
        assert len(figure.axes) == 4  # a panel and a strip each
        reliability = draw_calibration({name: {} for name in names})
    assert len(reliability.axes) == 4


def test_strategies_whose_long_names_begin_alike_are_told_apart():
    names = ["a" * 50 + end for end in ("x", "y", "z" + 20 * "b", "w" + 20 * "b")]
    figure = accuracy_figures.plot_against_cost(
        [group(name, (1, 0), prm=name) for name in names], "t", accuracy_figures.TOKENS
    )
    assert figure is not None
    (legend,) = figure.legends
    entries = [text.get_text() for text in legend.get_texts()]
    titles = [axes.get_title() for axes in figure.axes]
    assert len(set(entries)) == len(set(titles)) == 4
    assert max(map(len, entries)) <= 44
    assert entries[0].endswith("ax")


def test_long_ranges_of_the_budget_have_room():
    decisions = [
        action_figures.PlacedDecision(step, 8192 - 7 * step * count, count % 2)
        for step in range(1, 13)
        for count in range(9)
    ]
    panels = {f"PRM labels-only, N = {size}": decisions for size in (64, 128, 256, 512)}
    with drawing():
        budget = {name: action_figures.shares_by_budget(each) for name, each in panels.items()}
        steps = {name: action_figures.shares_by_step(each) for name, each in panels.items()}
        for bars, share_x in ((budget, False), (steps, True)):
            check_texts(
                action_figures._stacked(bars, [0, 1], "A title", "an axis", share_x=share_x)
            )


# Calibration


def write_run(folder, searches, *, trees=True):
    rows = [row_of(result, "1", "best_of_n") for result in searches]
    return read_run(
        run_folders.write_run(folder, list(zip(rows, searches, strict=True)), trees=trees)
    )


def test_finished_paths_are_judged_by_their_own_answers(tmp_path):
    searches = [
        finished("a", [("1", 0.9), ("2", 0.7), ("01", 0.2), (None, 0.5), ("1", None)], chosen=1),
        finished("b", [("7", 0.4)], chosen=1),
    ]
    run = write_run(tmp_path / "run", searches)
    paths = finished_paths(run, run.rows, BoxedIntegerGrader())
    assert paths.scores.tolist() == [0.9, 0.7, 0.2, 0.4]
    assert paths.truths.tolist() == [1, 0, 1, 0]
    assert paths.questions.tolist() == ["a", "a", "a", "b"]


@given(st.integers(0, 2**32 - 1))
def test_bins_against_counting(seed):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.random(200), 1)
    truths = (rng.random(200) < scores).astype(float)
    questions = np.array([f"q{number}" for number in rng.integers(0, 25, size=200)])
    bins = reliability_figures.path_reliability(FinishedPaths(scores, truths, questions))
    for index in range(10):
        mine = [
            (score, truth, question)
            for score, truth, question in zip(scores, truths, questions, strict=True)
            if min(int(score * 10), 9) == index
        ]
        found = [each for each in bins if round(each.low * 10) == index]
        if len({question for *_, question in mine}) < reliability_figures.FEWEST_QUESTIONS:
            assert found == []
            continue
        share = found[0].share_right
        assert found[0].num == len(mine)
        assert share.value == pytest.approx(np.mean([truth for _, truth, _ in mine]))
        assert 0 <= share.low <= share.value <= share.high <= 1


def test_where_all_paths_are_right_the_interval_counts_questions():
    questions = np.repeat([f"q{number}" for number in range(20)], 50)
    paths = FinishedPaths(np.full(1000, 0.95), np.ones(1000), questions)
    (only,) = reliability_figures.path_reliability(paths)
    # Clopper and Pearson of 20 of 20: .025 ** (1 / 20). A thousand paths would give .996.
    assert only.share_right.low == pytest.approx(0.025 ** (1 / 20))
    assert only.num == 1000
    assert reliability_figures.path_reliability(FinishedPaths(*[np.array([])] * 3)) == []


@pytest.mark.parametrize(("panels", "columns"), [(1, 1), (2, 2), (4, 2), (5, 3)])
def test_reliability_diagrams_have_room(panels, columns):
    rng = np.random.default_rng(0)
    questions = np.array([f"q{number}" for number in rng.integers(0, 40, size=3000)])
    paths = FinishedPaths(rng.random(3000), (rng.random(3000) < 0.5) * 1.0, questions)
    bins = reliability_figures.path_reliability(paths)
    looks = appearances(STRATEGIES[:5])
    lines = [reliability_figures.ReliabilityLine(look, bins) for look in looks.values()]
    titles = {"title": "A title", "note": "a note", "x_title": "x", "y_title": "share of paths"}
    with drawing():
        by_panel = {f"PRM {number} of a long name, {'x' * 50}": lines for number in range(panels)}
        by_panel |= {list(by_panel)[-1]: []} if panels > 1 else {}
        figure = reliability_figures.draw_reliability(
            by_panel, **titles, counted="paths", nothing="no bin has paths"
        )
        written = {text.get_text() for text, _ in check_texts(figure)}
    assert ("no bin has paths" in written) == (panels > 1)
    assert sum(text.startswith("PRM ") for text in written) == panels
    place: Any = figure.axes[0].get_subplotspec()
    assert place.get_gridspec().ncols == columns


def test_a_prm_of_too_few_paths_keeps_its_panel(tmp_path):
    searches = [finished(f"q{number}", [("1", 0.9), ("2", 0.2)], 1) for number in range(12)]
    run = write_run(tmp_path, searches)
    rows = [*run.rows, *(dataclasses.replace(row, prm="rare") for row in run.rows[:5])]
    with drawing():
        figure = reliability_figures.plot_path_calibration(groups(rows), "t", run)
        assert figure is not None
        titles = [axes.get_title() for axes in figure.axes]
        assert {"PRM exact", "PRM rare"} <= set(titles)
        (note,) = (text.get_text() for axes in figure.axes for text in axes.texts)
    assert note == "no bin has scored paths\nof 10 questions"


# Files


def test_a_run_with_trees_has_all_figures_and_one_without_fewer(tmp_path):
    searches = [finished(f"q{number}", [("1", 0.9), ("2", 0.2)], 1) for number in range(12)]
    for trees in (True, False):
        run = write_run(tmp_path / f"run-{trees}", searches, trees=trees)
        paths = write_figures(groups(run.rows), run.folder, "t", run=run)
        names = {path.name for path in paths}
        assert names == {"accuracy-tokens.png"} | ({"calibration.png"} if trees else set())
        assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths)


def test_figures_of_damaged_trees_are_left_out_with_a_warning(tmp_path):
    search = finished("q", [("1", 0.9), ("2", 0.2)], 1)
    run = write_run(tmp_path / "run", [search])
    trees = run.folder / "trees.jsonl.gz"
    trees.write_bytes(bytes(len(trees.read_bytes())))
    with pytest.warns(RunWarning, match=r"figures of search trees are left out.* is damaged at"):
        paths = write_figures(groups(run.rows), run.folder, "t", run=run)
    assert [path.name for path in paths] == ["accuracy-tokens.png"]


def test_files_are_the_same_each_time_and_their_text_is_text(tmp_path):
    found = [group(name, (1, 0), flops=0.0) for name in STRATEGIES[1:3]]
    first = write_figures(found, tmp_path, "A title", ("png", "svg", "pdf"))
    content = {path.name: path.read_bytes() for path in first}
    assert len(content) == 3
    second = write_figures(found, tmp_path, "A title", ("png", "svg", "pdf"))
    assert {path.name: path.read_bytes() for path in second} == content
    for name, data in content.items():
        assert not any(word in data for word in (b"CreationDate", b"dc:date")), name
    svg = content["accuracy-tokens.svg"].decode()
    for text in ("A title", "best-of-N", "PRM exact", "tokens per question"):
        assert re.search(rf"<text[^>]*>{text}", svg), text
    assert b"/Type3" not in content["accuracy-tokens.pdf"]  # glyphs as drawings


def test_an_unknown_format_is_refused_before_anything_is_drawn(tmp_path):
    with pytest.raises(BadInputError, match="figure format 'pgn': known are png, svg, pdf"):
        write_figures(grid(STRATEGIES[:2]), tmp_path, "t", ("png", "pgn"))
    assert list(tmp_path.iterdir()) == []
    assert write_figures([], tmp_path, "t") == []


HOSTILE = ("$\\frac{", "<script>alert(1)</script>", "a\x1b[31mred", "x" * 5000, "../../up", "数学")


def test_hostile_names_are_only_text(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    found = [
        group(name, (1, 0), prm=f"_{HOSTILE[number // 3]}", levels=(1, name[:9]))
        for number, name in enumerate(HOSTILE)
    ]
    found = [Group(g.strategy, g.num_candidates, g.prm, g.rows, "../../set") for g in found]
    paths = write_figures(found, folder, "\x00$" + "y" * 5000, ("svg",))
    assert paths
    assert all(path.parent == folder for path in paths)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    svg = (folder / "accuracy-tokens-.._.._set.svg").read_text()
    assert not any(text in svg for text in ("<script", "\x1b", "x" * 41))
    assert "$\\frac{" in svg


def test_names_of_files():
    assert file_name("accuracy-n", "") == "accuracy-n"
    assert file_name("accuracy-n", "a/b\n..") == "accuracy-n-a_b_.."
    assert len(file_name("x", "y" * 1000)) == 62
    assert len(file_name("数" * 100, "é" * 100).encode()) == 121


def test_labels_whose_files_would_have_one_name_get_two(tmp_path, monkeypatch):
    monkeypatch.setattr("cats_jax.reporting.figures.save_figure", lambda figure, path: path)
    for name in ("plot_against_cost", "plot_against_num_candidates", "plot_levels"):
        monkeypatch.setattr(f"cats_jax.reporting.figures.{name}", lambda *arguments: None)
    drawn = {"actions-n-price 1": object(), "actions-n-price_1": object()}
    monkeypatch.setattr("cats_jax.reporting.figures.plot_actions", lambda *arguments: drawn)
    paths = write_figures(grid(STRATEGIES[:1]), tmp_path, "t", ("png", "svg"))
    stems = ["actions-n-price_1", "actions-n-price_1-2"]
    assert [path.name for path in paths] == [
        f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")
    ]
