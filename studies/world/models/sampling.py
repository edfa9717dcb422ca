"""Sampling whole paths from a policy, by transformers' own batched generation."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers import GenerationConfig, Qwen2ForCausalLM

from cats_jax.world import task, tokenizer

MAX_NEW_TOKENS = 96  # the longest reference solution has about 90
_ROWS = 512  # sequences generated together


@dataclasses.dataclass(frozen=True)
class Sample:
    """The steps of a sampled path.

    It is complete if it ended by ``</s>`` and a PRM can read every step: not blank, ordinary
    tokens.
    """

    steps: tuple[str, ...]
    complete: bool


def sample_paths(
    model: Qwen2ForCausalLM,
    questions: Sequence[str],
    num_samples: int,
    seed: int,
    *,
    temperature: float = 1.0,
) -> list[list[Sample]]:
    """`num_samples` independent paths for each question."""
    prompts = [tokenizer.prompt_ids(question) for question in questions]
    continuations = generate(model, prompts, num_samples, seed, temperature=temperature)
    return [[to_sample(ids) for ids in rows] for rows in continuations]


def generate(
    model: Qwen2ForCausalLM,
    prompts: Sequence[Sequence[int]],
    num_samples: int,
    seed: int,
    *,
    temperature: float = 1.0,
) -> list[list[list[int]]]:
    """`num_samples` continuations of each prompt, as ids up to and including ``</s>``.

    Prompts of equal length run together, so no row is padded on the left.
    """
    config = GenerationConfig(
        do_sample=True,
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=MAX_NEW_TOKENS,
        pad_token_id=tokenizer.PAD_ID,
        bos_token_id=tokenizer.BOS_ID,
        eos_token_id=tokenizer.EOS_ID,
    )
    by_length: dict[int, list[int]] = collections.defaultdict(list)
    for index, prompt in enumerate(prompts):
        by_length[len(prompt)].append(index)
    results: list[list[list[int]]] = [[] for _ in prompts]
    generator = cast(Any, model)  # the stubs do not see that it generates
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(seed)
        for length in sorted(by_length):
            rows = [index for index in by_length[length] for _ in range(num_samples)]
            for start in range(0, len(rows), _ROWS):
                chunk = rows[start : start + _ROWS]
                ids = torch.tensor([prompts[index] for index in chunk])
                output = generator.generate(
                    ids, attention_mask=torch.ones_like(ids), generation_config=config
                )
                for index, row in zip(chunk, output[:, length:].tolist(), strict=True):
                    results[index].append(_up_to_end(row))
    return results


def to_sample(ids: Sequence[int]) -> Sample:
    """The steps of a generated continuation."""
    complete = bool(ids) and ids[-1] == tokenizer.EOS_ID
    body = list(ids[:-1] if complete else ids)
    special = {tokenizer.PAD_ID, tokenizer.BOS_ID, tokenizer.TOKEN_IDS[tokenizer.UNKNOWN]}
    steps = tuple(tokenizer.decode(body).split(task.STEP_SEPARATOR))
    return Sample(steps, complete and all(steps) and special.isdisjoint(body))


def _up_to_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(tokenizer.EOS_ID) + 1] if tokenizer.EOS_ID in ids else ids
