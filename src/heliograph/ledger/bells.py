"""Which bells to ring after a commit: the kernel returns them with its answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class Bells(msgspec.Struct, frozen=True):
    """The part of an answer about the agents that the call woke.

    `targets` are the pools whose workers look for work. `woken` are the ids of those agents: the body of the wakeup
    event lists them for subscribers outside this project. Of a call with many items the first row lists them.
    """

    targets: tuple[str, ...] = ()
    woken: tuple[str, ...] = ()


def read_bells(rows: Iterable[dict[str, Any]]) -> Bells:
    """The bells of all rows of an answer, each once."""
    each = [msgspec.convert(row, Bells) for row in rows]
    return Bells(
        tuple(sorted({target for bells in each for target in bells.targets})),
        tuple(sorted({agent_id for bells in each for agent_id in bells.woken})),
    )
