"""Clients of servers that fail on request."""

import contextlib

import pytest

from cats_jax.models.serving.http_engine import ServerClient


@pytest.fixture(scope="module", autouse=True)
def _quick_servers(tmp_path_factory):
    """No certificates, which httpx reads for each client, and replies that are sent at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        patch.setattr("socketserver.StreamRequestHandler.disable_nagle_algorithm", True)
        yield


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
