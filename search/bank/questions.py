"""The bank's questions, and what they can be asked."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..actions import ActionTable
from ..strategy.base import Sampling
from .types import RIGHT_ANSWER, Bank, Replay


def reset(
    bank: Bank, key: jax.Array
) -> tuple[Replay, Int[Array, ""], Float[Array, " 5"], Int[Array, ""], Int[Array, ""]]:
    """A random question of the bank, judged by a random PRM of it; see `question`.

    Args:
        bank: the questions.
        key: consumed.
    """
    question_key, prm_key = jax.random.split(key)
    number = jax.random.randint(question_key, (), 0, bank.root.shape[0])
    prm = jax.random.randint(prm_key, (), 0, bank.prm_features.shape[0])
    return question(bank, number, prm)


def question(
    bank: Bank, number: int | Int[Array, ""], prm: int | Int[Array, ""]
) -> tuple[Replay, Int[Array, ""], Float[Array, " 5"], Int[Array, ""], Int[Array, ""]]:
    """A question of the bank, judged by a PRM of it.

    Args:
        bank: the questions.
        number: of the question.
        prm: number of the PRM.

    Returns:
        The parameters of `expand`, the root's embedding for `search.init`, the PRM's features, the
        maximal depth, and the class of the right answer.
    """
    prm = jnp.asarray(prm, jnp.int32)
    root = bank.root[number]
    right = jnp.int32(RIGHT_ANSWER)
    return Replay(bank, prm), root, bank.prm_features[prm], bank.max_depth, right


def check_actions(bank: Bank, table: ActionTable) -> None:
    """Raise ValueError naming the first action whose sampling the bank has not recorded.

    An action that samples nothing needs no record.
    """
    for index, (num_extra, _, temperature, top_p, top_k) in enumerate(table.rows):
        if num_extra > 0:
            try:
                check_sampling(bank, Sampling(temperature, top_p, top_k))
            except ValueError as error:
                raise ValueError(f"action {index} ({num_extra} more): {error}") from None


def check_sampling(bank: Bank, sampling: Sampling) -> None:
    """Raise ValueError if the bank has not recorded this setting."""
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
            f"bank, which has {known}: collect a bank with this setting, or leave the action out"
        )
