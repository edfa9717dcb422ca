"""Beam search as published in search-and-learn, on an engine and a PRM of this package.

    git clone https://github.com/huggingface/search-and-learn

Its code is imported from the checkout and not changed. It asks for a `vllm.LLM`, a PRM and its own
configuration; the first two are the adapters below.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import types
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from .text_scorer import SEPARATOR, TextScorer

# `sal.utils.math` reads answers out of LaTeX after a search and `sal.models.reward_models` loads
# the published PRMs. Both need packages of their own; beam search imports them and calls neither.
_NOT_CALLED = ("sal.utils.math", "sal.models.reward_models")


class BeamSearch:
    """`sal.search.beam_search`, one question at a time, as its configuration demands.

    Args:
        folder: a checkout of search-and-learn.
        engine: a `vllm.LLM` that takes token ids.
        tokenizer: tokenizer of the model, with a chat template.
        scorer: the PRM.
        num_candidates: N.
        expansion: M; N // M paths are kept.
        max_depth: number of steps of a path; the last one runs to the end of the answer.
        max_step_tokens: limit in tokens of a step.

    Raises:
        FileNotFoundError: the folder is no checkout of search-and-learn.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        engine: Any,
        tokenizer: Any,
        scorer: TextScorer,
        *,
        num_candidates: int,
        expansion: int,
        max_depth: int,
        max_step_tokens: int,
    ):
        self._search, config = _published(folder)
        self._config = config(
            approach="beam_search",
            n=num_candidates,
            beam_width=expansion,
            num_iterations=max_depth,
            max_tokens=max_step_tokens,
            temperature=1.0,
            search_batch_size=1,
            custom_chat_template=None,  # the tokenizer's own
        )
        self.engine = TextEngine(engine, tokenizer)
        self.prm = PRM(scorer)

    def answer(self, question: str) -> str:
        """The answer with the best score."""
        found = self._search({"problem": [question]}, self._config, self.engine, self.prm)
        return str(found["pred"][0])


class TextEngine:
    """What search-and-learn calls of `vllm.LLM`, text in and out, on an engine for token ids.

    Args:
        engine: a `vllm.LLM`, also one without a tokenizer.
        tokenizer: tokenizer of the model.

    Attributes:
        generated: number of tokens sampled so far.
    """

    def __init__(self, engine: Any, tokenizer: Any):
        self._engine = engine
        self._tokenizer = tokenizer
        self._context = engine.llm_engine.vllm_config.model_config.max_model_len
        (self._separator,) = tokenizer.encode(SEPARATOR, add_special_tokens=False)
        self.generated = 0

    def get_tokenizer(self) -> Any:
        return self._tokenizer

    def generate(self, prompts: Sequence[str], parameters: Any, use_tqdm: bool) -> list[Any]:
        """Samples with a text and the stop that ended it; an empty one where no room is left."""
        assert parameters.n == 1
        encoded = [self._tokenizer.encode(text, add_special_tokens=False) for text in prompts]
        fit = [ids for ids in encoded if len(ids) < self._context]
        outputs = iter(
            self._engine.generate(
                [{"prompt_token_ids": ids} for ids in fit],
                [self._parameters(parameters, self._context - len(ids)) for ids in fit],
                use_tqdm=use_tqdm,
            )
        )
        return [
            self._sample(next(outputs).outputs[0].token_ids if len(ids) < self._context else [])
            for ids in encoded
        ]

    def _parameters(self, asked: Any, room: int) -> Any:
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        return SamplingParams(
            temperature=asked.temperature,
            top_p=asked.top_p,
            max_tokens=min(asked.max_tokens, room),
            stop_token_ids=[self._tokenizer.eos_token_id, *([self._separator] * bool(asked.stop))],
            detokenize=False,
            skip_clone=True,
        )

    def _sample(self, ids: Sequence[int]) -> Any:
        self.generated += len(ids)
        stopped = SEPARATOR if ids and ids[-1] == self._separator else None
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        return SimpleNamespace(outputs=[SimpleNamespace(text=text, stop_reason=stopped)])


class PRM:
    """What search-and-learn calls of a PRM."""

    def __init__(self, scorer: TextScorer):
        self._scorer = scorer

    def score(
        self, questions: Sequence[str], outputs: Sequence[Sequence[str]]
    ) -> list[list[list[float]]]:
        """The last step's score of each answer, which its `agg_strategy` "last" reads.

        A call has one question, whose answers are scored together.
        """
        (question,) = set(questions)
        answers = [answer for each in outputs for answer in each]
        scores = iter(self._scorer.scores(question, answers))
        return [[[next(scores)] for _ in each] for each in outputs]


class _NotCalled(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def _published(folder: pathlib.Path) -> tuple[Any, Any]:
    """The function `beam_search` and the class `Config` of a checkout."""
    source = folder / "src"
    if not (source / "sal" / "search" / "beam_search.py").is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} is no checkout of search-and-learn: it has no src/sal/search"
        )
    sys.modules.update((name, _NotCalled(name)) for name in _NOT_CALLED)
    sys.path.insert(0, str(source))
    try:
        search = importlib.import_module("sal.search.beam_search").beam_search
        return search, importlib.import_module("sal.config").Config
    finally:
        sys.path.remove(str(source))
