"""Which worker gets which batch: its own first, then nobody's, and others' only in the end."""

import types

import pytest

from cats_jax.errors import RunStoppedError
from cats_jax.evaluation.batch_queue import Batch, BatchQueue
from cats_jax.evaluation.cluster import RayRunner
from cats_jax.protocols import Question


def _batch(cell, *names, pool=None):
    return Batch(cell, pool, tuple(Question(name, "1+1=?") for name in names), lambda result: None)


def _queue(*batches):
    queue = BatchQueue()
    for batch in batches:
        queue.put(batch)
    return queue


def test_nothing_waits():
    assert BatchQueue().take(0, helping=True) is None


def test_a_worker_keeps_to_its_cell_while_others_begin_the_next():
    first, second, third = _batch(0, "a"), _batch(0, "b"), _batch(1, "a")
    queue = _queue(first, second)
    assert queue.take(0, helping=False) is first
    assert queue.take(1, helping=False) is None
    queue.put(third)
    assert queue.take(1, helping=False) is third
    assert queue.take(0, helping=False) is second


def test_own_batches_come_before_earlier_ones_of_nobody():
    first, nobodys, own = _batch(1, "a"), _batch(2, "a"), _batch(1, "b")
    queue = _queue(first)
    assert queue.take(0, helping=False) is first
    queue.put(nobodys)
    queue.put(own)
    assert queue.take(0, helping=False) is own
    assert queue.take(0, helping=False) is nobodys


def test_all_help_in_the_end():
    first, second, third = _batch(0, "a"), _batch(0, "b"), _batch(0, "c")
    queue = _queue(first, second, third)
    assert queue.take(0, helping=True) is first
    assert queue.take(1, helping=True) is second
    # The cell stays that of the worker that began it.
    assert queue.take(1, helping=False) is None
    assert queue.take(0, helping=False) is third


def test_cells_that_share_paths_belong_to_one_worker():
    first, second, third = (
        _batch(0, "a", pool="x"),
        _batch(0, "b", pool="x"),
        _batch(1, "a", pool="y"),
    )
    smaller = _batch(2, "c", pool="x")
    queue = _queue(first, second, smaller)
    assert queue.take(0, helping=False) is first
    assert queue.take(1, helping=False) is None
    queue.put(third)
    assert queue.take(1, helping=False) is third
    assert queue.take(0, helping=False) is second
    assert queue.take(0, helping=False) is smaller


def test_a_helper_keeps_the_paths_that_it_sampled():
    first, second = _batch(0, "a", "b", pool="x"), _batch(0, "c", pool="x")
    queue = _queue(first, second)
    assert queue.take(0, helping=True) is first
    assert queue.take(1, helping=True) is second
    mixed, other = _batch(1, "b", "c", "a", pool="x"), _batch(1, "c", pool="x")
    queue.put(mixed)
    queue.put(other)
    assert queue.take(1, helping=True) is other
    assert queue.take(1, helping=False) is None
    assert queue.take(1, helping=True) is mixed


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "The actor died because of an error raised in its creation task, ray::_Worker()\n"
            "  File 'x.py', line 1\nModuleNotFoundError: No module named 'mine'\n",
            r"worker can't start \(ModuleNotFoundError: No module named 'mine'\): mend this",
        ),
        ("The actor died unexpectedly.\n\tpid: 7", r"is lost \(Died: The actor died unexpectedly"),
    ],
)
def test_why_a_worker_does_not_answer(said, message):
    class Died(Exception):
        pass

    class TaskError(Died):
        pass

    def get(sent):
        raise Died(said)

    runner = RayRunner.__new__(RayRunner)
    errors = types.SimpleNamespace(RayError=Died, RayTaskError=TaskError)
    runner._ray = types.SimpleNamespace(get=get, exceptions=errors)
    with pytest.raises(RunStoppedError, match=message):
        runner._get(None)
