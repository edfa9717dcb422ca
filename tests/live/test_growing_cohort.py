"""A cohort that is advanced tick by tick: questions come and go while others are searched."""

import threading
from collections import deque

import jax.numpy as jnp
import pytest
from letters import QUESTIONS, HashScorer, LetterPolicy, run, signature

import search
from cats_jax.live.searcher import Searcher


def searcher(strategy, policy, scorer):
    """As `letters.run` makes it."""
    return Searcher(
        policy=policy,
        scorer=scorer,
        strategy=strategy,
        params=jnp.int32(40),
        num_candidates=8,
        max_depth=6,
        seed=3,
    )


@pytest.mark.parametrize("name", ["beam", "cats_random"])
def test_questions_that_come_later_and_neighbours_that_leave_change_no_result(name):
    strategy, policy = search.methods.DEFAULTS[name], LetterPolicy(5)
    usual = {result.question.id: signature(result) for result in run(strategy)}
    made, waiting, found = searcher(strategy, policy, HashScorer()), deque(), {}

    def finish(result):
        found[result.question.id] = signature(result)

    cohort = made.cohort(waiting, finish, slots=4)
    rest = deque(QUESTIONS)
    assert not cohort.advance()
    seen: dict[str, tuple[int, int]] = {}
    dropped: list[str] = []
    for tick in range(200):
        if rest and tick % 2 == 0:
            waiting.append(made.job(rest.popleft()))
        if tick == 3:
            dropped = cohort.drop({"q1", "q8", "unknown"})
        open_now = [name for name, _, _ in cohort.progress()]
        assert len(open_now) <= 4
        assert not set(open_now) & set(found)
        if not cohort.advance() and not rest:
            break
        for question, step, ledger in cohort.progress():
            before = seen.get(question, (0, 0))
            assert step >= before[0]
            assert ledger.candidates >= before[1]
            seen[question] = (step, ledger.candidates)
    cohort.close()
    assert dropped == ["q1"]
    assert found == {name: value for name, value in usual.items() if name != "q1"}
    assert policy.live == {question.id: [] for question in QUESTIONS}
    assert list(cohort.progress()) == []


def test_seeds_may_have_another_name_than_the_question():
    """Equal questions under several ids have the same samples."""
    policy, scorer, found = LetterPolicy(5), HashScorer(lambda *_: 0.5), []
    made = searcher(search.methods.DEFAULTS["best_of_n"], policy, scorer)
    waiting = deque(made.job(question, "the question") for question in QUESTIONS[:4])
    made.cohort(waiting, found.append).run()
    first, *others = [[c.text for c in result.candidates] for result in found]
    assert others == [first] * 3
    made.cohort(deque([made.job(QUESTIONS[0])]), found.append, slots=4).run()
    assert [c.text for c in found[-1].candidates] != first


def test_a_question_with_a_call_in_progress_is_dropped_when_it_is_back():
    begun, go = threading.Event(), threading.Event()

    class Policy(LetterPolicy):
        concurrent = True

        def generate(self, requests):
            if requests[0].question.id == "q0":
                begun.set()
                assert go.wait(60)
            return super().generate(requests)

    policy, found = Policy(5), []
    made = searcher(search.methods.DEFAULTS["beam"], policy, HashScorer())
    cohort = made.cohort(deque(map(made.job, QUESTIONS[:4])), found.append)
    assert cohort.advance()  # the others have gone on
    assert begun.wait(60)
    assert cohort.drop({"q0"}) == []
    go.set()
    while not cohort.drop({"q0"}):
        assert cohort.advance()
    while cohort.advance():
        pass
    cohort.close()
    assert {result.question.id for result in found} == {"q1", "q2", "q3"}
    assert policy.live["q0"] == []
