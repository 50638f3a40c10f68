"""Replace secrets in what leaves the ledger: recordings, adapters and the output of commands. Decision 0165 lists the exceptions.

These are the secrets that the process knows (`heliograph.redaction`), and texts that look like keys of well-known services. The ledger
keeps the latter: what it has of a call must be what the model or the tool has returned.
"""

from __future__ import annotations

import re
from typing import Any

from heliograph.redaction import (
    STARS,
    is_clean,
    redacted,
    redacted_text,
    start_of_divided_secret,
    start_of_open_secret,
    with_clean_keys,
)

_LENGTH_MIN = 16  # a shorter text contains no key, but may contain the password of a URL
# Patterns are compiled by their first use: most commands need none.
# Each of these begins where a word begins: otherwise the name `task-of-the-weekly-report` would contain a key.
_KEYS = (
    r"(?<![A-Za-z0-9])(?:"
    r"sk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"  # Stripe
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # AWS
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"  # Google
    r")"
)
# The block of a private key: its first line, and what belongs to it at the start of the text after this line. A `-` ends a block, because text may
# follow one without an end, except where it begins a line that may be a part of the key, as in a diff or a list, and in the headers listed here. A line
# begins after a newline, also after the two characters that stand for one in JSON within a text. Quantifiers do not backtrack: that would be quadratic.
_BLOCK_START = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_NEW_LINE = r"(?:\n|\\n)[ \t>+]*+"
# stars: a part of it looked like another key
_KEY_LINE = r"[A-Za-z0-9+/=*]{24}|[A-Za-z0-9+/=*]*+[ \t\r]*+(?:[\n\\\"'`]|\Z)"
_BLOCK_BODY = (
    r"\A(?:[^-\n\\]++"
    rf"|{_NEW_LINE}-[ \t>+]*+(?:-(?=-----END |[^-]|\Z)[ \t>+]*+)?[\"'`]?+(?={_KEY_LINE}|(?:Proc-Type|DEK-Info):|-----END )"
    rf"|{_NEW_LINE}[ \t>+-]*+(?:(?:Version|Comment|MessageID|Charset):(?:[^-\n\\]|\\(?!n)|-(?!----END ))*+|\Z)"  # OpenPGP
    r"|[\n\\]"
    r"|-(?:Type|Info):[A-Z0-9, -]*+"  # Proc-Type: 4,ENCRYPTED and DEK-Info: AES-128-CBC,…
    r")*+"
)
_BLOCK_REST = rf"{_BLOCK_BODY}(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
# A JWT: its first part, and the others if they follow. A first part without the others is passed as a whole, because a search from each
# `eyJ` in it is quadratic: they all end where the first one does.
_JWT = r"eyJ[A-Za-z0-9_-]{10,}(\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})?"
# A short token has a digit, or a capital after a small letter or a sign, unlike `basic understanding`.
_BEARER = (
    r"(?<![A-Za-z0-9_])((?i:bearer|basic))\s+"
    r"(?:(?=[A-Za-z+/._~-]*(?:[0-9=]|[a-z+/._~-][A-Z]))[A-Za-z0-9+/._~-]{12,}|[A-Za-z0-9+/._~-]{20,})=*"
)
_URL_START = "://"
_URL = r"(://[^\s/:@]*:)[^\s/@]+(@)"  # without the scheme: a search for it is quadratic

# Small letters of which each key has some. Most texts have none of them, and are not searched further.
_HINTS = ("sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "npm_", "pypi-", "akia",
          "asia", "aiza", "ya29.", "eyj", "-----begin", "bearer", "basic", "://")  # fmt: skip
_HINT_BYTES = tuple(hint.encode() for hint in _HINTS)

# Ends of a text that may become a key when it continues: such a key has characters that are no part of a word.
_WORD_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+/=~:"
_OPEN_BLOCK_START = r"-----BEGIN [A-Z0-9 ]*\Z"
_OPEN_BLOCK_REST = rf"{_BLOCK_BODY}(?:-----END [A-Z0-9 ]*)?\Z"
_OPEN_SCHEME = r"(?<![A-Za-z0-9_])(?i:bearer|basic)\s+\Z"
_OPEN_URL = r"://[^\s/@]*\Z"
_STEPS_BACK_MAX = 4  # from one open key to another before it: each reads the whole text
# A longer text is searched again only when an eighth of its other characters has arrived: otherwise each piece reads it again.
_OFTEN_SEARCHED_MAX = 512


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


class StreamedText:
    """A text that arrives in pieces, with stars in place of secrets. Its last word is kept back, because the next piece may make it a key.

    The pieces together are what `text_without_secrets` returns of the whole text. A word or a key that does not end is kept back whole,
    however long it is: a part of it might be a part of a secret. After a long one, what follows appears a little later.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._new: list[str] = []  # pieces since the last search
        self._new_length = 0

    def add(self, text: str) -> str:
        """Return what can be printed now."""
        self._new.append(text)
        self._new_length += len(text)
        if 8 * self._new_length < len(self._rest) - _OFTEN_SEARCHED_MAX:
            return ""
        text = self._taken()
        end = _complete_length(text)
        self._rest = text[end:]
        return text_without_secrets(text[:end])

    def end(self) -> str:
        """Return what was kept back."""
        return text_without_secrets(self._taken())

    def _taken(self) -> str:
        text = self._rest + "".join(self._new)
        self._rest, self._new, self._new_length = "", [], 0
        return text


def _complete_length(text: str) -> int:
    """How many characters of a text can be redacted without those that follow: they end between two words, and in no secret.

    The answer is 0, which is always right, if the text ends with more than three possible keys, as in `bearer bearer bearer bearer `.
    """
    end = start_of_open_secret(text)
    for _ in range(_STEPS_BACK_MAX):
        end = len(text[:end].rstrip(_WORD_CHARACTERS))
        earlier = start_of_divided_secret(text, end)
        if earlier == end:
            earlier = _start_of_open_key(text[:end])
        if earlier == end:
            return end
        end = earlier
    return 0


def _start_of_open_key(text: str) -> int:
    """The position from which on a text between two words may become a key when it continues; its length if there is none."""
    if not _may_have_keys(text, _HINTS):
        return len(text)
    *blocks, last = re.split(_BLOCK_START, redacted_text(text))
    clean = _without_short_keys(last)
    if re.search(_OPEN_BLOCK_START, last) or (blocks and re.search(_OPEN_BLOCK_REST, clean)):
        return text.rindex("-----BEGIN ")
    if (scheme := re.search(_OPEN_SCHEME, clean)) is not None:
        return len(text) - len(scheme[0])
    return text.rindex(_URL_START) if re.search(_OPEN_URL, clean) else len(text)


def _may_have_keys(text: Any, hints: tuple[Any, ...]) -> bool:
    """Whether a text, or JSON as bytes, has a part of a key."""
    small = text.lower()
    return any(hint in small for hint in hints)


def _text_without_keys(text: str) -> str:
    if (len(text) < _LENGTH_MIN and _URL_START not in text) or not _may_have_keys(text, _HINTS):
        return text
    # Keys after the start of a block are replaced first: a block without an end ends at a `-`, which may be inside such a key.
    before, *others = re.split(_BLOCK_START, text)
    rests = (re.sub(_BLOCK_REST, "", _without_short_keys(other)) for other in others)
    return STARS.join((_without_short_keys(before), *rests))


def _without_short_keys(text: str) -> str:
    """Replace each JWT, then each other key of one word, because a JWT may have parts that look like one; then tokens and passwords of URLs."""
    found = re.sub(_KEYS, STARS, re.sub(_JWT, lambda found: STARS if found[1] else found[0], text))
    return re.sub(_URL, rf"\g<1>{STARS}\g<2>", re.sub(_BEARER, rf"\g<1> {STARS}", found))


def _without_keys(value: Any) -> Any:
    if isinstance(value, str):
        return _text_without_keys(value)
    if isinstance(value, dict):
        return with_clean_keys(value, _without_keys)
    if isinstance(value, list | tuple):
        return [_without_keys(item) for item in value]
    return value
