"""Run an agent once: its function or its prompt, within its timeout; however it ends becomes an event."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from heliograph.codes import ACTION_FAILED, TIMEOUT
from heliograph.errors import HarnessError, HeliographError, InvalidInput, TurnTimedOut, shown, told, with_hint
from heliograph.execution.context import Context
from heliograph.execution.model_agent import AgentLoop
from heliograph.execution.owned_turn import Held
from heliograph.policy.retry import backoff_seconds, jitter_of
from heliograph.reactive.state_update import fold_changes
from heliograph.signals.values import check_size, to_json
from heliograph.turn.calls import Journal
from heliograph.turn.events import Acted, PutOff, Raised, Waiting
from heliograph.turn.interruptions import DELAY_SECONDS_MAX, Defer, Interruption, Suspended
from heliograph.types import Json, JsonObject

log = logging.getLogger("heliograph.worker")

MESSAGE_MAX = 8192  # characters: four bytes each are half of what a signal may carry
_LEFT = "its turn has gone on without this task: await what you start before the function returns"
_PLAIN = "a plain function cannot be left and run again while it waits; write async def, not def"

Ended = Acted | Raised | Waiting | PutOff


async def act(held: Held, context: Context, journal: Journal, agent_loop: AgentLoop) -> Ended:
    """How one run of the agent ended. Cancellation and TurnLost pass through."""
    spec, world = held.spec, held.kit.world
    is_partial = False
    limit: JsonObject | None = None
    try:
        if spec.prompt is not None:
            answer = await world.within(spec.timeout_seconds, agent_loop(held, context, journal))
            output, is_partial, limit = answer.output, answer.is_partial, answer.limit
        else:
            output = to_json(await world.within(spec.timeout_seconds, _run(held, context, journal)))
        journal.check_left()
        check_size(output, f"what agent {spec.name} returned", "/output")
        if not is_partial:
            _try_update(held, output)
        return Acted(output, is_partial, limit)
    except (Interruption, BaseExceptionGroup) as left:
        return _left(_meant(left), held, journal)
    except TurnTimedOut:
        return Raised("timeout", TIMEOUT, f"agent {spec.name} ran longer than {spec.timeout_seconds:g} s")
    except (
        Exception,
        SystemExit,
        KeyboardInterrupt,
    ) as error:  # what ends a program ends the agent's turn here, not the worker
        return _failed(error, held, journal)
    finally:
        journal.why_not = _LEFT


def _left(left: BaseException, held: Held, journal: Journal) -> Ended:
    """The function was left on purpose: to wait, or to be put off. Raises TurnLost."""
    if isinstance(left, Defer):
        return PutOff(left.reason, left.seconds, left.at_most)
    if isinstance(left, Suspended) and journal.problem is None:
        return Waiting(journal.new_calls, journal.join)
    if isinstance(left, Interruption) and not isinstance(left, Suspended):
        raise left
    return _failed(left, held, journal)


def _meant(left: BaseException) -> BaseException:
    """Of a task group's exceptions the one that counts: an error before what only interrupts, else the first."""
    if not isinstance(left, BaseExceptionGroup):
        return left
    _, errors = left.split(Interruption)
    found: BaseException = left if errors is None else errors
    while isinstance(found, BaseExceptionGroup) and (errors is None or len(found.exceptions) == 1):
        found = found.exceptions[0]
    return found


def _failed(error: BaseException, held: Held, journal: Journal) -> Raised | PutOff:
    """The event of a run that raised. A model that may answer later is asked later, as often as the agent allows."""
    claimed, spec = held.claimed, held.spec
    error = journal.problem or error  # what went wrong before counts: this may well follow from it
    at_most = journal.deferrals_before + spec.retries
    if isinstance(error, HarnessError) and error.recoverable and claimed.defers < at_most:
        attempt = claimed.defers - journal.deferrals_before + 1
        delay = backoff_seconds(attempt, jitter_of(claimed.turn_id, attempt))
        seconds = min(max(delay, error.retry_after_seconds), DELAY_SECONDS_MAX)  # a provider may say anything
        return PutOff(shown(error.message, 500), seconds, at_most)
    if isinstance(error, HeliographError):
        code = error.code if error.code.isupper() else ACTION_FAILED
        return Raised("failed", code, shown(with_hint(error), MESSAGE_MAX), error.recoverable)
    log.warning("agent %s raised in %s", spec.name, claimed.turn_id, exc_info=error)
    return Raised("failed", ACTION_FAILED, told(error, MESSAGE_MAX))


async def _run(held: Held, context: Context, journal: Journal) -> Any:
    """The function's result. Where it is left, a task that it has started may have begun a step since: that is done first,
    or it would be in doubt.
    """
    run: Any = held.spec.run
    try:
        return await (run(context) if inspect.iscoroutinefunction(run) else _run_plain(held, context, journal))
    except (Suspended, Defer, BaseExceptionGroup):
        journal.why_not = _LEFT
        await context._settled()
        raise


async def _run_plain(held: Held, context: Context, journal: Journal) -> Any:
    """A plain function's result; one that only wraps an async function answers what is still to be awaited."""
    assert held.spec.run is not None
    journal.why_not = _PLAIN
    result = await held.kit.world.run_sync(held.spec.run, context)
    if not inspect.isawaitable(result):
        return result
    journal.why_not = None
    return await result


def _try_update(held: Held, output: Json) -> None:
    """Raise now what a wrong output would raise in the reaction, while the turn can still end as failed."""
    workflow = held.workflow
    try:
        workflow.shape.load(fold_changes(workflow.reducers, held.spec, held.claimed.run.state, output))
    except Exception as error:
        held.taint.read_state()  # reducers and validators have read it, and the message may quote it
        if isinstance(error, InvalidInput):
            raise HeliographError(f"what agent {held.spec.name} returned does not fit: {error.message}") from error
        raise
