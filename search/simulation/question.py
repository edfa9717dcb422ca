"""Questions of the simulator: each is a slice of the world's tables with a random difficulty."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..loop import Task
from ..types import Context
from .draws import branch, normal, words
from .expansion import NUM_KINDS, answer_class
from .types import Latent, QuestionModel, SamplingTables, ScoreTables, SimulatorParams


def reset(params: SimulatorParams, key: jax.Array) -> Task:
    """A random question, scored by a random PRM; levels and PRMs are drawn uniformly.

    Args:
        key: PRNG key; consumed.

    Returns:
        The task. `params` is a `QuestionModel`, `root` a `Latent`, `right_answer` a hash.
    """
    level_key, prm_key, question_key = jax.random.split(key, 3)
    num_levels, num_prms = params.margin.shape[0], params.sparsity_total.shape[0]
    level = jax.random.randint(level_key, (), 0, num_levels)
    prm = jax.random.randint(prm_key, (), 0, num_prms)
    return question(params, question_key, level, prm)


def question(
    params: SimulatorParams,
    key: jax.Array,
    level: int | Int[Array, ""],
    prm: int | Int[Array, ""],
) -> Task:
    """A random question of a given level, scored by a given PRM; see `reset` for the result.

    Args:
        key: PRNG key; consumed. The same key gives the same question for every PRM.
    """
    seed = words(key)
    question_scale, node_scale = params.question_scale[level], params.node_scale[level]
    # Where neither varies, the ease is 0 for any positive divisor.
    spread = jnp.sqrt(jnp.maximum(question_scale**2 + node_scale**2, 1e-12))
    deviation = question_scale * normal(seed, 0)
    scores = jax.tree.map(lambda leaf: leaf[prm], params.scores)
    scores = scores.replace(offset=scores.offset[:, level])
    tables = params.sampling
    at_one = tables.exponent[_nearest(tables.temperature, 1.0), -1]
    margin = params.margin[level] + deviation
    rest_margin, rest_tokens = _rest(margin, params.num_tokens[level], params.end[level, 1])
    model = QuestionModel(
        seed=seed,
        answer=answer_class(branch(seed, 1)),
        margin=margin,
        rest_margin=rest_margin,
        rest_tokens=rest_tokens,
        ease=deviation / spread,
        node_scale=node_scale,
        node_share=node_scale / spread,
        wrong_shift=params.wrong_shift[level],
        alternative=params.alternative[level],
        end=params.end[level],
        sampling=tables,
        lucky=params.lucky[level],
        popular=params.popular[level],
        no_answer=params.no_answer[level],
        num_tokens=params.num_tokens[level],
        log_exponent=jnp.log(at_one),
        scores=scores,
    )
    root = Latent(
        seed=branch(seed, 2),
        answer_seed=branch(seed, 3),
        right=jnp.bool_(True),
        score=scores.root[0] + scores.root[1] * normal(seed, 4),
    )
    context = Context(
        sparsity_total=params.sparsity_total[prm],
        sparsity_last_layer=params.sparsity_last_layer[prm],
    )
    return Task(model, root, context, params.max_depth, model.answer)


def to_dict(params: SimulatorParams) -> dict[str, Any]:
    """The parameters as nested lists of numbers by field name, for JSON."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return {name: plain(getattr(value, name)) for name in names}
        return jnp.asarray(value).tolist()

    return plain(params)


def from_dict(values: Mapping[str, Any]) -> SimulatorParams:
    """The inverse of `to_dict`.

    Raises:
        ValueError: a field is missing or unknown, or its shape does not fit the other fields.
    """
    nested = dict(values)
    sampling = SamplingTables(**_fields(SamplingTables, nested.pop("sampling", {}), "sampling"))
    scores = ScoreTables(**_fields(ScoreTables, nested.pop("scores", {}), "score"))
    rest = _fields(SimulatorParams, nested, "simulator", but=("sampling", "scores"))
    params = SimulatorParams(sampling=sampling, scores=scores, **rest)
    _check_shapes(params)
    return params


def _fields(
    kind: type, values: Mapping[str, Any], what: str, but: tuple[str, ...] = ()
) -> dict[str, jax.Array]:
    names = [field.name for field in dataclasses.fields(kind) if field.name not in but]
    if set(names) != set(values):
        raise ValueError(
            f"{what} parameters need exactly the fields {', '.join(names)}; "
            f"differing: {', '.join(sorted(set(names) ^ set(values)))}"
        )
    return {
        name: jnp.asarray(values[name], jnp.int32 if name == "max_depth" else jnp.float32)
        for name in names
    }


def _check_shapes(params: SimulatorParams) -> None:
    levels, depths = params.margin.shape
    prms = params.sparsity_total.shape[0]
    points = params.scores.logit.shape[-1]
    grid = (*params.sampling.temperature.shape, *params.sampling.top_p.shape)
    per_level = ("question_scale", "node_scale", "wrong_shift", "lucky", "popular", "no_answer")
    expected = {
        **dict.fromkeys(per_level, (levels,)),
        **dict.fromkeys(("margin", "alternative", "num_tokens"), (levels, depths)),
        "end": (levels, 2, depths),
        **dict.fromkeys(("sparsity_total", "sparsity_last_layer"), (prms,)),
        "max_depth": (),
    }
    on_grid = {
        **dict.fromkeys(("slope", "shift", "exponent"), grid),
        "invalid": (2, *grid),
        **dict.fromkeys(("exponent_slope", "exponent_scale", "top_k_slope", "top_k_shift"), ()),
    }
    per_prm = {
        "logit": (prms, points),
        "offset": (prms, NUM_KINDS, levels),
        "loading": (prms, NUM_KINDS, 3),
        "residual": (prms, NUM_KINDS, points),
        "root": (prms, 2),
    }
    holders = (params, expected), (params.sampling, on_grid), (params.scores, per_prm)
    for holder, shapes in holders:
        for name, shape in shapes.items():
            found = getattr(holder, name).shape
            if found != shape:
                raise ValueError(f"simulator parameter {name} has shape {found}, not {shape}")


def _rest(
    margin: Float[Array, " T"], num_tokens: Float[Array, " T"], end: Float[Array, " T"]
) -> tuple[Float[Array, " T"], Float[Array, " T"]]:
    """Log-odds that all steps after each depth are right, and the mean tokens of these steps.

    A right path ends at the first depth where `end` is above one half.
    """
    goes_on = jnp.cumprod((end <= 0.5).astype(jnp.float32))
    is_written = jnp.concatenate([jnp.ones((1,), jnp.float32), goes_on[:-1]])
    log_right = jnp.where(is_written > 0, jax.nn.log_sigmoid(margin), 0.0)
    log_rest = jnp.sum(log_right) - jnp.cumsum(log_right)
    tokens = is_written * num_tokens
    # log(p / (1 - p)), infinite where nothing is left to write.
    log_wrong = jnp.log(-jnp.expm1(jnp.minimum(log_rest, 0.0)))
    is_last = jnp.flip(jnp.cumsum(jnp.flip(is_written))) - is_written <= 0
    rest_margin = jnp.where(is_last, jnp.inf, log_rest - jnp.where(is_last, 0.0, log_wrong))
    return rest_margin, jnp.sum(tokens) - jnp.cumsum(tokens)


def _nearest(grid: Float[Array, " H"], value: float) -> Int[Array, ""]:
    return jnp.argmin(jnp.abs(grid - value)).astype(jnp.int32)
