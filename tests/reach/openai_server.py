"""A server that speaks the streaming protocol of OpenAI's chat completions, on a loopback port. Not a mock: a socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Provider:
    """What it answers next, and what it was asked. `status` other than 200 is an error; `cut_after` words cuts the stream."""

    words: Sequence[str] = ("hello ", "from ", "afar")
    arguments: str | None = None
    status: int = 200
    cut_after: int | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""


@contextmanager
def serve(provider: Provider) -> Iterator[Provider]:
    """Serve until the block ends; `provider.url` is the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            provider.requests.append(json.loads(body))
            if provider.status != 200:
                self._answer_error()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for n, chunk in enumerate(_chunks(provider)):
                if provider.cut_after is not None and n >= provider.cut_after:
                    self.close_connection = True  # in the middle of the answer
                    return
                self._send(f"data: {json.dumps(chunk)}\n\n")
            self._send("data: [DONE]\n\n")
            self._send("")

        def _send(self, text: str) -> None:
            self.wfile.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())
            self.wfile.flush()

        def _answer_error(self) -> None:
            text = json.dumps({"error": {"message": "slow down", "type": "rate_limit_error"}}).encode()
            self.send_response(provider.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    provider.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _chunks(provider: Provider) -> Iterator[dict[str, Any]]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "test"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    if provider.arguments is not None:
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "final_result", "arguments": ""}}
        yield chunk({"role": "assistant", "tool_calls": [call]})
        for piece in (provider.arguments[:5], provider.arguments[5:]):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        yield chunk({}, "tool_calls")
    else:
        yield chunk({"role": "assistant", "content": ""})
        for word in provider.words:
            yield chunk({"content": word})
        yield chunk({}, "stop")
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    yield {**base, "choices": [], "usage": usage}
