"""Rescore a run with linear PRM heads on one frozen language model, from kept hidden states.

    python -m studies.real.outcome_labels RUN STEPS.jsonl
    python -m studies.real.step_states MODEL STATES --steps STEPS.jsonl --format FORMAT.yaml
    python -m studies.real.rescore_heads RUN STATES --steps STEPS.jsonl --model MODEL \
        --format FORMAT.yaml --heads HEAD.safetensors ...

The model reads each path once for all heads. `cats-jax rescore` with one head reads all paths for
that head. The rows are those of `cats-jax rescore` but for rounding: kept states have 16 bits. The
folder of a head's run is RUN-NAME, where NAME is the name of the head's file.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.special
import torch
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoModel

import cats_jax
from cats_jax.evaluation.rescore import Change, rescore
from cats_jax.grading.graders import make_grader, recorded_grader
from cats_jax.models.huggingface.tokenizer import load_tokenizer
from cats_jax.models.prm.encoder import StepEncoder
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Path, Question, Scoring, TokenUsage
from cats_jax.specs.recipe import PrmSpec

from .step_states import SOURCE, by_length, digests_of, make_encoder, source_digest
from .train_head import load_steps

StatesOfPaths = Mapping[tuple[str, ...], np.ndarray]
"""For a question's text and the texts of a path's steps, the hidden state of the last one."""


def states_of_paths(folder: pathlib.Path, file: pathlib.Path) -> StatesOfPaths:
    """The states that `step_states` computed for a file, f64[hidden] each."""
    steps = load_steps(folder, [file])
    found = {}
    for number, solution in enumerate(by_length(file)):
        own = steps.states[steps.path == number]
        for length, state in enumerate(own, 1):
            found[solution.question, *solution.steps[:length]] = state
    return found


class HeadOnStates:
    """A PRM that looks up hidden states and applies a linear head.

    Its usage is that of a PRM that keeps the states of a question's earlier tokens.
    """

    def __init__(
        self,
        head: pathlib.Path,
        states: StatesOfPaths,
        encoder: StepEncoder,
        num_parameters: int,
    ):
        tensors = load_file(head)
        self.name = head.stem
        self.num_parameters = num_parameters + tensors["weight"].size + 1
        self.sparsity_total = self.sparsity_last_layer = 0.0  # rescoring does not read them
        self._weight = tensors["weight"][0].astype(np.float64)
        self._bias = float(tensors["bias"][0])
        self._states = states
        self._encoder = encoder
        self._read = set[tuple[tuple[int, ...], ...]]()

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """Score the last step of each path."""
        scores, usage = list[float | None](), list[TokenUsage]()
        for question, path in zip(questions, paths, strict=True):
            steps = [step.text for step in path]
            state = self._states.get((question.text, *steps))
            if state is None:
                raise SystemExit(
                    f"the kept states have no step {steps[-1][:60]!r} of question {question.id!r}: "
                    "make the file of steps from this run by outcome_labels, then run step_states"
                )
            scores.append(float(scipy.special.expit(state @ self._weight + self._bias)))
            usage.append(self._usage(self._encoder.chunks(question.text, steps)))
        return Scoring(scores, usage, 0.0)

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Forget a question's tokens if no path is left."""
        if not paths:
            self._read.clear()

    def _usage(self, chunks: Sequence[tuple[int, ...]]) -> TokenUsage:
        computed = 0
        for end in range(1, len(chunks) + 1):
            prefix = tuple(chunks[:end])
            if prefix not in self._read:
                self._read.add(prefix)
                computed += len(prefix[-1])
        return TokenUsage(computed, sum(map(len, chunks)) - computed)


def main() -> None:
    """Write a run folder for each head."""
    parser = argparse.ArgumentParser(description="Rescore a run with heads on kept states.")
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("states", type=pathlib.Path)
    parser.add_argument("--steps", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--format", type=pathlib.Path, required=True)
    parser.add_argument("--heads", type=pathlib.Path, nargs="+", required=True)
    options = parser.parse_args()
    run = cats_jax.load_run(options.run).stored
    states = states_of_paths(options.states, options.steps)
    sources = {
        digests_of(block).get(SOURCE)
        for block in options.states.glob(f"{options.steps.stem}-*.safetensors")
    }
    if sources != {source_digest(options.model, options.format)}:
        raise SystemExit(
            f"{str(options.states)!r} has states of another model or format: run step_states again"
        )
    encoder = make_encoder(options.format, load_tokenizer(options.model))
    grader_name = recorded_grader(run.manifest["config"])
    models = ModelFolders()
    with torch.device("meta"):  # no weights are needed to count them
        backbone = AutoModel.from_config(AutoConfig.from_pretrained(options.model))
    size = backbone.num_parameters()
    for head in options.heads:
        spec = PrmSpec(
            str(options.model), label=head.stem, head=str(head), format=str(options.format)
        )
        scorer = HeadOnStates(head, states, encoder, size)
        folder = options.run.with_name(f"{options.run.name}-{head.stem}")
        rescore(
            run,
            folder,
            Change(prm=spec),
            make_grader(grader_name),
            scorer,
            fingerprint=models.fingerprint(spec),
            grader_name=grader_name,
        )
        print(f"run folder: {folder}", flush=True)


if __name__ == "__main__":
    main()
