"""Exceptions and values as text for messages, logs and the ledger.

The text is redacted, and an application's `__str__` and `__repr__` may raise.
"""

from __future__ import annotations

import errno
import json
import re

from heliograph.errors import HeliographError
from heliograph.key_patterns import text_without_secrets
from heliograph.redaction import redacted_text

_CAUSES_MAX = 10
_NAME_LOOKUP = "gaierror"  # of the module socket, which this floor does not import
_LONG_WORD = re.compile(r"[^\s\"'`,;(){}\[\]<>]{16,}")
_PREFIX = 3
_UNREACHABLE = (errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH,
                errno.EHOSTDOWN, errno.ENETDOWN)  # fmt: skip


def printable(text: str) -> str:
    """Return `text` on one line, with control characters escaped: those of a log could move the cursor of a terminal, or write to it."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode("ascii") for c in text
    )


def printable_lines(text: str) -> str:
    """Return a text of several lines with all control characters escaped except the ends of its lines."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Return JSON with the characters escaped that `printable` escapes, so that it has the same value."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def safe_repr(value: object, limit: int = 80) -> str:
    """Return `value` for an error message: redacted, on one line, control characters escaped, truncated at `limit`."""
    # redaction comes before truncation, because a part of a secret is also secret
    text = printable(text_without_secrets(value if isinstance(value, str) else repr_of(value)))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`: a number with its noun, which forms its plural with an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def without_keys(text: str) -> str:
    """Return `text` with three characters of each word that is as long as a key: a service may quote the key that it rejects."""
    return _LONG_WORD.sub(lambda found: f"{found[0][:_PREFIX]}…", redacted_text(text))


def with_hint(error: HeliographError) -> str:
    """Return message and hint as one text, for records that have no field for the hint."""
    return error.message if error.hint is None else f"{error.message}; {error.hint}"


def is_recoverable(error: BaseException) -> bool:
    """Whether a retry may help: the exception's `recoverable`, or True if it has no such attribute."""
    value = getattr(error, "recoverable", True)
    return value if isinstance(value, bool) else True


def is_network_error(error: BaseException) -> bool:
    """Whether a connection failed: the exception, or one that it was raised from, is one of the operating system."""
    found: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if found is None:
            return False
        if isinstance(found, OSError) and (
            isinstance(found, ConnectionError) or found.errno in _UNREACHABLE or type(found).__name__ == _NAME_LOOKUP
        ):
            return True
        found = found.__cause__
    return False


def format_exception(error: BaseException, limit: int = 2000) -> str:
    """Return an application's exception as text that the ledger can store, even if its `str` raises."""
    text = exception_text(error)
    return safe_repr(f"{type(error).__name__}: {text}" if text else type(error).__name__, limit)


def exception_text(error: BaseException) -> str:
    """Return the text of an application's exception, even if its `str` raises."""
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def repr_of(value: object) -> str:
    """Return the repr of an application's value, even if its `__repr__` raises."""
    try:
        return repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
