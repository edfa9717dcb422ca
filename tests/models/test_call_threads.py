"""Calls in threads: their order, their errors, and an end that waits for none."""

import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

from cats_jax.errors import RunStoppedError
from cats_jax.models.serving.call_threads import CallThreads, abandon_calls


def test_values_come_in_order_and_no_more_calls_are_made_at_a_time_than_allowed():
    running, most = [], []

    def call(number):
        running.append(number)
        most.append(len(running))
        time.sleep(0.01 * (3 - number % 3))
        running.remove(number)
        return -number

    threads = CallThreads(3)
    assert threads.map(call, range(9)) == [-number for number in range(9)]
    assert max(most) == 3
    assert threads.map(call, ()) == []
    threads.close()


def test_after_an_error_calls_that_wait_are_not_made_and_nothing_is_kept():
    made = []

    class Item:
        def call(self, number):
            made.append(number)
            time.sleep(0.05 * number)
            raise ValueError(f"call {number}")

    threads, item = CallThreads(1), Item()
    with pytest.raises(ValueError, match="call 0"):
        threads.map(item.call, range(100))
    known = weakref.ref(item)
    gc.disable()
    try:
        del item
        until = time.monotonic() + 10
        while known() is not None and time.monotonic() < until:
            time.sleep(0.01)
        assert known() is None
    finally:
        gc.enable()
    threads.close()
    assert len(made) < 100


def test_threads_are_closed_if_one_of_them_drops_the_last_reference():
    begun, released, closed = threading.Event(), threading.Event(), threading.Event()
    errors = []

    class Owner:
        def call(self, number):
            if number == 0:
                begun.wait(10)
                raise ValueError("refused")
            begun.set()
            released.wait(10)

    def close():
        try:
            threads.close()
        except RuntimeError as error:
            errors.append(error)
        closed.set()

    threads, owner = CallThreads(2), Owner()
    weakref.finalize(owner, close)
    with pytest.raises(ValueError, match="refused"):
        threads.map(owner.call, range(2))
    del owner
    gc.collect(1)  # the young objects: all of a session's take seconds
    released.set()
    assert closed.wait(10)
    assert errors == []


def test_abandoned_calls_are_not_waited_for_and_those_that_wait_are_not_made():
    begun, released, made = threading.Event(), threading.Event(), []

    def call(number):
        made.append(number)
        begun.set()
        released.wait(60)

    threads = CallThreads(1)
    outcome = []

    def caller():
        with pytest.raises(RunStoppedError, match="are abandoned"):
            threads.map(call, range(5))
        outcome.append("ended")

    waiting = threading.Thread(target=caller)
    waiting.start()
    assert begun.wait(10)
    abandon_calls()
    waiting.join(10)
    assert outcome == ["ended"]
    threads.close()
    released.set()
    (worker,) = threads._threads
    worker.join(10)
    assert made == [0]
    with pytest.raises(RunStoppedError, match="are abandoned"):
        threads.map(call, [5])


def test_quick_calls_stop_too_when_they_are_abandoned():
    made = []

    def call(number):
        made.append(number)
        time.sleep(0.02)
        if number == 3:
            abandon_calls()
        return number

    threads = CallThreads(1)
    with pytest.raises(RunStoppedError, match="are abandoned"):
        threads.map(call, range(50))
    assert made == [0, 1, 2, 3]


def test_a_program_that_ends_by_an_error_keeps_the_replies_of_calls_in_progress(tmp_path):
    """And it ends: the file of replies is not closed before the threads that write to it."""
    program = f"""
import pathlib, threading, time
from cats_jax.models.serving.call_threads import CallThreads
from cats_jax.models.serving.chat_endpoint import ChatReply, ReplyFile
import weakref
class Owner: pass
owner, threads = Owner(), CallThreads(3)
closing = weakref.finalize(owner, threads.close)
owner.replies = ReplyFile(pathlib.Path({str(tmp_path / "replies.jsonl")!r}))
def call(number):
    if number == 0:
        raise ValueError("refused")
    time.sleep(1)
    owner.replies.add(str(number), ChatReply((("text", "stop"),), 1, 0, 1), "payee")
threads.map(call, range(3))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "refused" in ended.stderr
    assert len((tmp_path / "replies.jsonl").read_text().splitlines()) == 2
