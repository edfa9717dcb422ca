"""Whole answers from transformers' own server, an endpoint that is not ours."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

import httpx
import pytest
import scripted
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

import search
from cats_jax.live.searcher import Searcher
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.serving.chat import ChatPolicy, chat_policy
from cats_jax.protocols import Question, StepRequest
from cats_jax.specs.models import PolicySpec
from cats_jax.world.tokenizer import BOS_ID, EOS_ID, PAD_ID, build_tokenizer

# FastAPI in a folder of its own, on top of the packages of `.venv`.
BESIDE = pathlib.Path(__file__).parents[2] / ".venv-beside"
QUESTION = Question("q", "5+4+2")
SEEDS = (7 << 33, 8 << 33, 9 << 33)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model whose generation_config.json lets the server sample; by default it is greedy.

    It is a Llama, because the server parses the answers of a Qwen 2 by that family's own tokens.
    """
    path = tmp_path_factory.mktemp("served") / "model"
    tokenizer = build_tokenizer()
    ends = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    sizes = {"hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 192}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "initializer_range": 0.12}
    config = LlamaConfig(vocab_size=len(tokenizer), **sizes, **layers, **ends)
    torch.manual_seed(3)
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, **ends)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def address(folder, tmp_path_factory):
    assert BESIDE.is_dir(), "run `make beside-env`"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    command += ["--dtype", "float32"]
    environment = {**os.environ, "PYTHONPATH": str(BESIDE), "CUDA_VISIBLE_DEVICES": ""}
    log = tmp_path_factory.mktemp("log") / "server.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            time.sleep(0.5)
        else:
            pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")
        yield url
    finally:
        process.kill()
        process.wait()


def request(temperature, seeds=SEEDS):
    return StepRequest(QUESTION, (), seeds, temperature, 1.0, 0, True)


@pytest.mark.slow
def test_whole_answers_of_transformers_server(folder, address):
    limits = {"format": "plain", "max_step_tokens": 24, "max_answer_tokens": 24}
    spec = PolicySpec(backend=address, chat=True, served_name=str(folder), **limits)
    policy = chat_policy(spec)
    assert isinstance(policy, ChatPolicy)
    # Its reply to the first request says that it continues no turn.
    assert policy.whole_only
    here = HuggingFaceGenerator(folder, **limits)
    ((greedy, *copies),) = policy.generate([request(0.0)]).samples
    assert greedy.step.text == here.generate([request(0.0, SEEDS[:1])]).samples[0][0].step.text
    assert [each.step for each in copies] == [greedy.step] * 2
    # It ignores n, so that each sample is a request of its own. Requests that overlap share the
    # state of its random generator, so that their samples can't be repeated.
    made = policy.generate([request(1.0)])
    (samples,) = made.samples
    assert len({each.step.text for each in samples}) == 3
    assert made.usage[0].generated == sum(len(each.step.token_ids) for each in samples)
    assert {each.finish for each in samples} <= {"end", "length"}
    prm = scripted.ScriptedPrm(noise=1.0)
    limits = {"policy": policy, "scorer": prm, "num_candidates": 2, "max_depth": 4}
    questions = [Question(f"q{number}", "5+4+2") for number in range(8)]
    for strategy in (search.majority(), search.best_of_n()):
        # A first step that the token limit cuts is not scored, so one search may have no score.
        results = Searcher(strategy=strategy, **limits).run(questions)
        assert all(result.ledger.generated > 0 for result in results)
        assert {result.status for result in results} <= {"answered", "no_answer", "failed"}
        assert any(result.ledger.prm_computed > 0 for result in results) == strategy.uses_scores
    (result,) = Searcher(strategy=search.beam(), **limits).run([QUESTION])
    assert result.status == "failed"
    assert "does not continue an assistant's turn" in str(result.reason)
