"""A server of SGLang's `/generate` that takes no field which SGLang 0.5.23 does not know.

The fields, their types and the rules of stopping are copied from the wheel
sglang-0.5.23-cp311-cp311-manylinux_2_34_x86_64.whl of PyPI:

- `sglang/api/v1/api_types.py`: `GenerateRequest`, `SamplingParams`, `GenerateMetaInfo`;
- `sglang/srt/managers/io_struct.py`: how `GenerateReqInput` reads lists;
- `sglang/srt/sampling/sampling_params.py`: ranges, -1 for no top-k, greedy below 1e-6;
- `sglang/srt/managers/schedule_batch.py`, `Req.update_finish_state`: stop texts, then stop tokens
  (none with `ignore_eos`) and the model's own end tokens, then the length;
- `sglang/srt/managers/detokenizer_manager.py`, `trim_matched_stop`;
- `sglang/srt/managers/scheduler.py` and `tp_worker.py`: what it keeps of the context.

A token is a function of the tokens before it and, unless it is greedy, of the seed and its place.
It stands for deterministic inference, without which SGLang ignores seeds.
"""

import contextlib
import functools
import hashlib
import json
import math

import faulty_server
from faulty_server import RefusedError

from cats_jax.world.tokenizer import BOX_OPEN, EOS_ID, SEPARATOR_ID, TOKEN_IDS

_BOX, _CLOSE = TOKEN_IDS[BOX_OPEN], TOKEN_IDS["}"]
_DIGITS = [TOKEN_IDS[digit] for digit in "0123456789"]


def _texts(value):
    return type(value) is str or _are(value, str)


def _are(value, kind):
    return type(value) is list and all(type(each) is kind for each in value)


def _is(*kinds):
    return lambda value: type(value) in kinds


_SAMPLING = {
    "max_new_tokens": lambda value: type(value) is int and value >= 0,
    "stop": _texts,
    "stop_token_ids": lambda value: _are(value, int),
    "stop_regex": _texts,
    "temperature": lambda value: type(value) in (int, float) and 0 <= value < math.inf,
    "top_p": lambda value: type(value) in (int, float) and 0 < value <= 1,
    "top_k": lambda value: type(value) is int and (value == -1 or value >= 1),
    "min_p": _is(int, float),
    "frequency_penalty": _is(int, float),
    "presence_penalty": _is(int, float),
    "repetition_penalty": _is(int, float),
    "min_new_tokens": _is(int),
    "n": _is(int),
    "ignore_eos": _is(bool),
    "skip_special_tokens": _is(bool),
    "no_stop_trim": _is(bool),
    "sampling_seed": lambda value: type(value) is int and -(2**63) <= value < 2**63,
}
"""`SamplingParams`; another field is refused, as there."""

_REQUEST = {
    "rid": _texts,
    "input_ids": lambda value: bool(value) and (_are(value, int) or _are(value, list)),
    "sampling_params": lambda value: type(value) is dict or _are(value, dict),
    "return_logprob": _is(bool),
    "logprob_start_len": _is(int),
    "top_logprobs_num": _is(int),
    "token_ids_logprob": lambda value: _are(value, int),
    "lora_path": _is(str),
}
"""The part of `GenerateRequest` that concerns token ids; SGLang itself ignores unknown fields."""

DETERMINISTIC = {"enable_deterministic_inference": True, "preferred_sampling_params": None}
"""The entries of `/server_info` that a client needs."""


@contextlib.contextmanager
def serving(faults=(), *, write=None, decode=None, change=None, port=0, context=256):
    """A server that meets its first calls with `faults`, see `faulty_server`.

    Args:
        faults: None for a sound reply.
        write: `(token ids, seed or None) -> token`; `write_world` by default.
        decode: the text of token ids; None: there are no stop texts.
        change: `(reply, body) -> reply`, for a server that lies.
        port, context: see `faulty_server`.
    """

    def answer(path, body):
        reply = _generate(path, body, write or write_world, decode, context)
        return reply if change is None else change(reply, body)

    with faulty_server.serving(answer, faults, port=port, context=context) as server:
        server.card = {"owned_by": "sglang", "parent": None}
        server.gets = {"/server_info": dict(DETERMINISTIC)}
        yield server


def digest(*parts):
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def log_prob(ids, token):
    """Log-probability of a token behind others."""
    return -0.01 - digest(ids, token)[0] / 64


def write_world(ids, seed):
    """The next token of an answer of the embedded world."""
    first, second, third = digest(ids, seed)[:3]
    begun = len(ids)
    while begun and ids[begun - 1] in (*_DIGITS, _BOX, _CLOSE):
        begun -= 1
    step = ids[begun:]
    if step[:1] == [_BOX]:
        return EOS_ID if step[-1] == _CLOSE else _CLOSE if len(step) == 3 else _DIGITS[first % 4]
    if not step:
        return _BOX if third % 3 == 0 else _DIGITS[first % 10]
    return SEPARATOR_ID if len(step) == 2 else _DIGITS[second % 4]


def _generate(path, body, write, decode, context):
    if path != "/generate":
        raise RefusedError(f"no such route: {path}")
    _check(body, _REQUEST, "GenerateRequest")
    prompts = body["input_ids"]
    alone = type(prompts[0]) is int
    prompts = [prompts] if alone else prompts
    params = body.get("sampling_params", {})
    params = [params] * len(prompts) if type(params) is dict else params
    if len(params) != len(prompts):
        raise RefusedError("sampling_params: not one for each prompt")
    replies = [
        _answered(prompt, asked, body, write, decode, context)
        for prompt, asked in zip(prompts, params, strict=True)
    ]
    return replies[0] if alone else replies


def _check(value, known, name):
    for key, each in value.items():
        if key not in known:
            raise RefusedError(f"unknown field `{key}` of {name}")
        if not known[key](each):
            raise RefusedError(f"{name}: {key}: invalid value {each!r}")


def _answered(prompt, asked, body, write, decode, context):
    _check(asked, _SAMPLING, "SamplingParams")
    limit = asked.get("max_new_tokens", 128)
    if len(prompt) >= context - 6 or len(prompt) + limit > context:
        raise RefusedError(f"{len(prompt)} and {limit} tokens exceed the context")
    limit = max(0, min(limit, context - 2 - len(prompt)))
    greedy = asked.get("temperature", 1.0) < 1e-6 or asked.get("top_k") == 1
    seed = None if greedy else asked.get("sampling_seed", 42)
    ids, finish = _written(prompt, asked, limit, functools.partial(write, seed=seed), decode)
    meta = {
        "id": "a",
        "finish_reason": finish,
        "prompt_tokens": len(prompt),
        "completion_tokens": len(ids),
        "cached_tokens": min(2, len(prompt) - 1),
        "weight_version": "default",
        "e2e_latency": 0.1,
    }
    if body.get("return_logprob"):
        befores = [[*prompt, *ids[:place]] for place in range(len(ids))]
        meta["input_token_logprobs"] = []
        meta["output_token_logprobs"] = [
            [log_prob(before, token), token, None]
            for before, token in zip(befores, ids, strict=True)
        ]
        meta["output_token_logprobs_length"] = len(ids)
        if pair := body.get("token_ids_logprob"):
            meta["input_token_ids_logprobs"] = []
            meta["output_token_ids_logprobs"] = [
                [[log_prob(before, token), token, None] for token in pair] for before in befores
            ]
    return {"text": "", "output_ids": ids, "meta_info": meta}


def _written(prompt, asked, limit, write, decode):
    """Token ids of an answer, and why it ended."""
    ids = []
    stops = {*asked.get("stop_token_ids", ()), EOS_ID}
    texts = asked.get("stop") or []
    while True:
        ids.append(write([*prompt, *ids]))
        for text in [texts] if type(texts) is str else texts:
            if text in decode(ids):
                return ids, {"type": "stop", "matched": text}
        if ids[-1] in stops and not asked.get("ignore_eos"):
            kept = ids if asked.get("no_stop_trim") else ids[:-1]
            return kept, {"type": "stop", "matched": ids[-1]}
        if len(ids) >= limit:
            return ids, {"type": "length", "length": limit}
