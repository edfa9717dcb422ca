"""Real vLLM engines on the embedded world; `make test-vllm` has an environment for them."""

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import httpx
import pytest

from cats_jax import datasets, world
from cats_jax.bridges.contracts import check_generator, check_scorer
from cats_jax.bridges.engine_generator import EngineGenerator
from cats_jax.bridges.engine_scorer import EngineScorer
from cats_jax.bridges.hf_generator import HuggingFaceGenerator
from cats_jax.bridges.hf_scorer import HuggingFaceScorer
from cats_jax.bridges.http_engine import HTTPClassifier, HTTPSampler, Server
from cats_jax.bridges.vllm_engine import VLLMClassifier, VLLMSampler, two_token_classifier
from cats_jax.errors import BadInputError, ScorerContractError
from cats_jax.prms.format import SKYWORK, WORLD
from cats_jax.protocols import Question, Step, StepRequest
from cats_jax.searcher import Searcher
from cats_jax.statistics import wilson
from search import best_of_n

pytestmark = pytest.mark.vllm

LIMITS = {"max_step_tokens": 32, "max_answer_tokens": 64}
SERVER = "vllm.entrypoints.openai.api_server"


@contextlib.contextmanager
def serving(path, *options):
    """A vLLM server in a process of its own, as a user starts it; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", SERVER, "--model", str(path), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager"]
    command += ["--block-size", "32", "--no-enable-chunked-prefill", "--max-model-len", "256"]
    command += ["--max-num-batched-tokens", "4096", "--enable-prompt-tokens-details", *options]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(600):
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"{address}/health").status_code == 200:
                        break
                assert process.poll() is None, log.seek(0) or log.read().decode()[-3000:]
                time.sleep(0.5)
            yield address
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module", params=["in_process", "http"])
def backend(request):
    return request.param


@pytest.fixture(scope="module")
def policy(backend):
    path = world.policy_path("weak")
    if backend == "in_process":
        yield EngineGenerator(path, lambda context: VLLMSampler(path, context=context), **LIMITS)
        return
    with serving(path) as address:
        clients = []

        def connect(context):
            clients.append(Server(address, context=context))
            return HTTPSampler(clients[0])

        yield EngineGenerator(path, connect, **LIMITS)
        clients[0].close()


@pytest.fixture(scope="module")
def scorer(backend):
    path = world.prm_path("exact")
    if backend == "in_process":
        yield EngineScorer(path, WORLD, lambda *model: vllm_classifier(path, *model))
        return
    overrides = json.dumps(two_token_classifier("Qwen2ForCausalLM", "-", "+"))
    options = ("--runner", "pooling", "--convert", "classify", "--hf-overrides", overrides)
    with serving(path, *options) as address:
        clients = []

        def connect(model, read_out):
            clients.append(Server(address, context=model.context))
            return HTTPClassifier(clients[0])

        yield EngineScorer(path, WORLD, connect)
        clients[0].close()


def vllm_classifier(path, model, read_out):
    return VLLMClassifier(
        path,
        context=model.context,
        architecture=model.config.architectures[0],
        negative=read_out.negative,
        positive=read_out.positive,
    )


@pytest.fixture(scope="module")
def hf_policy():
    return HuggingFaceGenerator(world.policy_path("weak"), **LIMITS)


@pytest.fixture(scope="module")
def hf_scorer():
    return HuggingFaceScorer(world.prm_path("exact"), WORLD)


@pytest.fixture(scope="module")
def questions():
    return datasets.world_questions("validation", 24)


def request(question, path=(), seeds=(0,), temperature=1.0, to_end=False):
    return StepRequest(question, path, tuple(seeds), temperature, 1.0, 0, to_end)


def sampled_paths(generator, questions):
    """Paths of one and of several steps, with their questions."""
    roots = [request(q, seeds=range(4)) for q in questions]
    pairs = []
    for asked, samples in zip(roots, generator.generate(roots).samples, strict=True):
        steps = {sample.step for sample in samples if sample.finish == "step"}
        pairs += [(asked.question, (step,)) for step in steps]
    grown = [request(q, path, to_end=True) for q, path in pairs]
    for asked, (sample,) in zip(grown, generator.generate(grown).samples, strict=True):
        if sample.finish == "end":
            pairs.append((asked.question, (*asked.path, sample.step)))
    return pairs


def test_the_generator_keeps_the_contract(policy, questions):
    check_generator(policy, questions.questions[:3], exact=False)


def test_greedy_decoding_is_that_of_the_hugging_face_bridge(policy, hf_policy, questions):
    asked = [request(q, temperature=0.0, to_end=True) for q in questions.questions]
    ours, theirs = policy.generate(asked), hf_policy.generate(asked)
    for (one,), (other,) in zip(ours.samples, theirs.samples, strict=True):
        assert (one.step, one.finish) == (other.step, other.finish)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


def test_first_samples_do_not_depend_on_how_many_there_are(policy, questions):
    question = questions.questions[0]
    (few,) = policy.generate([request(question, seeds=range(4))]).samples
    (many,) = policy.generate([request(question, seeds=range(16))]).samples
    assert [s.step for s in few] == [s.step for s in many[:4]]
    assert len({s.step for s in many}) > 1


def test_a_full_context_is_told_from_a_long_step(policy, questions):
    question = questions.questions[0]
    filler = Step("1+1=2", (8, 17, 8, 24, 9, 4))
    asked = [request(question, (filler,) * count, to_end=True) for count in range(30, 44)]
    finishes = [sample.finish for (sample,) in policy.generate(asked).samples]
    assert finishes[-1] == "context"
    (short,) = policy.generate([dataclasses.replace(asked[-1], to_end=False)]).samples[0]
    assert (short.step, short.finish) == (Step("", ()), "context")  # no room for a token


def test_the_scorer_keeps_the_contract(policy, scorer, questions):
    pairs = sampled_paths(policy, questions.questions[:6])
    check_scorer(scorer, *map(list, zip(*pairs, strict=True)), tolerance=1e-5)


def test_scores_are_those_of_the_hugging_face_bridge(policy, scorer, hf_scorer, questions):
    pairs = sampled_paths(policy, questions.questions)
    asked, paths = map(list, zip(*pairs, strict=True))
    ours, theirs = scorer.score(asked, paths), hf_scorer.score(asked, paths)
    assert ours.scores == pytest.approx(theirs.scores, abs=1e-5)
    assert max(ours.scores) - min(ours.scores) > 0.9  # right and wrong ones among them


def test_a_prefix_is_read_from_the_cache(backend, scorer, questions):
    if backend == "http":
        return  # `/classify` does not say what was cached
    question = questions.questions[0]
    steps = [Step(f"{n}+1={n + 1}", ()) for n in range(10, 22)]
    scorer.score([question], [tuple(steps[:-1])])
    (usage,) = scorer.score([question], [tuple(steps)]).usage
    assert usage.cached >= 64
    assert usage.computed < usage.cached


def test_broken_paths_are_named(scorer, questions):
    question = questions.questions[0]
    with pytest.raises(ScorerContractError, match="step 1: the step is blank"):
        scorer.score([question], [(Step("1+1=2", ()), Step(" ", ()))])
    with pytest.raises(ScorerContractError, match="the context 256"):
        scorer.score([question], [(Step("1+1=2", ()),) * 60])


def test_a_question_longer_than_the_context_is_refused(policy):
    with pytest.raises(BadInputError, match="context of 256"):
        policy.check_question(Question("long", "1+" * 150 + "1=?"))


def test_a_head_of_its_own_is_refused_before_an_engine_starts():
    with pytest.raises(BadInputError, match="skywork"):
        EngineScorer(world.prm_path("exact"), SKYWORK, lambda *model: pytest.fail("started"))


def test_searches_agree_in_accuracy(policy, scorer, hf_policy, hf_scorer, questions):
    """The same strategy over both bridges: other samples, so equal within intervals."""
    shares = []
    for engine, prm in ((policy, scorer), (hf_policy, hf_scorer)):
        searcher = Searcher(policy=engine, scorer=prm, strategy=best_of_n(), num_candidates=8)
        results = searcher.run(questions.questions)
        assert all(result.status == "answered" for result in results)
        right = sum(r.answer == questions.answers[r.question.id] for r in results)
        shares.append(wilson(right, len(results)))
    ours, theirs = shares
    assert ours.low <= theirs.high
    assert theirs.low <= ours.high
