"""Clients of servers that fail on request."""

import contextlib

import pytest

from cats_jax.models.serving.http_engine import ServerClient


@pytest.fixture
def connect():
    """Makes clients, and closes them."""
    with contextlib.ExitStack() as stack:

        def connect(server, **options):
            options = {"context": 100, "patience": 20.0, "concurrency": 8, **options}
            client = ServerClient(server.url, **options)
            stack.callback(client.close)
            return client

        yield connect


@pytest.fixture
def short_waits(monkeypatch):
    """Between the tries of a call."""
    monkeypatch.setattr("cats_jax.models.serving.http_engine._FIRST_WAIT", 0.01)
    monkeypatch.setattr("cats_jax.models.serving.http_engine._LONGEST_WAIT", 0.05)
