"""The bells to ring after a commit, as the kernel returns them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class Bells(msgspec.Struct, frozen=True):
    """The agents that a kernel call woke.

    targets: the queues (see `queue_name`) whose workers should look for work. woken: the ids of the agents, which the wakeup event lists for subscribers
    outside Heliograph. If a call has many items, the first row of its result contains them.
    """

    targets: tuple[str, ...] = ()
    woken: tuple[str, ...] = ()


def read_bells(rows: Iterable[dict[str, Any]]) -> Bells:
    """Combine the bells of all rows of a result, without repetition."""
    each = [msgspec.convert(row, Bells) for row in rows]
    return Bells(
        tuple(sorted({target for bells in each for target in bells.targets})),
        tuple(sorted({agent_id for bells in each for agent_id in bells.woken})),
    )


def without_claimed(bells: Bells, claimed: Iterable[dict[str, Any]]) -> Bells:
    """The bells of agents that are not among the claimed rows; the queues of all of them, if one is left."""
    taken = {row["agent_id"] for row in claimed}
    woken = tuple(agent_id for agent_id in bells.woken if agent_id not in taken)
    return Bells(bells.targets, woken) if woken else Bells()
