"""Seconds of calls that overlap are divided among them."""

import pytest

from cats_jax.models.serving import shared_time
from cats_jax.models.serving.shared_time import SharedTime


@pytest.fixture
def clock(monkeypatch):
    """Sets the time."""
    now = [0.0]
    monkeypatch.setattr(shared_time.time, "perf_counter", lambda: now[0])

    def set_to(seconds):
        now[0] = seconds

    return set_to


def test_overlapping_calls_share_the_time(clock):
    shared = SharedTime()
    clock(10.0)
    with shared.call(3) as outer:  # 10..20, of which 12..16 beside the inner call
        clock(12.0)
        with shared.call(1) as inner:
            clock(16.0)
        clock(20.0)
    assert outer.seconds == pytest.approx(2 + 3 / 4 * 4 + 4)
    assert inner.seconds == pytest.approx(1 / 4 * 4)
    clock(50.0)  # nothing is in progress
    with shared.call(5) as later:
        clock(51.0)
    assert later.seconds == pytest.approx(1.0)


def test_a_call_that_fails_has_its_share(clock):
    shared = SharedTime()
    call = shared.call(1)
    share = call.__enter__()
    clock(2.0)
    error = RuntimeError()
    assert not call.__exit__(RuntimeError, error, None)
    assert share.seconds == pytest.approx(2.0)
    with shared.call(1) as later:
        clock(3.0)
    assert later.seconds == pytest.approx(1.0)
