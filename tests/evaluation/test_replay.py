"""Whole searches over a bank, against a loop on the host over the same plan and commit."""

import dataclasses
import functools
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scripted
import scripted_bank
from toy_bank import SETTINGS, toy_bank

import search
from cats_jax.controllers.by_name import search_method
from cats_jax.controllers.strategies import build_strategy
from cats_jax.errors import BadInputError, RunWarning
from cats_jax.evaluation import evaluate
from cats_jax.evaluation.cells import Cell
from cats_jax.evaluation.replay import Replayed, ReplayRunner, replay, replayed
from cats_jax.protocols import Question
from cats_jax.specs.recipe import PrmSpec, parse_recipe, parse_strategy
from search import bank as step_bank
from search.strategy import ets_program
from studies.world.results.oracle import allocation_oracle

ACTIONS = search.cats.ActionTable.product(
    num_extra=(0, 2), num_retain=(1, 2), temperature=(1.0,), top_p=(1.0,)
)
CONFIG = search.cats.CatsConfig(
    rounds=2, num_base=1, base=search.Sampling(0.0), excluded_features=(), actions=ACTIONS
)
ASKING = search.cats.ActionTable(((0, 1, 1.0, 1.0, 0), (1, 1, 0.0, 1.0, 0), (2, 2, 1.0, 1.0, 0)))
"""Actions of which one asks for the greedy child again."""


def _has_child(pool, expansion, row):
    """Whether the new row's text is one of its siblings' in the pool."""
    parent, text = int(expansion.parent[row]), int(expansion.text[row])
    return (parent, text) in set(
        zip(pool.parent[pool.valid].tolist(), pool.text[pool.valid].tolist(), strict=True)
    )


@functools.cache
def compiled(strategy, capacity):
    plan, commit = (functools.partial(f, strategy=strategy) for f in (search.plan, search.commit))
    return jax.jit(plan), jax.jit(commit), jax.jit(step_bank.expander(capacity))


def by_hand(tables, strategy, params, *, number, prm, num_candidates, capacity, seed):
    """One question, tick by tick, with plain sets and sums."""
    order_key, key = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
    task = step_bank.question(tables, number, prm, jax.random.bits(order_key))
    right = task.right_answer
    state = search.init(
        task.root,
        strategy=strategy,
        num_candidates=num_candidates,
        max_depth=int(task.max_depth),
        context=task.context,
        capacity=capacity,
    )
    plan, commit, expand = compiled(strategy, capacity)
    generated, copied, scored, actions, unsolved = 0, 0, set(), [], 0
    first, settings = np.asarray(tables.first_draw), tables.temperature.size
    earlier = {
        child: node
        for node in range(tables.text.size)
        for child in tables.drawn[first[node * settings] : first[(node + 1) * settings]].tolist()
    }
    for index in itertools.count():
        if bool(search.is_terminal(state)):
            break
        plan_key, expand_key = search.tick_keys(key, index)
        planned = plan(params, plan_key, state)
        expansion = expand(task.params, expand_key, planned.request)
        before = jax.device_get(state.pool)
        state, output = commit(state, planned, expansion)
        granted = int(planned.request.num_samples.sum())
        is_greedy = np.asarray(planned.request.temperature)[expansion.parent] == 0.0
        copies = [
            row for row in range(granted) if is_greedy[row] and _has_child(before, expansion, row)
        ]
        tokens = np.asarray(expansion.num_tokens)
        copied += int(tokens[copies].sum())
        generated += int(tokens[:granted].sum() - tokens[copies].sum())
        asked = search.children.asked_rows(planned.request, expansion.parent, expansion.done)
        for node in np.asarray(expansion.embedding)[np.asarray(expansion.valid & asked)].tolist():
            while node in earlier and node not in scored:
                scored.add(node)
                node = earlier[node]
        if isinstance(output.report, search.cats.Decision):
            decided = np.asarray(output.report.valid)
            actions += np.asarray(output.report.action)[decided].tolist()
        if isinstance(output.report, search.types.Unsolved):
            unsolved += int(output.report.count)
    row = int(search.answer(params, state, strategy=strategy))
    correct = row >= 0 and int(state.finished.answer[row]) == int(right)
    prm_tokens = 0
    if strategy.uses_scores:
        prm_tokens = 7 * bool(scored) + sum(int(tables.prm_tokens[node, prm]) for node in scored)
    finished = np.asarray(state.finished.answer)[np.asarray(state.finished.valid)]
    covered = int(right) in finished.tolist()
    return {
        "correct": correct,
        "covered": covered,
        "candidates": int(state.spent),
        "generated": generated,
        "prm_tokens": prm_tokens,
        "tokens": generated + prm_tokens,
        "actions": actions,
        "unsolved": unsolved,
        "copied": copied,
    }


SOME_SCORED = ("vg_search", "lookahead", "global_mcts", "cats_unscored")


@pytest.mark.parametrize("name", ["majority", "beam", "cats_rule", "cats_asks", *SOME_SCORED])
def test_a_replay_is_the_search_tick_by_tick(name):
    tables = toy_bank()
    params = ()
    if name == "cats_asks":
        asking = dataclasses.replace(CONFIG, actions=ASKING)
        strategy = search.cats.cats(search.cats.random_policy, asking)
    elif name == "cats_unscored":
        unscored = dataclasses.replace(
            CONFIG, calibrated=True, score_base=False, path_score="product"
        )
        strategy = search.cats.cats(search.cats.random_policy, unscored)
    elif name == "cats_rule":
        strategy = search.cats.cats(search.cats.sample_while_below("max"), CONFIG)
        params = search.cats.RuleParams(jnp.float32(0.6), jnp.int32(3), jnp.int32(0))
    else:
        strategy = search.methods.DEFAULTS[name]
    found = replay(tables, strategy, params, prm=1, num_candidates=9, seed=7)
    copied = 0
    for number in range(tables.root.shape[0]):
        expected = by_hand(
            tables, strategy, params, number=number, prm=1, num_candidates=9, capacity=16, seed=7
        )
        copied += expected.pop("copied")
        counts = np.bincount(expected.pop("actions"), minlength=found.actions.shape[1])
        np.testing.assert_array_equal(found.actions[number], counts)
        assert {name: getattr(found, name)[number] for name in expected} == expected
        assert expected["unsolved"] == 0
    assert (copied > 0) == (name == "cats_asks")


def test_a_replay_counts_the_programs_that_were_not_solved(monkeypatch):
    """As `by_hand` does, tick by tick; a run warns, as a live search does."""
    monkeypatch.setattr(ets_program, "MAX_VISITS", 0)
    tables, results = toy_bank(), []
    # A distance of no other test: the program is compiled anew.
    ets = cell({"name": "ets", "lambdas": 0.0, "cluster_distance": 0.07})
    questions = [Question(f"q{number}", "?") for number in range(tables.root.shape[0])]
    with pytest.warns(RunWarning, match=r"'ets', N=4: the solver reached its limit in \d+ steps"):
        runner(tables).search(ets, questions, results.append)
    for number, result in enumerate(results):
        expected = by_hand(
            tables, ets.strategy, (), number=number, prm=1, num_candidates=4, capacity=4, seed=3
        )
        assert result.ledger.unsolved == expected["unsolved"] > 0


def test_a_vote_that_drops_paths_reads_no_scores_of_the_bank():
    tables = toy_bank()
    other = tables.replace(score=jnp.where(tables.score < 0, tables.score, 1 - tables.score))
    strategy = search_method("majority", beam_width=2).strategy
    found = [replay(each, strategy, prm=0, num_candidates=9) for each in (tables, other)]
    for name in Replayed._fields:
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name), name)


def test_seeds_that_agree_in_32_bits_are_other_seeds():
    found = [
        replay(toy_bank(), search.methods.DEFAULTS["majority"], prm=0, num_candidates=2, seed=seed)
        for seed in (0, 1 << 32, 5, 5 + (1 << 32), -1, (1 << 32) - 1)
    ]
    tokens = [each.generated.tolist() for each in found]
    assert all(one != other for one, other in zip(tokens[::2], tokens[1::2], strict=True))


def test_price_and_rate_reach_the_strategy():
    def plan(params, key, state):
        context = state.context
        number = jnp.round(context.price + 10.0 * context.prm_token_cost).astype(jnp.int32)
        return search.request(state, jnp.where(state.step == 0, number, 0)), state.memory

    strategy = dataclasses.replace(search.majority(), plan=plan)
    for price, rate in ((2.0, 0.3), (3.0, 0.0)):
        found = replay(
            toy_bank(), strategy, (), prm=0, num_candidates=9, price=price, prm_token_cost=rate
        )
        assert set(found.candidates.tolist()) == {round(price + 10 * rate)}


def test_the_oracle_samples_only_where_it_helps():
    tables = toy_bank()
    tables = tables.replace(value=jnp.zeros_like(tables.value))
    hopeless = allocation_oracle(CONFIG, sample=2, stop=0)
    found = replay(tables, hopeless, tables, prm=0, num_candidates=9)
    assert not found.actions[:, 2].any()
    assert found.actions[:, 0].any()
    # Roots may be right and no child is: every root samples as long as it may.
    tables = tables.replace(value=tables.value.at[tables.root].set(1.0))
    found = replay(tables, hopeless, tables, prm=0, num_candidates=9)
    # (The greedy child of the last question is blank: nobody decides there.)
    np.testing.assert_array_equal(found.actions[:, 2], [CONFIG.rounds] * 3 + [0])
    # All is right: nobody samples.
    tables = tables.replace(value=jnp.ones_like(tables.value))
    found = replay(tables, hopeless, tables, prm=0, num_candidates=9)
    assert not found.actions[:, 2].any()


def test_the_oracle_goes_by_the_child_that_the_prm_ranks_first():
    """Right siblings don't help while a wrong one has the highest score."""
    tables = toy_bank(questions=40)
    config = dataclasses.replace(CONFIG, num_base=4, base=search.Sampling(1.0))
    oracle = allocation_oracle(config, sample=2, stop=0)
    right = tables.score[:, 0] > 0.5
    tables = tables.replace(value=right.astype(jnp.float32).at[tables.root].set(1.0))
    asked = [
        replay(bank, oracle, bank, prm=0, num_candidates=9).actions[:, 2].sum()
        for bank in (tables, tables.replace(score=1.0 - tables.score))
    ]
    assert asked[0] < asked[1]


def runner(tables):
    ids = tuple(f"q{row}" for row in range(tables.root.shape[0]))
    return ReplayRunner(
        types.SimpleNamespace(
            arrays=tables,
            ids=ids,
            texts=("?",) * len(ids),
            prms=("a", "b"),
            gold=tuple(f"gold {name}" for name in ids),
        )
    )


def cell(strategy, prm="b", num_candidates=4):
    spec = parse_strategy(strategy)
    method = build_strategy(spec)
    return Cell(spec, method.strategy, method.params, num_candidates, PrmSpec(prm), seed=3)


def test_the_runner_hands_out_answers_costs_and_actions():
    tables, results = toy_bank(), []
    questions = [Question("q2", "?"), Question("q0", "?")]
    runner(tables).search(cell("cats_random"), questions, results.append)
    method = build_strategy(parse_strategy("cats_random"))
    found = replay(tables, method.strategy, method.params, prm=1, num_candidates=4, seed=3)
    for question, result, row in zip(questions, results, (2, 0), strict=True):
        assert result.question == question
        assert result.answer == (f"gold {question.id}" if found.correct[row] else None)
        right = [path.answer for path in result.paths]
        assert right == ([f"gold {question.id}"] if found.covered[row] else [])
        assert result.ledger.candidates == found.candidates[row]
        assert result.ledger.tokens == found.tokens[row]
        assert len(result.decisions) == found.actions[row].sum()
        rows = method.strategy.config.actions.rows
        extra = sum(rows[a][0] * n for a, n in enumerate(found.actions[row]))
        assert sum(decision.num_extra for decision in result.decisions) == extra


@pytest.mark.parametrize(
    ("strategy", "prm", "question", "message"),
    [
        ("beam", "b", "q9", "question 'q9' is not in the bank"),
        ("beam", "c", "q0", "PRM 'c' is not in the bank, which has a, b"),
        ({"name": "beam", "sampling": {"temperature": 0.7}}, "b", "q0", r"'beam': temperature 0.7"),
        (
            {"name": "cats_random", "config": "paper"},
            "b",
            "q0",
            "'cats_random': temperature 0.6, top_p 0.9",
        ),
    ],
)
def test_what_is_not_in_the_bank_is_refused_by_name(strategy, prm, question, message):
    assert SETTINGS[1][0] == 0.6
    with pytest.raises(BadInputError, match=message):
        runner(toy_bank()).search(cell(strategy, prm), [Question(question, "?")], print)


def test_a_replay_has_the_calibration_of_its_cell():
    """A certified strategy brings its own, which is not that of the recipe."""
    tables, own = toy_bank(), (0.5, -2.0, 1.0, 0.0, 0.0, 1.0)
    calibrated = {"name": "beam", "path_score": "product", "calibrated": True}
    results = []
    certified = dataclasses.replace(cell(calibrated), calibration=own)
    questions = [Question(f"q{row}", "?") for row in range(tables.root.shape[0])]
    runner(tables).search(certified, questions, results.append)
    found = [
        replay(bank, certified.strategy, prm=1, num_candidates=4, seed=3).correct.tolist()
        for bank in (tables, tables.replace(context=_calibrated(tables.context, own)))
    ]
    assert found[0] != found[1] == [result.answer is not None for result in results]


def _calibrated(context, values):
    shape = context.calibration.slope.shape
    fields = (jnp.full(shape, value, jnp.float32) for value in values)
    return context._replace(calibration=search.Calibration(*fields))


def test_a_question_of_that_name_with_another_text_is_refused():
    with pytest.raises(BadInputError, match="question 'q0' is another one in the bank"):
        runner(toy_bank()).search(cell("beam"), [Question("q0", "other")], print)


def _prepared(tmp_path, **changes):
    content = {
        "name": "t",
        "policy": "policy",
        "prms": ["good", "bad"],
        "strategies": ["beam"],
        "num_candidates": [4],
        "max_depth": scripted_bank.MAX_DEPTH,
        "questions": {"file": str(tmp_path / "questions-6.jsonl")},
    }
    recipe = parse_recipe({**content, **changes})
    return evaluate.prepare(recipe, scripted.ScriptedModels())


def test_a_recipe_that_is_not_the_banks_is_refused(tmp_path):
    folder = scripted_bank.collected(tmp_path)

    prepared = functools.partial(_prepared, tmp_path)
    whole = prepared()
    evaluation, _ = replayed(whole, folder)
    assert evaluation.manifest["models"]["bank"]["config"]["max_depth"] == scripted_bank.MAX_DEPTH
    assert evaluation.manifest["models"]["policy"] == whole.manifest["models"]["policy"]
    for changes, message in (
        ({"policy": "strong"}, "was collected with another policy: its fingerprint differs"),
        ({"prms": ["ugly"]}, "has no prm ugly"),
        ({"budget": 9}, "budget has no meaning with --bank: leave it out of the recipe"),
        ({"max_tokens": 99}, "max_tokens has no meaning with --bank"),
        ({"max_depth": 10}, r"max_depth=10: step bank .* was collected with 6"),
        ({"strategies": ["deepconf"]}, "'deepconf' reads the certainty of paths, which no step"),
        ({"strategies": ["dora"]}, "'dora' compares steps by the policy's hidden states, which no"),
        ({"strategies": ["majority", "mctsr"]}, "'mctsr' rewrites the texts of answers, which no"),
        ({"strategies": ["gen_select"]}, "'gen_select' compares the texts of answers, which no"),
    ):
        with pytest.raises(BadInputError, match=message):
            replayed(prepared(**changes), folder)
    (first, second) = whole.cells
    certified = types.SimpleNamespace(threshold=0.5)
    spec = types.SimpleNamespace(label="mine", certified=certified)
    selective = dataclasses.replace(whole, cells=(first, dataclasses.replace(second, spec=spec)))
    with pytest.raises(BadInputError, match="'mine' abstains by the scores of answers, which no"):
        replayed(selective, folder)


def test_a_bank_that_was_graded_by_another_answer_is_refused(tmp_path):
    folder = scripted_bank.collected(tmp_path)
    prepared = _prepared(tmp_path)
    (first, *_) = prepared.questions.questions
    corrected = {**prepared.questions.answers, first.id: "12"}
    questions = dataclasses.replace(prepared.questions, answers=corrected)
    message = rf"question '{first.id}': its right answer is '12', and step bank .* was graded by"
    with pytest.raises(BadInputError, match=message):
        replayed(dataclasses.replace(prepared, questions=questions), folder)


def test_a_recipe_needs_the_scores_of_its_own_prms_only(tmp_path):
    folder = scripted_bank.collected(tmp_path, allocation=scripted_bank.ALONE)
    (folder / "scores-01-00000.parquet").unlink()
    _, found = replayed(_prepared(tmp_path, prms=["good"]), folder)
    assert isinstance(found, ReplayRunner)
    with pytest.raises(BadInputError, match="no scores of PRM 'bad' for 1 of its 3 blocks yet"):
        replayed(_prepared(tmp_path), folder)
    (folder / "scores-00-00000.parquet").rename(folder / "scores-01-00000.parquet")
    _, found = replayed(_prepared(tmp_path, prms=[], strategies=["majority"]), folder)
    assert found._bank.prms == ("bad",)


def test_a_prm_that_is_never_called_reads_no_prompt():
    def plan(params, key, state):
        return search.request(state, 1, scored=False), state.memory

    strategy = search.Strategy(name="silent", plan=plan)
    assert not replay(toy_bank(), strategy, prm=0, num_candidates=3).prm_tokens.any()
