"""A provider of models on a loopback port that speaks OpenAI's chat protocol and Anthropic's messages, streaming.

It is no mock: it writes bytes to a socket, without an SDK. Like a real provider it rejects an invalid conversation, so a
test that receives a reply has sent a valid one. Each answer chooses its own faults.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.reach.model_wire import anthropic_events, anthropic_problem, openai_events, openai_problem

PATIENCE_SECONDS = 20
POLL_SECONDS = 0.01  # between looks whether to stop: each test waits for one


@dataclass
class Answer:
    """One reply of the model: its thinking, text and calls, and the faults of its transmission.

    calls: (id, name, arguments as text). cut_after: so many events, and the connection breaks. garble_after: so many
    events, and what follows is no JSON. ends_after: so many events, and the stream ends as if that were all. finish: the
    provider's word for how it ended; is_cut: the word for that it stopped at the longest answer it may give. gate: waited
    for before the last event. between_seconds: before each event but the first. refusal: sent with status 400 and above.
    """

    words: Sequence[str] = ()
    thinking: Sequence[str] = ()
    signature: str = "c2lnbmVk"
    calls: Sequence[tuple[str, str, str]] = ()
    usage: tuple[int, int] = (7, 3)
    is_cut: bool = False
    status: int = 200
    retry_after: str | None = None
    cut_after: int | None = None
    garble_after: int | None = None
    ends_after: int | None = None
    finish: str | None = None
    gate: threading.Event | None = None
    between_seconds: float = 0.0


@dataclass
class Provider:
    """A scripted provider: its answers in order; it repeats the last one.

    requests: the bodies of all requests. disconnected: how many answers a client did not read to the end.
    events: how many parts of answers have been sent. rejected: the problems of the conversations that it rejected.
    """

    answers: list[Answer] = field(default_factory=lambda: [Answer(("hello ", "from ", "afar"))])
    requests: list[dict[str, Any]] = field(default_factory=list)
    disconnected: int = 0
    events: int = 0
    rejected: list[str] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, body: dict[str, Any], problem: str | None) -> Answer:
        with self.lock:
            self.requests.append(body)
            if problem is not None:
                self.rejected.append(problem)
                return Answer((problem,), status=400)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serve(provider: Provider) -> Iterator[Provider]:
    """Serve until the block ends; `provider.url` is the address of both protocols."""
    server = _Server(provider)
    thread = threading.Thread(target=server.serve_forever, args=[POLL_SECONDS], daemon=True)
    thread.start()
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def env_of(provider: Provider) -> dict[str, str]:
    """The variables by which the SDKs find it."""
    return {
        "OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "sk-not-a-key",
        "ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "sk-not-a-key",
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an event must not wait for the acknowledgement of the one before

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_openai = self.path.endswith("/chat/completions")
        answer = self.server.provider.next(body, openai_problem(body) if is_openai else anthropic_problem(body))
        if answer.status != 200:
            self._reject(answer)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = (openai_events if is_openai else anthropic_events)(answer, body["model"])
        self._stream(answer, list(events)[: answer.ends_after])

    def _stream(self, answer: Answer, events: list[str]) -> None:
        provider = self.server.provider
        for n, event in enumerate(events):
            if answer.gate is not None and n == len(events) - 1:
                answer.gate.wait(PATIENCE_SECONDS)
            if answer.cut_after is not None and n >= answer.cut_after:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)  # in the middle of the answer
                return
            if n and answer.between_seconds:
                time.sleep(answer.between_seconds)
            is_garbled = answer.garble_after is not None and n >= answer.garble_after and "{" in event
            if not self._send(event.replace("{", "{{", 1) if is_garbled else event):
                with provider.lock:
                    provider.disconnected += 1
                return
            with provider.lock:
                provider.events += 1
        self._send("")

    def _send(self, text: str) -> bool:
        try:
            self.wfile.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())
            self.wfile.flush()
        except OSError:  # the client has disconnected
            self.close_connection = True
            return False
        return True

    def _reject(self, answer: Answer) -> None:
        why = "".join(answer.words) or "slow down"
        text = json.dumps({"type": "error", "error": {"message": why, "type": "rate_limit_error"}}).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if answer.retry_after is not None:
            self.send_header("retry-after", answer.retry_after)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, provider: Provider):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # otherwise the client was killed
