"""Engines behind a server of SGLang: its `/generate`, token ids in and out.

Start one with, for example,

    python -m sglang.launch_server --model-path FOLDER --enable-deterministic-inference

Calls, errors and repetitions are those of `http_engine.py`. Requests and replies have the fields of
SGLang 0.5.23. SGLang stops a request by itself when its connection is closed.
"""

from __future__ import annotations

import math
from typing import Any

from ...errors import BadInputError, quoted
from .http_engine import (
    NO_LOG_PROBS,
    HTTPClassifier,
    HTTPSampler,
    ServerClient,
    UnfitServerError,
    checked_sample,
    number,
    token_count,
)
from .token_engine import Classified, SampleRequest, TokenSample

_WANTED = "its /generate must take and return what SGLang 0.5.23 does"


class SGLangSampler(HTTPSampler):
    """`Sampler` on SGLang's `/generate`; all samples of a prompt are one call, each with its seed.

    Args:
        server: the server of the policy.
        log_probs: whether requests include log-probabilities; the temperature must then be 0 or 1.

    Raises:
        BadInputError: the server ignores seeds, or has sampling parameters of its own.
    """

    _route, _wanted = "/generate", _WANTED

    def __init__(self, server: ServerClient, *, log_probs: bool = True):
        super().__init__(server, log_probs=log_probs)
        if _settings(server).get("enable_deterministic_inference") is not True:
            raise BadInputError(
                f"server {server.url} ignores seeds: start SGLang with "
                "--enable-deterministic-inference, or set chat: true (for a judge path: "
                "chat-judge), whose runs can't be repeated"
            )

    def _body(self, request: SampleRequest) -> dict[str, Any]:
        # SGLang divides the logits by the temperature before it takes log-probabilities.
        if self._log_probs and request.temperature not in (0, 1):
            raise BadInputError(
                f"server {self._server.url}: SGLang's log-probabilities are those at the "
                f"temperature of sampling, {request.temperature:g}, not at 1: sample at "
                "temperature 1, set log_probs: false, or take a server of vLLM if the search reads "
                "log-probabilities"
            )
        seeds = request.seeds[:1] if request.temperature == 0 else request.seeds
        asked: dict[str, Any] = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k or -1,
            "max_new_tokens": request.max_tokens,
            # With ignore_eos SGLang would ignore these, too.
            "stop_token_ids": list(request.stop_ids),
            "no_stop_trim": True,
        }
        if request.step_end is not None and request.step_end.is_split:
            asked["stop"] = list(request.step_end.text.texts)
        return {
            "input_ids": [list(request.prompt)] * len(seeds),
            "sampling_params": [{**asked, "sampling_seed": seed >> 1} for seed in seeds],
            "return_logprob": self._log_probs,
            **_adapter(self._server),
        }

    def _read(self, reply: Any, body: dict[str, Any]) -> list[TokenSample]:
        return [
            _sampled(answer, meta, asked, body["return_logprob"])
            for (answer, meta), asked in zip(
                _answers(reply, body), body["sampling_params"], strict=True
            )
        ]


class SGLangClassifier(HTTPClassifier):
    """`Classifier` on SGLang's `/generate`: the softmax over two tokens behind a prompt.

    Args:
        server: the server of the PRM, a causal language model.
        overrides: as for `HTTPClassifier`, for the error message.
        pair: ids of the positive and the negative token; None for a PRM with a head.

    Raises:
        BadInputError: the PRM has a head, or the server has sampling parameters of its own.
    """

    _route = "/generate"

    def __init__(
        self, server: ServerClient, overrides: dict[str, Any], pair: tuple[int, int] | None
    ):
        super().__init__(server, overrides)
        if pair is None:
            raise BadInputError(
                f"server {server.url} is SGLang, on which a PRM is read at two tokens, not by a "
                f"head: take backend hf or vllm, or take a server of vLLM and {self._wanted}"
            )
        _settings(server)
        self._wanted = _WANTED
        self._pair = pair

    def _body(self, prompts: list[list[int]]) -> dict[str, Any]:
        return {
            "input_ids": prompts,
            # A greedy token has the log-probabilities of temperature 1.
            "sampling_params": {"temperature": 0, "max_new_tokens": 1},
            "return_logprob": True,
            "token_ids_logprob": list(self._pair),
            **_adapter(self._server),
        }

    def _read(self, reply: Any, body: dict[str, Any]) -> list[Classified]:
        found = []
        for _, meta in _answers(reply, body):
            if not meta.get("output_token_ids_logprobs"):
                raise UnfitServerError("gives no 'output_token_ids_logprobs'")
            at = {entry[1]: number(entry[0]) for entry in meta["output_token_ids_logprobs"][0]}
            positive, negative = (at[token] for token in self._pair)
            # The softmax over two values, which can't overflow in this form.
            score = (1.0 + math.tanh((positive - negative) / 2)) / 2
            found.append(Classified(score, _cached(meta)))
        return found


def _settings(server: ServerClient) -> dict[str, Any]:
    """The server's `/server_info`.

    Raises:
        BadInputError: there is none, or it has sampling parameters, which change log-probabilities.
    """
    found = server.get("/server_info", dict, "a policy or PRM on SGLang needs its /server_info")
    if found.get("preferred_sampling_params"):
        raise BadInputError(
            f"server {server.url} has sampling parameters of its own: start SGLang without "
            "--preferred-sampling-params"
        )
    return found


def _adapter(server: ServerClient) -> dict[str, str]:
    """The field that names a LoRA adapter of the server, if the served name is one's."""
    return {"lora_path": server.model} if server.card.get("parent") else {}


def _answers(reply: Any, body: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The answers to a request's prompts and their `meta_info`, in order.

    Raises:
        UnfitServerError: an answer has no `meta_info`, or a prompt was not read whole.
        KeyError, TypeError, ValueError: the reply is broken.
    """
    prompts = body["input_ids"]
    if not isinstance(reply, list) or len(reply) != len(prompts):
        raise ValueError(f"no list of {len(prompts)} answers")
    if any("meta_info" not in answer for answer in reply):
        raise UnfitServerError("gives no 'meta_info'")
    found = [(dict(answer), dict(answer["meta_info"])) for answer in reply]
    for prompt, (_, meta) in zip(prompts, found, strict=True):
        if meta["prompt_tokens"] != len(prompt):
            raise UnfitServerError(f"reads {meta['prompt_tokens']} of {len(prompt)} prompt tokens")
    return found


def _cached(meta: dict[str, Any]) -> int:
    """Number of prompt tokens that the server read from its cache; ValueError for no number."""
    return min(meta["prompt_tokens"], token_count(meta["cached_tokens"]))


def _sampled(
    answer: dict[str, Any], meta: dict[str, Any], asked: dict[str, Any], log_probs: bool
) -> TokenSample:
    """One sample of a reply; see `checked_sample` for the errors."""
    if answer.get("output_ids") is None:
        raise UnfitServerError("gives no 'output_ids' with its samples")
    ids = list(answer["output_ids"])
    if len(ids) != meta["completion_tokens"]:
        raise ValueError(f"{len(ids)} token ids of {meta['completion_tokens']} tokens")
    known = None
    if log_probs:
        if meta.get("output_token_logprobs") is None:
            raise UnfitServerError(NO_LOG_PROBS)
        known = [entry[0] for entry in meta["output_token_logprobs"]]
        if [entry[1] for entry in meta["output_token_logprobs"]] != ids:
            raise ValueError("the log-probabilities are not those of the sample's tokens")
    finish = meta["finish_reason"]  # {"type": "abort"} if the server has given the request up
    limit = asked["max_new_tokens"]
    sample = checked_sample(ids, finish["type"], known, _cached(meta), asked, limit)
    if not sample.stopped and len(ids) < limit:
        raise UnfitServerError(
            f"ends a sample at {len(ids)} of {limit} tokens",
            way_out="set a smaller max_model_len in the recipe, or enlarge SGLang's KV pool "
            "(--max-total-tokens, --mem-fraction-static)",
        )
    if sample.stopped:
        # SGLang stops at the end tokens of its own files, too, and where a logit is not a number.
        matched = finish["matched"]
        if matched not in (*asked["stop_token_ids"], *asked.get("stop", ())):
            raise _unrequested(matched)
        if matched not in asked.get("stop", ()) and ids[-1] != matched:
            raise UnfitServerError("leaves out the token that ends a sample (no_stop_trim)")
    return sample


def _unrequested(matched: Any) -> UnfitServerError:
    """The error for a sample that ends at a token or text that the request does not name."""
    if type(matched) is not int:
        return UnfitServerError(f"ends a sample at {quoted(matched)}, which was not requested")
    return UnfitServerError(
        f"ends samples at token {matched} by its own files",
        way_out="add the token to end_tokens of the policy's format, or its id to eos_token_id in "
        "generation_config.json of the model's folder",
    )
