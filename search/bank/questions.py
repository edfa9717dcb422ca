"""The questions of a bank, and the check of its recorded sampling settings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt32

from ..interface import Sampling
from ..loop import Task
from .types import RIGHT_ANSWER, Bank, Replay


def reset(bank: Bank, key: jax.Array) -> Task:
    """A random question, scored by a random PRM of the bank, in a random order; see `question`.

    Args:
        key: PRNG key; consumed.
    """
    question_key, prm_key, order_key = jax.random.split(key, 3)
    number = jax.random.randint(question_key, (), 0, bank.root.shape[0])
    prm = jax.random.randint(prm_key, (), 0, bank.score.shape[1])
    return question(bank, number, prm, jax.random.bits(order_key))


def question(
    bank: Bank,
    number: int | Int[Array, ""],
    prm: int | Int[Array, ""],
    order: int | UInt32[Array, ""] = 0,
) -> Task:
    """A question of the bank, scored by one of the bank's PRMs.

    Args:
        number: index of the question.
        order: random bits that order the draws of each node.

    Returns:
        The task; its `params` are a `Replay`.
    """
    prm = jnp.asarray(prm, jnp.int32)
    context = jax.tree.map(lambda leaf: leaf[prm], bank.context)
    right = jnp.int32(RIGHT_ANSWER)
    return Task(
        Replay(bank, prm, jnp.asarray(order, jnp.uint32)),
        bank.root[number],
        context,
        bank.max_depth,
        right,
        bank.prompt_tokens[number, prm],
    )


def check_sampling(bank: Bank, sampling: Sampling) -> None:
    """Raise ValueError if the bank has no draws of this sampling setting."""
    recorded = list(
        zip(
            np.asarray(bank.temperature).tolist(),
            np.asarray(bank.top_p).tolist(),
            np.asarray(bank.top_k).tolist(),
            strict=True,
        )
    )
    wanted = (sampling.temperature, sampling.top_p, sampling.top_k)
    if not any(np.allclose(wanted, setting, atol=1e-6) for setting in recorded):
        known = "; ".join(f"{t:g}, {p:g}, {k}" for t, p, k in recorded)
        raise ValueError(
            f"temperature {wanted[0]:g}, top_p {wanted[1]:g}, top_k {wanted[2]} is not in the "
            f"bank, which has {known}: collect a bank with this setting, or do without it"
        )
