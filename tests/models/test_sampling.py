"""The sampler against brute force, and its distribution."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cats_jax.models.huggingface import sampling

MASK = (1 << 64) - 1


def column(value, rows, dtype=torch.float64):
    return torch.full((rows,), value, dtype=dtype)


def seed_bits(seeds):
    return torch.from_numpy(np.array(seeds, dtype=np.uint64).view(np.int64))


def choose(log_probs, uniform, temperature=1.0, top_p=1.0, top_k=0, truncated=None):
    rows = len(log_probs)
    return sampling.choose_tokens(
        log_probs,
        torch.arange(rows),
        uniform,
        column(temperature, rows),
        column(top_p, rows),
        column(top_k, rows, torch.long),
        truncated=(top_p < 1 or top_k > 0) if truncated is None else truncated,
    )


def reference_splitmix(state):
    """Python integers, as in the paper's C code."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def reference_weights(probs, temperature, top_p, top_k):
    """Temperature, top-k, top-p one token at a time; zero for what is cut."""
    probs = np.asarray(probs) ** (1 / temperature)
    probs = probs / probs.sum()
    order = sorted(range(len(probs)), key=lambda i: (-probs[i], i))
    if top_k:
        order = order[:top_k]
    kept, mass, total = [], 0.0, sum(probs[i] for i in order)
    for token in order:
        if kept and top_p < 1 and mass >= top_p * total:
            break
        kept.append(token)
        mass += probs[token]
    return np.array([p if i in kept else 0.0 for i, p in enumerate(probs)])


@given(seed=st.integers(0, MASK), index=st.integers(0, 100_000))
def test_uniforms_are_splitmix_of_seed_and_index(seed, index):
    inner = (reference_splitmix(seed) + index * 0x9E3779B97F4A7C15) & MASK
    expected = (reference_splitmix(inner) >> 11) / 2**53
    got = sampling.uniforms(seed_bits([seed]), index)
    assert got.tolist() == [expected]


def test_splitmix_gives_the_published_sequence():
    # The first outputs of splitmix64 from state 1234567, as listed with the reference code.
    state, outputs = 1234567, []
    for _ in range(3):
        outputs.append(reference_splitmix(state))
        state += 0x9E3779B97F4A7C15
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_neighbouring_seeds_and_indices_are_uncorrelated():
    seeds = seed_bits(range(2000))
    table = torch.stack([sampling.uniforms(seeds, index) for index in range(20)]).numpy()
    assert abs(table.mean() - 0.5) < 0.005
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.02
    counts = np.histogram(table, bins=64, range=(0, 1))[0]
    expected = table.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # 63 degrees of freedom: p < 1e-5


probabilities = st.lists(st.floats(0.001, 1.0), min_size=2, max_size=12)


@given(
    probs=probabilities,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.7]),
    top_p=st.sampled_from([1e-9, 0.2, 0.5, 0.9, 0.999, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 100]),
)
def test_filters_equal_brute_force(probs, temperature, top_p, top_k):
    probs = np.array(probs) / np.sum(probs)
    log_probs = torch.tensor(probs).log()[None]
    got = sampling.filtered_weights(
        log_probs,
        column(temperature, 1),
        column(top_p, 1),
        column(top_k, 1, torch.long),
        truncated=True,
    )[0].numpy()
    expected = reference_weights(probs, temperature, top_p, top_k)
    borderline = abs(np.cumsum(np.sort(expected)[::-1]) - top_p * expected.sum()).min() < 1e-9
    if not borderline:
        np.testing.assert_allclose(got, expected, atol=1e-12)
    assert (got > 0).any()


def test_a_large_vocabulary_is_filtered_as_a_small_one():
    rng = np.random.default_rng(0)
    # Flat rows keep more tokens than are ranked at first; rounded logits have many equal ones,
    # which are ranked by id.
    logits = np.concatenate(
        [scale * rng.normal(size=(8, 3000)).round(1) for scale in (0.01, 1.0, 5.0)]
    )
    log_probs = torch.tensor(logits).log_softmax(-1)
    rows = len(logits)
    top_p = torch.tensor([0.1, 0.5, 0.9, 0.999, 1.0, 1.0, 0.9, 0.9] * 3, dtype=torch.float64)
    top_k = torch.tensor([0, 0, 0, 0, 0, 1024, 5, 2000] * 3)
    got = sampling.filtered_weights(
        log_probs, column(0.8, rows), top_p, top_k, truncated=True
    ).numpy()
    for row in range(rows):
        probs = np.exp(log_probs[row].numpy())
        expected = reference_weights(probs, 0.8, float(top_p[row]), int(top_k[row]))
        np.testing.assert_array_equal(got[row] > 0, expected > 0)


@given(probs=probabilities, uniform=st.floats(0, 1, exclude_max=True))
def test_inverse_cdf_equals_a_linear_scan(probs, uniform):
    probs = np.array(probs) / np.sum(probs)
    token = choose(torch.tensor(probs).log()[None], torch.tensor([uniform]).double())
    cumulative = np.cumsum(probs)
    expected = next((i for i, c in enumerate(cumulative) if uniform < c), len(probs) - 1)
    if min(abs(cumulative - uniform)) > 1e-12:
        assert token.tolist() == [expected]


def test_the_ends_of_the_unit_interval_hit_tokens_that_can_occur():
    log_probs = torch.tensor([[0.0, 0.5, 0.5, 0.0]], dtype=torch.float64).log()
    almost_one = 1 - 2.0**-53
    assert choose(log_probs, torch.tensor([0.0]).double()).tolist() == [1]
    assert choose(log_probs, torch.tensor([almost_one], dtype=torch.float64)).tolist() == [2]


def test_temperature_zero_is_the_first_of_the_most_likely():
    log_probs = torch.tensor([[0.1, 0.4, 0.4, 0.1]], dtype=torch.float64).log()
    assert choose(log_probs, torch.tensor([0.99]).double(), temperature=0.0).tolist() == [1]


@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"), [(1.0, 1.0, 0), (0.6, 0.9, 0), (1.4, 1.0, 4), (1, 0.8, 5)]
)
def test_frequencies_follow_the_filtered_distribution(temperature, top_p, top_k):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(10))
    count = 40_000
    uniform = sampling.uniforms(seed_bits(range(count)), 3)
    log_probs = torch.tensor(probs).log().expand(count, -1)
    tokens = choose(log_probs, uniform, temperature, top_p, top_k)
    expected = reference_weights(probs, temperature, top_p, top_k)
    expected = count * expected / expected.sum()
    observed = np.bincount(tokens.numpy(), minlength=10)
    assert (observed[expected == 0] == 0).all()
    seen = expected > 0
    # At most 9 degrees of freedom: p < 1e-4.
    assert ((observed - expected)[seen] ** 2 / expected[seen]).sum() < 34


def test_a_row_depends_on_no_other_row(monkeypatch):
    torch.manual_seed(0)
    rows, vocab = 50, 300
    log_probs = torch.randn(rows, vocab).double().log_softmax(-1)
    uniform = torch.rand(rows).double()
    temperature = torch.rand(rows).double() + 0.3
    top_p = torch.where(torch.arange(rows) % 3 == 0, 0.8, 1.0).double()
    top_k = torch.where(torch.arange(rows) % 4 == 0, 7, 0)
    arguments = (log_probs, torch.arange(rows), uniform, temperature, top_p, top_k)
    together = sampling.choose_tokens(*arguments, truncated=True)
    weights = sampling.filtered_weights(log_probs, temperature, top_p, top_k, truncated=True)
    for row in range(rows):
        one = [log_probs, *(x[row : row + 1] for x in arguments[1:])]
        needed = bool(top_p[row] < 1 or top_k[row] > 0)
        assert torch.equal(sampling.choose_tokens(*one, truncated=needed), together[row : row + 1])
        alone = sampling.filtered_weights(log_probs[[row]], *one[3:], truncated=needed)
        assert torch.equal(alone[0], weights[row])
    monkeypatch.setattr(sampling, "_CPU_BLOCK_ELEMENTS", 7 * vocab)
    assert torch.equal(sampling.choose_tokens(*arguments, truncated=True), together)
    shared = torch.arange(rows) * 3 % 11
    apart = sampling.choose_tokens(
        log_probs[shared], torch.arange(rows), *arguments[2:], truncated=True
    )
    got = sampling.choose_tokens(log_probs, shared, *arguments[2:], truncated=True)
    assert torch.equal(got, apart)


def test_logits_that_are_not_numbers_give_an_id_of_the_vocabulary():
    log_probs = torch.tensor([[0.0, float("nan"), 0.0]]).double().log_softmax(-1)
    assert choose(log_probs, torch.tensor([0.5]).double()).tolist() == [2]
