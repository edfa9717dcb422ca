"""Real vLLM engines on the embedded world: `make test-vllm`."""

import contextlib
import dataclasses
import itertools
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest
from search_server import own_fields
from search_server import running as running_server
from vllm_engines import (
    free_port,
    kill_group,
    prm_in_process,
    prm_over_http,
    running,
    serving,
)

from cats_jax import datasets, load_controller, world
from cats_jax.errors import BadInputError, RunStoppedError, ScorerContractError
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.live.searcher import Searcher
from cats_jax.models.contracts import check_generator, check_scorer
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.format import WORLD
from cats_jax.models.resolve import resolve_models
from cats_jax.models.serving import chat
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.http_engine import HTTPSampler, ServerClient
from cats_jax.models.serving.token_engine import SampleRequest
from cats_jax.models.serving.vllm_engine import (
    VLLMSampler,
    check_names,
)
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step, StepRequest
from cats_jax.reporting.statistics import wilson
from cats_jax.server.offer import Loaded, Offer
from cats_jax.specs.models import PolicySpec
from cats_jax.specs.recipe import parse_recipe
from cats_jax.world.tokenizer import build_tokenizer
from search import beam, best_of_n, greedy, majority

pytestmark = pytest.mark.vllm

LIMITS = {"max_step_tokens": 32, "max_answer_tokens": 64}


@pytest.fixture(scope="module", params=["in_process", "http"])
def backend(request):
    return request.param


@pytest.fixture(scope="module")
def policy(backend):
    path = world.policy_path("weak")
    if backend == "in_process":
        yield EngineGenerator(path, lambda context: VLLMSampler(path, context=context), **LIMITS)
        return
    # As in the files of many models, whose defaults would change samples.
    defaults = {"repetition_penalty": 1.9, "frequency_penalty": 1.0, "min_p": 0.9, "top_k": 2}
    with serving(path, "--override-generation-config", json.dumps(defaults)) as address:
        clients = []

        def connect(context):
            clients.append(ServerClient(address, context=context))
            return HTTPSampler(clients[0])

        yield EngineGenerator(path, connect, **LIMITS)
        clients[0].close()


@pytest.fixture(scope="module")
def scorer(backend):
    path = world.prm_path("exact")
    if backend == "in_process":
        yield prm_in_process(path, WORLD)
        return
    with prm_over_http(path, WORLD) as scorer:
        yield scorer


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


def test_the_certainties_of_tokens_are_those_of_the_hugging_face_bridge(
    backend, policy, hf_policy, questions
):
    """Also of steps in whole answers, and beside a call that does not ask for them."""
    if backend == "http":
        assert policy.certainties == frozenset()
        return
    assert policy.certainties == {"top"}
    plain = [request(q, temperature=0.0, to_end=True) for q in questions.questions[:6]]
    asked = [dataclasses.replace(each, certainty="top") for each in plain]
    wanted = [sample.certainties for (sample,) in hf_policy.generate(asked).samples]
    with ThreadPoolExecutor(2) as pool:
        found, others = pool.map(policy.generate, (asked, plain))
    for (sample,), expected in zip(found.samples, wanted, strict=True):
        assert len(sample.certainties) == len(sample.step.token_ids)
        assert sample.certainties == pytest.approx(expected, abs=1e-3)
    assert all(sample.certainties is None for (sample,) in others.samples)
    whole = policy.generate_answers([dataclasses.replace(asked[0], to_end=False)], 8).answers
    joined = [value for step in whole[0][0] for value in step.certainties]
    assert joined == pytest.approx(wanted[0], abs=1e-3)


def test_a_separator_that_two_tokens_spell_ends_steps_as_on_transformers(
    backend, policy, questions, monkeypatch
):
    local = HuggingFaceGenerator(world.policy_path("weak"), step_separator="=2", **LIMITS)
    assert not local._text.separators
    monkeypatch.setattr(policy, "_text", local._text)
    asked = [request(q, temperature=0.0) for q in questions.questions[:12]]
    for _ in range(2):
        ours, theirs = policy.generate(asked).samples, local.generate(asked).samples
        found = [(sample.step, sample.finish) for (sample,) in ours]
        assert found == [(sample.step, sample.finish) for (sample,) in theirs]
        asked = [
            request(each.question, (*each.path, step), temperature=0.0)
            for each, (step, finish) in zip(asked, found, strict=True)
            if finish == "step"
        ]
        assert asked
    asked = [request(q, seeds=range(7)) for q in questions.questions[:6]]
    samples = policy.generate(asked).samples
    for sample in itertools.chain.from_iterable(samples):
        text = local._model.decode(sample.step.token_ids)
        assert text.find("=2") == (len(text) - 2 if sample.finish == "step" else -1)
        assert len(sample.step.token_ids) > 0
    if backend == "in_process":
        # Without its queue the engine stops at each token that may close, and then goes on.
        monkeypatch.setattr(policy._engine, "_queue", None)
        greedy = [request(q, temperature=0.0) for q in questions.questions[:12]]
        found = policy.generate(greedy).samples
        monkeypatch.undo()
        assert [s.step for (s,) in found] == [s.step for (s,) in local.generate(greedy).samples]


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
    scoring = scorer.score([question, question], [(Step("1+1=2", ()),) * 60, (Step("1", ()),)])
    assert scoring.scores[0] is None
    assert scoring.scores[1] is not None


def test_a_question_longer_than_the_context_is_refused(policy):
    with pytest.raises(BadInputError, match="context of 256"):
        policy.check_question(Question("long", "1+" * 150 + "1=?"))


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


def test_searches_on_an_engine_are_served_to_openai_s_client(policy, scorer, questions):
    """Greedy answers are those of a searcher; clients that go away leave the others alone."""
    recipe = parse_recipe(
        {
            "name": "served",
            "prms": ["exact"],
            "calibration": "weak",
            "strategies": ["greedy", "beam"],
            "num_candidates": [4],
            "questions": {"world": "test", "count": 1},
            "in_flight": 8,
        }
    )
    offer = Offer(recipe, name="weak", max_prompt_characters=200)
    texts = [question.text for question in questions.questions[:8]]
    greedily = Searcher(policy=policy, strategy=greedy(), num_candidates=1)
    expected = greedily.run([Question(text, text) for text in texts])

    def ask(job):
        text, strategy = job
        message = {"role": "user", "content": text}
        return client.chat.completions.create(
            model="weak", messages=[message], extra_body={"strategy": strategy}
        )

    with running_server(Loaded(offer, policy, scorer, BoxedIntegerGrader())) as server:
        client = server.client()
        asked = [(text, strategy) for text in texts for strategy in ("greedy", "beam")]
        with ThreadPoolExecutor(17) as clients:
            answers = clients.map(ask, asked)
            stream = client.chat.completions.create(
                model="weak", messages=[{"role": "user", "content": texts[0]}], stream=True
            )
            next(stream)
            stream.close()
            answers = list(answers)
        last = time.monotonic() + 30
        while not server.engine.is_idle():
            assert time.monotonic() < last
    for answer, result in zip(answers[::2], expected, strict=True):
        assert answer.choices[0].message.content == "\n\n".join(result.paths[0].steps)
    for answer in answers[1::2]:
        assert own_fields(answer)["status"] == "answered"
        assert own_fields(answer.usage)["generated"] > 0
    right = [
        own_fields(answer)["answer"] == questions.answers[question.id]
        for answer, question in zip(answers[1::2], questions.questions[:8], strict=True)
    ]
    assert sum(right) >= 3


def test_the_queue_of_an_engine_gives_what_its_public_methods_give(
    backend, policy, scorer, questions, monkeypatch
):
    """Not public API: fails where another version of vLLM is taken for a known one."""
    if backend == "http":
        return
    roots = [request(q, seeds=range(7), to_end=True) for q in questions.questions[:6]]
    greedy = [request(q, temperature=0.0) for q in questions.questions[:6]]
    pairs = [
        list(each) for each in zip(*sampled_paths(policy, questions.questions[:6]), strict=True)
    ]

    def everything():
        return policy.generate(roots + greedy).samples, scorer.score(*pairs).scores

    assert policy._engine._queue is not None
    samples, scores = everything()
    monkeypatch.setattr(policy._engine, "_queue", None)
    monkeypatch.setattr(scorer.engine, "_queue", None)
    assert everything() == (samples, pytest.approx(scores, abs=1e-5))
    beginnings = scorer.score_answers(*pairs, [0] * len(pairs[0])).scores
    monkeypatch.undo()
    once = scorer.score_answers(*pairs, [0] * len(pairs[0])).scores
    for ours, theirs in zip(once, beginnings, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


def test_samples_are_the_same_without_log_probabilities(
    backend, policy, scorer, questions, monkeypatch
):
    if backend == "http":
        return
    asked = [request(q, seeds=range(7)) for q in questions.questions[:6]]
    asked += [request(q, temperature=0.0) for q in questions.questions[:6]]

    def samples():
        return [sample for each in policy.generate(asked).samples for sample in each]

    known = samples()
    assert all(sample.log_prob <= 0.0 for sample in known)
    monkeypatch.setattr(policy._engine, "_log_probs", False)
    without = samples()
    assert [(s.step, s.finish) for s in without] == [(s.step, s.finish) for s in known]
    assert [sample.log_prob for sample in without] == [None] * len(known)
    results = Searcher(policy=policy, scorer=scorer, strategy=beam(), num_candidates=4).run(
        questions.questions[:2]
    )
    assert all(c.log_prob is None for result in results for c in result.candidates)
    # Last: without its queue an engine takes one call at a time.
    monkeypatch.setattr(policy._engine, "_queue", None)
    assert samples() == without


def test_whole_answers_have_the_steps_and_scores_of_searches_step_by_step(
    policy, scorer, hf_policy, hf_scorer, questions
):
    def searched(engine, strategy, **settings):
        searcher = Searcher(policy=engine, strategy=strategy, **settings)
        return searcher.run(questions.questions)

    ours = searched(policy, greedy(), num_candidates=1)
    theirs = searched(hf_policy, greedy(), num_candidates=1)
    for one, other in zip(ours, theirs, strict=True):
        assert [c.token_ids for c in one.candidates] == [c.token_ids for c in other.candidates]
    for result in searched(policy, best_of_n(), num_candidates=8, scorer=scorer):
        assert result.ledger.policy_calls <= 10
        assert result.paths
        for path in result.paths:
            steps = [Step(text, ()) for text in path.steps]
            paths = [tuple(steps[: end + 1]) for end in range(len(steps))]
            expected = hf_scorer.score([result.question] * len(paths), paths).scores
            assert path.step_scores == pytest.approx(expected, abs=1e-5)


@pytest.fixture(scope="module")
def of_a_recipe(questions):
    """An engine that a run would start, and its processes."""
    before = set(psutil.Process().children(recursive=True))
    asked = PolicySpec(
        "weak",
        backend="vllm",
        seed_per="request",
        log_probs=False,
        max_num_seqs=64,
        engine_args={"max_num_batched_tokens": 4096},
        **LIMITS,
    )
    resolved, _ = resolve_models(asked, (), questions.questions, max_depth=2)
    policy: Any = ModelFolders().policy(resolved)
    return policy, set(psutil.Process().children(recursive=True)) - before


def test_settings_of_an_engine_as_a_recipe_gives_them(of_a_recipe, questions):
    """Context, free arguments and one request per node."""
    policy, _ = of_a_recipe
    config = policy._engine.engine.llm_engine.vllm_config
    longest = max(len(policy._model.prompt_ids(question)) for question in questions.questions)
    assert config.model_config.max_model_len == longest + 32 + 64 < 256
    assert config.scheduler_config.max_num_batched_tokens == 4096
    assert config.scheduler_config.max_num_seqs == 64
    assert policy._engine.engine.collective_rpc("cats_jax_device") == ["cpu"]
    check_generator(policy, questions.questions[:3], exact=False)
    question = questions.questions[0]
    (few,) = policy.generate([request(question, seeds=range(4))]).samples
    (many,) = policy.generate([request(question, seeds=range(16))]).samples
    assert [s.step for s in few] == [s.step for s in many[:4]]
    assert len({s.step for s in many}) > 1
    (greedy,) = policy.generate([request(question, seeds=range(3), temperature=0.0)]).samples
    assert len(greedy) == 3
    assert greedy[0] == greedy[2]
    assert greedy[0].log_prob is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine_args": {"kv_cache_dtypes": "fp8"}}, "did you mean 'kv_cache_dtype'"),
        ({"quantization": "fp9_per_tensor"}, "did you mean 'fp8_per_tensor'"),
        ({"device": "cuda"}, "this vLLM is built for the CPU: set device: cpu"),
        ({"engine_args": {"scheduling_policy": "no"}}, "vLLM does not start with"),
    ],
)
def test_what_this_vllm_does_not_have_is_refused_before_weights_are_read(settings, message):
    def start(spec):
        check_names(spec)
        ModelFolders().policy(spec)

    with pytest.raises(BadInputError, match=message):
        start(PolicySpec("weak", backend="vllm", **settings))


def test_an_engine_that_dies_stops_the_run(of_a_recipe):
    """The last test of this engine."""
    policy, processes = of_a_recipe
    engine = policy._engine
    asked = [SampleRequest((1, 8, 24, 25, 4), tuple(range(64)), 1.0, 1.0, 0, 32, (2, 4))]
    assert len(engine.sample(asked)[0]) == 64
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    with pytest.raises(RunStoppedError, match="has died"):
        engine.sample(asked)


class Killing:
    """A `Sampler` that begins its third call with `kill`, in the background."""

    def __init__(self, sampler, kill):
        self.sampler = sampler
        self.kill = kill
        self.calls = 0

    def sample(self, requests):
        self.calls += 1
        if self.calls == 3:
            self.kill()
        return self.sampler.sample(requests)


@pytest.mark.timeout(900)
def test_searches_without_token_ids(monkeypatch, tmp_path, hf_policy, hf_scorer, questions):
    """Through vLLM's chat completions: graded answers, and a ledger that is the server's count."""
    # The probe of the embedded world's model is in its own language.
    for name, text in (("ASKED", "((50*4)-21)+15=?"), ("BEGUN", "50*4=2")):
        monkeypatch.setattr(chat, f"_{name}", text)
    monkeypatch.setattr(chat, "_REST", "00")
    monkeypatch.setattr(chat, "_STOP", "200-")
    # Beside a model of the type qwen2, transformers reads any tokenizer as one of Qwen 2.
    build_tokenizer().save_pretrained(tmp_path)
    options = ("--served-model-name", "weak", "--tokenizer", str(tmp_path))
    asked = questions.questions[:8]
    with serving(world.policy_path("weak"), *options) as address:
        spec = PolicySpec(backend=address, chat=True, served_name="weak", format="plain", **LIMITS)
        policy = chat.chat_policy(spec)
        assert "whole answers and single steps by continuation; a start without" in policy.found
        right, steps = {}, {}
        for strategy in (greedy(), best_of_n(), beam(), load_controller("cats")):
            before = sampled_by(address)
            searcher = Searcher(
                policy=policy, scorer=hf_scorer, strategy=strategy, num_candidates=4
            )
            results = searcher.run(asked)
            name = getattr(strategy, "name", "cats")
            assert all(result.status == "answered" for result in results), name
            generated = sum(result.ledger.generated for result in results)
            assert generated == sampled_by(address) - before > 100, name
            right[name] = sum(r.answer == questions.answers[r.question.id] for r in results)
            steps[name] = [result.paths[0].steps for result in results]
    here = Searcher(policy=hf_policy, strategy=greedy(), num_candidates=1).run(asked)
    assert steps["greedy"] == [r.paths[0].steps for r in here]
    assert right["beam"] >= right["greedy"] > 0
    assert right["cats"] > 0


def sampled_by(address):
    """Number of sampled tokens by the count of a vLLM server."""
    text = httpx.get(f"{address}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("vllm:generation_tokens_total")]
    return sum(int(float(line.split()[-1])) for line in lines)


@pytest.mark.timeout(900)  # two servers, one after the other
def test_a_server_killed_in_mid_run_and_started_again(questions):
    path, port = world.policy_path("weak"), free_port()
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as background:
        first = stack.enter_context(running(path, port=port))
        client = ServerClient(f"http://127.0.0.1:{port}", context=256, timeout=60, patience=240)
        stack.callback(client.close)

        def start_again():
            kill_group(first)
            return stack.enter_context(running(path, port=port))

        def rows(sampler):
            policy = EngineGenerator(path, lambda context: sampler, **LIMITS)
            # A limit makes it sample step by step: there is a call to be lost in every step.
            searcher = Searcher(
                policy=policy, strategy=majority(), num_candidates=4, max_tokens=10_000
            )
            results = searcher.run(questions.questions[:6])
            return [(r.question.id, r.status, [path.steps for path in r.paths]) for r in results]

        undisturbed = rows(HTTPSampler(client))
        second = []
        killing = Killing(
            HTTPSampler(client), lambda: second.append(background.submit(start_again))
        )
        assert rows(killing) == undisturbed
        assert killing.calls > 3
        assert first.poll() == -signal.SIGKILL
        assert second[0].result().poll() is None
