"""Every field of a server's replies with a wrong value: read, or one line that names the server."""

import functools
import json

import httpx
import pytest
from mutations import damaged, mutations, reads_or_refuses

from cats_jax.errors import BadInputError, RunStoppedError
from cats_jax.models.serving.http_engine import HTTPClassifier, HTTPSampler, ServerClient
from cats_jax.models.serving.sglang_engine import SGLangClassifier, SGLangSampler
from cats_jax.models.serving.token_engine import SampleRequest

_URL = "http://localhost:1"
_MODELS = {"data": [{"id": "m", "max_model_len": 128}]}
_SAMPLES = {
    "choices": [
        {
            "index": index,
            "token_ids": [4, 7],
            "finish_reason": "stop",
            "logprobs": {"token_logprobs": [-0.5, -0.1]},
        }
        for index in range(2)
    ],
    "usage": {"prompt_tokens_details": {"cached_tokens": 1}},
}
_SCORES = {"data": [{"index": 0, "probs": [0.5]}, {"index": 1, "probs": [0.25]}]}

_SETTINGS = {"enable_deterministic_inference": True, "preferred_sampling_params": None}
_GENERATED = [
    {
        "output_ids": [4, 7],
        "meta_info": {
            "finish_reason": {"type": "stop", "matched": 7},
            "prompt_tokens": 2,
            "completion_tokens": 2,
            "cached_tokens": 1,
            "output_token_logprobs": [[-0.5, 4, None], [-0.1, 7, None]],
            "output_token_ids_logprobs": [[[-0.5, 4, None], [-0.2, 5, None]]],
        },
    }
] * 2


@pytest.fixture
def replies(monkeypatch):
    """Text of a sound server's replies by route, which a test changes."""
    texts = {
        "/v1/models": json.dumps(_MODELS),
        "/v1/completions": json.dumps(_SAMPLES),
        "/classify": json.dumps(_SCORES),
        "/server_info": json.dumps(_SETTINGS),
        "/generate": json.dumps(_GENERATED),
    }

    def reply(request):
        return httpx.Response(200, content=texts[request.url.path])

    client = functools.partial(httpx.Client, transport=httpx.MockTransport(reply))
    monkeypatch.setattr("cats_jax.models.serving.http_engine.httpx.Client", client)
    monkeypatch.setattr("cats_jax.models.serving.http_engine._FIRST_WAIT", 0.0)
    monkeypatch.setattr("cats_jax.models.serving.http_engine._LONGEST_WAIT", 0.0)
    return texts


def _connected():
    return ServerClient(_URL, context=100, patience=0.0, concurrency=1)


_REQUEST = SampleRequest((1, 2), (3, 4), 1.0, 0.9, 0, 8, (7,))


def _or_stops(read):
    """A server that gives no good reply stops the run, which is as much of one line."""
    try:
        return read()
    except RunStoppedError as error:
        raise BadInputError(error) from error


@pytest.mark.parametrize(
    ("route", "sound", "ask"),
    [
        ("/v1/models", _MODELS, None),
        ("/v1/completions", _SAMPLES, lambda it: HTTPSampler(it).sample([_REQUEST])),
        ("/classify", _SCORES, lambda it: HTTPClassifier(it, {}).classify([(1,), (2,)])),
        ("/server_info", _SETTINGS, lambda it: SGLangSampler(it).sample([_REQUEST])),
        ("/generate", _GENERATED, lambda it: SGLangSampler(it).sample([_REQUEST])),
        (
            "/generate",
            _GENERATED,
            lambda it: SGLangClassifier(it, {}, (4, 5)).classify([(1, 2), (2, 3)]),
        ),
    ],
)
def test_a_reply_with_one_wrong_value_is_read_or_one_line(replies, route, sound, ask):
    server = _connected()
    read = _connected if ask is None else functools.partial(ask, server)
    assert reads_or_refuses(read, _URL, "nothing")
    for text in mutations(sound, 5):
        replies[route] = text
        reads_or_refuses(lambda: _or_stops(read), _URL, text)
    for data in damaged(json.dumps(sound).encode(), 20):
        replies[route] = data
        reads_or_refuses(lambda: _or_stops(read), _URL, data)
