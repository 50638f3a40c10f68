"""Execute the steps of a plan, in order: tool calls and delegations like those of a model, and model steps.

Each step is one or several recorded calls, so an act phase that resumes continues after the last recorded one. Its ids are
those of a model's calls: `act-1-m3` for a model step that is the third call, `act-1-m3-1` for a tool call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from heliograph.agent_loop.model_call import HarnessOf, Models
from heliograph.agent_loop.phase_prompts import results_text
from heliograph.agent_loop.recorded_model import recorded_reply
from heliograph.agent_loop.required_result import cut_short
from heliograph.agent_loop.tool_call_router import CallLimits, ToolCallRouter
from heliograph.agent_loop.turn_tools import TurnTools
from heliograph.codes import ACTION_FAILED, BUDGET_EXCEEDED, DENIED, RESOURCE_EXHAUSTED, TOOL_ERROR
from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.agent_checks import check_contexts
from heliograph.definitions.forms import problems_in, schema_of, validator_of
from heliograph.definitions.plan import DelegationStep, ModelStep, PlanStep, ToolStep
from heliograph.definitions.step_references import resolved
from heliograph.definitions.tool import DELEGATE
from heliograph.error_text import safe_repr
from heliograph.errors import AgentFailed, BudgetExceeded, DelegationFailed, Denied, HeliographError, InvalidInput
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.model_agent import AgentOutput
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.phase_context import PhaseContext
from heliograph.policy.retry import RetryPolicy
from heliograph.ports import ToolCall, UserMessage
from heliograph.redaction import redacted_text
from heliograph.signals.error_payload import details_of
from heliograph.signals.values import to_json
from heliograph.turn.call_results import code_of_delegation
from heliograph.types import Json, JsonObject

_MAY_REPEAT = ("pure", "idempotent", "transactional")


async def execute_plan(
    owned: OwnedTurn, context: PhaseContext, replay: CallReplay, *, harness_of: HarnessOf
) -> AgentOutput:
    """Execute the plan of the context. The output is that of the last step; `action_results` has all of them.

    Raises AgentFailed for a step that fails, unless the agent skips such steps, and for an output that does not match the agent's
    `output`; Suspended, and the errors of the harness.
    """
    execution = _Execution(owned, context, replay, harness_of)
    steps = [] if context.plan is None else context.plan.steps
    limit = None
    for place, step in enumerate(steps, 1):
        if (limit := execution.limit_before(step)) is not None:
            break
        await execution.run(step, is_last=place == len(steps))
    results = execution.results
    context.working_memory["action_results"] = results
    output = results[-1].get("output") if results else None
    if limit is not None:
        return cut_short(owned, output, limit)
    if all(result["success"] for result in results):
        _check_type(owned.spec, output)
    return AgentOutput(output)


class _Execution:
    """The execution of one plan. results: those of the steps so far; a failed step that is skipped has an error in place of its output."""

    def __init__(self, owned: OwnedTurn, context: PhaseContext, replay: CallReplay, harness_of: HarnessOf):
        spec = owned.spec
        contexts = spec.contexts(context) if callable(spec.contexts) else spec.contexts
        self._owned = owned
        self._replay = replay
        self._models = Models(owned, harness_of)
        self._tools = TurnTools(owned, check_contexts(spec.name, contexts))
        self._router = ToolCallRouter(owned, replay, self._tools)
        self._calls = 0  # of this phase: each step and each repetition has its number
        self._failure: Mapping[str, Json] = {}  # of the last call of this step that failed
        self.results: list[JsonObject] = []

    def limit_before(self, step: PlanStep) -> JsonObject | None:
        """The limit that a prompt agent would exceed with this step."""
        spec = self._owned.spec
        if not isinstance(step, ModelStep) or spec.prompt is None:
            return None
        if sum(result["kind"] == step.kind for result in self.results) < spec.max_steps:
            return None
        message = f"the plan has more than {spec.max_steps} model steps (max_steps)"
        return {"code": RESOURCE_EXHAUSTED, "message": message, "recoverable": False}

    async def run(self, step: PlanStep, *, is_last: bool) -> None:
        """Add the result of one step. Raises AgentFailed (with the code of the step) where it fails and is not skipped."""
        lifecycle = self._owned.spec.lifecycle
        self._failure = {}
        try:
            step = self._with_outputs(step)
        except InvalidInput as problem:
            result = _head(step, is_success=False) | {
                "error": {"code": ACTION_FAILED, "message": problem.message, "recoverable": False}}  # fmt: skip
        else:
            result = await self._repeated(step, is_last)
        if not result["success"] and lifecycle.on_tool_error != "skip":
            error: Any = result["error"]
            message = f"step {len(self.results) + 1} of the plan ({result['name']}) failed: {error['message']}"
            raise _failure_of_step(step, message, error, self._failure)
        self.results.append(result)

    def _with_outputs(self, step: PlanStep) -> PlanStep:
        """The step with the outputs of earlier steps in place of its references. Raises InvalidInput."""
        outputs = [(result["output"],) if result["success"] else None for result in self.results]
        match step:
            case ToolStep():
                return replace(step, arguments=resolved(_json(step.arguments), outputs))  # type: ignore[arg-type]  # an object
            case DelegationStep():
                return replace(step, task=resolved(to_json(step.task), outputs))
        return step

    async def _repeated(self, step: PlanStep, is_last: bool) -> JsonObject:
        """The result of a step after its repetitions. A step with its own `retry` has no others."""
        lifecycle = self._owned.spec.lifecycle
        has_own = not isinstance(step, ModelStep) and step.retry is not None
        repetitions = lifecycle.max_tool_retries if lifecycle.on_tool_error == "retry" and not has_own else 0
        result = await self._once(step, is_last)
        for attempt in range(1, repetitions + 1):
            if result["success"] or not self._may_repeat(step, result):
                break
            await self._pause(attempt)
            result = await self._once(step, is_last)
        return result

    async def _once(self, step: PlanStep, is_last: bool) -> JsonObject:
        self._calls += 1
        match step:
            case ToolStep():
                return await self._called(step, ToolCall(f"step_{self._calls}", step.tool, _json(step.arguments)))
            case DelegationStep():
                call = ToolCall(f"step_{self._calls}", f"{DELEGATE}{step.agent}", {"task": to_json(step.task)})
                return await self._called(step, call)
            case ModelStep():
                return await self._model_reply(step, self._owned.spec.output if is_last else None)

    async def _called(self, step: ToolStep | DelegationStep, call: ToolCall) -> JsonObject:
        limits = CallLimits(step.timeout_seconds, step.retry)
        messages = await self._router.execute(self._calls, [call], limits)
        message, known = messages[0], self._router.result_of(call)
        head = _head(step, is_success=not message.is_error)
        if not message.is_error:
            return {**head, "output": message.content}
        error = self._failure = (known.error if known is not None else None) or {}
        code = code_of_delegation(error) if isinstance(step, DelegationStep) else str(error.get("code") or TOOL_ERROR)
        shown: JsonObject = {"code": code, "message": str(error.get("message") or message.content),
                             "recoverable": bool(error.get("recoverable", False))}  # fmt: skip
        if details := details_of(_failure_of_step(step, "", shown, error).details):
            shown["details"] = details
        return {**head, "error": shown}

    async def _model_reply(self, step: ModelStep, output: Any) -> JsonObject:
        """The reply to the step, which the model reads after the results of the earlier steps. output: its type, if not text."""
        given = results_text(self.results, is_untrusted=self._owned.taint.has_read)
        messages = [UserMessage(redacted_text(text)) for text in (*given, step.prompt)]
        reply = await recorded_reply(self._owned, self._replay, self._models, self._calls, messages, output)
        return _head(step, is_success=True) | {"output": reply.text if reply.output is None else reply.output}

    def _may_repeat(self, step: PlanStep, result: JsonObject) -> bool:
        """Whether a failed step is repeated: its error may pass, and its effect may happen twice."""
        error: Any = result["error"]
        if self._failure.get("code") == BUDGET_EXCEEDED:
            return False
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


def _failure_of_step(
    step: PlanStep, message: str, error: Mapping[str, Json], failure: Mapping[str, Json]
) -> HeliographError:
    """The exception of a step that failed. Budgets, denials and delegations keep their class; any other failure is an AgentFailed."""
    code = str(error["code"])
    if failure.get("code") == BUDGET_EXCEEDED and "budget" in failure:
        return BudgetExceeded(message, error=failure)
    if isinstance(step, DelegationStep):
        return DelegationFailed(message, code=code, agent=step.agent, error=failure)
    if code == DENIED:
        return Denied(message, error=failure)
    details = failure.get("details")
    return AgentFailed(message, code=code, details=details if isinstance(details, Mapping) else None)


def _head(step: PlanStep, *, is_success: bool) -> JsonObject:
    """The first fields of a result."""
    name = step.tool if isinstance(step, ToolStep) else step.agent if isinstance(step, DelegationStep) else "model"
    return {"kind": step.kind, "name": name, "success": is_success}


def _check_type(spec: AgentSpec, output: Json) -> None:
    """Raise AgentFailed for an output that does not match the output type of the agent."""
    if spec.output is None:
        return
    what = f"the output of agent {spec.name}"
    validator = validator_of(what, schema_of(what, spec.output, "/output"), "/output")
    if problems := problems_in(validator, output, "output"):
        raise AgentFailed(f"the output of the plan does not match {what}: {safe_repr('; '.join(problems), 2000)}; let its last step be "
                          "a model step, which answers in that form", code=ACTION_FAILED)  # fmt: skip


def _json(value: Any) -> Json:
    return to_json(value, "/arguments")
