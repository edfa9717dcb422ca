# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Budget against accuracy: how many candidates, and when there are too many
#
# From its accuracy theorem the paper derives what coverage a target accuracy takes (corollary 4.6,
# eq. 7), and concludes that a PRM with a larger error needs more candidates $N$ (section 4.3).
# This notebook follows the bound of the theorem (eq. 6) as $N$ grows, finds the $N^*$ beyond which
# it falls, and compares the budgets that it certifies with those of the repaired theorem and with
# whole searches in the simulator. All values of $p_1$, $\delta$, $\alpha$ and $t$ are our choice.
#
# $p_1$ is the probability that one candidate is correct, $p_N=1-(1-p_1)^N$ the coverage,
# $t=\gamma/\varepsilon$ the gap in units of the largest score deviation, $c=e^{-t^2/8}$.

# %%
import math

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import search
import theory
from search import simulation

plt.rcParams.update({"figure.dpi": 80, "axes.grid": True, "grid.alpha": 0.3, "font.size": 10})

# %% [markdown]
# ## 1. The bound turns
#
# $f(N)=p_N\,(1-\delta-(N-1)c)$ first rises with the coverage and then falls, because each further
# candidate is one more that might win by mistake. The derivative vanishes at
#
# $$N^*=\frac{B-W(e^B)}{k},\qquad k=-\ln(1-p_1),\quad B=1+\frac{k\,(1-\delta+c)}{c},$$
#
# with Lambert's $W$. For $t>2$ no score can be overtaken unless the deviations exceed
# $\varepsilon$, so the accuracy is at least $p_N-\delta$, the dotted line, which never falls.

# %%
p1, delta = 0.3, 0.05
n = np.arange(1, 301)
figure, panel = plt.subplots(figsize=(6.2, 3.7))
for t, color in zip((3.0, 4.0, 5.0, 6.0, 7.0), plt.cm.viridis(np.linspace(0, 0.9, 5)), strict=True):
    bound = theory.accuracy_lower_bound(
        theory.coverage(p1, n), t, 1.0, num_candidates=n, delta=delta
    )
    panel.semilogx(n, bound, color=color, label=f"t = {t:g}")
    best = float(theory.optimal_num_candidates(p1, t, 1.0, delta=delta))
    top = np.interp(best, n, bound)
    panel.plot(best, top, "o", color=color)
    # N* lies within one of the best whole number.
    assert abs(n[bound.argmax()] - best) < 1
panel.semilogx(n, theory.coverage(p1, n) - delta, "k:", label="p_N - delta")
panel.set(xlabel="N", ylabel="the paper's bound", ylim=(-0.3, 1.02))
panel.legend(fontsize=8)
figure.tight_layout()

assert math.isclose(theory.optimal_num_candidates(0.3, 6.0, 1.0, delta=0.05), 9.3928, rel_tol=1e-5)

# %% [markdown]
# ## 2. What it certifies
#
# So a target is certified on an interval of budgets, or not at all. With $p_1=.3$ and $t=5$ or less
# no number of candidates is certified to reach 80 %. The smallest budget is then infinity and the
# largest 0; this is an answer and not an error.

# %%
print(" t   p1     N*   smallest N  largest N   repaired N")
for t, p1 in [(2, 0.3), (3, 0.3), (5, 0.3), (6, 0.3), (7, 0.05), (8, 0.05), (10, 0.3)]:
    setting = {"p1": p1, "gap": t, "epsilon": 1.0, "delta": 0.05}
    best = theory.optimal_num_candidates(**setting)
    smallest = theory.smallest_budget(0.8, **setting)
    largest = theory.largest_budget(0.8, **setting)
    repaired = theory.smallest_budget_margin(0.8, **setting)
    print(f"{t:2d}  {p1:4.2f}  {best:5.1f}  {smallest:10.0f}  {largest:9.0f}  {repaired:11.0f}")
    assert repaired <= smallest
    assert (smallest == math.inf) == (largest == 0)

# %% [markdown]
# The corollary says that coverage "must satisfy" $p_N\ge\alpha/(1-\delta-(N-1)c)$. Its proof
# (appendix D) shows that this is *sufficient*, and assumes a positive denominator. Where the
# denominator is negative, every coverage meets the printed inequality; `required_coverage` returns
# infinity there.

# %%
t, target = 2.1, 0.9
n = np.arange(1, 13)
denominator = theory.accuracy_lower_bound(1.0, t, 1.0, num_candidates=n, delta=0.05)
required = theory.required_coverage(target, t, 1.0, num_candidates=n, delta=0.05)
figure, panel = plt.subplots(figsize=(5.6, 3.3))
panel.plot(n, target / denominator, "o--", color="tab:red", label="as printed")
panel.plot(n, np.where(np.isfinite(required), required, np.nan), "ko", label="required_coverage")
panel.axhspan(1, 3, color="gray", alpha=0.2)
panel.text(9, 1.15, "more than there is", fontsize=8)
panel.axhline(0, color="black", linewidth=0.8)
panel.set(xlabel="N", ylabel="coverage for accuracy .9, t = 2.1", ylim=(-3, 3))
panel.legend(fontsize=8)
figure.tight_layout()

assert (required[denominator <= 0] == math.inf).all()
assert target / denominator[7] < 0
assert (required[1:] > 1).all()
# The truth at t > 2 is the coverage: accuracy .9 is reached from N = 7 on.
assert theory.coverage(0.3, 7) > target

# %% [markdown]
# ## 3. The repaired budget
#
# With a margin $\gamma>\varepsilon$ between correct and wrong solutions (instead of a gap between
# the two best ones) and independent deviations,
#
# $$N\ge\frac{\ln(1-\alpha-\delta)}{\ln\bigl(1-p_1(1-\varepsilon/\gamma)\bigr)}$$
#
# is enough, and for $\gamma>2\varepsilon$ the same with $p_1$ alone. It has the property that
# section 4.3 concludes from the corollary: larger deviations take more candidates. It is finite
# for every $\gamma>\varepsilon$ and $\alpha<1-\delta$.

# %%
t = np.concatenate([np.linspace(1.01, 2, 200), np.linspace(2.001, 10, 400)])
figure, panel = plt.subplots(figsize=(6.2, 3.7))
for p1, color in zip((0.05, 0.3, 0.6), ("tab:blue", "tab:orange", "tab:green"), strict=True):
    paper = theory.smallest_budget(0.9, p1, t, 1.0, delta=0.0)
    repaired = theory.smallest_budget_margin(0.9, p1, t, 1.0, delta=0.0)
    panel.semilogy(1 / t, paper, "--", color=color)
    panel.semilogy(1 / t, repaired, color=color, label=f"p1 = {p1:g}")
    assert (repaired <= paper).all()
    assert np.isfinite(repaired).all()
    # Monotone in epsilon = 1 / t.
    assert (np.diff(repaired) <= 0).all()
    assert (np.diff(paper[np.isfinite(paper)]) <= 0).all()
panel.axvline(0.5, color="black", linewidth=0.8)
panel.set(
    xlabel="epsilon / gap",
    ylabel="candidates for accuracy .9",
    title="solid: repaired; dashed: the paper's, where it exists",
)
panel.legend(fontsize=8)
figure.tight_layout()

budgets = theory.smallest_budget_margin(0.9, 0.3, [1.05, 1.2, 1.5, 1.9, 2.0, 2.01], 1.0, delta=0.0)
print("t = 1.05, 1.2, 1.5, 1.9, 2, 2.01:", budgets)
assert budgets.tolist() == [161, 45, 22, 16, 15, 7]

# %% [markdown]
# ## 4. Whole searches
#
# Ground truth from the search simulator: a toy world in which a solution has one step, correct
# with probability .3, and the PRM's score is a sigmoid of a mean plus noise. Best-of-N runs as one
# compiled program for every $N$ and every noise. Equal texts get equal scores there, so deviations
# of correct solutions are *not* independent: the bound that applies is
# `accuracy_lower_bound_margin_dependent`. It knows nothing of the noise but its largest value,
# here 5.5 standard deviations, so for $1<t<2$ it is far below what happens, and for $t<1$ it is 0;
# for $t>2$ it is the coverage, and so is the accuracy.

# %%
CAPACITY, SEARCHES = 32, 1500
strategy = search.best_of_n()


@jax.jit
def correct_searches(world, key, num_candidates):
    """How many of `SEARCHES` questions of a world best-of-N answers correctly, i32[]."""

    def one(key):
        question_key, search_key = jax.random.split(key)
        task = simulation.question(world, question_key, 0, 0)
        state = search.init(
            task.root,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=1,
            capacity=CAPACITY,
            depth_capacity=1,
        )
        final, _ = search.rollout(
            (),
            task.params,
            search_key,
            state,
            strategy=strategy,
            expand_fn=simulation.simulator(CAPACITY),
        )
        row = search.answer((), final, strategy=strategy)
        return (row >= 0) & (final.finished.answer[row] == task.right_answer)

    return jnp.sum(jax.vmap(one)(jax.random.split(key, SEARCHES)))


def margin_and_epsilon(noise):
    """Of that world: difference of mean scores, and the largest deviation from the mean.

    The simulator's normal variates end at 5.5; the mean is over a standard normal.
    """
    grid = np.linspace(-5.5, 5.5, 4001)
    scores = 1 / (1 + np.exp(-(1.5 + noise * grid)))
    mean = np.average(scores, weights=stats.norm.pdf(grid))
    return 2 * mean - 1, max(mean - scores[0], scores[-1] - mean)


sizes = np.array([1, 2, 4, 8, 16, 32])
figure, panel = plt.subplots(figsize=(6.2, 3.7))
panel.semilogx(sizes, theory.coverage(0.3, sizes), "k:", label="coverage", base=2)
for noise, color in zip((0.2, 0.35, 1.5), ("tab:green", "tab:blue", "tab:orange"), strict=True):
    gap, epsilon = margin_and_epsilon(noise)
    world = simulation.toy_params(
        num_steps=(1,), step_probability=0.3, separations=(3.0,), score_scale=noise, max_depth=1
    )
    counts = np.array(
        [int(correct_searches(world, jax.random.key(5), jnp.int32(size))) for size in sizes]
    )
    bound = theory.accuracy_lower_bound_margin_dependent(
        0.3, gap, epsilon, num_candidates=sizes, delta=0.0
    )
    label = f"t = {gap / epsilon:.2f}"
    panel.semilogx(sizes, counts / SEARCHES, "o-", color=color, label=label, base=2)
    panel.semilogx(sizes, bound, "--", color=color, base=2)
    # Not below the bound by more than chance allows, and never above the coverage's interval.
    upper = np.nan_to_num(stats.beta.ppf(0.9999, counts + 1, SEARCHES - counts), nan=1.0)
    lower = stats.beta.ppf(0.0001, counts, SEARCHES - counts + 1)
    assert (upper >= bound).all()
    assert (lower <= theory.coverage(0.3, sizes)).all()
panel.set(xlabel="N", ylabel="accuracy", title="searches (solid) and their bound (dashed)")
panel.legend(fontsize=8)
figure.tight_layout()

# %% [markdown]
# ## 5. Your own numbers
#
# Estimate $p_1$ by sampling and $\varepsilon$ on held-out data
# (`theory.estimators.estimate_epsilon`). Take a margin $\gamma$ that you assume every question to
# have at least.

# %%
mine = {"p1": 0.12, "gap": 0.25, "epsilon": 0.15, "delta": 0.01}
for target in (0.5, 0.8, 0.9, 0.95, 0.99):
    print(
        f"accuracy {target:.0%}: {theory.smallest_budget_margin(target, **mine):5.0f} candidates, "
        f"by the paper's bound {theory.smallest_budget(target, **mine):.0f}"
    )
# What delta takes away no number of candidates brings back.
assert theory.smallest_budget_margin(0.99, **mine) == math.inf
assert theory.smallest_budget_margin(0.95, **mine) == 66
