"""What a question is charged for if a call broke the contract or a run was interrupted."""

import dataclasses
import math

import pytest

import search
from cats_jax import HuggingFaceGenerator, HuggingFaceScorer, Question, Searcher, world

QUESTIONS = [
    Question(f"q{i}", text)
    for i, text in enumerate(["((50*4)-21)+15=?", "((51*4)-21)+15=?", "(6*7)-2=?"])
]


class Wrapped:
    """Another model's calls; from the call `first` on those for `faulty` break the contract."""

    def __init__(self, model, faulty=None, first=1):
        self.model, self.faulty, self.left = model, faulty, first

    def __getattr__(self, name):
        return getattr(self.model, name)

    def score(self, questions, paths):
        found = self.model.score(questions, paths)
        self.left -= 1
        scores = [
            math.nan if question.id == self.faulty and self.left < 1 else score
            for question, score in zip(questions, found.scores, strict=True)
        ]
        return dataclasses.replace(found, scores=scores)

    def generate(self, requests):
        found = self.model.generate(requests)
        self.left -= 1
        samples = [
            own[:-1] if request.question.id == self.faulty and self.left < 1 else own
            for request, own in zip(requests, found.samples, strict=True)
        ]
        return dataclasses.replace(found, samples=samples)


@pytest.fixture(scope="module")
def models():
    policy = HuggingFaceGenerator(world.policy_path("weak"), max_step_tokens=32)
    return policy, HuggingFaceScorer(world.prm_path("exact"), "world")


def _searcher(policy, scorer, strategy=None, **options):
    strategy = search.beam(expansion=4) if strategy is None else strategy
    return Searcher(policy=policy, scorer=scorer, strategy=strategy, num_candidates=8, **options)


def _costs(results):
    """The charges of each question; seconds vary."""
    names = ("prompt_computed", "prompt_cached", "prm_computed", "prm_cached", "flops", "tokens")
    return [
        (each.question.id, each.answer, *(getattr(each.ledger, name) for name in names))
        for each in results
    ]


STRATEGIES = {
    "beam": search.beam(expansion=4),
    "litesearch": search.methods.litesearch(),  # several phases a step
    "best_of_n": search.best_of_n(),
}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("call", [1, 4])
def test_a_neighbour_that_breaks_the_contract_changes_no_charge(models, name, call):
    policy, scorer = models
    strategy = STRATEGIES[name]
    alone = _costs(_searcher(policy, scorer, strategy).run(QUESTIONS[:1]))
    for pair in ((policy, Wrapped(scorer, "q1", call)), (Wrapped(policy, "q1", call), scorer)):
        found = _searcher(*pair, strategy, in_flight=2).run(QUESTIONS[:2])
        assert _costs(found[:1]) == alone
        assert call > 1 or found[1].status == "failed"


def test_a_run_that_was_interrupted_leaves_no_question_in_the_models(models):
    policy, scorer = models
    searcher = _searcher(policy, scorer, in_flight=2)
    usual = _costs(searcher.run(QUESTIONS))

    def interrupt(result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searcher.run(QUESTIONS, on_result=interrupt)
    assert _costs(searcher.run(QUESTIONS)) == usual


def test_a_policy_that_raises_leaves_no_question_in_the_models(models):
    policy, scorer = models
    usual = _costs(_searcher(policy, scorer, in_flight=2).run(QUESTIONS))

    class Raising(Wrapped):
        def generate(self, requests):
            found = self.model.generate(requests)
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("no more")
            return found

    searcher = _searcher(Raising(policy, first=3), scorer, in_flight=2)
    with pytest.raises(RuntimeError, match="no more"):
        searcher.run(QUESTIONS)
    assert _costs(searcher.run(QUESTIONS)) == usual
