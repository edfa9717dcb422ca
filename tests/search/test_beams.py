"""Forms of beam search against the published rules, in plain Python on trees of texts.

A tree is a function: the text of a sample follows from the path and the sample's number, the score
and the end follow from the texts. Equal texts therefore have equal continuations. The scores of
different texts differ. The literal searches are written from the authors' code and know nothing of
the loop; `test_loop` compares the loop with the oracle in every field.
"""

import dataclasses
import functools
import random
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import search_script as script

import search

DEPTH = script.DEPTH_CAPACITY


@dataclasses.dataclass
class Tree:
    """What a policy writes and a PRM says; a node is the tuple of the texts of its path."""

    seed: int
    texts: int = 5
    p_done: float = 0.0
    sampled: int = 0

    def child(self, node, number):
        """The node below `node` of sample `number`; -1 is the greedy one."""
        self.sampled += 1
        return (*node, random.Random(f"{self.seed} {node} {number}").randrange(self.texts))

    def score(self, node):
        return random.Random(f"score {self.seed} {node}").randrange(2**20) / 2**20

    def done(self, node):
        chance = random.Random(f"end {self.seed} {node}").random()
        return len(node) == DEPTH or chance < self.p_done

    def answer(self, node):
        """A class of equal answers, -1 for none."""
        return random.Random(f"answer {self.seed} {node}").randrange(-1, 9)


STRATEGIES = {
    "beam": search.beam(unique=True, path_score="last"),
    **{name: script.STRATEGIES[name][0] for name in ("step_level_beam", "vg_search", "lookahead")},
}


def _programs(name):
    return script.programs(name) if name != "beam" else _of_beam()


@functools.cache
def _of_beam():
    def commit(memory, state, plan, out):
        return *search.commit(state, plan, out, strategy=STRATEGIES["beam"]), memory

    plan = functools.partial(search.plan, strategy=STRATEGIES["beam"])
    answer = functools.partial(search.answer, (), strategy=STRATEGIES["beam"])
    return types.SimpleNamespace(plan=jax.jit(plan), commit=jax.jit(commit), answer=jax.jit(answer))


def played(name, tree, num_candidates, budget=10**4):
    """The beams after every step, the finished nodes, the answer's node, candidates and scored."""
    strategy, programs = STRATEGIES[name], _programs(name)
    case = script.Case(num_candidates=num_candidates, budget=budget)
    state, params = script.first_state(strategy, case), script.params(case)
    nodes, beams, scored = [()] * 6, [], set()  # the question has the id 5
    while not search.is_terminal(state):
        plan = jax.device_get(programs.plan(params, case.key, state))
        request = plan.request
        out = script.host_expand(case, 0, request.replace(num_samples=0 * request.num_samples))
        row = 0
        for slot, number in enumerate(request.num_samples.tolist()):
            parent = nodes[int(request.embedding["id"][slot])]
            greedy = request.temperature[slot] == 0
            for index in range(number):
                node = tree.child(parent, -1 if greedy else index)
                out.valid[row], out.parent[row] = True, slot
                out.score[row], out.done[row] = tree.score(node), tree.done(node)
                out.answer[row] = tree.answer(node) if tree.done(node) else -1
                out.text[row], out.num_tokens[row] = node[-1], 1
                out.embedding["id"][row] = len(nodes)
                nodes.append(node)
                if request.scored[slot] or (request.score_ends[slot] and tree.done(node)):
                    scored.add(node)
                row += 1
        state, _, _ = jax.device_get(programs.commit((), state, plan, out))
        beams.append(sorted(_nodes(nodes, state.frontier)))
    answer = int(programs.answer(state))
    finished = _nodes(nodes, state.finished)
    return beams, finished, None if answer < 0 else finished[answer], int(state.spent), scored


def _nodes(nodes, paths):
    return [nodes[int(row)] for row in paths.embedding["id"][paths.valid]]


def search_and_learn(tree, n, beam_width, num_iterations, *, g=1, unique=False):
    """Beam search of search-and-learn, with the steps between verifications of VG-Search.

    Only for trees in which all paths end together: finished paths are not at issue.
    """
    beams, kept, scored = [()], [], set()
    for iteration in range(num_iterations):
        if iteration > 0:
            for _ in range(g - 1):
                beams = [tree.child(beam, 0) for beam in beams]
                kept.append(sorted(beams))
            if tree.done(beams[0]):
                scored |= set(beams)
                break
        repeated = (beams * (n // len(beams) + 1))[:n]
        times = [repeated[:i].count(beam) for i, beam in enumerate(repeated)]
        beams = [tree.child(beam, time) for beam, time in zip(repeated, times, strict=True)]
        scored |= set(beams)
        if tree.done(beams[0]):
            break
        if unique:
            beams = list(dict.fromkeys(beams))
        top = np.argsort([tree.score(beam) for beam in beams])[-(n // beam_width) :]
        beams = [beams[i] for i in sorted(top)]
        kept.append(sorted(beams))
    answered = [beam for beam in beams if tree.answer(beam) >= 0]
    return kept, max(answered, key=tree.score, default=None), scored


def tree_of_thoughts(tree, samples, selected, steps):
    """The breadth-first search of tree of thoughts: `solve` with `get_values` and "greedy".

    `samples` has the number of samples of a path in each step. A repeated text has the value 0.
    """
    paths, kept = [()], []
    for step in range(steps):
        new, times = [], {}
        for path in paths:
            for _ in range(samples[step]):
                times[path] = times.get(path, -1) + 1
                new.append(tree.child(path, times[path]))
        seen, values = set(), []
        for path in new:
            values.append(0 if path in seen else tree.score(path))
            seen.add(path)
        order = sorted(range(len(new)), key=lambda i: values[i], reverse=True)
        paths = [new[i] for i in order[:selected]]
        kept.append(sorted(paths))
    return kept, paths


def step_beam(tree, b1, b2):
    """AlphaMath's step-level beam search: `select_next_step` and `generate_next_step`."""
    top_num, finals, current, kept = b1, [], [()], []
    for step in range(DEPTH):
        candidates = []
        for node in current:
            numbers = range(b1 * b2 if step == 0 else b2)
            candidates += dict.fromkeys(tree.child(node, number) for number in numbers)
        current = sorted(candidates, key=tree.score, reverse=True)[:top_num]
        for node in list(current):
            if tree.done(node):
                finals += [node] if tree.answer(node) >= 0 else []
                current.remove(node)
                top_num -= 1
        kept.append(sorted(current))
        if not current:
            break
    return kept, finals, max(finals, key=tree.score, default=None)


def look_ahead(tree, n, beam_width, k):
    """Each candidate has the score of the end of its rollout; the best take the free places.

    `n` candidates in each step, and their rollouts.
    """
    beams, finished, kept = [()], [], []
    while beams:
        each = n if beams == [()] else n // beam_width
        value = {}
        for node in [tree.child(beam, i) for beam in beams for i in range(each)]:
            end = node
            for _ in range(k):
                if not tree.done(end):
                    end = tree.child(end, -1)
            value.setdefault(node, []).append(tree.score(end))
        candidates = [node for node, values in value.items() for _ in values]
        candidates.sort(key=lambda node: -value[node][0])
        best = candidates[: beam_width - len(finished)]
        finished += [node for node in best if tree.done(node)]
        beams = [node for node in best if not tree.done(node)]
        kept.append(sorted(beams))
    answered = [node for node in finished if tree.answer(node) >= 0]
    return kept, sorted(finished), max(answered, key=tree.score, default=None)


@pytest.mark.parametrize("seed", range(4))
def test_beam_search_over_distinct_steps_is_the_published_one(seed):
    beams, finished, _, spent, _ = played("beam", Tree(seed), 16)
    kept, _, _ = search_and_learn(Tree(seed), 16, 4, DEPTH, unique=True)
    assert beams[:-1] == kept
    assert len(set(finished)) == len(finished) == 4
    assert spent == 16 * DEPTH  # the dropped ones are paid for


@pytest.mark.parametrize("seed", range(4))
def test_tree_of_thoughts_is_beam_search_over_distinct_steps(seed):
    """Its values are scores of the newest step. Each step here has enough distinct texts."""
    beams, finished, answer, _, scored = played("beam", Tree(seed), 16)
    tree = Tree(seed)
    kept, paths = tree_of_thoughts(tree, [16] + [4] * (DEPTH - 1), 4, DEPTH)
    assert beams[:-1] == kept[:-1]
    assert sorted(finished) == kept[-1]
    assert {path for path in scored if len(path) == DEPTH} >= set(paths)
    # The authors return all selected paths; ours answers with the first one that has an answer.
    assert answer == next((path for path in paths if tree.answer(path) >= 0), None)


@pytest.mark.parametrize("seed", range(4))
def test_vg_search_is_the_published_one(seed):
    beams, _, answer, _, scored = played("vg_search", Tree(seed, texts=99), 16)
    tree = Tree(seed, texts=99)
    kept, best, asked = search_and_learn(tree, 16, 4, DEPTH, g=2)
    assert beams[:-1] == kept
    assert scored == asked
    # Theirs answers with the best of all 16 ends, here the best four have places.
    ends = sorted((node for node in scored if len(node) == DEPTH), key=tree.score)[-4:]
    answered = [node for node in ends if tree.answer(node) >= 0]
    assert answer == max(answered, key=tree.score, default=None)
    assert best == answer or tree.answer(ends[-1]) < 0


def test_paths_that_end_between_two_verifications_are_scored():
    between = 0
    for seed in range(6):
        tree = Tree(seed, texts=99, p_done=0.3)
        _, finished, _, _, scored = played("vg_search", tree, 16)
        assert all(len(node) % 2 == 1 or tree.done(node) for node in scored)
        assert set(finished) <= scored
        between += sum(len(node) % 2 == 0 for node in finished)
    assert between > 3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("b1", [1, 3, 5])
def test_step_level_beam_search_is_the_published_one(seed, b1):
    tree = Tree(seed, p_done=0.2)
    beams, finished, answer, spent, _ = played("step_level_beam", tree, 3 * b1 + 1)
    published = Tree(seed, p_done=0.2)
    kept, finals, best = step_beam(published, b1, 3)
    assert beams == kept
    assert sorted(node for node in finished if tree.answer(node) >= 0) == sorted(finals)
    assert answer == best
    assert spent == tree.sampled == published.sampled


def test_every_path_of_a_wide_step_level_beam_has_children():
    """Eight paths and N = 16: two children each, although B2 = 3."""
    case = script.Case(width=8, p_done=0.0, p_invalid=0.0)
    state, params = script.first_state(STRATEGIES["step_level_beam"], case), script.params(case)
    rollout = script.programs("step_level_beam").rollout
    numbers = np.asarray(rollout(params, params, case.key, state)[1].output.num_samples)
    assert numbers[0].sum() == 16
    assert set(np.unique(numbers[1:])) == {0, 2}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("p_done", [0.0, 0.3])
def test_look_ahead_search_is_the_published_one(seed, p_done):
    tree = Tree(seed, texts=99, p_done=p_done)
    beams, finished, answer, spent, _ = played("lookahead", tree, 16)
    published = Tree(seed, texts=99, p_done=p_done)
    # A step of 5 candidates costs 5 * (1 + 2), at most N = 16.
    kept, finals, best = look_ahead(published, 5, 2, 2)
    depths = [len(beam[0]) if beam else 0 for beam in kept]
    # Of the loop's steps, those that end with the beam of the literal search, in its order.
    rest = iter(beams)
    assert all(beam in rest for beam in kept), depths
    assert sorted(finished) == finals
    assert answer == best
    assert spent == tree.sampled == published.sampled
    if p_done == 0.0:  # the rollouts of the last two steps are shorter
        assert spent == 5 * 3 + 4 * (3 + 3 + 2 + 1)


@pytest.mark.parametrize("budget", [7, 18, 29, 40])
def test_a_spent_budget_leaves_no_rollout_behind(budget):
    tree = Tree(1, texts=99, p_done=0.3)
    beams, finished, _, spent, _ = played("lookahead", tree, 16, budget)
    assert spent <= budget
    assert len(beams[-1]) + len(finished) <= 2
    for node in finished:  # sampled, never greedy
        for depth in range(DEPTH):
            greedy = Tree(1, texts=99).child(node[:depth], -1)
            assert node[: depth + 1] != greedy or depth >= len(node)


@pytest.mark.parametrize("num_candidates", [1, 4, 16])
def test_look_ahead_search_answers_within_the_usual_budget(num_candidates):
    for seed in range(4):
        tree, usual = Tree(seed, texts=99), num_candidates * DEPTH
        _, finished, _, spent, _ = played("lookahead", tree, num_candidates, usual)
        assert finished
        assert all(len(node) == DEPTH for node in finished)
        assert spent <= usual
        if num_candidates < 6:  # one candidate in a step is not rolled out
            assert spent == DEPTH


def test_without_look_ahead_it_is_beam_search():
    beam = search.beam(expansion=3, path_score="last", vote="best", sampling=search.Sampling())
    found = search.methods.lookahead(lookahead=0, expansion=3)
    assert dataclasses.replace(found, name="beam") == beam


def test_with_a_verification_at_every_step_it_is_beam_search():
    """All that a strategy is: the same facts, and functions with the same results, bit for bit."""
    beam, found = search.beam(path_score="last"), search.methods.vg_search(granularity=1)
    for field in dataclasses.fields(beam):
        if field.name not in ("name", "plan", "keep", "width"):
            assert getattr(found, field.name) == getattr(beam, field.name)
    case = script.Case(num_candidates=9, seed=3)
    states = [script.first_state(beam, case)]
    rows = np.arange(script.CAPACITY)
    grown = states[0].pool.replace(
        valid=jnp.asarray(rows % 3 != 1),
        done=jnp.asarray(rows % 4 == 2),
        depth=jnp.full(rows.shape, 3, jnp.int32),
        step_scores=jnp.asarray(np.random.default_rng(0).random((16, DEPTH)), jnp.float32),
    )
    states.append(states[0].replace(step=jnp.int32(2), pool=grown, frontier=grown))
    for state in states:
        asked, memory = found.plan((), case.key, state)
        expected = beam.plan((), case.key, state)
        # All children are scored, so that those that end are scored anyway.
        asked = asked.replace(score_ends=expected[0].score_ends)
        script.assert_identical((asked, memory), expected)
        script.assert_identical(found.keep(state), beam.keep(state))
    assert [found.width(n) for n in (1, 9, 16)] == [beam.width(n) for n in (1, 9, 16)]
