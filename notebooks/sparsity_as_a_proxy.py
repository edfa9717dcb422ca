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
# The paper bounds the generalization gap by the number of nonzero weights, finds "a clear
# correlation" between sparsity and test error in a table of five process reward models, and feeds
# sparsity to its controller. Three questions, each answered below by numbers that are asserted:
# what does the bound say of those PRMs, what can five of them show, and what do PRMs whose quality
# is known, those of the embedded world, show?

# %%
import json
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

import theory
from cats_jax import world
from cats_jax.world import labels, measure, prms, sampling, task
from theory import estimators

logging.disable_progress_bar()
torch.set_num_threads(1)
plt.rcParams.update({"figure.dpi": 90, "axes.grid": True, "grid.alpha": 0.3, "font.size": 10})

# %% [markdown]
# ## What the bound says
#
# At $n = 800\,000$, $\delta = .05$ and the most favourable constant, $c = 1$ (for which the bound
# is false in general), the largest gap there can be is 1. The bound ranks the five by size, and
# the smallest model, which it likes best, has the largest test error.

# %%
NAMES = ("Math-Shepherd-7B", "RLHFlow-Mistral", "RLHFlow-DeepSeek", "Skywork-1.5B", "Qwen2.5-7B")
paper = {name: np.array(column) for name, column in estimators.PAPER_TABLE.items()}
bound = theory.sparsity_bound(
    paper["nonzero parameters"], paper["parameters"], num_samples=800_000, delta=0.05
)
for name, value, error in zip(NAMES, bound, paper["test error"], strict=True):
    print(f"{name:18} bound {value:6.1f}   test error {error:.2f}")

assert theory.is_vacuous_upper(bound).all()
assert np.allclose(bound, [312.86, 337.17, 337.17, 142.49, 315.85], atol=0.01)
assert np.argmin(bound) == np.argmax(paper["test error"])

# %% [markdown]
# ## What five rows can show
#
# Rank correlations with exact permutation p-values: all 120 orders are looked at. Two rows of the
# table are equal in every column, so there are four different PRMs, and with four the smallest
# p-value there is is $2/24 = .083$. Only the order of the last layers is used here.

# %%
error = paper["test error"]
distinct = [0, 1, 3, 4]
predictors = [name for name in paper if name != "test error"]
found = estimators.sparsity_against_error({name: paper[name] for name in predictors}, error)
print(f"{'predictor':28} {'Spearman':>9} {'p':>6} {'Kendall':>8} {'4 rows':>7} {'p':>6}")
for name in predictors:
    whole, tau = found[name]["spearman"], found[name]["kendall"]
    four = estimators.spearman(paper[name][distinct], error[distinct])
    print(
        f"{name:28} {whole.value:9.3f} {whole.p_value:6.3f} {tau.value:8.3f} "
        f"{four.value:7.2f} {four.p_value:6.3f}"
    )
    assert four.p_value > 0.08

assert found["last-layer sparsity, rank"]["spearman"].p_value < 0.05
for name in ("total sparsity", "nonzero parameters", "parameters"):
    assert found[name]["spearman"].p_value > 0.2
# The quantity in the bound is the one that is correlated least.
assert abs(found["nonzero parameters"]["spearman"].value) < 0.1

# %%
figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True)
for panel, name in zip(panels, predictors[1:], strict=True):
    panel.scatter(paper[name], error, color="C0", zorder=3)
    rho = found[name]["spearman"]
    panel.set(title=f"Spearman {rho.value:.2f}, p = {rho.p_value:.2f}", xlabel=name)
    for x, y, label in zip(paper[name], error, NAMES, strict=True):
        if label != "RLHFlow-DeepSeek":
            panel.annotate(label.split("-")[0], (x, y), fontsize=7, xytext=(4, 4),
                           textcoords="offset points")  # fmt: skip
    panel.margins(x=0.22, y=0.12)
panels[0].set_ylabel("test error (cross-entropy)")
figure.suptitle("The paper's table")
figure.tight_layout()

# %% [markdown]
# ## The embedded world's PRMs
#
# Six PRMs whose quality was measured on 250 questions: cross-entropy of exact step labels, how
# often they rank a right sibling above a wrong one (*pair*), and accuracy of best-of-64. Sparsity
# is counted here from the shipped files and must agree with what the world's build noted.

# %%
figures = json.loads((world.ASSETS / "world.json").read_text())["prms"]
names = list(figures)
assert set(names) == set(world.PRM_NAMES)
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
# Between PRMs everything differs. Within one, sparsity can be turned up by itself: the best PRM
# with ever more of its smallest weights set to zero. The bound falls all the way; the error rises.
# A proxy whose sign depends on where the sparsity came from is none by itself.

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
pruned = []
for share in shares:
    model = Qwen2ForCausalLM.from_pretrained(world.prm_path("exact"), dtype="float32").eval()
    if share:
        prms.prune(model, share)
    scores = np.concatenate(
        measure.score_paths(model, [(path.question, path.steps) for path in paths])
    )
    quality = estimators.prm_quality(
        scores, step_labels, units=questions, siblings=prefixes, num_resamples=200
    )
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
assert pair[-1, 2] < pair[0, 1]  # intervals apart: pruning did harm
assert (np.diff([row[2] for row in pruned]) < 0).all()  # while the bound improved at every step
assert min(row[2] for row in pruned) > 1  # and never said anything

# %% [markdown]
# ## What does say something of a PRM
#
# Labels it has not seen. The risk on held-out questions, the unit being the question, with a bound
# that holds for every model (`theory.holdout_bound`), at the price of the labels alone.

# %%
unpruned = Qwen2ForCausalLM.from_pretrained(world.prm_path("exact"), dtype="float32").eval()
scores = np.concatenate(
    measure.score_paths(unpruned, [(path.question, path.steps) for path in paths])
)
risk = estimators.estimate_risk(np.abs(scores - step_labels), units=questions)
limit = theory.holdout_bound(risk.value, num_samples=len(problems), delta=0.05)
print(
    f"risk {risk.value:.4f}; with 95 % confidence at most {limit:.3f} ({len(problems)} questions)"
)
assert risk.value <= limit < 0.2
