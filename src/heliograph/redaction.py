"""Redact secrets: replace registered values by stars in every table, log, signal and message.

Redaction works by value, whether plain or encoded. The registry belongs to the process: it contains the secrets that this
process has resolved, those of its environment, and the passwords of its URLs. Texts of fewer than `LENGTH_MIN`
characters are not redacted, because they occur in ordinary text as well.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

STARS = "***"
LENGTH_MIN = 8
LOGGERS = tuple(f"heliograph{part}" for part in ("", ".agent_loop", ".cli", ".doorbell", ".execution", ".gateway", ".ledger", ".signals", ".status", ".subscriptions",
                                                 ".telemetry", ".tools", ".worker", ".world"))  # fmt: skip
SECRET_PREFIX = "HELIOGRAPH_SECRET_"  # noqa: S105  of variables
# Providers' keys and tokens are long. A password may be short, but short words also occur in ordinary text.
_KEY_ENDS, _KEY_LENGTH_MIN = ("KEY", "TOKEN"), 16
_PASSWORD_ENDS, _WORD_LENGTH_MIN = ("SECRET", "PASSWORD", "PASSWD", "PASSPHRASE"), 16
_SECRET_HEADERS = ("auth", "key", "token", "secret", "password")  # parts of the names of headers that have secrets
_HEADERS = tuple(f"OTEL_EXPORTER_OTLP_{part}HEADERS" for part in ("", "TRACES_", "METRICS_"))
_CHARACTER_CLASSES = ("[a-z]", "[A-Z]", "[0-9]", r"[^A-Za-z0-9_.\s-]")
# Default passwords, and words that occur in many records.
_COMMON = frozenset(("postgres", "postgresql", "password", "password1", "changeme", "changeit", "heliograph", "12345678",
                     "123456789", "1234567890", "localhost", "database"))  # fmt: skip


class _Kept:
    """The registered values, in all their spellings."""

    def __init__(self) -> None:
        self.forms: set[str] = set()
        self.needles: tuple[tuple[str, bytes], ...] = ()
        self.pattern: re.Pattern[str] | None = None


_kept = _Kept()


def keep_out(*values: str) -> None:
    """Redact these values from now on, in every spelling."""
    forms = {form for value in values if len(value) >= LENGTH_MIN for form in _spellings(value)}
    if forms <= _kept.forms:
        return
    _kept.forms |= forms
    known: frozenset[str] = frozenset()
    while known != _kept.forms:  # without a lock: a thread that used too few forms repeats
        known = frozenset(_kept.forms)
        _kept.needles = tuple((form, form.encode("utf-8", "surrogatepass")) for form in known)
        _kept.pattern = re.compile("|".join(map(re.escape, sorted(known, key=len, reverse=True))))


def keep_keys_out(environment: Mapping[str, str]) -> None:
    """Redact the secrets of an environment, even if they are never resolved.

    These are the variables HELIOGRAPH_SECRET_*, PGPASSWORD, those with a name like OPENAI_API_KEY, GITHUB_TOKEN or
    SMTP_PASSWORD, the headers for OTLP, and the passwords of URLs. A value that looks like an ordinary word is left alone.
    """
    found = [value for name, value in environment.items() if _is_secret(name.upper(), value)]
    found += [part for name in _HEADERS for part in _header_values(environment.get(name, ""))]
    keep_out(*found, *(password for value in environment.values() for password in _passwords(value)))


def keep_url_out(url: str) -> None:
    """Redact the password of a URL from now on."""
    keep_out(*_passwords(url))


def redacted_text(text: str) -> str:
    """Return `text` with stars in place of secrets."""
    return text if _kept.pattern is None or is_clean(text) else _kept.pattern.sub(STARS, text)


def redacted(value: Any) -> Any:
    """Return a JSON value with stars in place of secrets."""
    if _kept.pattern is None:
        return value
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, dict):
        return with_clean_keys(value, redacted)
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value


def with_clean_keys(value: dict[Any, Any], clean: Callable[[Any], Any]) -> dict[Any, Any]:
    """Clean the keys and the items of an object. If several keys become the same, all but the first have a number: `*** (2)`."""
    found = {clean(key): clean(item) for key, item in value.items()}
    if len(found) == len(value):
        return found
    names: dict[Any, Any] = {key: key for key in value if clean(key) == key}
    taken = set(names)
    for key in sorted(value.keys() - names.keys(), key=str):  # so numbers do not depend on the order of keys
        name, number = clean(key), 1
        while name in taken:
            number += 1
            name = f"{clean(key)} ({number})"
        taken.add(name)
        names[key] = name
    return {names[key]: clean(item) for key, item in value.items()}


def redacted_json(value: Any) -> bytes:
    """Encode a value as JSON with stars in place of secrets; structs and times included."""
    import msgspec  # late: `helio --help` prints no JSON

    data: bytes = msgspec.json.encode(value)
    return data if is_clean(data) else msgspec.json.encode(redacted(msgspec.json.decode(data)))


def is_clean(text: str | bytes) -> bool:
    """Whether `text`, which may be JSON, contains no spelling of a known secret.

    Searches for each spelling: with many secrets this is several times as fast as one pattern of all.
    """
    place = 0 if isinstance(text, str) else 1
    for needle in _kept.needles:  # noqa: SIM110  a generator takes three times as long where there are few
        if needle[place] in text:  # type: ignore[operator]
            return False
    return True


def start_of_open_secret(text: str) -> int:
    """The position in a text from which on it may become a known secret when it continues; its length if there is none."""
    longest = 0
    for needle, _ in _kept.needles:
        for length in range(min(len(needle) - 1, len(text)), longest, -1):
            if text.endswith(needle[:length]):
                longest = length
                break
    return len(text) - longest


def start_of_divided_secret(text: str, end: int) -> int:
    """The position at which a known secret starts of which only a part is before `end`; `end` if there is none."""
    for found in _kept.pattern.finditer(text) if _kept.pattern is not None and not is_clean(text) else ():
        if found.start() < end < found.end():
            return found.start()
    return end


def guard_logs() -> None:
    """Redact the records of Heliograph's loggers, for every handler."""
    for name in (*LOGGERS, "asyncio"):
        guarded_logger(name)


def guarded_logger(name: str) -> logging.Logger:
    """Return a logger whose own records are redacted; the filters of a logger do not apply to those below it."""
    if _guard not in (logger := logging.getLogger(name)).filters:
        logger.addFilter(_guard)
    return logger


def _guard(record: logging.LogRecord) -> bool:
    """Redact a record before any handler receives it; a redacted traceback becomes text."""
    if _kept.pattern is not None:
        message = record.getMessage()
        if not is_clean(message):
            record.msg, record.args = redacted_text(message), ()
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
            if not is_clean(trace):
                record.exc_text, record.exc_info = redacted_text(trace).rstrip(), None
    return True


def _header_values(text: str) -> Iterator[str]:
    """Yield the secrets of headers like `authorization=Bearer%20abc`, percent-decoded: the values, and their last words.

    Other headers, like the name of a data set, have a secret only if their value looks like a long key.
    """
    for pair in text.split(","):
        name, _, written = pair.partition("=")
        value = unquote(written).strip()
        if value.lower() in _COMMON:
            continue
        if any(part in name.lower() for part in _SECRET_HEADERS) or (
            _is_mixed(value) and len(value) >= _KEY_LENGTH_MIN
        ):
            yield from (value, value.rpartition(" ")[2])


def _is_mixed(value: str) -> bool:
    """Whether a value has characters of several classes, unlike an ordinary word."""
    return sum(bool(re.search(kind, value)) for kind in _CHARACTER_CLASSES) >= 2


def _is_secret(name: str, value: str) -> bool:
    """Whether a variable has the name of a secret and a value unlike ordinary text."""
    if name.startswith(SECRET_PREFIX):
        return True
    if name == "PGPASSWORD":
        return value.lower() not in _COMMON
    is_mixed = _is_mixed(value)
    if name.endswith(_KEY_ENDS):
        return is_mixed and len(value) >= _KEY_LENGTH_MIN
    return name.endswith(_PASSWORD_ENDS) and (is_mixed or len(value) >= _WORD_LENGTH_MIN)


def _passwords(url: str) -> Iterator[str]:
    """Yield the passwords of a URL, or of several separated by commas, as written and percent-decoded.

    A password that equals the user, host or database of its URL is no secret. A NATS URL may have a token instead of
    user and password.
    """
    for part in url.split(",") if "://" in url else ():
        try:
            parts = urlsplit(part.strip())
            names = {parts.username, parts.hostname, parts.path.strip("/")} if parts.password else {parts.hostname}
            written = [parts.password or (parts.username if parts.scheme in ("nats", "tls") else "")]
        except ValueError:
            continue
        written += [value for key, value in parse_qsl(parts.query) if key.lower().endswith("password")]
        for password in written:
            if password and password not in names and password.lower() not in _COMMON:
                yield from (password, unquote(password))


def _spellings(value: str) -> Iterator[str]:
    raw = value.encode("utf-8", "surrogatepass")
    yield from (value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield from (quote(raw, safe=""), quote(raw), quote_plus(raw), raw.hex(), raw.hex().upper())
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):  # within a longer text it may start at any of three offsets
            padded = encode(b"\0" * before + raw).decode("ascii")
            start, end = (8 * before + 5) // 6, (8 * (before + len(raw))) // 6
            yield padded[start:end]
