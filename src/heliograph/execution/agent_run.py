"""Run an agent once, its function or its prompt, within its timeout. Return the event that follows."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from heliograph.codes import ACTION_FAILED, NETWORK_ERROR, TIMEOUT, code_in_phase
from heliograph.definitions.hooks import MethodHook
from heliograph.error_text import format_exception, is_network_error, safe_repr, with_hint
from heliograph.errors import HeliographError, InvalidInput, TurnTimedOut
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.context import Context
from heliograph.execution.model_agent import AgentLoop, AgentOutput
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.reactive.state_update import fold_changes
from heliograph.signals.error_payload import MESSAGE_MAX, details_of
from heliograph.signals.values import check_size, to_json
from heliograph.turn.decisions import deferral_after, retry_counts
from heliograph.turn.events import Acted, DeferTurn, Raised, SuspendTurn
from heliograph.turn.halt_reasons import halt_reason_of
from heliograph.turn.interruptions import Defer, Interruption, Suspended
from heliograph.turn.journal import Journal
from heliograph.types import Json
from heliograph.world.seam import World

log = logging.getLogger("heliograph.execution")

_HAS_RETURNED = "the function has returned without this task: await every task that it starts"
_PLAIN = "a plain function cannot be interrupted while it waits; write async def, not def"

RunEvent = Acted | Raised | SuspendTurn | DeferTurn

T = TypeVar("T")
E = TypeVar("E")


async def act(owned: OwnedTurn, context: Context, replay: CallReplay, agent_loop: AgentLoop) -> RunEvent:
    """Run the agent and return the event that follows. Cancellation and TurnLost propagate."""
    spec = owned.spec

    def acted(result: AgentOutput) -> Acted:
        check_output(owned, result, context)
        return Acted(result.output, result.is_partial, result.limit)

    work = acting(owned, context, replay, agent_loop)
    return await attempt(owned, replay.journal, work, acted, _limits(spec.name, spec.timeout_seconds))


async def acting(owned: OwnedTurn, context: Context, replay: CallReplay, agent_loop: AgentLoop) -> AgentOutput:
    """The output of the agent's function, or of its loop."""
    run = owned.spec.run
    if run is None:
        return await agent_loop.act(owned, context, replay)
    return AgentOutput(to_json(await call_function(run, owned, context, replay)))


def check_output(owned: OwnedTurn, result: AgentOutput, context: Context) -> None:
    """Raise the errors of an output that is too large, or that the state does not accept."""
    check_size(result.output, f"the output of agent {owned.spec.name}", "/output")
    if not result.is_partial:
        _try_update(owned, result.output, is_payload=not context.emitted)


class Attempt(Struct, frozen=True):
    """The limits of one run of a function. late: the message after `seconds`. code: of errors without one of their own."""

    seconds: float
    late: str
    code: str = ACTION_FAILED
    scope: str = "turn"
    phase: str = "act"


@lru_cache(1024)
def _limits(agent: str, seconds: float) -> Attempt:
    return Attempt(seconds, f"agent {agent} ran longer than {seconds:g} s")


async def attempt(
    owned: OwnedTurn, journal: Journal, work: Awaitable[T], event_of: Callable[[T], E], limits: Attempt
) -> E | Raised | SuspendTurn | DeferTurn:
    """The event of the result of `work`, or of its exception. Cancellation and TurnLost propagate."""
    try:
        result = await owned.world.within(limits.seconds, work)
        journal.check_not_waiting()
        return event_of(result)
    except (Interruption, BaseExceptionGroup) as raised:
        return _interruption_event(_decisive_exception(raised), owned, journal, limits)
    except TurnTimedOut as error:
        late = TurnTimedOut(limits.late)
        deferral = deferral_after(late, owned.claimed, owned.spec, journal.deferrals_before, limits.phase, error.code)
        if deferral is not None and limits.scope != "total":  # after the turn's lifetime, there is no later
            return deferral
        counts = retry_counts(owned.claimed, owned.spec, journal.deferrals_before, limits.phase)
        return Raised("timeout", TIMEOUT, limits.late, scope=limits.scope, details=counts)
    except (
        Exception,
        SystemExit,
        KeyboardInterrupt,
    ) as error:  # an exit of the program ends the turn, not the worker
        return _failed(error, owned, journal, limits)
    finally:
        journal.wait_forbidden = _HAS_RETURNED


def _interruption_event(
    raised: BaseException, owned: OwnedTurn, journal: Journal, limits: Attempt
) -> Raised | SuspendTurn | DeferTurn:
    """The event of a function that suspended or deferred its turn. Raises TurnLost."""
    if isinstance(raised, Defer):
        return DeferTurn(raised.reason, raised.seconds, raised.at_most)
    if isinstance(raised, Suspended) and journal.error is None:
        return SuspendTurn(journal.new_calls, journal.join)
    if isinstance(raised, Interruption) and not isinstance(raised, Suspended):
        raise raised
    return _failed(raised, owned, journal, limits)


def _decisive_exception(raised: BaseException) -> BaseException:
    """The exception of a task group that decides: an error before an interruption, otherwise the first."""
    if not isinstance(raised, BaseExceptionGroup):
        return raised
    _, errors = raised.split(Interruption)
    found: BaseException = raised if errors is None else errors
    while isinstance(found, BaseExceptionGroup) and (errors is None or len(found.exceptions) == 1):
        found = found.exceptions[0]
    return found


def _failed(error: BaseException, owned: OwnedTurn, journal: Journal, limits: Attempt) -> Raised | DeferTurn:
    """The event of a run that raised. An error that may pass defers the turn, as often as the agent allows."""
    error = journal.error or error  # an earlier error of the journal may be the cause of this one
    spec = owned.spec
    code = limits.code
    if isinstance(error, HeliographError):
        if error.code.isupper() and error.code != ACTION_FAILED:
            code = error.code
    elif is_network_error(error):
        code = NETWORK_ERROR
    if (
        deferral := deferral_after(
            error,
            owned.claimed,
            spec,
            journal.deferrals_before,
            limits.phase,
            code_in_phase(code, limits.phase),
            owned.workflow.model_settings,
        )
    ) is not None:
        return deferral
    counts = retry_counts(owned.claimed, spec, journal.deferrals_before, limits.phase)
    if isinstance(error, HeliographError):
        return Raised("failed", code, safe_repr(with_hint(error), MESSAGE_MAX), error.recoverable,
                      details={**details_of(error.details), **counts},
                      halt=halt_reason_of(error))  # fmt: skip
    log.warning("agent %s raised in %s", spec.name, owned.claimed.turn_id, exc_info=error)
    return Raised("failed", code, format_exception(error, MESSAGE_MAX), code == NETWORK_ERROR, details=counts)


async def call_function(run: Callable[[Any], Any], owned: OwnedTurn, context: Context, replay: CallReplay) -> Any:
    """The result of the function. After an interruption, wait for running steps, which would be in doubt otherwise."""
    journal = replay.journal
    try:
        return await (
            run(context)
            if _is_async(run.method if isinstance(run, MethodHook) else run)
            else _run_plain(run, context, owned.world, journal)
        )
    except (Suspended, Defer, BaseExceptionGroup):
        journal.wait_forbidden = _HAS_RETURNED
        await replay.settled()
        raise


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether a call of the function returns a coroutine. For most functions the flag of their code decides, which is faster."""
    code = getattr(function, "__code__", None)
    has_flag = code is not None and code.co_flags & inspect.CO_COROUTINE
    return bool(has_flag) or inspect.iscoroutinefunction(function)


async def _run_plain(run: Callable[[Context], Any], context: Context, world: World, journal: Journal) -> Any:
    """The result of a plain function, which may return an awaitable because it wraps an async function."""
    journal.wait_forbidden = _PLAIN
    result = await world.run_sync(run, context)
    journal.wait_forbidden = None
    return await result if inspect.isawaitable(result) else result


def _try_update(owned: OwnedTurn, output: Json, *, is_payload: bool) -> None:
    """Raise the errors of the reaction to this output now, while the turn can still end as failed."""
    workflow = owned.workflow
    if not owned.spec.updates:
        return
    try:
        workflow.shape.load(fold_changes(workflow, owned.spec, owned.claimed.run.state, output, is_payload=is_payload))
    except Exception as error:
        owned.taint.read_state()  # the message may quote it, because reducers and validators read it
        if isinstance(error, InvalidInput):
            raise HeliographError(
                f"the output of agent {owned.spec.name} does not match the state: {error.message}"
            ) from error
        raise
