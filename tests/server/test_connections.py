"""Connections whose clients say nothing: they are closed, and others are served all the while."""

import json
import resource
import socket
import threading
import time
from types import SimpleNamespace

import httpx
import pytest
from search_server import HeldPolicy, letters, running

from cats_jax.errors import BadInputError
from cats_jax.server import connections
from cats_jax.server.connections import most_connections
from cats_jax.server.run import Server

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
BEGUN = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)


def connect(found, sent=b""):
    host, port = found.root.removeprefix("http://").split(":")
    made = socket.create_connection((host, int(port)), timeout=20)
    made.sendall(sent)
    return made


def is_closed(made, seconds=0.0):
    """Whether the server closes a connection within some seconds; what it sends is read."""
    made.settimeout(seconds or 1e-3)
    try:
        while made.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


def test_silent_connections_make_room_for_others(caplog, monkeypatch):
    """Those that sent nothing, half of a request or half of its body; the oldest go first."""
    monkeypatch.setattr(connections, "SILENT_SECONDS", 600)
    policy = HeldPolicy()
    policy.hold()
    with running(letters(policy), connections=20) as found:
        asked = {"model": "letters", "messages": [{"role": "user", "content": "which letters?"}]}
        content = json.dumps(asked).encode()
        searching = connect(found, BEGUN[:-1].replace(b"100", b"%d" % len(content)) + content)
        policy.wait_for_call()
        silent = [connect(found, (b"", REQUEST[:20], BEGUN)[n % 3]) for n in range(60)]
        for _ in range(3):
            assert httpx.get(f"{found.root}/healthz", timeout=20).status_code == 200
        closed = [is_closed(made) for made in silent]
        assert closed[:30] == [True] * 30
        assert not all(closed[50:])
        policy.free()
        assert searching.recv(1 << 16).startswith(b"HTTP/1.1 200")
        for made in (searching, *silent):
            made.close()
    assert caplog.text.count("which is the most") == 1


def test_a_client_has_seconds_for_its_request(monkeypatch):
    """From its connection or its last response; single bytes do not extend them."""
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.5)
    with running(letters()) as found:
        slow = connect(found)
        dripping = threading.Thread(target=drip, args=(slow, REQUEST * 100))
        began = time.monotonic()
        dripping.start()
        others = [
            connect(found),
            connect(found, REQUEST[:-4]),
            connect(found, REQUEST),
            connect(found, BEGUN.replace(b"application/json", b"text/plain")),
        ]
        assert all(is_closed(made, 10) for made in others)
        dripping.join(10)
        assert not dripping.is_alive()
        assert time.monotonic() - began < 10
        # The application has the request: its own deadline for bodies holds.
        begun = connect(found, BEGUN)
        assert not is_closed(begun, 1)
        for made in (*others, begun, slow):
            made.close()


def drip(made, content):
    """Send one byte after the other until the server has closed the connection."""
    try:
        for byte in content:
            made.sendall(bytes([byte]))
            time.sleep(0.1)
    except OSError:
        pass


def test_connections_are_fewer_than_descriptors(monkeypatch):
    def limit(descriptors):
        monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))

    limit(resource.RLIM_INFINITY)
    assert most_connections(96) == 96 + 1024
    limit(200)
    assert 96 < most_connections(96) < 150
    limit(1 << 20)
    assert most_connections(5000) == 6024
    limit(160)
    with pytest.raises(BadInputError, match=r"96 searches.*160 open files.*ulimit -n"):
        most_connections(96)


def test_connections_that_can_not_be_accepted_do_not_fill_the_log(caplog):
    seen = []
    loop = SimpleNamespace(default_exception_handler=seen.append)
    server = Server(None, None, connections=20, grace=0)
    full = OSError(24, "Too many open files")
    message = "socket.accept() out of system resource"
    for _ in range(2000):
        server._note_failure(loop, {"message": message, "exception": full})
    other = {"message": "a task has failed", "exception": OSError(5, "Input/output error")}
    server._note_failure(loop, other)
    assert caplog.text.count("Too many open files") == 1
    assert seen == [other]
