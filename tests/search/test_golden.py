"""Whole searches recorded as JSON: what the search did the day it was recorded, it does today.

After a change of behaviour that is meant, record them again and read the difference:

    JAX_PLATFORMS=cpu PYTHONPATH=tests/support .venv/bin/python tests/search/test_golden.py
    git diff tests/search/golden

The expansions are drawn from `jax.random`, so the files depend on its implementation:
`jax_threefry_partitionable` is pinned, here and in conftest.py.
"""

import functools
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from search_script import recorder_of

import search

FOLDER = pathlib.Path(__file__).resolve().parent / "golden"
CAPACITY = 8
FRONTIER = 4
MAX_DEPTH = 4

STRATEGIES = {
    "beam": lambda: search.beam(expansion=2),
    "particle_filtering": search.methods.particle_filtering,
    "cats": lambda: search.cats.cats(
        search.cats.random_policy, search.cats.CatsConfig(rounds=2, expansion=2)
    ),
}

# The questions of a batch differ in everything, so that none can read another's numbers.
QUESTIONS = (
    {"num_candidates": 8, "width": 4, "max_depth": 4, "budget": 32},
    {"num_candidates": 7, "width": 2, "max_depth": 3, "budget": 15},
    {"num_candidates": 3, "width": 3, "max_depth": 4, "budget": 9},
)


def expand_fn(params: Any, key: jax.Array, request: search.Request) -> search.Expansion:
    """Children drawn at random; the id of a child tells its tick's key and its row."""
    del params
    upto = jnp.cumsum(request.num_samples)
    rows = jnp.arange(CAPACITY, dtype=jnp.int32)
    parent = jnp.minimum(
        jnp.sum(upto[None, :] <= rows[:, None], axis=1, dtype=jnp.int32), upto.shape[0] - 1
    )
    keys = jax.random.split(key, 5)

    def draw(index: int, low: int, high: int) -> jax.Array:
        return jax.random.randint(keys[index], (CAPACITY,), low, high, jnp.int32)

    granted = rows < upto[-1]
    done = request.to_end[parent] | (draw(0, 0, 8) == 0)
    return search.Expansion(
        valid=granted & (draw(1, 0, 10) > 0),
        parent=parent,
        score=draw(2, 0, 9).astype(jnp.float32) / 8.0,
        done=done,
        answer=jnp.where(done, draw(3, 0, 3), -1),
        text=draw(4, 0, 4),
        log_prob=jnp.zeros((CAPACITY,), jnp.float32),
        num_tokens=rows,
        embedding=draw(4, 0, 2**30),
    )


@functools.partial(jax.jit, static_argnames="strategy")
def _run(
    keys: jax.Array, states: search.SearchState, strategy: search.Strategy
) -> tuple[search.SearchState, Any]:
    rollout = functools.partial(
        search.rollout, strategy=strategy, expand_fn=expand_fn, recorder=recorder_of(strategy)
    )
    return jax.vmap(rollout, (None, None, 0, 0))((), (), keys, states)


def record(name: str) -> list[dict[str, Any]]:
    """Every question's search in plain lists."""
    strategy = STRATEGIES[name]()
    states = [
        search.init(
            jnp.int32(0),
            strategy=strategy,
            capacity=CAPACITY,
            frontier_capacity=FRONTIER,
            depth_capacity=MAX_DEPTH,
            **sizes,
        )
        for sizes in QUESTIONS
    ]
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    keys = jax.random.split(jax.random.key(0), len(QUESTIONS))
    finals, (outputs, decisions) = jax.device_get(_run(keys, states, strategy))
    return [
        {
            **sizes,
            "ticks": [
                {
                    "num_samples": outputs.num_samples[index, tick].tolist(),
                    **_decisions(decisions, index, tick),
                }
                for tick in np.flatnonzero(outputs.active[index])
            ],
            "finished": [
                {
                    "id": int(finals.finished.embedding[index, row]),
                    "step_scores": finals.finished.step_scores[index, row, :depth].tolist(),
                    "answer": int(finals.finished.answer[index, row]),
                }
                for row in np.flatnonzero(finals.finished.valid[index])
                for depth in [finals.finished.depth[index, row]]
            ],
            "spent": int(finals.spent[index]),
            "step": int(finals.step[index]),
        }
        for index, sizes in enumerate(QUESTIONS)
    ]


def _decisions(decisions: Any, index: int, tick: int) -> dict[str, Any]:
    """Actions, rewards and the number of transitions; zeros for searches without a policy."""
    if decisions == ():
        return {"action": [0] * FRONTIER, "reward": [0.0] * FRONTIER, "transitions": 0}
    made = decisions.decision
    return {
        "action": made.action[index, tick].tolist(),
        "reward": np.round(made.reward[index, tick].astype(float), 6).tolist(),
        "transitions": int(decisions.transition.weight_t[index, tick].sum()),
    }


@pytest.mark.parametrize("name", STRATEGIES)
def test_search_is_as_recorded(name):
    expected = json.loads((FOLDER / f"{name}.json").read_text())
    actual = record(name)
    for question, golden in zip(actual, expected, strict=True):
        for tick, golden_tick in zip(question["ticks"], golden["ticks"], strict=True):
            np.testing.assert_allclose(tick.pop("reward"), golden_tick.pop("reward"), atol=2e-6)
        assert question == golden


def main() -> None:
    """Record all searches."""
    jax.config.update("jax_threefry_partitionable", True)
    for name in STRATEGIES:
        (FOLDER / f"{name}.json").write_text(_to_json(record(name)) + "\n")
        print(FOLDER / f"{name}.json")


def _to_json(value: Any, indent: str = "") -> str:
    """One line per tick and per path, so that a difference can be read."""
    inner = indent + "  "
    if isinstance(value, list) and value and isinstance(value[0], dict):
        rows = ",\n".join(inner + _to_json(item, inner) for item in value)
        return f"[\n{rows}\n{indent}]"
    if isinstance(value, dict):
        items = (f"{json.dumps(name)}: {_to_json(item, inner)}" for name, item in value.items())
        return "{" + ", ".join(items) + "}"
    return json.dumps(value)


if __name__ == "__main__":
    main()
