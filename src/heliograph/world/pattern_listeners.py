"""The listeners of this process to the signals of one project, found by the name of a signal or by its masked name."""

from __future__ import annotations

from typing import Protocol

from heliograph.signals.pattern_table import PatternTable
from heliograph.world.bell_tokens import Tokens
from heliograph.world.seam import SIGNALS, BellKey

_UNUSED_MAX = 100  # patterns without a listener that a table keeps, beside as many as it has in use


class Listener(Protocol):
    """Receives the rings of some keys: those of this process, and those from a wire, which may be forged."""

    keys: tuple[BellKey, ...]

    def ring(self) -> None: ...

    def ring_from_wire(self) -> None: ...


class PatternListeners:
    """The listeners by pattern. A signal rings those whose pattern matches its name, and no others."""

    def __init__(self, project: str, tokens: Tokens):
        self._project = project
        self._tokens = tokens
        self._of_pattern: dict[str, set[Listener]] = {}
        self._unused = 0
        self._by_name = PatternTable[set[Listener]]()
        self._by_mask = PatternTable[set[Listener]]()

    def __bool__(self) -> bool:
        return self._unused < len(self._of_pattern)

    def add(self, pattern: str, listener: Listener) -> None:
        """Raises the errors of `compile_pattern`."""
        listeners = self._of_pattern.get(pattern)
        if listeners is None:
            listeners = set()
            self._by_name.add(pattern, listeners)
            self._add_mask(pattern, listeners)
            self._of_pattern[pattern] = listeners
        elif not listeners:
            self._unused -= 1
        listeners.add(listener)

    def forget(self, pattern: str, listener: Listener) -> None:
        listeners = self._of_pattern[pattern]
        listeners.discard(listener)
        self._unused += not listeners
        if self._unused > _UNUSED_MAX + len(self._of_pattern) // 2:
            self._of_pattern = {each: found for each, found in self._of_pattern.items() if found}
            self._unused = 0
            self._by_name = PatternTable(self._of_pattern.items())
            self.learned()

    def learned(self) -> None:
        """Listen for masked names, now that their hashes are known."""
        self._by_mask = PatternTable()
        for pattern, listeners in self._of_pattern.items():
            self._add_mask(pattern, listeners)

    def ring(self, name: str) -> None:
        """Pass on a signal of this process."""
        for listeners in self._by_name.match(name):
            for listener in listeners:
                listener.ring()

    def ring_from_wire(self, masked: str) -> None:
        """Pass on the masked name of a signal, which may be forged."""
        for listeners in self._by_mask.match(masked):
            for listener in listeners:
                listener.ring_from_wire()

    def ring_all(self) -> None:
        for listeners in self._of_pattern.values():
            for listener in listeners:
                listener.ring()

    def _add_mask(self, pattern: str, listeners: set[Listener]) -> None:
        key = BellKey(self._project, f"{SIGNALS}{pattern}")
        if self._tokens.has_token(key):
            self._by_mask.add(self._tokens.of(key).partition(":")[2], listeners)
