"""The A2C update: one Adam step over many transitions, or Algorithm 1's one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

import search

from .losses import actor_loss, critic_loss, entropy, td_error
from .networks import Network
from .policy import legal_log_probs, log_prob_of
from .types import LearnerState, Metrics

BLOCK_ROWS = 512
"""Rows whose gradients are computed at once: enough for the matrix products to be fast, few
enough that the last block is not mostly padding."""


@dataclass(frozen=True)
class LearnerConfig:
    """How to learn from transitions.

    Attributes:
        learning_rate: of both Adam optimisers.
        normalize_advantages: bring the actor's TD errors to mean 0 and deviation 1 first.
        sequential: Algorithm 1's order: for each transition in turn a critic step and an actor
            step. Slow; the default is one step of each over all of them.

    Raises:
        ValueError: a learning rate that is not positive, or `normalize_advantages` together
            with `sequential` (a single advantage would become 0).
    """

    learning_rate: float = 1e-3
    normalize_advantages: bool = False
    sequential: bool = False

    def __post_init__(self) -> None:
        if not self.learning_rate > 0.0:
            raise ValueError(f"learning_rate must be > 0, got {self.learning_rate}")
        if self.normalize_advantages and self.sequential:
            raise ValueError("normalize_advantages needs a batch: it excludes sequential")


class Learner(NamedTuple):
    """A pair of pure functions.

    Attributes:
        init: `key -> LearnerState`; consumes the key.
        update: `(state, transitions, entropy_weight=0.0) -> (state, Metrics)`. The loss is the
            mean of critic and actor losses weighted by `weight_t`, minus `entropy_weight` times
            the mean entropy. Rows of weight 0 never matter; without any other nothing changes.
            Rows may come in any order and number; leading axes must be flattened.
    """

    init: Callable[[jax.Array], LearnerState]
    update: Callable[..., tuple[LearnerState, Metrics]]


def make_learner(
    actor: Network, critic: Network, actions: search.ActionTable, config: LearnerConfig
) -> Learner:
    """A2C for the given networks.

    Args:
        actor: logits of the actions.
        critic: values of nodes.
        actions: says which actions were legal when a transition's was chosen; log pi is taken
            under that same mask.
        config: everything else.
    """
    optimizer = optax.adam(config.learning_rate)

    def init(key: jax.Array) -> LearnerState:
        actor_key, critic_key = jax.random.split(key)
        actor_params, critic_params = actor.init(actor_key), critic.init(critic_key)
        return LearnerState(
            actor=actor_params,
            critic=critic_params,
            actor_optimizer=optimizer.init(actor_params),
            critic_optimizer=optimizer.init(critic_params),
        )

    def update(
        state: LearnerState,
        transitions: search.Transition,
        entropy_weight: float | Float[Array, ""] = 0.0,
    ) -> tuple[LearnerState, Metrics]:
        rows = _pack(transitions)
        bonus = jnp.asarray(entropy_weight, jnp.float32)
        run = one_by_one if config.sequential else all_at_once
        return run(state, rows, bonus)

    def all_at_once(
        state: LearnerState, rows: _Rows, bonus: Float[Array, ""]
    ) -> tuple[LearnerState, Metrics]:
        total = jnp.maximum(rows.total, jnp.finfo(jnp.float32).tiny)
        num_blocks = (rows.num_rows + BLOCK_ROWS - 1) // BLOCK_ROWS
        shift, scale = jnp.float32(0.0), jnp.float32(1.0)
        if config.normalize_advantages:
            shift, scale = _moments(critic, state.critic, rows, num_blocks, total)

        def add_block(index: Int[Array, ""], sums: Any) -> Any:
            block = rows.block(index * BLOCK_ROWS, BLOCK_ROWS)
            share = block.weight_t / total
            return jax.tree.map(jnp.add, sums, gradients(state, block, share, shift, scale, bonus))

        blank = jax.tree.map(jnp.zeros_like, (state.actor, state.critic, _no_metrics()))
        sums = lax.fori_loop(0, num_blocks, add_block, blank)
        actor_gradient, critic_gradient, metrics = sums
        stepped = descend(state, actor_gradient, critic_gradient)
        changed = jax.tree.map(lambda a, b: jnp.where(rows.num_rows > 0, a, b), stepped, state)
        return changed, metrics

    def one_by_one(
        state: LearnerState, rows: _Rows, bonus: Float[Array, ""]
    ) -> tuple[LearnerState, Metrics]:
        total = jnp.maximum(rows.total, jnp.finfo(jnp.float32).tiny)
        zero, one = jnp.float32(0.0), jnp.float32(1.0)

        def learn_row(
            index: Int[Array, ""], carry: tuple[LearnerState, Metrics]
        ) -> tuple[LearnerState, Metrics]:
            state, sums = carry
            row = rows.block(index, 1)
            actor_gradient, critic_gradient, metrics = gradients(
                state, row, jnp.ones((1,), jnp.float32), zero, one, bonus
            )
            share = row.weight_t[0] / total
            sums = jax.tree.map(lambda a, b: a + share * b, sums, metrics)
            return descend(state, actor_gradient, critic_gradient), sums

        return lax.fori_loop(0, rows.num_rows, learn_row, (state, _no_metrics()))

    def gradients(
        state: LearnerState,
        block: search.Transition,
        share: Float[Array, " N"],
        shift: Float[Array, ""],
        scale: Float[Array, ""],
        bonus: Float[Array, ""],
    ) -> tuple[Any, Any, Metrics]:
        """Gradients of sum_n share_n * loss_n for actor and critic, and the same sums of metrics.

        One TD error, from the critic before its step, serves both (Algorithm 1 computes it once).
        """

        def critic_objective(params: Any) -> tuple[jax.Array, jax.Array]:
            td = _td_error(critic, params, block)
            return jnp.sum(share * critic_loss(td)), td

        def actor_objective(params: Any, td: jax.Array) -> tuple[jax.Array, Any]:
            legal = actions.num_extra()[None, :] <= block.available_tm1[:, None]
            log_probs = legal_log_probs(actor.apply(params, block.features_tm1), legal)
            log_prob = log_prob_of(log_probs, block.action_tm1)
            surrogate = jnp.sum(share * actor_loss(log_prob, (td - shift) / scale))
            mean_entropy = jnp.sum(share * entropy(log_probs))
            return surrogate - bonus * mean_entropy, (surrogate, mean_entropy)

        critic_grad = jax.value_and_grad(critic_objective, has_aux=True)
        (critic_value, td), critic_gradient = critic_grad(state.critic)
        actor_grad = jax.grad(actor_objective, has_aux=True)
        actor_gradient, (actor_value, mean_entropy) = actor_grad(state.actor, td)
        metrics = Metrics(
            td_error=jnp.sum(share * jnp.abs(td)),
            critic_loss=critic_value,
            actor_loss=actor_value,
            entropy=mean_entropy,
        )
        return actor_gradient, critic_gradient, metrics

    def descend(state: LearnerState, actor_gradient: Any, critic_gradient: Any) -> LearnerState:
        # Adam's bias correction is a float to the power of an integer count.
        with jax.numpy_dtype_promotion("standard"):
            actor_change, actor_optimizer = optimizer.update(actor_gradient, state.actor_optimizer)
            critic_change, critic_optimizer = optimizer.update(
                critic_gradient, state.critic_optimizer
            )
        return LearnerState(
            actor=optax.apply_updates(state.actor, actor_change),
            critic=optax.apply_updates(state.critic, critic_change),
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
        )

    return Learner(init=init, update=update)


class _Rows(NamedTuple):
    """Transitions, and where among them the ones with weight are."""

    transitions: search.Transition
    order: jax.Array  # i32[M]; indices of rows with weight, in order; then M = out of bounds
    num_rows: jax.Array  # i32[]; those with weight
    total: jax.Array  # f32[]; sum of the weights

    def block(self, start: Int[Array, ""], size: int) -> search.Transition:
        """`size` rows of the packed order; zeros behind the last. Padding is never read."""
        place = start + jnp.arange(size, dtype=jnp.int32)
        index = self.order.at[place].get(mode="fill", fill_value=self.order.shape[0])
        return jax.tree.map(
            lambda leaf: leaf.at[index].get(mode="fill", fill_value=0), self.transitions
        )


def _pack(transitions: search.Transition) -> _Rows:
    has_weight = transitions.weight_t > 0.0
    size = has_weight.shape[0]
    place = jnp.where(has_weight, jnp.cumsum(has_weight, dtype=jnp.int32) - 1, size)
    rows = jnp.arange(size, dtype=jnp.int32)
    return _Rows(
        transitions=transitions,
        order=jnp.full((size,), size, jnp.int32).at[place].set(rows, mode="drop"),
        num_rows=jnp.sum(has_weight, dtype=jnp.int32),
        total=jnp.sum(jnp.where(has_weight, transitions.weight_t, 0.0)),
    )


def _td_error(critic: Network, params: Any, block: search.Transition) -> Float[Array, " N"]:
    v_t = lax.stop_gradient(critic.apply(params, block.features_t))
    v_tm1 = critic.apply(params, block.features_tm1)
    return td_error(block.reward_t, block.discount_t, v_tm1, v_t)


def _moments(
    critic: Network,
    params: Any,
    rows: _Rows,
    num_blocks: Int[Array, ""],
    total: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Weighted mean and standard deviation of the TD errors; the latter at least 1e-6."""

    def add_block(index: Int[Array, ""], sums: tuple[jax.Array, jax.Array]) -> Any:
        block = rows.block(index * BLOCK_ROWS, BLOCK_ROWS)
        td = _td_error(critic, params, block)
        share = block.weight_t / total
        return sums[0] + jnp.sum(share * td), sums[1] + jnp.sum(share * jnp.square(td))

    zero = jnp.float32(0.0)
    mean, square = lax.fori_loop(0, num_blocks, add_block, (zero, zero))
    variance = jnp.maximum(square - jnp.square(mean), 0.0)
    return mean, jnp.maximum(jnp.sqrt(variance), 1e-6)


def _no_metrics() -> Metrics:
    zero = jnp.float32(0.0)
    return Metrics(td_error=zero, critic_loss=zero, actor_loss=zero, entropy=zero)
