"""Part `float32`: the bridges' numbers on the GPU against those on the CPU, in float32."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

import numpy as np
import torch

from cats_jax.models.huggingface.model import CausalModel
from cats_jax.protocols import StepRequest

from .bridge import MadeModels, Once, bounded
from .made_models import SHAPES, TINY, made_path, made_questions
from .report import Report, Values

SEQUENCES, TOKENS = 8, 64
QUESTIONS, SAMPLES = 8, 8


def run(report: Report) -> None:
    """Rows: log-probabilities of forced sequences, the PRM's scores, and samples."""
    shape = TINY if report.rehearse else SHAPES["0.5b"]
    gpu = "cpu" if report.rehearse else "cuda"
    threads = 1 if report.rehearse else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        made = MadeModels(pathlib.Path(folder), shape, gpu)
        settings: dict[str, Any] = {"dtype": "float32", "num_threads": threads, **bounded(1.0)}
        _log_prob_rows(report, made, gpu, threads)
        for name, load, numbers, compare in (
            ("PRM's scores", made.prm, _scores, _difference),
            ("samples", made.policy, samples_of, _agreement),
        ):
            models = Once(
                lambda load=load: [load(**{**settings, "device": each}) for each in (gpu, "cpu")]
            )
            report.row(
                name,
                lambda models=models, numbers=numbers, compare=compare: compare(
                    *map(numbers, models())
                ),
                prepare=models,
            )


def _log_prob_rows(report: Report, made: MadeModels, gpu: str, threads: int) -> None:
    models = Once(
        lambda: [causal_model(made.policy_folder(), device, threads) for device in (gpu, "cpu")]
    )
    for name, one_by_one in (("in one pass", False), ("token by token", True)):
        report.row(
            f"log-probabilities, {name}",
            lambda one_by_one=one_by_one: _difference(
                *(forced_log_probs(model, one_by_one=one_by_one) for model in models())
            ),
            prepare=models,
        )


def causal_model(folder: pathlib.Path, device: str, threads: int) -> CausalModel:
    """A loaded model without the bridge around it."""
    model = CausalModel(folder, device=device, dtype="float32", num_threads=threads)
    model.load_weights()
    return model


@torch.inference_mode()
def forced_log_probs(model: CausalModel, *, one_by_one: bool) -> np.ndarray:
    """Log-probabilities f64[B, T - 1] of fixed tokens given those before, in nats.

    Args:
        model: a loaded model.
        one_by_one: feed one token at a time, as in decoding, not all in one pass.
    """
    rng = np.random.default_rng(0)
    texts = [made_path(4, rng) for _ in range(SEQUENCES)]
    ids = [model.tokenizer("".join(s.text for s in p))["input_ids"][:TOKENS] for p in texts]
    tokens = torch.tensor(ids, device=model.device)
    rows, width = tokens.shape
    layers, hidden = model.config.num_hidden_layers, model.config.hidden_size
    dim = hidden // model.config.num_attention_heads
    kv = torch.zeros(
        (2 * layers, rows, model.config.num_key_value_heads, width, dim),
        dtype=model.dtype,
        device=model.device,
    )
    positions = torch.arange(width, device=model.device).expand(rows, width)
    mask = torch.full((width, width), -torch.inf, device=model.device).triu(1)
    mask = mask.expand(rows, 1, width, width)
    logits = []
    size = 1 if one_by_one else width
    for start in range(0, width, size):
        columns = slice(start, start + size)
        part = model.part(kv, start, mask[:, :, columns])
        new = tokens[:, columns].flatten(), positions[:, columns].flatten()
        logits.append(model.forward([part], *new, keep=size).unflatten(0, (rows, size)))
    log_probs = torch.cat(logits, 1).double().log_softmax(-1)
    return log_probs[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0].cpu().numpy()


def _scores(prm: Any) -> np.ndarray:
    rng = np.random.default_rng(0)
    questions = made_questions(QUESTIONS)
    return np.asarray(prm.score(questions, [made_path(3, rng) for _ in questions]).all_scores())


def samples_of(policy: Any) -> list[tuple[tuple[int, ...], float]]:
    """Token ids and log-probability of every sample."""
    requests = [
        StepRequest(question, (), tuple(range(SAMPLES)), 1.0, 1.0, 0, False)
        for question in made_questions(QUESTIONS)
    ]
    generation = policy.generate(requests)
    return [(each.step.token_ids, each.log_prob) for row in generation.samples for each in row]


def _difference(on_gpu: np.ndarray, on_cpu: np.ndarray) -> Values:
    difference = np.abs(on_gpu - on_cpu)
    return {
        "numbers": difference.size,
        "largest difference": float(difference.max()),
        "mean difference": float(difference.mean()),
        "spread on the CPU": float(on_cpu.std()),
    }


def _agreement(on_gpu: list[Any], on_cpu: list[Any]) -> Values:
    """Samples with equal tokens, and how far the log-probabilities of these are apart."""
    equal = [
        (ours[1], theirs[1])
        for ours, theirs in zip(on_gpu, on_cpu, strict=True)
        if ours[0] == theirs[0]
    ]
    found = {"equal samples": f"{len(equal)} of {len(on_cpu)}"}
    return {**(_difference(*np.asarray(equal).T) if equal else {}), **found}
