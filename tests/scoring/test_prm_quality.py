"""The figures of `quality` against plain Python that imports nothing from the packages."""

import collections
import itertools
import json
import math
import pathlib
import random
import re

import pytest

from cats_jax.errors import BadInputError
from cats_jax.scoring.labelled import read_labelled
from cats_jax.scoring.quality import BASE_RATE, HALF, NUM_CANDIDATES, quality
from cats_jax.scoring.quality_report import tables

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def figures(tmp_path, rows, *, num_resamples=2, **settings):
    labelled = read_labelled([write(tmp_path / "rows.jsonl", rows)])
    (group,) = quality(labelled, num_resamples=num_resamples, **settings)
    return group, {prm.prm: prm for prm in group.prms}


def made_up_rows(seed, questions=12, lowest=0.0):
    """Several solutions a question, which begin alike; some labels are missing.

    Scores are from `lowest` to 1 - `lowest`.
    """
    rng = random.Random(seed)
    rows = []
    for number in range(questions):
        truth = {}
        for _ in range(rng.randint(1, 4)):
            steps = [rng.choice("abc") for _ in range(rng.randint(1, 4))]
            ends = [tuple(steps[: i + 1]) for i in range(len(steps))]
            labels = [truth.setdefault(end, rng.random() < 0.6) for end in ends]
            labels = [None if rng.random() < 0.2 else int(label) for label in labels]
            scores = [round(rng.random(), 1) for _ in steps]
            scores = [min(max(score, lowest), 1 - lowest) for score in scores]
            cut = rng.randint(0, len(steps))
            rows.append(
                {"question": f"q{number}", "steps": steps, "labels": labels[:cut], "scores": scores}
            )
    return rows


class Oracle:
    """The same figures, slowly."""

    def __init__(self, rows):
        self.steps = []  # question, row, earlier steps, text, label, score
        for index, row in enumerate(rows):
            for i, label in enumerate(row["labels"]):
                if label is not None:
                    before = tuple(row["steps"][:i])
                    self.steps.append(
                        (row["question"], index, before, row["steps"][i], label, row["scores"][i])
                    )

    def losses(self):
        found = []
        for *_, label, score in self.steps:
            right = score if label else 1 - score
            found.append(-math.log(right) if right else math.inf)
        return found

    def by(self, column, values):
        groups = collections.defaultdict(list)
        for step, value in zip(self.steps, values, strict=True):
            groups[step[column]].append(value)
        return list(groups.values())

    def deviations(self):
        return [abs(score - label) for *_, label, score in self.steps]

    def wins(self, pairs):
        pairs = list(pairs)
        return sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs)

    def auc(self):
        right = [score for *_, label, score in self.steps if label]
        wrong = [score for *_, label, score in self.steps if not label]
        return self.wins(itertools.product(right, wrong))

    def pairs(self):
        seen = {}
        for question, _, before, text, label, score in self.steps:
            seen.setdefault((question, before, text), []).append((label, score))
        nodes = {key: each[0] for key, each in seen.items() if len({y for y, _ in each}) == 1}
        return [
            (first[1], second[1])
            for key, first in nodes.items()
            for other, second in nodes.items()
            if key[:2] == other[:2] and first[0] and not second[0]
        ]

    def calibration_error(self, bins=10):
        total = 0.0
        for index in range(bins):
            inside = [
                score - label
                for *_, label, score in self.steps
                if min(math.floor(score * bins), bins - 1) == index
            ]
            total += abs(sum(inside))
        return total / len(self.steps)


def mean(values):
    return sum(values) / len(values)


@pytest.mark.parametrize("seed", range(6))
def test_figures_are_those_of_plain_python(tmp_path, seed):
    rows = made_up_rows(seed, lowest=0.05)  # scores of 0 and 1 get a test of their own
    oracle = Oracle(rows)
    group, prms = figures(tmp_path, rows)
    found = prms["scores"]
    losses, deviations = oracle.losses(), oracle.deviations()
    assert group.steps == len(oracle.steps)
    assert group.questions == len({step[0] for step in oracle.steps})
    assert group.solutions == len({step[1] for step in oracle.steps})
    assert group.share_right == pytest.approx(mean([step[4] for step in oracle.steps]))
    assert group.pairs == len(oracle.pairs())
    assert found.cross_entropy.value == pytest.approx(mean(losses))
    per_question = [mean(each) for each in oracle.by(0, losses)]
    assert found.cross_entropy_question.value == pytest.approx(mean(per_question))
    per_solution = [sum(each) for each in oracle.by(1, losses)]
    assert found.cross_entropy_solution.value == pytest.approx(mean(per_solution))
    assert found.brier.value == pytest.approx(mean([d * d for d in deviations]))
    assert found.calibration_error.value == pytest.approx(oracle.calibration_error())
    assert found.auc is not None
    assert found.pair is not None
    assert found.auc.value == pytest.approx(oracle.auc())
    assert found.pair.value == pytest.approx(oracle.wins(oracle.pairs()))
    risk = mean([mean(each) for each in oracle.by(0, deviations)])
    assert found.risk.value == pytest.approx(risk)
    for column, value in ((0, found.epsilon.value), (1, found.epsilon_solution)):
        largest = sorted(max(each) for each in oracle.by(column, deviations))
        # The smallest epsilon that holds on nine in ten.
        assert value == next(
            e for e in largest if sum(x <= e for x in largest) >= 0.9 * len(largest) - 1e-9
        )
    beyond = mean([max(each) > 0.5 for each in oracle.by(0, deviations)])
    assert found.beyond_half.value == pytest.approx(beyond)
    assert sum(row.num for row in found.curve) == group.steps


@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_the_formulas_at_these_values(tmp_path, seed):
    rows = made_up_rows(seed, questions=30)
    oracle = Oracle(rows)
    group, prms = figures(tmp_path, rows)
    found = prms["scores"]
    eps = found.epsilon.value
    c = math.exp(-1 / (8 * eps**2))
    assert found.misranking == pytest.approx(c)
    # The largest p with kl(risk || p) <= ln(20) / questions.
    risk, p = found.risk.value, found.risk_bound
    kl = risk * math.log(risk / p) + (1 - risk) * math.log((1 - risk) / (1 - p))
    assert kl == pytest.approx(math.log(20) / group.questions)
    largest = [max(each) for each in oracle.by(0, oracle.deviations())]
    for bound in found.bounds:
        n = bound.num_candidates
        assert bound.accuracy == pytest.approx(0.9 - (n - 1) * c)
        assert bound.deviation == pytest.approx(n * p / eps)
        best = max(
            mean([x <= e for x in largest]) - (n - 1) * math.exp(-1 / (8 * e**2)) for e in largest
        )
        assert bound.best_accuracy == pytest.approx(best)
    assert [bound.num_candidates for bound in found.bounds] == list(NUM_CANDIDATES)
    n = found.informative_up_to
    assert 0.9 - (n - 1) * c > 0 >= 0.9 - n * c


def test_exact_scores_have_informative_bounds(tmp_path):
    rows = [{"question": str(i), "steps": ["a"], "labels": [i % 2]} for i in range(400)]
    for row in rows:
        row["scores"] = [0.99 * label + 0.005 for label in row["labels"]]
    _, prms = figures(tmp_path, rows)
    assert prms["scores"].informative_up_to == math.inf
    assert [bound.accuracy for bound in prms["scores"].bounds] == pytest.approx([0.9] * 5)


def test_intervals_are_by_question(tmp_path):
    rows = made_up_rows(1, questions=40, lowest=0.05)
    # A step that is not labelled tells the copies apart: their questions stay.
    copies = [
        {**row, "steps": [str(i), *row["steps"]], "labels": [None, *row["labels"]]}
        | {"scores": [0.5, *row["scores"]]}
        for i in range(5)
        for row in rows
    ]
    _, once = figures(tmp_path, rows, num_resamples=50)
    _, often = figures(tmp_path, copies, num_resamples=50)
    for name in ("cross_entropy", "cross_entropy_question", "auc", "brier", "risk", "epsilon"):
        assert getattr(often["scores"], name) == pytest.approx(getattr(once["scores"], name))


def test_the_interval_of_a_mean_is_that_of_the_bootstrap(tmp_path):
    # One step a question: the mean of 400 losses, of which the normal law tells the interval.
    rng = random.Random(0)
    rows = [
        {"question": str(i), "steps": ["a"], "labels": [1], "scores": [rng.uniform(0.2, 0.9)]}
        for i in range(400)
    ]
    _, prms = figures(tmp_path, rows, num_resamples=500)
    losses = Oracle(rows).losses()
    deviation = math.sqrt(mean([(x - mean(losses)) ** 2 for x in losses]) / len(losses))
    value, low, high = prms["scores"].cross_entropy
    assert (low, high) == pytest.approx(
        (value - 1.96 * deviation, value + 1.96 * deviation), abs=0.3 * deviation
    )


def test_constants_are_beside_the_prms(tmp_path):
    rows = made_up_rows(2)
    group, prms = figures(tmp_path, rows, clip=1e-3)
    p = group.share_right
    assert [prm.prm for prm in group.prms] == ["scores", HALF, BASE_RATE]
    assert prms[HALF].cross_entropy.value == pytest.approx(math.log(2))
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert prms[BASE_RATE].cross_entropy.value == pytest.approx(entropy)
    for constant in (prms[HALF], prms[BASE_RATE]):
        assert constant.auc == constant.pair == (0.5, 0.5, 0.5)
    assert prms[HALF].epsilon.value == prms[HALF].risk.value == 0.5


def test_a_certain_and_wrong_score_is_infinite_unless_clipped(tmp_path):
    rows = [
        {"question": "a", "steps": ["1", "2"], "labels": [1, 1], "scores": [0.9, 0.0]},
        {"question": "b", "steps": ["1", "2"], "labels": [0, 1], "scores": [0.2, 1]},
    ]
    _, prms = figures(tmp_path, rows, num_resamples=100)
    found = prms["scores"]
    assert found.certain_and_wrong == 1
    assert found.cross_entropy.value == found.cross_entropy.high == math.inf
    assert found.cross_entropy_question.value == math.inf
    assert found.cross_entropy.low == pytest.approx(-math.log(0.8) / 2)  # "b" drawn twice
    assert found.epsilon.value == 1.0
    _, prms = figures(tmp_path, rows, clip=1e-3, num_resamples=100)
    loss = -(math.log(0.9) + math.log(0.8) + math.log(1e-3) + math.log(1 - 1e-3)) / 4
    assert prms["scores"].cross_entropy.value == pytest.approx(loss)
    assert prms["scores"].certain_and_wrong == 1
    assert prms["scores"].brier == found.brier


@pytest.mark.parametrize("label", [0, 1])
def test_labels_that_are_all_the_same_have_no_auc_and_no_pairs(tmp_path, label):
    rows = [{"question": "a", "steps": [text], "labels": [label], "scores": [0.3]} for text in "12"]
    group, prms = figures(tmp_path, rows)
    assert group.pairs == 0
    assert all(prm.auc is None and prm.pair is None for prm in group.prms)
    assert prms["scores"].cross_entropy.value == pytest.approx(-math.log(0.3 if label else 0.7))


def test_a_step_that_occurs_again_is_no_sibling_of_itself(tmp_path):
    def row(step, label, score):
        return {"question": "q", "steps": [step], "labels": [label], "scores": [score]}

    # "x" is labelled both ways, "a" twice the same way, "b" is alone.
    rows = [row("x", 1, 0.9), row("x", 0, 0.9), row("a", 1, 0.8), row("a", 1, 0.8)]
    group, prms = figures(tmp_path, rows)
    assert group.pairs == 0
    assert prms["scores"].pair is None
    group, prms = figures(tmp_path, [*rows, row("b", 0, 0.1)])
    assert (group.pairs, group.steps) == (1, 5)
    assert prms["scores"].pair == (1.0, 1.0, 1.0)


def test_steps_after_other_steps_are_no_siblings(tmp_path):
    rows = [
        {"question": "q", "steps": ["a", "c"], "labels": [None, 1], "scores": [0.5, 0.9]},
        {"question": "q", "steps": ["b", "d"], "labels": [None, 0], "scores": [0.5, 0.1]},
        {"question": "p", "steps": ["a", "d"], "labels": [None, 0], "scores": [0.5, 0.1]},
    ]
    assert figures(tmp_path, rows)[0].pairs == 0


def test_groups_have_their_own_figures(tmp_path):
    rows = made_up_rows(3)
    for index, row in enumerate(rows):
        row["set"] = "ab"[index % 2]
    file = write(tmp_path / "rows.jsonl", rows)
    both = quality(read_labelled([file], by="set"), num_resamples=2, clip=1e-3)
    assert sorted(group.group for group in both) == ["a", "b"]
    for group in both:
        part = [row for row in rows if row["set"] == group.group]
        (alone,) = quality(
            read_labelled([write(tmp_path / "part.jsonl", part)]), num_resamples=2, clip=1e-3
        )
        assert group.prms == alone.prms


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantile": 0.0}, "quantile=0.0: must be in"),
        ({"quantile": math.nan}, "quantile=nan: must be in"),
        ({"clip": 0.5}, "clip=0.5: must be in"),
        ({"clip": -1e-9}, "clip=-1e-09: must be in"),
    ],
)
def test_settings_outside_their_range_are_refused(tmp_path, settings, message):
    labelled = read_labelled([write(tmp_path / "rows.jsonl", made_up_rows(0))])
    with pytest.raises(BadInputError, match=message):
        quality(labelled, **settings)


def test_a_heading_has_the_quantile_unrounded(tmp_path):
    group, _ = figures(tmp_path, made_up_rows(0), quantile=0.995)
    headings = [column.header for column in tables(group)[2].columns]
    assert headings[3:5] == ["epsilon, 99.5% of questions", "99.5% of solutions"]


def test_without_scores_there_are_no_figures(tmp_path):
    rows = [{"question": "q", "steps": ["a"], "labels": [1]}]
    with pytest.raises(BadInputError, match="score them with a PRM first"):
        quality(read_labelled([write(tmp_path / "rows.jsonl", rows)]))


# Figures of the published scores that were found before this code, by other means.
AUC = {"mr-gsm8k": 0.911, "mr-math": 0.772}
EPSILON = {"mr-gsm8k": 0.82, "mr-math": 0.78}


@pytest.fixture(scope="module")
def published(shared):
    labelled = read_labelled([shared("real/prm_steps/steps.jsonl")], by="data")
    assert (labelled.num_rows, len(labelled.prms)) == (749, 6)
    return quality(labelled, num_resamples=2)


def test_published_prms(published):
    assert [group.solutions for group in published] == [590, 159]
    for group in published:
        shepherd = group.prms[0]
        assert shepherd.prm == "math-shepherd_mistral-7b"
        assert shepherd.auc is not None
        assert round(shepherd.auc.value, 3) == AUC[group.group]
        assert round(shepherd.epsilon_solution, 2) == EPSILON[group.group]


def test_the_documented_figures_are_those_of_the_published_prms(published):
    recorded = json.loads((DOCS / "figures" / "prm_quality.json").read_text())["groups"]
    page = (DOCS / "results" / "prm_quality.md").read_text()
    for group, record in zip(published, recorded, strict=True):
        assert (group.group, group.steps) == (record["group"], record["steps"])
        for prm, row in zip(group.prms, record["prms"], strict=True):
            assert prm.prm == row["prm"]
            for name in ("cross_entropy", "cross_entropy_solution", "brier", "auc", "epsilon"):
                assert getattr(prm, name).value == pytest.approx(row[name]["value"], rel=1e-5)
            first = cells(row, "cross_entropy", "cross_entropy_solution", "auc", "epsilon")
            second = cells(row, "brier", "calibration_error", "risk", "beyond_half")
            bound = f"{row['bounds'][0]['accuracy']:.3f}"
            for line in ([prm.prm, *first, bound], [prm.prm, *second]):
                text = " | ".join([group.group, *line])
                assert re.sub(r"\b0\.", ".", f"| {text} |") in page


def cells(row, *names):
    """Values with their intervals, as the page has them."""
    values = [row[name] for name in names]
    return [f"{each['value']:.3f} ({each['low']:.3f}-{each['high']:.3f})" for each in values]


def test_what_the_page_says_of_the_published_prms(published):
    for group in published:
        for prm in group.prms[:6]:
            assert prm.cross_entropy.value < 0.48 < math.log(2)
            assert 1.0 < prm.cross_entropy_solution.value < 2.0
            assert 0.81 < prm.epsilon.value < 0.94
            assert prm.informative_up_to == 2
            assert 0.03 < prm.bounds[0].accuracy < 0.08
            assert 0.43 < prm.beyond_half.value < 0.88
            best = {bound.num_candidates: bound.best_accuracy for bound in prm.bounds}
            assert best[4] < 0.171
            assert best[64] < 0.151
            assert all(bound.deviation >= 1 for bound in prm.bounds[1:])
    # The largest epsilon at which eq. 6 says anything at N, for delta = .1.
    for n, largest in ((3, 0.396), (4, 0.322), (64, 0.172), (256, 0.149)):
        assert 1 / math.sqrt(8 * math.log((n - 1) / 0.9)) == pytest.approx(largest, abs=5e-4)
