"""Choosing the next token: pure functions of logits, parameters and (seed, token index).

A row's result depends on nothing in the other rows, bit for bit. Random numbers are a hash of the
seed and the token's index, so that no generator state ties rows together. All arithmetic is in
float64, so that rounding hardly biases the inverse CDF of a large vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ...protocols import TOP_TOKENS, TokenCertainty

# Elements of one [rows, vocabulary] float64 block: large vocabularies go block by block. 128 MiB
# keep a GPU busy. On a CPU, 8 MiB stay below the 32 MiB from which on glibc maps every array anew,
# which takes more time than the arithmetic.
_BLOCK_ELEMENTS = 1 << 24
_CPU_BLOCK_ELEMENTS = 1 << 20

# How many of the most likely tokens are ranked at first. Temperatures of about 1 keep fewer.
_FEW = 1024

# splitmix64 (Steele, Lea, Flood 2014): increment and the two multipliers, unsigned.
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def uniforms(seeds: Tensor, index: int) -> Tensor:
    """Uniform numbers in [0, 1) for token `index` of each row.

    Two rounds of splitmix64, the second keyed by the first's output: neighbouring seeds and
    neighbouring indices give unrelated numbers.

    Args:
        seeds: i64[S], the bits of unsigned seeds.
        index: 0-based index of the token within its step.

    Returns:
        f64[S], multiples of 2**-53.
    """
    bits = _splitmix(_splitmix(seeds) + _signed(index * _GAMMA))
    return _shift_right(bits, 11).double() * 2.0**-53


def choose_tokens(
    log_probs: Tensor,
    row_of: Tensor,
    uniform: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    *,
    truncated: bool,
) -> Tensor:
    """One token per sample by inverse CDF over the filtered distribution, in vocabulary order.

    The order of the filters is the usual one: temperature, then top-k, then top-p on what top-k
    left (renormalised). Among equal probabilities the lower id counts as the more likely.

    Args:
        log_probs: f64[R, V] at temperature 1.
        row_of: i64[S], the row of each sample in `log_probs`.
        uniform: f64[S] in [0, 1).
        temperature: f64[S]; 0 takes the most likely token.
        top_p: f64[S] in (0, 1]; 1 keeps all.
        top_k: i64[S]; 0 keeps all.
        truncated: whether any sample has top_p < 1 or top_k > 0; the sort is skipped otherwise. A
            sample that keeps all gets the same token either way.

    Returns:
        i64[S] token ids.
    """
    elements = _CPU_BLOCK_ELEMENTS if log_probs.device.type == "cpu" else _BLOCK_ELEMENTS
    block = max(1, elements // log_probs.shape[1])
    pieces = [slice(start, start + block) for start in range(0, len(row_of), block)]
    return torch.cat(
        [
            _choose(log_probs[row_of[p]], uniform[p], temperature[p], top_p[p], top_k[p], truncated)
            for p in pieces
        ]
    )


def _choose(
    log_probs: Tensor,
    uniform: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    truncated: bool,
) -> Tensor:
    greedy = temperature == 0
    cumulative = filtered_weights(
        log_probs, torch.where(greedy, 1.0, temperature), top_p, top_k, truncated=truncated
    ).cumsum_(-1)
    total = cumulative[:, -1:]
    # The first token whose cumulated weight exceeds the target. Tokens of weight 0 add no width,
    # so none of them can be it; the minimum guards against rounding at the far end. Logits that
    # are NaN give some id: the caller sees by the log-probability that something is wrong.
    token = torch.searchsorted(cumulative, uniform[:, None] * total, right=True)
    last = torch.searchsorted(cumulative, total.contiguous()).clamp_(max=cumulative.shape[1] - 1)
    return torch.where(greedy, log_probs.argmax(-1), torch.minimum(token, last)[:, 0])


def filtered_weights(
    log_probs: Tensor, temperature: Tensor, top_p: Tensor, top_k: Tensor, *, truncated: bool
) -> Tensor:
    """Probabilities after temperature, with what top-k and top-p cut set to 0 (not renormalised).

    Args:
        log_probs: f64[S, V].
        temperature: f64[S], > 0.
        top_p, top_k, truncated: as in `choose_tokens`.

    Returns:
        f64[S, V]; at least one entry of every row is positive, unless logits are NaN.
    """
    probs = (log_probs / temperature[:, None]).softmax(-1)
    if not truncated:
        return probs
    return torch.where(_kept(probs, top_p, top_k), probs, 0.0)


def _kept(probs: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Which tokens top-k and top-p leave, bool[S, V]. Sorting large vocabularies is avoided."""
    everything = (top_p >= 1) & (top_k == 0)
    few = min(probs.shape[1], _FEW)
    ranked = probs.topk(few, dim=-1).values
    number = _num_kept(ranked, probs, top_p, top_k)
    # All of the few are kept, so that more may be; or top-p is a share of more than the few.
    open_ = ((number == few) & (top_k != few) | (top_k > few)) & ~everything
    if few < probs.shape[1] and bool(open_.any()):
        whole = probs[open_].sort(dim=-1, descending=True).values
        number[open_] = _num_kept(whole, probs[open_], top_p[open_], top_k[open_])
        ranked = F.pad(ranked, (0, probs.shape[1] - few))
        ranked[open_] = whole
    least = ranked.gather(1, number[:, None] - 1)
    above, equal = probs > least, probs == least
    left = number[:, None] - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= left)) | everything[:, None]


def _num_kept(ranked: Tensor, probs: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """How many tokens of `ranked`, the largest of `probs` in descending order, are kept, i64[S]."""
    whole = (ranked if ranked.shape[1] == probs.shape[1] else probs).sum(-1)
    rank = torch.arange(ranked.shape[1], device=probs.device)
    in_top_k = (rank < top_k[:, None]) | (top_k == 0)[:, None]
    ranked = torch.where(in_top_k, ranked, 0.0)
    mass = torch.where(top_k == 0, whole, ranked.sum(-1))
    mass_before = ranked.cumsum(-1) - ranked
    # The smallest set of mass >= top_p: the tokens that start below it. top_p = 1 means "off", also
    # where rounding lets the mass reach 1 before the tail.
    in_top_p = (mass_before < (top_p * mass)[:, None]) | (top_p >= 1)[:, None]
    # The first always stays: a top_p so small that it underflows must not empty the row.
    return (in_top_k & (in_top_p | (rank == 0))).sum(-1)


def _splitmix(state: Tensor) -> Tensor:
    """One splitmix64 output for each state; i64 in, i64 out, wrapping."""
    z = state + _signed(_GAMMA)
    z = (z ^ _shift_right(z, 30)) * _signed(_MIX_1)
    z = (z ^ _shift_right(z, 27)) * _signed(_MIX_2)
    return z ^ _shift_right(z, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's `>>` on int64 copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    """The signed 64-bit integer with the low 64 bits of x: torch has no arithmetic on uint64."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)


def token_certainties(log_probs: Tensor, kind: TokenCertainty) -> Tensor:
    """The certainty of the tokens that are sampled from each row, see `protocols.TokenCertainty`.

    Args:
        log_probs: f64[R, V] at temperature 1.

    Returns:
        f64[R], >= 0 but for rounding.
    """
    vocabulary = log_probs.shape[1]
    if kind == "top":
        return -log_probs.topk(min(TOP_TOKENS, vocabulary), dim=1).values.mean(1)
    return -log_probs.mean(1) - math.log(vocabulary)
