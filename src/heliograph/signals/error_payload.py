"""The signal `error` with its details and stack trace: redacted, and small enough for a signal.

Inside the runtime an error is `{code, message, recoverable, details}`, as in results of calls. Only the signal renames `code`.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from typing import Any

from heliograph.codes import code_in_phase
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.redaction import redacted_text
from heliograph.signals.payload import cleaned, text_bytes
from heliograph.signals.values import to_json
from heliograph.types import JsonObject

DETAILS_BYTES_MAX = 8192
MESSAGE_MAX = 8192  # characters; with four bytes each, half of the limit of a signal
STACK_TRACE_MAX = 4000  # characters; its end, which names the exception
_CODE = re.compile(r"[A-Za-z0-9_]{1,64}")


def error_payload(error: JsonObject, details: JsonObject, stack_trace: str | None = None) -> JsonObject:
    """Return the payload of the signal for an error of the runtime's own form."""
    payload: JsonObject = {"error_code": error["code"], "message": error["message"], "recoverable": error["recoverable"],
                           "details": details}  # fmt: skip
    return payload if stack_trace is None else {**payload, "stack_trace": stack_trace}


def recoverable_error(
    code: Any, message: Any, details: Any, exception: BaseException | None, phase: str
) -> JsonObject:  # fmt: skip
    """Return the payload of an error from which an agent recovers in this phase.

    Raises InvalidInput: `invalid_code`, `wrong_type`, and those of `checked_details`.
    """
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        raise InvalidInput(f"the code of an error must be 1 to 64 of A-Z, a-z, 0-9 and '_', not {safe_repr(repr_of(code))}",
                           code="invalid_code", path="/code")  # fmt: skip
    if not isinstance(message, str):
        raise InvalidInput(f"the message of an error must be a text, not {safe_repr(repr_of(message))}", code="wrong_type",
                           path="/message")  # fmt: skip
    own = checked_details(details)
    if (classified := code_in_phase(code, phase)) != code:
        own = {**own, "original_code": code}
    error: JsonObject = {"code": classified, "message": safe_repr(message, MESSAGE_MAX), "recoverable": True}
    return error_payload(error, {**own, "phase": phase}, None if exception is None else stack_trace_of(exception))


def checked_details(details: Any) -> JsonObject:
    """Return details as JSON; every write redacts secrets from it. Raises InvalidInput: `wrong_type`, `payload_too_large`, those of `to_json`."""
    found = to_json({} if details is None else details, "/details")
    if not isinstance(found, dict):
        raise InvalidInput(f"details must be an object, not {safe_repr(details)}", code="wrong_type", path="/details")
    if text_bytes(found) > DETAILS_BYTES_MAX:
        raise InvalidInput(f"details have at most {DETAILS_BYTES_MAX} bytes; put large values in a card",
                           code="payload_too_large", path="/details")  # fmt: skip
    return found


def details_of(details: Mapping[str, Any]) -> JsonObject:
    """Return the details of an exception, or the reason why they cannot be recorded."""
    try:
        return checked_details(dict(details))
    except InvalidInput as error:
        return {"left_out": safe_repr(error.message)}


def stack_trace_of(error: BaseException) -> str:
    """Return the end of an exception's traceback, without secrets."""
    text = cleaned(redacted_text("".join(traceback.format_exception(error)).rstrip()))
    return text if len(text) <= STACK_TRACE_MAX else "…" + text[1 - STACK_TRACE_MAX :]
