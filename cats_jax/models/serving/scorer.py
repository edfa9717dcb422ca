"""A process reward model on a serving engine: only the newest step of a path is scored.

The score is read at the last position, the only kind of pooling for which the engine uses its
prefix cache, so that each token is computed about once.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
import time
from collections.abc import Callable, Sequence

from ...errors import PathTooLongError
from ...protocols import Path, Question, Scoring, TokenUsage
from ..huggingface.prm import RewardModel
from ..prm.format import Head, PRMFormat
from ..prm.newest_steps import broken, checked_chunks
from ..prm.sparsity import checkpoint_sparsity
from ..stored_model import check_complete
from ..weights import stored_tensors
from .token_engine import Classifier


class EngineScorer:
    """`StepScorer` on a serving engine.

    In float32 a score differs from that of `HuggingFaceScorer` by about 1e-5 at most.

    Args:
        path: model folder: configuration, tokenizer, safetensors (read here for the sparsity).
        prm_format: how the PRM reads a path.
        start: makes the engine, given the model without weights (tokenizer and configuration).
        max_model_len: largest number of tokens of a path; None: the model's own.

    Attributes:
        engine: the engine that `start` made.

    Raises:
        BadInputError: the folder or the format can't work (raised before the engine starts), or
            the engine does not start.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        prm_format: PRMFormat,
        start: Callable[[RewardModel], Classifier],
        *,
        max_model_len: int | None = None,
    ):
        # Tokenizer, format and configuration only: the weights are the engine's.
        self._model = RewardModel(path, prm_format, device="cpu", dtype="float32", num_threads=1)
        self._model.limit_context(max_model_len)
        read_out = prm_format.read_out
        head = read_out.layers if isinstance(read_out, Head) else ()
        check_complete(pathlib.Path(path), self._model.config, head)
        sparsity = checkpoint_sparsity(path, read_out)
        self.sparsity_total = sparsity.total
        self.sparsity_last_layer = sparsity.last_layer
        self.name = self._model.name
        self.num_parameters = sum(
            math.prod(tensor.shape) for tensor in stored_tensors(path).values()
        )
        self.engine = start(self._model)

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Does nothing: an engine drops the least recently used blocks of its cache by itself."""

    def count_tokens(self, question: Question, path: Path) -> int:
        """Number of tokens of a path as the model reads it, prompt included.

        Raises:
            ScorerContractError: a path without steps, a blank step, or a path longer than the
                context.
        """
        return len(self._ids(question, path))

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """Scores the last step of each path in one call; see `StepScorer.score`.

        Equal paths are one request. A path longer than the context has the score None and
        costs nothing. `usage[i].cached` counts the tokens that the engine reports as
        cached (0 if it reports none), or all tokens of a path that equals an earlier one of the
        call. `inside_seconds` is the time of the call to the engine, which includes scheduling and
        transfer.

        Raises:
            ValueError: not one question per path.
            ScorerContractError: a path without steps, a blank step (both before any work), or a
                score that is no number in [0, 1].
        """
        if len(questions) != len(paths):
            raise ValueError(f"{len(questions)} questions for {len(paths)} paths")
        first: dict[tuple[int, ...], int] = {}
        asked: dict[int, tuple[int, ...]] = {}
        for i, (question, path) in enumerate(zip(questions, paths, strict=True)):
            with contextlib.suppress(PathTooLongError):
                asked[i] = self._ids(question, path)
                first.setdefault(asked[i], i)
        start = time.perf_counter()
        answers = self.engine.classify(list(first)) if first else []
        inside = time.perf_counter() - start

        found = dict(zip(first, answers, strict=True))
        scores: list[float | None] = [None] * len(paths)
        usage = [TokenUsage(computed=0, cached=0)] * len(paths)
        for i, ids in asked.items():
            answer = found[ids]
            if not 0.0 <= answer.score <= 1.0:  # False for NaN, too
                reason = f"the score is {answer.score}, expected [0, 1]"
                broken(questions[i], len(paths[i]) - 1, reason, self.name)
            cached = answer.cached if first[ids] == i else len(ids)
            scores[i] = answer.score
            usage[i] = TokenUsage(computed=len(ids) - cached, cached=cached)
        return Scoring(scores, usage, inside_seconds=inside)

    def _ids(self, question: Question, path: Path) -> tuple[int, ...]:
        chunks = checked_chunks(
            self._model.encoder, question, path, context=self._model.context, name=self.name
        )
        return tuple(token for chunk in chunks for token in chunk)
