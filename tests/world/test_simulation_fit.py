"""Fitting the simulator to samples: labels, estimators, the file, the shipped parameters."""

import dataclasses
import functools
import json
import random

import jax
import numpy as np
import pytest

import search
from cats_jax import world
from cats_jax.protocols import Generation, Scoring, Step, StepSample, TokenUsage
from cats_jax.world import simulator, task, tokenizer
from search import simulation
from studies.world.models import fit_simulator
from studies.world.models import simulator_estimators as estimators
from studies.world.models import simulator_samples as samples


def make_children(count, **columns):
    """`Children` with the given columns; the others hold what does no harm."""
    blank = {field.name: np.zeros(count, int) for field in dataclasses.fields(samples.Children)}
    flags = {name: np.ones(count, bool) for name in ("after_right", "valid", "consistent")}
    blank |= flags | {
        "done": np.zeros(count, bool),
        "score": np.full((count, 1), 0.5),
        "text": np.arange(count),
        "parent_row": np.full(count, -1),
    }
    return samples.Children(**{**blank, **columns})


# Samples


class _Policy:
    """Writes a right step most of the time, else a slip of the last digit."""

    name, num_parameters = "scripted", 0

    def __init__(self):
        self.kept = {}

    def check_question(self, question):
        pass

    def keep_only(self, question, paths):
        self.kept[question.id] = len(paths)

    def generate(self, requests):
        drawn = [[self._sample(request, seed) for seed in request.seeds] for request in requests]
        return Generation(drawn, [TokenUsage()] * len(requests), 0.0)

    def _sample(self, request, seed):
        rng = random.Random(seed)
        checker = task.StepChecker(request.question.text)
        for step in request.path:
            checker.accept(step.text)
        right = checker.right_steps()
        if right and (request.temperature == 0 or rng.random() < 0.7):
            text = right[0]
        elif rng.random() < 0.1:
            text = " "
        else:
            text = f"1+1={rng.randint(3, 5)}" if rng.random() < 0.8 else "\\boxed{7}"
        finish = "end" if text.startswith(tokenizer.BOX_OPEN) else "step"
        return StepSample(Step(text, tuple(map(ord, text))), finish, -1.0)


class _Prm:
    """Knows right from wrong; the score also tells the depth."""

    name, num_parameters = "knows", 0
    sparsity_total = sparsity_last_layer = 0.0

    def keep_only(self, question, paths):
        pass

    def score(self, questions, paths):
        scores = []
        for question, path in zip(questions, paths, strict=True):
            right = task.check_steps(question.text, [step.text for step in path])[-1]
            scores.append((0.9 if right else 0.1) + 0.001 * len(path))
        return Scoring(scores, [TokenUsage()] * len(scores), 0.0)


@pytest.fixture(scope="module")
def children():
    return samples.sample_children(task.problems("controller", 20), _Policy(), {"knows": _Prm()})


def test_labels_are_the_exact_checkers(children):
    assert children.valid.any()
    assert not children.valid.all()
    scored = children.score[children.valid, 0]
    # The PRM above says what `task.check_steps` says, and how long the path is.
    assert np.array_equal(scored > 0.5, children.right[children.valid])
    depths = np.round((scored - np.where(scored > 0.5, 0.9, 0.1)) * 1000)
    assert np.array_equal(depths, children.depth[children.valid] + 1)
    assert np.all(np.isnan(children.score[~children.valid]))


def test_a_row_knows_its_parent(children):
    first = children.parent_row < 0
    assert np.array_equal(first, children.depth == 0)
    parents = children.parent_row[~first]
    assert np.array_equal(children.depth[parents] + 1, children.depth[~first])
    assert np.array_equal(children.question[parents], children.question[~first])
    assert np.array_equal(children.right[parents], children.after_right[~first])
    assert not children.done[parents].any()
    assert np.all(children.setting[parents] == 0)


def test_every_setting_is_sampled_and_greedy_once(children):
    counts = np.bincount(children.setting, minlength=len(samples.SETTINGS))
    assert np.all(counts > 0)
    greedy = children.setting == 1
    assert np.unique(children.node[greedy]).size == greedy.sum()


def test_right_answers_have_class_zero(children):
    ended = children.valid & children.done & children.right
    assert ended.any()
    assert np.all(children.answer[ended] == 0)
    assert np.all(children.slips[children.right] == 0)
    assert np.all(children.slips[children.valid & ~children.right] > 0)
    assert np.all(children.answer[children.valid & ~children.done] == -1)


def test_nothing_stays_cached():
    policy = _Policy()
    samples.sample_children(task.problems("controller", 3), policy, {})
    assert set(policy.kept.values()) == {0}


# Estimators


def test_the_power_law_of_mistakes_is_recovered():
    """Eight mistakes at each of many nodes, drawn with known exponents."""
    rng = np.random.default_rng(2)
    margin = rng.normal(-1.0, 1.5, 1500)
    exponents = np.exp(0.8 + 0.25 * margin + 0.4 * rng.normal(size=margin.size))
    texts = []
    for node, exponent in enumerate(exponents):
        powers = np.arange(1, simulation.NUM_WRONG_TEXTS + 2) ** (1.0 - exponent)
        shares = np.diff(powers) / (powers[-1] - powers[0])
        classes = rng.choice(simulation.NUM_WRONG_TEXTS, 8, p=shares)
        texts += (1000 * node + classes).tolist()
    node = np.repeat(np.arange(margin.size), 8)
    children = make_children(
        node.size, node=node, text=np.array(texts), consistent=np.zeros(node.size, bool)
    )
    found = estimators.fit_texts(children, margin[node])
    assert np.log(found.exponent[0]) == pytest.approx(0.8, abs=0.15)
    assert found.slope == pytest.approx(0.25, abs=0.08)
    assert found.scale == pytest.approx(0.4, abs=0.2)


def test_margins_are_recovered():
    """Binomial counts from known margins, scales and slopes, at every setting."""
    rng = np.random.default_rng(0)
    level = np.repeat(np.arange(5), 80)
    margin = np.array([2.0, 1.0, 0.5, 0.0, -0.5])
    question_scale, node_scale = 1.0, 1.5
    settings = len(samples.SETTINGS)
    slope = np.array([1.0, np.inf, 1.6, 1.4, 1.2, 0.8, 0.7, 1.1])
    shift = np.array([0.0, 0.0, 0.4, 0.2, 0.3, 0.1, -0.4, 0.5])
    rows = {name: [] for name in ("question", "level", "depth", "node", "setting", "consistent")}
    for question in range(level.size):
        of_question = question_scale * rng.normal()
        for depth in range(4):
            value = margin[level[question]] + of_question + node_scale * rng.normal()
            for setting in range(settings):
                if setting == 1:
                    chance = np.array([float(value > 0)])
                else:
                    log_odds = slope[setting] * value + shift[setting]
                    chance = np.full(8 if setting == 0 else 4, 1 / (1 + np.exp(-log_odds)))
                rows["consistent"] += (rng.random(chance.size) < chance).tolist()
                for name, number in (
                    ("question", question),
                    ("level", level[question]),
                    ("depth", depth),
                    ("node", 4 * question + depth),
                    ("setting", setting),
                ):
                    rows[name] += [number] * chance.size
    columns = {name: np.array(column) for name, column in rows.items()}
    found = estimators.fit_margins(make_children(columns["node"].size, **columns), points=(9, 9))
    np.testing.assert_allclose(found.margin[:, :4].mean(1), margin, atol=0.4)
    np.testing.assert_allclose(found.question_scale, question_scale, atol=0.5)
    np.testing.assert_allclose(found.node_scale, node_scale, atol=0.5)
    others = np.arange(settings) != 1
    np.testing.assert_allclose(found.slope[others], slope[others], atol=0.25)
    np.testing.assert_allclose(found.shift[others], shift[others], atol=0.25)
    assert abs(found.shift[1]) < 0.4
    # The posterior mean of a node's ease follows how often it was right.
    first = columns["setting"] == 0
    shares = np.bincount(columns["node"][first], columns["consistent"][first]) / 8
    ease = np.zeros(shares.size)
    ease[columns["node"]] = found.ease
    at_level = np.repeat(level, 4) == 2
    assert np.corrcoef(shares[at_level], ease[at_level])[0, 1] > 0.85


def test_score_tables_are_recovered():
    """y with known offsets and loadings for two siblings a node, one of them wrong."""
    rng = np.random.default_rng(1)
    nodes = 4000
    parent = rng.normal(size=nodes)
    ease, factor = rng.normal(size=nodes), rng.normal(size=nodes)
    a, g, b = 0.5, 0.4, 0.6
    rows, logit = [], []
    for node in range(nodes):
        logit.append(parent[node])
        rows.append((2 * node, 0, True, -1, 0.0))
    for node in range(nodes):
        for right in (True, False, False):
            own = b * factor[node] + np.sqrt(1 - b**2) * rng.normal()
            logit.append((1.0 if right else -1.0) + a * parent[node] + g * ease[node] + own)
            rows.append((2 * node + 1, 1, right, node, ease[node]))
    node, depth, right, parent_row, row_ease = map(np.array, zip(*rows, strict=True))
    score = 1 / (1 + np.exp(-np.array(logit)))
    columns = {"node": node, "depth": depth, "consistent": right, "parent_row": parent_row}
    children = make_children(node.size, score=score[:, None], **columns)
    found = estimators.fit_scores(children, 0, row_ease)
    # y is the logit up to an increasing function, here close to a factor of its spread.
    scale = np.std(logit)
    for kind, offset in ((0, 1.0), (2, -1.0)):
        assert found["loading"][kind, 0] == pytest.approx(a, abs=0.1)
        assert found["loading"][kind, 2] * scale == pytest.approx(g, abs=0.1)
        assert found["loading"][kind, 1] == pytest.approx(b, abs=0.1)
        assert found["offset"][kind, 0] * scale == pytest.approx(offset, abs=0.3)
        residual_sd = (found["residual"][kind, 18] - found["residual"][kind, 10]) / 2
        assert residual_sd * scale == pytest.approx(1.0, abs=0.15)
    # Kinds without samples borrow: all ends are missing here.
    np.testing.assert_array_equal(found["offset"][3], found["offset"][2])


def test_answers_of_wrong_paths():
    """Level 1: of four sets of mistakes two agree; one path in five has no answer, one is lucky."""
    columns = {
        "question": np.zeros(10, int),
        "consistent": np.zeros(10, bool),
        "done": np.ones(10, bool),
        "answer": np.array([0, -1, -1, 1, 1, 1, 2, 3, 1, 1]),
        # Rows 3, 8 and 9 made the same mistakes: they count once.
        "slips": np.array([1, 2, 3, 4, 5, 5, 6, 7, 4, 4]),
    }
    lucky, popular, no_answer = estimators.fit_answers(make_children(10, **columns))
    assert no_answer[0] == pytest.approx(0.2)
    assert lucky[0] == pytest.approx(1 / 8)
    shares = estimators._power_law_shares(
        simulation.POPULAR_EXPONENT, simulation.NUM_POPULAR_ANSWERS
    )
    agree = 2 / 12  # ordered pairs of sets 4, 5, 6, 7
    expected = np.sqrt(agree / np.sum(shares**2)) * (1 - 1 / 8)
    assert popular[0] == pytest.approx(expected, rel=1e-3)
    assert np.all(lucky[1:] == 0)


def test_ends_without_samples_follow_the_task():
    ends = estimators.fit_ends(make_children(3))
    for level in range(5):
        steps = len(task.problems("controller", 1, levels=[level + 1])[0].steps)
        expected = np.arange(samples.MAX_DEPTH) >= steps - 1
        np.testing.assert_array_equal(ends[level, 1], expected)


def test_shares_of_invalid_samples_by_setting_and_parent():
    columns = {
        "setting": np.array([0, 0, 0, 0, 7, 7]),
        "after_right": np.array([True, True, True, False, True, True]),
        "valid": np.array([True, True, False, False, True, False]),
    }
    invalid = estimators.fit_invalid(make_children(6, **columns))
    assert invalid[1, 0] == pytest.approx(1 / 3)
    assert invalid[0, 0] == 1.0
    assert invalid[1, 7] == 0.5


# The file


def test_the_file_survives_a_round_trip(tmp_path):
    params = simulation.toy_params()
    path = tmp_path / "simulator.json"
    fit_simulator.save_simulator(path, params, {"prms": ["x", "y"], "levels": [1, 2]}, {"seed": 3})
    again = simulator.load_simulator(path)
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert simulator.simulator_names(path) == {"prms": ["x", "y"], "levels": [1, 2]}


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="fit_simulator"):
        simulator.load_simulator(tmp_path / "none.json")
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"format": 9}))
    with pytest.raises(ValueError, match="not a file of simulator parameters"):
        simulator.load_simulator(other)


# The shipped parameters


def test_shipped_parameters_are_of_this_world():
    assert simulator.simulator_names() == {
        "prms": list(world.PRM_FAMILY),
        "levels": list(task.LEVELS),
    }
    params = simulator.load_simulator()
    assert all(bool(np.all(np.isfinite(leaf))) for leaf in jax.tree.leaves(params))
    assert params.max_depth == samples.MAX_DEPTH


def test_shipped_parameters_keep_the_contract(key):
    question, expand = jax.jit(simulation.question), jax.jit(simulation.simulator(16))
    for level in (0, 4):
        asked = question(simulator.load_simulator(), key, level, 0)
        search.check_expand_fn(
            expand, asked.params, asked.root, capacity=16, max_depth=samples.MAX_DEPTH
        )


def test_in_the_simulator_better_prms_choose_better():
    params = simulator.load_simulator()
    accuracy = [
        fit_simulator.simulate(params, prm, search.best_of_n(), 16, 1024).mean()
        for prm in (0, len(world.PRM_FAMILY) - 1)
    ]
    assert accuracy[0] > accuracy[1] + 0.1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_script_on_few_questions(tmp_path, monkeypatch):
    few = functools.partial(fit_simulator.simulate, num_questions=16)
    monkeypatch.setattr(fit_simulator, "simulate", few)
    monkeypatch.setattr(fit_simulator, "_SIMULATED_AT_ONCE", 16)
    docs = tmp_path / "docs"
    (docs / "results").mkdir(parents=True)
    page = docs / "results" / "simulator.md"
    page.write_text(f"before\n{fit_simulator._BEGIN}\nold\n{fit_simulator._END}\nafter\n")
    output = tmp_path / "simulator.json"
    fit_simulator.main(
        [
            *("--questions", "10", "--compare-questions", "5", "--compare-prms", "exact"),
            *("--output", str(output), "--docs", str(docs)),
        ]
    )
    assert simulator.load_simulator(output).margin.shape == (5, samples.MAX_DEPTH)
    cells = json.loads((docs / "figures" / "simulator_vs_world.json").read_text())
    assert len(cells) == len(fit_simulator.COMPARED_N) * len(fit_simulator.STRATEGIES)
    assert (docs / "figures" / "simulator_vs_world.png").stat().st_size > 10_000
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| exact | beam | 64 |" in text
