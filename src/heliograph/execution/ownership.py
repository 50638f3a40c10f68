"""The ownership of a turn: the part of each kernel call that proves it, and the exceptions that end a turn that is lost."""

from __future__ import annotations

from typing import Any

from heliograph.records import Claimed, WriteResult
from heliograph.turn.interruptions import Interruption


class TurnLost(Interruption):
    """Another epoch owns the turn, or the store cannot be asked. The drive ends here; whatever follows may be local
    only (L0-110). An interruption, because an agent that handles the errors of its steps must not handle this one."""


class TurnAbandoned(TurnLost):
    """The store could not be asked for so long that this worker goes on no more with a turn that may be its own still."""


def require_owned(result: WriteResult) -> WriteResult:
    """`written`, unless the kernel called the caller stale. Raises TurnLost."""
    if result.outcome == "stale":
        raise turn_lost(result.turn_id)
    return result


def turn_lost(turn_id: str) -> TurnLost:
    return TurnLost(f"{turn_id} is no longer this worker's; another worker owns it or it has ended")


def owner_fields(claimed: Claimed) -> dict[str, Any]:
    """The part of a kernel call's item that the owner gate looks at."""
    return {"agent_id": claimed.agent_id, "turn_id": claimed.turn_id, "epoch": claimed.epoch}
