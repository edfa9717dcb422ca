"""Whole searches over a step bank inside compiled JAX code, in seconds instead of minutes.

Replays serve choices on validation questions, ablations, and the upper bound of an oracle. They
read recorded steps of the real policy and scores of the real PRMs. Tokens are charged as in a
search that runs alone over the Hugging Face bridge, and each distinct step of the PRM once. A live
search computes a step again if it has dropped the step and returns to it (`global_mcts`,
`lookahead`).
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import search
from learners.episodes import begin
from search import bank as step_bank

from ..bank.layout import LoadedBank, load_bank, without_prm
from ..bank.store import scored_prms
from ..controllers.strategies import revisions_of
from ..errors import BadInputError, RunWarning, quoted
from ..live.ledger import Ledger
from ..live.results import DecisionRow, SearchPath, SearchResult, unsolved_note
from ..live.seeds import stable_seed
from ..protocols import Question
from ..specs.certificates import CertifiedClaim
from .cells import Cell
from .evaluate import Evaluation
from .wall_times import WallTimes

_BLOCK = 64
"""Questions searched in one batch: they fill the arrays and end at about the same time."""


class Replayed(NamedTuple):
    """One row per question of the bank, in its order."""

    correct: np.ndarray  # bool[Q]
    covered: np.ndarray  # bool[Q]; some finished path gives the right answer
    candidates: np.ndarray  # i32[Q]
    generated: np.ndarray  # i32[Q]; tokens the policy sampled
    prm_tokens: np.ndarray  # i32[Q]; tokens the PRM computed; 0 if it is not called
    actions: np.ndarray  # i32[Q, A]; how often each action was taken; A = 1 without a controller
    unsolved: np.ndarray  # i32[Q]; programs whose solver reached its limit

    @property
    def tokens(self) -> np.ndarray:
        """i32[Q], tokens sampled by the policy plus computed by the PRM, as `Ledger.tokens`."""
        return self.generated + self.prm_tokens


def replay(
    bank: step_bank.Bank,
    strategy: search.Strategy,
    params: Any = (),
    *,
    prm: int,
    num_candidates: int,
    price: float = 0.0,
    prm_token_cost: float = 1.0,
    seed: int = 0,
) -> Replayed:
    """Search every question of a bank and return correctness and costs.

    Args:
        bank: the step bank.
        strategy: any strategy whose sampling settings are in the bank, see
            `search.bank.check_sampling`.
        params: parameters of the strategy's controller; `()` without one.
        prm: index of the PRM in the bank.
        num_candidates: N.
        price: price of 100 candidates or 1000 tokens in units of a right answer, an input of the
            controller.
        prm_token_cost: cost of a PRM token relative to a policy token, an input of the controller.
        seed: seed of the random draws.

    Raises:
        BadInputError: the strategy reads what a bank lacks.
    """
    _check_replayable(strategy, strategy.name)
    questions = bank.root.shape[0]
    numbers = np.arange(-(-questions // _BLOCK) * _BLOCK, dtype=np.int32) % questions
    blocks = _search_blocks(
        bank,
        params,
        jnp.asarray(numbers).reshape(-1, _BLOCK),
        jnp.int32(prm),
        jnp.int32(num_candidates),
        jnp.float32(price),
        jnp.float32(prm_token_cost),
        jax.random.key(seed if 0 <= seed < 1 << 32 else stable_seed("replay", seed) % (1 << 32)),
        _earlier_steps(bank),
        strategy=strategy,
        capacity=search.state.capacity_for(num_candidates),
        max_depth=int(bank.max_depth),
    )
    flat = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:])[:questions], blocks
    )
    return Replayed(*flat)


def _earlier_steps(bank: step_bank.Bank) -> np.ndarray:
    """The row of the step before each one, i32[V]; -1 for first steps."""
    first, drawn = np.asarray(bank.first_draw), np.asarray(bank.drawn)
    cells = np.repeat(np.arange(first.size - 1), np.diff(first))
    earlier = np.full(bank.text.shape, -1, np.int32)
    earlier[drawn] = cells // bank.temperature.size
    earlier[np.isin(earlier, np.asarray(bank.root))] = -1
    return earlier


def _check_replayable(
    strategy: search.Strategy, label: str, certified: CertifiedClaim | None = None
) -> None:
    """Raise BadInputError if a strategy, or its certificate, reads what no step bank has."""
    for reads, what in (
        (certified and certified.threshold is not None, "abstains by the scores of answers"),
        (strategy.certainty is not None, "reads the certainty of paths"),
        (strategy.needs_vectors, "compares steps by the policy's hidden states"),
        (strategy.rewriting is not None, "rewrites the texts of answers"),
        (strategy.comparison is not None, "compares the texts of answers"),
    ):
        if reads:
            raise BadInputError(
                f"strategy {label!r} {what}, which no step bank has: leave --bank out, or take "
                "another strategy"
            )


class ReplayRunner:
    """A `runners.CellRunner` that replays the questions of a bank and needs no models.

    A result has the costs in candidates and tokens and one decision per action taken, but no tree
    and no seconds. Its answer is the gold answer if the search was right, otherwise None. It has
    one path, with the gold answer, if some finished path was right, otherwise none.
    """

    def __init__(self, bank: LoadedBank) -> None:
        """Store the bank; the calibrations of PRMs are those of the cells."""
        self._bank = bank
        self._rows = {identity: row for row, identity in enumerate(bank.ids)}

    def search(
        self, cell: Cell, questions: Sequence[Question], on_result: Callable[[SearchResult], None]
    ) -> None:
        """Replay all questions of a cell; see `runners.CellRunner.search`.

        Raises:
            BadInputError: a question, PRM or sampling setting is not in the bank.
        """
        arrays, prm = self._checked(cell, questions)
        found = replay(
            arrays,
            cell.strategy,
            cell.params,
            prm=prm,
            num_candidates=cell.num_candidates,
            price=cell.price,
            prm_token_cost=cell.prm_token_cost,
            seed=cell.seed,
        )
        results: list[SearchResult] = []
        for question in questions:
            row = self._rows[question.id]
            gold, right = self._bank.gold[row], bool(found.correct[row])
            result = SearchResult(
                question=question,
                answer=gold if right else None,
                chosen=None,
                status="answered",
                reason="",
                steps=0,
                paths=[SearchPath((), (), None, gold, ())] if found.covered[row] else [],
                decisions=_decisions(cell.strategy, found.actions[row]),
                ledger=Ledger(
                    candidates=int(found.candidates[row]),
                    generated=int(found.generated[row]),
                    prm_computed=int(found.prm_tokens[row]),
                    unsolved=int(found.unsolved[row]),
                ),
            )
            results.append(result)
            on_result(result)
        title = f"strategy {cell.strategy.name!r}, N={cell.num_candidates}"
        if (note := unsolved_note(title, results)) is not None:
            warnings.warn(note, RunWarning, stacklevel=2)

    def finish(self, times: WallTimes) -> None:
        """Do nothing; `search` returns when all questions have ended, and a replay has no times."""

    def _checked(self, cell: Cell, questions: Sequence[Question]) -> tuple[step_bank.Bank, int]:
        """The bank with the cell's calibration, and the index of the PRM; see `search`."""
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
        for sampling in cell.strategy.sampling:
            try:
                step_bank.check_sampling(bank.arrays, sampling)
            except ValueError as error:
                raise BadInputError(f"strategy {cell.spec.label!r}: {error}") from error
        arrays = bank.arrays if cell.strategy.uses_scores else without_prm(bank)
        context = arrays.context
        pairs = zip(context.calibration, cell.calibration, strict=True)
        calibration = search.Calibration(*(of_prms.at[prm].set(own) for of_prms, own in pairs))
        return arrays.replace(context=context._replace(calibration=calibration)), prm


def _action_table(strategy: search.Strategy) -> search.cats.ActionTable | None:
    """The action table of a strategy with a controller; None for other strategies."""
    return strategy.config.actions if isinstance(strategy.config, search.cats.CatsConfig) else None


def _decisions(strategy: search.Strategy, counts: np.ndarray) -> list[DecisionRow]:
    """One row per decision; only the fields of its action are set."""
    table = _action_table(strategy)
    if table is None:
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
        for action, row in enumerate(table.rows)
        for _ in range(int(counts[action]))
    ]


@functools.partial(jax.jit, static_argnames=("strategy", "capacity", "max_depth"))
def _search_blocks(
    bank: step_bank.Bank,
    params: Any,
    blocks: jax.Array,
    prm: jax.Array,
    num_candidates: jax.Array,
    price: jax.Array,
    prm_token_cost: jax.Array,
    key: jax.Array,
    earlier: jax.Array,
    *,
    strategy: search.Strategy,
    capacity: int,
    max_depth: int,
) -> tuple[jax.Array, ...]:
    """The columns of `Replayed`, each [blocks, B, ...], for the question numbers in `blocks`."""
    table = _action_table(strategy)
    recorder = _cost_recorder(1 if table is None else len(table))

    start = functools.partial(begin, strategy=strategy, max_depth=max_depth, capacity=capacity)

    def start_of(number: jax.Array) -> search.SearchState:
        task = step_bank.question(bank, number, prm)
        return start(task, num_candidates, price, prm_token_cost)

    def block(numbers: jax.Array) -> tuple[jax.Array, ...]:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
        order_keys, play_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
        axes = step_bank.Replay(None, None, 0)
        replayed = step_bank.Replay(bank, prm, jax.vmap(jax.random.bits)(order_keys))
        end, costs = search.play(
            params,
            replayed,
            play_keys,
            jax.vmap(start_of)(numbers),
            strategy=strategy,
            expand_fn=step_bank.expander(capacity),
            expand_axes=axes,
            recorder=recorder,
        )
        row = jax.vmap(lambda state: search.answer(params, state, strategy=strategy))(end)
        right = end.finished.valid & (end.finished.answer == step_bank.RIGHT_ANSWER)
        correct = (row >= 0) & jnp.take_along_axis(right, jnp.maximum(row, 0)[:, None], axis=1)[
            :, 0
        ]
        prm_tokens = jnp.zeros(numbers.shape, jnp.int32)
        if strategy.uses_scores:
            nodes = jnp.moveaxis(costs.scored, 2, 0).reshape(numbers.shape[0], -1) - 1
            tokens = jax.vmap(step_bank.scored_tokens, in_axes=(axes, 0, 0))

            def of_path_steps(own: jax.Array) -> jax.Array:
                steps = [own]
                for _ in range(max_depth - 1):
                    before = earlier[jnp.maximum(steps[-1], 0)]
                    steps.append(jnp.where(steps[-1] < 0, -1, before))
                rows = jnp.concatenate(steps)
                one = step_bank.Replay(bank, prm, jnp.uint32(0))
                return step_bank.scored_tokens(one, rows, rows >= 0)

            # The PRM also reads the earlier steps of a path that it was not called for. One search
            # at a time, because memory is reserved for this branch even if it is not taken.
            prompt = jnp.where(jnp.any(nodes >= 0, axis=1), bank.prompt_tokens[numbers, prm], 0)
            prm_tokens = prompt + lax.cond(
                jnp.any(costs.left_out),
                lambda: lax.map(of_path_steps, nodes),
                lambda: tokens(replayed, nodes, nodes >= 0),
            )
        generated = jnp.sum(costs.generated, axis=(0, 1), dtype=jnp.int32)
        taken = jnp.sum(costs.actions, axis=(0, 1), dtype=jnp.int32)
        unsolved = jnp.sum(costs.unsolved, axis=(0, 1), dtype=jnp.int32)
        return correct, jnp.any(right, axis=1), end.spent, generated, prm_tokens, taken, unsolved

    return lax.map(block, blocks)


class _Costs(NamedTuple):
    """Costs of one tick of one search."""

    generated: jax.Array  # i32[]; tokens the policy sampled
    scored: jax.Array  # i32[N]; 1 + node of each step that the PRM scored, 0 for none
    left_out: jax.Array  # bool[]; the PRM was not called for some valid step
    actions: jax.Array  # i32[A]; how often each was taken
    unsolved: jax.Array  # i32[]; programs whose solver reached its limit


def _cost_recorder(num_actions: int) -> search.Recorder:
    def record(memory: tuple[()], tick: search.Tick) -> tuple[tuple[()], _Costs]:
        expansion, decision = tick.expansion, tick.output.report
        asked = search.children.asked_rows(tick.plan.request, expansion.parent, expansion.done)
        scored = expansion.valid & asked
        actions = jnp.zeros((num_actions,), jnp.int32)
        if isinstance(decision, search.cats.Decision):
            actions = actions.at[decision.action].add(decision.valid.astype(jnp.int32))
        return memory, _Costs(
            generated=search.costs.tick_tokens(tick).sampled,
            scored=jnp.where(scored, expansion.embedding + 1, 0),
            left_out=jnp.any(expansion.valid & ~asked),
            actions=actions,
            unsolved=jnp.where(tick.output.active, search.costs.unsolved(decision), 0),
        )

    return search.Recorder(init=lambda state: (), record=record)


def replayed(evaluation: Evaluation, folder: pathlib.Path) -> tuple[Evaluation, ReplayRunner]:
    """An evaluation on a step bank of its models, and the runner that replays it.

    Raises:
        BadInputError: the bank is of other models or another `max_depth`, or has another right
            answer to a question; or a replay lacks what the recipe has: limits, or strategies that
            read texts, path certainties or step vectors.
    """
    recipe, models = evaluation.recipe, evaluation.manifest["models"]
    for name in ("budget", "max_tokens", "max_seconds"):
        if getattr(recipe, name) is not None:
            raise BadInputError(f"{name} has no meaning with --bank: leave it out of the recipe")
    for cell in evaluation.cells:
        _check_replayable(cell.strategy, cell.spec.label, cell.spec.certified)
    recorded = {name: models[name] for name in models if not name.startswith("controller ")}
    # Without PRMs in the recipe, those that have scored the bank tell which nodes have draws.
    prms = [spec.label for spec in recipe.prms] or scored_prms(folder) or None
    bank = load_bank(folder, prms=prms, expected=recorded)
    depth = bank.manifest["config"]["max_depth"]
    if recipe.max_depth != depth:
        raise BadInputError(
            f"max_depth={recipe.max_depth}: step bank {str(folder)!r} was collected with {depth}, "
            "which is what a replay has"
        )
    golds = dict(zip(zip(bank.ids, bank.texts, strict=True), bank.gold, strict=True))
    for question in evaluation.questions.questions:
        right = evaluation.questions.answers[question.id]
        known = golds.get((question.id, question.text), right)
        if right != known:
            raise BadInputError(
                f"question {question.id!r}: its right answer is {quoted(right)}, and step bank "
                f"{str(folder)!r} was graded by {quoted(known)}: collect the bank again"
            )
    models = {**models, "bank": {name: bank.manifest[name] for name in ("config", "world")}}
    path_scores = [spec.path_score for spec in recipe.prms]
    revisions = revisions_of(recipe.strategies, path_scores, replayed=True)
    manifest = {**evaluation.manifest, "models": models, "revisions": revisions}
    return dataclasses.replace(evaluation, manifest=manifest), ReplayRunner(bank)
