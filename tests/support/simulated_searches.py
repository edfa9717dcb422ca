"""Whole searches of a simulated question, and requests for single ticks."""

import functools

import jax
import jax.numpy as jnp

import search
from search import simulation


@functools.cache
def searches(strategy, number, *, capacity, depth, **world):
    """`(N, budget) -> (final states, samples of each tick)` of searches of a simulated question."""
    params = simulation.toy_params(max_depth=depth, **world)
    task = simulation.question(params, jax.random.key(1), 0, 0)
    expand_fn = simulation.simulator(capacity)

    def one(key, num_candidates, budget):
        state = search.init(
            task.root,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=depth,
            budget=budget,
            capacity=capacity,
        )
        return search.rollout((), task.params, key, state, strategy=strategy, expand_fn=expand_fn)

    many = jax.jit(jax.vmap(one, in_axes=(0, None, None)))  # one program for every N and budget

    @functools.cache
    def play(num_candidates, budget=None):
        budget = num_candidates * depth if budget is None else budget
        keys = jax.random.split(jax.random.key(2), number)
        final, outputs = jax.device_get(many(keys, num_candidates, budget))
        return final, outputs.num_samples

    return play


@functools.cache
def long_steps(capacity):
    """The simulator, with steps of 1 to 11 tokens; equal texts below a node are equally long."""

    def expand(params, key, request):
        expansion = simulation.simulator(capacity)(params, key, request)
        tokens = 1 + (5 * expansion.text + 3 * expansion.parent) % 11
        return expansion.replace(num_tokens=tokens)  # of rows of padding too

    return expand


def request(
    num_samples, embedding, *, depth=0, temperature=1.0, top_p=1.0, top_k=0, to_end=False, used=0
):
    """A request with the same parameters in every slot; the PRM scores all children."""
    slots = len(num_samples)
    return search.Request(
        num_samples=jnp.asarray(num_samples, jnp.int32),
        temperature=jnp.full((slots,), temperature, jnp.float32),
        top_p=jnp.full((slots,), top_p, jnp.float32),
        top_k=jnp.full((slots,), top_k, jnp.int32),
        scored=jnp.ones((slots,), bool),
        score_ends=jnp.zeros((slots,), bool),
        to_end=jnp.full((slots,), to_end),
        depth=jnp.full((slots,), depth, jnp.int32),
        used=jnp.int32(used),
        embedding=embedding,
    )
