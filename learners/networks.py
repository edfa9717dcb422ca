"""Actor and critic: two multilayer perceptrons over the features of a node.

Only this module uses flax.nnx. Parameters are dicts `{layer: {"kernel": ..., "bias": ...}}`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import nnx

import search


class Network(NamedTuple):
    """A network: a pair of pure functions.

    Attributes:
        init: `key -> params`; consumes the key.
        apply: `(params, features [N, F]) -> [N, A] or [N]`.
    """

    init: Callable[[jax.Array], Any]
    apply: Callable[[Any, jax.Array], jax.Array]


@functools.cache
def make_actor(
    num_actions: int,
    hidden: tuple[int, ...] = (128, 128),
    num_features: int = len(search.cats.FEATURE_NAMES),
) -> Network:
    """The actor, a network whose result is the logits f32[N, A] before illegal actions are masked.

    The last layer starts near zero, so that training starts from the uniform policy.

    Args:
        num_actions: A, number of entries of the action table.
        hidden: widths of the hidden layers. The default is our reading of "two-layer" in section
            6.1: two hidden layers; the paper leaves open whether the output layer is counted.
        num_features: F, number of features of a node.
    """
    return _make_mlp((num_features, *hidden, num_actions), output_scale=0.01, squeeze=False)


@functools.cache
def make_critic(
    hidden: tuple[int, ...] = (256, 256), num_features: int = len(search.cats.FEATURE_NAMES)
) -> Network:
    """The critic, a network whose result is the values f32[N] of nodes.

    Args:
        hidden: widths of the hidden layers; the default is the paper's, as in `make_actor`.
        num_features: F, number of features of a node.
    """
    return _make_mlp((num_features, *hidden, 1), output_scale=1.0, squeeze=True)


class _MLP(nnx.Module):
    def __init__(self, sizes: tuple[int, ...], output_scale: float, *, rngs: nnx.Rngs):
        self.num_layers = len(sizes) - 1
        for index, (size_in, size_out) in enumerate(itertools.pairwise(sizes)):
            is_last = index == self.num_layers - 1
            scale = output_scale if is_last else 2.0  # 2: He's, for the ReLU that follows
            layer = nnx.Linear(
                size_in,
                size_out,
                kernel_init=nnx.initializers.variance_scaling(scale, "fan_in", "truncated_normal"),
                rngs=rngs,
            )
            setattr(self, f"layer_{index}", layer)

    def __call__(self, x: jax.Array) -> jax.Array:
        for index in range(self.num_layers):
            x = getattr(self, f"layer_{index}")(x)
            if index < self.num_layers - 1:
                x = nnx.relu(x)
        return x


def _make_mlp(sizes: tuple[int, ...], output_scale: float, squeeze: bool) -> Network:
    def build(key: jax.Array) -> _MLP:
        return _MLP(sizes, output_scale, rngs=nnx.Rngs(key))

    structure, blank = nnx.split(nnx.eval_shape(build, jax.random.key(0)))

    def init(key: jax.Array) -> Any:
        return nnx.to_pure_dict(nnx.state(build(key)))

    def apply(params: Any, features: jax.Array) -> jax.Array:
        state = jax.tree.map(lambda leaf: leaf, blank)  # a copy: the next line writes into it
        nnx.replace_by_pure_dict(state, params)
        output = nnx.merge(structure, state)(features)
        return output[..., 0] if squeeze else output

    return Network(init=init, apply=apply)
