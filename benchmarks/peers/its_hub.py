"""Searches of its_hub over HTTP, with a PRM of this package.

    git clone https://github.com/Red-Hat-AI-Innovation-Team/its_hub
    pip install aiohttp backoff

Its code is imported from the checkout and not changed. It asks a server for chats by its own
client, all samples of a step at the same time.
"""

from __future__ import annotations

import asyncio
import importlib
import pathlib
import sys
import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .text_scorer import SEPARATOR, TextScorer


class ItsHub:
    """Its algorithms, with one thread for each question in flight.

    Args:
        folder: a checkout of its_hub.
        url: address of the server without a path.
        model: name of the model on the server.
        scorer: the PRM.
        num_candidates: N, which its_hub calls the budget.
        expansion: M; N // M paths are kept.
        max_depth: number of steps after which a path stops.
        max_step_tokens, max_answer_tokens: limits in tokens of a step and of a whole answer.
        extract: reads the answer that majority voting counts out of a text; empty if there is none.

    Raises:
        FileNotFoundError: the folder is no checkout of its_hub.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        url: str,
        model: str,
        scorer: TextScorer,
        *,
        num_candidates: int,
        expansion: int,
        max_depth: int,
        max_step_tokens: int,
        max_answer_tokens: int,
        extract: Callable[[str], str],
    ):
        algorithms, lms, errors = _published(folder)
        self._refused = (errors.ContextLengthError, errors.BadRequestError)
        prm = PRM(scorer)
        steps = lms.StepGeneration(
            max_steps=max_depth, step_token=SEPARATOR, stop_token="\\boxed", temperature=1.0
        )
        whole, by_step = (
            lms.OpenAICompatibleLanguageModel(
                endpoint=f"{url}/v1",
                api_key="none",
                model_name=model,
                is_async=True,
                temperature=1.0,
                max_tokens=limit,
                max_tries=2,  # by default it would go on for minutes after Ctrl-C
            )
            for limit in (max_answer_tokens, max_step_tokens)
        )
        self._num_candidates = num_candidates
        self._algorithms = {
            "majority": (algorithms.SelfConsistency(extract), whole),
            "best_of_n": (algorithms.BestOfN(prm), whole),
            # Its "beam width" is the number of paths kept.
            "beam": (algorithms.BeamSearch(steps, prm, num_candidates // expansion), by_step),
            "particle_filtering": (algorithms.ParticleFiltering(steps, prm), by_step),
        }

    def answers(self, name: str, questions: Sequence[str], in_flight: int) -> list[str]:
        """The texts that an algorithm answers with; empty if the server refused a call.

        Args:
            name: name of the strategy of this package that is the same algorithm.
            questions: texts of the questions.
            in_flight: number of questions searched at once.
        """
        algorithm, model = self._algorithms[name]

        def infer(question: str) -> str:
            try:
                return str(algorithm.infer(model, question, self._num_candidates))
            except self._refused:  # one path that fills the context ends its question's search
                return ""

        # Its client runs the event loop of the thread.
        pool = ThreadPoolExecutor(in_flight, initializer=_new_event_loop)
        try:
            return list(pool.map(infer, questions))
        finally:
            pool.shutdown(cancel_futures=True)


class PRM:
    """What its_hub calls of a PRM: the last step's score of each text."""

    def __init__(self, scorer: TextScorer):
        self._scorer = scorer

    def score(self, prompt: str, responses: Sequence[str]) -> list[float]:
        return self._scorer.scores(prompt, responses)


def _new_event_loop() -> None:
    asyncio.set_event_loop(asyncio.new_event_loop())


def _published(folder: pathlib.Path) -> list[Any]:
    """The modules `algorithms`, `lms` and `error_handling` of a checkout."""
    if not (folder / "its_hub" / "algorithms").is_dir():
        raise FileNotFoundError(
            f"{str(folder)!r} is no checkout of its_hub: it has no its_hub/algorithms"
        )
    # Its __init__ does no more than to look up the version of the installed package.
    package = types.ModuleType("its_hub")
    package.__path__ = [str(folder / "its_hub")]
    sys.modules["its_hub"] = package
    names = ("algorithms", "lms", "error_handling")
    return [importlib.import_module(f"its_hub.{name}") for name in names]
