"""Report the result of a call that was executed outside the worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.client.arguments import check_error, check_id, check_text
from heliograph.client.replies import report_rejection
from heliograph.errors import InvalidInput
from heliograph.runtime import Runtime
from heliograph.signals.values import check_size, to_json

_ACKNOWLEDGED = ("applied", "early", "duplicate", "late", "turn_done")


async def report_result(
    runtime: Runtime, turn_id: str, call_id: str, *, token: str | None = None, result: Any = None,
    error: str | Mapping[str, Any] | None = None, actor: str | None = None,
) -> str:  # fmt: skip
    """Validate a result or an error, and report it to the kernel; see `Client.report`."""
    check_id(turn_id, "a turn id", "/turn_id")
    check_id(call_id, "a call id", "/call_id")
    if error is not None and result is not None:
        raise InvalidInput(
            "a report has a result or an error, not both; leave one of them out", code="invalid_result", path="/error"
        )
    if isinstance(result, bytes | bytearray | memoryview):
        raise InvalidInput("a result must be JSON, not bytes; send them as text, for example in base64", code="not_json", path="/result",
                           hint="upload them, and report their location")  # fmt: skip
    item = {
        "turn_id": turn_id, "call_id": call_id, "token": check_text(token, "a token", "/token"),
        "status": "success" if error is None else "failed",
        "result": to_json(result, "/result"), "error": None if error is None else check_error(error),
        "actor": check_text(actor, "an actor", "/actor"),
    }  # fmt: skip
    check_size(item["result"], "the result", "/result")
    reported = await runtime.ledger.report(item)
    if reported.outcome not in _ACKNOWLEDGED:
        raise report_rejection(reported, runtime.settings.project)
    return reported.outcome
