"""Values that must never be written: what is registered here is stars in every table, log, signal and message (S13).

By value, not by name: whatever a program does with a secret, the same characters mean it, as they are or encoded. The registry is
the process's: it knows what this process has resolved. Texts of fewer than `LENGTH_MIN` characters are not kept out, for
they stand in innocent texts as well.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

STARS = "***"
LENGTH_MIN = 8
LOGGERS = tuple(f"heliograph{part}" for part in ("", ".cli", ".doorbell", ".tools", ".worker", ".world"))
_KEY_LENGTH_MIN = 16
_KEY_ENDS = ("_API_KEY", "_TOKEN", "_SECRET", "_SECRET_KEY", "_ACCESS_KEY")


class _Kept:
    """What this process keeps out."""

    def __init__(self) -> None:
        self.forms: set[str] = set()
        self.pattern: re.Pattern[str] | None = None


_kept = _Kept()


def keep_out(*values: str) -> None:
    """Have these values written as stars from now on, and whatever is only another spelling of them."""
    forms = {form for value in values if len(value) >= LENGTH_MIN for form in _spellings(value)}
    if forms <= _kept.forms:
        return
    _kept.forms |= forms
    known: frozenset[str] = frozenset()
    while known != _kept.forms:  # without a lock: who set a pattern of fewer forms than there are sets another one
        known = frozenset(_kept.forms)
        _kept.pattern = re.compile("|".join(map(re.escape, sorted(known, key=len, reverse=True))))


def keep_keys_out(environment: Mapping[str, str]) -> None:
    """Keep out what is a key by the name of its variable, such as OPENAI_API_KEY."""
    keep_out(*(v for k, v in environment.items() if k.upper().endswith(_KEY_ENDS) and len(v) >= _KEY_LENGTH_MIN))


def redacted_text(text: str) -> str:
    return text if _kept.pattern is None else _kept.pattern.sub(STARS, text)


def redacted(value: Any) -> Any:
    """`value` itself, or where it holds what is kept out, the same JSON with stars instead."""
    if _kept.pattern is None:
        return value
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, dict):
        return {redacted(key): redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value


def is_clean(text: str | bytes) -> bool:
    """Whether nothing of what is kept out stands in `text`, which may be JSON as it is written."""
    if _kept.pattern is None:
        return True
    return _kept.pattern.search(text if isinstance(text, str) else text.decode("utf-8")) is None


def guard_logs() -> None:
    """Have Heliograph's own loggers, wherever they are handled, say stars."""
    for name in (*LOGGERS, "asyncio"):
        if _guard not in (logger := logging.getLogger(name)).filters:
            logger.addFilter(_guard)


def _guard(record: logging.LogRecord) -> bool:
    """Redact a record before any handler sees it; one that holds a traceback keeps it as text."""
    if _kept.pattern is not None:
        said = record.getMessage()
        if not is_clean(said):
            record.msg, record.args = redacted_text(said), ()
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
            if not is_clean(trace):
                record.exc_text, record.exc_info = redacted_text(trace).rstrip(), None
    return True


def _spellings(value: str) -> Iterator[str]:
    raw = value.encode("utf-8", "surrogatepass")
    yield from (value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield from (quote(raw, safe=""), quote(raw), quote_plus(raw), raw.hex(), raw.hex().upper())
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):  # in the middle of a longer text it may begin at any of three places
            padded = encode(b"\0" * before + raw).decode("ascii")
            start, end = (8 * before + 5) // 6, (8 * (before + len(raw))) // 6
            yield padded[start:end]
