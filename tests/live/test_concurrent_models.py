"""Models that several threads may call at a time: no question waits for another, results stay."""

import threading

import pytest
import scripted_engine
from letters import QUESTIONS, HashScorer, LetterPolicy, run, signature

import search
from cats_jax import datasets
from cats_jax.protocols import Question

SECONDS = 60.0  # much longer than a test takes


class ConcurrentPolicy(LetterPolicy):
    concurrent = True


class ConcurrentScorer(HashScorer):
    concurrent = True


@pytest.mark.parametrize("name", ["best_of_n", "beam", "mcts", "cats_random"])
def test_results_do_not_depend_on_the_order_in_which_calls_end(name):
    """Every call waits for two later ones, if they come."""

    class Policy(ConcurrentPolicy):
        begun = 0
        lock = threading.Condition()

        def generate(self, requests):
            with self.lock:
                self.begun += 1
                number = self.begun
                self.lock.notify_all()
                self.lock.wait_for(lambda: self.begun >= number + 2, timeout=0.005)
            return super().generate(requests)

    def found(policy, scorer, in_flight):
        options = {"questions": QUESTIONS[:6], "in_flight": in_flight}
        strategy = search.methods.DEFAULTS[name]
        return list(map(signature, run(strategy, policy=policy(5), scorer=scorer(), **options)))

    usual = found(LetterPolicy, HashScorer, 4)
    for scorer in (HashScorer, ConcurrentScorer):
        for in_flight in (4, 3):
            assert found(Policy, scorer, in_flight) == usual


def test_a_question_goes_on_while_the_samples_of_another_are_awaited():
    second_step = threading.Event()
    scored = threading.Event()

    class Policy(ConcurrentPolicy):
        def generate(self, requests):
            (name,) = {request.question.id for request in requests}
            if name == "q0" and not requests[0].path:
                assert second_step.wait(SECONDS)
                assert scored.wait(SECONDS)
            elif requests[0].path:
                second_step.set()
            return super().generate(requests)

    class Scorer(HashScorer):
        def score(self, questions, paths):
            scored.set()
            return super().score(questions, paths)

    strategy = search.methods.DEFAULTS["beam"]
    found = run(strategy, policy=Policy(5), scorer=Scorer())
    assert second_step.is_set()
    assert [signature(r) for r in found] == [signature(r) for r in run(strategy)]


def test_the_policy_samples_while_the_prm_scores():
    more = threading.Event()

    class Policy(ConcurrentPolicy):
        def generate(self, requests):
            if requests[0].path:
                more.set()
            return super().generate(requests)

    class Scorer(ConcurrentScorer):
        def score(self, questions, paths):
            if questions[0].id == "q0" and len(paths[0]) == 1:
                assert more.wait(SECONDS)
            return super().score(questions, paths)

    class Alone(Policy):
        """Sends the first samples of q0 alone, so that they are scored by a call of their own."""

        first = threading.Event()

        def generate(self, requests):
            if requests[0].question.id != "q0":
                assert self.first.wait(SECONDS)
                threading.Event().wait(0.2)
            generation = super().generate(requests)
            self.first.set()
            return generation

    strategy = search.methods.DEFAULTS["beam"]
    found = run(strategy, policy=Alone(5), scorer=Scorer())
    assert more.is_set()
    assert [signature(r) for r in found] == [signature(r) for r in run(strategy)]


def test_one_call_of_a_prm_serves_many_questions():
    calls = []

    class Scorer(HashScorer):
        def score(self, questions, paths):
            calls.append({question.id for question in questions})
            return super().score(questions, paths)

    questions = [Question(f"q{n}", f"text {n}") for n in range(32)]
    run(
        search.methods.DEFAULTS["best_of_n"],
        policy=ConcurrentPolicy(),
        scorer=Scorer(),
        questions=questions,
        in_flight=32,
    )
    assert len(calls[0]) >= 4  # an eighth of those in flight


@pytest.mark.parametrize("part", ["policy", "scorer"])
def test_an_error_in_a_thread_stops_the_run(part):
    class Policy(ConcurrentPolicy):
        def generate(self, requests):
            if part == "policy" and requests[0].question.id == "q3" and requests[0].path:
                raise RuntimeError("no memory")
            return super().generate(requests)

    class Scorer(ConcurrentScorer):
        def score(self, questions, paths):
            if part == "scorer" and "q3" in {question.id for question in questions}:
                raise RuntimeError("no memory")
            return super().score(questions, paths)

    with pytest.raises(RuntimeError, match="no memory"):
        run(search.methods.DEFAULTS["beam"], policy=Policy(), scorer=Scorer())


@pytest.mark.parametrize("name", ["best_of_n", "beam"])
def test_engines_in_threads_give_what_they_give_in_one(name):
    """Whole answers and steps, with a policy and a PRM on engines."""

    def searched(concurrent):
        sampler, classifier = scripted_engine.ScriptedEngine(), scripted_engine.ScriptedPrm()
        sampler.concurrent = classifier.concurrent = concurrent
        return run(
            search.methods.DEFAULTS[name],
            policy=scripted_engine.policy(sampler),
            scorer=scripted_engine.prm(classifier),
            questions=datasets.world_questions("validation", 12).questions,
        )

    usual, found = searched(False), searched(True)
    assert [signature(r) for r in found] == [signature(r) for r in usual]


def test_an_error_is_raised_while_other_calls_go_on():
    goes_on = threading.Event()

    class Policy(ConcurrentPolicy):
        def generate(self, requests):
            if requests[0].question.id == "q0":
                raise RuntimeError("no memory")
            assert goes_on.wait(SECONDS)
            return super().generate(requests)

    threading.Timer(SECONDS, goes_on.set).start()
    try:
        with pytest.raises(RuntimeError, match="no memory"):
            run(search.methods.DEFAULTS["beam"], policy=Policy())
        assert not goes_on.is_set()
    finally:
        goes_on.set()
