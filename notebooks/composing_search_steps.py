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
# # Composing jitted search steps
#
# A tree search over reasoning steps is three functions:
#
# ```
# plan(params, key, state)       -> Plan            pure, jitted
# expand(params, key, request)   -> Expansion       language model + PRM, or a simulator
# commit(state, plan, expansion) -> state, output   pure, jitted
# ```
#
# Here they are put together by hand, then with `lax.scan` and `vmap` around a simulator that was
# fitted to the embedded world, and then with parts of our own: another PRM, another controller.
# No language model runs in this notebook.

# %%
import functools

import chex
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import search
from cats_jax.world.simulator import load_simulator, simulator_names
from search import simulation

plt.rcParams.update({"figure.dpi": 80, "axes.grid": True, "grid.alpha": 0.3, "font.size": 10})

world = load_simulator()
names = simulator_names()
CAPACITY, DEPTH = 16, 10
print("PRMs:", ", ".join(names["prms"]), "| levels:", names["levels"])

# %% [markdown]
# ## One search by hand
#
# A question of level 3, scored by the PRM `exact`, searched by a beam with $N=8$ candidates per
# step of which two paths are kept.

# %%
EXACT, LEVEL = names["prms"].index("exact"), 2  # level 3: the tables count from 0
task = simulation.question(world, jax.random.key(3), level=LEVEL, prm=EXACT)
strategy = search.beam(expansion=4)
expand = simulation.simulator(CAPACITY)
plan = jax.jit(functools.partial(search.plan, strategy=strategy))
commit = jax.jit(functools.partial(search.commit, strategy=strategy))
expand_jit = jax.jit(expand)

first = search.init(
    task.root,
    strategy=strategy,
    num_candidates=8,
    max_depth=task.max_depth,
    context=task.context,
    capacity=CAPACITY,
    depth_capacity=DEPTH,
)
key, state = jax.random.key(0), first
for tick in range(DEPTH):
    if search.is_terminal(state):
        break
    plan_key, expand_key = search.tick_keys(key, tick)
    planned = plan((), plan_key, state)
    expansion = expand_jit(task.params, expand_key, planned.request)
    state, output = commit(state, planned, expansion)
    asked = int(planned.request.num_samples.sum())
    best = float(jnp.max(jnp.where(expansion.valid, expansion.score, 0.0)))
    finished, open_paths = int(state.finished.valid.sum()), int(state.frontier.valid.sum())
    print(
        f"step {tick}: {asked} candidates, best score {best:.2f}, "
        f"{open_paths} paths open, {finished} finished"
    )
    assert asked <= 8
    assert finished + open_paths <= 2
by_hand = state
row = int(search.answer((), by_hand, strategy=strategy))
print("right answer found:", bool(by_hand.finished.answer[row] == task.right_answer))
assert search.is_terminal(by_hand)

# %% [markdown]
# ## The same, as one program
#
# `search.rollout` scans the very same functions. The result is the same state, field by field and
# bit by bit, which is what lets a controller be trained in the simulator and used around real
# models.

# %%
rollout = jax.jit(
    functools.partial(search.rollout, strategy=strategy, expand_fn=expand),
)
in_graph, outputs = rollout((), task.params, key, first)
chex.assert_trees_all_equal(in_graph, by_hand)
print("ticks that did something:", int(outputs.active.sum()), "of", outputs.active.shape[0])

# %% [markdown]
# ## Many questions, every N, one compilation
#
# $N$, width, depth and budget are numbers in the state, not shapes. So one compiled program serves
# every $N$; `search.play` runs many questions side by side. Keys come from the question, so
# strategies meet the same questions.

# %%
QUESTIONS = 1024
traces = {"count": 0}


def make_accuracy(strategy, make_expand=lambda setting: expand):
    """`(key, N, level, prm, params, setting) -> (accuracy, candidates per question)`, jitted."""

    @jax.jit
    def accuracy(key, num_candidates, level, prm, params=(), setting=None):
        traces["count"] += 1  # runs when JAX traces, not when the program runs

        def begin(key):
            question_key, search_key = jax.random.split(key)
            task = simulation.question(world, question_key, level, prm)
            state = search.init(
                task.root,
                strategy=strategy,
                num_candidates=num_candidates,
                max_depth=task.max_depth,
                context=task.context,
                capacity=CAPACITY,
                depth_capacity=DEPTH,
            )
            return task, search_key, state

        def is_right(task, final):
            row = search.answer(params, final, strategy=strategy)
            return (row >= 0) & (final.finished.answer[row] == task.right_answer)

        tasks, keys, states = jax.vmap(begin)(jax.random.split(key, QUESTIONS))
        finals, _ = search.play(
            params, tasks.params, keys, states, strategy=strategy, expand_fn=make_expand(setting)
        )
        return jnp.mean(jax.vmap(is_right)(tasks, finals)), jnp.mean(finals.spent)

    return accuracy


sizes = (1, 2, 4, 8, 16)
shown = ("exact", "monte-carlo", "labels-only")
strategies = {
    "majority": search.majority(),
    "best of N": search.best_of_n(),
    "beam": search.beam(expansion=4),
}
results = {}
for name, chosen in strategies.items():
    accuracy = make_accuracy(chosen)
    before = traces["count"]
    for prm in shown:
        index = jnp.int32(names["prms"].index(prm))
        results[name, prm] = np.array(
            [accuracy(jax.random.key(1), jnp.int32(n), LEVEL, index) for n in sizes]
        )  # [N, (accuracy, spent)]
    assert traces["count"] == before + 1  # one trace, whatever N and PRM
print(len(results) * len(sizes) * QUESTIONS, "searches")

figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True)
for panel, prm in zip(panels, shown, strict=True):
    for name in strategies:
        right, spent = results[name, prm].T
        panel.semilogx(spent, right, "o-", markersize=3, label=name, base=2)
    panel.set(title=f"PRM: {prm}", xlabel="candidates per question")
panels[0].set_ylabel("accuracy, level 3")
panels[0].legend(fontsize=8)
figure.tight_layout()

# A PRM that verifies makes use of more candidates; one that knows labels only does not.
beam, beam_labels_only = results["beam", "exact"][:, 0], results["beam", "labels-only"][:, 0]
assert beam[-1] > beam[0] + 0.1
assert beam[-1] > beam_labels_only[-1] + 0.1
# Majority reads no scores: the PRM makes no difference to it.
assert (results["majority", "exact"] == results["majority", "labels-only"]).all()

# %% [markdown]
# ## Another PRM
#
# Any function with the signature of `expand` can be used in its place. Here a share `blur` of the
# simulator's scores is replaced by uniform random numbers. The search itself does not change; its
# accuracy does.


# %%
def blurred(blur):
    """The simulator, with a share `blur` of its scores replaced by noise."""

    def expand_fn(params, key, request):
        expansion = expand(params, key, request)
        which, noise = jax.random.split(jax.random.fold_in(key, 1))
        shape = expansion.score.shape
        replaced = jax.random.bernoulli(which, blur, shape)
        scores = jnp.where(replaced, jax.random.uniform(noise, shape), expansion.score)
        return expansion.replace(score=jnp.where(expansion.valid, scores, expansion.score))

    return expand_fn


curves = {0.0: results["best of N", "exact"][:, 0]}
accuracy = make_accuracy(search.best_of_n(), blurred)
for blur in (0.3, 1.0):
    curves[blur] = np.array(
        [accuracy(jax.random.key(1), jnp.int32(n), LEVEL, EXACT, (), blur)[0] for n in sizes]
    )
figure, panel = plt.subplots(figsize=(5.4, 3.4))
for blur, curve in curves.items():
    panel.semilogx(sizes, curve, "o-", markersize=4, label=f"blur {blur:g}", base=2)
panel.set(xlabel="N", ylabel="accuracy of best of N, level 3")
panel.legend(fontsize=8)
figure.tight_layout()

assert curves[0.0][-1] > curves[0.3][-1] > curves[1.0][-1]
# A PRM that only guesses is worth one candidate, however many are drawn.
assert abs(curves[1.0][-1] - curves[1.0][0]) < 0.1

# %% [markdown]
# ## Another controller
#
# In a CATS search a policy observes the features of each node and picks an action: how many more
# candidates, sampled how, and how many to keep. Any function with that signature will do. This one
# looks at a single number, the best score among a node's children, and asks for more only where it
# is low. (With this many questions, differences of accuracy below some .04 are chance.)

# %%
actions = search.cats.ActionTable.product(
    num_extra=(0, 2, 6), num_retain=(2,), temperature=(1.0,), top_p=(1.0,)
)
config = search.cats.CatsConfig(rounds=1, num_base=2, actions=actions)
MAX_SCORE = search.cats.FEATURE_NAMES.index("max")


def threshold_policy(params, key, observation):
    """Sample 6 more where the best score is below `params`, else none."""
    del key
    below = observation.features[:, MAX_SCORE] < params
    wanted = jnp.where(below, 2, 0).astype(jnp.int32)
    action = jnp.where(observation.legal[wanted], wanted, 0)
    return action, jnp.zeros(action.shape, jnp.float32)


controller = search.cats.cats(threshold_policy, config)
fixed = search.cats.cats(search.cats.constant_policy, config)
figure, panel = plt.subplots(figsize=(5.8, 3.6))
points = {}
for label, chosen, settings in (
    ("threshold on the best score", controller, [jnp.float32(x) for x in (0, 0.3, 0.6, 0.9, 1)]),
    ("the same for every node", fixed, [jnp.int32(x) for x in (0, 1, 2)]),
):
    accuracy = make_accuracy(chosen)
    points[label] = np.array(
        [
            accuracy(jax.random.key(1), jnp.int32(CAPACITY), LEVEL, EXACT, setting)
            for setting in settings
        ]
    )
    panel.plot(points[label][:, 1], points[label][:, 0], "o-", label=label)
right, spent = results["beam", "exact"][2:].T
panel.plot(spent, right, "s--", label="beam, N = 4 to 16", color="gray")
panel.set(xlabel="candidates per question", ylabel="accuracy, level 3, PRM exact")
panel.legend(fontsize=8)
figure.tight_layout()
for label, values in points.items():
    print(label, np.round(values.astype(float), 3).tolist())

# The two ends are the same policies, so the same searches: never more, always six more.
adaptive, constant = points.values()
assert np.array_equal(adaptive[0], constant[0])
# A higher threshold asks for more.
assert (np.diff(adaptive[:, 1]) >= 0).all()
# As accurate as two more candidates for everybody, with a tenth fewer candidates.
assert adaptive[1, 0] > constant[1, 0] - 0.01
assert adaptive[1, 1] < 0.9 * constant[1, 1]

# %% [markdown]
# ## What to take away
#
# * The search itself has no language model in it: `plan` and `commit` are pure, and what happens
#   between them is a function you can replace.
# * One compilation serves every $N$, and one program every question: thousands of searches in
#   seconds.
# * PRMs, controllers and strategies compose without touching the loop. `cats_jax.Searcher` puts
#   the same functions around Hugging Face models; `learners.make_train` trains the controller.
