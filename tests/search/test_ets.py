"""ETS: the leaves against the published program by brute force, and whole searches with it."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import rebase
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import Bounds, LinearConstraint, milp

import search
from search import simulation
from search.strategy import ets_program
from search.strategy.dora import directed
from search.strategy.ets_program import Program, kept_leaves

# The published rule, in plain Python


def objective(kept, numbers, lines, clusters, lambdac, lambdas):
    """What the published program maximises, for a set of kept leaves.

    `lines` has the ancestors of each leaf, as any names that tell nodes apart.
    """
    branches = {node for line in lines for node in line}
    selected = {node for leaf in kept for node in lines[leaf]}
    weight = 1e-4 if lambdac == 0 else -lambdac
    cost = 1 / (len(branches) + len(lines))
    total = sum(numbers[leaf] / sum(numbers) + weight * cost for leaf in kept)
    total += weight * cost * len(selected)
    if lambdas > 0 and len(lines) > 1:
        covered = {clusters[leaf] for leaf in kept}
        total += lambdas / len(set(clusters)) * len(covered)
    return total


def best_objective(numbers, lines, clusters, lambdac, lambdas):
    leaves = range(len(lines))
    sets = (c for size in range(1, len(lines) + 1) for c in itertools.combinations(leaves, size))
    return max(objective(each, numbers, lines, clusters, lambdac, lambdas) for each in sets)


def assert_optimal(kept, numbers, lines, clusters, lambdac, lambdas):
    found = objective(kept, numbers, lines, clusters, lambdac, lambdas)
    best = best_objective(numbers, lines, clusters, lambdac, lambdas)
    assert found == pytest.approx(best, abs=1e-7)


def published_clusters(vectors, distance=0.05):
    """The call in the authors' code."""
    if len(vectors) == 1:
        return [0]
    tree = linkage(np.asarray(vectors, np.float64), method="average", metric="cosine")
    return fcluster(tree, distance, criterion="distance").tolist()


# The program

kept_of = jax.jit(kept_leaves, static_argnums=0)
clusters_of = jax.jit(ets_program.cluster, static_argnums=2)


@st.composite
def trees(draw):
    """Slots of the ancestors of each leaf by depth, REBASE's numbers, and vectors."""
    count, depth = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    slots, lines = 1, [()]
    for _ in range(depth):
        width = count if len(lines[0]) == depth - 1 else draw(st.integers(1, 5))
        parents = sorted(draw(st.integers(0, slots - 1)) for _ in range(width))
        lines, slots = [(*lines[parent], parent) for parent in parents], width
    scores = draw(st.lists(st.floats(0, 1, width=16), min_size=count, max_size=count))
    kinds = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return lines, rebase(scores, draw(st.integers(1, 16))), kinds


# The first two are at a cosine distance of .02, in one cluster.
DIRECTIONS = np.array([(1.0, 0.0, 0.0), (1.0, 0.203, 0.0), (0.0, 1.0, 0.0), (0.0, 0.6, 1.0)])


@settings(deadline=None, max_examples=60)
@given(trees(), st.sampled_from([0.0, 0.2, 1.0, 3.0]), st.sampled_from([0.0, 0.5, 1.5]))
def test_the_leaves_are_an_optimum_of_the_published_program(tree, lambdac, lambdas):
    lines, numbers, kinds = tree
    capacity, depths = 10, 6
    ancestors = np.full((capacity, depths), -1, np.int32)
    places = list(range(1, 1 + len(lines)))  # row 0 and the last ones are padding
    ancestors[places, : len(lines[0])] = lines
    vectors = np.full((capacity, 3), np.nan, np.float32)
    vectors[places] = DIRECTIONS[kinds]
    counts = np.full(capacity, 99, np.int32)
    counts[places] = numbers
    leaves = np.zeros(capacity, bool)
    leaves[places] = True
    kept, is_cut = kept_of(Program(lambdac, lambdas, 0.05), counts, ancestors, vectors, leaves)
    kept = np.asarray(kept)
    assert not is_cut
    assert not kept[~leaves].any()
    named = [list(enumerate(line)) for line in lines]
    clusters = published_clusters(DIRECTIONS[kinds])
    rows = np.flatnonzero(kept[places]).tolist()
    assert_optimal(rows, numbers, named, clusters, lambdac, lambdas)
    if lambdac == 0:
        assert kept[leaves].all()


@pytest.mark.parametrize("lambdas", [0.0, 0.5])
def test_branches_with_few_places_are_dropped(lambdas):
    """In deep trees a node above a leaf decides: without its cost other leaves are kept."""
    draw = np.random.default_rng(3)
    keep = functools.partial(kept_of, Program(3.0, lambdas, 0.05))
    for _ in range(25):
        lines, slots = [()], 1
        for width in (3, 4, 5, 7):
            parents = sorted(draw.integers(0, slots, width).tolist())
            lines, slots = [(*lines[parent], parent) for parent in parents], width
        numbers = rebase(draw.random(7).tolist(), 16)
        vectors = DIRECTIONS[draw.integers(0, 4, 7)].astype(np.float32)
        arguments = np.array(numbers), np.array(lines), vectors, np.ones(7, bool)
        kept = np.flatnonzero(keep(*arguments)[0]).tolist()
        named = [list(enumerate(line)) for line in lines]
        assert_optimal(kept, numbers, named, published_clusters(vectors), 3.0, lambdas)


def test_leaves_whose_clusters_cross_the_tree_are_an_optimum():
    """No leaf is decided at once: the program needs trials, and bounds that end them."""
    draw = np.random.default_rng(7)
    solve = jax.jit(ets_program.solve, static_argnums=0)
    for _ in range(20):
        lines = [(0, twig // 2, twig) for twig in range(5) for _ in range(2)]
        numbers = draw.integers(1, 4, len(lines), np.int32)
        clusters = draw.integers(0, 4, len(lines)).tolist()
        names = np.array([clusters.index(each) for each in clusters], np.int32)
        options = float(draw.choice([0.8, 1.5])), 1.2
        arguments = numbers, np.array(lines, np.int32), names, np.ones(len(lines), bool)
        kept = np.flatnonzero(solve(Program(*options, 0.05), *arguments).best).tolist()
        named = [list(enumerate(line)) for line in lines]
        assert_optimal(kept, numbers.tolist(), named, clusters, *options)


def test_a_leaf_is_replaced_only_by_one_that_adds_no_less():
    """The others have fewer places, another cluster, more places, or another parent."""
    lines = jnp.array([(0, 0), (0, 0), (0, 0), (0, 0), (0, 1)], jnp.int32)
    numbers, clusters = jnp.array([2, 1, 2, 3, 2]), jnp.array([0, 0, 2, 0, 0])
    leaves = jnp.ones(5, bool)
    terms = ets_program._terms(Program(1.0, 1.5, 0.05), numbers, lines, clusters, leaves)
    found = ets_program._replaceable(terms, jnp.int32(0))
    assert found.tolist() == [True, True, False, False, False]


def highs_objective(numbers, lines, clusters, lambdac, lambdas):
    """The largest objective, by an integer program of leaves, nodes and clusters."""
    nodes = sorted({node for line in lines for node in line})
    groups = sorted(set(clusters))
    leaves, cost = len(lines), lambdac / (len(lines) + len(nodes))
    size = leaves + len(nodes) + len(groups)
    gains = np.full(size, -cost)
    gains[:leaves] += np.array(numbers) / sum(numbers)
    gains[leaves + len(nodes) :] = lambdas / len(groups)
    rows = []
    for leaf, line in enumerate(lines):
        for node in line:
            rows.append(np.zeros(size))
            rows[-1][[leaf, leaves + nodes.index(node)]] = 1, -1
    for number, group in enumerate(groups):
        rows.append(np.zeros(size))
        rows[-1][leaves + len(nodes) + number] = 1
        rows[-1][[leaf for leaf in range(leaves) if clusters[leaf] == group]] = -1
    some = np.zeros((1, size))
    some[0, :leaves] = 1
    limits = [LinearConstraint(np.array(rows), -np.inf, 0), LinearConstraint(some, 1, np.inf)]
    found = milp(-gains, constraints=limits, integrality=np.ones(size), bounds=Bounds(0, 1))
    return -found.fun


def test_many_leaves_need_few_visits():
    """The objective is that of HiGHS. Payments that stay as they are need all visits."""
    draw, visits = np.random.default_rng(5), []
    solve = jax.jit(ets_program.solve, static_argnums=0)
    for _ in range(6):
        lines, slots = [()], 1
        for width in (4, 12, 40):
            parents = sorted(draw.integers(0, slots, width).tolist())
            lines, slots = [(*lines[parent], parent) for parent in parents], width
        numbers = draw.integers(0, 4, len(lines), np.int32)
        clusters = draw.integers(0, 12, len(lines)).tolist()
        names = np.array([clusters.index(each) for each in clusters], np.int32)
        arguments = numbers, np.array(lines, np.int32), names, np.ones(len(lines), bool)
        end = solve(Program(1.5, 1.45, 0.05), *arguments)
        kept = np.flatnonzero(end.best).tolist()
        named = [list(enumerate(line)) for line in lines]
        options = numbers.tolist(), named, clusters, 1.5, 1.45
        assert objective(kept, *options) == pytest.approx(highs_objective(*options), abs=3e-6)
        visits.append(int(end.num_visits))
    assert max(visits) < 300, visits


def test_padding_has_no_similarity():
    """With a large temperature rows of zeros would count as much as paths."""
    scores = jnp.array([9.0, 1.0, 0.5, 0.0, 9.0])
    valid = jnp.array([False, True, True, True, False])
    similarities = jnp.eye(5) + 0.5 * (1 - jnp.eye(5))
    found = np.asarray(directed(scores, similarities, valid))
    weights = np.exp([1.0, 0.5, 0.0])
    assert found.tolist() == pytest.approx([0.0, *(weights / weights.sum()), 0.0], rel=1e-5)
    unlike = similarities.at[1, 2].set(0.9).at[2, 1].set(0.9)
    unique = 1 / (1 + np.exp(np.array([-0.1, -0.1, -0.5])) + np.exp(-0.5))
    found = np.asarray(directed(scores, unlike, valid))[1:4]
    assert found.tolist() == pytest.approx(
        (weights * unique / (weights @ unique)).tolist(), rel=1e-5
    )


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**16), st.sampled_from([0.05, 0.4, 0.9]))
def test_clusters_are_those_of_the_published_call(seed, distance):
    vectors = np.random.default_rng(seed).normal(size=(9, 3)).astype(np.float32)
    found = np.asarray(clusters_of(vectors, np.ones(9, bool), distance))
    expected = np.array(published_clusters(vectors, distance))
    same = found[:, None] == found[None, :]
    np.testing.assert_array_equal(same, expected[:, None] == expected[None, :])
    assert [np.flatnonzero(found == name).min() for name in found] == found.tolist()


def test_a_vector_of_zeros_is_like_no_other():
    vectors = np.array([(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)], np.float32)
    assert clusters_of(vectors, np.ones(3, bool), 0.05).tolist() == [0, 1, 1]


def test_after_too_many_visits_the_best_leaves_so_far_are_kept(monkeypatch):
    monkeypatch.setattr(ets_program, "MAX_VISITS", 0)
    lines = [(0, 0), (0, 1), (0, 2)]
    arguments = np.array([1, 3, 2]), np.array(lines), DIRECTIONS[[0, 2, 2]], np.ones(3, bool)
    keep = jax.jit(lambda *leaves: kept_leaves(Program(1.0, 1.5, 0.05), *leaves))
    kept, is_cut = keep(*arguments)
    assert (kept.tolist(), bool(is_cut)) == ([False, True, False], True)


# Searches


def record(memory, tick):
    before, request = tick.before, tick.plan.request
    return memory, {
        "leaves": before.frontier.valid,
        "parent": before.frontier.parent,
        "scores": before.frontier.step_scores,
        "depth": before.frontier.depth,
        "vectors": before.frontier.vector,
        "finished": before.finished.valid,
        "numbers": request.num_samples,
        "active": tick.output.active,
    }


RECORDER = search.Recorder(init=lambda state: (), record=record)
PARAMS = simulation.toy_params(num_steps=(4,), invalid=0.1, lucky=0.2, max_depth=4)


SIZES = ((7, 28), (7, 28), (5, 20), (6, 11), (1, 4))
"""N and budget of the searches of a batch."""
DISTANCE = 0.5


def question(key, num_candidates, budget, strategy):
    task = simulation.question(PARAMS, key, 0, 0)
    state = search.init(
        task.root,
        strategy=strategy,
        num_candidates=num_candidates,
        budget=budget,
        max_depth=4,
        capacity=8,
        depth_capacity=4,
    )
    return task, state


@functools.cache
def searches(strategy):
    """Searches with several questions, N and budgets in one program, which is traced once."""

    @functools.partial(chex.assert_max_traces, n=1)
    def run(keys, num_candidates, budgets):
        def one(key, number, budget):
            task, state = question(key, number, budget, strategy)
            return search.rollout(
                (),
                task.params,
                key,
                state,
                strategy=strategy,
                expand_fn=simulation.simulator(8),
                recorder=RECORDER,
            )

        return jax.vmap(one)(keys, num_candidates, budgets)

    return jax.jit(run)


def assert_published(ticks, num_candidates, strategy_options):
    """Each request is REBASE's on leaves that are optimal, in the tree that the parents give."""
    lines = {0: []}
    for tick in range(len(ticks["active"])):
        at = {name: leaf[tick] for name, leaf in ticks.items()}
        rows = np.flatnonzero(at["leaves"]).tolist()
        if tick > 0:
            # The parents are rows of the step before.
            lines = {
                row: [*lines[at["parent"][row]], (tick - 1, at["parent"][row])] for row in rows
            }
        if not at["active"]:
            assert not at["numbers"].any()
            return
        scores = [float(at["scores"][row, tick - 1]) if tick else 0.0 for row in rows]
        places = num_candidates - int(at["finished"].sum())
        shares = rebase(scores, places)
        kept = [row for row in rows if at["numbers"][row] > 0]
        if len(rows) > 1:
            clusters = published_clusters(at["vectors"][rows], DISTANCE)
            arguments = shares, [lines[row] for row in rows], clusters, *strategy_options
            # A leaf that is kept may get no place; it is added where that is no loss.
            found = [rows.index(row) for row in kept]
            best = best_objective(*arguments)
            without = [i for i in range(len(rows)) if i not in found]
            extended = (
                [*found, *more]
                for size in range(len(without) + 1)
                for more in itertools.combinations(without, size)
            )
            fits = [
                each
                for each in extended
                if objective(each, *arguments) >= best - 1e-7
                and served(scores, each, places) == [int(at["numbers"][row]) for row in rows]
            ]
            assert fits
        else:
            assert at["numbers"][rows[0]] == places


def served(scores, kept, places):
    """REBASE over the kept leaves alone."""
    kept = sorted(kept)
    numbers = dict(zip(kept, rebase([scores[i] for i in kept], places), strict=True))
    return [numbers.get(i, 0) for i in range(len(scores))]


def test_searches_follow_the_publication_in_one_program():
    strategy = search.methods.ets(cluster_distance=DISTANCE)
    run = searches(strategy)
    pruned = 0
    for seed in (0, 1):
        keys = jax.random.split(jax.random.key(seed), len(SIZES))
        numbers, budgets = map(jnp.int32, zip(*SIZES, strict=True))
        final, ticks = jax.device_get(run(keys, numbers, budgets))
        for index, (number, budget) in enumerate(SIZES):
            own = {name: leaf[index] for name, leaf in ticks.items()}
            assert final.spent[index] <= budget
            assert own["numbers"].sum(axis=1).max() <= number
            if budget == 4 * number:  # otherwise the budget cuts the numbers of the last step
                own["vectors"] = own["vectors"].astype(np.float64)
                assert_published(own, number, (1.0, 1.5))
            pruned += int(((own["numbers"] == 0) & own["leaves"] & own["active"][:, None]).sum())
    assert pruned > 0


def test_without_the_cluster_term_no_vectors_are_read():
    assert search.methods.ets().needs_vectors
    assert not search.methods.ets(lambdas=0.0).needs_vectors


def test_the_host_loop_is_the_graph_s():
    strategy = search.methods.ets(cluster_distance=DISTANCE)
    key = jax.random.split(jax.random.key(0), len(SIZES))[0]
    task, state = question(key, 7, 28, strategy)
    plan = jax.jit(functools.partial(search.plan, strategy=strategy))
    commit = jax.jit(functools.partial(search.commit, strategy=strategy))
    expand = jax.jit(simulation.simulator(8))
    for tick in range(4):
        plan_key, expand_key = search.tick_keys(key, tick)
        planned = plan((), plan_key, state)
        state, _ = commit(state, planned, expand(task.params, expand_key, planned.request))
    numbers, budgets = map(jnp.int32, zip(*SIZES, strict=True))
    final, _ = searches(strategy)(jax.random.split(jax.random.key(0), len(SIZES)), numbers, budgets)
    alone = jax.tree.map(lambda leaf: leaf[0], final)
    for mine, other in zip(jax.tree.leaves(state), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(other), atol=1e-6)
