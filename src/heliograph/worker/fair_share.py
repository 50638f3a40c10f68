"""Divide free slots among projects, so that none of them starves another. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def fair_shares(room: int, in_use: Sequence[int]) -> list[int]:
    """Return how many of `room` free slots each project may fill. Projects with the fewest running turns come first.

    in_use: the running turns of each project. Among equals the first one gets the odd slot.
    """
    if len(in_use) <= 1:
        return [room] * len(in_use)
    given = [0] * len(in_use)
    for _ in range(room):
        least = min(range(len(in_use)), key=lambda n: in_use[n] + given[n])
        given[least] += 1
    return given
