"""The prefix cache against a dictionary of whole paths."""

import random

import pytest
import torch

from cats_jax.models.huggingface import prefix_cache
from cats_jax.models.huggingface.prefix_cache import PrefixCache
from cats_jax.protocols import Question

QUESTIONS = [Question("a", "1"), Question("b", "2")]
PLANES, HEADS, DIM = 4, 2, 3


def make_cache():
    return PrefixCache(PLANES, HEADS, DIM, torch.float32, torch.device("cpu"))


def random_kv(tokens):
    return torch.randn(PLANES, HEADS, tokens, DIM)


def test_gather_left_pads_whole_paths_with_zeros():
    cache = make_cache()
    prompt, first, second = random_kv(3), random_kv(2), random_kv(4)
    (root,) = cache.add_roots(QUESTIONS[:1], [(7, 8, 9)], [prompt])
    (child,) = cache.add_children([root], [(1, 2)], [first])
    (leaf,) = cache.add_children([child], [(3,)], [second])
    assert [len(s) for s in (root, child, leaf)] == [3, 5, 9]
    got = cache.gather([leaf, None, child], 12, 12)
    assert got.shape == (PLANES, 3, HEADS, 12, DIM)
    assert torch.equal(got[:, 0, :, 3:], torch.cat([prompt, first, second], 2))
    assert torch.equal(got[:, 2, :, 7:], torch.cat([prompt, first], 2))
    assert not got[:, 0, :, :3].any()
    assert not got[:, 1].any()


def test_what_is_there_is_not_stored_again():
    cache = make_cache()
    (root,) = cache.add_roots(QUESTIONS[:1], [(7,)], [random_kv(1)])
    (child,) = cache.add_children([root], [(1, 2)], [random_kv(2)])
    held = len(cache)
    assert cache.add_roots(QUESTIONS[:1], [(7,)], [random_kv(1)]) == [root]
    assert cache.add_children([root], [(1, 2)], [random_kv(2)]) == [child]
    assert len(cache) == held == 3


@pytest.mark.parametrize("seed", range(5))
def test_random_growth_and_pruning(monkeypatch, seed):
    """Whatever is added and dropped, what is kept reads back, and no slot is lost."""
    monkeypatch.setattr(prefix_cache, "_INITIAL_SLOTS", 16)
    rng = random.Random(seed)
    torch.manual_seed(seed)
    cache = make_cache()
    held = {}  # (question, path) -> (segment, its keys and values)

    def prune(question, kept_paths):
        cache.keep_only(question, kept_paths)
        for q, path in list(held):
            if q == question and not any(path == k[: len(path)] for k in kept_paths):
                del held[q, path]

    for _ in range(120):
        question = rng.choice(QUESTIONS)
        mine = [path for q, path in held if q == question]
        if not mine:
            kv = random_kv(rng.randint(1, 6))
            (segment,) = cache.add_roots([question], [(0,)], [kv])
            held[question, ()] = segment, kv
        elif rng.random() < 0.2:
            prune(question, rng.sample(mine, rng.randint(0, min(3, len(mine)))))
        else:
            path = rng.choice(mine)
            parent, prefix = held[question, path]
            step = tuple(rng.choices(range(3), k=rng.randint(1, 3)))
            if (question, (*path, step)) in held:
                continue
            own = random_kv(rng.randint(1, 4))
            (segment,) = cache.add_children([parent], [step], [own])
            held[question, (*path, step)] = segment, torch.cat([prefix, own], 2)
        if held:
            segments = [segment for segment, _ in held.values()]
            got = cache.gather(segments, 64, 64)
            for row, (segment, kv) in enumerate(held.values()):
                assert torch.equal(got[:, row, :, 64 - len(segment) :], kv)
        assert len(cache) == sum(segment.own for segment, _ in held.values())
    for question in QUESTIONS:
        cache.keep_only(question, [])
    assert len(cache) == 0


def test_keeping_an_unknown_path_keeps_its_known_part():
    cache = make_cache()
    (root,) = cache.add_roots(QUESTIONS[:1], [(7,)], [random_kv(1)])
    cache.add_children([root, root], [(1,), (2,)], [random_kv(1), random_kv(1)])
    cache.keep_only(QUESTIONS[0], [[(1,), (9, 9)]])
    assert list(root.children) == [(1,)]
    cache.keep_only(QUESTIONS[1], [])  # never seen: nothing to do
    assert len(cache) == 2
