"""Wrong objects handed to a `Searcher`, or returned by its models: each is named in a sentence."""

from dataclasses import replace

import pytest
import scripted

import search
from cats_jax import Question, Searcher
from cats_jax.errors import BadInputError
from cats_jax.live.method import SearchMethod


class NeedsFolder:
    def __init__(self, folder, *more, device, dtype="float32"):
        """Only its signature matters."""


class ListPolicy(scripted.ScriptedPolicy):
    def generate(self, requests):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().generate(requests).samples


class ListAnswers(scripted.ScriptedPolicy):
    def generate_answers(self, requests, max_depth):
        return [[] for _ in requests]


class ListPrm(scripted.ScriptedPrm):
    def score(self, questions, paths):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().score(questions, paths).scores


class ConcurrentListPolicy(ListPolicy):
    concurrent = True


TRAINED = SearchMethod(search.beam(), prices=(2.0, 0.5), prm_token_costs=(1.0,))


def _searcher(**changes):
    arguments = {
        "policy": scripted.ScriptedPolicy(),
        "scorer": scripted.ScriptedPrm(),
        "strategy": search.beam(),
        "num_candidates": 4,
    }
    return Searcher(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": [1]}, r"policy is a list without .*generate, keep_only, which a StepGenerator"),
        ({"policy": "weak"}, r"policy is a str without name"),
        ({"policy": None}, r"policy is a NoneType"),
        (
            {"policy": scripted.ScriptedPolicy},
            r"is the class ScriptedPolicy: .* ScriptedPolicy\(\)",
        ),
        ({"scorer": scripted.ScriptedPrm}, r"class ScriptedPrm: make an inst.*, ScriptedPrm\(\)$"),
        (
            {"scorer": NeedsFolder},
            r"is the class NeedsFolder: .*, NeedsFolder\(folder, device=...\)$",
        ),
        ({"scorer": scripted.ScriptedPolicy()}, r"scorer is a ScriptedPolicy without .*score"),
        ({"strategy": "beam"}, r"strategy is a str, .* not the name 'beam'"),
        ({"strategy": search.beam}, r"strategy is .*: call it: beam\(\) makes the strategy"),
        ({"strategy": None}, r"strategy is a NoneType, not a search.Strategy: pass"),
        ({"grader": "math"}, r"grader is a str without extract, equivalent"),
        ({"num_candidates": True}, r"num_candidates=True: N must be an integer from 1 to 256"),
        ({"max_depth": "3"}, r"max_depth='3': must be an integer"),
        ({"max_depth": True}, r"max_depth=True: must be an integer"),
        ({"seed": 1.0}, r"seed=1.0: must be an integer"),
        ({"budget": 2.5}, r"budget=2.5: must be an integer"),
        ({"budget": 1 << 31}, r"budget=2147483648: must be an integer from 1 to 2\*\*31 - 1"),
        ({"calibration": iter([0.5])}, r"calibration=<list_iterator .*: give at most 6 finite num"),
        ({"max_tokens": 0}, r"max_tokens=0: must be an integer of at least 1"),
        ({"max_seconds": "1"}, r"max_seconds='1': must be a number >= 0"),
        ({"price": "high"}, r"price='high': must be a number >= 0"),
        ({"strategy": TRAINED, "price": 2.5}, "price=2.5: .* trained at prices of 0.5 to 2: stay"),
        ({"strategy": TRAINED, "prm_token_cost": 2}, "prm_token_cost=2: .* of 1 to 1: stay in"),
    ],
)
def test_wrong_objects(changes, message):
    with pytest.raises(BadInputError, match=message):
        _searcher(**changes)


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ("1+2", r"questions is a str: pass a list"),
        (Question("q", "1+2"), r"questions is a Question: pass a list"),
        (["1+2"], r"questions holds a str: make each a Question"),
        (iter([Question("q", "1+2")]), r"questions is a list_iterator: pass a list"),
        (None, r"questions is a NoneType: pass a list"),
        ([Question("q", "1+\ud83d")], r"question's text is '1\+\\ud83d': it must be a str without"),
        ([Question("q", None)], r"question's text is None: it must be a str"),
        (
            [Question("q", "1+2", system="In French.")],
            r"'q': policy '.*' reads no system message: leave it out",
        ),
    ],
)
def test_wrong_questions(questions, message):
    with pytest.raises(BadInputError, match=message):
        _searcher().run(questions)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": ListPolicy()}, "ListPolicy.generate returned .* list: .* a .*protocols.Gener"),
        ({"policy": ConcurrentListPolicy()}, "ConcurrentListPolicy.generate returned a value of"),
        (
            {"policy": ListAnswers(), "strategy": search.majority()},
            "ListAnswers.generate_answers returned .* list: .*AnswerGeneration$",
        ),
        ({"scorer": ListPrm()}, "ListPrm.score returned .* list: .* a cats_jax.protocols.Scoring$"),
    ],
)
def test_what_a_model_returns_is_named(changes, message):
    with pytest.raises(BadInputError, match=message):
        _searcher(**changes).run([Question("q", "1+2+3")])


def test_half_of_a_character_fails_its_question():
    class Half(scripted.ScriptedPolicy):
        def generate(self, requests):
            found = super().generate(requests)
            for request, samples in zip(requests, found.samples, strict=True):
                if request.question.id == "bad":
                    samples[0] = replace(samples[0], step=replace(samples[0].step, text="\ud83d"))
            return found

    found = _searcher(policy=Half()).run([Question("bad", "1+2+3"), Question("good", "1+2+3")])
    assert (found[0].status, found[1].status) == ("failed", "answered")
    assert "half of a character" in found[0].reason


def test_what_a_protocol_asks_for_is_enough():
    assert _searcher().run([]) == []
    assert _searcher(strategy=search.majority(), scorer=None).run([]) == []
