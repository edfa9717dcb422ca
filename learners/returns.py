r"""Returns of decisions: lambda-returns along the paths, or over the question.

Both are truncated lambda-returns (Sutton & Barto 2018, section 12.3), written backwards:

    G^k = r + gamma [(1 - lambda) V' + lambda G'^(k-1)],   G^0 = V,

where V' and G' belong to what follows, and are 0 after an end. lambda = 0 is one-step TD. lambda =
1 is Monte Carlo without truncation, and the n-step return with `num_steps` n. G - V is the
generalised advantage estimate of Schulman et al. 2016 (eq. 16), for a finite episode.

In a tree search, *what follows* a decision has two definitions:

- `path_returns`, for a reward that belongs to one decision (the paper's). A transition leads from
  a decision to that of one surviving child. At a branching, G' is the mean over the surviving
  children, with equal weights. The return of a decision without surviving children is its reward.
- `question_returns`, for a reward that belongs to the question (correctness of the answer minus
  cost). The decisions of one tick are one joint decision. The next state is the next tick with a
  decision; its V is the mean of the critic's values of the nodes that decide in it. gamma = 1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

import search

from .types import Episode


def path_returns(
    episode: Episode, values: Float[Array, "D S"], gae_lambda: float, num_steps: int | None = None
) -> search.cats.Transition:
    """The episode's transitions with the lambda-return as reward, and discount 0.

    The bonus is added where a path or the search ends, as in `add_terminal_reward`.

    Args:
        episode: episode of one search; its transitions hold gamma.
        values: the critic's value of every decision's node.
        gae_lambda: lambda in [0, 1].
        num_steps: most rewards in a return; None: all rewards to the end of each path.

    Returns:
        One row per surviving child, `[D * 2 S]`; its TD error is return minus value.
    """
    slots = values.shape[1]
    num_kept = 1 if num_steps is None else num_steps  # of G^1 .. G^n

    def backwards(
        after: tuple[Float[Array, "n S"], Float[Array, " S"]], tick: tuple[Episode, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        sums, weights = after  # of the transitions still to come from each slot's decision
        at, value = tick
        goes_on = jnp.where(at.holds, 1.0, 0.0)
        ending = at.ends.astype(jnp.float32)
        into = at.source
        weights = jnp.zeros((slots,), jnp.float32).at[into].add(goes_on * weights) + ending
        sums = jnp.zeros((num_kept, slots), jnp.float32).at[:, into].add(goes_on[None, :] * sums)
        sums = sums + (ending * (at.last_reward + episode.bonus))[None, :]
        divisor = jnp.where(weights > 0.0, weights, 1.0)
        mean = jnp.where((weights > 0.0)[None, :], sums / divisor[None, :], at.last_reward[None, :])

        row = jax.tree.map(lambda leaf: leaf[:slots], at.transition)
        below = mean if num_steps is None else jnp.concatenate([value[None, :], mean[:-1]])
        blend = (1.0 - gae_lambda) * value[None, :] + gae_lambda * below
        ended = jnp.where(row.discount_t == 0.0, episode.bonus, 0.0)
        target = (row.reward_t + ended)[None, :] + row.discount_t[None, :] * blend
        emits = row.weight_t > 0.0
        waits = ~(emits | at.decision.valid)
        sums = jnp.where(emits[None, :], target, jnp.where(waits[None, :], sums, 0.0))
        weights = jnp.where(emits, 1.0, jnp.where(waits, weights, 0.0))
        return (sums, weights), jnp.where(emits, target[-1], 0.0)

    ticks = episode.replace(price=None, bonus=None)
    start = (jnp.zeros((num_kept, slots), jnp.float32), jnp.zeros((slots,), jnp.float32))
    _, into_decisions = lax.scan(backwards, start, (ticks, values), reverse=True)  # [D, S]
    ends = episode.transition.reward_t[:, slots:] + episode.bonus
    targets = jnp.concatenate([into_decisions, ends], axis=1)
    transition = episode.transition
    weight = transition.weight_t
    return _flat(
        transition.replace(
            reward_t=jnp.where(weight > 0.0, targets, 0.0),
            discount_t=jnp.zeros_like(weight),
            features_t=jnp.zeros_like(transition.features_t),
        )
    )


def question_returns(
    episode: Episode, values: Float[Array, "D S"], gae_lambda: float, num_steps: int | None = None
) -> search.cats.Transition:
    """One row per decision, with its question's lambda-return as reward, and discount 0.

    The reward of a tick is minus the price times the cost of the whole search from this tick until
    the next decision. The last reward includes the bonus of the episode.

    Args:
        values: the critic's value of every decision's node.
        gae_lambda: lambda in [0, 1]; at 1 and without `num_steps`, `values` have no effect.
        num_steps: most ticks with decisions whose rewards are in a return; None: all.

    Returns:
        Transitions `[D * S]`; padding has weight 0.
    """
    decision = episode.decision
    decides = jnp.any(decision.valid, axis=1)
    costs = episode.price * episode.cost
    value = _mean(values, decision.valid)

    def backwards(
        after: Float[Array, " n"], tick: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        cost, value, decides = tick
        returns = after - cost
        below = returns
        if num_steps is not None:
            below = jnp.concatenate([value[None], returns[:-1]])
        before = jnp.where(decides, (1.0 - gae_lambda) * value + gae_lambda * below, returns)
        return before, returns[-1]

    num_kept = 1 if num_steps is None else num_steps
    end = jnp.full((num_kept,), episode.bonus, jnp.float32)
    targets = lax.scan(backwards, end, (costs, value, decides), reverse=True)[1]
    return _flat(
        search.cats.Transition(
            features_tm1=decision.features,
            available_tm1=decision.available,
            action_tm1=decision.action,
            log_prob_tm1=decision.log_prob,
            reward_t=jnp.where(decision.valid, targets[:, None], 0.0),
            discount_t=jnp.zeros_like(decision.reward),
            features_t=jnp.zeros_like(decision.features),
            weight_t=decision.valid.astype(jnp.float32),
        )
    )


def one_step(episode: Episode) -> search.cats.Transition:
    """The episode's transitions for one-step TD, with the bonus where a path or the search ends."""
    return _flat(add_terminal_reward(episode.transition, episode.bonus))


def add_terminal_reward(
    transition: search.cats.Transition, bonus: Float[Array, ""]
) -> search.cats.Transition:
    """Add `bonus` to the reward wherever a path or the search ended (discount 0)."""
    ends = (transition.discount_t == 0.0) & (transition.weight_t > 0.0)
    return transition.replace(reward_t=transition.reward_t + jnp.where(ends, bonus, 0.0))


def _mean(values: Float[Array, "D S"], valid: Bool[Array, "D S"]) -> Float[Array, " D"]:
    count = jnp.maximum(jnp.sum(valid, axis=1, dtype=jnp.float32), 1.0)
    return jnp.sum(jnp.where(valid, values, 0.0), axis=1) / count


def _flat(rows: search.cats.Transition) -> search.cats.Transition:
    return jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), rows)


def mean_of_others(returns: Float[Array, " B"], rollouts: int) -> Float[Array, " B"]:
    """Mean return of the same question's other searches, a baseline independent of the action.

    Kool et al. 2019, https://openreview.net/forum?id=r1lgTGL5DE.

    Args:
        returns: returns of searches; each `rollouts` consecutive ones share a question.
        rollouts: number of searches per question, at least 2.
    """
    by_question = returns.reshape(-1, rollouts)
    others = jnp.sum(by_question, axis=1, keepdims=True) - by_question
    return (others / (rollouts - 1)).reshape(-1)
