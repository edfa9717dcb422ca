"""Questions a minute of whole searches over HTTP, on one of vLLM's OpenAI servers.

The weak policy of the embedded world is served by a server that is started here; the PRM runs on
transformers in this process. All strategies take turns in each round; the first round, which
compiles, is left out. The server's prefix cache is emptied before each. "Requests alone" sends the
requests of the search in the row above again, in the same calls, without PRM and driver.

    .venv-vllm/bin/python benchmarks/server_throughput.py [--questions 64] [--num-candidates 16]

`--its-hub FOLDER` adds the same algorithms of a checkout of its_hub, on the same server and with
the same PRM. Python must find the package `backoff` for it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

import httpx
from engines.requests_alone import Recorder, recorded_policy
from peers.its_hub import ItsHub
from peers.text_scorer import TextScorer
from rich.table import Table

from cats_jax import datasets, world
from cats_jax.commands.terminal import make_console
from cats_jax.controllers.strategies import build_strategy
from cats_jax.datasets.question_set import QuestionSet
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.live.searcher import Searcher
from cats_jax.models.serving.http_engine import HTTPSampler, ServerClient
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import StepGenerator, StepScorer
from cats_jax.reporting.printing import show_table
from cats_jax.specs.recipe import PrmSpec, StrategySpec

POLICY, PRM = "weak", world.PRM_NAMES[0]
MAX_DEPTH, MAX_STEP_TOKENS = 10, 32
MAX_ANSWER_TOKENS = 160  # one request is enough for most answers, and fits in the context
EXPANSION = 4  # M of beam search
STRATEGIES = ("majority", "best_of_n", "beam", "particle_filtering")
REPEATED = ("beam", "particle_filtering")
"""Searches whose requests are sent again alone."""

ALONE = "requests alone"
PEER = "its_hub"
READY_SECONDS = 240


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--num-candidates", type=int, default=16)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    parser.add_argument("--its-hub", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    asked = datasets.world_questions("validation", options.questions)
    scorer = ModelFolders().prm(PrmSpec(PRM))
    with serving() as url:
        policy, recorder = recorded_policy(
            world.policy_path(POLICY),
            # The peer asks for no log-probabilities, either.
            lambda context: HTTPSampler(ServerClient(url, context=context), log_probs=False),
            max_step_tokens=MAX_STEP_TOKENS,
            max_answer_tokens=MAX_ANSWER_TOKENS,
        )
        peer = None
        if options.its_hub is None:
            print("no rows for its_hub: --its-hub FOLDER names a checkout of it")
        else:
            peer = its_hub(options.its_hub, url, scorer, options.num_candidates)
        rows: dict[tuple[str, str], Callable[[], int]] = {}
        for name in options.strategies:
            search = searcher(name, policy, scorer, options.num_candidates, options.in_flight)
            rows[name, "cats-jax"] = whole_search(search, asked, recorder)
            if name in REPEATED:
                rows[name, ALONE] = alone(recorder)
            if peer is not None:
                rows[name, PEER] = published(peer, name, asked, options.in_flight)
        found = rounds(rows, url, options.repeats)
    title = f"{options.questions} questions, {options.in_flight} in flight, N = "
    title += f"{options.num_candidates}, policy {POLICY}, PRM {PRM}"
    show_table(make_console(), table(found, title, options.questions))


def rounds(
    rows: dict[tuple[str, str], Callable[[], int]], url: str, repeats: int
) -> dict[tuple[str, str], list[tuple[float, int]]]:
    """Seconds and right answers of each row in each round after the first."""
    found: dict[tuple[str, str], list[tuple[float, int]]] = {row: [] for row in rows}
    for repeat in range(-1, repeats):
        for row, search in rows.items():
            if repeat < 0 and row[1] == PEER:
                continue  # nothing of it is compiled
            httpx.post(f"{url}/reset_prefix_cache").raise_for_status()
            begun = time.perf_counter()
            right = search()
            seconds = time.perf_counter() - begun
            if repeat >= 0:
                found[row].append((seconds, right))
                print(f"round {repeat + 1}: {' of '.join(row)} {seconds:.1f} s", flush=True)
    return found


def searcher(
    name: str, policy: StepGenerator, scorer: StepScorer, num_candidates: int, in_flight: int
) -> Searcher:
    options = (("expansion", EXPANSION),) if name == "beam" else ()
    strategy, params, price, *_ = build_strategy(StrategySpec(name, options=options))
    return Searcher(
        policy=policy,
        scorer=scorer if strategy.uses_scores else None,
        strategy=strategy,
        params=params,
        price=price,
        num_candidates=num_candidates,
        max_depth=MAX_DEPTH,
        in_flight=in_flight,
    )


def whole_search(search: Searcher, asked: QuestionSet, recorder: Recorder) -> Callable[[], int]:
    """A search of this package; returns the number of right answers.

    The recorder then has its requests and no others.
    """

    def run() -> int:
        recorder.forget()
        results = search.run(asked.questions)
        return sum(result.answer == asked.answers[result.question.id] for result in results)

    return run


def alone(recorder: Recorder) -> Callable[[], int]:
    """The requests that the recorder has, which answer no question."""

    def run() -> int:
        recorder.send_again()
        return 0

    return run


def its_hub(folder: pathlib.Path, url: str, scorer: StepScorer, num_candidates: int) -> ItsHub:
    return ItsHub(
        folder,
        url,
        POLICY,
        TextScorer(scorer),
        num_candidates=num_candidates,
        expansion=EXPANSION,
        max_depth=MAX_DEPTH,
        max_step_tokens=MAX_STEP_TOKENS,
        max_answer_tokens=MAX_ANSWER_TOKENS,
        extract=extract,
    )


def published(peer: ItsHub, name: str, asked: QuestionSet, in_flight: int) -> Callable[[], int]:
    """A search of its_hub; returns the number of right answers."""

    def run() -> int:
        texts = [question.text for question in asked.questions]
        answers = map(extract, peer.answers(name, texts, in_flight))
        gold = (asked.answers[question.id] for question in asked.questions)
        return sum(one == other for one, other in zip(answers, gold, strict=True))

    return run


def extract(text: str) -> str:
    return BoxedIntegerGrader().extract([text]) or ""


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The address of a vLLM server for the policy, in processes of its own."""
    path = world.policy_path(POLICY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as root:
        # Beside config.json, AutoTokenizer takes the class of the model type, which drops the
        # separators of steps from text.
        tokenizer = pathlib.Path(root, "tokenizer")
        tokenizer.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(path / name, tokenizer)
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(path), "--served-model-name", POLICY]
        command += ["--tokenizer", str(tokenizer), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--dtype", "float32", "--enforce-eager", "--block-size", "32"]
        command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"]
        command += ["--enable-prompt-tokens-details"]
        # The route that empties the prefix cache is one of those for development.
        settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
        settings |= {"VLLM_SERVER_DEV_MODE": "1"}
        log = pathlib.Path(root, "log")
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                env=os.environ | settings,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            wait_until_ready(process, f"http://127.0.0.1:{port}", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):  # its engine, if it is still there
                os.killpg(process.pid, signal.SIGKILL)


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: pathlib.Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health").status_code == 200:
                return
        time.sleep(0.5)
    raise SystemExit(f"the server does not start, its last words:\n{log.read_text()[-3000:]}")


def table(
    found: dict[tuple[str, str], list[tuple[float, int]]], title: str, num_questions: int
) -> Table:
    """Medians over the rounds, with ranges in brackets."""
    shown = Table("", "", title=title, title_justify="left")
    for name in ("questions/min", "cats-jax to its_hub", "right"):
        shown.add_column(name, justify="right")
    for (name, library), measured in found.items():
        peer = found.get((name, PEER))
        ratios = []
        if peer is not None and library == "cats-jax":
            pairs = zip(measured, peer, strict=True)
            ratios = [other / one for (one, _), (other, _) in pairs]
        shown.add_row(
            name,
            library,
            spread([60 * num_questions / seconds for seconds, _ in measured], ".0f"),
            spread(ratios, ".2f") if ratios else "",
            "" if library == ALONE else f"{statistics.mean(right for _, right in measured):.1f}",
        )
    return shown


def spread(values: Sequence[float], digits: str) -> str:
    middle = statistics.median(values)
    return f"{middle:{digits}} ({min(values):{digits}}-{max(values):{digits}})"


if __name__ == "__main__":
    main()
