"""The process reward models: one verification base, and short fine-tunes of it.

A language model that is fine-tuned on step labels learns how hard a question is, not to verify. The
*base* therefore starts from the strong policy, which knows the arithmetic, gets fresh layers on
top, and learns with a label on every token (`labels.token_labels`) of made-up slips and of the weak
policy's own paths. The *family* are fine-tunes of the base that differ in their labels and in how
many weights they keep, one that skips the base on purpose, and one that continues another member's
training with the paths of both policies.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch.nn import functional
from transformers import Qwen2ForCausalLM

from cats_jax.world import tokenizer

from . import labels, measure, slips, training, wiring


@dataclasses.dataclass(frozen=True)
class BaseRecipe:
    """How the verification base is made from the strong policy.

    Attributes:
      extra_layers: fresh layers on top of the policy's.
      schedule: its training; half of each batch are made-up slips, half sampled paths.
      language_weight: weight of the language-model loss on right steps, which preserves arithmetic.
      measure_every: optimiser steps between two points of the curve of pair against training.
    """

    extra_layers: int
    schedule: training.Schedule
    language_weight: float
    measure_every: int


@dataclasses.dataclass(frozen=True)
class PrmRecipe:
    """How one PRM is made.

    Attributes:
      start: the verification base, the bare weak policy, or an earlier PRM.
      labels: ``dense`` exact labels on every token, ``exact`` ones on steps only, or
        ``monte-carlo`` ones on steps.
      num_paths: how many labelled paths of each policy are used.
      schedule: its training.
      shrink: soft threshold per step, as a multiple of the matrix rate (L1 by proximal steps);
        makes exact zeros.
      prune: share of each matrix, smallest first, that is set to zero before the training and
        held there.
      language_weight: of the language-model loss on right steps.
      policies: policies whose paths it learns from, in equal shares.
      slip_levels: levels of made-up slips, which have dense labels and a share like a policy's.
    """

    start: Literal["base", "weak", "exact", "on-policy"]
    labels: Literal["dense", "exact", "monte-carlo"]
    num_paths: int
    schedule: training.Schedule
    shrink: float = 0.0
    prune: float = 0.0
    language_weight: float = 0.5
    policies: tuple[str, ...] = ("weak",)
    slip_levels: tuple[int, ...] = ()


def train_base(
    policy: Qwen2ForCausalLM,
    paths: Sequence[labels.LabelledPath],
    recipe: BaseRecipe,
    seed: int,
    curve_nodes: Sequence[measure.Siblings],
    log: Callable[[str], None] = print,
) -> tuple[Qwen2ForCausalLM, dict]:
    """Trains the verification base.

    Args:
      policy: policy from which the base starts.
      paths: sampled paths with exact labels.
      recipe: settings of the training.
      seed: random seed of the fresh layers and the order of the data.
      curve_nodes: held-out siblings for the curve of pair.
      log: called with lines of progress.

    Returns:
      The model; its last losses and the curve, a list of {"step", "seconds", "pair"}.
    """
    model = deepen(policy, recipe.extra_layers, seed)
    sampled = [labels.token_labels(path.question, path.steps) for path in paths]
    slipped = slips.slip_chains(seed)
    data = _alternate(slipped, training.shuffled_forever(sampled, seed))
    progress = training.Progress("base", recipe.schedule.num_steps, log)
    curve: list[dict] = []

    def follow(step: int) -> None:
        if (step + 1) % recipe.measure_every and step + 1 != recipe.schedule.num_steps:
            return
        model.eval()
        pair = measure.pair_figures(model, curve_nodes)["pair"]
        model.train()
        curve.append({"step": step + 1, "seconds": round(progress.seconds), "pair": pair})
        log(f"base: pair {pair} at step {step + 1}")

    _train(model, data, recipe.schedule, recipe.language_weight, seed, progress, follow)
    return model.eval(), {"losses": progress.losses, "curve": curve}


def train_prm(
    start: Qwen2ForCausalLM,
    paths: Sequence[Sequence[labels.LabelledPath]],
    recipe: PrmRecipe,
    seed: int,
    name: str,
    log: Callable[[str], None] = print,
) -> tuple[Qwen2ForCausalLM, dict]:
    """Trains one member of the family.

    Args:
      start: the model `PrmRecipe.start` names; it may be changed in place.
      paths: labelled paths of each policy of the recipe; Monte-Carlo labels where it wants them.
      recipe: settings of the training.
      seed: random seed of the order of the data.
      name, log: name of the PRM in lines of progress, with which `log` is called.

    Returns:
      The model and its last losses.
    """
    model = untie(start)
    streams = [
        training.shuffled_forever(
            [_labelled(path, recipe.labels) for path in drawn[: recipe.num_paths]], seed
        )
        for drawn in paths
    ]
    if recipe.slip_levels:
        streams.append(slips.slip_chains(seed, recipe.slip_levels))
    data = _alternate(*streams)
    masks = prune(model, recipe.prune) if recipe.prune else {}
    progress = training.Progress(name, recipe.schedule.num_steps, log)

    @torch.no_grad()
    def sparsify(step: int) -> None:
        threshold = recipe.shrink * recipe.schedule.matrix_rate * recipe.schedule.factor(step)
        for parameter_name, parameter in model.named_parameters():
            if recipe.shrink and parameter.ndim == 2:
                parameter.copy_(functional.softshrink(parameter, threshold))
            if parameter_name in masks:
                parameter.mul_(masks[parameter_name])

    _train(model, data, recipe.schedule, recipe.language_weight, seed, progress, sparsify)
    return model.eval(), {"losses": progress.losses}


def deepen(policy: Qwen2ForCausalLM, extra_layers: int, seed: int) -> Qwen2ForCausalLM:
    """The policy with fresh layers on top, set up to compare tokens with its predictions."""
    size = training.size_of(policy)
    num_layers = size.num_layers
    size = dataclasses.replace(size, num_layers=num_layers + extra_layers)
    model = training.new_model(size, seed, tied=False)
    model.load_state_dict(policy.state_dict(), strict=False)
    with torch.no_grad():
        model.lm_head.weight.copy_(training.read_out_of(policy))
        for layer in training.layers_of(model)[num_layers:]:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    if extra_layers:
        wiring.connect(model, num_layers, seed)
    return model


def untie(model: Qwen2ForCausalLM) -> Qwen2ForCausalLM:
    """The model with a read-out of its own, so that its last layer is a tensor of its own."""
    return deepen(model, 0, seed=0) if model.config.tie_word_embeddings else model


@torch.no_grad()
def prune(model: Qwen2ForCausalLM, share: float) -> dict[str, torch.Tensor]:
    """Zeroes the smallest `share` of each matrix but the embedding; returns the masks, by name."""
    masks = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "embed" not in name:
            threshold = parameter.abs().flatten().kthvalue(int(parameter.numel() * share)).values
            masks[name] = (parameter.abs() > threshold).to(parameter.dtype)
            parameter.mul_(masks[name])
    return masks


def _train(
    model: Qwen2ForCausalLM,
    data: Iterator[labels.TokenLabels],
    schedule: training.Schedule,
    language_weight: float,
    seed: int,
    progress: training.Progress,
    after_update: Callable[[int], None],
) -> None:
    """The loop both kinds of training share; `after_update` gets the number of the step done."""
    optimizer = training.Optimizer(model, schedule)
    batches = training.length_sorted_batches(data, schedule.batch_size, seed, pool=16)
    model.train()
    for step in range(schedule.num_steps):
        batch = next(batches)
        ids = training.pad([row.ids for row in batch], tokenizer.PAD_ID, torch.long)
        logits = model(input_ids=ids, use_cache=False).logits
        verification = verification_loss(logits, batch)
        targets = training.pad([row.targets for row in batch], training.IGNORED, torch.long)
        language = training.next_token_loss(logits, targets)
        (verification + language_weight * language).backward()
        optimizer.update(step)
        progress.update(step, verification=verification.item(), language=language.item())
        after_update(step)


def verification_loss(logits: torch.Tensor, batch: Sequence[labels.TokenLabels]) -> torch.Tensor:
    """Weighted mean binary cross-entropy of the labelled tokens; logits f32[batch, time, vocab]."""
    wanted = training.pad([row.labels for row in batch], labels.NO_LABEL, torch.float32)
    weights = training.pad([row.weights for row in batch], 0.0, torch.float32)
    weights = weights * (wanted != labels.NO_LABEL)
    losses = functional.binary_cross_entropy_with_logits(
        measure.plus_minus_logit(logits), wanted.clamp_min(0.0), reduction="none"
    )
    return (losses * weights).sum() / weights.sum()


def _labelled(path: labels.LabelledPath, kind: str) -> labels.TokenLabels:
    if kind == "dense":
        return labels.token_labels(path.question, path.steps)
    chosen = path.exact if kind == "exact" else path.monte_carlo
    return labels.step_labels(path.question, path.steps, chosen)


def _alternate(*streams: Iterator[labels.TokenLabels]) -> Iterator[labels.TokenLabels]:
    for stream in itertools.cycle(streams):
        yield next(stream)
