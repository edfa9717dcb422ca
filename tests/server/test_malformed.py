"""Bodies that no client should send: each is refused with a sentence, and the server goes on."""

import json
import socket

import httpx
import pytest
from letters import LetterPolicy
from mutations import damaged, mutations
from search_server import letters, running

from cats_jax.errors import BadInputError
from cats_jax.protocols import Question
from cats_jax.server.refusals import RefusedRequestError
from cats_jax.server.requests import SAMPLING, parse_request

GOOD = {"model": "letters", "messages": [{"role": "user", "content": "which letters?"}]}
WHOLE = {
    **GOOD, "stream": False, "stream_options": {"include_usage": True}, "strategy": "beam",
    "num_candidates": 4, "budget": 9, "price": 0.5, "seed": 1, "user": "me", "metadata": {"a": "b"},
    "n": 1, "temperature": 1, "top_p": 1.0, "tools": [], "stop": None, "logprobs": False,
    "max_tokens": None, "response_format": {"type": "text"},
}  # fmt: skip
FIXED = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "null": b"null",
    "a number": b"1e999",
    "no UTF-8": b'{"model": "\xff\xfe"}',
    "half a surrogate": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "not a number": b'{"model": "letters", "price": NaN}',
    "infinity": b'{"model": "letters", "price": -Infinity}',
    "a long number": b'{"seed": ' + b"9" * 100_000 + b"}",
    "many lists": b"[" * 100_000,
    "many closed lists": b"[" * 100_000 + b"]" * 100_000,
    "many objects": b'{"messages":' * 5_000 + b"1" + b"}" * 5_000,
    "deep metadata": b'{"metadata":' * 150 + b"{}" + b"}" * 150,
    "a megabyte": json.dumps({"messages": [{"role": "user", "content": "x" * 2**20}]}).encode(),
    "ten megabytes": b" " * 10_000_000,
    "a long name": json.dumps({**GOOD, "y" * 50_000: 1}).encode(),
    "many names": json.dumps({**GOOD, **{f"x{i}": i for i in range(3_000)}}).encode(),
}


@pytest.fixture(scope="module")
def server():
    with running(letters()) as found, httpx.Client(base_url=found.root, timeout=60) as client:
        yield client


def post(client, body):
    return client.post(
        "/v1/chat/completions", content=body, headers={"Content-Type": "application/json"}
    )


def assert_refused(response):
    assert 400 <= response.status_code < 500, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert 5 < len(error["message"]) < 600


@pytest.mark.parametrize("name", FIXED)
def test_a_broken_body_is_refused(server, name):
    assert_refused(post(server, FIXED[name]))


def test_a_thousand_malformed_requests_break_nothing(server):
    bodies = [text.encode("utf-8", "surrogatepass") for text in mutations(WHOLE)]
    bodies += damaged(json.dumps(WHOLE).encode(), 250)
    responses = [post(server, body) for body in bodies]
    refused = [each for each in responses if each.status_code != 200]  # a few are good by chance
    assert len(refused) > len(responses) / 2 > 500
    for response in refused:
        assert_refused(response)
    answer = post(server, json.dumps(GOOD).encode())
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"]
    assert server.get("/healthz").json() == {"status": "ready", "in_flight": 0, "waiting": 0}


def test_broken_http_breaks_nothing(server):
    host, port = server.base_url.host, server.base_url.port
    for sent in (
        b"\x00\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
        b"\r\nContent-Length: 100\r\n\r\n{",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
        b"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/models HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection((host, port)) as made:
            made.sendall(sent)
            made.shutdown(socket.SHUT_WR)
            made.settimeout(10)
            answer = made.recv(1 << 16)
        assert not answer.startswith(b"HTTP/1.1 5")
    assert server.get("/healthz").status_code == 200


# What may be asked for.


def parsed(ignore=(), **extra):
    return parse_request(json.dumps({**GOOD, **extra}).encode(), ignore)


def parsed_content(content):
    return parsed(messages=[{"role": "user", "content": content}]).request.question


@pytest.mark.parametrize(
    "extra",
    [
        {"temperature": 0.2},
        {"temperature": True},
        {"top_p": 0.5},
        {"n": 2},
        {"tools": [{"type": "function"}]},
        {"logprobs": True},
        {"stop": ["\n"]},
        {"response_format": {"type": "json_object"}},
        {"max_tokens": 100},
        {"max_completion_tokens": 100},
        {"reasoning_effort": "high"},
    ],
)
def test_parameters_without_a_meaning_are_refused_by_name(extra):
    (name,) = extra
    with pytest.raises(RefusedRequestError, match="no meaning in a search") as refused:
        parsed(**extra)
    assert (refused.value.status, refused.value.param) == (400, name)
    assert (f"--ignore-sampling {name}" in str(refused.value)) == (name in SAMPLING)


def test_a_server_may_ignore_the_sampling_and_says_so():
    ignore = ("temperature", "max_tokens", "stop")
    extra = {"max_tokens": 100, "seed": -1, "temperature": "hot", "stop": []}
    asked = parsed(ignore, **extra)
    assert asked.ignored == ("max_tokens", "temperature")
    assert asked.request == parsed(seed=-1).request
    for other in ({"top_p": 0.5}, {"n": 2}):
        with pytest.raises(RefusedRequestError, match="no meaning"):
            parsed(ignore, **extra, **other)


@pytest.mark.parametrize("name", ["n", "tools", "temprature", "seed"])
def test_what_is_no_sampling_can_not_be_ignored(name):
    with pytest.raises(BadInputError, match=rf"--ignore-sampling {name}: .*known are"):
        letters(ignore_sampling=(name,))


def test_parts_of_text_are_one_text():
    text = {"type": "text", "text": "which "}
    assert parsed_content([text]) == "which "
    assert parsed_content([text, {"type": "text", "text": "letters?"}]) == "which letters?"
    assert parsed_content([]) == ""  # blank, which the offer refuses
    typed = parsed(messages=[{**GOOD["messages"][0], "type": "text"}])
    assert typed.request.question == "which letters?"


@pytest.mark.parametrize(
    ("part", "match"),
    [
        ({"type": "image_url", "image_url": {"url": "data:,"}}, "reads text only.*'image_url'"),
        ({"type": "{type}" + "x" * 500}, "reads text only.{,200}$"),
        ({"type": "text"}, "one field 'text'"),
        ({"type": "text", "text": 1}, "one field 'text'"),
        ({"type": "text", "text": "x", "cache_control": {}}, "one field 'text'"),
        ({"text": "x"}, "reads text only"),
        ("x", "reads text only"),
        (None, "reads text only"),
    ],
)
def test_other_parts_are_refused(part, match):
    with pytest.raises(RefusedRequestError, match=match) as refused:
        parsed_content([{"type": "text", "text": "which letters?"}, part])
    assert (refused.value.status, refused.value.param) == (400, "messages.0.content")


def test_parameters_that_ask_for_nothing_are_taken():
    neutral = {"n": 1, "temperature": 1, "top_p": 1.0, "stop": None, "tools": [], "logprobs": False}
    labels = {"user": "me", "metadata": {"a": "b"}}
    assert parsed(**neutral, **labels, stream=False, max_tokens=None) == parsed(
        **labels, stream=False
    )


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        ({"num_candidates": 0}, "num_candidates.*greater than or equal to 1"),
        ({"num_candidates": 4.0}, "num_candidates"),
        ({"num_candidates": "4"}, "num_candidates"),
        ({"num_candidates": True}, "num_candidates"),
        ({"budget": 2**31}, "budget"),
        ({"price": -1}, "price"),
        ({"seed": 2**63}, "seed"),
        ({"strateg": "beam"}, "unknown parameter 'strateg'"),
        ({"stream_options": {"x": 1}}, "unknown parameter 'stream_options.x'"),
        ({"messages": []}, "messages"),
        ({"messages": GOOD["messages"] * 2}, "one user message"),
        ({"messages": [{"role": "system", "content": "x"}]}, "one user message"),
        ({"messages": [{"role": "system", "content": "x"}] * 2}, "one user message"),
        ({"messages": [{"role": "system", "content": "x"}, *GOOD["messages"] * 2]}, "one user"),
        ({"messages": [*GOOD["messages"], {"role": "system", "content": "x"}]}, "one user"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "content"),
        ({"messages": [{"role": "user", "content": "x", "type": "image"}]}, "messages.0.type"),
        ({"messages": [{**GOOD["messages"][0], "name": "x"}]}, "unknown .*'messages.0.name'"),
        ({"model": None}, "model"),
    ],
)
def test_wrong_values_are_refused_by_name(extra, match):
    with pytest.raises(RefusedRequestError, match=match) as refused:
        parsed(**extra)
    assert refused.value.status == 400


def test_a_system_message_stands_before_the_question():
    system = {"role": "system", "content": " Be brief.\n"}
    asked = parsed(messages=[system, *GOOD["messages"]]).request
    assert (asked.question, asked.system) == ("which letters?", "Be brief.")
    assert parsed().request.system is None
    blank = [{"role": "system", "content": " \n"}, {"role": "user", "content": "which letters?"}]
    assert parsed(messages=blank).request.system is None


@pytest.fixture(scope="module")
def offer():
    cats = {"name": "cats", "price": 0.1}  # of the shipped controller, trained at up to 0.6
    return letters(budget=40, strategies=["beam", cats]).offer


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        ({"model": "gpt-4o"}, "ask for 'letters'"),
        ({"strategy": "baem"}, "did you mean 'beam'"),
        ({"strategy": "os:system"}, "not served"),
        ({"num_candidates": 9}, "at most 8"),
        ({"budget": 41}, "at most 40"),
        ({"strategy": "cats", "price": 0.7}, "trained at prices of .* to 0.6"),
        ({"messages": [{"role": "user", "content": " \n"}]}, "blank"),
        ({"messages": [{"role": "user", "content": "x" * 201}]}, "at most 200"),
        ({"messages": [{"role": "system", "content": ""}, *GOOD["messages"]]}, "system message"),
    ],
)
def test_what_is_not_offered_is_refused(offer, extra, match):
    assert offer.settings(parsed().request).budget == 40
    with pytest.raises(RefusedRequestError, match=match) as refused:
        offer.settings(parsed(**extra).request)
    assert refused.value.status == 400


def test_a_question_that_the_policy_can_not_read_is_refused(server):
    """By the policy's own check, in the engine's thread; also where a stream was asked for."""
    for stream in (False, True):
        long = [{"role": "user", "content": "x" * 150}]
        response = post(server, json.dumps({**GOOD, "messages": long, "stream": stream}).encode())
        assert_refused(response)
        assert "is too long" in response.json()["error"]["message"]
    system = [{"role": "system", "content": "Be brief."}, *GOOD["messages"]]
    response = post(server, json.dumps({**GOOD, "messages": system}).encode())
    assert_refused(response)
    assert "reads no system message" in response.json()["error"]["message"]


class WholeLetters(LetterPolicy):
    whole_only = "it continues no answer"

    def generate_answers(self, requests):
        raise AssertionError("a check calls no model")


def test_a_budget_where_the_policy_samples_whole_answers_only():
    loaded = letters(WholeLetters(), strategies=["majority"])
    settings = loaded.offer.settings(parsed().request)
    loaded.check_budget(settings)
    loaded.check_question(Question("q", "which letters?"), settings)
    limited = loaded.offer.settings(parsed(budget=3).request)
    with pytest.raises(BadInputError, match=r"majority .* needs single steps: it continues"):
        loaded.check_budget(limited)
    with running(loaded) as found, httpx.Client(base_url=found.root) as client:
        response = post(client, json.dumps({**GOOD, "budget": 3}).encode())
    assert_refused(response)
    assert response.json()["error"]["param"] == "budget"
