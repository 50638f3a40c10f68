"""Wildcards of routes: `security-*` matches every name that begins with `security-`.

A `*` matches any characters, also none. Names of agents and tools are flat, so this is another dialect than the patterns of signal
names, whose `*` matches one segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

LENGTH_MAX = 200
ANY = "*"
_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:/")


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A compiled wildcard. parts: the texts between the `*`; a single part matches only itself."""

    text: str
    parts: tuple[str, ...]

    def matches(self, name: str) -> bool:
        """Whether the wildcard matches a whole name. Takes linear time: the leftmost match of each part is as good as any other."""
        first, last = self.parts[0], self.parts[-1]
        if len(self.parts) == 1:
            return name == first
        end = len(name) - len(last)
        if end < len(first) or not name.startswith(first) or not name.endswith(last):
            return False
        at = len(first)
        for part in self.parts[1:-1]:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


@lru_cache(maxsize=1024)
def compile_wildcard(text: str) -> Wildcard:
    """Compile a wildcard. Raises InvalidInput (`invalid_wildcard`)."""
    if not 0 < len(text) <= LENGTH_MAX or not _CHARACTERS.issuperset(text.replace(ANY, "")):
        raise InvalidInput(f"must have 1 to {LENGTH_MAX} letters, digits, '_', '-', '.', ':', '/' and '*', not {safe_repr(text)}",
                           code="invalid_wildcard")  # fmt: skip
    return Wildcard(text, tuple(text.split(ANY)))
