"""Invalid values for arguments, and JSON of any shape."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

# Whole floats are left out: 3.0 is an integer to the in-memory kernel and text to a cast in SQL, and the runtime sends
# none there.
_JUNK: list[Any] = [None, "", "x", "7", -1, 0, 3, 10**12, 0.25, True, [], {}, [1], {"seq": 1}, "é\u2028", "a\u0000b"]
_VALUES: list[Any] = [
    None,
    True,
    "",
    "abc",
    "é",
    'x\n"\\',
    0,
    1,
    -5,
    10_000,
    12_345_678,
    10**12,
    10**20,
    0.25,
    1.5e-7,
    123.00004,
]


def spoil(args: tuple[Any, ...], dice: random.Random) -> tuple[Any, ...]:
    """One value somewhere in the JSON becomes junk, or goes missing."""
    spoiled = list(copy.deepcopy(args))
    places = [(spoiled, n) for n, arg in enumerate(spoiled) if isinstance(arg, list)]
    places += [place for arg in spoiled for place in _places(arg)]
    if not places:
        return args
    container, key = dice.choice(places)
    if isinstance(container, dict) and dice.random() < 0.3:
        del container[key]
    else:
        container[key] = dice.choice(_JUNK)
    return tuple(spoiled)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def any_json(seed: int) -> Any:
    return _any(random.Random(seed), 0)


def _any(dice: random.Random, depth: int) -> Any:
    kind = dice.random() if depth < 4 else 1.0
    if kind < 0.2:
        return [_any(dice, depth + 1) for _ in range(dice.randrange(4))]
    if kind < 0.5:
        keys = (f"{dice.choice(['a', 'bb', 'é', 'long key'])}{dice.randrange(3)}" for _ in range(dice.randrange(4)))
        return {key: _any(dice, depth + 1) for key in keys}
    return dice.choice(_VALUES)
