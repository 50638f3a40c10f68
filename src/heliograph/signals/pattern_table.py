"""Match one signal name against many patterns at once."""

# Requirements: SIG-50..SIG-52, G-41.
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from heliograph.signals.names import LENGTH_MAX
from heliograph.signals.pattern import MANY, ONE, Pattern, compile_pattern

CACHED_MAX = 4096

V = TypeVar("V")


class PatternTable(Generic[V]):
    """A map from patterns to values, looked up by signal name.

    The patterns share a trie of segments. Results are cached by name; the cache is emptied when it is full, and when a pattern is
    added. It works well because a system has few signal names, as long as ids stay in payloads.
    """

    def __init__(self, pairs: Iterable[tuple[Pattern | str, V]] = ()) -> None:
        self._root: _Node[V] = _Node()
        self._size = 0
        self._cache = _Found(self._search)
        # a look-up of a cached name executes no Python
        self.match: Callable[[str], tuple[V, ...]] = self._cache.__getitem__
        """Return the values of all matching patterns, in the order in which they were added. Repeated values are kept."""
        for pattern, value in pairs:
            self.add(pattern, value)

    def __len__(self) -> int:
        return self._size

    def add(self, pattern: Pattern | str, value: V) -> None:
        """Add a pair, even if the pattern or the value was added before. Raises the errors of `compile_pattern`."""
        compiled = compile_pattern(pattern) if isinstance(pattern, str) else pattern
        node = self._root
        for segment in compiled.text.split(":"):
            node = node.child(segment)
        node.entries.append((self._size, value))
        self._size += 1
        self._cache.clear()

    def _search(self, name: str) -> tuple[V, ...]:
        """Follow all paths of the trie at once, so that each segment of the name is read once."""
        segments = name.split(":")
        if "" in segments:
            return ()
        nodes = _with_many({self._root})
        for segment in segments:
            reached: set[_Node[V]] = set()
            for node in nodes:
                if node.is_many:
                    reached.add(node)
                if node.one is not None:
                    reached.add(node.one)
                literal = node.literal.get(segment)
                if literal is not None:
                    reached.add(literal)
            nodes = _with_many(reached)
        entries = [entry for node in nodes for entry in node.entries]
        return tuple(value for _, value in sorted(entries, key=lambda entry: entry[0]))


def name_filter(patterns: Iterable[Pattern | str]) -> Callable[[str], bool]:
    """Return a function that returns whether a name matches one of the patterns; without any, each name does."""
    table = PatternTable[bool]((pattern, True) for pattern in patterns)
    return (lambda name: bool(table.match(name))) if len(table) else (lambda _name: True)


class _Found(dict[str, tuple[V, ...]]):
    """The matches of names that were looked up. search: finds those of a name."""

    def __init__(self, search: Callable[[str], tuple[V, ...]]) -> None:
        super().__init__()
        self._search = search

    def __missing__(self, name: str) -> tuple[V, ...]:
        found = self._search(name)
        if len(self) >= CACHED_MAX:
            self.clear()
        if len(name) <= LENGTH_MAX:  # longer texts are no names, and must not fill the cache
            self[name] = found
        return found


class _Node(Generic[V]):
    """A node of the trie. is_many: it follows a `**`, so it remains reached after any further segment."""

    __slots__ = ("entries", "is_many", "literal", "many", "one")

    def __init__(self, *, is_many: bool = False) -> None:
        self.literal: dict[str, _Node[V]] = {}
        self.one: _Node[V] | None = None
        self.many: _Node[V] | None = None
        self.is_many = is_many
        self.entries: list[tuple[int, V]] = []

    def child(self, segment: str) -> _Node[V]:
        """Return the child node for a segment of a pattern; create it if it is missing."""
        if segment == MANY:
            self.many = self.many or _Node(is_many=True)
            return self.many
        if segment == ONE:
            self.one = self.one or _Node()
            return self.one
        return self.literal.setdefault(segment, _Node())


def _with_many(nodes: set[_Node[V]]) -> set[_Node[V]]:
    """Add the nodes that a `**` reaches by matching zero segments."""
    for node in list(nodes):
        many = node.many
        while many is not None:
            nodes.add(many)
            many = many.many
    return nodes
