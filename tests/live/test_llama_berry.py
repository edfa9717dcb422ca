"""LLaMA-Berry: every choice and every score of a search is that of the oracle in `compared`."""

import dataclasses
import warnings

import jax.numpy as jnp
import pytest
from compared import (
    COST,
    Berry,
    BrokenComparer,
    Comparer,
    enhanced_borda,
    is_comparison,
    quantile,
    shown_in,
)
from letters import QUESTIONS, run, signature

import search
from cats_jax.live import comparisons
from cats_jax.live.searcher import Searcher
from cats_jax.live.seeds import stable_seed
from cats_jax.protocols import Step

BERRY = search.methods.llama_berry(max_child=1, gamma=0.5)


def verdict(first, second):
    """Whether the first answer wins: intransitive, with a bias to the first, sometimes unread."""
    draw = stable_seed(first, second) % 10
    return None if draw == 0 else draw < 6


def by_verdict(answers):
    won = verdict(*answers)
    return "No idea." if won is None else f"Judgment: {1 if won else 2}"


class Concurrent(Comparer):
    concurrent = True


class Silent(Comparer):
    """Two of three answers have no final answer."""

    def _sample(self, request, seed):
        sample = super()._sample(request, seed)
        if is_comparison(request) or sample.finish != "end" or seed % 3 == 0:
            return sample
        return dataclasses.replace(sample, step=Step(f"none {seed % 50}", sample.step.token_ids))


class Interrupted(Comparer):
    """The third comparison is interrupted once."""

    def generate(self, requests):
        before = len(self.comparisons)
        made = super().generate(requests)
        if before < 3 <= len(self.comparisons):
            raise KeyboardInterrupt
        return made


def _run(policy, strategy=BERRY, **options):
    fixed = {"num_candidates": 8, "questions": QUESTIONS[:4], "scorer": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return run(strategy, policy=policy, **{**fixed, **options})


def test_an_interrupted_search_leaves_nothing_to_the_next():
    options = {"num_candidates": 8, "calibration": "none", "max_depth": 6, "seed": 3}
    found = []
    for policy in (Interrupted(by_verdict), Comparer(by_verdict)):
        searcher = Searcher(policy=policy, strategy=BERRY, params=jnp.int32(40), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if isinstance(policy, Interrupted):
                with pytest.raises(KeyboardInterrupt):
                    searcher.run(QUESTIONS[:3])
            found.append([signature(result) for result in searcher.run(QUESTIONS[:3])])
    assert found[0] == found[1]


def test_a_search_is_that_of_the_oracle():
    policy = Comparer(by_verdict, 20)
    results = _run(policy)
    assert any(row.rewrites for result in results for row in result.candidates)
    for result in results:
        oracle, texts, nodes = Berry(max_child=1, gamma=0.5), [], {}
        assert len(result.candidates) == 8
        for row in result.candidates:
            father = oracle.choose()
            assert row.rewrites == (None if father is None else nodes[father])
            if row.invalid is not None:
                assert row.score is None
                continue
            if row.text not in texts:
                texts.append(row.text)
            value = quantile(row.text, texts, verdict)
            assert row.score == pytest.approx(value, abs=1e-6)
            nodes[len(nodes)] = row.id
            oracle.add(father, value)
        won = {
            (i, j): verdict(texts[i], texts[j])
            for i in range(len(texts))
            for j in range(len(texts))
            if i != j
        }
        best = [texts[i] for i in enhanced_borda(len(texts), won)] if len(texts) > 1 else texts
        assert result.chosen is not None
        assert "\n\n".join(result.paths[result.chosen].steps) in best
        ledger, pairs = result.ledger, len(won)
        # Each reply has 2 tokens that are computed; the last ranking costs nothing more.
        assert ledger.prm_computed == 2 * pairs
        assert ledger.prm_flops == 2 * 1000 * 2 * pairs
        assert (ledger.policy_cost, ledger.prm_cost) == (0.0, COST * pairs)
        assert (ledger.comparisons, ledger.comparisons_unread) == (
            pairs,
            sum(each is None for each in won.values()),
        )
    asked = [each.question.id for each in policy.comparisons]
    assert len(set(asked)) == len(asked)
    assert all(len(shown_in(each.question.text)) == 2 for each in policy.comparisons)
    assert all(policy.live[name] == [] for name in asked)


@pytest.mark.parametrize("options", [{}, {"max_tokens": 30}])
def test_the_ledger_counts_comparisons_of_all_answers_and_of_searches_that_a_limit_ends(options):
    policy = Silent(by_verdict, 20)
    results = _run(policy, **options)
    for result in results:
        own = f"{result.question.text}\n"
        made = [each.question.text for each in policy.comparisons if own in each.question.text]
        unread = [each for each in made if verdict(*shown_in(each)) is None]
        assert (result.ledger.comparisons, result.ledger.comparisons_unread) == (
            len(made),
            len(unread),
        )
    assert any(result.ledger.comparisons_unread for result in results)
    assert any(path.answer is None for result in results for path in result.paths)
    assert ("max_tokens" in {result.status for result in results}) == bool(options)


def test_at_a_limit_the_ranking_of_the_replies_so_far_decides():
    policy = Comparer(by_verdict, 20)
    results = _run(policy, max_tokens=54)
    asked = {tuple(shown_in(each.question.text)) for each in policy.comparisons}
    assert {result.status for result in results} == {"max_tokens"}
    for result in results:
        texts = list(dict.fromkeys("\n\n".join(path.steps) for path in result.paths))
        won = {
            (i, j): verdict(first, second) if (first, second) in asked else None
            for i, first in enumerate(texts)
            for j, second in enumerate(texts)
            if i != j
        }
        assert result.chosen is not None
        best = [texts[i] for i in enhanced_borda(len(texts), won)]
        assert "\n\n".join(result.paths[result.chosen].steps) in best
    assert any(result.chosen for result in results)


def test_results_depend_on_no_neighbour_and_no_thread():
    usual = [signature(each) for each in _run(Comparer(by_verdict, 20))]
    for policy, in_flight in ((Comparer, 1), (Concurrent, 4)):
        found = _run(policy(by_verdict, 20), in_flight=in_flight)
        assert [signature(each) for each in found] == usual


def test_the_last_ranking_asks_for_nothing_again(monkeypatch):
    usual = [signature(each) for each in _run(Comparer(by_verdict, 20))]
    monkeypatch.setattr(comparisons, "REMEMBERED", 1)
    policy = Comparer(by_verdict, 20)
    assert [signature(each) for each in _run(policy)] == usual
    asked = [each.question.id for each in policy.comparisons]
    assert len(set(asked)) == len(asked) > 0


def test_only_the_question_at_fault_fails():
    usual = _run(Comparer(by_verdict, 20))
    for before, after in zip(usual, _run(BrokenComparer(by_verdict, 20)), strict=True):
        if before.question.id == "q1":
            assert after.status == "failed"
            assert "judge 'letters'" in after.reason
        else:
            assert signature(after) == signature(before)
