"""How free slots are shared out among projects, so that none of them can starve another (G-75). Pure."""

from __future__ import annotations

from collections.abc import Sequence


def fair_shares(room: int, in_use: Sequence[int]) -> list[int]:
    """How many of `room` slots each project may fill: those that hold least come first, until all hold the same.

    held: turns that each has in hand. Among equals the one that stands first gets the odd slot.
    """
    if len(in_use) <= 1:
        return [room] * len(in_use)
    given = [0] * len(in_use)
    for _ in range(room):
        least = min(range(len(in_use)), key=lambda n: in_use[n] + given[n])
        given[least] += 1
    return given
