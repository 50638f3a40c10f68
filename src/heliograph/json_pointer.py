"""JSON pointers (RFC 6901): read and write them, and look up the value at one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_DIGITS_MAX = 9  # of an index; no list is longer


def escaped(key: str) -> str:
    """Return a key as it stands in a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def pointer(path: str, *keys: str | int) -> str:
    """Return the JSON pointer of a value below `path`."""
    return path + "".join(f"/{escaped(str(key))}" for key in keys)


@lru_cache(maxsize=4096)
def tokens_of(path: str) -> tuple[str, ...]:
    """Return the keys and indexes of a JSON pointer."""
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:])


def value_at(whole: Any, path: str) -> Any:
    """Return the part of a value at a JSON pointer; None if there is none."""
    found = whole
    for token in tokens_of(path):
        if isinstance(found, dict) or isinstance(found, Mapping):  # noqa: SIM101  the usual type is quick to check
            found = found.get(token)
        elif isinstance(found, list) and is_index(token) and int(token) < len(found):
            found = found[int(token)]
        else:
            return None
    return found


def is_index(token: str) -> bool:
    """Whether a key of a JSON pointer may be the index of a list's item."""
    return token.isascii() and token.isdecimal() and len(token) <= _DIGITS_MAX
