"""The updates: A2C in one Adam step over many transitions or Algorithm 1's one by one, PPO, AWR."""

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

from .losses import (
    actor_loss,
    clipped_loss,
    critic_loss,
    entropy,
    regression_loss,
    td_error,
)
from .networks import Network
from .policy import legal_log_probs, log_prob_of
from .rows import Rows, map_blocks, pack, shuffle, sum_blocks
from .types import LearnerState, Metrics


@dataclass(frozen=True)
class LearnerConfig:
    """How to learn from transitions.

    Attributes:
        learning_rate: of both Adam optimisers.
        normalize_advantages: bring the actor's advantages (TD errors) to mean 0 and deviation 1
            over the batch first.
        sequential: Algorithm 1's order: for each transition in turn a critic step and an actor
            step. Slow; the default is one step of each over all of them.
        clip: PPO's epsilon (Schulman et al. 2017); None: A2C. With PPO, advantages and the
            critic's targets are those of the parameters before the update.
        num_epochs: PPO's passes over the transitions of one update.
        num_minibatches: steps of one pass, each over as many transitions drawn without
            replacement.
        regression: temperature of advantage-weighted regression in place of A2C's actor loss, for
            decisions of other policies; None: A2C or PPO.
        max_gradient_norm: longer gradients are scaled down to this norm, each network's by
            itself; None: never.

    Raises:
        ValueError: a value is out of range, or has no effect with the others.
    """

    learning_rate: float = 1e-3
    normalize_advantages: bool = False
    sequential: bool = False
    clip: float | None = None
    num_epochs: int = 1
    num_minibatches: int = 1
    regression: float | None = None
    max_gradient_norm: float | None = None

    def __post_init__(self) -> None:
        if not self.learning_rate > 0.0:
            raise ValueError(f"learning_rate must be > 0, got {self.learning_rate}")
        if self.normalize_advantages and self.sequential:
            raise ValueError("normalize_advantages needs a batch: it excludes sequential")
        if self.clip is not None and not 0.0 < self.clip < 1.0:
            raise ValueError(f"clip must be in (0, 1), or None for A2C, got {self.clip}")
        if self.clip is not None and self.sequential:
            raise ValueError("clip (PPO) needs a batch: it excludes sequential")
        if self.regression is not None and not self.regression > 0.0:
            raise ValueError(f"regression must be > 0, or None, got {self.regression}")
        if self.regression is not None and (self.clip is not None or self.sequential):
            raise ValueError("regression excludes clip (PPO) and sequential: choose one")
        for name in ("num_epochs", "num_minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
            if getattr(self, name) > 1 and self.clip is None:
                raise ValueError(f"{name} > 1 needs PPO: set clip, for example 0.2")
        if self.max_gradient_norm is not None and not self.max_gradient_norm > 0.0:
            raise ValueError(f"max_gradient_norm must be > 0, got {self.max_gradient_norm}")


class Learner(NamedTuple):
    """A pair of pure functions.

    Attributes:
        init: `key -> LearnerState`; consumes the key.
        update: `(state, transitions, entropy_weight=0.0, key=None) -> (state, Metrics)`. The loss
            is the mean of critic and actor losses weighted by `weight_t`, minus `entropy_weight`
            times the mean entropy. Rows of weight 0 never matter; without any other nothing
            changes. Rows may come in any order and number; leading axes must be flattened. The
            key shuffles PPO's minibatches and is consumed; nothing else needs one.
    """

    init: Callable[[jax.Array], LearnerState]
    update: Callable[..., tuple[LearnerState, Metrics]]


def make_learner(
    actor: Network, critic: Network, actions: search.ActionTable, config: LearnerConfig
) -> Learner:
    """A2C, PPO or AWR for the given networks.

    Args:
        actor: logits of the actions.
        critic: values of nodes.
        actions: says which actions were legal when a transition's was chosen; log pi is taken
            under that same mask.
        config: everything else.
    """
    optimizer = optax.adam(config.learning_rate)
    if config.max_gradient_norm is not None:
        optimizer = optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), optimizer)
    num_minibatches = config.num_minibatches

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
        key: jax.Array | None = None,
    ) -> tuple[LearnerState, Metrics]:
        rows = pack(transitions.weight_t > 0.0)
        bonus = jnp.asarray(entropy_weight, jnp.float32)
        if config.sequential:
            return one_by_one(state, rows, transitions, bonus)
        if config.clip is None:
            return all_at_once(state, rows, transitions, bonus)
        if key is None and num_minibatches > 1:
            raise ValueError("minibatches need a key to shuffle with: pass key=...")
        return many_epochs(state, rows, transitions, bonus, key)

    def all_at_once(
        state: LearnerState, rows: Rows, transitions: search.Transition, bonus: Float[Array, ""]
    ) -> tuple[LearnerState, Metrics]:
        total = _at_least_tiny(_total_weight(transitions))
        shift, scale = jnp.float32(0.0), jnp.float32(1.0)
        if config.normalize_advantages:
            shift, scale = _moments(_advantages(critic, state.critic), rows, transitions, total)

        def of_block(block: search.Transition) -> Any:
            share = block.weight_t / total
            return gradients(state, block, share, shift, scale, bonus)

        blank = jax.tree.map(jnp.zeros_like, (state.actor, state.critic, _no_metrics()))
        sums = sum_blocks(of_block, rows, transitions, blank)
        actor_gradient, critic_gradient, metrics = sums
        stepped = descend(state, actor_gradient, critic_gradient)
        return _choose(rows.num_rows > 0, stepped, state), metrics

    def one_by_one(
        state: LearnerState, rows: Rows, transitions: search.Transition, bonus: Float[Array, ""]
    ) -> tuple[LearnerState, Metrics]:
        total = _at_least_tiny(_total_weight(transitions))
        zero, one = jnp.float32(0.0), jnp.float32(1.0)

        def learn_row(
            index: Int[Array, ""], carry: tuple[LearnerState, Metrics]
        ) -> tuple[LearnerState, Metrics]:
            state, sums = carry
            row = rows.take(transitions, index, 1, rows.num_rows)
            actor_gradient, critic_gradient, metrics = gradients(
                state, row, jnp.ones((1,), jnp.float32), zero, one, bonus
            )
            share = row.weight_t[0] / total
            sums = jax.tree.map(lambda a, b: a + share * b, sums, metrics)
            return descend(state, actor_gradient, critic_gradient), sums

        return lax.fori_loop(0, rows.num_rows, learn_row, (state, _no_metrics()))

    def many_epochs(
        state: LearnerState,
        rows: Rows,
        transitions: search.Transition,
        bonus: Float[Array, ""],
        key: jax.Array | None,
    ) -> tuple[LearnerState, Metrics]:
        total = _at_least_tiny(_total_weight(transitions))
        td = map_blocks(_advantages(critic, state.critic), rows, transitions)
        value = map_blocks(
            lambda block: critic.apply(state.critic, block.features_tm1), rows, transitions
        )
        shift, scale = jnp.float32(0.0), jnp.float32(1.0)
        if config.normalize_advantages:
            shift, scale = _weighted_moments(td, transitions.weight_t, total)
        experience = _Experience(
            features=transitions.features_tm1,
            available=transitions.available_tm1,
            action=transitions.action_tm1,
            log_prob=transitions.log_prob_tm1,
            advantage=(td - shift) / scale,
            target=td + value,
            weight=transitions.weight_t,
        )

        def minibatch(
            state: LearnerState, rows: Rows, index: Int[Array, ""]
        ) -> tuple[LearnerState, Metrics]:
            start = index * rows.num_rows // num_minibatches
            stop = (index + 1) * rows.num_rows // num_minibatches
            blank = jax.tree.map(jnp.zeros_like, (state.actor, state.critic, _no_metrics()))
            sums, weight = sum_blocks(
                lambda block: (clipped_gradients(state, block, bonus), jnp.sum(block.weight)),
                rows,
                experience,
                (blank, jnp.float32(0.0)),
                start,
                stop,
            )
            mean = jax.tree.map(lambda leaf: leaf / _at_least_tiny(weight), sums)
            actor_gradient, critic_gradient, metrics = mean
            stepped = descend(state, actor_gradient, critic_gradient)
            return _choose(stop > start, stepped, state), jax.tree.map(
                lambda leaf: leaf * weight / total, metrics
            )

        def epoch(state: LearnerState, key: jax.Array | None) -> tuple[LearnerState, Metrics]:
            shuffled = rows if key is None else shuffle(rows, key)
            indices = jnp.arange(num_minibatches, dtype=jnp.int32)
            state, metrics = lax.scan(
                lambda state, index: minibatch(state, shuffled, index), state, indices
            )
            return state, jax.tree.map(jnp.sum, metrics)

        keys = None if key is None else jax.random.split(key, config.num_epochs)
        state, metrics = lax.scan(epoch, state, keys, length=config.num_epochs)
        return state, jax.tree.map(lambda leaf: leaf[0], metrics)

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
            td = _advantages(critic, params)(block)
            return jnp.sum(share * critic_loss(td)), td

        critic_grad = jax.value_and_grad(critic_objective, has_aux=True)
        (critic_value, td), critic_gradient = critic_grad(state.critic)

        def surrogate(log_prob: Float[Array, " N"]) -> Float[Array, " N"]:
            advantage = (td - shift) / scale
            if config.regression is not None:
                return regression_loss(log_prob, advantage, config.regression)
            return actor_loss(log_prob, advantage)

        actor_gradient, (actor_value, mean_entropy) = actor_gradients(
            state.actor,
            block.features_tm1,
            block.available_tm1,
            block.action_tm1,
            share,
            surrogate,
            bonus,
        )
        metrics = Metrics(
            td_error=jnp.sum(share * jnp.abs(td)),
            critic_loss=critic_value,
            actor_loss=actor_value,
            entropy=mean_entropy,
        )
        return actor_gradient, critic_gradient, metrics

    def clipped_gradients(
        state: LearnerState, block: _Experience, bonus: Float[Array, ""]
    ) -> tuple[Any, Any, Metrics]:
        """Gradients of sum_n weight_n * loss_n with PPO's actor loss, and the sums of metrics."""
        share = block.weight
        assert config.clip is not None
        clip = config.clip

        def critic_objective(params: Any) -> tuple[jax.Array, jax.Array]:
            error = block.target - critic.apply(params, block.features)
            return jnp.sum(share * critic_loss(error)), error

        def surrogate(log_prob: Float[Array, " N"]) -> Float[Array, " N"]:
            return clipped_loss(log_prob, block.log_prob, block.advantage, clip)

        critic_grad = jax.value_and_grad(critic_objective, has_aux=True)
        (critic_value, error), critic_gradient = critic_grad(state.critic)
        actor_gradient, (actor_value, mean_entropy) = actor_gradients(
            state.actor, block.features, block.available, block.action, share, surrogate, bonus
        )
        metrics = Metrics(
            td_error=jnp.sum(share * jnp.abs(error)),
            critic_loss=critic_value,
            actor_loss=actor_value,
            entropy=mean_entropy,
        )
        return actor_gradient, critic_gradient, metrics

    def actor_gradients(
        params: Any,
        features: Float[Array, "N F"],
        available: Int[Array, " N"],
        action: Int[Array, " N"],
        share: Float[Array, " N"],
        surrogate: Callable[[Float[Array, " N"]], Float[Array, " N"]],
        bonus: Float[Array, ""],
    ) -> Any:
        def objective(params: Any) -> tuple[jax.Array, Any]:
            legal = actions.num_extra()[None, :] <= available[:, None]
            log_probs = legal_log_probs(actor.apply(params, features), legal)
            loss = jnp.sum(share * surrogate(log_prob_of(log_probs, action)))
            mean_entropy = jnp.sum(share * entropy(log_probs))
            return loss - bonus * mean_entropy, (loss, mean_entropy)

        return jax.grad(objective, has_aux=True)(params)

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


class _Experience(NamedTuple):
    """What PPO holds fixed during an update; `M` rows."""

    features: jax.Array  # f32[M, F]
    available: jax.Array  # i32[M]
    action: jax.Array  # i32[M]
    log_prob: jax.Array  # f32[M]; when the action was taken
    advantage: jax.Array  # f32[M]; normalised if it is to be
    target: jax.Array  # f32[M]; of the critic
    weight: jax.Array  # f32[M]


def _advantages(critic: Network, params: Any) -> Callable[[search.Transition], Float[Array, " N"]]:
    def of_block(block: search.Transition) -> Float[Array, " N"]:
        v_t = lax.stop_gradient(critic.apply(params, block.features_t))
        v_tm1 = critic.apply(params, block.features_tm1)
        return td_error(block.reward_t, block.discount_t, v_tm1, v_t)

    return of_block


def _moments(
    advantages: Callable[[search.Transition], Float[Array, " N"]],
    rows: Rows,
    transitions: search.Transition,
    total: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    return _weighted_moments(map_blocks(advantages, rows, transitions), transitions.weight_t, total)


def _weighted_moments(
    values: Float[Array, " M"], weight: Float[Array, " M"], total: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Weighted mean and standard deviation; the latter at least 1e-6."""
    share = jnp.where(weight > 0.0, weight, 0.0) / total
    mean = jnp.sum(share * values)
    variance = jnp.sum(share * jnp.square(values - mean))
    return mean, jnp.maximum(jnp.sqrt(variance), 1e-6)


def _total_weight(transitions: search.Transition) -> Float[Array, ""]:
    return jnp.sum(jnp.where(transitions.weight_t > 0.0, transitions.weight_t, 0.0))


def _at_least_tiny(total: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.maximum(total, jnp.finfo(jnp.float32).tiny)


def _choose(condition: Any, on_true: Any, on_false: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), on_true, on_false)


def _no_metrics() -> Metrics:
    zero = jnp.float32(0.0)
    return Metrics(td_error=zero, critic_loss=zero, actor_loss=zero, entropy=zero)
