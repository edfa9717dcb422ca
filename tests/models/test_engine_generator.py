"""What a policy on an engine asks it for."""

import dataclasses
import sys
from types import SimpleNamespace

import pytest
import tiny_models
from byte_vocabulary import byte_tokenizer, token_id
from scripted_engine import ScriptedEngine, policy

from cats_jax.errors import BadInputError
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.prompts.step_text import StepEnd
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.http_engine import _completion
from cats_jax.models.serving.step_samples import draw
from cats_jax.models.serving.token_engine import SampleRequest, TokenSample
from cats_jax.protocols import Question, Step, StepRequest

QUESTION = Question("a", "1+2=?")
ONE = StepRequest(QUESTION, (), (1, 2), 1.0, 1.0, 0, False)


def differing(**changes):
    return dataclasses.replace(ONE, seeds=(3, 4, 5), **changes)


def asked(requests):
    engine = ScriptedEngine()
    generation = policy(engine).generate(requests)
    sent = engine.calls[0]  # later ones go on with samples that were blank so far
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


class Reading:
    """An engine that stops at stop ids alone, and writes what follows from the ids so far."""

    concurrent = False

    def __init__(self, written, first):
        self.written, self.first, self.calls = written, first, 0

    def sample(self, requests):
        self.calls += 1
        return [[self._sampled(request)] * len(request.seeds) for request in requests]

    def _sampled(self, request):
        rest = self.written[len(request.prompt) - self.first :][: request.max_tokens]
        stop = next((i for i, token in enumerate(rest, 1) if token in request.stop_ids), None)
        ids = tuple(rest[:stop])
        return TokenSample(ids, stop is not None, (-0.5,) * len(ids), 0)


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes") / "model"
    sizes = {"hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1}
    return tiny_models.save_model(folder, tokenizer=byte_tokenizer(WORDS), vocab_size=280, **sizes)


WORDS = ("\n\n", ".\n", "\n\nSo", "\n\n\n")


def test_the_same_steps_one_by_one_and_as_a_whole_answer(byte_model):
    """Separators of one token, of two, behind blanks, and with text behind them."""
    spelled = ("\n\n", "a", "\n", "\n", "b", ".\n", "\n", "\n", "c", "\n\nSo", "d", "\n\n\n", "e")
    steps = EngineGenerator(byte_model, lambda context: None)
    written = [*(token_id(word, WORDS) for word in spelled), steps._text.ends[0]]
    first = len(steps._prompt(QUESTION, ()))
    steps._engine = Reading(written, first)
    path, finish, texts = (), "step", []
    while finish == "step":
        generation = steps.generate([dataclasses.replace(ONE, path=path, seeds=(len(path),))])
        ((sample,),) = generation.samples
        texts.append(sample.step.text)
        assert sample.log_prob == -0.5 * len(sample.step.token_ids)
        assert generation.usage[0].generated >= len(sample.step.token_ids)
        path, finish = (*path, sample.step), sample.finish
    assert texts == ["a", "b.", "c", "Sod", "e"]
    assert [token for step in path for token in step.token_ids] == written
    whole = EngineGenerator(byte_model, lambda context: Reading(written, first))
    ((answer,),) = whole.generate_answers([dataclasses.replace(ONE, seeds=(1,))], 20).answers
    assert tuple(sample.step for sample in answer) == path
    local = HuggingFaceGenerator(byte_model)._text
    assert local.closers == whole._text.closers


def test_an_engine_may_stop_behind_blanks_more_often_than_python_recurses(monkeypatch):
    generator = policy(ScriptedEngine())
    blank = generator._text.separators[0]
    monkeypatch.setattr(StepEnd, "place", lambda self, ids, start=0: None)  # what it is, quickly
    engine = SimpleNamespace(
        sample=lambda asked: [[TokenSample((blank,), True, None, 0)]] * len(asked)
    )
    most = sys.getrecursionlimit()
    rule = generator._step_end(ONE)
    asked = SampleRequest((1,), (1,), 1.0, 1.0, 0, most, (blank,), rule)
    ((sample,),) = draw(engine, [asked], ())
    assert sample.ids == (blank,) * most
    assert (sample.finish, sample.usage.generated) == ("length", most)


def test_an_engine_is_told_to_stop_by_the_separator_s_text_if_tokens_spell_it(byte_model):
    engine = Reading([token_id("a", WORDS), 1], 0)
    spelled = EngineGenerator(byte_model, lambda context: engine)
    request = spelled_request(spelled)
    assert _completion(request, log_probs=True)["stop"] == ["\n\n"]
    assert set(spelled._text.separators) < set(request.stop_ids)
    assert "stop" not in _completion(spelled_request(policy(ScriptedEngine())), log_probs=True)


def spelled_request(generator):
    """What the generator asks its engine for."""
    asked = []
    generator._engine = SimpleNamespace(
        sample=lambda requests: asked.extend(requests) or [[TokenSample((1,), False, None, 0)] * 2]
    )
    generator.generate([ONE])
    return asked[0]


def test_a_token_of_another_vocabulary_is_refused(byte_model):
    engine = Reading([], 0)
    engine._sampled = lambda request: TokenSample((65, 280), False, None, 0)
    generator = EngineGenerator(byte_model, lambda context: engine)
    with pytest.raises(BadInputError, match=r"sampled token 280, but .* ends at 280"):
        generator.generate_answers([ONE], 3)
