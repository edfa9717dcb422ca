"""Whole searches of a simulated question, and requests for single ticks."""

import jax
import jax.numpy as jnp

import search
from search import simulation


def searched(strategy, params, number, **sizes):
    """Final states of `number` searches of a simulated question, and what each tick asked for."""
    task = simulation.question(params, jax.random.key(1), 0, 0)
    expand_fn = simulation.simulator(sizes["capacity"])

    def one(key):
        state = search.init(task.root, strategy=strategy, **sizes)
        return search.rollout((), task.params, key, state, strategy=strategy, expand_fn=expand_fn)

    final, outputs = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), number))
    return jax.device_get((final, outputs.num_samples))


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
