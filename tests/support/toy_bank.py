"""A small step bank of random trees."""

import functools

import jax.numpy as jnp
import numpy as np

import search
from search import bank

SETTINGS = ((0.0, 1.0, 0), (0.6, 1.0, 0), (1.0, 1.0, 0))
DEPTH = 3


@functools.cache
def toy_bank(seed=0, questions=4, prms=2):
    """Random trees of three steps; children of a node are consecutive, draws random."""
    rng = np.random.default_rng(seed)
    rows = {
        name: [] for name in ("done", "invalid", "answer", "text", "log_prob", "tokens", "score")
    }
    lists, roots = {}, []

    def add(**values):
        for name, value in values.items():
            rows[name].append(value)
        return len(rows["done"]) - 1

    def node(text=0, *, done=False, invalid=False, score=None):
        return add(
            done=done,
            invalid=invalid,
            answer=int(rng.integers(-1, 3)) if done else -1,
            text=text,
            log_prob=-float(rng.random()),
            tokens=int(rng.integers(1, 9)),
            score=rng.random(prms) * (not invalid) if score is None else score,
        )

    def grow(parents, depth):
        children = []
        for parent in parents:
            own = []
            for text in range(rng.integers(1, 5)):
                kind = rng.random()
                invalid = kind < 0.1
                done = not invalid and (depth == DEPTH - 1 or kind > 0.8)
                own.append(node(text, done=done, invalid=invalid))
            # A second way to end of the last text.
            if depth < DEPTH - 1 and not rows["invalid"][own[-1]] and not rows["done"][own[-1]]:
                own.append(node(rows["text"][own[-1]], done=True, score=rows["score"][own[-1]]))
            for setting in range(len(SETTINGS)):
                size = 1 if setting == 0 else rng.integers(1, 9)
                lists[parent, setting] = rng.choice(own, size).tolist()
            children += [c for c in own if not rows["done"][c] and not rows["invalid"][c]]
        return children

    for _ in range(questions):
        frontier = [node()]
        roots += frontier
        for depth in range(DEPTH):
            frontier = grow(frontier, depth)
    size = len(rows["done"])
    cells = [lists.get((v, s), []) for v in range(size) for s in range(len(SETTINGS))]
    temperature, top_p, top_k = zip(*SETTINGS, strict=True)
    return bank.Bank(
        root=jnp.asarray(roots, jnp.int32),
        level=jnp.arange(questions, dtype=jnp.int32),
        prompt_tokens=jnp.full((questions, prms), 7, jnp.int32),
        first_draw=jnp.asarray(np.cumsum([0, *map(len, cells)]), jnp.int32),
        drawn=jnp.asarray([row for cell in cells for row in cell], jnp.int32),
        invalid=jnp.asarray(rows["invalid"]),
        done=jnp.asarray(rows["done"]),
        answer=jnp.asarray(rows["answer"], jnp.int32),
        text=jnp.asarray(rows["text"], jnp.int32),
        log_prob=jnp.asarray(rows["log_prob"], jnp.float32),
        num_tokens=jnp.asarray(rows["tokens"], jnp.int32),
        score=jnp.asarray(np.array(rows["score"]), jnp.float32),
        prm_tokens=jnp.asarray(rng.integers(1, 20, (size, prms)), jnp.int32),
        value=jnp.asarray(rng.random(size), jnp.float32),
        temperature=jnp.asarray(temperature, jnp.float32),
        top_p=jnp.asarray(top_p, jnp.float32),
        top_k=jnp.asarray(top_k, jnp.int32),
        context=_contexts(rng.random((prms, 9))),
        max_depth=jnp.int32(DEPTH),
    )


def _contexts(numbers):
    """Sparsities, calibration and rate of every PRM; the prices are 0."""
    total, last_layer, *calibration, rate = jnp.asarray(numbers.T, jnp.float32)
    return search.Context(
        jnp.zeros_like(total), total, last_layer, search.Calibration(*calibration), rate
    )
