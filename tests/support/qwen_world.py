"""A policy and a PRM under Qwen 2.5's published vocabulary that know some arithmetic.

Their layers are those of the embedded world's models. Embeddings and read-outs are made anew, for
the ids that Qwen's tokenizer gives the world's texts, and less than a minute of training fits them
to one another. The training sees the used ids only; one more class stands for all the others, so
that the whole vocabulary costs nothing until the model is written.
"""

import dataclasses
import itertools
import json
import math
import pathlib
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from cats_jax import world
from cats_jax.models.prm.encoder import StepEncoder
from cats_jax.models.prm.format import PRM_FORMATS
from cats_jax.models.prompts.policy_encoder import PromptEncoder
from cats_jax.models.prompts.policy_format import QWEN_2_5
from cats_jax.world import task
from cats_jax.world import tokenizer as world_tokenizer
from studies.world.models import slips, training

BOS, END = "<|endoftext|>", "<|im_end|>"
CONTEXT = 4096
VOCABULARY = 151_936
"""Rows of Qwen 2.5's embeddings, some more than its tokenizer has ids."""

_SEEN = 3000
"""Number of texts that say which ids are used."""

_BATCH = 12

_ROLES = {
    "user": world_tokenizer.BOS_ID,
    "assistant": world_tokenizer.SEPARATOR_ID,
    " what": world_tokenizer.TOKEN_IDS["?"],
    PRM_FORMATS["skywork"].tag: world_tokenizer.SEPARATOR_ID,
    BOS: world_tokenizer.BOS_ID,
    END: world_tokenizer.EOS_ID,
}
"""Tokens of the prompts, and what stands in their place in the world."""


def question_text(text: str) -> str:
    """A question of the world as it is asked here: "(3+4)*5=?" becomes "(3 +4) *5 = what".

    Qwen's tokenizer makes one token of neighbouring marks, as in ")*", and of marks before a
    newline. Here each mark is a token of its own, as in the world, so that layers of the world can
    read the text before any training.
    """
    return re.sub(r"(?<=.)([^0-9)]|(?<=\))\))", r" \1", text).replace("?", "what")


@dataclasses.dataclass(frozen=True)
class _Row:
    """A sequence of ids and a target for each.

    A policy's target is 1 where the id itself is to be learned; a PRM's is the label of a step. All
    others are `training.IGNORED`.
    """

    ids: list[int]
    targets: list[int]

    def __len__(self) -> int:
        return len(self.ids)


def make_policy(tokenizer: pathlib.Path, out: pathlib.Path, *, num_steps: int) -> None:
    """A policy in a model folder, made from the world's `weak`.

    Args:
        tokenizer: folder of the published tokenizer.
        out: folder to write.
        num_steps: optimiser steps.
    """
    loaded = PreTrainedTokenizerFast.from_pretrained(tokenizer, local_files_only=True)
    encoder = PromptEncoder(QWEN_2_5, loaded)
    end = loaded.convert_tokens_to_ids(END)

    def rows(seed: int) -> Iterator[_Row]:
        for problem in _problems(seed):
            prompt = encoder.prompt_ids(question_text(problem.text))
            answer = loaded.encode(
                task.STEP_SEPARATOR.join(problem.steps), add_special_tokens=False
            )
            ids = [*prompt, *answer, end]
            learned = [1] * (len(ids) - len(prompt))
            yield _Row(ids, [training.IGNORED] * len(prompt) + learned)

    start = Qwen2ForCausalLM.from_pretrained(world.policy_path("weak"), local_files_only=True)
    used = _used(rows(1))
    model = _compact(start, loaded, used)
    others = math.log(VOCABULARY - len(used))

    def loss(batch: Sequence[_Row]) -> torch.Tensor:
        ids, learned = _padded(batch, "ids", 0), _padded(batch, "targets", training.IGNORED)
        logits = model(input_ids=ids, use_cache=False).logits
        logits = torch.cat([logits[..., :-1], logits[..., -1:] + others], -1)
        targets = ids.masked_fill(learned == training.IGNORED, training.IGNORED)
        return training.next_token_loss(logits, targets)

    _train(model, loss, _compacted(rows(2), used), num_steps, matrix_rate=0.01, other_rate=0.004)
    tensors = dict(model.state_dict())
    read_out = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = _spread(read_out, used, read_out[-1])
    _save_config(tokenizer, out, model.config, "Qwen2ForCausalLM", tensors, used)
    save_file(tensors, out / "model.safetensors")


def make_prm(tokenizer: pathlib.Path, out: pathlib.Path, *, num_steps: int) -> None:
    """A PRM in the layout of Skywork's release, pickled weights included, from the world's `exact`.

    Args:
        tokenizer: folder of the published tokenizer.
        out: folder to write.
        num_steps: optimiser steps.
    """
    loaded = PreTrainedTokenizerFast.from_pretrained(tokenizer, local_files_only=True)
    loaded.bos_token = BOS
    encoder = StepEncoder(PRM_FORMATS["skywork"], loaded)

    def rows(seed: int) -> Iterator[_Row]:
        rng = random.Random(seed)
        for problem in _problems(seed):
            steps = slips.slip_chain(rng, problem, 0.0 if rng.random() < 0.2 else 0.4)
            if not steps:
                continue
            ids, labels = [], []
            chunks = encoder.chunks(question_text(problem.text), steps)
            right = iter(task.check_steps(problem.text, steps))
            for k, chunk in enumerate(chunks, start=len(steps) - len(chunks)):
                ids += chunk
                labels += [training.IGNORED] * len(chunk)
                if k >= 0:
                    labels[-1] = int(next(right))
            yield _Row(ids, labels)

    start = Qwen2ForCausalLM.from_pretrained(world.prm_path("exact"), local_files_only=True)
    used = _used(rows(1))
    model = _compact(start, loaded, used)
    plus, minus = (start.lm_head.weight[world_tokenizer.TOKEN_IDS[sign]] for sign in "+-")
    head = nn.Linear(len(plus), 1)
    head.load_state_dict({"weight": (plus - minus).detach()[None], "bias": torch.zeros(1)})
    both = nn.ModuleDict({"model": model.model, "head": head})

    def loss(batch: Sequence[_Row]) -> torch.Tensor:
        hidden = model.model(input_ids=_padded(batch, "ids", 0)).last_hidden_state
        labels = _padded(batch, "targets", training.IGNORED)
        scores = head(hidden)[..., 0][labels != training.IGNORED]
        wanted = labels[labels != training.IGNORED].float()
        return functional.binary_cross_entropy_with_logits(scores, wanted)

    _train(both, loss, _compacted(rows(2), used), num_steps, matrix_rate=0.003, other_rate=0.005)
    tensors = {name: value for name, value in model.state_dict().items() if "lm_head" not in name}
    tensors |= {f"v_head.summary.{name}": value for name, value in head.state_dict().items()}
    _save_config(tokenizer, out, model.config, "Qwen2ForPrmModel", tensors, used)
    file = out / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "bos_token": BOS}))
    torch.save(tensors, out / "pytorch_model.bin")


def _problems(seed: int) -> Iterator[task.Problem]:
    streams = [task.problem_stream("prm", level, seed) for level in task.LEVELS]
    for stream in itertools.cycle(streams):
        yield next(stream)


def _used(rows: Iterator[_Row]) -> dict[int, int]:
    """The ids that the texts use, each with its place in the compact vocabulary."""
    found = {token for row in itertools.islice(rows, _SEEN) for token in row.ids}
    return {token: place for place, token in enumerate(sorted(found))}


def _compacted(rows: Iterator[_Row], used: dict[int, int]) -> Iterator[_Row]:
    """The rows with ids of the compact vocabulary, without those that have others."""
    for row in rows:
        if all(token in used for token in row.ids):
            yield _Row([used[token] for token in row.ids], row.targets)


def _compact(
    start: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, used: dict[int, int]
) -> Qwen2ForCausalLM:
    """The layers of a model of the world, over the used ids and a class for the others."""
    config = Qwen2Config(
        **{
            **start.config.to_dict(),
            "vocab_size": len(used) + 1,
            "tie_word_embeddings": False,
            "max_position_embeddings": CONTEXT,
        }
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config).float()
    state = {name: value for name, value in start.state_dict().items() if ".layers." in name}
    model.load_state_dict({**state, "model.norm.weight": start.model.norm.weight}, strict=False)
    embeddings, read_out = start.model.embed_tokens.weight, start.lm_head.weight
    with torch.no_grad():
        for token, place in used.items():
            known = _in_the_world(tokenizer.decode(token))
            model.model.embed_tokens.weight[place] = embeddings[known].mean(0) if known else 0.0
            if known:
                model.lm_head.weight[place] = read_out[known].mean(0)
    return model


def _in_the_world(text: str) -> list[int]:
    """Ids of what stands in the world for a token; empty where nothing does."""
    if text in _ROLES:
        return [_ROLES[text]]
    try:
        return world_tokenizer.encode(text.lstrip(" "))
    except ValueError:
        return []


def _padded(batch: Sequence[_Row], name: str, value: int) -> torch.Tensor:
    return training.pad([getattr(row, name) for row in batch], value, torch.long)


def _train(
    model: nn.Module,
    loss: Callable[[Sequence[_Row]], torch.Tensor],
    rows: Iterator[_Row],
    num_steps: int,
    **rates: float,
) -> None:
    optimizer = training.Optimizer(model, training.Schedule(num_steps, warmup=20, **rates))
    batches = training.length_sorted_batches(rows, _BATCH, seed=0, pool=8)
    progress = training.Progress("training", num_steps, print, every=50)
    model.train()
    for step in range(num_steps):
        value = loss(next(batches))
        value.backward()
        optimizer.update(step)
        progress.update(step, loss=value.item())
    model.eval()


def _spread(rows: torch.Tensor, used: dict[int, int], rest: torch.Tensor) -> torch.Tensor:
    """Rows of the compact vocabulary in that of the tokenizer; all other rows are `rest`."""
    spread = rest.repeat(VOCABULARY, 1)
    spread[list(used)] = rows[: len(used)]
    return spread


def _save_config(
    tokenizer: pathlib.Path,
    out: pathlib.Path,
    config: Qwen2Config,
    architecture: str,
    tensors: dict[str, torch.Tensor],
    used: dict[int, int],
) -> None:
    """Writes tokenizer and config.json; the embeddings in `tensors` get the whole vocabulary."""
    name = "model.embed_tokens.weight"
    tensors[name] = _spread(tensors[name], used, torch.zeros_like(tensors[name][0]))
    shutil.copytree(tokenizer, out)
    content = {**config.to_dict(), "vocab_size": VOCABULARY, "architectures": [architecture]}
    (out / "config.json").write_text(json.dumps({**content, "dtype": "float32"}, indent=1))
