"""What comes into a tick with a wrong shape or dtype is refused by name, also while traced."""

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import pytest

import search
from learners import losses

ROWS, SLOTS = 4, 4
STRATEGY = search.beam(expansion=2)
ROOT = {"id": jnp.int32(0), "latent": jnp.zeros(3)}
COMMIT = functools.partial(search.commit, strategy=STRATEGY)


def _state():
    return search.init(ROOT, strategy=STRATEGY, num_candidates=4, max_depth=2, capacity=ROWS)


def _expansion(rows=ROWS):
    return search.Expansion(
        valid=jnp.ones(rows, bool),
        parent=jnp.zeros(rows, jnp.int32),
        score=jnp.full(rows, 0.5),
        done=jnp.zeros(rows, bool),
        answer=jnp.full(rows, -1, jnp.int32),
        text=jnp.arange(rows, dtype=jnp.int32),
        log_prob=jnp.zeros(rows),
        num_tokens=jnp.ones(rows, jnp.int32),
        embedding={"id": jnp.zeros(rows, jnp.int32), "latent": jnp.zeros((rows, 3))},
    )


def _commit(expansion):
    state = _state()
    planned = search.plan((), jax.random.key(0), state, strategy=STRATEGY)
    return jax.jit(COMMIT)(state, planned, expansion)


def test_a_right_expansion_passes():
    state, _ = _commit(_expansion())
    assert int(state.spent) == 4
    # Fewer rows than the pool has are fine.
    _commit(_expansion(ROWS - 1))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"score": jnp.zeros((ROWS, 1))}, r"shape \(4, 1\).*expansion\.score"),
        ({"score": jnp.zeros(ROWS, jnp.int32)}, r"int32 but expected float32.*expansion\.score"),
        ({"done": jnp.zeros(ROWS)}, r"float32 but expected bool.*expansion\.done"),
        ({"parent": jnp.zeros(ROWS - 1, jnp.int32)}, r"expansion\.parent"),
        ({"embedding": jnp.zeros(ROWS)}, "tree structs equality"),
        (
            {"embedding": {"id": jnp.zeros(ROWS, jnp.int32), "latent": jnp.zeros((ROWS, 2))}},
            r"expansion\.embedding, which must be like the root",
        ),
        (
            {"embedding": {"id": jnp.zeros(ROWS), "latent": jnp.zeros((ROWS, 3))}},
            r"expansion\.embedding, which must be like the root",
        ),
    ],
)
def test_a_wrong_field_is_named(changes, names):
    with pytest.raises(AssertionError, match=names):
        _commit(_expansion().replace(**changes))


def test_an_expansion_larger_than_the_pool_is_refused():
    with pytest.raises(AssertionError, match="rows of the expansion"):
        _commit(_expansion(ROWS + 1))


def _plan(strategy):
    plan = jax.jit(functools.partial(search.plan, strategy=strategy))
    return plan((), jax.random.key(0), _state())


@pytest.mark.parametrize(
    ("field", "value", "names"),
    [
        ("num_samples", jnp.zeros(SLOTS), r"float32 but expected int32.*request\.num_samples"),
        ("temperature", jnp.float32(1.0), r"request\.temperature"),
        ("top_k", jnp.zeros(SLOTS + 1, jnp.int32), r"request\.top_k"),
        ("scored", jnp.ones(SLOTS), r"float32 but expected bool.*request\.scored"),
        ("used", jnp.zeros(SLOTS, jnp.int32), r"request\.used"),
        ("used", jnp.float32(0.0), r"float32 but expected int32.*request\.used"),
        ("embedding", jnp.zeros(SLOTS), "tree structs equality"),
        (
            "embedding",
            {"id": jnp.zeros(SLOTS), "latent": jnp.zeros((SLOTS, 3))},
            r"request\.embedding, which must be like the root",
        ),
    ],
)
def test_a_wrong_request_is_named(field, value, names):
    def plan(params, key, state):
        request, memory = STRATEGY.plan(params, key, state)
        return request.replace(**{field: value}), memory

    with pytest.raises(AssertionError, match=names):
        _plan(dataclasses.replace(STRATEGY, plan=plan))


@pytest.mark.parametrize(
    ("planned", "got"), [(None, "NoneType"), ((jnp.int32(1), ()), r"\(\w+, tuple\)")]
)
def test_a_plan_without_a_request_is_refused(planned, got):
    strategy = dataclasses.replace(STRATEGY, plan=lambda params, key, state: planned)
    message = rf"plan must return \(Request, memory\), got {got}: build the request"
    with pytest.raises(AssertionError, match=message):
        _plan(strategy)


def test_a_memory_that_changes_its_structure_is_refused():
    def plan(params, key, state):
        request, _ = STRATEGY.plan(params, key, state)
        return request, {"visits": jnp.zeros(SLOTS)}

    with pytest.raises(AssertionError, match="memory must keep its structure"):
        _plan(dataclasses.replace(STRATEGY, plan=plan))


@pytest.mark.parametrize(
    ("loss", "num_arguments"),
    [
        (losses.td_error, 4),
        (losses.actor_loss, 2),
        (functools.partial(losses.clipped_loss, clip=0.2), 3),
        (functools.partial(losses.regression_loss, temperature=1.0), 2),
    ],
)
def test_losses_do_not_broadcast(loss, num_arguments):
    # Without the type checks that only tests have.
    if isinstance(loss, functools.partial):
        loss = functools.partial(inspect.unwrap(loss.func), **loss.keywords)
    else:
        loss = inspect.unwrap(loss)
    row = jnp.zeros(5)
    assert loss(*[row] * num_arguments).shape == (5,)
    for place in range(num_arguments):
        arguments = [row] * num_arguments
        arguments[place] = row[:, None]
        with pytest.raises(AssertionError, match="assert_equal_shape"):
            loss(*arguments)
