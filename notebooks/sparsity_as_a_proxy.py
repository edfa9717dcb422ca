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
# # Is sparsity a proxy for a PRM's error?
#
# The paper bounds the generalization gap of a process reward model (PRM) by a function of its
# number of nonzero weights (section 5.1, eq. 8), sees "a clear correlation" between sparsity and
# test error in a table of five PRMs (appendix G, `tab:sparse`), and makes sparsity a part of its
# controller's state (section 5.2). The cells below answer four questions by numbers that they
# assert. What does the bound say about those five PRMs? What can a table of five show? What do the
# PRMs of the embedded world, whose quality is known, show? How large are the errors of six
# published PRMs?

# %%
import json
import pathlib
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # tqdm asks for ipywidgets, which nothing here needs
    import tqdm.auto  # noqa: F401

import matplotlib.pyplot as plt
import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import Qwen2ForCausalLM
from transformers.utils import logging

import cats_jax
import theory
from cats_jax import world
from cats_jax.world import task
from studies.world.models import labels, measure, prms, sampling
from theory import estimators

logging.disable_progress_bar()
torch.set_num_threads(1)
plt.rcParams.update({"figure.dpi": 90, "axes.grid": True, "grid.alpha": 0.3, "font.size": 10})

# %% [markdown]
# ## What the bound says
#
# The paper prints no value of its bound, and none of $n$, $\delta$, $c$ and $d$. All four are our
# choice here: $n$ is 800 000, the number of labelled steps of which its section 2 speaks, $\delta$
# is .05, $c$ is 1 (for which the bound is false in general), and $d$ is the number of parameters.
# The largest gap there can be is 1, and the bounds are in the hundreds. The bound grows with the
# number of nonzero parameters. It is smallest for the smallest model, which has the largest test
# error. The table itself is `theory.paper.SPARSITY`.

# %%
table = theory.paper.SPARSITY
error = np.array([row.test_error for row in table])
paper = {
    "parameters": np.array([row.parameters for row in table]),
    "total sparsity": np.array([row.total_sparsity for row in table]),
    "last-layer sparsity": np.array([row.last_layer_sparsity for row in table]),
    "nonzero parameters": np.array([row.nonzero_parameters for row in table]),
}
bound = theory.sparsity_bound(
    paper["nonzero parameters"].round(), paper["parameters"], num_samples=800_000, delta=0.05
)
for row, value in zip(table, bound, strict=True):
    print(f"{row.prm:24} bound {value:6.1f}   test error {row.test_error:.2f}")

assert theory.is_vacuous_upper(bound).all()
assert np.allclose(bound, [312.86, 337.17, 337.17, 142.49, 315.85], atol=0.01)
assert np.argmin(bound) == np.argmax(error)

# %% [markdown]
# ## What five rows can show
#
# Correlations with exact permutation p-values, over all 120 orders of the rows. The rows of the
# two RLHFlow PRMs are equal in every column, so there are four different PRMs, and with four the
# smallest p-value of a rank correlation is $2/24 = .083$. Pearson's coefficient depends on the
# values and not only on their order, and can have one of $1/24$. The p-values are not corrected
# for the number of predictors and coefficients looked at.

# %%
distinct = [0, 1, 3, 4]
assert table[1][1:] == table[2][1:]  # equal in all but the name
found = estimators.sparsity_against_error(paper, error)
again = estimators.sparsity_against_error(
    {name: column[distinct] for name, column in paper.items()}, error[distinct]
)
print(f"{'':20} {'5 rows: Spearman':>17} {'p':>6} {'Pearson':>8} {'p':>6}", end="")
print(f" {'4 rows: Spearman':>17} {'p':>6} {'Pearson':>8} {'p':>6}")
for name in paper:
    print(f"{name:20}", end="")
    for coefficients in (found[name], again[name]):
        rho, r = coefficients["spearman"], coefficients["pearson"]
        print(f" {rho.value:17.3f} {rho.p_value:6.3f} {r.value:8.3f} {r.p_value:6.3f}", end="")
    print()
    assert again[name]["spearman"].p_value > 0.08

assert found["last-layer sparsity"]["spearman"].p_value < 0.05
assert again["last-layer sparsity"]["pearson"].p_value < 0.05
for name in ("total sparsity", "nonzero parameters", "parameters"):
    assert found[name]["spearman"].p_value > 0.2
    assert again[name]["pearson"].p_value > 0.05
# The quantity in the bound is the one that is correlated least.
assert abs(found["nonzero parameters"]["spearman"].value) < 0.1

# %%
figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True)
for panel, name in zip(panels, list(paper)[1:], strict=True):
    panel.scatter(paper[name], error, color="C0", zorder=3)
    rho = found[name]["spearman"]
    panel.set(title=f"Spearman {rho.value:.2f}, p = {rho.p_value:.2f}", xlabel=name)
    for i in distinct:
        label = table[i].prm.split("-PRM")[0] + (" (both)" if i == 1 else "")
        place = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center"}
        panel.annotate(label, (paper[name][i], error[i]), fontsize=7, **place)
    panel.margins(x=0.4, y=0.15)
panels[0].set_ylabel("test error (cross-entropy)")
figure.suptitle("The paper's tab:sparse")
figure.tight_layout()

# %% [markdown]
# ## The embedded world's PRMs
#
# Six PRMs whose quality was measured on 250 questions: cross-entropy of exact step labels, how
# often they rank a right sibling above a wrong one (*pair*), and accuracy of best-of-64. Sparsity,
# the share of weights with $|w| < 10^{-4}$, is counted here from the shipped files and must agree
# with the figures recorded when the world was built. (The paper's appendix G counts "parameters
# with values smaller than" this; that magnitudes are meant is our reading.)

# %%
figures = json.loads((world.ASSETS / "world.json").read_text())["prms"]
assert set(figures) == set(world.PRM_NAMES)
names = list(world.PRM_FAMILY)
for name in names:
    tensors = load_file(world.prm_path(name) / "model.safetensors")
    counted = theory.measure_sparsity(tensors.items())
    assert abs(counted.total - figures[name]["sparsity_total"]) < 1e-5

columns = {
    "total sparsity": [figures[name]["sparsity_total"] for name in names],
    "last-layer sparsity": [figures[name]["sparsity_last_layer"] for name in names],
}
errors = {
    "cross-entropy": [figures[name]["cross_entropy"] for name in names],
    "1 - pair": [1 - figures[name]["pair"] for name in names],
    "1 - best-of-64": [1 - figures[name]["best_of_n"]["min"]["64"] for name in names],
}
print(f"{'error':15} {'predictor':20} {'Spearman':>9} {'p':>6} {'Kendall':>8} {'Pearson':>8}")
for error_name, values in errors.items():
    for name, result in estimators.sparsity_against_error(columns, values).items():
        rho = result["spearman"]
        print(
            f"{error_name:15} {name:20} {rho.value:9.2f} {rho.p_value:6.2f} "
            f"{result['kendall'].value:8.2f} {result['pearson'].value:8.2f}"
        )
        # Six PRMs, nothing near a correlation, let alone a negative one.
        assert rho.p_value > 0.3

# The best and the worst of them are both dense.
ranked = sorted(names, key=lambda name: figures[name]["pair"])
assert max(figures[ranked[0]]["sparsity_total"], figures[ranked[-1]]["sparsity_total"]) < 0.05

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 3.4))
for panel, (error_name, values) in zip(panels, list(errors.items())[:2], strict=True):
    x = np.maximum(columns["total sparsity"], 1e-3)
    panel.scatter(x, values, color="C1", zorder=3)
    for a, b, name in zip(x, values, names, strict=True):
        panel.annotate(name, (a, b), fontsize=8, xytext=(4, 4), textcoords="offset points")
    panel.set(xscale="log", xlabel="total sparsity", ylabel=error_name)
    panel.margins(x=0.2, y=0.12)
figure.suptitle("The embedded world's PRMs")
figure.tight_layout()

# %% [markdown]
# ## Sparsity changed, and nothing else
#
# Two PRMs differ in more than their sparsity. Within one PRM the sparsity can be raised alone, by
# setting more and more of its smallest weights to zero. Here this is done to the best PRM: the
# bound falls at every step, while the error stays about the same up to a sparsity of .3 and rises
# beyond it. So the sign of the relation depends on where the sparsity comes from, and sparsity
# alone does not tell the error.

# %%
policy = Qwen2ForCausalLM.from_pretrained(world.policy_path("weak"), dtype="float32").eval()
problems = task.problems("validation", 50)
samples = sampling.sample_paths(policy, [problem.text for problem in problems], 8, seed=0)
paths = labels.label_paths(problems, samples)
step_labels = np.concatenate([path.exact for path in paths]).astype(float)
questions = np.concatenate([[path.question] * len(path.exact) for path in paths])
prefixes = np.concatenate(
    [[str((path.question, path.steps[:i])) for i in range(len(path.steps))] for path in paths]
)

shares = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
pruned, scores_of = [], {}
for share in shares:
    model = Qwen2ForCausalLM.from_pretrained(world.prm_path("exact"), dtype="float32").eval()
    if share:
        prms.prune(model, share)
    scores = np.concatenate(
        measure.score_paths(model, [(path.question, path.steps) for path in paths])
    )
    scores_of[share] = scores
    figures = {
        "log loss": lambda weights, scores=scores: estimators.mean_log_loss(
            scores, step_labels, weights
        ),
        # Siblings have one question, so their weights are equal: its square root makes a pair
        # count as often as its question was drawn.
        "pair": lambda weights, scores=scores: estimators.pair_accuracy(
            scores, step_labels, prefixes, np.sqrt(weights)
        ),
    }
    quality = estimators.bootstrap(figures, questions, num_resamples=200)
    counted = theory.measure_sparsity((n, p.detach().numpy()) for n, p in model.named_parameters())
    nonzero = (1 - counted.total) * sum(counted.sizes.values())
    value = theory.sparsity_bound(
        round(nonzero), sum(counted.sizes.values()), num_samples=6000, delta=0.05
    )
    pruned.append((counted.total, quality, value))
    loss, pair = quality["log loss"], quality["pair"]
    print(
        f"sparsity {counted.total:.3f}   log loss {loss.value:.3f} ({loss.low:.3f}-{loss.high:.3f})"
        f"   pair {pair.value:.3f} ({pair.low:.3f}-{pair.high:.3f})   bound {value:.1f}"
    )

# %%
total = np.array([row[0] for row in pruned])
loss = np.array([row[1]["log loss"] for row in pruned])
pair = np.array([row[1]["pair"] for row in pruned])
figure, panels = plt.subplots(1, 2, figsize=(9, 3.4))
for panel, values, label in zip(panels, (loss, pair), ("log loss, nats", "pair"), strict=True):
    panel.errorbar(
        total,
        values[:, 0],
        np.abs(values[:, 1:] - values[:, :1]).T,
        marker="o",
        capsize=3,
        color="C2",
    )
    panel.set(xlabel="total sparsity", ylabel=label)
figure.suptitle("The best PRM, pruned without retraining")
figure.tight_layout()

rho = estimators.spearman(total, loss[:, 0])
print(f"Spearman of sparsity and log loss: {rho.value:.2f}, p = {rho.p_value:.4f}")
assert rho.exact
assert rho.value > 0.5
assert rho.p_value < 0.05  # the sign is the opposite of the paper's
assert np.abs(loss[:4, 0] - loss[0, 0]).max() < 0.01 < loss[4, 0] - loss[0, 0]
assert pair[-1, 2] < pair[0, 1]  # intervals apart: pruning did harm
assert (np.diff([row[2] for row in pruned]) < 0).all()  # while the bound improved at every step
assert min(row[2] for row in pruned) > 1  # and never said anything

# %% [markdown]
# ## Published PRMs on steps that people labelled
#
# What does a "test error" of 2.78 to 4.43 mean? Six published 7B PRMs scored 749 solutions in
# which people named the first wrong step; the figures are those of `cats-jax quality`, see the
# page on PRMs in the documentation, which names the data. The sparsity of only one of them is
# known (Math-Shepherd), so that nothing can be said about a correlation. The size of the error
# can be compared: a mean cross-entropy of more than .69 nats a step is worse than that of a
# constant score of .5. And the $\varepsilon$ of the accuracy bound (eq. 6) can be measured: the
# deviation of a score from its label that is not exceeded on nine questions in ten.

# %%
recorded = json.loads(
    (pathlib.Path(cats_jax.__file__).parents[1] / "docs/figures/prm_quality.json").read_text()
)
for group in recorded["groups"]:
    print(f"{group['group']}: {group['questions']} questions, {group['steps']} labelled steps")
    print(f"  {'PRM':30} {'nats a step':>11} {'AUC':>6} {'epsilon':>8} {'eq. 6, N = 2':>13}")
    for row in group["prms"]:
        print(
            f"  {row['prm']:30} {row['cross_entropy']['value']:11.3f} {row['auc']['value']:6.3f} "
            f"{row['epsilon']['value']:8.3f} {row['bounds'][0]['accuracy']:13.3f}"
        )
        if not row["prm"].startswith("constant"):
            # All six are better than a coin, and the paper's five test errors are far above it.
            assert row["cross_entropy"]["value"] < np.log(2) < error.min()
            # Eq. 6, with coverage 1 and the largest gap there is: above 0 at N = 2 only, where
            # it is far below the .5 of choosing one of two paths blindly.
            assert row["informative_up_to"] == 2
            assert row["bounds"][0]["accuracy"] < 0.1

# %% [markdown]
# ## What does bound the error of a PRM
#
# Held-out labels do. The risk is measured on questions that the PRM was not trained on, with the
# question as the unit, and `theory.holdout_bound` bounds the risk on new questions for every model
# and without a prior.

# %%
risk = estimators.estimate_risk(np.abs(scores_of[0.0] - step_labels), units=questions)
limit = theory.holdout_bound(risk.value, num_samples=len(problems), delta=0.05)
print(
    f"risk {risk.value:.4f}; with 95 % confidence at most {limit:.3f} ({len(problems)} questions)"
)
assert risk.value <= limit < 0.2
