"""Policies and PRMs on SGLang's `/generate`, against a server that is strict about its schema."""

import dataclasses
import functools
import math

import pytest
import tiny_models
from byte_vocabulary import byte_tokenizer, token_id
from sglang_server import log_prob, serving, write_world

from cats_jax import world
from cats_jax.errors import BadInputError, RunStoppedError
from cats_jax.models.contracts import check_generator
from cats_jax.models.prm.format import WORLD
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.scorer import EngineScorer
from cats_jax.models.serving.sglang_engine import SGLangClassifier, SGLangSampler
from cats_jax.models.serving.token_engine import SampleRequest
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step, StepRequest
from cats_jax.specs.models import PolicySpec, PrmSpec
from cats_jax.world.tokenizer import EOS_ID, SEPARATOR_ID

pytestmark = pytest.mark.usefixtures("short_waits")

_ROOM = 249  # of the world's 256 tokens
STOPS = (SEPARATOR_ID, EOS_ID)
REQUESTS = [
    SampleRequest((1, 2, node), (2 * node, 5, 6), 1.0, 0.9, 0, 8, STOPS) for node in range(9, 20)
]
QUESTIONS = [Question("a", "1+2=?"), Question("b", "3*4=?"), Question("c", "5-6=?")]


def test_every_sample_has_its_own_seed(connect):
    with serving() as server:
        sampler = SGLangSampler(connect(server))
        samples = sampler.sample(REQUESTS)
        alone = [
            sampler.sample([dataclasses.replace(request, seeds=(seed,))])[0][0]
            for request in REQUESTS[:2]
            for seed in request.seeds
        ]
        (greedy,) = sampler.sample([dataclasses.replace(REQUESTS[0], temperature=0.0)])
    assert [len(row) for row in samples] == [3] * len(REQUESTS)
    for request, row in zip(REQUESTS, samples, strict=True):
        for seed, sample in zip(request.seeds, row, strict=True):
            ids = list(request.prompt)
            while len(ids) < 11 and (len(ids) == 3 or ids[-1] not in STOPS):
                ids.append(write_world(ids, seed >> 1))
            assert list(sample.ids) == ids[3:]
            assert sample.stopped == (ids[-1] in STOPS)
            assert sample.cached == 2
            assert sample.log_probs == tuple(
                log_prob(ids[:place], ids[place]) for place in range(3, len(ids))
            )
    assert [sample for row in samples[:2] for sample in row] == alone
    ids = [1, 2, 9]
    while len(ids) < 11 and (len(ids) == 3 or ids[-1] not in STOPS):
        ids.append(write_world(ids, None))
    assert [list(sample.ids) for sample in greedy] == [ids[3:]] * 3
    assert len(server.bodies[-1]["input_ids"]) == 1
    assert server.bodies[-1]["sampling_params"][0]["temperature"] == 0
    sent = next(body for body in server.bodies if body["input_ids"] == [[1, 2, 9]] * 3)
    assert [asked["sampling_seed"] for asked in sent["sampling_params"]] == [9, 2, 3]
    assert all(asked["top_k"] == -1 for asked in sent["sampling_params"])


def test_sampling_parameters_are_those_of_the_request(connect):
    request = dataclasses.replace(REQUESTS[0], temperature=0.6, top_p=0.9, top_k=5, max_tokens=7)
    with serving() as server:
        SGLangSampler(connect(server), log_probs=False).sample([request])
    (body,) = server.bodies
    assert len(body["sampling_params"]) == 3
    for asked in body["sampling_params"]:
        assert (asked["temperature"], asked["top_p"], asked["top_k"]) == (0.6, 0.9, 5)
        assert (asked["max_new_tokens"], asked["stop_token_ids"]) == (7, [*STOPS])


def test_log_probabilities_may_be_left_out_and_are_those_of_temperature_1(connect):
    warm = [dataclasses.replace(request, temperature=0.6) for request in REQUESTS]
    with serving() as server:
        expected = SGLangSampler(connect(server)).sample(REQUESTS)
        server.bodies.clear()
        words = (
            r"at the temperature of sampling, 0\.6, not at 1: sample at temperature 1, set "
            "log_probs: false, or take a server of vLLM if the search reads log-probabilities"
        )
        with pytest.raises(BadInputError, match=words):
            SGLangSampler(connect(server)).sample(warm)
        assert not server.bodies
        found = SGLangSampler(connect(server), log_probs=False).sample(warm)
    assert not any(body["return_logprob"] for body in server.bodies)
    assert found == [[dataclasses.replace(s, log_probs=None) for s in row] for row in expected]


def generator(server, connect, **options):
    sampler = SGLangSampler(connect(server, context=_ROOM), log_probs=False)
    return EngineGenerator(
        world.policy_path("weak"),
        lambda context: sampler,
        max_model_len=_ROOM,
        max_step_tokens=8,
        max_answer_tokens=40,
        **options,
    )


def test_the_contract_of_policies_holds_exactly(connect):
    with serving() as server:
        check_generator(generator(server, connect), QUESTIONS)


def test_a_stop_text_ends_a_step(connect, tmp_path):
    """The separator of two tokens, behind a blank one, and an end token that stop ids name."""
    sizes = {"hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1}
    folder = tiny_models.save_model(
        tmp_path / "model", tokenizer=byte_tokenizer(), vocab_size=280, **sizes
    )
    tokenizer = byte_tokenizer()
    spelled = ["\n", "\n", "a", "\n", "\n", "b", "c"]
    written = [*map(token_id, spelled), 1]
    question = QUESTIONS[0]
    with serving(
        write=lambda ids, seed: written[len(ids) - first], decode=tokenizer.decode
    ) as server:
        sampler = SGLangSampler(connect(server), log_probs=True)
        policy = EngineGenerator(folder, lambda context: sampler, max_model_len=180)
        first = len(policy._prompt(question, ()))
        path, finish = (), "step"
        while finish == "step":
            request = StepRequest(question, path, (7,), 1.0, 1.0, 0, False)
            ((sample,),) = policy.generate([request]).samples
            assert sample.log_prob is not None
            path, finish = (*path, sample.step), sample.finish
    assert finish == "end"
    assert [step.text for step in path] == ["a", "bc"]
    assert [token for step in path for token in step.token_ids] == written
    stops = [asked["stop"] for body in server.bodies for asked in body["sampling_params"]]
    assert stops == [["\n\n"]] * 3  # the first one came before any text


FAULTS = [500, None, "drop", 429, None, None, "truncated", 503, "missing", None] * 2


def test_faults_change_nothing(connect):
    with serving() as server:
        undisturbed = SGLangSampler(connect(server)).sample(REQUESTS)
    with serving(FAULTS) as server:
        assert SGLangSampler(connect(server)).sample(REQUESTS) == undisturbed
        assert len(server.bodies) > len(REQUESTS)


def test_a_request_that_the_server_gave_up_is_repeated(connect):
    aborted = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    replies = []

    def gives_up_once(reply, body):
        replies.append(reply)
        if len(replies) == 1:
            meta = {"finish_reason": aborted, "completion_tokens": 0, "output_token_logprobs": []}
            reply[0]["meta_info"] |= meta
            reply[0]["output_ids"] = []
        return reply

    with serving() as server:
        undisturbed = SGLangSampler(connect(server)).sample(REQUESTS[:1])
    with serving(change=gives_up_once) as server:
        assert SGLangSampler(connect(server)).sample(REQUESTS[:1]) == undisturbed
        assert len(server.bodies) == 2


def of_another_kind(reply, body, *, meta=None, **changes):
    """A server whose answers have other values; None takes the entry away."""
    for answer in reply:
        for values, entries in ((answer, changes), (answer.get("meta_info", {}), meta or {})):
            for name, value in entries.items():
                values[name] = value
                if value is None:
                    del values[name]
    return reply


_ENDED = {"finish_reason": {"type": "stop", "matched": SEPARATOR_ID}, "completion_tokens": 2}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"output_ids": None}, "gives no 'output_ids'.*SGLang 0.5.23"),
        ({"meta_info": None}, "gives no 'meta_info'.*SGLang 0.5.23"),
        ({"meta": {"output_token_logprobs": None}}, "no log-probabilities.*log_probs: false"),
        ({"meta": {"prompt_tokens": 2}}, "reads 2 of 3 prompt tokens"),
        (
            {"meta": {"finish_reason": {"type": "stop", "matched": 3}}},
            r"ends samples at token 3 by its own files: add the token to end_tokens of .* or its "
            r"id to eos_token_id in generation_config\.json",
        ),
        (
            {"meta": {"finish_reason": {"type": "stop", "matched": "NaN happened"}}},
            "at 'NaN happened', which was not requested",
        ),
        (
            {"output_ids": [7, 8], "meta": _ENDED | {"output_token_logprobs": None}},
            "leaves out the token that ends",
        ),
        (
            {"output_ids": [7, SEPARATOR_ID, 8], "meta": _ENDED | {"completion_tokens": 3}},
            "beyond max_tokens or stop_token_ids",
        ),
        (
            {"meta": {"finish_reason": {"type": "length", "length": 2}}},
            r"of 8 tokens: set a smaller max_model_len in the recipe, or enlarge .* KV pool",
        ),
    ],
)
def test_a_server_of_another_kind_is_refused_at_its_first_reply(connect, changes, words):
    log_probs = "no log-probabilities" in words
    change = functools.partial(of_another_kind, **changes)
    with serving(change=change) as server:
        with pytest.raises(BadInputError, match=words) as refused:
            SGLangSampler(connect(server), log_probs=log_probs).sample(REQUESTS[:1])
        assert len(server.bodies) == 1
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda reply, body: reply[0], "no list of 3 answers"),
        (lambda reply, body: reply[:2], "no list of 3 answers"),
        (functools.partial(of_another_kind, output_ids=[7]), "1 token ids of"),
        (
            functools.partial(of_another_kind, meta={"output_token_logprobs": [[-1, 3, None]]}),
            "not those of the sample's tokens",
        ),
        (functools.partial(of_another_kind, meta={"finish_reason": None}), "finish_reason"),
    ],
)
def test_a_server_that_lies_about_its_samples_stops_the_run(connect, change, words):
    with serving(change=change) as server:
        sampler = SGLangSampler(connect(server, patience=0.1))
        with pytest.raises(RunStoppedError, match=words):
            sampler.sample(REQUESTS[:1])
        assert len(server.bodies) >= 3


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (
            {},
            "ignores seeds: start SGLang with --enable-deterministic-inference, or set chat: true "
            r"\(for a judge path: chat-judge\)",
        ),
        ({"enable_deterministic_inference": False}, "ignores seeds"),
        (
            {"enable_deterministic_inference": True, "preferred_sampling_params": {"min_p": 0.1}},
            "start SGLang without --preferred-sampling-params",
        ),
        ([], "ignores seeds"),
        (None, "can't be used .*404.*a policy or PRM on SGLang needs its /server_info"),
    ],
)
def test_a_server_whose_samples_do_not_follow_from_seeds_is_refused(connect, info, words):
    with serving() as server:
        server.gets = {"/server_info": info}
        with pytest.raises(BadInputError, match=words):
            SGLangSampler(connect(server))


def test_a_request_that_the_schema_refuses_is_not_repeated(connect):
    bad = dataclasses.replace(REQUESTS[0], top_p=0.0)
    with serving() as server:
        with pytest.raises(BadInputError, match=r"refuses /generate with status 400.*top_p"):
            SGLangSampler(connect(server)).sample([bad])
        assert len(server.bodies) == 1


def test_an_adapter_of_the_server_is_named_in_each_request(connect):
    with serving() as server:
        SGLangSampler(connect(server)).sample(REQUESTS[:1])
        server.cards["m"] = {"parent": "base"}
        SGLangSampler(connect(server)).sample(REQUESTS[:1])
    assert ["lora_path" in body for body in server.bodies] == [False, True]
    assert server.bodies[1]["lora_path"] == "m"


def test_the_context_has_room_for_what_sglang_keeps_of_it(connect):
    with serving(context=256) as server:
        words = (
            r"context of 249 tokens, 250 are needed: set max_model_len to 249 in the recipe "
            r"\(SGLang keeps 7 tokens of its context\), or start it with a longer --context-length"
        )
        with pytest.raises(BadInputError, match=words):
            connect(server, context=250)
        server.models = ["m", "tuned"]
        server.cards = {"tuned": {"parent": "m", "max_model_len": None}}
        assert connect(server, model="tuned", context=249).model == "tuned"
        with pytest.raises(BadInputError, match=words):
            connect(server, model="tuned", context=250)
        client = connect(server, model="m", context=249)
        request = dataclasses.replace(REQUESTS[0], prompt=(1,) * 248, max_tokens=1)
        ((sample, *_),) = SGLangSampler(client).sample([request])
        assert len(sample.ids) == 1
        SGLangClassifier(client, {}, (4, 5)).classify([(1,) * 249])


PATH = (Step("1+2=3", (7, 8)),)


def test_a_prm_is_read_at_two_tokens(connect):
    with serving(FAULTS) as server:

        def start(model):
            pairs.append(model.encoder.pair_ids)
            return SGLangClassifier(connect(server), {}, pairs[0])

        pairs = []
        prm = EngineScorer(world.prm_path("exact"), WORLD, start, max_model_len=200)
        scoring = prm.score(QUESTIONS, [PATH] * 3)
        positive, negative = pairs[0]
        prompts = [ids for body in server.bodies for ids in body["input_ids"]]
        for body in server.bodies:
            assert body["sampling_params"] == {"temperature": 0, "max_new_tokens": 1}
            assert body["token_ids_logprob"] == [*pairs[0]]
        expected = []
        for question in QUESTIONS:
            (prompt,) = {tuple(ids) for ids in prompts if ids == [*prm._ids(question, PATH)]}
            both = [math.exp(log_prob([*prompt], token)) for token in (positive, negative)]
            expected.append(both[0] / sum(both))
        many = [(n, n + 1, 3) for n in range(150)]
        assert len(prm.engine.classify(many)) == 150
    assert scoring.scores == pytest.approx(expected)
    assert [usage.cached for usage in scoring.usage] == [2] * 3
    assert len(set(expected)) == 3


def test_a_prm_without_what_it_is_read_at_is_refused(connect):
    change = functools.partial(of_another_kind, meta={"output_token_ids_logprobs": None})
    with serving(change=change) as server:
        with pytest.raises(BadInputError, match="no 'output_token_ids_logprobs'"):
            SGLangClassifier(connect(server), {}, (4, 5)).classify([(1, 2)])
        words = r"is SGLang, .*not by a head: take backend hf or vllm, .* --runner pooling"
        with pytest.raises(BadInputError, match=words):
            SGLangClassifier(connect(server), {}, None)
        server.gets["/server_info"]["preferred_sampling_params"] = {"repetition_penalty": 1.1}
        with pytest.raises(BadInputError, match="without --preferred-sampling-params"):
            SGLangClassifier(connect(server), {}, (4, 5))


def test_a_recipe_names_sglang_as_it_names_vllm():
    with serving() as server:
        policy = PolicySpec("weak", backend=server.url, max_model_len=249)
        prm = PrmSpec("exact", backend=server.url, max_model_len=249)
        request = StepRequest(QUESTIONS[0], (), (1, 2), 1.0, 1.0, 0, False)
        assert len(ModelFolders().policy(policy).generate([request]).samples[0]) == 2
        assert ModelFolders().prm(prm).score(QUESTIONS[:1], [PATH]).scores[0] is not None
        server.gets = {}
        with pytest.raises(BadInputError, match="needs its /server_info"):
            ModelFolders().policy(policy)
