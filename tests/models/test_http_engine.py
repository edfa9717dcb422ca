"""Engines behind a server, against a server that fails in every way a test can think of."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import pickle
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import faulty_server
import pytest

from cats_jax.errors import BadInputError, RunStoppedError
from cats_jax.models.serving.http_engine import HTTPClassifier, HTTPSampler, ServerClient
from cats_jax.models.serving.token_engine import SampleRequest

pytestmark = pytest.mark.usefixtures("short_waits")

OVERRIDES = {"architectures": ["CatsJaxQwen2ForSequenceClassification"]}
REQUESTS = [
    SampleRequest((1, 2, node), (40 + node, 3, 4), 1.0, 0.9, 0, 8, (7, 9)) for node in range(40)
]


def answer(path, body):
    """What a sound server says: a hash of what it was asked."""
    if path == "/classify":
        data = [
            {"index": i, "probs": [sum(prompt) % 10 / 10]} for i, prompt in enumerate(body["input"])
        ]
        return {"data": data[::-1]}
    choices = []
    for index in range(body["n"]):
        digest = hashlib.sha256(json.dumps([body["prompt"], body["seed"], index]).encode()).digest()
        ids = [10 + byte for byte in digest[: 1 + digest[0] % 3]] + [7]
        choices.append(
            {
                "index": index,
                "token_ids": ids,
                "finish_reason": "stop",
                # As vLLM does: none if none are asked for.
                "logprobs": {"token_logprobs": [-0.5] * len(ids)} if "logprobs" in body else None,
            }
        )
    return {"choices": choices[::-1], "usage": {"prompt_tokens_details": {"cached_tokens": 2}}}


def serving(faults=(), port=0):
    return faulty_server.serving(answer, faults, port=port)


@pytest.fixture(scope="module")
def undisturbed():
    """The samples of a server without faults."""
    with (
        serving() as server,
        contextlib.closing(ServerClient(server.url, context=100)) as client,
    ):
        return HTTPSampler(client).sample(REQUESTS)


def test_samples_come_in_order_with_what_was_asked(connect):
    with serving() as server:
        samples = HTTPSampler(connect(server)).sample(REQUESTS)
    assert [len(row) for row in samples] == [3] * 40
    for request, row in zip(REQUESTS, samples, strict=True):
        expected = answer("/v1/completions", {"prompt": [*request.prompt], "seed": 20, "n": 3})
        if request.seeds[0] in (40, 41):
            by_index = sorted(expected["choices"], key=lambda choice: choice["index"])
            assert [list(sample.ids) for sample in row] == [c["token_ids"] for c in by_index]
        assert all(s.stopped and s.cached == 2 for s in row)
        assert all(s.log_probs == (-0.5,) * len(s.ids) for s in row)
    sent = {tuple(body["prompt"]): body for body in server.bodies}[1, 2, 5]
    assert sent["model"] == "m"
    assert sent["stop_token_ids"] == [7, 9]
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["max_tokens"]) == (1, 0.9, 0, 8)
    assert sent["return_token_ids"] is True
    # What vLLM would otherwise take from generation_config.json.
    assert (sent["min_p"], sent["repetition_penalty"]) == (0, 1)
    assert (sent["presence_penalty"], sent["frequency_penalty"]) == (0, 0)


def test_log_probabilities_may_be_left_out(connect, undisturbed):
    with serving() as server:
        without = HTTPSampler(connect(server), log_probs=False).sample(REQUESTS)
    expected = [[dataclasses.replace(s, log_probs=None) for s in row] for row in undisturbed]
    assert without == expected
    assert all("logprobs" not in body for body in server.bodies)


def test_greedy_samples_are_asked_for_once(connect):
    greedy = SampleRequest((1, 2), (1, 2, 3), 0.0, 1.0, 0, 8, (7,))
    with serving() as server:
        (row,) = HTTPSampler(connect(server)).sample([greedy])
    assert [body["n"] for body in server.bodies] == [1]
    assert [sample.ids for sample in row] == [row[0].ids] * 3
    assert row[0].cached <= 2
    assert [sample.cached for sample in row[1:]] == [1 + len(row[0].ids)] * 2


FAULTS = [500, None, "drop", 429, None, None, "truncated", 503, "missing", None] * 3


def test_faults_change_nothing(connect, undisturbed):
    with serving(FAULTS) as server:
        assert HTTPSampler(connect(server)).sample(REQUESTS) == undisturbed
        assert len(server.bodies) > len(REQUESTS)


def test_scores_come_in_order_whatever_fails(connect):
    prompts = [(n, n + 1, 3) for n in range(150)]
    with serving(["missing", 500, "truncated", "drop"]) as server:
        scores = HTTPClassifier(connect(server), OVERRIDES).classify(prompts)
    assert [c.score for c in scores] == [sum(prompt) % 10 / 10 for prompt in prompts]


def test_a_server_that_is_started_again_is_waited_for(connect, undisturbed):
    with serving() as first:
        port = first.server_port
        sampler = HTTPSampler(connect(first))
        assert sampler.sample(REQUESTS) == undisturbed
    again = threading.Event()

    def restart():
        again.wait()
        with serving(port=port):
            done.wait()

    done = threading.Event()
    thread = threading.Thread(target=restart)
    thread.start()
    threading.Timer(0.3, again.set).start()
    try:
        assert sampler.sample(REQUESTS) == undisturbed
    finally:
        done.set()
        thread.join()


def test_a_call_that_hangs_longer_than_patience_lasts_is_made_again(connect, undisturbed):
    with serving(["hang"]) as server:
        sampler = HTTPSampler(connect(server, timeout=0.5, patience=0.1))
        assert sampler.sample(REQUESTS[:1]) == undisturbed[:1]
        assert len(server.bodies) == 2


def test_patience_ends_in_a_stop_that_can_be_gone_on_with(connect):
    with serving(itertools.repeat("missing")) as server:
        sampler = HTTPSampler(connect(server, patience=0.2))
        with pytest.raises(RunStoppedError, match=r"incomplete.*start again"):
            sampler.sample(REQUESTS[:1])


def test_what_one_call_found_out_is_true_for_those_that_wait(connect):
    with serving(itertools.repeat("missing")) as server:
        sampler = HTTPSampler(connect(server, patience=0.3, concurrency=1))
        with ThreadPoolExecutor(20) as pool:
            calls = [pool.submit(sampler.sample, [request]) for request in REQUESTS[:20]]
            for call in calls:
                with pytest.raises(RunStoppedError, match="start again"):
                    call.result()
        tries = len(server.bodies)
        assert {tuple(body["prompt"]) for body in server.bodies} == {REQUESTS[0].prompt}
        with pytest.raises(RunStoppedError, match="start again"):
            sampler.sample(REQUESTS[:1])  # a later call is tried again
        assert len(server.bodies) > tries


def test_a_server_with_less_context_is_refused(connect):
    words = (
        "context of 128 tokens, 200 are needed: set max_model_len to 128 in the recipe, or start "
        "it with --max-model-len 200, if its model has that context$"
    )
    with serving() as server, pytest.raises(BadInputError, match=words):
        connect(server, context=200)


def test_of_several_models_one_is_named(connect):
    with serving() as server:
        server.models = ["m", "n"]
        assert connect(server, model="n").model == "n"
        with pytest.raises(BadInputError, match=r"serves 2 models, m, n: name .* by served_name"):
            connect(server)
        with pytest.raises(BadInputError, match="does not serve 'o': it has m, n; served_name"):
            connect(server, model="o")
        server.models = [str(number) for number in range(99)]
        with pytest.raises(BadInputError, match=r"8, 9, \.\.\.: name"):
            connect(server)
        server.models = []
        with pytest.raises(BadInputError, match="it has none"):
            connect(server)


def test_an_address_may_end_as_those_of_openai_s_clients_do(connect):
    with serving() as server:
        client = ServerClient(f"{server.url}/v1/", context=100)
        assert client.url == server.url
        client.close()


SECRET = "sk-0123456789"


def test_an_api_key_is_sent_and_never_shown(connect, monkeypatch):
    monkeypatch.setenv("A_KEY", f" {SECRET}\n")
    monkeypatch.setenv("BAD_KEY", "two words")
    with serving() as server:
        server.key = SECRET
        sampler = HTTPSampler(connect(server, api_key_env="A_KEY"))
        assert len(sampler.sample(REQUESTS[:1])) == 1
        server.key = "another"
        for call in (
            lambda: sampler.sample(REQUESTS[:1]),
            lambda: connect(server, api_key_env="A_KEY"),
        ):
            with pytest.raises(
                BadInputError, match=r"status 401.*check the API key .* A_KEY"
            ) as no:
                call()
            assert SECRET not in str(no.value)
        with pytest.raises(BadInputError, match="status 401: set api_key_env"):
            connect(server)
        with pytest.raises(BadInputError, match="variable NO_KEY is not set"):
            connect(server, api_key_env="NO_KEY")
        with pytest.raises(BadInputError, match="BAD_KEY must hold one key of visible"):
            connect(server, api_key_env="BAD_KEY")
        assert len(server.bodies) == 1


def test_an_error_without_a_message_is_named_by_its_class(connect):
    with serving() as server:
        found = connect(server)
    assert found.without_key(TimeoutError()) == "TimeoutError"
    assert found.without_key(ValueError(" ")) == "ValueError"
    assert found.without_key(ValueError("no\nnumber")) == "no number"


def of_another_kind(**changes):
    """A server whose samples have other values; None takes the entry away."""

    def changed(path, body):
        reply = answer(path, body)
        if changes.get("n") is not None:
            return {"choices": [c for c in reply["choices"] if c["index"] < changes["n"]]}
        for choice in reply["choices"]:
            choice |= {name: value for name, value in changes.items() if name != "n"}
            for name in [name for name, value in changes.items() if value is None]:
                del choice[name]
        return reply

    return changed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token_ids": None}, "gives no 'token_ids'.*vLLM 0.10.2 or later.*return_token_ids"),
        ({"n": 1}, "gives 1 sample where 3 were asked for.*vLLM 0.10.2 or later"),
        ({"logprobs": None}, "no log-probabilities.*log_probs: false"),
        ({"token_ids": [3, 7, 4]}, "beyond max_tokens or stop_token_ids.*vLLM 0.10.2"),
        ({"token_ids": [3] * 9}, "beyond max_tokens"),
        ({"token_ids": [3, 4]}, "ends a sample at a token that was not requested"),
        (
            {"token_ids": [3, 4], "finish_reason": "length"},
            "ends a sample at 2 of 8 tokens.*--generation-config vllm",
        ),
    ],
)
def test_a_server_of_another_kind_is_refused_at_its_first_reply(connect, changes, words):
    with faulty_server.serving(of_another_kind(**changes)) as server:
        with pytest.raises(BadInputError, match=words):
            HTTPSampler(connect(server)).sample(REQUESTS[:1])
        assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"probs": [True]}, "True is not a number"),
        ({"logprobs": {"token_logprobs": ["-0.5"]}}, "'-0.5' is not a number"),
        ({"cached_tokens": -1}, "-1 is not a number of tokens"),
        ({"cached_tokens": 1.5}, "1.5 is not a number of tokens"),
    ],
)
def test_a_value_of_another_type_is_no_number(connect, wrong, words):
    def changed(path, body):
        reply = answer(path, body)
        for entry in reply.get("data") or reply["choices"]:
            entry |= {"token_ids": [7]} | wrong
        return reply | {"usage": {"prompt_tokens_details": wrong}}

    with faulty_server.serving(changed) as server:
        client = connect(server, patience=0.0)
        sampler = HTTPSampler(client, log_probs="logprobs" in wrong)
        scores = HTTPClassifier(client, OVERRIDES).classify
        ask = (lambda: scores([(1, 2)])) if "probs" in wrong else lambda: sampler.sample(REQUESTS)
        with pytest.raises(RunStoppedError, match=words):
            ask()


def test_no_more_tokens_are_cached_than_the_prompt_has(connect):
    def changed(path, body):
        usage = {"prompt_tokens_details": {"cached_tokens": 10**6}}
        return answer(path, body) | {"usage": usage}

    with faulty_server.serving(changed) as server:
        ((first, *_),) = HTTPSampler(connect(server)).sample(REQUESTS[:1])
    assert first.cached == 3


def test_a_list_of_models_is_bounded(connect, monkeypatch):
    monkeypatch.setattr("cats_jax.models.serving.http_engine.MOST_BYTES", 1 << 20)
    with serving() as server:
        server.card = {"text": "x" * (1 << 21)}
        with pytest.raises(BadInputError, match="answers /v1/models with more than 1 MiB"):
            connect(server)


@pytest.mark.parametrize("models", [True, False], ids=["models", "samples"])
def test_headers_without_end_stop_the_run(connect, models):
    """A server may send status lines of 1xx for ever."""
    ended = threading.Event()

    def say_on():
        with contextlib.suppress(OSError), listening.accept()[0] as connection:
            while not ended.wait(0.02):
                connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening, serving() as server:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        client = connect(server)
        client._client.base_url, client._timeout = url, 0.2
        talking = threading.Thread(target=say_on)
        talking.start()
        try:
            ask = (
                (lambda: client.get("/v1/models", dict, "x"))
                if models
                else (lambda: HTTPSampler(client).sample(REQUESTS))
            )
            with pytest.raises(RunStoppedError, match="headers of a reply did not end in 0 s"):
                ask()
        finally:
            ended.set()
            talking.join()


def test_a_reply_that_came_while_the_process_was_stopped_is_read(connect):
    with serving() as server:
        client = connect(server)
        client._ends[0] = client._ends[1] = time.monotonic() - 1.0  # as after Ctrl-Z and fg
        client._check_headers()
        del client._ends[0], client._ends[1]
        client._check_headers()
        assert client._late == {}


def embeds(path, body):
    return {"data": [{"index": 0, "embedding": [0.5]}]}


@pytest.mark.parametrize(
    ("says", "faults", "words"),
    [
        (embeds, (), r"no 'probs' to /classify: .*--runner pooling"),
        (answer, [404] * 50, r"/classify with status 404.*--runner pooling.*CatsJaxQwen2"),
        (answer, ["classes"] * 50, r"gives 2 numbers.*--hf-overrides '{.*CatsJax"),
    ],
)
def test_a_server_that_reads_no_scores_is_told_at_once_how_to_start(connect, says, faults, words):
    with faulty_server.serving(says, faults) as server:
        with pytest.raises(BadInputError, match=words):
            HTTPClassifier(connect(server), OVERRIDES).classify([(1, 2)])
        assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [400, 403, 501])
def test_what_another_try_would_not_change_is_refused_at_once(connect, status):
    with serving([status] * 50) as server:
        with pytest.raises(BadInputError, match=f"/v1/completions with status {status}") as caught:
            HTTPSampler(connect(server)).sample(REQUESTS[:1])
        assert len(server.bodies) == 1
    copy = pickle.loads(pickle.dumps(caught.value))  # a worker of Ray sends it
    assert (str(copy), copy.status) == (str(caught.value), status)


def test_an_unreachable_server_is_named():
    with serving() as server:
        port = server.server_port
    with pytest.raises(BadInputError, match=f"http://127.0.0.1:{port} can't be used"):
        ServerClient(f"http://127.0.0.1:{port}", context=10)
    with pytest.raises(BadInputError, match="must begin with http"):
        ServerClient("localhost:8000", context=10)
