"""vLLM engines for tests: servers in processes of their own, and PRMs in process and over HTTP."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import httpx
import pytest

from cats_jax.models.serving.http_engine import HTTPClassifier, ServerClient
from cats_jax.models.serving.scorer import EngineScorer
from cats_jax.models.serving.vllm_engine import VLLMClassifier, classifier_overrides

BLOCK = 32  # tokens of a block of the prefix cache
SERVER = "vllm.entrypoints.openai.api_server"
READY_SECONDS = 180
ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"  # starts in half the time


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def running(path, *options, port):
    """The process of a vLLM server that is ready, as a user starts it; nothing of it is left."""
    command = [sys.executable, "-m", SERVER, "--model", str(path), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager"]
    command += ["--block-size", "32", "--no-enable-chunked-prefill"]
    command += ["--max-num-batched-tokens", "4096", "--enable-prompt-tokens-details"]
    command += ["--distributed-executor-backend", ONE_PROCESS, *options]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            wait_until_ready(process, port, pathlib.Path(log.name))
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            kill_group(process)


def wait_until_ready(process, port, log):
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                return
        time.sleep(0.5)
    end = "is not ready" if process.poll() is None else f"ended with {process.poll()}"
    pytest.fail(f"the server {end}, its last words:\n{log.read_text()[-3000:]}")


def kill_group(process):
    """The server and the processes of its engine."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def serving(path, *options):
    """The address of a vLLM server in processes of its own."""
    port = free_port()
    with running(path, *options, port=port):
        yield f"http://127.0.0.1:{port}"


def prm_in_process(path, prm_format):
    def start(model):
        overrides = classifier_overrides(model.config.model_type, prm_format.read_out)
        return VLLMClassifier(path, context=model.context, overrides=overrides)

    return EngineScorer(path, prm_format, start)


@contextlib.contextmanager
def prm_over_http(path, prm_format):
    model_type = json.loads((path / "config.json").read_text())["model_type"]
    overrides = classifier_overrides(model_type, prm_format.read_out)
    options = ("--runner", "pooling", "--convert", "classify")
    with serving(path, *options, "--hf-overrides", json.dumps(overrides)) as address:
        clients = []

        def connect(model):
            clients.append(ServerClient(address, context=model.context))
            return HTTPClassifier(clients[0], overrides)

        yield EngineScorer(path, prm_format, connect)
        clients[0].close()
