"""A real server on a free port, asked by the official client."""

import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import openai
import pytest
from letters import LetterPolicy
from search_server import HeldPolicy, letters, own_fields, running

from cats_jax.errors import BadInputError
from cats_jax.protocols import Question
from cats_jax.server.offer import Loaded, Settings
from cats_jax.server.run import Server, bind

ASKED = {"model": "letters", "messages": [{"role": "user", "content": "which letters?"}]}


@pytest.fixture(scope="module")
def server():
    with running(letters()) as found:
        yield found


def user(text):
    return [{"role": "user", "content": text}]


def ask(found, text="which letters?", *, name="letters", stream=False, **extra):
    return found.client().chat.completions.create(
        model=name, messages=user(text), stream=stream, extra_body=extra
    )


def alone(loaded: Loaded, text, settings: Settings):
    """What a `Searcher` gives, as `cats-jax solve` asks it, beside other questions."""
    others = [Question(name, name) for name in "abc"]
    return loaded.searcher(settings).run([Question("question", text), *others])[0]


def without_seconds(ledger):
    return {name: value for name, value in ledger.items() if "seconds" not in name}


def assert_equal(answer, result):
    """A chat completion has the answer, path and costs of a search."""
    own = own_fields(answer)
    assert (own["status"], own["answer"]) == (result.status, result.answer)
    chosen = result.paths[result.chosen]
    assert answer.choices[0].message.content == "\n\n".join(chosen.steps)
    assert own["path_score"] == chosen.path_score
    assert own["step_scores"] == list(chosen.step_scores)
    ledger = result.ledger.as_dict()
    assert without_seconds(own_fields(answer.usage)) == without_seconds(ledger)
    assert answer.usage.completion_tokens == ledger["generated"]
    assert answer.usage.prompt_tokens == ledger["prompt_computed"] + ledger["prompt_cached"]


def test_32_clients_at_once_get_the_answers_of_a_searcher(server):
    """Of any strategy, N, budget, price and seed, whatever is searched beside; some ask twice."""
    wanted = [
        {"strategy": "beam", "seed": 1},
        {"strategy": "beam", "seed": 2},
        {"strategy": "beam", "num_candidates": 8},
        {"strategy": "best_of_n", "num_candidates": 8, "seed": 5},
        {"strategy": "best_of_n", "num_candidates": 8, "budget": 12},
        {"strategy": "cats_random", "price": 0.5, "seed": -3},
        {"strategy": "cats_random", "price": 2.0, "seed": -3},
        {"strategy": "beam", "budget": 9, "seed": 1},
    ]
    jobs = [(each, f"text {i % 2}") for each in wanted for i in range(4)]
    with ThreadPoolExecutor(len(jobs)) as clients:
        answers = list(clients.map(lambda job: ask(server, job[1], **job[0]), jobs))
    assert len({answer.id for answer in answers}) == 32
    seen = {}
    for (extra, text), answer in zip(jobs, answers, strict=True):
        own = own_fields(answer)
        settings = Settings(
            **{
                name: own[name]
                for name in ("strategy", "num_candidates", "budget", "price", "seed")
            }
        )
        assert {**own, **extra} == own
        if (settings, text) not in seen:
            seen[settings, text] = alone(server.loaded, text, settings)
        assert_equal(answer, seen[settings, text])
        limited = own["status"] == "budget"
        assert answer.choices[0].finish_reason == ("length" if limited else "stop")
    texts = {
        answers[i].choices[0].message.content for i, job in enumerate(jobs) if job[1] == "text 0"
    }
    assert len(texts) > 2  # seeds and strategies do differ


def test_equal_questions_have_lives_of_their_own():
    policy = LetterPolicy(5)
    with running(letters(policy)) as found, ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda seed: ask(found, seed=seed % 4), range(8)))
        for seed, answer in enumerate(answers):
            settings = Settings("beam", 4, None, 0.0, seed % 4)
            assert_equal(answer, alone(letters(), "which letters?", settings))
    assert policy.live == {answer.id: [] for answer in answers}


def test_a_stream_has_progress_then_the_answer_then_the_usage(server):
    (whole,) = [ask(server, seed=4)]
    stream = server.client().chat.completions.create(
        model="letters",
        messages=user("which letters?"),
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"seed": 4},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    progress = [
        own_fields(chunk) for chunk in chunks if chunk.model_extra and "step" in own_fields(chunk)
    ]
    assert len(progress) >= 2
    for name in ("step", "candidates", "tokens"):
        values = [each[name] for each in progress]
        assert values == sorted(values)
        assert values[-1] > values[0] >= 0
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]
    last = own_fields(chunks[-2])
    assert last == own_fields(whole)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_a_stream_ends_with_done_and_has_no_usage_unasked(server):
    response = httpx.post(
        f"{server.url}/chat/completions", json={**ASKED, "stream": True}, timeout=60
    )
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all("usage" not in json.loads(event.removeprefix("data: ")) for event in events)


def test_a_reply_names_what_it_ignores(server):
    """With and without a stream; the answer is that of a request without the parameters."""
    extra = {"temperature": 0, "top_p": 1, "max_tokens": 5, "seed": 4}
    with pytest.raises(openai.BadRequestError, match="--ignore-sampling"):
        ask(server, **extra)
    same = ask(server, seed=4)
    assert own_fields(same)["ignored"] == []
    with running(letters(ignore_sampling=("max_tokens", "temperature"))) as found:
        answer = ask(found, **extra)
        assert answer.choices[0].message.content == same.choices[0].message.content
        last = list(ask(found, stream=True, **extra))[-1]
        for each in (answer, last):
            assert own_fields(each)["ignored"] == ["temperature", "max_tokens"]
        (model,) = found.client().models.list()
        assert own_fields(model)["ignored_parameters"] == ["max_tokens", "temperature"]


def test_a_failed_search_is_an_answer_without_text():
    with running(letters(LetterPolicy(100))) as found:
        whole = ask(found)
        assert whole.choices[0].message.content == ""
        for last in (whole, list(ask(found, stream=True))[-1]):
            assert last.choices[0].finish_reason == "length"
            assert own_fields(last)["status"] == "failed"
            assert "invalid" in own_fields(last)["reason"]


def test_models_are_listed(server):
    assert [model.id for model in server.client().models.list()] == ["letters"]
    assert server.client().models.retrieve("letters").id == "letters"
    with pytest.raises(openai.NotFoundError):
        server.client().models.retrieve("other")
    with pytest.raises(openai.NotFoundError):
        server.client().completions.create(model="letters", prompt="x")


def test_searches_are_counted(server):
    before = server.metric('cats_jax_searches_finished_total{status="answered"}')
    answer = ask(server)
    assert server.metric('cats_jax_searches_finished_total{status="answered"}') == before + 1
    assert server.metric("cats_jax_searches_in_flight") == 0
    assert server.metric('cats_jax_tokens_total{model="policy"}') >= answer.usage.completion_tokens
    assert server.metric("cats_jax_search_seconds_count") >= before + 1


# Who may ask.


def test_a_token_is_asked_for_everywhere_but_in_healthz():
    with running(letters(), token="sesame") as found:
        for key in ("none", "sesam", "sesamee", "SESAME", "sésame"):
            header = {"Authorization": f"Bearer {key}".encode()}
            for path in ("/v1/models", "/metrics", "/nowhere"):
                response = httpx.get(found.root + path, headers=header)
                assert response.status_code == 401
                assert response.headers["www-authenticate"] == "Bearer"
        with pytest.raises(openai.AuthenticationError, match="token"):
            found.client("wrong").chat.completions.create(**ASKED)
        assert httpx.get(f"{found.root}/healthz").status_code == 200
        assert httpx.get(f"{found.root}/v1/models").status_code == 401
        basic = {"Authorization": "Basic sesame"}
        assert httpx.get(f"{found.root}/v1/models", headers=basic).status_code == 401
        answer = found.client("sesame").chat.completions.create(**ASKED)
        assert answer.choices[0].message.content
        # With a token the server may have any name.
        named = {"Authorization": "Bearer sesame", "Host": "searches.example"}
        assert httpx.get(f"{found.root}/v1/models", headers=named).status_code == 200


def test_without_a_token_only_this_machine_is_served(server):
    for host in ("0.0.0.0", "::"):
        with pytest.raises(BadInputError, match="token"):
            bind(host, 0, None)
    bind("0.0.0.0", 0, "sesame").close()
    bind("localhost", 0, None).close()
    with pytest.raises(BadInputError, match="65535"):
        bind("127.0.0.1", 1 << 16, None)
    with pytest.raises(BadInputError, match="use"):
        bind("127.0.0.1", int(server.root.rpartition(":")[2]), None)
    with pytest.raises(BadInputError, match=r"--host a+ --port 0: "):
        bind("a" * 64, 0, None)
    for host, status in (
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.0.1", 403),
        ("", 403),
        ("LOCALHOST:1", 200),
        ("[::1]:80", 200),
        ("127.0.0.2:80", 200),
    ):
        response = httpx.get(f"{server.root}/v1/models", headers={"Host": host})
        assert response.status_code == status, host
    form = {"Content-Type": "text/plain"}
    body = json.dumps(ASKED)
    response = httpx.post(f"{server.url}/chat/completions", content=body, headers=form)
    assert response.status_code == 415


def test_of_two_servers_that_bind_one_port_at_a_time_one_listens():
    with bind("127.0.0.1", 0, None) as first:
        port = first.getsockname()[1]
        with bind("127.0.0.1", port, None) as second:
            first.listen()
            engine = SimpleNamespace(stop=lambda: None, is_idle=lambda: True)
            server = Server(None, engine, connections=20, grace=0)
            with pytest.raises(BadInputError, match=f"{port}.*in use: choose another"):
                server.run_until_signal(second)


@pytest.mark.parametrize(("host", "told"), [("127.0.0.2", None), ("127.0.0.1", "Here.local")])
def test_the_host_that_is_served_is_answered(host, told):
    """A name of this machine's own as well, as it stands in its file of hosts."""
    with running(letters(), host=host, told=told) as found:
        for name in (host, told or host):
            response = httpx.get(f"{found.root}/v1/models", headers={"Host": f"{name}:80"})
            assert response.status_code == 200
        response = httpx.get(f"{found.root}/v1/models", headers={"Host": "there.local"})
        assert response.status_code == 403


# Load, clients that go away, ends.


@pytest.fixture
def held():
    """A server of two places and one that waits, whose searches are held up."""
    policy = HeldPolicy()
    with running(letters(policy, in_flight=2), max_waiting=1) as found:
        ask(found)  # compiled
        policy.hold()
        try:
            yield found, policy
        finally:
            policy.free()


def eventually(condition, seconds=20):
    """Wait until a condition holds."""
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last, "it never came true"
        time.sleep(0.01)


def test_too_many_searches_are_refused(held):
    found, policy = held
    with ThreadPoolExecutor(3) as clients:
        first = clients.submit(ask, found, seed=1)
        policy.wait_for_call()
        others = [clients.submit(ask, found, seed=seed) for seed in (2, 3)]
        eventually(lambda: found.engine.waiting == 2)
        with pytest.raises(openai.RateLimitError, match="try again") as refused:
            ask(found)
        assert refused.value.response.headers["retry-after"] == "1"
        assert found.metric('cats_jax_requests_rejected_total{reason="overloaded"}') == 1
        policy.free()
        assert all(each.result().choices[0].message.content for each in (first, *others))
    assert ask(found).choices


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_search(held, stream):
    found, policy = held
    with ThreadPoolExecutor(1) as clients:
        other = clients.submit(ask, found, seed=1)
        policy.wait_for_call()
        leaving = [_connection(found, {**ASKED, "stream": stream, "seed": n}) for n in (2, 3)]
        eventually(lambda: found.engine.waiting == 2)
        leaving.pop().close()  # before the engine looks at it
        eventually(lambda: len(found.engine._leaving) == 1)
        policy.allow()
        policy.wait_for_call()
        assert (found.engine.in_flight, found.engine.waiting) == (2, 0)
        leaving.pop().close()  # while it is searched
        eventually(lambda: len(found.engine._leaving) == 1)
        policy.free()
        result = other.result()
        eventually(found.engine.is_idle)
    settings = Settings("beam", 4, None, 0.0, 1)
    assert_equal(result, alone(letters(LetterPolicy()), "which letters?", settings))
    assert found.metric("cats_jax_searches_dropped_total") == 2
    assert found.metric("cats_jax_requests_rejected_total") == 0
    # Both open questions were forgotten; the one that waited never reached the models.
    eventually(lambda: list(policy.live.values()) == [[]] * 3)
    assert len({request.question.id for request in policy.requests}) == 3


def _connection(found, body):
    host, port = found.root.removeprefix("http://").split(":")
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    made = socket.create_connection((host, int(port)))
    made.sendall(head.encode() + content)
    return made


def test_a_signal_lets_searches_end_and_takes_no_new_ones(held):
    found, policy = held
    with ThreadPoolExecutor(1) as clients:
        last = clients.submit(ask, found, seed=1)
        policy.wait_for_call()
        found.server.handle_exit(signal.SIGTERM, None)
        eventually(lambda: httpx.get(f"{found.root}/healthz").status_code == 503)
        health = httpx.get(f"{found.root}/healthz").json()
        assert health == {"status": "draining", "in_flight": 1, "waiting": 0}
        with pytest.raises(openai.InternalServerError, match="shutting down") as refused:
            ask(found)
        assert refused.value.status_code == 503
        policy.free()
        assert last.result().choices[0].message.content
    found.thread.join(20)
    assert not found.thread.is_alive()
    assert not found.engine._thread.is_alive()


@pytest.mark.parametrize("stream", [False, True])
def test_searches_that_outlast_the_grace_are_refused(stream):
    class Slow(LetterPolicy):
        def generate(self, requests):
            time.sleep(0.5)
            return super().generate(requests)

    with (
        running(letters(Slow(longest=6), max_depth=10), grace=0.2) as found,
        ThreadPoolExecutor(1) as clients,
    ):
        last = clients.submit(lambda: list(ask(found, stream=stream)))
        eventually(lambda: found.engine.in_flight == 1)
        found.server.end()
        with pytest.raises(openai.APIError, match="shut down"):
            last.result()
        found.thread.join(20)
        told = found.engine._metrics.text().decode()
        assert 'cats_jax_searches_stopped_total{reason="draining"} 1.0' in told
        assert "cats_jax_requests_rejected_total{" not in told
        assert not found.thread.is_alive()


def test_a_model_that_breaks_fails_the_server_with_a_sentence(held, caplog):
    found, policy = held
    policy.fault = RuntimeError("no such device")
    with ThreadPoolExecutor(2) as clients:
        asked = [clients.submit(ask, found, seed=seed) for seed in (1, 2)]
        policy.wait_for_call()
        eventually(lambda: found.engine.waiting + found.engine.in_flight == 2)
        policy.free()
        for each in asked:
            with pytest.raises(openai.InternalServerError, match="no such device") as failed:
                each.result()
            assert failed.value.status_code == 503
    assert httpx.get(f"{found.root}/healthz").status_code == 503
    assert httpx.get(f"{found.root}/healthz").json()["status"] == "failed"
    with pytest.raises(openai.InternalServerError, match="restarted"):
        ask(found)
    assert "broke the models" in caplog.text
    assert found.metric('cats_jax_searches_stopped_total{reason="failed"}') == 2
    assert found.metric('cats_jax_requests_rejected_total{reason="failed"}') == 1


def test_no_thread_is_left():
    def ours():
        return [t for t in threading.enumerate() if t.name.startswith("cats-jax engine")]

    before = len(ours())
    with running(letters()) as found:
        assert len(ours()) == before + 1
        assert httpx.get(f"{found.root}/healthz").json()["status"] == "ready"
    assert len(ours()) == before
