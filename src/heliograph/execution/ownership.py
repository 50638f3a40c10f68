"""Proof that a worker owns a turn, in each kernel call, and the exceptions for a lost turn."""

from __future__ import annotations

from typing import Any

from heliograph.records import Claimed, WriteResult
from heliograph.turn.interruptions import Interruption


class TurnLost(Interruption):
    """Another epoch owns the turn, or the store is out of reach. The drive ends and writes nothing more (L0-110).

    It is an interruption, so agents that handle the errors of their steps do not catch it.
    """


class TurnAbandoned(TurnLost):
    """The store was out of reach for so long that this worker abandons a turn that it may still own."""


def require_owned(result: WriteResult) -> WriteResult:
    """Return `result`. Raises TurnLost where the kernel answered `stale`."""
    if result.outcome == "stale":
        raise turn_lost(result.turn_id)
    return result


def turn_lost(turn_id: str) -> TurnLost:
    return TurnLost(f"{turn_id} is no longer this worker's; another worker owns it or it has ended")


def owner_fields(claimed: Claimed) -> dict[str, Any]:
    """The fields by which a kernel function checks the owner."""
    return {"agent_id": claimed.agent_id, "turn_id": claimed.turn_id, "epoch": claimed.epoch}
