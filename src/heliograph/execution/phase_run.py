"""Run the current phase of an agent with hooks, within its timeout. Return the event that follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from heliograph.codes import ACTION_FAILED, CODE_OF_PHASE
from heliograph.definitions.hooks import ModelHook
from heliograph.definitions.plan import decision_json, plan_json, plan_of
from heliograph.error_text import format_exception
from heliograph.errors import AgentFailed, TurnTimedOut
from heliograph.execution.agent_run import Attempt, acting, attempt, call_function, check_output
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.cleanup import CLEANUP_SECONDS
from heliograph.execution.model_agent import AgentLoop, AgentOutput
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.phase_context import PhaseContext
from heliograph.execution.step_recorder import store_call
from heliograph.execution.task_names import TaskNames
from heliograph.signals.values import check_size, to_json
from heliograph.turn.events import DeferTurn, PhaseEnded, Raised, SuspendTurn
from heliograph.turn.phases import Phase
from heliograph.types import Json, JsonObject

log = logging.getLogger("heliograph.execution")

T = TypeVar("T")
PhaseEvent = PhaseEnded | Raised | SuspendTurn | DeferTurn


def failure_code(phase: Phase) -> str:
    """The code of an error in this phase that has no code of its own."""
    return CODE_OF_PHASE.get(phase, ACTION_FAILED)


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One run of the current phase of an owned turn. task_names: those of the journal."""

    owned: OwnedTurn
    phase: Phase
    context: PhaseContext
    replay: CallReplay
    agent_loop: AgentLoop
    task_names: TaskNames

    async def event(self) -> PhaseEvent:
        """The event that follows. Cancellation and TurnLost propagate."""
        if self.phase is Phase.TERMINATE:
            return await self._terminated()
        return await attempt(self.owned, self.replay.journal, self._work(), self._ended, self._limits())

    def _limits(self) -> Attempt:
        """The timeout of the phase, or the rest of the turn's lifetime if that is shorter."""
        spec, owned = self.owned.spec, self.owned
        seconds = spec.lifecycle.timeout_seconds(self.phase, spec.timeout_seconds)
        late = f"phase {self.phase} of agent {spec.name} ran longer than {seconds:g} s"
        kept = spec.lifecycle.terminate_timeout_seconds if Phase.TERMINATE in spec.hooks else 0.0
        rest = max(owned.ends_at - owned.world.monotonic() - kept, 0.001)
        if rest >= seconds:
            return Attempt(seconds, late, failure_code(self.phase), "phase", self.phase)
        late = f"phase {self.phase} of agent {spec.name} reached the end of the turn's lifetime (ttl_seconds)"
        return Attempt(rest, late, failure_code(self.phase), "total", self.phase)

    def _ended(self, value: JsonObject | None) -> PhaseEnded:
        memory = to_json(self.context.working_memory, "/working_memory")
        check_size(memory, f"the working memory of agent {self.owned.spec.name}", "/working_memory")
        assert isinstance(memory, dict)
        self.context.working_memory = memory
        return PhaseEnded(value)

    async def _work(self) -> JsonObject | None:
        match self.phase:
            case Phase.PLAN:
                return await self._planned()
            case Phase.ACT:
                return await self._acted()
            case Phase.REFLECT:
                return await self._reflected()
        if (hook := self.owned.spec.hooks.get("init")) is not None:
            await self._call(hook)
        return None

    async def _call(self, hook: Any) -> Any:
        return await call_function(hook, self.owned, self.context, self.replay)

    async def _with_model(self, work: Callable[[OwnedTurn, PhaseContext, CallReplay], Awaitable[T]]) -> T:
        return await work(self.owned, self.context, self.replay)

    async def _planned(self) -> JsonObject | None:
        hook = self.owned.spec.hooks["plan"]
        found = await (self._with_model(self.agent_loop.plan) if isinstance(hook, ModelHook) else self._call(hook))
        if isinstance(hook, ModelHook) and hook.schema is not None:
            plan: JsonObject | None = found if isinstance(found, dict) else {"plan": found}
        else:
            plan = plan_json(found)
            if self.owned.spec.executes_plan and (read := plan_of(plan)) is not None:
                self.agent_loop.check_plan(self.owned, read)
        self.context.working_memory["current_plan"] = plan
        return plan

    async def _acted(self) -> JsonObject:
        if self.owned.spec.executes_plan:
            output = await self._with_model(self.agent_loop.execute)
        else:
            output = await acting(self.owned, self.context, self.replay, self.agent_loop)
        check_output(self.owned, output, self.context)
        memory = self.context.working_memory
        results = to_json(memory.get("action_results"))
        if not isinstance(results, list):
            results = [{"success": not output.is_partial, "output": output.output}]
        memory["action_results"] = results
        is_whole = all(not isinstance(each, dict) or bool(each.get("success", True)) for each in results)
        return {"output": output.output, "is_partial": output.is_partial, "limit": output.limit, "results": results,
                "success": is_whole}  # fmt: skip

    async def _reflected(self) -> JsonObject:
        hook, memory = self.owned.spec.hooks["reflect"], self.context.working_memory
        decision = decision_json(
            await (self._with_model(self.agent_loop.reflect) if isinstance(hook, ModelHook) else self._call(hook))
        )
        memory["last_reflection"] = decision
        await self.context.remember(_memory_text(decision), task_id=self.owned.claimed.turn_id, outcome=decision["decision"],
                                    learnings=decision["learnings"])  # fmt: skip
        if (output := decision.get("output")) is not None:
            check_output(self.owned, AgentOutput(output), self.context)
        return decision

    # ── The terminate hook ──

    async def _terminated(self) -> PhaseEnded | SuspendTurn | DeferTurn:
        """Run the hook. Its failure is logged, and changes nothing: the turn has its outcome."""
        owned, lifecycle = self.owned, self.owned.spec.lifecycle
        is_halted = owned.cancel_flag.reason is not None
        seconds = lifecycle.terminate_timeout_seconds
        if is_halted:  # a forced halt may not have reached this worker yet
            seconds = min(seconds, CLEANUP_SECONDS)
            await store_call(owned.ledger.append({"phase": str(self.phase), "signals_emitted": 0, "signals": []}))
        work = _abandonable(self._finalized_within(seconds), self.task_names)
        limits = Attempt(
            lifecycle.terminate_force_seconds, "it ignored its cancellation", ACTION_FAILED, "phase", self.phase
        )
        event = await attempt(owned, self.replay.journal, work, PhaseEnded, limits)
        if isinstance(event, Raised):
            log.error("the terminate hook of %s failed: %s", owned.claimed.turn_id, event.message)
            return PhaseEnded(None)
        return event

    async def _finalized_within(self, seconds: float) -> JsonObject | None:
        try:
            return await self.owned.world.within(seconds, self._finalized())
        except TurnTimedOut:
            log.error(
                "the terminate hook of %s took longer than %g s and was cancelled", self.owned.claimed.turn_id, seconds
            )
            return None

    async def _finalized(self) -> JsonObject:
        output: Json = to_json(await self._call(self.owned.spec.hooks["terminate"]))
        if output is not None and self.context.error is None:
            check_output(self.owned, AgentOutput(output), self.context)
        return {"output": output}


def _memory_text(decision: JsonObject) -> str:
    """The text of the memory that a decision leaves: its learnings; without any, the decision and its reason."""
    learnings, reason = decision["learnings"], decision.get("reason")
    if isinstance(learnings, list) and learnings:
        return "\n".join(map(str, learnings))
    return f"{decision['decision']}: {reason}" if reason else str(decision["decision"])


async def _without_exits(work: Awaitable[T]) -> T:
    """The result of `work`. A task that ends with an exit of the program would end the event loop, and with it the worker."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise AgentFailed(format_exception(error)) from error


async def _abandonable(work: Awaitable[T], task_names: TaskNames) -> T:
    """The result of `work`, which runs in a task of its own, so that it can be abandoned while it ignores its cancellation."""
    task = asyncio.ensure_future(_without_exits(work))
    task_names.assign(task, "")  # it is the hook itself, whose calls have no task in their ids
    try:
        await asyncio.wait([task])
        return task.result()
    finally:
        task.cancel()
