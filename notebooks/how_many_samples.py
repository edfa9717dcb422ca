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
# # How many samples are enough?
#
# More samples cost more and are not always better. A few hundred labelled questions tell which
# configuration is enough, with a guarantee: *with probability 1 − δ its accuracy is above the
# target*. This notebook goes from a run to such a certificate, and then to fresh questions.
#
# The searches are those of the embedded world that the documentation keeps: 500 test questions,
# the policy `weak`, the PRM `exact`. For a run of your own the commands are
#
# ```sh
# cats-jax evaluate RECIPE.yaml --output runs/NAME
# cats-jax certify runs/NAME --target 0.6 --output runs/NAME/certificate
# ```

# %%
import json
import os
import pathlib

import matplotlib.pyplot as plt
import numpy as np

import theory
from studies.world.results.kept_paths import load_paths
from studies.world.results.rows import load_groups

plt.rcParams.update({"figure.dpi": 80, "axes.grid": True, "grid.alpha": 0.3, "font.size": 10})
DELTA, TARGET = 0.05, 0.6
METHODS = ("best_of_n", "beam", "cats")

kept = load_groups(
    pathlib.Path("../docs/results/rows"), "weak", ("baselines-small", "baselines-64", "cats")
)
groups = [group for group in kept if group.prm == "exact" and group.strategy in METHODS]
groups.sort(key=lambda group: np.mean(list(group.by_question("tokens").values())))
names = [f"{group.strategy} N={group.num_candidates}" for group in groups]
ids = sorted(groups[0].by_question())
right = np.array([[group.by_question()[i] for i in ids] for group in groups]) > 0.5
tokens = np.array([[group.by_question("tokens")[i] for i in ids] for group in groups])
assert right.shape == (9, 500)

# %% [markdown]
# ## 1. A certificate from half of the questions
#
# The questions are split at random. The first half is for the certificate, and the second half
# plays the fresh questions. The target and the list of nine configurations were fixed before a look
# at the answers. `theory.certify` tests each configuration, corrects for the nine tests, and takes
# the cheapest that passes.

# %%
order = np.random.default_rng(0).permutation(len(ids))
first, fresh = order[:250], order[250:]
hits = right[:, first].sum(axis=1)
found = theory.certify(hits, len(first), target=TARGET, delta=DELTA)
bounds = np.asarray(theory.binomial_lower(hits, len(first), delta=DELTA / len(groups)))
print("configuration   tokens  accuracy  at least  certified  fresh accuracy")
for i, name in enumerate(names):
    print(
        f"{name:14s}  {tokens[i, first].mean():6.0f}  {right[i, first].mean():8.3f}  "
        f"{bounds[i]:8.3f}  {'yes' if found.certified[i] else 'no':>9s}  "
        f"{right[i, fresh].mean():14.3f}"
    )
assert found.index is not None
chosen = found.index
print(f"\nchosen: {names[chosen]}")
assert right[chosen, fresh].mean() > TARGET
# The cheapest of those that are certified.
assert not found.certified[:chosen].any()

# %%
figure, panel = plt.subplots(figsize=(6.4, 3.7))
for passed, color in ((True, "tab:green"), (False, "tab:gray")):
    mine = found.certified == passed
    accuracy = right[mine][:, first].mean(axis=1)
    label = "certified" if passed else "not certified"
    low = accuracy - bounds[mine]
    cost = tokens[mine][:, first].mean(axis=1)
    panel.errorbar(cost, accuracy, yerr=[low, 0 * low], fmt="o", color=color, label=label)
panel.plot(
    tokens[:, fresh].mean(axis=1), right[:, fresh].mean(axis=1), "kx", label="fresh questions"
)
panel.axhline(TARGET, color="tab:red", linewidth=0.8, label="target")
panel.set(xscale="log", xlabel="tokens a question", ylabel="accuracy")
panel.legend(fontsize=8)
figure.tight_layout()
assert (bounds < right[:, first].mean(axis=1)).all()

# %% [markdown]
# ## 2. What the guarantee is worth
#
# Take all 500 questions for the whole population. Then each accuracy is known, and a sample of the
# population is a world in which a certificate is right or wrong. The targets are accuracies of
# configurations: a configuration that just misses its target is the hardest case. Without a
# correction for the nine tests, wrong certificates are more frequent.

# %%
rng = np.random.default_rng(1)
WORLDS = 200
times = rng.multinomial(500, np.full(500, 1 / 500), WORLDS)
counts, truth = times @ right.T.astype(np.int64), right.mean(axis=1)
print("target  something certified  wrong  wrong without a correction")
for target in np.sort(truth)[[2, 4, 6]]:
    tests = [theory.certify(row, 500, target=target, delta=DELTA) for row in counts]
    false = truth <= target
    some = np.mean([test.certified.any() for test in tests])
    wrong = np.mean([(test.certified & false).any() for test in tests])
    alone = np.mean([((test.p_values <= DELTA) & false).any() for test in tests])
    print(f"{target:6.3f}  {some:19.3f}  {wrong:5.3f}  {alone:26.3f}")
    assert wrong <= DELTA
    assert alone >= wrong

# %% [markdown]
# ## 3. How many questions it takes
#
# Few questions certify nothing, or only what is far above the target. The next table has the share
# of worlds in which some configuration is certified, and the mean tokens of the chosen one.

# %%
print("questions  certified  tokens of the chosen one")
power = []
for number in (50, 100, 200, 400):
    drawn = rng.multinomial(number, np.full(500, 1 / 500), WORLDS) @ right.T.astype(np.int64)
    picks = [theory.certify(row, number, target=TARGET, delta=DELTA).index for row in drawn]
    costs = [tokens[pick].mean() for pick in picks if pick is not None]
    power.append(len(costs) / WORLDS)
    print(f"{number:9d}  {power[-1]:9.3f}  {np.mean(costs):24.0f}")
assert power == sorted(power)
assert power[0] < 0.5 < power[-1]

# %% [markdown]
# ## 4. How much a cheaper configuration loses
#
# A question is *harmful* if the expensive configuration answers it right and the cheap one wrong.
# Their share bounds the accuracy that is lost, whatever the cheap one gains elsewhere.

# %%
full, cheap = names.index("best_of_n N=64"), names.index("best_of_n N=16")
harmful = int((right[full] & ~right[cheap]).sum())
lost = truth[full] - truth[cheap]
most = theory.binomial_upper(harmful, 500, delta=DELTA)
paired = theory.paired_upper(right[full] * 1.0 - right[cheap], delta=DELTA)
print(f"{names[cheap]} in place of {names[full]}: {harmful} harmful questions of 500")
print(f"accuracy lost: observed {lost:.3f}, at most {most:.3f} by harmful questions")
print(f"and at most {paired:.3f} by a betting bound on the differences")
assert lost <= min(most, paired)

# %% [markdown]
# ## 5. Looking while questions come in
#
# A test for a fixed number of questions may be looked at once. An *e-process*, a running measure of
# the evidence against a claim, may be looked at after each question, and the run may end there.
# `cats-jax evaluate --until-certified` does so.

# %%
beam = names.index("beam N=16")
settled = theory.settle(right[beam, order], target=TARGET, delta=DELTA)
looks = np.arange(1, len(ids) + 1)
path = np.asarray(theory.binary_log_wealth(right[beam, order].cumsum(), looks, TARGET))
figure, panel = plt.subplots(figsize=(6.4, 3.2))
panel.plot(looks, path)
panel.axhline(-np.log(DELTA), color="tab:red", linewidth=0.8, label="ln(1 / δ)")
panel.axvline(settled.trials, color="black", linewidth=0.8, linestyle=":", label="decision")
panel.set(xlabel="questions", ylabel="evidence (nats)", title=names[beam])
panel.legend(fontsize=8)
figure.tight_layout()
print(f"{names[beam]}: {settled.decision} {TARGET:g} after {settled.trials} of 500 questions")
assert settled.decision == "above"
assert (path[: settled.trials - 1] < -np.log(DELTA)).all()

# %% [markdown]
# ## 6. Stop early
#
# Best-of-N samples all N paths of each question. A search path by path may stop at the first path
# whose score reaches a threshold. The kept paths of best-of-32 tell what this would have
# lost and saved, without another search. `theory.certify_stopping` takes the lowest threshold at
# which few questions are harmful: best-of-32 is right on them, and the stopped search is wrong.
# For a run of your own the command is `cats-jax certify runs/NAME --stopping --max-loss 0.03`.
# Again one half of the questions certifies, and the other half is fresh.

# %%
GRID, LIMIT = np.linspace(0.02, 0.98, 25), 0.03
scores, hits = load_paths(pathlib.Path("../docs/results/rows"))["exact"]
stopping = theory.certify_stopping(
    scores[first], hits[first], GRID, max_loss=LIMIT, delta=0.8 * DELTA
)
assert stopping.index is not None
paths = stopping.num_paths[stopping.index]
most = theory.cost_upper(paths, limit=scores.shape[1], delta=0.2 * DELTA, num_choices=len(GRID))
# On the fresh questions, at the certified threshold alone.
again = theory.certify_stopping(
    scores[fresh], hits[fresh], GRID[[stopping.index]], max_loss=LIMIT, delta=DELTA
)
best = hits[fresh, scores[fresh].argmax(axis=1)]
print(f"certified: stop at a score of {GRID[stopping.index]:.2f}")
print(f"questions that certify: {paths.mean():.1f} of {scores.shape[1]} paths, at most {most:.1f}")
print(f"fresh questions: {again.num_paths[0].mean():.1f} paths")
print(f"accuracy of the fresh: {again.right[0].mean():.3f}, of best-of-32 {best.mean():.3f}")
print(f"harmful fresh questions: {again.harmful[0]} of {len(fresh)}")
assert again.num_paths[0].mean() < most
assert again.harmful[0] / len(fresh) < LIMIT

# %% [markdown]
# In plain words: on fewer than 3 of 100 questions, stopping at this score turns a right answer of
# 32 paths into a wrong one. On average it samples at most the printed number of paths. Both hold
# with probability .95: four fifths of δ are for the loss, and one fifth is for the paths.
#
# The threshold is for this policy and this PRM. With a PRM that scores wrong paths high, searches
# stop too early, and the certified threshold is higher, or there is no certificate. Fewer paths
# are fewer FLOPs only with an engine that keeps the prompt in its cache.
#
# ## 7. Real solutions
#
# 100 questions of MATH with eight solutions each by a Qwen2.5-Math model, their grades, and the
# scores of Qwen2.5-Math-RM-72B (QwenLM/Qwen2.5-Math, Apache-2.0). They are reference material
# beside the repository, named by `CATS_JAX_SHARED`. Without it this section says so and ends.
# Best-of-N takes the first N solutions and the one of the highest score.

# %%
shared = pathlib.Path(os.environ.get("CATS_JAX_SHARED", "../../shared"))
file = shared / "real" / "qwen2.5_math_100x8.jsonl"
if file.is_file():
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    correct = np.array([row["correct"] for row in rows])
    scores = np.array([row["reward_scores"] for row in rows])
    sizes = (1, 2, 4, 8)
    best = np.array([correct[np.arange(100), scores[:, :n].argmax(axis=1)] for n in sizes])
    hits = best.sum(axis=1)
    real = theory.certify(hits, 100, target=0.8, delta=DELTA)
    low = np.asarray(theory.binomial_lower(hits, 100, delta=DELTA / len(sizes)))
    harmful = (best[-1] & ~best).sum(axis=1)
    level = DELTA / (len(sizes) - 1)
    most = np.asarray(theory.binomial_upper(harmful[:-1], 100, delta=level))
    print("  N  right of 100  at least  above .8 certified  loss against N=8 at most")
    for i, n in enumerate(sizes):
        loss = f"{most[i]:.3f}" if i < len(most) else "-"
        said = "yes" if real.certified[i] else "no"
        print(f"{n:3d}  {hits[i]:12d}  {low[i]:8.3f}  {said:>18s}  {loss:>24s}")
    assert real.index is not None
    assert (hits / 100 > low).all()
else:
    print("The reference material is not there: this section is left out.")

# %% [markdown]
# One solution is enough for an accuracy above .8 there. More than 100 questions are needed to show
# that one solution loses nothing, or that eight gain something.
#
# ## 8. The premises in plain words
#
# - *The questions are independent draws.* Each question says something new. Variants of one
#   question break it, and so do several seeds that are counted as several questions.
# - *They trained and chose nothing.* Nobody has tuned anything on them. A PRM, a calibration, a
#   controller, a list of configurations or a target that saw them breaks it.
# - *The certificate is about their distribution.* Fresh questions come from the same source.
#   Another data set, harder levels or another prompt breaks it.
# - *The claim was fixed beforehand.* Nobody picks the target that passes after a look at the table.
# - *A fixed test is looked at once.* The number of questions does not depend on the answers. To
#   stop when it is enough, take `--until-certified`.
#
# ## 9. Pitfalls
#
# - Several seeds of one question have one value, their mean. Take `theory.betting_lower` for it.
#   Exact binomial tests are for one right or wrong answer a question.
# - Accuracy and cost share δ. The cost bound of a chosen configuration is for all that could have
#   been chosen (`num_choices` of `theory.cost_upper`).
# - `order="descending"` certifies nothing where accuracy falls at the largest N.
# - Steps of one solution depend on each other. They do not count as that many observations.
# - "Not certified" is no evidence against a configuration. More questions may certify it.

# %%
several = np.array([0.25, 0.5, 1.0, 0.0, 0.75] * 40)  # means of eight seeds, one a question
honest = theory.betting_lower(several, delta=DELTA)
naive = theory.binomial_lower(int(several.sum() * 8), several.size * 8, delta=DELTA)
print(
    f"200 questions of eight seeds: at least {honest:.3f}; as 1600 questions {naive:.3f}, wrongly"
)
assert honest < naive < several.mean()
