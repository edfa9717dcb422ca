"""The prefix cache against a dictionary of whole paths, and the rule of its bound."""

import random

import psutil
import pytest
import torch

from cats_jax.errors import RunStoppedError
from cats_jax.models.huggingface.prefix_cache import PrefixCache, cache_bytes, missing
from cats_jax.protocols import Question

QUESTIONS = [Question("a", "1"), Question("b", "2")]
PLANES, HEADS, DIM = 4, 2, 3


TOKEN_BYTES = PLANES * HEADS * DIM * 4


def make_cache(tokens=1000):
    """A cache for this many tokens, and the slot for padding."""
    return PrefixCache(
        PLANES, HEADS, DIM, torch.float32, torch.device("cpu"), (tokens + 1) * TOKEN_BYTES
    )


def random_kv(tokens):
    return torch.randn(PLANES, HEADS, tokens, DIM)


def add_root(cache, question, tokens, kv):
    root = cache.root(question, tokens, kv.shape[2])
    cache.store([root], [kv])
    return root


def add_child(cache, parent, tokens):
    child = parent.child(tokens)
    kv = random_kv(child.own)
    cache.store([child], [kv])
    return child, kv


def test_gather_left_pads_whole_paths_with_zeros():
    cache = make_cache()
    prompt = random_kv(3)
    root = add_root(cache, QUESTIONS[0], (7, 8, 9), prompt)
    child, first = add_child(cache, root, (1, 2))
    leaf, second = add_child(cache, child, (3, 4, 5, 6))
    assert [len(s) for s in (root, child, leaf)] == [3, 5, 9]
    got = cache.gather([leaf, None, child], 12, 12)
    assert got.shape == (PLANES, 3, HEADS, 12, DIM)
    assert torch.equal(got[:, 0, :, 3:], torch.cat([prompt, first, second], 2))
    assert torch.equal(got[:, 2, :, 7:], torch.cat([prompt, first], 2))
    assert not got[:, 0, :, :3].any()
    assert not got[:, 1].any()


def test_what_is_there_is_not_stored_again():
    cache = make_cache()
    root = add_root(cache, QUESTIONS[0], (7,), random_kv(1))
    child, kv = add_child(cache, root, (1, 2))
    add_child(cache, root, (1, 2))
    assert root.child((1, 2)) is child
    assert len(cache) == 3
    assert torch.equal(cache.gather([child], 3, 3)[:, 0, :, 1:], kv)


def test_an_allocation_that_fails_loses_no_slot(monkeypatch):
    cache, cat = make_cache(), torch.cat

    def fails(*arguments, **options):
        monkeypatch.setattr(torch, "cat", cat)
        raise torch.OutOfMemoryError

    kv = random_kv(3)
    root = cache.root(QUESTIONS[0], (7, 8, 9), 3)
    monkeypatch.setattr(torch, "cat", fails)
    with pytest.raises(torch.OutOfMemoryError):
        cache.store([root], [kv])
    cache.store([root], [kv])
    assert torch.equal(cache.gather([root], 3, 3)[:, 0], kv)
    cache.keep_only(QUESTIONS[0], [])
    assert len(cache) == 0


@pytest.mark.parametrize("tokens", [40, 10_000])
@pytest.mark.parametrize("seed", range(4))
def test_random_growth_and_pruning(seed, tokens):
    """What is resident reads back, whatever is added and dropped; no slot is lost."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    cache = make_cache(tokens)
    held = {}  # (question, path) -> (segment, its keys and values)
    refused = 0

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
            cache.keep_only(question, [])
            segment = add_root(cache, question, (0,), kv)
            held[question, ()] = segment, kv
        elif rng.random() < 0.2:
            prune(question, rng.sample(mine, rng.randint(0, min(3, len(mine)))))
        else:
            path = rng.choice(mine)
            parent, prefix = held[question, path]
            step = tuple(rng.choices(range(3), k=rng.randint(1, 4)))
            if (question, (*path, step)) in held:
                continue
            segment, own = add_child(cache, parent, step)
            held[question, (*path, step)] = segment, torch.cat([prefix, own], 2)
        refused += sum(segment.slots is None for segment, _ in held.values())
        held = {key: value for key, value in held.items() if value[0].slots is not None}
        if held:
            segments = [segment for segment, _ in held.values()]
            got = cache.gather(segments, 64, 64)
            for row, (segment, kv) in enumerate(held.values()):
                assert torch.equal(got[:, row, :, 64 - len(segment) :], kv)
        assert len(cache) == sum(segment.own for segment, _ in held.values()) <= tokens
        assert cache.num_bytes <= (tokens + 1) * TOKEN_BYTES
    assert (refused > 0) == (tokens == 40)
    for question in QUESTIONS:
        cache.keep_only(question, [])
    assert len(cache) == 0


def test_keeping_an_unknown_path_keeps_its_known_part():
    cache = make_cache()
    root = add_root(cache, QUESTIONS[0], (7,), random_kv(1))
    for step in ((1,), (2,)):
        add_child(cache, root, step)
    cache.keep_only(QUESTIONS[0], [[(1,), (9, 9)]])
    assert list(root.children) == [(1,)]
    cache.keep_only(QUESTIONS[1], [])  # never seen: nothing to do
    assert len(cache) == 2


# --- the bound ---


def computed(cache, ends):
    """Makes some paths resident, as a bridge does; returns the number of tokens it stores."""
    levels = missing(ends)
    for level in levels:
        cache.store(level, [random_kv(segment.own) for segment in level])
    assert all(segment.slots is not None for end in ends for segment in end.path())
    return sum(segment.own for level in levels for segment in level)


def served(cache, ends):
    """(questions, tokens computed) of each wave; questions by index."""
    log = []
    for wave in cache.waves(ends):
        tokens = computed(cache, [ends[i] for i in wave])
        log.append((wave, tokens))
        assert len(cache) <= cache.capacity
    assert sorted(i for wave, _ in log for i in wave) == list(range(len(ends)))
    return log


def questions_of_ten_tokens(cache, count):
    """The ends of `count` questions' paths: a prompt of 4 tokens and a step of 6."""
    roots = [cache.root(Question(str(i), "?"), (0,) * 4, 4) for i in range(count)]
    return [root.child((1,) * 6) for root in roots]


def test_what_fits_is_one_wave():
    cache = make_cache(40)
    ends = questions_of_ten_tokens(cache, 4)
    assert served(cache, ends) == [([0, 1, 2, 3], 40)]
    assert served(cache, ends) == [([0, 1, 2, 3], 0)]
    assert served(cache, []) == []


def test_a_call_begins_with_the_questions_that_are_resident():
    """Of 4 questions in the room of 3, one is computed again in each call, not all four."""
    cache = make_cache(30)
    ends = questions_of_ten_tokens(cache, 4)
    assert served(cache, ends) == [([0, 1, 2], 30), ([3], 10)]
    for _ in range(3):
        first, second = served(cache, ends)
        assert (first[1], second[1]) == (0, 10)


def test_only_as_many_questions_are_put_aside_as_the_wave_needs():
    cache = make_cache(40)
    old = questions_of_ten_tokens(cache, 4)
    served(cache, old)
    (new,) = (cache.root(Question("new", "?"), (0,) * 15, 15),)
    served(cache, [new])
    assert sum(end.slots is not None for end in old) == 2
    assert all(end.parent is not None for end in old)
    assert all(
        (end.slots is None) == (segment.slots is None) for end in old for segment in end.path()
    )


def test_a_question_too_large_is_served_in_waves_of_its_paths():
    """The common prompt stays; what earlier waves held goes."""
    cache = make_cache(20)
    root = cache.root(QUESTIONS[0], (0,) * 5, 5)
    ends = [root.child((i,) * 5) for i in range(7)]
    assert served(cache, ends) == [([0, 1, 2], 20), ([3, 4, 5], 15), ([6], 5)]
    waves = served(cache, ends)
    assert waves[0][1] < 20  # what is resident comes first


def test_the_last_room_is_what_the_wave_s_own_question_holds_besides_its_paths():
    cache = make_cache(20)
    root = cache.root(QUESTIONS[0], (0,) * 5, 5)
    served(cache, [root.child((i,) * 5) for i in range(3)])
    assert served(cache, [root.child((9,) * 15)]) == [([0], 15)]


def test_other_questions_are_put_aside_before_the_wave_s_own_segments():
    cache = make_cache(30)
    root = cache.root(QUESTIONS[0], (0,) * 5, 5)
    ends = [root.child((i,) * 5) for i in range(3)]
    served(cache, ends)
    (other,) = questions_of_ten_tokens(cache, 1)
    served(cache, [other])
    served(cache, [root.child((9,) * 5)])
    assert other.slots is None
    assert all(end.slots is not None for end in ends)


def test_a_path_longer_than_the_pool_stops_the_run():
    cache = make_cache(20)
    root = cache.root(QUESTIONS[1], (0,) * 5, 5)
    message = "question 'b' has a path of 21 tokens, .* holds 20: .*larger kv_cache_gib"
    with pytest.raises(RunStoppedError, match=message):
        served(cache, [root, root.child((1,) * 16)])
    served(cache, [root.child((1,) * 15)])


def test_the_pool_takes_what_it_needs_and_keeps_to_it_when_memory_runs_out():
    """A device without room for another chunk is a smaller bound."""
    cache = make_cache(159)
    assert cache.num_bytes == 10 * TOKEN_BYTES
    made, real = [], cache._new_chunk

    def new_chunk(size):
        made.append(size)
        if len(made) > 2:
            raise torch.OutOfMemoryError("no")
        return real(size)

    cache._new_chunk = new_chunk
    ends = questions_of_ten_tokens(cache, 5)
    assert served(cache, ends[:1]) == [([0], 10)]
    assert cache.num_bytes == 20 * TOKEN_BYTES
    assert [len(wave) for wave, _ in served(cache, ends)] == [2, 2, 1]
    assert (cache.capacity, cache.num_bytes) == (29, 30 * TOKEN_BYTES)


def test_no_memory_for_a_first_chunk(monkeypatch):
    def run_out(*args, **kwargs):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(torch, "empty", run_out)
    with pytest.raises(RunStoppedError, match=r"cpu has no memory left .*kv_cache_gib"):
        make_cache()


def test_the_default_bound_is_a_share_of_what_is_free():
    cpu = torch.device("cpu")
    assert cache_bytes(0.5, cpu) == 2**29
    free = psutil.virtual_memory().available
    assert cache_bytes(None, cpu) == pytest.approx(free / 4, rel=0.3)
