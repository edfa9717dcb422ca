"""Searches through llama.cpp's own server, which has no token ids and repeats what it continues."""

import os
import pathlib
import subprocess
import sys

import httpx
import pytest
import scripted
import tiny_gguf

import cats_jax
import search
from cats_jax.live.searcher import Searcher
from cats_jax.models.serving.chat import ChatPolicy, chat_policy, path_text
from cats_jax.protocols import Question, StepRequest
from cats_jax.specs.models import PolicySpec

# The wheel xllamacpp, which has the server as a library, in a folder of its own.
BESIDE = pathlib.Path(__file__).parents[2] / ".venv-beside"
QUESTIONS = [Question("a", "3+4+5"), Question("b", "2+9+1+6")]
PROGRAM = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], 0
params.n_ctx, params.n_parallel, params.endpoint_metrics = 4 * 256, 4, True
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
"""
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def weights():
    """Random weights under which the net writes the digits 1 to 3, and ends."""
    values = tiny_gguf.tensors("llama")
    # All states have the same large value in one place, so that its column is a bias.
    values["token_embd.weight"][:, 0] = 2.0
    for name in values:
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            values[name] *= 0.05
            values[name][0] = 0.0
    values["output.weight"][:, 0] = -2.0
    values["output.weight"][[*map(tiny_gguf.TOKENS.index, "123")], 0] = 0.5
    values["output.weight"][tiny_gguf.EOS, 0] = 0.3
    return values


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    assert BESIDE.is_dir(), "run `make beside-env`"
    folder = tmp_path_factory.mktemp("llama")
    changes = {"tokenizer.chat_template": TEMPLATE, "llama.attention.value_length": 32}
    path = tiny_gguf.write(folder / "m.gguf", values=weights(), **changes)
    command = [sys.executable, "-c", PROGRAM, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(BESIDE)}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http"), (folder / "log").read_text()[-3000:]
            yield address
        finally:
            process.kill()


@pytest.fixture
def policy(url):
    limits = {"max_step_tokens": 8, "max_answer_tokens": 24, "step_separator": "3"}
    # A price by which the cost is the number of tokens of all prompts.
    price = {"input": 1e6, "output": 0.0}
    spec = PolicySpec(
        backend=url, chat=True, served_name="m", format="plain", price=price, **limits
    )
    made = chat_policy(spec)
    assert isinstance(made, ChatPolicy)
    return made


def counted(url):
    """Tokens of prompts and sampled tokens, by the server's own counts."""
    lines = (line.split(" ") for line in httpx.get(f"{url}/metrics").text.splitlines())
    counts = {line[0].removeprefix("llamacpp:"): line[1] for line in lines if len(line) == 2}
    names = ("prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total")
    new, cached, sampled = (int(counts[name]) for name in names)
    return new + cached, sampled


def request(path=(), seeds=(5 << 33, 6 << 33, 7 << 33), temperature=1.0):
    return StepRequest(QUESTIONS[0], path, tuple(seeds), temperature, 1.0, 0, False)


@pytest.mark.slow
def test_what_the_server_does_is_found_at_the_start(policy):
    assert policy.whole_only is None
    assert "single steps by continuation, each to max_step_tokens" in policy.found
    assert "each sample is a request of its own" in policy.found


@pytest.mark.slow
def test_greedy_steps_are_those_of_a_greedy_answer(policy):
    ((answer,),) = policy.generate_answers([request(seeds=[0], temperature=0.0)], 9).answers
    path = ()
    for expected in answer[:-1]:
        ((sample,),) = policy.generate([request(path, [0], 0.0)]).samples
        assert (sample.step.text, sample.finish) == (expected.step.text, "step")
        path = (*path, sample.step)
    assert path_text(path) == path_text([sample.step for sample in answer[:-1]])
    assert len(path) > 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:controller 'cats' was not trained")
@pytest.mark.parametrize("name", ["majority", "best_of_n", "beam", "cats"])
def test_the_ledger_of_a_search_is_the_server_s_count(url, policy, name):
    strategies = {
        "majority": search.majority(),
        "best_of_n": search.best_of_n(),
        "beam": search.beam(expansion=2),
        "cats": cats_jax.load_controller("cats"),
    }
    before = counted(url)
    searcher = Searcher(
        policy=policy,
        scorer=scripted.ScriptedPrm(noise=1.0),
        strategy=strategies[name],
        calibration="none",
        num_candidates=4,
        max_depth=4,
    )
    ledgers = [result.ledger for result in searcher.run(QUESTIONS)]
    prompts, sampled = (now - then for now, then in zip(counted(url), before, strict=True))
    assert sampled == sum(ledger.generated for ledger in ledgers) > 20
    assert prompts == sum(ledger.policy_cost for ledger in ledgers)
