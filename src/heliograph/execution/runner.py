"""Run one owned turn until it delivers, suspends, or loses its lease. The only caller of `advance`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TypeVar

from msgspec.structs import replace

from heliograph.codes import ACTION_FAILED, NOT_DETERMINISTIC, UNDECODABLE
from heliograph.definitions.hooks import MethodHook
from heliograph.error_text import safe_repr
from heliograph.errors import AgentFailed, InvalidInput, KernelRejected
from heliograph.execution.agent_run import act
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.cleanup import Cleanups
from heliograph.execution.context import Context
from heliograph.execution.delegation_progress import report_in_progress
from heliograph.execution.deliver import deliver
from heliograph.execution.hydrate import hydrate, reads_nothing
from heliograph.execution.ledger_memory import LedgerMemory
from heliograph.execution.model_agent import AgentLoop
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.ownership import OwnedLedger
from heliograph.execution.phase_context import PhaseContext
from heliograph.execution.phase_events import PhaseEvents
from heliograph.execution.phase_progress import PhaseProgress
from heliograph.execution.phase_run import PhaseRun
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.seams import Seams
from heliograph.execution.signal_buffer import SignalBuffer
from heliograph.execution.step_events import emit_step_event
from heliograph.execution.suspend import defer, reject_calls, reject_not_admitted, suspend
from heliograph.execution.task_names import TaskNames
from heliograph.execution.turn_failure import code_of, message_of
from heliograph.ports import Memory
from heliograph.records import Claimed, StopOrder, WriteResult
from heliograph.turn.calls import task_of
from heliograph.turn.decisions import after_suspension, first_event
from heliograph.turn.events import (
    Act,
    DeferTurn,
    Deliver,
    Emit,
    Event,
    Hydrated,
    PhaseEnded,
    Raised,
    RecordPhase,
    Resolved,
    Stopped,
    SuspendTurn,
)
from heliograph.turn.journal import Journal
from heliograph.turn.machine import advance
from heliograph.turn.phase_signals import Turn
from heliograph.turn.phases import Phase
from heliograph.turn.rounds import Rounds
from heliograph.turn.taint import Taint
from heliograph.types import Json
from heliograph.world.seam import Task

log = logging.getLogger("heliograph.execution")

T = TypeVar("T")


_INTERRUPTIBLE = (Hydrated, SuspendTurn, DeferTurn, Resolved)  # a turn with an outcome is delivered anyway


class TurnRunner:
    """The run of one owned turn.

    task: the task that awaits `run`, set by the worker. lost_at: when this worker learned that it lost the turn.
    """

    def __init__(self, claimed: Claimed, services: ProjectServices, agent_loop: AgentLoop, seams: Seams | None = None):
        """seams: those of a turn that is recorded, in place of the services'."""
        self.services = services
        self._agent_loop = agent_loop
        workflow, project = services.workflows[claimed.target], services.project
        if seams is None:
            seams = Seams(services.world, OwnedLedger(services.ledger, claimed), services.inputs)
        world, ledger, inputs = seams.world, seams.ledger, seams.inputs
        self.spec = workflow.agents[claimed.agent]
        taint = Taint(claimed, self.spec)
        if claimed.waits:
            taint.absorb(claimed.waits)  # until the agent runs and reads them one by one
        self.signals = SignalBuffer(claimed, ledger, world, project, workflow.wakes, taint, services.metrics)
        self.owned = OwnedTurn(
            claimed, self.spec, workflow, project, world, ledger, self.signals, taint, services.state_events,
            world.monotonic() + claimed.ttl_seconds, trace=services.tracer.turn(claimed, project),
            inputs=inputs,
        )  # fmt: skip
        has_observers = bool(workflow.phase_handlers) or services.metrics is not None
        self._phases = None if not has_observers else PhaseEvents(
            workflow.phase_handlers, services.handler_queues, claimed, inputs.observer(world), has_hooks=bool(self.spec.hooks),
            metrics=services.metrics,
        )  # fmt: skip
        self._progress = PhaseProgress()
        turn = Turn(claimed.agent, claimed.activation_id, workflow.ready[claimed.agent], rounds=Rounds.of(self.spec),
                    recoverable=self.spec.lifecycle.error_recoverable)  # fmt: skip
        self.turn = turn if turn.rounds is None else self._progress.restore(turn, self.owned)
        self.emitted: tuple[tuple[str, Json], ...] = ()
        self.usage = (0, 0)
        self.task: Task | None = None
        self.has_begun = False
        self.lost_at: float | None = None
        self._is_acting = False
        self._is_cleaning_up = False
        self._cleanups: Cleanups | None = None  # of the current run of the agent
        if claimed.stop is not None:
            self._obey(claimed.stop)

    @property
    def claimed(self) -> Claimed:
        return self.owned.claimed

    @property
    def problem_of_phases(self) -> str | None:
        """Why the agent cannot continue after the recorded phases; None if it can."""
        return self._progress.problem

    @property
    def phase(self) -> str:
        return str(self.turn.phase)

    @property
    def may_be_released(self) -> bool:
        """Whether another worker may run the turn again; not for an agent that may run once and has begun."""
        return self.spec.effect != "once" or not self.has_begun

    def stop(self, reason: str) -> None:
        """End the turn as canceled. Its work is cancelled, except a terminate hook; a kernel call under way finishes first."""
        if self.owned.cancel_flag.reason is None:
            self.owned.cancel_flag.reason = reason
            self.owned.inputs.stopping(reason)
            if self.services.metrics is not None:
                self.services.metrics.halted()
            if not self._is_terminating:
                self._cancel_act()

    def _obey(self, order: StopOrder | None) -> Stopped | None:
        """Obey a stop that came with another answer of the kernel. Returns the stop that this worker knows, if any."""
        if order is not None:
            self.stop(order.reason or "stopped")
        return self._stopped()

    def abandon(self) -> None:
        """Cancel the work of a lost turn. A commit under way finishes: it may be the one that ended the turn."""
        self._cancel_act()
        if self._is_cleaning_up and self.task is not None:
            self.task.cancel()

    @property
    def _is_terminating(self) -> bool:
        """Whether the outcome is decided, and the terminate hook runs."""
        return self.turn.rounds is not None and self.turn.phase is Phase.TERMINATE

    @property
    def is_ending(self) -> bool:
        """Whether no code of the agent runs: the turn waits for the reply to a commit, or is about to make one."""
        return not self._is_acting and not self._is_cleaning_up

    def _cancel_act(self) -> None:
        if self._is_acting and self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Run the turn. Raises TurnLost when another worker owns it; nothing more may be written then."""
        if self.services.metrics is not None:
            self.services.metrics.claimed(self.owned.claimed)
        with self.owned.trace.claimed():
            await self._run()

    async def _run(self) -> None:
        first = self._first_event()
        is_resumed = isinstance(first, Hydrated) and (
            first.is_resumed or (first.has_emitted_signals and not self.spec.hooks)
        )
        if self._phases is not None:
            phase = Phase.ACT if is_resumed and self.turn.rounds is None else self.turn.phase
            self._phases.begin(phase, self._progress.ended_at, is_new=not is_resumed)
        event: Event | None = await self._hydrated(first)
        while event is not None:
            if self.owned.cancel_flag.reason is not None and isinstance(event, _INTERRUPTIBLE):
                event = self._interrupting(event) or event
            before, mark = self.turn, self.signals.mark()
            try:
                event = await self._advance(event)
            except (AgentFailed, KernelRejected) as error:
                if isinstance(event, Raised | Stopped):
                    if Phase.TERMINATE not in self.spec.hooks or before.rounds is None or before.rounds.end is not None:
                        raise  # the failure itself is rejected: the lease runs out, and the kernel ends the turn (K23)
                    # it cannot be recorded, so it has no terminate hook
                    hooks = before.rounds.hooks - {Phase.TERMINATE}
                    before = replace(before, rounds=replace(before.rounds, hooks=hooks))
                # the current state does not accept the output, or the store rejects the signals; a retry would fail again
                self.turn = before
                self.signals.rewind(mark)
                if self._phases is not None:
                    self._phases.discard()
                self.owned.taint.read_state()  # the message may quote it
                event = Raised("failed", code_of(error, before), message_of(self.claimed.turn_id, error))

    def _interrupting(self, event: Event) -> Stopped | None:
        """The stop that takes the place of `event`, if there is one. A terminate hook may run, but may not wait then."""
        return None if self._is_terminating and isinstance(event, Hydrated | Resolved) else self._stopped()

    def _stopped(self) -> Stopped | None:
        return None if self.owned.cancel_flag.reason is None else Stopped(self.owned.cancel_flag.reason)

    def _first_event(self) -> Hydrated | Raised:
        if self._progress.problem is not None:
            return Raised("failed", NOT_DETERMINISTIC, self._progress.problem)
        event = first_event(self.claimed, self.spec)
        if isinstance(event, Raised):
            log.error("%s was dispatched without a message of type turn in the inbox", self.claimed.turn_id)
        return event

    async def _hydrated(self, event: Event) -> Event:
        """The first event of a turn, after reading its tools and boxes."""
        if not isinstance(event, Hydrated) or event.is_run_over or (event.recoveries and not event.may_run_again):
            return event
        if (problem := self._problem_of_start()) is not None:
            return replace(event, problem=safe_repr(problem, 2000))
        if reads_nothing(self.owned):
            return event
        acts = event.terminating_result is None and not event.awaits_terminating
        lists_tools = acts and self._stopped() is None  # a server that hangs would use up the grace of the stop
        try:
            resources = await self._stoppable(hydrate(self.owned, self.services.toolbox, lists_tools=lists_tools))
        except AgentFailed as error:
            if error.code == UNDECODABLE:
                return Raised("failed", UNDECODABLE, safe_repr(error.message, 2000))
            return replace(event, problem=safe_repr(error.message, 2000))
        if isinstance(resources, Stopped):
            return resources
        self.owned = replace(self.owned, resources=resources)
        return event

    def _problem_of_start(self) -> str | None:
        """The missing credential, or the problems of the task, without which the turn may not start."""
        owned, names = self.owned, self.spec.credentials
        if names and (problem := owned.inputs.problem_of_credentials(names, owned.workflow.secrets)) is not None:
            return problem
        task_problems = self.spec.task_problems
        if task_problems is None or not (problems := task_problems(task_of(self.claimed.cause))):
            return None
        self.owned.taint.read_signal()  # the message may quote it
        return f"the task of agent {self.spec.name} does not match its task_schema: {'; '.join(problems)}"

    async def _stoppable(self, work: Awaitable[T]) -> T | Stopped:
        """The result of `work`; Stopped where a stop cancelled it."""
        self._is_acting = True
        try:
            return await work
        except asyncio.CancelledError:
            if (stopped := self._stopped()) is None:
                raise
            # this worker cancelled the work itself, still owns the turn, and has to end it
            current = asyncio.current_task()
            if current is not None and current.uncancel() > 0:
                raise
            return stopped
        finally:
            self._is_acting = False

    async def _advance(self, event: Event) -> Event | None:
        """One step of the machine. Returns the next event; None after the turn ended or was released."""
        self.turn, effects = advance(self.turn, event, self.owned.world.now())
        self.signals.phase = str(self.turn.phase)
        if self._phases is not None:
            self._phases.advance(effects, self.turn)
        for effect in effects:
            match effect:
                case Emit(drafts):
                    self.signals.add_all(drafts)
                case RecordPhase():
                    assert self.turn.rounds is not None
                    following = self.turn.rounds.record_id(self.turn.phase)
                    await self._progress.record(self.owned, effect, following)
                case Act():
                    return await self._act()
                case SuspendTurn():
                    return await self._after_suspend(await suspend(self.owned, self.services, effect), effect)
                case DeferTurn():
                    result = await defer(self.owned, self.services, effect)
                    if result.outcome == "stopping":
                        return self._obey(result.stop)
                    if result.outcome == "deferred":
                        self.owned.trace.released("deferred")
                        await self._progress.release(self.owned)
                case Deliver():
                    await self._deliver(effect)
        return None

    async def _deliver(self, effect: Deliver) -> None:
        if self._cleanups is not None and self._cleanups.functions:
            await self._clean_up(self._cleanups)
        await deliver(self.owned, self.services, effect, self.emitted, self.usage)
        if self._phases is not None:
            self._phases.end(effect)
        self.owned.trace.ended(self.owned.claimed, effect.outcome, effect.error, self.usage)
        emit_step_event(self.owned.world, self.owned.claimed, None, self.phase)

    async def _act(self) -> Event:
        if self._phases is not None:
            self._phases.send()
        turn, rounds, claimed, world = self.turn, self.turn.rounds, self.owned.claimed, self.owned.world
        task_names = TaskNames()
        prefix = "" if rounds is None else f"{rounds.record_id(turn.phase)}-"
        journal = Journal(claimed.agent, self.owned.waits, task_names.current, prefix)
        if self.has_begun or self.owned.taint.has_read:  # this run reads its content again
            self.owned = replace(self.owned, taint=Taint(claimed, self.spec))
            self.signals.taint = self.owned.taint
        if rounds is not None:
            self._progress.begin(self.owned.taint, journal)
        try:
            replay = CallReplay(self.owned, journal)
            cleanups = Cleanups(self._progress.cleanups)
            memory = self.owned.workflow.memory or LedgerMemory(self.services.ledger)
            context = self._context(replay, cleanups, memory)
            self._cleanups = cleanups
        except InvalidInput as error:  # another version of the application wrote the state
            self.owned.taint.read_state()  # the message may quote it
            return Raised("failed", ACTION_FAILED, safe_repr(error.message, 2000))
        await world.failpoint("before_act")
        reason = self.owned.cancel_flag.reason  # a stop may have arrived since the claim
        if reason is not None and not self._is_terminating:
            return Stopped(reason)
        if not self.has_begun:
            report_in_progress(self.owned)
        self.has_begun = True
        if world.is_observed:
            emit_step_event(world, claimed, None, str(turn.phase))
            self.services.state_events.emit(world, claimed, "thinking")
        work: Awaitable[Event] = (
            PhaseRun(self.owned, turn.phase, context, replay, self._agent_loop, task_names).event()
            if isinstance(context, PhaseContext) and rounds is not None
            else act(self.owned, context, replay, self._agent_loop)
        )
        try:
            event = await self._stoppable(work)
        finally:
            before = self._progress.results.tokens
            # of the whole turn, because recorded replies count again
            self.usage = before[0] + journal.tokens[0], before[1] + journal.tokens[1]
        if not isinstance(event, Stopped):
            self.emitted = tuple(context.emitted)
        if isinstance(event, PhaseEnded) and isinstance(context, PhaseContext):
            self._progress.end(context, journal, self.owned)
            self._progress.cleanups = self._cleanups
            self.owned.executed_steps.clear()  # the next phase numbers its model calls from 1
        return event

    def _context(self, replay: CallReplay, cleanups: Cleanups, memory: Memory) -> Context:
        """The context of the agent's function, or of its current hook. The only method of a class receives that of a hook."""
        turn, rounds = self.turn, self.turn.rounds
        if rounds is None and isinstance(self.spec.run, MethodHook):
            rounds = Rounds(frozenset(), self.spec.lifecycle)
        if rounds is None:
            return Context(self.owned, replay, cleanups, memory)
        return PhaseContext(self.owned, replay, cleanups, memory, turn.phase, rounds, self._progress.results)

    async def _clean_up(self, cleanups: Cleanups) -> None:
        self._is_cleaning_up = True
        try:
            await cleanups.run_as_owner(self.owned, self.phase)
        finally:
            self._is_cleaning_up = False

    async def _after_suspend(self, result: WriteResult, effect: SuspendTurn) -> Event | None:
        """The next event after the kernel answered a suspension."""
        if result.budget is not None or result.calls:
            try:
                await (reject_not_admitted if result.calls else reject_calls)(self.owned, effect, result)
            except asyncio.CancelledError:  # a stop arrived meanwhile
                if (stopped := self._stopped()) is None:
                    raise
                return stopped
            return Resolved()
        if result.outcome == "stopping":
            return self._obey(result.stop)
        if result.outcome == "suspended":
            self.owned.trace.released("suspended")
            await self._progress.release(self.owned)
        event = after_suspension(result, self.claimed, self.spec)
        if isinstance(event, Resolved):
            claimed = replace(self.claimed, waits=result.waits)
            self.owned = replace(self.owned, claimed=claimed, rejected=[])
            self.owned.taint.absorb(result.waits)  # one of them may end the turn at once
            if self.services.metrics is not None:
                self.services.metrics.resolved(claimed.turn_id, result.waits)
        return event
