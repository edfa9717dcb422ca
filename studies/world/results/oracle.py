"""The allocation of an oracle, which bounds from above what a controller can gain."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

import search
from search import bank as step_bank


def allocation_oracle(config: search.cats.CatsConfig, *, sample: int, stop: int) -> search.Strategy:
    """A CATS strategy that allocates by the bank's true values and ranks by the PRM's scores.

    A node samples more if the bank says that it can lead to a right answer, but not through the
    child that the PRM ranks first. The strategy's params are the bank. `sample` and `stop` are the
    rows of the action table of `config` for sampling more and for stopping.
    """
    path_score = search.aggregations.aggregation(config.path_score)

    def policy(
        bank: step_bank.Bank, key: jax.Array, observation: search.cats.Observation
    ) -> tuple[jax.Array, jax.Array]:
        state, slots = observation.state, observation.deciding.shape[0]
        pool = state.pool
        one_each = jnp.ones((slots,), jnp.int32)
        first = search.ranking.retain(
            search.aggregations.path_keys(pool, path_score), pool.parent, pool.valid, one_each
        )
        is_right = first & (bank.value[pool.embedding] > 0.0)
        first_is_right = jnp.zeros((slots,), bool).at[pool.parent].max(is_right)
        may_be_right = bank.value[state.frontier.embedding] > 0.0
        action = jnp.where(may_be_right & ~first_is_right, sample, stop).astype(jnp.int32)
        return search.cats.constant_policy(action, key, observation)

    return dataclasses.replace(search.cats.cats(policy, config), name="oracle")
