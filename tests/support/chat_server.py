"""A scripted endpoint of OpenAI's chat completions that counts what it is asked and what it bills.

It knows nothing of the package: it writes digits and a boxed answer by hashes of what it is asked,
and has a token for every two bytes.
"""

import contextlib
import hashlib
import http.server
import itertools
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

PROBE = "Write the days of the week."
PROBES = 2
"""Requests of a policy at its start, where turns are continued and not repeated."""

SECRET = "sk-0123456789abcdef"


class RefusedError(ValueError):
    """What `ChatServer.reply` may raise for a request that it refuses with status 413."""


class ChatServer(http.server.ThreadingHTTPServer):
    """Sound, but for the faults that its first calls meet.

    Args:
        faults: for each call None, a (status, headers, content), or a function of the sound reply
            that returns content; when they are used up, all calls are sound.
        continues: whether it continues an assistant's turn; "whole" also repeats it in the reply.
        honours_n: True, False (one sample), a status with which n is refused, or "one": it gives
            all samples and counts the tokens of one, as llama.cpp does.
        tells: how it tells that it stopped at a text: "text", "reason", or None.
    """

    daemon_threads = True

    def __init__(self, faults=(), *, continues=True, honours_n=True, tells="text", key=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults: Iterator[Any] = itertools.chain(faults, itertools.repeat(None))
        self.continues, self.honours_n, self.tells, self.key = continues, honours_n, tells, key
        self.lock = threading.Lock()
        self.bodies, self.times = [], []
        self.prompt_tokens = self.completion_tokens = self.samples = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def reply(self, body):
        """What a sound endpoint says; it is billed."""
        number = body.get("n", 1) if self.honours_n in (True, "one") else 1
        choices = [self._choice(body, index) for index in range(number)]
        prompt = sum(tokens(each["content"]) for each in body["messages"])
        counts = [choice.pop("tokens") for choice in choices]
        with self.lock:
            self.prompt_tokens += prompt
            self.completion_tokens += sum(counts)
            self.samples += number
        completion = counts[0] if self.honours_n == "one" else sum(counts)
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        return {"choices": choices, "usage": usage}

    def _choice(self, body, index):
        turns = {turn["role"]: turn["content"] for turn in body["messages"]}
        begun = turns.get("assistant", "")
        if not self.continues:
            begun = ""
        seed = body.get("seed", 0) + index
        if turns["user"] == PROBE:
            text = "day Thursday Friday Saturday" if begun else "Monday Tuesday Wednesday"
        else:
            text = write(turns["user"], begun, seed)
        choice = {"index": index, "finish_reason": "stop"}
        stops = [stop for stop in body.get("stop", ()) if stop in text]
        if stops:
            end = text.index(stops[0])
            if self.tells == "text" and body.get("include_stop_str_in_output"):
                end += len(stops[0])
            if self.tells == "reason":
                choice["stop_reason"] = stops[0]
            text = text[:end]
        if tokens(text) > body["max_tokens"]:
            text, choice["finish_reason"] = text[: 2 * body["max_tokens"]], "length"
        said = begun + text if self.continues == "whole" else text
        return choice | {"message": {"content": said}, "tokens": tokens(text)}


def tokens(text):
    return (len(text) + 1) // 2


def write(question, begun, seed):
    """The rest of an answer: steps of two digits, then a boxed number."""
    text = ""
    while True:
        first, second, third = digest(question, begun + text, seed)[:3]
        digits = f"{first % 10}{second % 4}"
        if third % 3 == 0 or len(text) > 60:
            return f"{text}\\boxed{{{digits}}}"
        text += f"{digits}\n\n"


def digest(*parts):
    return hashlib.sha256(json.dumps(parts).encode()).digest()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):
        pass

    def do_POST(self):
        server = self.server
        assert isinstance(server, ChatServer)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.bodies.append(body)
            server.times.append(time.monotonic())
            fault = next(server.faults)
        given = self.headers.get("Authorization")
        if self.path != "/v1/chat/completions":
            self._say(404, {}, b'{"error": "no such route"}')
        elif server.key is not None and given != f"Bearer {server.key}":
            self._say(401, {}, json.dumps({"error": f"wrong key {given}"}).encode())
        elif fault == "close":
            self.close_connection = True
        elif fault == "half":
            content = json.dumps(server.reply(body)).encode()
            self._say(200, {"Content-Length": str(len(content))}, content[: len(content) // 2])
            self.close_connection = True
        elif fault == "never":
            threading.Event().wait(5)
            self.close_connection = True
        elif isinstance(fault, tuple):
            self._say(*fault)
        elif "n" in body and type(server.honours_n) is int:
            self._say(server.honours_n, {}, b'{"error": "n must be 1"}')
        else:
            try:
                sound = server.reply(body)
            except RefusedError:
                self._say(413, {}, b'{"error": "too long"}')
                return
            self._say(200, {}, json.dumps(fault(sound) if fault else sound).encode())

    def _say(self, status, headers, content):
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)


@contextlib.contextmanager
def serving(*faults, **settings):
    """A server that meets its first calls with `faults`."""
    server = ChatServer(faults, **settings)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
