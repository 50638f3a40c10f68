"""Run an agent once, its function or its prompt, within its timeout. Return the event that follows."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from heliograph.codes import ACTION_FAILED, TIMEOUT
from heliograph.definitions.agent import AgentSpec
from heliograph.error_text import format_exception, safe_repr, with_hint
from heliograph.errors import HeliographError, InvalidInput, TurnTimedOut
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.context import Context
from heliograph.execution.model_agent import AgentLoop
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.reactive.state_update import fold_changes
from heliograph.records import Claimed
from heliograph.signals.values import check_size, to_json
from heliograph.turn.decisions import deferral_after
from heliograph.turn.events import Acted, DeferTurn, Raised, SuspendTurn
from heliograph.turn.interruptions import Defer, Interruption, Suspended
from heliograph.turn.journal import Journal
from heliograph.types import Json, JsonObject
from heliograph.world.seam import World

log = logging.getLogger("heliograph.execution")

MESSAGE_MAX = 8192  # characters; with four bytes each, half of the limit of a signal
_HAS_RETURNED = "the function has returned without this task: await every task that it starts"
_PLAIN = "a plain function cannot be interrupted while it waits; write async def, not def"

RunEvent = Acted | Raised | SuspendTurn | DeferTurn


async def act(owned: OwnedTurn, context: Context, replay: CallReplay, agent_loop: AgentLoop) -> RunEvent:
    """Run the agent and return the event that follows. Cancellation and TurnLost propagate."""
    spec, world, journal = owned.spec, owned.world, replay.journal
    is_partial = False
    limit: JsonObject | None = None
    try:
        if spec.prompt is not None:
            result = await world.within(spec.timeout_seconds, agent_loop(owned, context, replay))
            output, is_partial, limit = result.output, result.is_partial, result.limit
        else:
            output = to_json(await world.within(spec.timeout_seconds, _run(owned, context, replay)))
        journal.check_not_waiting()
        check_size(output, f"the output of agent {spec.name}", "/output")
        if not is_partial:
            _try_update(owned, output)
        return Acted(output, is_partial, limit)
    except (Interruption, BaseExceptionGroup) as raised:
        return _interruption_event(_decisive_exception(raised), owned.claimed, spec, journal)
    except TurnTimedOut:
        return Raised("timeout", TIMEOUT, f"agent {spec.name} ran longer than {spec.timeout_seconds:g} s")
    except (
        Exception,
        SystemExit,
        KeyboardInterrupt,
    ) as error:  # an exit of the program ends the turn, not the worker
        return _failed(error, owned.claimed, spec, journal)
    finally:
        journal.wait_forbidden = _HAS_RETURNED


def _interruption_event(raised: BaseException, claimed: Claimed, spec: AgentSpec, journal: Journal) -> RunEvent:
    """The event of a function that suspended or deferred its turn. Raises TurnLost."""
    if isinstance(raised, Defer):
        return DeferTurn(raised.reason, raised.seconds, raised.at_most)
    if isinstance(raised, Suspended) and journal.error is None:
        return SuspendTurn(journal.new_calls, journal.join)
    if isinstance(raised, Interruption) and not isinstance(raised, Suspended):
        raise raised
    return _failed(raised, claimed, spec, journal)


def _decisive_exception(raised: BaseException) -> BaseException:
    """The exception of a task group that decides: an error before an interruption, otherwise the first."""
    if not isinstance(raised, BaseExceptionGroup):
        return raised
    _, errors = raised.split(Interruption)
    found: BaseException = raised if errors is None else errors
    while isinstance(found, BaseExceptionGroup) and (errors is None or len(found.exceptions) == 1):
        found = found.exceptions[0]
    return found


def _failed(error: BaseException, claimed: Claimed, spec: AgentSpec, journal: Journal) -> Raised | DeferTurn:
    """The event of a run that raised. A recoverable error of a model defers the turn, as often as the agent allows."""
    error = journal.error or error  # an earlier error of the journal may be the cause of this one
    if (deferral := deferral_after(error, claimed, spec, journal.deferrals_before)) is not None:
        return deferral
    if isinstance(error, HeliographError):
        code = error.code if error.code.isupper() else ACTION_FAILED
        return Raised("failed", code, safe_repr(with_hint(error), MESSAGE_MAX), error.recoverable)
    log.warning("agent %s raised in %s", spec.name, claimed.turn_id, exc_info=error)
    return Raised("failed", ACTION_FAILED, format_exception(error, MESSAGE_MAX))


async def _run(owned: OwnedTurn, context: Context, replay: CallReplay) -> Any:
    """The result of the function. After an interruption, wait for running steps, which would be in doubt otherwise."""
    run: Any = owned.spec.run
    journal = replay.journal
    try:
        return await (
            run(context) if inspect.iscoroutinefunction(run) else _run_plain(run, context, owned.world, journal)
        )
    except (Suspended, Defer, BaseExceptionGroup):
        journal.wait_forbidden = _HAS_RETURNED
        await replay.settled()
        raise


async def _run_plain(run: Callable[[Context], Any], context: Context, world: World, journal: Journal) -> Any:
    """The result of a plain function, which may return an awaitable because it wraps an async function."""
    journal.wait_forbidden = _PLAIN
    result = await world.run_sync(run, context)
    if not inspect.isawaitable(result):
        return result
    journal.wait_forbidden = None
    return await result


def _try_update(owned: OwnedTurn, output: Json) -> None:
    """Raise the errors of the reaction to this output now, while the turn can still end as failed."""
    workflow = owned.workflow
    try:
        workflow.shape.load(fold_changes(workflow.reducers, owned.spec, owned.claimed.run.state, output))
    except Exception as error:
        owned.taint.read_state()  # the message may quote it, because reducers and validators read it
        if isinstance(error, InvalidInput):
            raise HeliographError(
                f"the output of agent {owned.spec.name} does not match the state: {error.message}"
            ) from error
        raise
