"""Replace secrets in what leaves the ledger: recordings, adapters and the output of commands. Decision 0165 lists the exceptions.

These are the secrets that the process knows (`heliograph.redaction`), and texts that look like keys of well-known services. The ledger
keeps the latter: what it has of a call must be what the model or the tool has returned.
"""

from __future__ import annotations

import re
from typing import Any

from heliograph.redaction import STARS, is_clean, redacted, redacted_text, start_of_open_secret

_LENGTH_MIN = 16  # a shorter text contains no key
# Patterns are compiled by their first use: most commands need none.
# Each begins where a word begins: otherwise the name `task-of-the-weekly-report` would contain a key.
_KEYS = (
    r"(?<![A-Za-z0-9])(?:"
    r"sk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"  # Stripe
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # AWS
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"  # Google
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"  # JWT
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
    r")"
)
# A short token has a digit, or a capital after a small letter or a sign, unlike `basic understanding`.
_BEARER = (
    r"\b((?i:bearer|basic))\s+"
    r"(?:(?=[A-Za-z+/._~-]*(?:[0-9=]|[a-z+/._~-][A-Z]))[A-Za-z0-9+/._~-]{12,}|[A-Za-z0-9+/._~-]{20,})=*"
)
_URL = r"(://[^\s/:@]*:)[^\s/@]+(@)"  # without the scheme: a search for it is quadratic

# Small letters of which each key has some. Most texts have none of them, and are not searched further.
_HINTS = ("sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "npm_", "pypi-", "akia",
          "asia", "aiza", "ya29.", "eyj", "-----begin", "bearer", "basic", "://")  # fmt: skip
_HINT_BYTES = tuple(hint.encode() for hint in _HINTS)

# How the end of a text begins a key of which the rest is still to come, in the characters of its last word.
_WORD_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+/=~"
_STARTS = r"(?<![A-Za-z0-9])(?:sk-|[rs]k_(?:live|test)_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_|npm_|pypi-|AKIA|ASIA|AIza|ya29\.|eyJ)"
_BLANKS = " \n\t"
_SCHEMES = r"\b(?i:bearer|basic)\s+\Z"
_OPEN_MAX = 16_000  # characters of a secret that continues
_SCHEME_LENGTH_MAX = 20  # of a scheme and the blanks after it
_BLOCK, _PLACE = "-----BEGIN ", "://"
_OPEN_BLOCK = r"-----BEGIN [A-Z ]*(?:-{1,4}|-----[^-]*)?"
_OPEN_URL = r"://[^\s/@]*"


def without_secrets(value: Any) -> Any:
    """Return a JSON value with stars in place of secrets."""
    return _without_keys(redacted(value))


def text_without_secrets(text: str) -> str:
    """Return a text with stars in place of secrets."""
    return _text_without_keys(redacted_text(text))


def json_without_secrets(value: Any) -> bytes:
    """Encode a value as JSON with stars in place of secrets; structs and times included."""
    import msgspec  # late: `helio --help` prints no JSON

    data: bytes = msgspec.json.encode(value)
    if is_clean(data) and not _may_have_keys(data, _HINT_BYTES):
        return data
    # the values, not the text: in it, a key at the start of a line follows the letter n of `\n`
    return msgspec.json.encode(without_secrets(msgspec.json.decode(data)))


def clean_and_open(text: str) -> tuple[str, str]:
    """Divide the beginning of a text: what is complete, with stars in place of secrets, and an end that may become a secret when it continues."""
    text = redacted_text(text)
    start = _start_of_open_key(text)
    if (earlier := start_of_open_secret(text)) < start:
        start = _start_of_open_key(text[:earlier])  # the end of a key may be the beginning of a secret
    if len(text) - start > _OPEN_MAX:
        start = len(text)
    return text_without_secrets(text[:start]), text[start:]


class StreamedText:
    """A text that arrives in pieces, with stars in place of secrets. Its last word is kept back, because the next piece may make it a key."""

    def __init__(self) -> None:
        self._rest = ""

    def add(self, text: str) -> str:
        """Return what can be printed now."""
        clean, rest = clean_and_open(self._rest + text)
        word = max(map(clean.rfind, _BLANKS)) + 1
        self._rest = clean[word:] + rest
        return clean[:word]

    def end(self) -> str:
        """Return what was kept back."""
        text, self._rest = self._rest, ""
        return text_without_secrets(text)


def _start_of_open_key(text: str) -> int:
    block = text.rfind(_BLOCK)
    if block >= 0 and re.fullmatch(_OPEN_BLOCK, text[block:]):
        return block
    place = text.rfind(_PLACE)
    if place >= 0 and re.fullmatch(_OPEN_URL, text[place:]):
        return place
    word = len(text.rstrip(_WORD_CHARACTERS))
    before = max(0, word - _SCHEME_LENGTH_MAX)
    if (scheme := re.search(_SCHEMES, text[before:word])) is not None:
        return before + scheme.start()
    start = re.search(_STARTS, text[word:])
    return len(text) if start is None else word + start.start()


def _may_have_keys(text: Any, hints: tuple[Any, ...]) -> bool:
    """Whether a text, or JSON as bytes, has a part of a key."""
    small = text.lower()
    return any(hint in small for hint in hints)


def _text_without_keys(text: str) -> str:
    if len(text) < _LENGTH_MIN or not _may_have_keys(text, _HINTS):
        return text
    found = re.sub(_BEARER, rf"\g<1> {STARS}", re.sub(_KEYS, STARS, text))
    return re.sub(_URL, rf"\g<1>{STARS}\g<2>", found)


def _without_keys(value: Any) -> Any:
    if isinstance(value, str):
        return _text_without_keys(value)
    if isinstance(value, dict):
        return {_without_keys(key): _without_keys(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_keys(item) for item in value]
    return value
