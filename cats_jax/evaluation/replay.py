"""Whole searches in the graph over a step bank: every strategy, in seconds instead of minutes.

For choices on validation questions, for ablations, and for the ceiling that an oracle sets. What
is replayed are recorded steps of the real policy with the real PRMs' scores; the tokens charged
are those of a run alone over the Hugging Face bridge.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

import search
from search import bank as step_bank

from ..bank.layout import LoadedBank
from ..errors import BadInputError
from ..live.ledger import Ledger
from ..live.results import DecisionRow, SearchPath, SearchResult
from ..protocols import Question
from .cells import Cell

_BLOCK = 64
"""Questions searched side by side: enough to fill the arrays, few enough to end together."""


class Replayed(NamedTuple):
    """One row per question of the bank, in its order."""

    correct: np.ndarray  # bool[Q]
    covered: np.ndarray  # bool[Q]; some finished path gives the right answer
    candidates: np.ndarray  # i32[Q]
    generated: np.ndarray  # i32[Q]; tokens the policy sampled
    prm_tokens: np.ndarray  # i32[Q]; tokens the PRM computed; 0 where it is not asked
    actions: np.ndarray  # i32[Q, A]; how often each action was taken; A = 1 without a policy

    @property
    def tokens(self) -> np.ndarray:
        """i32[Q]; sampled by the policy plus computed by the PRM: the ledger's `tokens`."""
        return self.generated + self.prm_tokens


def replay(
    bank: step_bank.Bank,
    strategy: search.Strategy,
    params: Any = (),
    *,
    prm: int,
    num_candidates: int,
    price: float | None = None,
    seed: int = 0,
    knows_truth: bool = False,
) -> Replayed:
    """Search every question of a bank.

    Args:
        bank: the questions.
        strategy: any; the sampling settings it asks for should be in the bank, see
            `search.bank.check_actions` and `check_sampling`.
        params: of its policy.
        prm: number of the PRM in the bank.
        num_candidates: N.
        price: in place of the strategy's.
        seed: of the draws.
        knows_truth: hand each question's `Replay` to the policy in place of `params`: for
            oracles only.
    """
    capacity = next(size for size in (4, 16, 64, 256) if num_candidates <= size)
    questions = bank.root.shape[0]
    numbers = np.arange(-(-questions // _BLOCK) * _BLOCK, dtype=np.int32) % questions
    blocks = _search_blocks(
        bank,
        params,
        jnp.asarray(numbers).reshape(-1, _BLOCK),
        jnp.int32(prm),
        jnp.int32(num_candidates),
        jnp.float32(strategy.price if price is None else price),
        jax.random.key(seed),
        strategy=strategy._replace(price=0.0),
        capacity=capacity,
        max_depth=int(bank.max_depth),
        knows_truth=knows_truth,
    )
    flat = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:])[:questions], blocks
    )
    return Replayed(*flat)


class ReplayRunner:
    """Searches the questions of a bank in the graph; for `evaluate`, in place of models.

    Results have answers, costs in candidates and tokens, and how often each action was taken;
    they have no trees, no seconds, and a wrong answer is not told (None). Of the finished paths
    they tell one that is right, if there is one.
    """

    def __init__(self, bank: LoadedBank) -> None:
        """The bank's calibrations should be those of the recipe, see `load_bank`."""
        self._bank = bank
        self._rows = {identity: row for row, identity in enumerate(bank.ids)}

    def search(
        self, cell: Cell, questions: Sequence[Question], on_result: Callable[[SearchResult], None]
    ) -> None:
        """Replay a cell; as in `runners.CellRunner`.

        Raises:
            BadInputError: a question, PRM or sampling setting is not in the bank.
        """
        bank = self._bank
        for question in questions:
            row = self._rows.get(question.id)
            if row is None or bank.texts[row] != question.text:
                what = "is not in the bank" if row is None else "is another one in the bank"
                raise BadInputError(
                    f"question {question.id!r} {what}: take the recipe's questions from the bank's "
                    "recipe"
                )
        prm = 0
        if cell.prm is not None:
            if cell.prm.label not in bank.prms:
                raise BadInputError(
                    f"PRM {cell.prm.label!r} is not in the bank, which has {', '.join(bank.prms)}"
                )
            prm = bank.prms.index(cell.prm.label)
        self._check_sampling(cell, prm)
        found = replay(
            bank.arrays,
            cell.strategy,
            cell.params,
            prm=prm,
            num_candidates=cell.num_candidates,
            seed=cell.seed,
        )
        for question in questions:
            row = self._rows[question.id]
            right = bool(found.correct[row])
            on_result(
                SearchResult(
                    question=question,
                    answer=bank.gold[row] if right else None,
                    chosen=None,
                    status="answered",
                    reason="",
                    steps=0,
                    paths=[_right_path(bank.gold[row])] if found.covered[row] else [],
                    decisions=_decisions(cell.strategy, found.actions[row]),
                    ledger=Ledger(
                        candidates=int(found.candidates[row]),
                        generated=int(found.generated[row]),
                        prm_computed=int(found.prm_tokens[row]),
                    ),
                )
            )

    def _check_sampling(self, cell: Cell, prm: int) -> None:
        """What a strategy asks first, and what its actions ask, must have been recorded."""
        arrays, strategy = self._bank.arrays, cell.strategy
        _, root, prm_features, _, _ = step_bank.question(arrays, 0, prm)
        state = search.init(
            root,
            strategy=strategy,
            num_candidates=cell.num_candidates,
            max_depth=int(arrays.max_depth),
            prm_features=prm_features,
            capacity=cell.num_candidates,
        )
        asked = search.plan(cell.params, jax.random.key(0), state, strategy=strategy).request
        sampling = search.Sampling(
            round(float(asked.temperature[0]), 6),
            round(float(asked.top_p[0]), 6),
            int(asked.top_k[0]),
        )
        try:
            step_bank.check_sampling(arrays, sampling)
            if strategy.actions is not None:
                step_bank.check_actions(arrays, strategy.actions)
        except ValueError as error:
            raise BadInputError(f"strategy {cell.spec.label!r}: {error}") from error


def _right_path(answer: str) -> SearchPath:
    return SearchPath(steps=(), step_scores=(), path_score=None, answer=answer, nodes=())


def _decisions(strategy: search.Strategy, counts: np.ndarray) -> list[DecisionRow]:
    """One row per decision, with its action alone."""
    if strategy.actions is None:
        return []
    return [
        DecisionRow(
            step=0,
            phase=0,
            node=0,
            features=(),
            action=action,
            num_extra=row[0],
            num_retain=row[1],
            temperature=row[2],
            top_p=row[3],
            top_k=row[4],
            granted=0,
            reward=0.0,
        )
        for action, row in enumerate(strategy.actions.rows)
        for _ in range(int(counts[action]))
    ]


def allocation_oracle(config: search.CatsConfig, *, sample: int, stop: int) -> search.Strategy:
    """Allocates with knowledge of the truth, ranks with the PRM: what such knowledge is worth.

    A node samples more while the child that the PRM ranks first does not lead to a right answer
    (by the bank's value), unless the node itself does not. Replay it with `knows_truth`.

    Args:
        config: of the search.
        sample, stop: rows of its action table.
    """
    blind = search.cats(_blind_policy, config)
    path_score = search.aggregation(config.path_score)

    def decide(
        params: Any, key: jax.Array, state: search.SearchState, features: Float[Array, "N F"]
    ) -> Any:
        value = step_bank.node_value(params, state.pool.embedding)
        pool, slots = state.pool, features.shape[0]
        one_each = jnp.ones((slots,), jnp.int32)
        first = search.retain(search.path_keys(pool, path_score), pool.parent, pool.valid, one_each)
        is_right = first & (value > 0.0)
        first_is_right = jnp.zeros((slots,), bool).at[pool.parent].max(is_right)
        may_be_right = step_bank.node_value(params, state.frontier.embedding) > 0.0
        action = jnp.where(may_be_right & ~first_is_right, sample, stop).astype(jnp.int32)
        return blind.decide(action, key, state, features)

    return blind._replace(name="oracle", decide=decide)


def _blind_policy(params: Any, key: jax.Array, features: jax.Array, legal: jax.Array) -> Any:
    """Takes the actions it is given; where one is not legal, the first legal one."""
    del key
    action = jnp.where(legal[params], params, jnp.argmax(legal)).astype(jnp.int32)
    return action, jnp.zeros((features.shape[0],), features.dtype)


@functools.partial(jax.jit, static_argnames=("strategy", "capacity", "max_depth", "knows_truth"))
def _search_blocks(
    bank: step_bank.Bank,
    params: Any,
    blocks: jax.Array,
    prm: jax.Array,
    num_candidates: jax.Array,
    price: jax.Array,
    key: jax.Array,
    *,
    strategy: search.Strategy,
    capacity: int,
    max_depth: int,
    knows_truth: bool,
) -> tuple[jax.Array, ...]:
    """The columns of `Replayed` for blocks of questions, i32[blocks, B], one after the other."""
    expand_fn = step_bank.expander(capacity)
    num_actions = 1 if strategy.actions is None else len(strategy.actions)

    def begin(number: jax.Array) -> tuple[jax.Array, search.SearchState]:
        _, root, prm_features, depth, _ = step_bank.question(bank, number, prm)
        state = search.init(
            root,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=depth,
            price=price,
            prm_features=prm_features,
            capacity=capacity,
            frontier_capacity=strategy.width(capacity),
            depth_capacity=max_depth,
        )
        return jax.random.fold_in(key, number), state

    def advance(state: search.SearchState, key: jax.Array, index: jax.Array) -> Any:
        truth = step_bank.Replay(bank, prm)
        plan_key, expand_key = search.tick_keys(key, index)
        plan = search.plan(truth if knows_truth else params, plan_key, state, strategy=strategy)
        expansion = expand_fn(truth, expand_key, plan.request)
        state, output = search.commit(state, plan, expansion, strategy=strategy)
        decided = output.decision.valid.astype(jnp.int32)
        actions = jnp.zeros((num_actions,), jnp.int32).at[output.decision.action].add(decided)
        scored = jnp.where(expansion.valid, expansion.embedding, -1)
        return state, (jnp.sum(expansion.num_tokens, dtype=jnp.int32), scored, actions)

    def block(numbers: jax.Array) -> tuple[jax.Array, ...]:
        keys, start = jax.vmap(begin)(numbers)
        rows = numbers.shape[0]
        idle = (
            jnp.zeros((rows,), jnp.int32),
            jnp.full((rows, capacity), -1, jnp.int32),
            jnp.zeros((rows, num_actions), jnp.int32),
        )

        def tick(states: search.SearchState, index: jax.Array) -> Any:
            """Costs nothing once all questions of the block have ended."""
            return lax.cond(
                jnp.all(jax.vmap(search.is_terminal)(states)),
                lambda: (states, idle),
                lambda: jax.vmap(advance, in_axes=(0, 0, None))(states, keys, index),
            )

        num_ticks = strategy.num_phases * max_depth
        end, outputs = lax.scan(tick, start, jnp.arange(num_ticks, dtype=jnp.int32))
        generated, scored, actions = outputs
        row = jax.vmap(strategy.answer)(end.finished)
        answer = jnp.take_along_axis(end.finished.answer, jnp.maximum(row, 0)[:, None], axis=1)[
            :, 0
        ]
        prm_tokens = jnp.zeros((rows,), jnp.int32)
        if strategy.uses_scores:
            nodes = jnp.moveaxis(scored, 0, 1).reshape(rows, -1)
            tokens = jax.vmap(step_bank.scored_tokens, in_axes=(None, 0, 0))
            prm_tokens = bank.prompt_tokens[numbers, prm] + tokens(
                step_bank.Replay(bank, prm), nodes, nodes >= 0
            )
        correct = (row >= 0) & (answer == step_bank.RIGHT_ANSWER)
        right = end.finished.valid & (end.finished.answer == step_bank.RIGHT_ANSWER)
        covered = jnp.any(right, axis=1)
        generated = jnp.sum(generated, axis=0, dtype=jnp.int32)
        taken = jnp.sum(actions, axis=0, dtype=jnp.int32)
        return correct, covered, end.spent, generated, prm_tokens, taken

    return lax.map(block, blocks)
