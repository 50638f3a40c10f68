"""Execute the steps of a plan, in order: tool calls and delegations like those of a model, and model steps.

Each step is one or several recorded calls, so an act phase that resumes continues after the last recorded one. Its ids are
those of a model's calls: `act-1-m3` for a model step that is the third call, `act-1-m3-1` for a tool call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.agent_loop.model_call import HarnessOf, Models
from heliograph.agent_loop.phase_prompts import results_text
from heliograph.agent_loop.recorded_model import recorded_reply
from heliograph.agent_loop.tool_call_router import ToolCallRouter
from heliograph.agent_loop.turn_tools import TurnTools
from heliograph.codes import TOOL_ERROR
from heliograph.definitions.agent_checks import check_contexts
from heliograph.definitions.plan import DelegationStep, ModelStep, PlanStep, ToolStep
from heliograph.definitions.tool import DELEGATE
from heliograph.errors import AgentFailed
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.model_agent import AgentOutput
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.phase_context import PhaseContext
from heliograph.policy.retry import RetryPolicy
from heliograph.ports import ToolCall, UserMessage
from heliograph.redaction import redacted_text
from heliograph.signals.values import to_json
from heliograph.types import Json, JsonObject

_MAY_REPEAT = ("pure", "idempotent", "transactional")


async def execute_plan(
    owned: OwnedTurn, context: PhaseContext, replay: CallReplay, *, harness_of: HarnessOf
) -> AgentOutput:
    """Execute the plan of the context. The output is that of the last step; `action_results` has all of them.

    Raises AgentFailed for a step that fails, unless the agent skips such steps; Suspended, and the errors of the harness.
    """
    execution = _Execution(owned, context, replay, harness_of)
    for step in () if context.plan is None else context.plan.steps:
        await execution.run(step)
    results = execution.results
    context.working_memory["action_results"] = results
    return AgentOutput(results[-1].get("output") if results else None)


class _Execution:
    """results: of the steps so far. A failed step that is skipped has an error in place of its output."""

    def __init__(self, owned: OwnedTurn, context: PhaseContext, replay: CallReplay, harness_of: HarnessOf):
        spec = owned.spec
        contexts = spec.contexts(context) if callable(spec.contexts) else spec.contexts
        self._owned = owned
        self._replay = replay
        self._models = Models(owned, harness_of)
        self._tools = TurnTools(owned, check_contexts(spec.name, contexts))
        self._router = ToolCallRouter(owned, replay, self._tools)
        self._calls = 0  # of this phase: each step and each repetition has its number
        self.results: list[JsonObject] = []

    async def run(self, step: PlanStep) -> None:
        """Add the result of one step. Raises AgentFailed (with the code of the step) where it fails and is not skipped."""
        lifecycle = self._owned.spec.lifecycle
        result = await self._once(step)
        for attempt in range(1, lifecycle.max_tool_retries + 1 if lifecycle.on_tool_error == "retry" else 1):
            if result["success"] or not self._may_repeat(step, result):
                break
            await self._pause(attempt)
            result = await self._once(step)
        if not result["success"] and lifecycle.on_tool_error != "skip":
            error: Any = result["error"]
            message = f"step {len(self.results) + 1} of the plan ({result['name']}) failed: {error['message']}"
            raise AgentFailed(message, code=str(error["code"]))
        self.results.append(result)

    async def _once(self, step: PlanStep) -> JsonObject:
        self._calls += 1
        match step:
            case ToolStep():
                return await self._called(step.kind, ToolCall(f"step_{self._calls}", step.tool, _json(step.arguments)))
            case DelegationStep():
                call = ToolCall(f"step_{self._calls}", f"{DELEGATE}{step.agent}", {"task": to_json(step.task)})
                return await self._called(step.kind, call)
            case ModelStep():
                return await self._model_reply(step)

    async def _called(self, kind: str, call: ToolCall) -> JsonObject:
        messages = await self._router.execute(self._calls, [call])
        message, known = messages[0], self._router.result_of(call)
        name = call.tool.removeprefix(DELEGATE) if kind == "delegation" else call.tool
        head: JsonObject = {"kind": kind, "name": name, "success": not message.is_error}
        if not message.is_error:
            return {**head, "output": message.content}
        error: Mapping[str, Json] = (known.error if known is not None else None) or {}
        return {**head, "error": {"code": str(error.get("code") or TOOL_ERROR), "message": str(error.get("message") or message.content),
                                  "recoverable": bool(error.get("recoverable", False))}}  # fmt: skip

    async def _model_reply(self, step: ModelStep) -> JsonObject:
        """The reply to the step, which the model reads after the results of the earlier steps."""
        given = results_text(self.results, is_untrusted=self._owned.taint.has_read)
        messages = [UserMessage(redacted_text(text)) for text in (*given, step.prompt)]
        reply = await recorded_reply(self._owned, self._replay, self._models, self._calls, messages)
        return {"kind": step.kind, "name": "model", "success": True, "output": reply.text}

    def _may_repeat(self, step: PlanStep, result: JsonObject) -> bool:
        """Whether a failed step is repeated: its error may pass, and its effect may happen twice."""
        error: Any = result["error"]
        if isinstance(step, DelegationStep):
            return True
        bound = self._tools.bound.get(str(result["name"]))
        return bool(error["recoverable"]) and bound is not None and bound.tool.effect in _MAY_REPEAT

    async def _pause(self, attempt: int) -> None:
        """Wait before a repetition, unless it is recorded already."""
        journal = self._replay.journal
        following = self._calls + 1
        if not journal.has_call(str(journal.call_id(following, 1))):
            key = f"{self._owned.claimed.turn_id}/{following}"
            await self._owned.world.sleep(RetryPolicy().delay_seconds(attempt, key))


def _json(value: Any) -> Json:
    return to_json(value, "/arguments")
