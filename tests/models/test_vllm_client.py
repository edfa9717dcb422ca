"""The queue of vLLM's engine: outputs that come in any order, and a call that is interrupted."""

import sys
import types

import numpy as np
import pytest

from cats_jax.models.serving.vllm_client import QueueClient


class Params(types.SimpleNamespace):
    pass


class FakeCore:
    """Sends the tokens of every request one by one, the newest request first."""

    def __init__(self):
        self.requests, self.waiting, self.aborted, self.calls = [], [], [], 0
        self.interrupt_at = None

    def add_request(self, request):
        self.requests.append(request)
        self.waiting[:0] = [(request, number) for number in range(request.sampling_params.length)]

    def abort_requests(self, names):
        self.aborted += names

    def get_output(self):
        self.calls += 1
        if self.calls == self.interrupt_at:
            raise KeyboardInterrupt
        request, number = self.waiting.pop(0)
        last = number == request.sampling_params.length - 1
        logs = types.SimpleNamespace(logprobs=np.array([[-float(number), -9.0]], np.float32))
        part = types.SimpleNamespace(
            request_id=request.request_id,
            new_token_ids=[request.prompt_token_ids[0] + number],
            new_logprobs=logs,
            prefill_stats=types.SimpleNamespace(num_cached_tokens=7) if number == 0 else None,
            finish_reason="stop" if last else None,
            pooling_output=None,
        )
        return types.SimpleNamespace(outputs=[part])


@pytest.fixture
def core(monkeypatch):
    modules = {name: types.ModuleType(name) for name in ("vllm", "vllm.v1", "vllm.v1.engine")}
    vars(modules["vllm"]).update(SamplingParams=Params, __version__="0.32.0")
    vars(modules["vllm.v1.engine"]).update(EngineCoreRequest=types.SimpleNamespace)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return FakeCore()


def engine(core, data_parallel_size=1):
    parallel = types.SimpleNamespace(data_parallel_size=data_parallel_size)
    config = types.SimpleNamespace(parallel_config=parallel)
    return types.SimpleNamespace(
        llm_engine=types.SimpleNamespace(engine_core=core, vllm_config=config)
    )


def test_outputs_belong_to_their_requests(core):
    asked = [([10 * number], Params(length=number)) for number in (1, 3, 2)]
    outputs = QueueClient(engine(core)).run(asked)
    assert [output.ids for output in outputs] == [[10], [30, 31, 32], [20, 21]]
    assert [output.log_probs for output in outputs] == [[0], [0, -1, -2], [0, -1]]
    assert [(output.cached, output.finish) for output in outputs] == [(7, "stop")] * 3


def test_nothing_asked(core):
    assert QueueClient(engine(core)).run([]) == []
    assert core.calls == 0


def test_an_interrupted_call_is_taken_back_and_its_late_outputs_are_ignored(core):
    client = QueueClient(engine(core))
    core.interrupt_at = 4
    with pytest.raises(KeyboardInterrupt):
        client.run([([10], Params(length=3)), ([20], Params(length=3))])
    first, _ = core.requests
    assert core.aborted == [first.request_id]  # the second, newest one had ended
    late, core.waiting = core.waiting, []  # what the engine still sends
    assert late
    add = core.add_request

    def add_behind_the_late_ones(request):
        add(request)
        core.waiting = late + core.waiting

    core.add_request = add_behind_the_late_ones
    (output,) = client.run([([50], Params(length=1))])
    assert output.ids == [50]


@pytest.mark.parametrize(
    ("version", "size", "known"), [("0.32.1", 1, True), ("0.33.0", 1, False), ("0.32.0", 2, False)]
)
def test_only_tested_versions_and_single_engines_are_driven(core, version, size, known):
    vars(sys.modules["vllm"])["__version__"] = version
    assert QueueClient.knows(engine(core, size)) is known
