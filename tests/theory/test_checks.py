"""The checks find what the analysis says, and something else when a claim is put wrong or right."""

import itertools
import math

import numpy as np
import pytest

import theory
from cats_jax import cli
from theory import checks, estimators
from theory.checks import best_of_n, gap_bound, report, simulated_search, trainings

HOLDS, FAILS, OPEN = report.Verdict.HOLDS, report.Verdict.FAILS, report.Verdict.OPEN
SLOW = (
    "gap_bound_all_posteriors",
    "union_free_bound",
    "misranking_exact_laws",
    "two_level_accuracy",
    "search_margin",
)


NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in checks.CHECKS
]


# The verdict


def judged(value, bound, *, proof="", side="at most", **options):
    return report.judge(
        claim="a claim",
        source="here",
        measured=options.pop("measured", report.exact(value)),
        **{side.replace(" ", "_"): bound},
        where=lambda i: f"case {i}",
        proof=proof,
        **options,
    )


def test_a_verdict_is_what_was_found():
    assert judged([0.1, 0.2], 0.2, proof="yes").verdict == HOLDS
    assert judged([0.1, 0.2], 0.2).verdict == OPEN
    assert judged([0.1, 0.2], 0.19, proof="yes").verdict == FAILS
    assert judged([0.1, 0.2], 0.1, side="at least", proof="yes").verdict == HOLDS
    assert judged([0.1, 0.2], 0.11, side="at least", proof="yes").verdict == FAILS


def test_the_worst_case_is_reported():
    found = judged([0.1, 0.5, 0.3], [0.2, 0.4, 0.2])
    assert found.slack == pytest.approx((-0.1, -0.1, -0.1))
    assert found.where == "case 1: 0.5, bound 0.4"
    assert judged([0.1, 0.3], [0.2, 0.35]).slack.value == pytest.approx(0.05)
    assert (found.num_cases, found.num_samples) == (3, 0)


def test_sampling_refutes_only_beyond_its_interval():
    measured = report.shares([60], 100)
    assert judged(0, 0.5, measured=measured, proof="yes").verdict == HOLDS
    assert judged(0, 0.4, measured=measured, proof="yes").verdict == FAILS
    found = judged(0, 0.4, measured=measured)
    assert found.slack.low < found.slack.value < found.slack.high < 0
    assert found.slack.value == pytest.approx(-0.2)
    assert found.num_samples == 100
    # The most clearly violated case is the worst, not the one with the widest interval.
    mixed = report.Measured(np.array([0.6, 0.55]), np.array([0.4, 0.54]), np.array([0.8, 0.56]))
    assert judged(0, 0.5, measured=mixed).where.startswith("case 1")


@pytest.mark.parametrize("successes", [0, 1, 50, 100])
def test_shares_are_clopper_pearson(successes):
    found = report.shares([successes], 100)
    expected = estimators.clopper_pearson(successes, 100, confidence=report.CONFIDENCE)
    assert (found.value[0], found.low[0], found.high[0]) == pytest.approx(expected)


def test_a_check_without_cases_or_with_nan_is_refused():
    with pytest.raises(ValueError, match="no case"):
        judged([], 0.5)
    with pytest.raises(ValueError, match="NaN"):
        judged([math.nan], 0.5)
    with pytest.raises(ValueError, match="NaN"):
        judged([0.5], math.nan)


# Every check


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_are_the_expected_ones(name):
    found = checks.CHECKS[name](seed=1)
    assert (found.name, found.seed) == (name, 1 if found.num_samples else None)
    assert found.as_expected, (found.verdict, found.where, found.slack)
    assert bool(found.remedy) == (found.verdict == FAILS)
    assert bool(found.proof) == (found.verdict == HOLDS)
    assert found.slack.low <= found.slack.value <= found.slack.high


def scaled(bound, factor):
    return lambda *args, **kwargs: factor * np.asarray(bound(*args, **kwargs))


def nothing(*args, **kwargs):
    """A bound that promises nothing of a probability, a gap or an accuracy."""
    return 1e9


def anything(*args, **kwargs):
    return -1e9


def constant(value):
    return lambda *args, **kwargs: value


def risk_scaled(bound, factor):
    """What the bound adds to the empirical risk, scaled."""
    return lambda risk, *args, **kwargs: (
        risk + factor * (np.asarray(bound(risk, *args, **kwargs)) - risk)
    )


def raised(bound, amount):
    return lambda *args, **kwargs: np.asarray(bound(*args, **kwargs)) + amount


def at_every_threshold(scores, right):
    """Each threshold tested at the level of all."""
    thresholds = np.arange(20) / 20
    found = theory.certify_selective(scores, right, thresholds, target=0.9, delta=0.1)
    return found.p_values <= 0.1


def fewer(*args, **kwargs):
    return np.maximum(np.floor(0.9 * theory.smallest_budget_margin(*args, **kwargs)), 1.0)


PAPER = theory.accuracy_lower_bound
# Name -> the same check with another claim in place of its own, and the verdict that must follow.
# A true claim is made too strong, a false one true (it then has no proof, so: not established).
PLANTED = {
    "gap_bound_one_hypothesis": ({"bound": scaled(theory.generalization_gap_bound, 0.4)}, FAILS),
    "gap_bound_all_posteriors": ({"bound": scaled(theory.generalization_gap_bound, 0.4)}, FAILS),
    "union_free_bound": ({"bound": scaled(theory.generalization_gap_bound, 0.4)}, FAILS),
    "printed_proof": ({"bound": nothing}, OPEN),
    "prior_after_data": ({"bound": constant(0.5)}, OPEN),
    "steps_as_samples": (
        {
            "bound": lambda kl, *, num_samples, delta: theory.generalization_gap_bound(
                kl, num_samples=num_samples / 66, delta=delta
            )
        },
        OPEN,
    ),
    "dirac_atom": ({"bound": scaled(theory.dirac_bound, 0.3)}, FAILS),
    "occam": ({"bound": risk_scaled(theory.occam_bound, 0.7)}, FAILS),
    "dirac_density": (
        {
            # What a memory of 2000 bits really costs.
            "bound": lambda risk, cost, **kw: theory.dirac_bound(risk, 2000 * math.log(2), **kw)
        },
        OPEN,
    ),
    "sparsity_unit_constant": (
        {
            "bound": lambda k, d, *, c, **kw: theory.sparsity_bound(
                k, d, c=theory.support_code_c(k, d, bits_per_value=64), **kw
            )
        },
        OPEN,
    ),
    "sparsity_code": ({"code_length": raised(theory.support_code_length, -0.01)}, FAILS),
    "sparsity_says_something": ({"bound": constant(0.5)}, OPEN),
    "tighter_bounds": ({"bound": risk_scaled(theory.maurer_pinsker_bound, 1.5)}, FAILS),
    "seeger": ({"bound": risk_scaled(theory.seeger_bound, 0.5)}, FAILS),
    "holdout": ({"bound": risk_scaled(theory.holdout_bound, 0.9)}, FAILS),
    "moment_constant": ({"limit": lambda n: n**0.2}, FAILS),
    "gap_as_epsilon": ({"epsilon": constant(1.0)}, OPEN),
    "deviation_probability": ({"bound": scaled(theory.deviation_probability, 0.9)}, FAILS),
    "small_risk": ({"share": 0.0}, OPEN),
    "absolute_loss": ({"loss": lambda score, label: (score - label) ** 2}, OPEN),
    "misranking_paper": ({"bound": theory.misranking_hoeffding}, FAILS),
    "misranking_dependent": ({"bound": theory.misranking_worst_case_dependent}, OPEN),
    "misranking_independent": ({"bound": lambda t, eps: np.exp(-(t**2) / 2)}, FAILS),
    "misranking_worst_case": ({"bound": scaled(theory.misranking_worst_case, 0.99)}, FAILS),
    "misranking_worst_case_attained": ({"bound": theory.misranking_hoeffding}, FAILS),
    "misranking_exact_laws": (
        {
            "values": {
                "uniform": lambda t, n: 1.1 * theory.misranking_uniform(t, 1.0, num_candidates=n)
            }
        },
        FAILS,
    ),
    "misranking_any_number": ({"bound": scaled(theory.misranking_any_number, 0.99)}, FAILS),
    "misranking_never_sharper": ({"paper": scaled(theory.misranking_paper, 0.5)}, FAILS),
    "misranking_beyond_support": ({"threshold": 1.5}, FAILS),
    "misranking_at_support": ({"threshold": 2.1}, OPEN),
    "misranking_without_mean_zero": ({"bound": constant(1.0)}, OPEN),
    "accuracy_mean_gap": ({"bound": lambda p, gap, eps, **kw: PAPER(p, 0.005, eps, **kw)}, OPEN),
    "accuracy_realised_gap": (
        {"bound": lambda p, gap, eps, **kw: PAPER(p, 0.005, eps, **kw)},
        OPEN,
    ),
    "accuracy_averaged": ({"bound": raised(theory.accuracy_lower_bound_averaged, 0.05)}, FAILS),
    "accuracy_threshold": ({"bound": raised(theory.accuracy_lower_bound_threshold, 0.05)}, FAILS),
    "mean_gap_limit": ({"limit": lambda n: np.full(n.shape, 1 / math.e)}, FAILS),
    "accuracy_sure_gap": ({"bound": lambda covered, *a, **kw: covered}, OPEN),
    "accuracy_needs_separation": ({"bound": theory.accuracy_lower_bound_margin}, FAILS),
    "delta_inside": (
        {
            "bound": lambda gaps, covered, eps, *, num_candidates, delta: (
                theory.accuracy_lower_bound_averaged(
                    gaps, covered, eps, num_candidates=num_candidates, delta=0.0
                )
                - delta
            )
        },
        OPEN,
    ),
    "delta_outside": ({"bound": PAPER}, FAILS),
    "success_event": ({"noise": 0.0}, OPEN),
    "margin_theorem": ({"bound": raised(theory.accuracy_lower_bound_margin, 0.001)}, FAILS),
    "margin_theorem_dependent": ({"bound": theory.accuracy_lower_bound_margin}, FAILS),
    "margin_needs_independence": ({"bound": theory.accuracy_lower_bound_margin_dependent}, OPEN),
    "two_level_accuracy": (
        {
            "values": {
                "rademacher": lambda p, t, n: theory.accuracy_two_level_uniform(
                    p, t, 1.0, num_candidates=n
                )
            }
        },
        FAILS,
    ),
    "more_candidates_help": ({"ratio": 2.5}, OPEN),
    "certificate_best": ({"factor": 0.5}, FAILS),
    "certificate_correct": ({"factor": 0.5}, FAILS),
    "betting_bound": ({"wealth": lambda x, m: theory.log_wealth(x, m) + 1.5}, FAILS),
    "certify_holm": (
        {
            "certified": lambda counts: (
                theory.certify(counts, 200, target=0.6, delta=0.1).p_values <= 0.1
            )
        },
        FAILS,
    ),
    "selective_answers": ({"certified": at_every_threshold}, FAILS),
    "search_margin": ({"bound": raised(theory.accuracy_lower_bound_margin_dependent, 0.05)}, FAILS),
    "search_coverage": ({"bound": lambda p, n: theory.coverage(0.8 * p, n)}, FAILS),
    "search_certificate": ({"factor": 0.01}, FAILS),
    "corollary_necessary": ({"required": lambda target, *a, **kw: target}, OPEN),
    "corollary_sufficient": ({"required": scaled(theory.required_coverage, 0.8)}, FAILS),
    "corollary_sign": ({"required": theory.required_coverage}, OPEN),
    "bound_grows": (
        {
            "bound": lambda p, t, eps, *, num_candidates, delta: theory.accuracy_lower_bound_margin(
                0.3, t, eps, num_candidates=num_candidates, delta=delta
            )
        },
        OPEN,
    ),
    "optimal_num_candidates": ({"optimum": scaled(theory.optimal_num_candidates, 2.0)}, FAILS),
    "some_budget_suffices": ({"bound": lambda p, *a, **kw: p}, OPEN),
    "error_costs_candidates": ({"budget": lambda target, p1, gap, eps, **kw: gap}, FAILS),
    "repaired_budget": ({"budget": fewer}, FAILS),
    "loss_as_printed": ({"sign": -1.0}, OPEN),
    "loss_negated": ({"sign": 1.0}, FAILS),
    "raw_cost": ({"scale": 1 / 64}, OPEN),
    "normalised_cost": ({"scale": 1.0}, FAILS),
    "reward_on_noise": ({"noise": 0.0}, OPEN),
    "longer_episodes": ({"weight": 0.0}, OPEN),
    "residual_gradient": ({"stop_gradient": True}, OPEN),
    "stopped_gradient": ({"stop_gradient": False}, FAILS),
    "terminal_mask": ({"mask": 0.0}, OPEN),
    "sparsity_total": ({"error": (1.0, 3.5, 3.5, 5.0, 4.0)}, OPEN),
    "sparsity_last_layer": ({"error": (1.0, 2.0, 5.0, 3.0, 4.0)}, FAILS),
    "sparsity_last_layer_distinct": ({"level": 0.1}, OPEN),
    "sparsity_nonzeros": ({"error": (3.0, 1.5, 1.5, 5.0, 2.0)}, OPEN),
}


def test_every_check_is_planted():
    assert set(PLANTED) == set(checks.CHECKS)
    for name, (options, _) in PLANTED.items():
        assert options, name


@pytest.mark.parametrize("name", NAMES)
def test_another_claim_has_another_verdict(name):
    options, verdict = PLANTED[name]
    found = checks.CHECKS[name](seed=1, **options)
    assert found.verdict == verdict, (found.where, found.slack)
    assert not found.as_expected


# Figures of the analysis, found again


def test_figures_of_the_counterexamples():
    for name, slack, error in (
        ("gap_bound_one_hypothesis", 1 - 0.169, 5e-4),
        ("printed_proof", 0.7906 - 395.3, 0.05),
        ("accuracy_mean_gap", 0.675 - 0.7425, 1e-9),
        ("delta_inside", 0.41 - 0.4509, 1e-9),
        ("small_risk", 0.00075 - 0.891, 5e-4),
        ("more_candidates_help", -0.1635, 5e-5),
        ("residual_gradient", -0.25, 1e-5),
        ("sparsity_says_something", 1 - 337.17, 5e-3),
    ):
        found = checks.CHECKS[name](seed=0)
        assert found.slack.value == pytest.approx(slack, abs=error), name


# The parts against slow references


@pytest.mark.parametrize("n", [2, 7, 30])
def test_worst_violations_are_the_worst_over_all_risks(n):
    def bound(risk, size):
        return risk + 0.8 / np.sqrt(size)

    worst = 0.0
    for mu in np.linspace(0, 1, 4001):
        violated = [k for k in range(n + 1) if mu > k / n + 0.8 / math.sqrt(n) - 1e-12]
        worst = max(worst, sum(math.comb(n, k) * mu**k * (1 - mu) ** (n - k) for k in violated))
    found = trainings.worst_violations(bound, [n])[0]
    # A grid of risks comes close to the supremum from below.
    assert worst <= found + 1e-9
    assert found == pytest.approx(worst, abs=5e-3)


def test_suprema_over_posteriors_find_the_worst_posterior():
    # Two hypotheses: the posterior is one number, so it can be searched.
    n, trials = 6, 40
    risks = np.array([0.3, 0.6])
    found = gap_bound.posterior_suprema(
        0.3,
        0.6,
        np.array([n - 1.0]),
        seed=5,
        num_samples=n,
        num_hypotheses=2,
        shared=True,
        trials=trials,
    )[:, 0]
    # One draw decides both losses, so the gaps of a training follow from the numbers of draws
    # below each risk: all of them are known.
    q = np.linspace(1e-9, 1 - 1e-9, 2001)
    divergence = q * np.log(2 * q) + (1 - q) * np.log(2 * (1 - q))
    possible = []
    for below, between in itertools.product(range(n + 1), repeat=2):
        if below + between <= n:
            gaps = risks - np.array([below, below + between]) / n
            mean = q * gaps[0] + (1 - q) * gaps[1]
            value = np.where(mean > 0, 2 * (n - 1) * mean**2, 0.0) - divergence
            possible.append(value.max())
    possible = np.array(possible)
    for value in found:
        if value > 0.05:  # below, the best lambda is smaller than the grid's
            assert np.abs(possible - value).min() < 0.02


def test_an_odd_bound_is_refused_where_its_square_must_be_affine():
    with pytest.raises(ValueError, match="affine"):
        checks.CHECKS["gap_bound_all_posteriors"](
            bound=lambda kl, *, num_samples, delta: (1 + kl) ** 0.2
        )


def test_outcomes_agree_with_loops():
    rng = np.random.default_rng(0)
    rewards = rng.integers(0, 4, (200, 4)) / 4
    scores = rng.integers(0, 4, (200, 4)) / 4
    found = best_of_n.outcomes(rewards, scores, 0.5)
    for i in range(200):
        tied = [r for r, s in zip(rewards[i], scores[i], strict=True) if s == max(scores[i])]
        ordered, by_score = sorted(rewards[i]), sorted(scores[i])
        assert found.correct[i] == (min(tied) >= 0.5)
        assert found.best[i] == (min(tied) == max(rewards[i]))
        assert found.covered[i] == (max(rewards[i]) >= 0.5)
        assert found.gap[i] == ordered[-1] - ordered[-2]
        assert found.observed_gap[i] == by_score[-1] - by_score[-2]
        assert found.score[i] == max(scores[i])


def test_memorisers_have_the_gap_that_arithmetic_gives():
    gaps = trainings.memoriser_gaps(seed=0, num_inputs=50, num_samples=30, trials=4000)
    assert gaps.mean() == pytest.approx(0.5 * (1 - 1 / 50) ** 30, abs=0.005)
    stored = trainings.stored_label_gaps(seed=0, num_weights=1, num_samples=30, trials=4000)
    assert stored.mean() == pytest.approx(0.5 * (1 - 1 / 52) ** 30, abs=0.005)


def test_the_simulated_prm_deviates_as_much_as_it_says():
    separation, noise = 3.0, 0.4
    gap, epsilon = simulated_search.gap_and_epsilon(separation, noise)
    rng = np.random.default_rng(0)
    draws = np.clip(rng.normal(size=400_000), -5.5, 5.5)
    right = 1 / (1 + np.exp(-(separation / 2 + noise * draws)))
    wrong = 1 / (1 + np.exp(-(-separation / 2 + noise * draws)))
    assert gap == pytest.approx(right.mean() - wrong.mean(), abs=1e-3)
    assert np.abs(right - right.mean()).max() <= epsilon + 1e-3
    lowest = 1 / (1 + math.exp(-(separation / 2 - 5.5 * noise)))
    assert epsilon == pytest.approx(right.mean() - lowest, abs=1e-3)


# The command


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")


def test_the_command_prints_the_verdicts(capsys):
    assert cli.run(["theory", "--only", "corollary", "repaired", "--seed", "3"]) == 0
    output = capsys.readouterr().out
    assert "4 claims: 2 holds, 2 fails, 0 not established" in output
    assert "corollary_necessary: N=8, t=4.0" in output
    assert "\x1b" not in output


def test_an_unexpected_verdict_is_an_error(capsys, monkeypatch):
    right = checks.CHECKS["repaired_budget"]

    def wrong(*, seed=0):
        return right(seed=seed, budget=fewer)

    monkeypatch.setitem(checks.CHECKS, "repaired_budget", wrong)
    assert cli.run(["theory", "--only", "repaired_budget"]) == 1
    assert "repaired_budget: fails, but the analysis says holds" in capsys.readouterr().out


def test_an_unknown_check_is_bad_input(capsys):
    assert cli.run(["theory", "--only", "nonsense"]) == 2
    assert "'nonsense'" in capsys.readouterr().err


def test_enumerated_draws_are_all_draws():
    probability, found = best_of_n.misleading_world().enumerate(3)
    assert probability.sum() == pytest.approx(1)
    assert (probability * found.covered).sum() == pytest.approx(1 - 0.5**3)
    assert len(probability) == 6**3
