"""The host driver: same states as in the graph, same results whatever runs beside a question."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from letters import QUESTIONS, HashScorer, LetterPolicy, run, signature

import search
from cats_jax.controllers.strategies import build_strategy
from cats_jax.errors import BadInputError
from cats_jax.live import new_candidates, ticks
from cats_jax.live.searcher import Searcher
from cats_jax.live.seeds import stable_seed
from cats_jax.protocols import Generation, Question, Scoring, Step, StepSample, TokenUsage
from cats_jax.specs.recipe import StrategySpec
from search import simulation
from search.cats import features as cats_features


@pytest.mark.parametrize(
    "name", ["best_of_n", "beam", "mcts", "cats_random", "sequential_best_of_n"]
)
def test_result_does_not_depend_on_the_neighbours(name):
    strategy = search.methods.DEFAULTS[name]
    together = run(strategy)
    few = run(strategy, questions=QUESTIONS[:6], in_flight=3)
    alone = [run(strategy, questions=[question])[0] for question in reversed(QUESTIONS[:3])]
    assert [signature(r) for r in together[:6]] == [signature(r) for r in few]
    assert [signature(r) for r in together[:3]] == [signature(r) for r in reversed(alone)]


@pytest.mark.parametrize("name", ["beam", "mcts", "particle_filtering", "cats"])
def test_searches_need_no_log_probabilities(name):
    class Without(LetterPolicy):
        def _sample(self, request, seed):
            return dataclasses.replace(super()._sample(request, seed), log_prob=None)

    strategy, params, price, *_ = build_strategy(StrategySpec(name))
    options = {"price": price, "questions": QUESTIONS[:3]}
    if name == "cats":
        options["params"] = params
    usual = run(strategy, **options)
    without = run(strategy, policy=Without(5), **options)
    for result in usual:
        for candidate in result.candidates:
            candidate.log_prob = None
    # The likelihood is among the features: this controller does not weigh it.
    for result in (*usual, *without):
        result.decisions = [dataclasses.replace(row, features=()) for row in result.decisions]
    assert [signature(r) for r in without] == [signature(r) for r in usual]


def test_all_n_of_a_capacity_and_all_prices_share_compiled_programs():
    strategy, params, price, *_ = build_strategy(StrategySpec("cats"))
    options = {"params": params, "questions": QUESTIONS[:3]}
    run(strategy, price=price, num_candidates=9, **options)
    programs: list[Any] = [ticks.first_states, ticks.plan, ticks.commit, ticks.where_slots]
    sizes = [program.jitted._cache_size() for program in programs]
    for num_candidates, other in ((5, price), (16, price), (9, 3.0)):
        run(strategy, price=other, num_candidates=num_candidates, **options)
    assert [program.jitted._cache_size() for program in programs] == sizes


def test_each_call_of_the_policy_serves_all_open_questions():
    """Also where a question asks for nothing in a round in which others do."""
    calls: list[set[str]] = []

    class Policy(LetterPolicy):
        def generate(self, requests):
            calls.append({request.question.id for request in requests})
            return super().generate(requests)

    for result in run(search.methods.DEFAULTS["cats_random"], policy=Policy(), in_flight=3):
        served = [i for i, ids in enumerate(calls) if result.question.id in ids]
        assert served == list(range(served[0], served[0] + result.ledger.policy_calls))
    # A place is taken again at once: only at the end are fewer than three questions open.
    assert [len(ids) for ids in calls] == sorted((len(ids) for ids in calls), reverse=True)
    assert len(calls[0]) == 3


# Those of methods that rewrite and compare answers are in `test_rewriter` and `test_comparisons`.
_PLAIN = [
    name
    for name, strategy in search.methods.DEFAULTS.items()
    if strategy.rewriting is None and strategy.comparison is None
]


@pytest.mark.parametrize("name", _PLAIN)
def test_limits_ledger_and_tree_agree(name):
    strategy, budget = search.methods.DEFAULTS[name], 19
    policy, scorer = LetterPolicy(20), HashScorer()
    results = run(strategy, policy=policy, scorer=scorer, budget=budget)
    asked: Counter = Counter()
    for request in policy.requests:
        asked[request.question.id] += len(request.seeds)
    width = strategy.width(8)
    for result in results:
        rows = result.candidates
        assert [row.id for row in rows] == list(range(1, len(rows) + 1))
        assert result.ledger.candidates == len(rows) == asked[result.question.id] <= budget
        assert max(Counter(row.step for row in rows).values()) <= 8
        assert len(result.paths) <= width
        assert result.ledger.generated == len(rows)
        for row in rows:
            parent = None if row.parent == 0 else rows[row.parent - 1]
            assert parent is None or (parent.kept and not parent.done and parent.invalid is None)
            assert not (row.kept and row.invalid)
            asks = strategy.uses_scores and (name != "vg_search" or row.step % 2 == 0 or row.done)
            asks = asks and (name != "global_mcts" or row.done)
            assert (row.score is not None) == (row.invalid is None and asks)
            if (
                row.score is not None
                and strategy.aggregation is search.aggregations.AGGREGATIONS["min"]
            ):
                above = 1.0 if parent is None else parent.path_score
                assert row.path_score == pytest.approx(min(above, row.score), abs=1e-6)
        for path in result.paths:
            assert path.nodes
            assert rows[path.nodes[-1] - 1].done
            assert path.steps == tuple(rows[node - 1].text for node in path.nodes)
        if result.answer is not None:
            assert result.chosen is not None
            assert result.paths[result.chosen].answer == result.answer
        assert policy.live[result.question.id] == []
    if not strategy.uses_scores:
        assert scorer.seen == []
    blank = [text for _, texts in scorer.seen for text in texts if not text.strip()]
    assert blank == []
    assert not any("cut off" in texts for _, texts in scorer.seen)


def test_seeds_differ_between_candidates_and_not_between_strategies():
    seeds = {}
    for name in ("best_of_n", "beam"):
        policy = LetterPolicy()
        run(search.methods.DEFAULTS[name], policy=policy, questions=QUESTIONS[:3])
        seeds[name] = [
            (request.question.id, len(request.path), request.seeds) for request in policy.requests
        ]
        all_seeds = [seed for _, _, row in seeds[name] for seed in row]
        assert len(set(all_seeds)) == len(all_seeds)
    roots = [{row for row in rows if row[1] == 0} for rows in seeds.values()]
    assert roots[0] == roots[1]
    other = LetterPolicy()
    run(search.methods.DEFAULTS["beam"], policy=other, questions=QUESTIONS[:3], seed=4)
    assert not {s for r in other.requests for s in r.seeds} & {
        s for _, _, row in seeds["beam"] for s in row
    }


class ConcurrentScorer(HashScorer):
    concurrent = True


class ConcurrentPolicy(LetterPolicy):
    concurrent = True


@pytest.mark.parametrize(
    ("policy", "scorer"), [(LetterPolicy, HashScorer), (ConcurrentPolicy, ConcurrentScorer)]
)
def test_a_bad_score_fails_its_question_by_name_and_no_other(policy, scorer):
    bad = {"q1": math.inf, "q4": math.nan, "q5": -0.25, "q8": 1.5}

    def change(question, texts, value):
        return bad.get(question.id, value) if len(texts) == 2 else value

    undisturbed = run(search.methods.DEFAULTS["beam"])
    results = run(search.methods.DEFAULTS["beam"], policy=policy(5), scorer=scorer(change))
    for result, good in zip(results, undisturbed, strict=True):
        name = result.question.id
        if name in bad:
            assert (result.status, result.answer) == ("failed", None)
            assert repr(name) in result.reason
            assert "step 1" in result.reason
        else:
            assert signature(result) == signature(good)


def test_wrong_number_of_scores_fails_the_question_it_came_from():
    class Short(HashScorer):
        def score(self, questions, paths):
            scoring = super().score(questions, paths)
            if any(question.id == "q1" for question in questions):
                return dataclasses.replace(scoring, scores=scoring.scores[:-1])
            return scoring

    results = run(search.methods.DEFAULTS["beam"], scorer=Short())
    assert [r.question.id for r in results if r.status == "failed"] == ["q1"]
    assert "q1" in results[1].reason


def test_a_question_without_any_valid_candidate_fails():
    results = run(search.methods.DEFAULTS["beam"], policy=LetterPolicy(100))
    assert {result.status for result in results} == {"failed"}
    assert all("every candidate of step 0 is invalid" in result.reason for result in results)
    assert {c.invalid for r in results for c in r.candidates} == {"blank", "length", "context"}


class LoopingPolicy(LetterPolicy):
    """Greedy decoding never ends a step."""

    def _sample(self, request, seed):
        sample = super()._sample(request, seed)
        loops = request.temperature == 0
        return dataclasses.replace(sample, finish="length") if loops else sample


@pytest.mark.parametrize(("options", "most"), [({}, 4), ({"budget": 2}, 2)])
def test_cats_samples_where_its_greedy_child_is_invalid(options, most):
    """Before anything fails, within N and the budget, as the table's cheapest action samples."""
    strategy = search.cats.cats(search.cats.constant_policy)
    policy = LoopingPolicy(15)
    results = run(strategy, policy=policy, params=jnp.int32(0), num_candidates=4, **options)
    retries = [request for request in policy.requests if request.temperature != 0]
    asked = {(round(r.temperature, 6), r.top_p, r.top_k, len(r.seeds)) for r in retries}
    assert asked == {(0.6, 1.0, 0, 1)}
    for result in results:
        steps = Counter(candidate.step for candidate in result.candidates)
        assert max(steps.values()) <= most
        assert all(candidate.invalid for candidate in result.candidates if candidate.phase == 0)
        # One valid child is enough; without one, all rounds are spent.
        for step in steps:
            tried = [c.invalid is None for c in result.candidates if c.step == step and c.phase]
            assert tried == [False] * (len(tried) - 1) + [any(tried)]
    answered = [result.status == "answered" for result in results]
    assert all(answered) if not options else not any(answered)


def test_a_method_with_a_next_path_goes_on_after_a_step_without_a_usable_candidate():
    kept: list[list] = []

    class Policy(LetterPolicy):
        def generate(self, requests):
            generation = super().generate(requests)
            if len(self.requests) == 1:  # the first path ends here
                cut = dataclasses.replace(generation.samples[0][0], finish="length")
                generation.samples[0][0] = cut
            return generation

        def keep_only(self, question, paths):
            kept.append(list(paths))

    strategy = search.methods.sequential_best_of_n(stop=2.0)
    (result,) = run(strategy, policy=Policy(), num_candidates=3, questions=QUESTIONS[:1])
    assert result.candidates[0].invalid == "length"
    assert result.status == "answered"
    assert len(result.paths) == 2
    # While the next path has no step, the prompt stays in the models' caches.
    assert kept[0] == [()]
    assert kept[-1] == []


def _too_long(question, texts, value):
    """The PRM can't read paths in which a step begins with an "a" after the first."""
    return None if any(text[0] == "a" for text in texts[1:]) else value


@pytest.mark.parametrize(
    "name",
    ["best_of_n", "beam", "particle_filtering", "mcts", "cats_random", "sequential_best_of_n"],
)
def test_a_path_that_the_prm_cannot_read_is_dropped_alone(name):
    scorer = HashScorer(_too_long)
    results = run(search.methods.DEFAULTS[name], scorer=scorer, policy=LetterPolicy(0))
    refused = [c for result in results for c in result.candidates if c.invalid == "prm context"]
    assert refused
    for result in results:
        # A question fails only where nothing is left to answer with.
        assert (result.status == "failed") == (not result.paths)
        of_result = [c for c in result.candidates if c.invalid is not None]
        assert result.ledger.prm_refused == len(of_result)
        for candidate in of_result:
            assert (candidate.score, candidate.answer, candidate.done) == (None, None, False)
            assert not candidate.kept
        parents = {candidate.parent for candidate in result.candidates}
        assert parents.isdisjoint(candidate.id for candidate in of_result)


def test_sixteen_paths_of_which_one_is_too_long_are_fifteen_paths():
    """The answer is that of a search in which the path was never sampled."""

    class Without(LetterPolicy):
        def _sample(self, request, seed):
            sample = super()._sample(request, seed)
            texts = (*(step.text for step in request.path), sample.step.text)
            gone = _too_long(None, texts, 0.0) is None
            return dataclasses.replace(sample, finish="length") if gone else sample

    options = {"num_candidates": 16, "questions": QUESTIONS}
    strategy = search.best_of_n(vote="weighted")
    refused = run(strategy, scorer=HashScorer(_too_long), policy=LetterPolicy(0), **options)
    absent = run(strategy, policy=Without(0), **options)
    assert any(result.ledger.prm_refused for result in refused)
    for one, other in zip(refused, absent, strict=True):
        assert (one.answer, one.status, one.chosen) == (other.answer, other.status, other.chosen)
        assert [path.steps for path in one.paths] == [path.steps for path in other.paths]


def test_a_question_whose_paths_the_prm_cannot_read_fails():
    nothing = HashScorer(lambda question, texts, value: None)
    results = run(search.methods.DEFAULTS["best_of_n"], scorer=nothing, policy=LetterPolicy(0))
    assert {result.status for result in results} == {"failed"}
    assert all("every candidate of step 0 is invalid" in result.reason for result in results)


def test_a_search_that_stops_with_nothing_finished_names_its_last_candidates():
    """The first path is invalid, and the method stops in a step without candidates."""
    strategy = search.methods.learned_stopping(lambda params, features: jnp.bool_(True))
    (result,) = run(strategy, policy=LetterPolicy(100), questions=QUESTIONS[:1], num_candidates=4)
    assert (result.status, result.steps, len(result.candidates)) == ("failed", 2, 1)
    assert result.reason.startswith("every candidate of step 0 is invalid: ")
    assert "None" not in result.reason


def test_no_question_is_charged_for_compilation():
    strategy = dataclasses.replace(search.beam(), name="compiled once")

    def searched():
        searcher = Searcher(
            policy=LetterPolicy(),
            scorer=HashScorer(),
            strategy=strategy,
            num_candidates=4,
        )
        (result,) = searcher.run(QUESTIONS[:1])
        return searcher.timings.as_dict(), result.ledger.core_seconds

    timings, core = searched()
    assert core < 0.2 * timings["compiling"]
    timings, core = searched()
    assert "compiling" not in timings
    assert core > 0.0


def test_limits_are_statuses():
    assert {r.status for r in run(search.methods.DEFAULTS["beam"], max_tokens=1)} == {"max_tokens"}
    assert {r.status for r in run(search.methods.DEFAULTS["beam"], max_seconds=0.0)} == {
        "max_seconds"
    }
    spent = run(search.methods.DEFAULTS["majority"], budget=8)
    assert {r.status for r in spent} == {"budget"}
    # Nobody ever finishes and the last step has run to its end: no answer, but no failure.
    unfinished = run(search.methods.DEFAULTS["beam"], policy=LetterPolicy(longest=99), max_depth=1)
    assert {r.status for r in unfinished} <= {"answered", "no_answer"}


def test_a_model_that_counts_no_tokens_is_charged_for_its_seconds():
    class Uncounted(HashScorer):
        def score(self, questions, paths):
            scores = super().score(questions, paths).scores
            return Scoring(scores, [TokenUsage()] * len(paths), 3.0)

    results = run(search.methods.DEFAULTS["beam"], scorer=Uncounted(), max_depth=1)
    assert sum(r.ledger.prm_seconds for r in results) == pytest.approx(3.0)


def test_no_limit_takes_an_answer_away():
    """Particle Gibbs puts its finished paths aside while the next iteration writes others."""
    strategy, questions = search.methods.DEFAULTS["particle_gibbs"], QUESTIONS[:4]
    policy = LetterPolicy(0, longest=4)
    (*runs, whole) = (
        run(strategy, policy=policy, questions=questions, num_candidates=4, max_tokens=limit)
        for limit in (*range(6, 120, 6), 10_000)
    )
    answered = np.array([[each.answer is not None for each in results] for results in runs])
    assert not answered[0].any()
    assert answered[-1].all()
    assert (answered[1:] >= answered[:-1]).all()
    cut = [each for results in runs for each in results if each.status == "max_tokens"]
    for result in cut:
        row = result.chosen
        assert (row is None) == (result.answer is None)
        assert row is None or result.paths[row].answer == result.answer
    assert all(each.status == "answered" for each in whole)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_candidates": 0}, ["num_candidates", "from 1 to 256"]),
        ({"num_candidates": 257}, ["num_candidates", "from 1 to 256"]),
        ({"max_depth": 0}, ["max_depth"]),
        ({"budget": 0}, ["budget"]),
        ({"in_flight": 0}, ["in_flight"]),
        ({"price": -0.1}, ["price=-0.1", ">= 0"]),
        ({"price": math.nan}, ["price=nan", ">= 0"]),
        ({"price": math.inf}, ["price=inf", ">= 0"]),
        ({"prm_token_cost": -0.5}, ["prm_token_cost=-0.5", ">= 0"]),
        ({"questions": [QUESTIONS[0], QUESTIONS[0]]}, ["q0", "twice"]),
        ({"questions": [Question("long", "x" * 101)]}, ["long"]),
    ],
)
def test_bad_input_is_named_before_any_call(options, words):
    policy = LetterPolicy()
    with pytest.raises(BadInputError) as error:
        run(search.methods.DEFAULTS["beam"], policy=policy, **options)
    assert all(word in str(error.value) for word in words)
    assert "\n" not in str(error.value)
    assert policy.requests == []


def test_a_strategy_that_reads_scores_needs_a_scorer():
    with pytest.raises(BadInputError, match="beam"):
        Searcher(policy=LetterPolicy(), strategy=search.beam(), num_candidates=4)


def _every_second_step_scored(odd, key, state):
    wanted, memory = search.beam().plan((), key, state)
    return wanted.replace(scored=wanted.scored & (state.step % 2 == odd)), memory


@pytest.mark.parametrize("odd", [False, True])
def test_the_prm_is_asked_only_where_a_request_says_so(odd):
    """Every second step is not scored: its candidates have no score, and the search goes on."""
    scorer = HashScorer()
    strategy = dataclasses.replace(search.beam(), plan=_every_second_step_scored)
    results = run(strategy, scorer=scorer, params=jnp.int32(odd))
    assert {len(texts) % 2 for _, texts in scorer.seen} == {0 if odd else 1}
    usable = 0
    for result in results:
        scored = [row for row in result.candidates if row.invalid is None and row.step % 2 == odd]
        usable += len(scored)
        assert all(row.score is not None and row.path_score is not None for row in scored)
        others = [row for row in result.candidates if row.step % 2 != odd]
        assert all(row.score is None and row.path_score is None for row in others)
        assert result.ledger.prm_computed == 3 * len(scored)
        assert result.ledger.prm_calls == len({row.step for row in scored})
        for path in result.paths:
            steps = [result.candidates[node - 1].score for node in path.nodes]
            assert path.step_scores == tuple(score for score in steps if score is not None)
    assert len(scorer.seen) == usable > 0
    assert max(row.step for result in results for row in result.candidates if row.kept) >= 2
    assert "answered" in {result.status for result in results}
    assert "failed" not in {result.status for result in results}


def test_only_the_children_of_some_nodes_are_scored():
    """Two nodes in one tick, of which the second says no."""
    beam = search.beam()

    def plan(params, key, state):
        wanted, memory = beam.plan(params, key, state)
        first = jnp.arange(wanted.scored.shape[0]) == 0
        return wanted.replace(scored=first), memory

    for result in run(dataclasses.replace(beam, plan=plan), policy=LetterPolicy()):
        for step in {row.step for row in result.candidates}:
            parents = {row.parent: [] for row in result.candidates if row.step == step}
            for row in result.candidates:
                if row.step == step:
                    parents[row.parent].append(row.score is not None)
            # Candidates come in the order of the frontier.
            answers = [set(scored) for scored in parents.values()]
            assert answers == [{True}] + [{False}] * (len(parents) - 1)
        assert result.status == "answered"


TWO_ROUNDS = dataclasses.replace(search.cats.SELECTIVE, rounds=2)
ASK = len(search.cats.SELECTIVE.actions) - 1  # one greedy child more
"""The action of the table `ask` that asks for one greedy child and keeps one."""


def test_a_node_asks_the_policy_for_its_greedy_child_once():
    assert search.cats.SELECTIVE.actions.rows[ASK] == (1, 1, 0.0, 1.0, 0)
    strategy = search.cats.cats(search.cats.constant_policy, TWO_ROUNDS)
    policy, scorer = LetterPolicy(0), HashScorer()
    results = run(strategy, policy=policy, scorer=scorer, params=jnp.int32(ASK))
    asked = Counter(request.question.id for request in policy.requests)
    assert {len(request.seeds) for request in policy.requests} == {1}
    assert {request.temperature for request in policy.requests} == {0.0}
    read = Counter(scorer.seen)
    for result in results:
        assert result.status == "answered"
        steps = max(row.step for row in result.candidates) + 1
        ledger = result.ledger
        assert asked[result.question.id] == steps == ledger.policy_calls == ledger.generated
        assert ledger.prompt_computed == 2 * steps
        assert ledger.candidates == len(result.candidates) == 3 * steps
        for step in range(steps):
            first, *copies = [row for row in result.candidates if row.step == step]
            for copy in copies:
                # LetterPolicy's greedy children depend on their seed, so that a new one would show.
                assert (copy.text, copy.token_ids, copy.log_prob) == (
                    first.text,
                    first.token_ids,
                    first.log_prob,
                )
                texts = (*(result.candidates[3 * s].text for s in range(step)), copy.text)
                assert (
                    copy.score == first.score == (stable_seed(result.question.id, *texts) % 17) / 16
                )
                assert read[result.question.id, texts] == 2
    assert sum(read.values()) == sum(2 * len(result.candidates) // 3 for result in results)


def test_copies_are_candidates_that_the_policy_did_not_sample():
    """Questions whose nodes ask for copies, for samples or for nothing, side by side."""
    strategy = search.cats.cats(search.cats.random_policy, search.cats.SELECTIVE)
    policy = LetterPolicy(5)
    together = run(strategy, policy=policy, params=(), in_flight=4)
    few = run(strategy, params=(), in_flight=3)
    # Without the features that decisions saw.
    assert [signature(r)[:2] for r in together] == [signature(r)[:2] for r in few]
    sampled: Counter = Counter()
    for request in policy.requests:
        sampled[request.question.id] += len(request.seeds)
    every = 0
    for result in together:
        copies = sum(d.granted for d in result.decisions if d.num_extra and d.temperature == 0.0)
        generated = sampled[result.question.id]
        assert result.ledger.generated == generated == len(result.candidates) - copies
        assert result.ledger.candidates == len(result.candidates)
        every += copies
    assert every > 5


_SEEN = dataclasses.replace(search.cats.CATS, excluded_features=("likelihood_best", "unread"))


@pytest.mark.parametrize("config", [TWO_ROUNDS, _SEEN])
def test_a_policy_without_log_probabilities_fails_a_question_that_needs_them(config):
    class Without(LetterPolicy):
        def _sample(self, request, seed):
            sample = super()._sample(request, seed)
            silent = request.question.id == "q3"
            return dataclasses.replace(sample, log_prob=None) if silent else sample

    strategy = search.cats.cats(search.cats.constant_policy, config)
    usual = run(strategy, policy=LetterPolicy(0), params=jnp.int32(ASK))
    results = run(strategy, policy=Without(0), params=jnp.int32(ASK))
    for result, good in zip(results, usual, strict=True):
        if result.question.id == "q3":
            assert (result.status, result.answer) == ("failed", None)
            assert "reports no log-probabilities" in result.reason
            assert "log_probs=False" in result.reason
        else:
            assert signature(result) == signature(good)


def test_log_probabilities_are_asked_for_only_where_they_are_read():
    blind = dataclasses.replace(
        search.cats.CATS_TOKENS, excluded_features=cats_features.LIKELIHOOD_FEATURES
    )
    for config in (search.cats.CATS, blind):
        assert not search.cats.cats(search.cats.constant_policy, config).needs_log_probs
    tokens = search.cats.cats(search.cats.constant_policy, search.cats.CATS_TOKENS)
    assert tokens.needs_log_probs


def test_price_and_rate_reach_the_strategy():
    def plan(which, key, state):
        rates = jnp.stack([state.context.price, state.context.prm_token_cost])
        number = jnp.round(10.0 * rates[which]).astype(jnp.int32)
        return search.request(state, jnp.where(state.step == 0, number, 1)), state.memory

    strategy = dataclasses.replace(search.majority(), plan=plan)
    for which, name in enumerate(("price", "prm_token_cost")):
        for value in (0.3, 0.7):
            for result in run(strategy, params=jnp.int32(which), **{name: value}):
                assert sum(row.step == 0 for row in result.candidates) == round(10 * value)


def test_phases_that_sample_nothing_are_skipped(monkeypatch):
    """The results are those of a search that goes through every phase."""
    num_commits, commit = [], ticks.commit

    def counting(params, state, *arguments):
        num_commits[-1] += 1
        return commit(params, state, *arguments)

    monkeypatch.setattr(ticks, "commit", counting)
    strategy = search.cats.cats(
        search.cats.random_policy, dataclasses.replace(search.cats.CATS, rounds=12)
    )
    signatures = []
    for skips in (True, False):
        num_commits.append(0)
        tested = dataclasses.replace(strategy, quiet_ends_step=skips)
        results = run(tested, params=(), num_candidates=16)
        signatures.append([signature(result) for result in results])
    assert signatures[0] == signatures[1]
    assert any(decisions for _, _, decisions, _ in signatures[0])
    assert num_commits[0] < 0.7 * num_commits[1]


def test_an_error_in_the_policy_stops_the_run():
    class Broken(LetterPolicy):
        def generate(self, requests):
            if any(request.path for request in requests):
                raise OSError("engine died")
            return super().generate(requests)

    with pytest.raises(OSError, match="engine died"):
        run(search.methods.DEFAULTS["beam"], policy=Broken())


class Replay:
    """Policy and PRM that hand back the recorded expansions of one simulated search.

    All tokens of a step have the certainty that the simulator gives its path.
    """

    name = "replay"
    certainties = ("top",)
    vectors = True
    num_parameters = 1
    sparsity_total = 0.0
    sparsity_last_layer = 0.0

    def __init__(self, expansions) -> None:
        self._ticks = iter(expansions)
        self._scores: list[float] = []

    def check_question(self, question) -> None:
        del question

    def generate(self, requests) -> Generation:
        tick, granted = next(self._ticks)
        assert sum(len(request.seeds) for request in requests) == granted
        rows = [self._sample(tick, row) for row in range(granted)]
        self._scores = [float(tick.score[row]) for row in range(granted) if tick.valid[row]]
        ends = np.cumsum([len(request.seeds) for request in requests])[:-1]
        samples = [list(part) for part in np.split(np.array(rows, object), ends)]
        usage = [
            TokenUsage(generated=sum(len(sample.step.token_ids) for sample in row))
            for row in samples
        ]
        return Generation(samples, usage, 0.0)

    def _sample(self, tick, row) -> StepSample:
        step = Step(f"t{tick.text[row]}", (1,) * int(tick.num_tokens[row]))
        if tick.answer[row] >= 0:
            step = dataclasses.replace(step, text=f"{step.text} \\boxed{{{tick.answer[row]}}}")
        finish = "end" if tick.done[row] else "step"
        finish = finish if tick.valid[row] else "context"
        certainties = (float(tick.certainty[row]),) * len(step.token_ids)
        return StepSample(step, finish, float(tick.log_prob[row]), certainties, tick.vector[row])

    def score(self, questions, paths) -> Scoring:
        assert len(paths) == len(self._scores)
        return Scoring(self._scores, [TokenUsage()] * len(paths), 0.0)

    def keep_only(self, question, paths) -> None:
        del question, paths


@pytest.mark.slow
@pytest.mark.emitters  # without them the two differ in last bits
@pytest.mark.parametrize(
    "name",
    [
        "best_of_n",
        "dvts",
        "particle_filtering",
        "particle_gibbs",
        "mcts",
        "global_mcts",
        "litesearch",
        "speculative_rejection",
        "sequential_halving",
        "deepconf_online",
        "ets",
        "cats_random",
        "sequential_best_of_n",
    ],
)
def test_driver_and_rollout_give_identical_states(name, monkeypatch):
    """The same plan and commit around a bridge and in one scan, field by field, every tick."""
    # Every phase on its own, as in the graph.
    strategy = dataclasses.replace(search.methods.DEFAULTS[name], quiet_ends_step=False)
    if name == "deepconf_online":
        strategy = search.methods.deepconf_online(
            warmup_traces=4, confidence_percentile=50.0, window_size=8
        )
        monkeypatch.setattr(new_candidates, "path_certainty", lambda tokens, _: tokens[-1])
    params = simulation.toy_params(num_steps=(4,), invalid=0.1, lucky=0.2, max_depth=5)
    task = simulation.question(params, jax.random.key(5), 0, 0)
    sizes = {"strategy": strategy, "num_candidates": 9, "max_depth": 5, "capacity": 16}
    frontier_capacity = 4 if strategy.width(9) <= 4 else 16
    assert int(task.max_depth) == 5
    state = search.init(task.root, frontier_capacity=frontier_capacity, **sizes)
    seed, question = 11, Question("replayed", "?")
    key = jax.random.key(stable_seed(seed, question.id) % 2**31)
    every_tick = search.Recorder(lambda state: (), lambda memory, tick: (memory, tick))
    final, recorded = search.rollout(
        (),
        task.params,
        key,
        state,
        strategy=strategy,
        expand_fn=simulation.simulator(16),
        recorder=every_tick,
    )
    final, recorded = jax.device_get((final, recorded))
    graph_states, expansions = [], []
    for index in range(strategy.num_phases * strategy.num_steps(9, 5)):
        tick = jax.tree.map(operator.itemgetter(index), recorded)
        if search.is_terminal(tick.before):
            break
        graph_states.append(tick.after)
        granted = int(tick.plan.request.num_samples.sum())
        if granted:
            expansions.append((tick.expansion, granted))
    _assert_same(final, graph_states[-1], strategy)

    host_states = []
    commit = ticks.commit

    def recording_commit(*arguments):
        after, output = commit(*arguments)
        host_states.append(jax.device_get(jax.tree.map(lambda leaf: leaf[0], after)))
        return after, output

    monkeypatch.setattr(ticks, "commit", recording_commit)
    replay = Replay(expansions)
    del sizes["capacity"]
    (result,) = Searcher(policy=replay, scorer=replay, seed=seed, **sizes).run([question])
    assert result.status != "failed", result.reason
    assert len(host_states) == len(graph_states)
    for host, graph in zip(host_states, graph_states, strict=True):
        _assert_same(host, graph, strategy)


def _assert_same(host, graph, strategy):
    """Equal in every field but the ids the host gives to texts, answers and embeddings."""

    def comparable(state):
        blank = {"text": 0, "answer": 0, "embedding": 0}
        if not strategy.uses_scores:  # the simulator scores all the same
            blank["step_scores"] = 0
        parts = {
            part: getattr(state, part).replace(**blank) for part in ("frontier", "pool", "finished")
        }
        memory = () if strategy.config is None else state.memory
        return state.replace(memory=memory, **parts)

    host_leaves, graph_leaves = (
        jax.tree.leaves(comparable(host)),
        jax.tree.leaves(comparable(graph)),
    )
    for a, b in zip(host_leaves, graph_leaves, strict=True):
        np.testing.assert_array_equal(a, b)
    for part in ("frontier", "pool", "finished"):
        ours, theirs = getattr(host, part), getattr(graph, part)
        fields = ["answer", "text"]
        if strategy.name == "global_mcts" and part == "finished":
            # Two of its simulations may end at one depth and in one frontier slot, in different
            # ticks. They have different parents, so the classes of their texts are unrelated.
            fields.remove("text")
        for a, b in ((getattr(ours, name), getattr(theirs, name)) for name in fields):
            same_here = (a[:, None] == a[None, :]) & _siblings(theirs)
            same_there = (b[:, None] == b[None, :]) & _siblings(theirs)
            np.testing.assert_array_equal(same_here, same_there)


def _siblings(paths):
    """bool[N, N]: valid rows of one parent; only those share classes of texts."""
    return (
        paths.valid[:, None]
        & paths.valid[None, :]
        & (paths.parent[:, None] == paths.parent[None, :])
        & (paths.depth[:, None] == paths.depth[None, :])
    )
