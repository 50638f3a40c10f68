"""The parts in which two JSON values differ, by JSON pointer: new values, and what was removed. Pure.

Two values have parts if both are objects or both are lists, and something of the first one is kept. A list is compared index by
index. So a list that moves its items has few of them in common, and is most often replaced as a whole. A record, an object of plain
values whose keys stay, is replaced as a whole, too: its readers expect all of its fields.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from heliograph.json_numbers import stored_number
from heliograph.json_pointer import is_index, pointer, tokens_of
from heliograph.types import Json


class Parts(NamedTuple):
    """changed: new values by their pointers. removed: members of objects, and the first of the items that a list has lost."""

    changed: dict[str, Json]
    removed: list[str]


def changed_parts(before: Json, after: Json, path: str = "") -> Parts | None:
    """The parts at and below `path` in which two values differ; None if nothing is kept."""
    found = Parts({}, [])
    if isinstance(before, dict) and isinstance(after, dict):
        is_kept = _compare_objects(before, after, path, found)
    elif isinstance(before, list) and isinstance(after, list):
        is_kept = _compare_lists(before, after, path, found)
    else:
        return None
    return found if is_kept else None


def with_parts(before: Json, parts: Parts) -> Json:
    """The value after a change: without what was removed, then with the new parts. Objects and lists that change are copied.

    Of a value that is unknown, it has only the parts. A key that is no index of a list changes nothing in it, nor does a part inside
    of another new part.
    """
    removed: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    for path in parts.removed:
        _branch(removed, path)[tokens_of(path)[-1]] = _REMOVED
    for path, value in parts.changed.items():
        _branch(changed, path)[tokens_of(path)[-1]] = _Leaf(value)
    return _with_leaves(_without(before, removed) if removed else before, changed)


def same_items(before: list[Json], after: list[Json]) -> int:
    """How many items at the beginning are the same JSON. Most often all of the shorter list are."""
    equal = shorter = min(len(before), len(after))
    if before[:shorter] != after[:shorter]:
        equal = next(n for n in range(shorter) if before[n] != after[n])
    return next((n for n in range(equal) if _has_other(before[n], after[n], _is_other_json)), equal)


def is_unchanged(before: Json, after: Json) -> bool:
    """Whether a key of the state keeps its value. Another form of the same number, 1.0 for 1, is no change; True for 1 is one."""
    return before is after or (before == after and not _has_other(before, after, _is_other_boolean))


class _Leaf(NamedTuple):
    value: Json


_REMOVED = object()


def _compare_objects(before: dict[str, Json], after: dict[str, Json], path: str, found: Parts) -> bool:
    """Add the parts of an object. Return whether any of its members is kept, or a part of one."""
    is_kept = False
    if before.keys() == after.keys() and not any(isinstance(each, dict | list) for each in after.values()):
        return is_kept  # a record
    for key, each in after.items():
        if key not in before:
            found.changed[pointer(path, key)] = each
        elif _is_same(before[key], each):
            is_kept = True
        else:
            is_kept = _add_member(before[key], each, pointer(path, key), found) or is_kept
    found.removed.extend(pointer(path, key) for key in before if key not in after)
    return is_kept


def _compare_lists(before: list[Json], after: list[Json], path: str, found: Parts) -> bool:
    """Add the parts of a list. An item has parts of its own if it is the only one that changed, and none was removed."""
    shorter = min(len(before), len(after))
    others = [n for n in range(same_items(before, after), shorter) if not _is_same(before[n], after[n])]
    is_kept = len(others) < shorter
    if len(others) == 1 and len(after) >= len(before):
        is_kept = _add_member(before[others[0]], after[others[0]], pointer(path, others[0]), found) or is_kept
    else:
        found.changed.update((pointer(path, n), after[n]) for n in others)
    found.changed.update((pointer(path, n), after[n]) for n in range(shorter, len(after)))
    if len(after) < len(before):
        found.removed.append(pointer(path, len(after)))
    return is_kept


def _add_member(before: Json, after: Json, path: str, found: Parts) -> bool:
    """Add a member or an item that changed, by its parts if it has some. Return whether it has."""
    inner = changed_parts(before, after, path)
    if inner is None:
        found.changed[path] = after
        return False
    found.changed.update(inner.changed)
    found.removed.extend(inner.removed)
    return True


def _branch(tree: dict[str, Any], path: str) -> dict[str, Any]:
    """The branch of the tree that holds the last key of a pointer."""
    for token in tokens_of(path)[:-1]:
        below = tree.setdefault(token, {})
        tree = below if isinstance(below, dict) else {}
    return tree


def _without(before: Json, tree: dict[str, Any]) -> Json:
    """A copy of a value without the leaves of a tree, and without the items that follow a leaf of a list."""
    if isinstance(before, list):
        items = list(before)
        for index, node in _items_of(tree):
            if node is _REMOVED:
                del items[index:]
            elif index < len(items):
                items[index] = _without(items[index], node)
        return items
    if not isinstance(before, dict):
        return before
    members = dict(before)
    for key, node in tree.items():
        if node is _REMOVED:
            members.pop(key, None)
        elif key in members:
            members[key] = _without(members[key], node)
    return members


def _with_leaves(before: Json, tree: dict[str, Any]) -> Json:
    """A copy of a value with the leaves of a tree."""
    if isinstance(before, list):
        items = list(before)
        for index, node in _items_of(tree):
            items[index : index + 1] = [_value_of(items[index] if index < len(items) else None, node)]
        return items
    members = dict(before) if isinstance(before, dict) else {}
    for key, node in tree.items():
        members[key] = _value_of(members.get(key), node)
    return members


def _items_of(tree: dict[str, Any]) -> list[tuple[int, Any]]:
    """The branches of a tree at the indexes of a list, in their order. An index has no leading zeros."""
    return sorted(((int(key), tree[key]) for key in tree if is_index(key) and key == str(int(key))), key=itemgetter(0))


def _value_of(before: Json, node: Any) -> Json:
    return node.value if isinstance(node, _Leaf) else _with_leaves(before, node)


def _is_same(before: Json, after: Json) -> bool:
    """Whether two values are the same JSON."""
    return before is after or (before == after and not _has_other(before, after, _is_other_json))


def _has_other(before: Any, after: Any, is_other: Callable[[Any, Any], bool]) -> bool:
    """Whether two values that Python says are equal have plain values of different types for which `is_other` holds."""
    kind = type(after)
    if kind is list:
        return any(_has_other(before[n], each, is_other) for n, each in enumerate(after) if type(each) is not str)
    if kind is not dict:
        return kind is not type(before) and is_other(before, after)
    for key, each in after.items():  # noqa: SIM110  a loop is faster for short objects, of which lists have many
        if type(each) is not str and _has_other(before[key], each, is_other):
            return True
    return False


def _is_other_boolean(before: Any, after: Any) -> bool:
    """Whether one of two equal values is a boolean: True is equal to 1."""
    return isinstance(before, bool) is not isinstance(after, bool)


def _is_other_json(before: Any, after: Any) -> bool:
    """Whether two equal values differ once they are stored: 1 is equal to True and to 1.0, but is neither in the database."""
    return _is_other_boolean(before, after) or type(stored_number(before)) is not type(stored_number(after))
