"""What a policy on an engine asks it for."""

import dataclasses

import pytest
from scripted_engine import ScriptedEngine, policy

from cats_jax.protocols import Question, Step, StepRequest

QUESTION = Question("a", "1+2=?")
ONE = StepRequest(QUESTION, (), (1, 2), 1.0, 1.0, 0, False)


def differing(**changes):
    return dataclasses.replace(ONE, seeds=(3, 4, 5), **changes)


def asked(requests):
    engine = ScriptedEngine()
    generation = policy(engine).generate(requests)
    (sent,) = engine.calls
    return generation, sent


def alone(requests):
    return [policy(ScriptedEngine()).generate([request]) for request in requests]


def test_requests_that_differ_in_their_seeds_are_one():
    requests = [ONE, differing(temperature=0.5), differing(), dataclasses.replace(ONE, seeds=(9,))]
    generation, sent = asked(requests)
    assert [request.seeds for request in sent] == [(1, 2, 3, 4, 5, 9), (3, 4, 5)]
    apart = alone(requests)
    assert generation.samples == [each.samples[0] for each in apart]
    assert generation.usage == [each.usage[0] for each in apart]


@pytest.mark.parametrize(
    "changes",
    [
        {"question": Question("b", "1+2=?")},  # it may be searched without the other
        {"path": (Step("7", (9,)),)},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"top_k": 5},
        {"to_end": True},
    ],
)
def test_others_are_requests_of_their_own(changes):
    requests = [ONE, differing(**changes)]
    generation, sent = asked(requests)
    assert [request.seeds for request in sent] == [(1, 2), (3, 4, 5)]
    assert generation.samples == [each.samples[0] for each in alone(requests)]
