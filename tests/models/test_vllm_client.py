"""The queue of vLLM's engine: outputs that come in any order, and a call that is interrupted."""

import queue
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cats_jax.models.serving.vllm_client import Output, QueueClient
from cats_jax.models.serving.vllm_engine import VLLMClassifier


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
    names = ("vllm", "vllm.v1", "vllm.v1.engine", "vllm.v1.engine.exceptions")
    modules = {name: types.ModuleType(name) for name in names}
    vars(modules["vllm.v1.engine.exceptions"]).update(
        EngineDeadError=type("Dead", (Exception,), {})
    )
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


class ThreadedCore(FakeCore):
    """Has an output when the test sends it."""

    outputs_queue = True

    def __init__(self):
        super().__init__()
        self.sent = queue.Queue()
        self.asked = threading.Semaphore(0)

    def add_request(self, request):
        super().add_request(request)
        self.asked.release()

    def send(self, *prompts):
        """Send the next token of each request."""
        for prompt in prompts:
            at = next(i for i, (r, _) in enumerate(self.waiting) if r.prompt_token_ids[0] == prompt)
            self.waiting[:0] = [self.waiting.pop(at)]
            self.sent.put(FakeCore.get_output(self))

    def get_output(self):
        output = self.sent.get(timeout=60)
        if isinstance(output, Exception):
            raise output
        return output


def begin(pool, client, core, *asked):
    """A call in a thread of its own, whose requests have reached the engine."""
    call = pool.submit(client.run, [([prompt], Params(length=length)) for prompt, length in asked])
    for _ in asked:
        assert core.asked.acquire(timeout=60)
    return call


def ids(call):
    return [output.ids for output in call.result(timeout=60)]


@pytest.fixture
def threads(core):
    del core  # the modules
    core = ThreadedCore()
    with ThreadPoolExecutor(3) as pool:
        yield pool, QueueClient(engine(core)), core
        core.sent.put(RuntimeError("the test is over"))  # for threads that would wait for ever


def test_calls_of_several_threads_end_in_any_order(threads):
    pool, client, core = threads
    assert client.concurrent
    first = begin(pool, client, core, (10, 2), (20, 1))  # takes the outputs of all
    second = begin(pool, client, core, (30, 1))
    third = begin(pool, client, core, (40, 2))
    core.send(10, 30, 40)
    assert ids(second) == [[30]]
    assert not first.done()
    core.send(10, 20)
    assert ids(first) == [[10, 11], [20]]
    assert not third.done()  # now takes the outputs itself
    fourth = begin(pool, client, core, (50, 1))
    core.send(50)
    assert ids(fourth) == [[50]]
    core.send(40)
    assert ids(third) == [[40, 41]]


def test_a_dead_engine_ends_the_calls_of_all_threads(threads):
    pool, client, core = threads
    calls = [begin(pool, client, core, (prompt, 1)) for prompt in (10, 20, 30)]
    core.sent.put(RuntimeError("dead"))
    for call in calls:
        with pytest.raises(RuntimeError, match="dead"):
            call.result(timeout=60)
    later = pool.submit(client.run, [([40], Params(length=1))])
    with pytest.raises(sys.modules["vllm.v1.engine.exceptions"].EngineDeadError):
        later.result(timeout=60)


def test_many_calls_from_many_threads(threads):
    _, client, core = threads
    add = core.add_request

    def answer_at_once(request):
        add(request)
        core.send(*[request.prompt_token_ids[0]] * request.sampling_params.length)

    core.add_request = answer_at_once
    with ThreadPoolExecutor(16) as pool:
        calls = {n: pool.submit(client.run, [([n], Params(length=3))] * 2) for n in range(300)}
        for number, call in calls.items():
            assert ids(call) == [[number, number + 1, number + 2]] * 2


@pytest.mark.parametrize(
    ("version", "size", "known"), [("0.32.1", 1, True), ("0.33.0", 1, False), ("0.32.0", 2, False)]
)
def test_only_tested_versions_and_single_engines_are_driven(core, version, size, known):
    vars(sys.modules["vllm"])["__version__"] = version
    assert QueueClient.knows(engine(core, size)) is known


@pytest.mark.parametrize("number", [1, 3])
def test_scores_of_steps_need_a_row_for_each_computed_token(monkeypatch, number):
    classifier = object.__new__(VLLMClassifier)
    monkeypatch.setattr(classifier, "_queue", object(), raising=False)
    rows = np.linspace(0.1, 0.9, number)[:, None]
    monkeypatch.setattr(classifier, "_pool", lambda *_: [Output(cached=1, pooled=rows)])
    with pytest.raises(RuntimeError, match=f"gave {number} rows for a prompt of 3 tokens, 1 of"):
        classifier.classify_steps([(5, 6, 7)], [[2, 3]])
