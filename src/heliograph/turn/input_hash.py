"""The hash of the arguments of a step, which the log has in place of them: replays and checks compare it. Pure."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pydantic

from heliograph.redaction import redacted_text
from heliograph.signals.payload import is_longer
from heliograph.signals.values import SECRETS

INPUT_HASH = "input_hash"  # the key of a signal
_DIGITS = 8  # it finds changes, and proves nothing
_BYTES_MAX = 65_536  # a worker hashes arguments on the event loop


def input_hash(arguments: tuple[Any, ...]) -> str | None:
    """The hash of arguments; None for those without a canonical form: functions, connections, and more than 64 KiB.

    Known secrets count as stars, so that the hash of a short one cannot be guessed.
    """
    try:
        if is_longer(arguments, _BYTES_MAX):
            return None
        text = msgspec.json.encode(arguments, order="deterministic", enc_hook=_plain)
    except Exception:  # of the application's own types: their arguments are not compared
        return None
    return hashlib.sha256(redacted_text(text.decode()).encode()).hexdigest()[:_DIGITS]


def _plain(value: Any) -> Any:
    """A value that msgspec cannot encode as one that it can. Raises TypeError."""
    if isinstance(value, SECRETS):
        return "***"
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"a value of type {type(value).__name__} has no canonical form")
