"""The failures of an MCP server as HarnessError: no connection, rejected credentials, a rate limit, anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heliograph.codes import AUTH_ERROR, MCP_UNAVAILABLE, NETWORK_ERROR, RATE_LIMITED
from heliograph.error_text import is_network_error
from heliograph.errors import HarnessError
from heliograph.tools.mcp_link import ConnectionLost, first_of, reason_of

_CODES = {401: AUTH_ERROR, 403: AUTH_ERROR, 429: RATE_LIMITED}
_MESSAGE = "the server answered with the HTTP status"
_SECONDS_MAX = 86_400


def rejection_body(status: int, headers: Mapping[str, str]) -> bytes | None:
    """Return the body that stands for a rejection by HTTP status, so that the SDK attributes it to its request; None for others."""
    if status not in _CODES:
        return None
    after = headers.get("retry-after", "")
    seconds = min(int(after), _SECONDS_MAX) if after.isascii() and after.isdigit() and len(after) < 10 else 0
    error = {"code": status, "message": f"{_MESSAGE} {status}", "data": {"retry_after_seconds": seconds}}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()


def rejection_of(label: str, error: BaseException) -> HarnessError | None:
    """Return the failure of a request that the server rejected by its HTTP status; None for any other error."""
    from mcp import MCPError

    error = first_of(error)
    if not isinstance(error, MCPError) or error.code not in _CODES or error.message != f"{_MESSAGE} {error.code}":
        return None
    data = error.data if isinstance(error.data, dict) else {}
    seconds = float(after) if isinstance(after := data.get("retry_after_seconds"), int) else 0.0
    details: dict[str, Any] = {"mcp_server": label, "status": error.code}
    if seconds:
        details["retry_after_ms"] = round(seconds * 1000)
    code = _CODES[error.code]
    return HarnessError(f"MCP server {label} rejected the request: {error.message}", code=code, recoverable=code == RATE_LIMITED,
                        retry_after_seconds=seconds, details=details)  # fmt: skip


def failure_of(label: str, problem: object, *, is_remote: bool) -> HarnessError:
    """Return the failure of a server that cannot be used now. is_remote: it is reached over the network."""
    if isinstance(problem, BaseException) and (rejection := rejection_of(label, problem)) is not None:
        return rejection
    reason = str(problem) if isinstance(problem, str | ConnectionLost) else reason_of(problem)
    code = NETWORK_ERROR if is_remote and _is_connection_error(problem) else MCP_UNAVAILABLE
    return HarnessError(f"MCP server {label} cannot be used: {reason}", code=code, recoverable=True)


def _is_connection_error(problem: object) -> bool:
    import httpx2

    if not isinstance(problem, BaseException):
        return False
    error = first_of(problem)
    return isinstance(error, OSError | ConnectionLost | httpx2.TransportError) or is_network_error(error)
