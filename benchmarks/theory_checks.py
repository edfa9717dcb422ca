"""Sampling speed of the theory's checks: the compiled kernels beside the same draws in numpy.

    JAX_PLATFORMS=cpu .venv/bin/python benchmarks/theory_checks.py [--rounds 5]

Both compute in float64 from their own generator (Philox, PCG64) and find the same figure, which
is printed so that one can see they do. They take turns in one process, so that other load hits
both; the ratio of each turn is taken and its median printed. Compilation is not in it, and printed.
"""

import argparse
import statistics
import time

import numpy as np

from theory.checks import best_of_n, memorisers, pac_bayes

RISKS = np.linspace(0.05, 0.95, 16)
RATES = np.geomspace(0.05, 1.0, 96) * 4.0 * 39.0


def numpy_posterior_suprema(rng, trials):
    suprema = np.empty(trials)
    for start in range(0, trials, 500):
        draws = rng.random((min(500, trials - start), 40, 16), np.float32)
        gaps = RISKS - (draws < RISKS).mean(axis=1)
        exponents = RATES[None, :, None] * gaps[:, None, :]
        highest = exponents.max(axis=2, keepdims=True)
        moments = np.log(np.exp(exponents - highest).mean(axis=2)) + highest[:, :, 0]
        suprema[start : start + 500] = (moments - RATES**2 / (8 * 39.0)).max(axis=1)
    return (suprema > 0.5).mean()


def jax_posterior_suprema(seed, trials):
    suprema = pac_bayes.posterior_suprema(
        0.05,
        0.95,
        np.array([39.0]),
        seed=seed,
        num_samples=40,
        num_hypotheses=16,
        shared=False,
        trials=trials,
    )
    return (suprema > 0.5).mean()


def numpy_misranked(rng, trials):
    deviation = rng.uniform(-1, 1, (trials, 64))
    return (deviation[:, 1:].max(axis=1) - 0.9 >= deviation[:, 0]).mean()


def jax_misranked(seed, trials):
    return (
        best_of_n.misranked(0.9, seed=seed, num_candidates=64, trials=trials, law="uniform")
        / trials
    )


def numpy_two_level(rng, trials):
    right = rng.random((trials, 64)) < 0.3
    scores = np.where(right, 1.5, 0.0) + rng.uniform(-1, 1, (trials, 64))
    best_right = np.where(right, scores, -np.inf).max(axis=1)
    return (best_right > np.where(right, -np.inf, scores).max(axis=1)).mean()


def jax_two_level(seed, trials):
    return (
        best_of_n.two_level_successes(
            0.3, 1.5, seed=seed, num_candidates=64, trials=trials, law="uniform"
        )
        / trials
    )


def numpy_memorisers(rng, trials):
    labels = rng.random((trials, 2000)) < 0.5
    seen = np.zeros((trials, 2000), bool)
    seen[np.arange(trials)[:, None], rng.integers(0, 2000, (trials, 100))] = True
    return (labels & ~seen).mean()


def jax_memorisers(seed, trials):
    return memorisers.memoriser_gaps(
        seed=seed, num_inputs=2000, num_samples=100, trials=trials
    ).mean()


KERNELS = {
    "all posteriors (n=40, 16 hypotheses, 96 rates)": (
        jax_posterior_suprema,
        numpy_posterior_suprema,
        5_000,
    ),
    "mis-ranking among 64 paths": (jax_misranked, numpy_misranked, 50_000),
    "best of 64, two levels": (jax_two_level, numpy_two_level, 50_000),
    "memorising learner (2000 inputs)": (jax_memorisers, numpy_memorisers, 5_000),
}


def timed(function, *args):
    start = time.perf_counter()
    figure = float(function(*args))
    return time.perf_counter() - start, figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("draws/s in thousands; ratio: median over turns of numpy's time / JAX's")
    print(f"{'kernel':48} {'JAX':>8} {'numpy':>8} {'ratio':>6} {'compile':>8}   figures")
    for name, (in_jax, in_numpy, trials) in KERNELS.items():
        rng = np.random.default_rng(0)
        first, _ = timed(in_jax, 0, trials)
        turns = [
            (*timed(in_jax, seed, trials), *timed(in_numpy, rng, trials))
            for seed in range(1, rounds + 1)
        ]
        fast, slow = (statistics.median(turn[i] for turn in turns) for i in (0, 2))
        ratio = statistics.median(turn[2] / turn[0] for turn in turns)
        figures = (np.mean([turn[i] for turn in turns]) for i in (1, 3))
        print(
            f"{name:48} {trials / fast / 1e3:8.0f} {trials / slow / 1e3:8.0f} {ratio:6.2f} "
            f"{first - fast:7.2f}s   " + " / ".join(f"{figure:.4f}" for figure in figures)
        )


if __name__ == "__main__":
    main()
