"""A server of OpenAI's completions and vLLM's `/classify` that fails in the ways a test names.

With another `answer`, as in `sglang_server`, it has other routes.
"""

import contextlib
import http.server
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

Answer = Callable[[str, dict[str, Any]], dict[str, Any]]
"""(path of the route, body) -> what a sound server says."""

FAULTS = ("drop", "hang", "truncated", "missing", "classes", 429, 500, 503)
"""The connection is lost; no reply comes; half a reply; a reply without its last item; two numbers
for each score; and statuses."""


class RefusedError(ValueError):
    """What an `Answer` raises for a call that a sound server refuses with status 400."""


class FaultyServer(http.server.ThreadingHTTPServer):
    """Sound, but for what stands at the beginning of `faults`.

    Attributes:
        bodies: of all calls so far.
        models: names of the models that it serves.
        card: more values of their entries in /v1/models.
        cards: more values of the entries of single models, by name.
        gets: the replies to other calls without a body, by path.
        key: the API key that every call must have, if any.
    """

    daemon_threads = True

    def __init__(self, answer: Answer, faults: Iterable[Any], port: int, context: int):
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer
        self.context = context
        self.lock = threading.Lock()
        self.bodies: list[dict[str, Any]] = []
        self.faults = itertools.chain(faults, itertools.repeat(None))
        self.models = ["m"]
        self.card: dict[str, Any] = {}
        self.cards: dict[str, dict[str, Any]] = {}
        self.gets: dict[str, Any] = {}
        self.key: str | None = None
        self.dead = threading.Event()
        self._connections: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.append(request)
        super().process_request(request, client_address)

    def die(self) -> None:
        """As if it was killed: connections that were kept are gone, too."""
        self.dead.set()
        self.shutdown()
        self.server_close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def faulty(self) -> FaultyServer:
        assert isinstance(self.server, FaultyServer)
        return self.server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self._refuses_the_key():
            return
        if self.path != "/v1/models":
            found = self.faulty.gets.get(self.path)
            self._reply(404 if found is None else 200, json.dumps(found))
            return
        card = {"max_model_len": self.faulty.context, **self.faulty.card}
        cards = self.faulty.cards
        data = [{"id": name, **card, **cards.get(name, {})} for name in self.faulty.models]
        self._reply(200, json.dumps({"data": data}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._refuses_the_key():
            return
        with self.faulty.lock:
            self.faulty.bodies.append(body)
            fault = next(self.faulty.faults)
        try:
            whole = json.dumps(self.faulty.answer(self.path, body))
        except RefusedError as error:
            self._reply(400, json.dumps({"error": {"message": str(error)}}))
            return
        assert fault is None or fault in FAULTS or fault in (400, 401, 403, 404, 501)
        if fault is None:
            self._reply(200, whole)
        elif isinstance(fault, int):
            self._reply(fault, '{"error": "no"}')
        elif fault == "drop":
            self.close_connection = True
        elif fault == "hang":
            self.faulty.dead.wait(30)
            self.close_connection = True
        elif fault == "truncated":
            self._reply(200, whole[: len(whole) // 2])
        elif fault == "classes":
            self._reply(200, whole.replace('"probs": [', '"probs": [0.5, '))
        else:
            reply = json.loads(whole)
            lists = [reply] if isinstance(reply, list) else reply.values()
            next(value for value in lists if isinstance(value, list)).pop()
            self._reply(200, json.dumps(reply))

    def _refuses_the_key(self) -> bool:
        """Whether the call has no right key; the reply then quotes what it has."""
        given = self.headers.get("Authorization", "")
        if self.faulty.key is None or given == f"Bearer {self.faulty.key}":
            return False
        self._reply(401, json.dumps({"error": f"wrong key: {given}"}))
        return True

    def _reply(self, status: int, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody waits any more
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())


@contextlib.contextmanager
def serving(answer: Answer, faults: Iterable[Any] = (), *, port: int = 0, context: int = 128):
    """A server that meets its first calls with `faults`, None being none, and then is sound."""
    server = FaultyServer(answer, faults, port, context)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.die()
