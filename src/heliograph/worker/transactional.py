"""Steps whose effect is in our own database: it is committed together with the record of it, or not at all (K13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heliograph.codes import TOOL_ERROR
from heliograph.errors import AgentFailed, KernelRefused, StoreUnavailable
from heliograph.records import Written
from heliograph.turn.calls import Asked, CallResult
from heliograph.worker.effect import error_of, outcome_of
from heliograph.worker.kit import TurnLost
from heliograph.world import Transaction

if TYPE_CHECKING:
    from heliograph.worker.steps import Steps

_TRIES = 3
_LOST = "connection_lost"


async def in_transaction(steps: Steps, asked: Asked, function: Callable[..., Any], args: tuple[Any, ...]) -> CallResult:
    """Commit the effect and its result together, or neither; the function's first argument is the connection.

    Whatever it raises undoes the effect, and is recorded by itself. Raises TurnLost, AgentFailed.
    """
    world = steps.kit.world
    for _ in range(_TRIES):
        try:
            async with world.transaction() as transaction:
                result = await outcome_of(world, asked, function, (transaction.connection, *args))
                outcome = "undone"
                if result.status == "success":
                    outcome = await _commit(steps, transaction, asked, result)
        except StoreUnavailable as error:
            raise TurnLost(f"given up, the store cannot be asked: {error.message}") from error
        except KernelRefused as error:  # of a transaction that cannot be committed nothing has happened
            message = f"it was undone: {error.message}"
            result = CallResult(asked.call_id, "failed", None, error_of(TOOL_ERROR, message, is_recoverable=True))
            outcome = "undone"
        if outcome == "undone":
            await steps.record(asked, result, [steps.resulted(asked, result)])
        if outcome in ("ok", "undone"):
            return result
        if (known := await steps.begin(asked, steps.tool_reserve)) is not None:
            return known
    raise TurnLost(f"given up, step {asked.tool} could not be committed {_TRIES} times")


async def _commit(steps: Steps, transaction: Transaction, asked: Asked, result: CallResult) -> str:
    """'ok', 'duplicate', or 'lost': the connection broke, and nothing of it is there. Raises also what the store says."""
    ledger = steps.kit.ledger

    async def send(said: int, drafts: list[dict[str, object]], _first: int) -> Written:
        try:
            return await ledger.record_call_in(transaction, steps.item(result, said, drafts))
        except StoreUnavailable:
            # either both are there or neither, and only the kernel knows
            begun = await ledger.begin_call(steps.intent(asked, steps.tool_reserve))
            outcome = {"done": "duplicate", "stale": "stale"}.get(begun.outcome, "refused")
            return Written(steps.turn_id, outcome, code=_LOST)  # type: ignore[arg-type]

    await steps.kit.world.point("before_record")
    written = await steps.voice.commit(send, [steps.resulted(asked, result)])
    if written.outcome == "refused" and written.code != _LOST:
        raise AgentFailed(f"the result of step {asked.tool} was not taken: {written.message}", code=written.code)
    return "lost" if written.outcome == "refused" else written.outcome
