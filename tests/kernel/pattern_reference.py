"""Containment of signal patterns, decided by two automata: a reference for the names that the store compares."""

from __future__ import annotations

import random

LENGTH_MAX, SEGMENTS_MAX = 200, 16
_LITERALS = ("a", "b", "a.b", "a-b", "x" * 40, "y" * 92, "z" * 198)


def is_contained(inner: str, outer: str) -> bool:
    """Whether `outer` matches each name of the allowed lengths that `inner` matches.

    It follows both patterns over all names at once. For each pair of sets of states it keeps the length of the shortest name. A name
    differs from others only in segments that a pattern has: None stands for all the rest, which are one character long or more.
    """
    patterns = inner.split(":"), outer.split(":")
    letters = [*({*patterns[0], *patterns[1]} - {"*", "**"}), None]
    reached = {(_closed(patterns[0], {0}), _closed(patterns[1], {0})): -1}
    for _ in range(SEGMENTS_MAX):
        following: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        for (inner_states, outer_states), length in reached.items():
            for letter in letters:
                pair = _step(patterns[0], inner_states, letter), _step(patterns[1], outer_states, letter)
                longer = length + 1 + len(letter or "_")
                if pair[0] and longer <= LENGTH_MAX:
                    following[pair] = min(longer, following.get(pair, longer))
        if any(len(patterns[0]) in i and len(patterns[1]) not in o for i, o in following):
            return False
        reached = following
    return True


def alike_pairs(count: int) -> list[tuple[str, str]]:
    """Pairs of patterns of up to 16 segments and 200 characters, where the second one is a changed copy of the first."""
    chance = random.Random(count)
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        inner = chance.choices([*_LITERALS, "*", "**"], [4, 4, 1, 1, 1, 0.5, 0.5, 6, 4], k=chance.randint(1, 16))
        outer = list(inner)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(outer))
            outer[place : place + chance.randint(0, 2)] = chance.choices(
                ["*", "**", "a"], [3, 3, 1], k=chance.randint(0, 2)
            )
            if not outer:
                outer = ["**"]
        pair = ":".join(inner), ":".join(outer)
        if all(len(p) <= LENGTH_MAX and p.count(":") < SEGMENTS_MAX and p.split(":").count("**") <= 2 for p in pair):
            pairs.append(pair)
    return pairs


def _closed(pattern: list[str], states: set[int]) -> frozenset[int]:
    for number, segment in enumerate(pattern):
        if segment == "**" and number in states:
            states.add(number + 1)
    return frozenset(states)


def _step(pattern: list[str], states: frozenset[int], letter: str | None) -> frozenset[int]:
    following = {n + (pattern[n] != "**") for n in states if n < len(pattern) and pattern[n] in ("*", "**", letter)}
    return _closed(pattern, following)
