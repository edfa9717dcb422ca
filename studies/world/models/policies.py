"""The two policies: small language models trained on reference solutions."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import torch
from transformers import Qwen2ForCausalLM

from cats_jax.world import task, tokenizer

from . import training


@dataclasses.dataclass(frozen=True)
class PolicyRecipe:
    """How one policy is made."""

    size: training.ModelSize
    schedule: training.Schedule


@dataclasses.dataclass(frozen=True)
class Solution:
    """A question with its reference solution as token ids; `num_prompt` of them are given."""

    ids: list[int]
    num_prompt: int

    def __len__(self) -> int:
        return len(self.ids)


def train_policy(
    recipe: PolicyRecipe, seed: int, log: Callable[[str], None] = print
) -> tuple[Qwen2ForCausalLM, dict[str, float]]:
    """Trains a policy on fresh ``prm`` questions; returns it and its last running mean losses."""
    model = training.new_model(recipe.size, seed)
    optimizer = training.Optimizer(model, recipe.schedule)
    progress = training.Progress("policy", recipe.schedule.num_steps, log)
    batches = training.length_sorted_batches(solutions(seed), recipe.schedule.batch_size, seed)
    model.train()
    for step in range(recipe.schedule.num_steps):
        ids, targets = solution_tensors(next(batches))
        loss = training.next_token_loss(model(input_ids=ids, use_cache=False).logits, targets)
        loss.backward()
        optimizer.update(step)
        progress.update(step, loss=loss.item())
    return model.eval(), progress.losses


def solutions(seed: int) -> Iterator[Solution]:
    """Endless solved questions of the ``prm`` set, levels taking turns."""
    streams = [task.problem_stream("prm", level, seed) for level in task.LEVELS]
    for stream in itertools.cycle(streams):
        yield solution(next(stream))


def solution(problem: task.Problem) -> Solution:
    """A problem as a policy's training sequence: the prompt, the steps, ``</s>``."""
    prompt = tokenizer.prompt_ids(problem.text)
    steps = tokenizer.encode(task.STEP_SEPARATOR.join(problem.steps))
    return Solution([*prompt, *steps, tokenizer.EOS_ID], len(prompt))


def solution_tensors(batch: list[Solution]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and targets, both i64[batch, time]; the prompt and the padding are no targets."""
    targets = [[training.IGNORED] * s.num_prompt + s.ids[s.num_prompt :] for s in batch]
    ids = training.pad([s.ids for s in batch], tokenizer.PAD_ID, torch.long)
    return ids, training.pad(targets, training.IGNORED, torch.long)
