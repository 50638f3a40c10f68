"""The structural differences of two JSON values, each at its JSON pointer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from heliograph.json_numbers import is_same_number
from heliograph.json_pointer import pointer


class Absent:
    """The side of a difference that has no value at the place. Unlike None, it is no JSON value."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = Absent()


class Difference(NamedTuple):
    """One place in which two values differ. path: its JSON pointer. A side without a value there has ABSENT."""

    path: str
    left: Any
    right: Any

    def as_json(self, left: str = "left", right: str = "right") -> dict[str, Any]:
        """Return the place with both sides under these keys, without the key of an absent side."""
        sides = ((left, self.left), (right, self.right))
        return {"path": self.path, **{key: side for key, side in sides if side is not ABSENT}}


def differences(left: Any, right: Any, path: str = "") -> Iterator[Difference]:
    """Yield the differences of two values, in the order of keys and indexes. 1 and 1.0 are equal, as are numbers that are stored as the same; 1 and true are not."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            yield from differences(left.get(key, ABSENT), right.get(key, ABSENT), pointer(path, key))
    elif isinstance(left, list) and isinstance(right, list):
        for n in range(max(len(left), len(right))):
            one = left[n] if n < len(left) else ABSENT
            other = right[n] if n < len(right) else ABSENT
            yield from differences(one, other, pointer(path, n))
    elif isinstance(left, bool) != isinstance(right, bool) or (left != right and not is_same_number(left, right)):
        yield Difference(path, left, right)
