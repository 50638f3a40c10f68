"""The HTTP side of a gateway, as ASGI messages: read a bounded body, send JSON, detect a client that has disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

import msgspec

from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, InvalidInput, Rejected, StoreUnavailable
from heliograph.types import JsonObject

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

BODY_BYTES_MAX = 512 * 1024  # a payload has at most 64 KiB, which escapes can make six times as long
BODY_SECONDS_MAX = 30.0
_WITHOUT_CONTENT = ("bad_signature", "method_not_allowed", "request_timeout", "unsupported_media_type")
_FIELDS_MAX = 5  # of a path: up to the field of the payload
RETRY_AFTER = {429: "1", 503: "1"}


class ClientGone(Exception):
    """The client has closed the connection."""


def check_content_type(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check that a request is declared as JSON. Raises Rejected (`unsupported_media_type`)."""
    given = [value.decode("latin-1") for name, value in headers if name.lower() == b"content-type"]
    if [value.partition(";")[0].strip().lower() for value in given] != ["application/json"]:
        raise Rejected(f"the content-type of a request must be application/json, not {safe_repr(', '.join(given)) or 'missing'}",
                       code="unsupported_media_type")  # fmt: skip


async def read_body(receive: Receive, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the body of a request. Raises InvalidInput (`payload_too_large`), Rejected (`request_timeout`), ClientGone."""
    declared = dict(headers).get(b"content-length", b"0")
    if declared.isdigit() and (len(declared) > len(str(BODY_BYTES_MAX)) or int(declared) > BODY_BYTES_MAX):
        raise _too_large()
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > BODY_BYTES_MAX:
                    raise _too_large()
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Rejected(
            f"the body of the request did not arrive within {BODY_SECONDS_MAX:g} s", code="request_timeout"
        ) from None


async def wait_for_disconnect(receive: Receive) -> None:
    """Return once the client has closed the connection; the body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(send: Send, status: int, body: JsonObject, headers: Sequence[tuple[str, str]] = ()) -> None:
    encoded = msgspec.json.encode(body)
    more = [("retry-after", RETRY_AFTER[status])] if status in RETRY_AFTER else []
    fields = [("content-type", "application/json"), ("content-length", str(len(encoded))), *headers, *more]
    await send(
        {"type": "http.response.start", "status": status, "headers": [(k.encode(), v.encode()) for k, v in fields]}
    )
    await send({"type": "http.response.body", "body": encoded})


def log_text(error: HeliographError) -> str:
    """Describe an error for the log. Messages about a body quote it, so they are only in the response."""
    if error.code in _WITHOUT_CONTENT or isinstance(error, StoreUnavailable):
        return f"{error.code}: {error}"
    return error.code if error.path is None else f"{error.code} at {'/'.join(error.path.split('/')[:_FIELDS_MAX])}"


def error_body(error: HeliographError) -> JsonObject:
    """Return the body for an error: code, message, and the JSON pointer and the hint, if it has them."""
    return {"error": {**error.envelope()["error"], "recoverable": error.recoverable}}


def _too_large() -> InvalidInput:
    return InvalidInput(
        f"the body of the request has more than {BODY_BYTES_MAX} bytes; send a reference to the content instead",
        code="payload_too_large",
    )
