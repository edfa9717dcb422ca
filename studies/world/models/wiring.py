"""How a verification base starts: its weights connect what it must compare.

To verify is to compare a token with what the policy would have written in its place. The policy has
both: ranking siblings by its own log-probabilities gives a pair figure of .98. But the prediction
stands one position before the token, and the last layer, which makes the prediction, has almost no
trace of the token itself (a linear probe reads the current digit perfectly off the first layer's
input, and hardly better than chance off the last layer's). From the policy's weights, the pair
figure was .56 after 1000 steps (at a matrix rate of .015). From the start made here it was .86
after 500 steps (at .006).

So some channels of the residual stream are freed from the policy's layers. They carry the digit
unchanged to the top. There a head of the first fresh layer reads the digits' predicted logits one
position back. The layer's MLP multiplies the two, and the product, the logit of the digit that
stands there, enters the read-out. Training may change all of it.
"""

from __future__ import annotations

import dataclasses
import itertools

import torch
from transformers import Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from cats_jax.world import tokenizer

from . import policies, training

_NUM_SOLUTIONS = 32  # on which channels are compared
_DIGITS = "0123456789"
_DIGIT_IDS = [tokenizer.TOKEN_IDS[digit] for digit in _DIGITS]

# Sizes beside the policy's own residual, whose root mean square grows from 10 to 45.
_MARK_SIZE = 64.0
_LOGIT_SIZE = 10.0
_UNIT_SIZE = 3.0
_VERDICT_SIZE = 5.0
_READOUT_SIZE = 1.5


@dataclasses.dataclass(frozen=True)
class Channels:
    """Channels of the residual stream by use.

    Attributes:
      marks: one for each digit, and one for every other token: which token stands here.
      logits: one for each digit: how far it was predicted here.
      verdict: how far the digit that stands here was predicted.
    """

    marks: list[int]
    logits: list[int]
    verdict: int


@torch.no_grad()
def connect(model: Qwen2ForCausalLM, num_layers: int, seed: int) -> None:
    """Wires a model for verification whose first `num_layers` layers are a trained policy's."""
    batch = list(itertools.islice(policies.solutions(seed), _NUM_SOLUTIONS))
    ids, targets = policies.solution_tensors(batch)
    layers = training.layers_of(model)[:num_layers]
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    losses = []
    for channel in range(model.config.hidden_size):
        _free(model, layers, [channel])
        losses.append(training.next_token_loss(model(input_ids=ids).logits, targets).item())
        model.load_state_dict(kept)
    # The channels that the policy can do best without.
    free = sorted(range(len(losses)), key=losses.__getitem__)[: 2 * len(_DIGITS) + 2]
    channels = Channels(free[:11], free[11:21], free[21])
    _free(model, layers, free)
    _mark_tokens(model, layers, channels, ids)
    _look_back(model, training.layers_of(model)[num_layers], channels)


def _mark_tokens(
    model: Qwen2ForCausalLM, layers: list[Qwen2DecoderLayer], channels: Channels, ids: torch.Tensor
) -> None:
    """Writes into the embedding which digit a token is, without disturbing the layers."""
    embedding = model.model.embed_tokens.weight
    norms = embedding.norm(dim=1)
    marks = torch.zeros(len(embedding), len(_DIGITS) + 1)
    marks[:, -1] = 1.0
    marks[_DIGIT_IDS] = torch.eye(len(_DIGITS) + 1)[: len(_DIGITS)]
    # In proportion to the embedding, so that the first norm shrinks every token by one factor.
    marks *= _MARK_SIZE * (norms / norms[_DIGIT_IDS].mean())[:, None]
    _keep_scale(model, layers, ids, marks.norm(dim=1)[ids].pow(2).mean().item())
    embedding[:, channels.marks] = marks


def _free(model: Qwen2ForCausalLM, layers: list[Qwen2DecoderLayer], channels: list[int]) -> None:
    """Cuts channels of the residual stream off from everything that writes or reads them."""
    model.model.embed_tokens.weight[:, channels] = 0.0
    model.lm_head.weight[:, channels] = 0.0
    for layer in layers:
        attention, mlp = layer.self_attn, layer.mlp
        for writer in (attention.o_proj, mlp.down_proj):
            writer.weight[channels] = 0.0
        for reader in (attention.q_proj, attention.k_proj, attention.v_proj):
            reader.weight[:, channels] = 0.0
        for reader in (mlp.gate_proj, mlp.up_proj):
            reader.weight[:, channels] = 0.0


def _keep_scale(
    model: Qwen2ForCausalLM, layers: list[Qwen2DecoderLayer], ids: torch.Tensor, added: float
) -> None:
    """Enlarges each norm's weight by as much as a larger residual will shrink its output.

    `added` is what the residual's squared length will grow by, on average.
    """
    norms = [
        norm for layer in layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)
    ]
    squares: list[float] = []
    hooks = [
        norm.register_forward_pre_hook(
            lambda _, inputs: squares.append(inputs[0].pow(2).sum(-1).mean().item())
        )
        for norm in norms
    ]
    model(input_ids=ids)
    for norm, hook, square in zip(norms, hooks, squares, strict=True):
        hook.remove()
        norm.weight.mul_((1 + added / square) ** 0.5)


def _look_back(model: Qwen2ForCausalLM, layer: Qwen2DecoderLayer, channels: Channels) -> None:
    """Lets a fresh layer compare each digit with what was predicted in its place."""
    size = training.size_of(model)
    attention, mlp = layer.self_attn, layer.mlp
    head_dim = training.HEAD_DIM
    half = head_dim // 2
    num_queries = size.num_heads // size.num_kv_heads
    # The first key-value head attends one position back: keys and queries are constants that
    # rotate with the position, and the queries lag by one. Four fast frequencies, at this
    # amplitude, leave next to nothing of the attention on any other position.
    amplitude = torch.zeros(half)
    amplitude[:4] = 8.0
    frequencies = training.ROPE_THETA ** (-torch.arange(half) / half)
    attention.k_proj.weight[:head_dim] = 0.0
    attention.k_proj.bias[:head_dim] = torch.cat([amplitude, torch.zeros(half)])
    query = torch.cat([amplitude * frequencies.cos(), -amplitude * frequencies.sin()])
    attention.q_proj.weight[: num_queries * head_dim] = 0.0
    attention.q_proj.bias[: num_queries * head_dim] = query.repeat(num_queries)
    # Its values are the digits' logits there, up to scale.
    digits = torch.arange(len(_DIGITS))
    readout = model.lm_head.weight[_DIGIT_IDS] * model.model.norm.weight
    attention.v_proj.weight[:head_dim] = 0.0
    attention.v_proj.weight[digits] = readout / readout.norm(dim=1).mean()
    attention.o_proj.weight[channels.logits, digits] = _LOGIT_SIZE
    # One hidden unit of the MLP for each digit: its gate opens where the digit stands, and lets
    # the digit's logit through.
    for projection, source in (
        (mlp.gate_proj, channels.marks[:-1]),
        (mlp.up_proj, channels.logits),
    ):
        projection.weight[digits] = 0.0
        projection.weight[digits, source] = _UNIT_SIZE
    mlp.down_proj.weight[channels.verdict, digits] = _VERDICT_SIZE
    model.lm_head.weight[tokenizer.PLUS_ID, channels.verdict] = _READOUT_SIZE
    model.lm_head.weight[tokenizer.MINUS_ID, channels.verdict] = -_READOUT_SIZE
