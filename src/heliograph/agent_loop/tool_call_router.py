"""Route a model's tool calls: to functions of this process, external tools, other agents and people.

Calls that run in this process go first, in parallel. Then the turn waits once for all the others: approvals, questions to
people, external tools and delegations, in any order. Approved calls run last. Each call runs once and has one result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.agent_loop.approvals import Approvals
from heliograph.agent_loop.builtin_tools import question_of
from heliograph.agent_loop.local_tools import LocalCall, LocalToolExecutor
from heliograph.agent_loop.tool_guards import guarded
from heliograph.agent_loop.turn_tools import TurnTools
from heliograph.codes import TOOL_ERROR
from heliograph.definitions.fields import problems_of
from heliograph.definitions.rate_limits import rates_of
from heliograph.definitions.tool import ASK_HUMAN, SUBMIT_RESULT
from heliograph.errors import Denied, ToolFailed
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.step_recorder import NextCall
from heliograph.policy.retry import RetryPolicy, narrowest
from heliograph.ports import ToolCall, ToolMessage
from heliograph.tools.bound_tool import BadArguments, BoundTool
from heliograph.turn.call_id import instance_of
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.conversation import failed_message, last_model_call, tool_message
from heliograph.turn.human_tasks import Question, answer_of
from heliograph.types import Json, JsonObject

_CALLS_MAX = 128  # in one reply; a turn may have a thousand


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The timeout and the retries of one call; None for those of its tool or agent."""

    timeout_seconds: float | None = None
    retry: RetryPolicy | None = None


NO_LIMITS = CallLimits()
_Checked = tuple[dict[str, Any], bool] | BadArguments


class Submitted(Exception):
    """The model has submitted its result: the turn ends with these fields."""

    def __init__(self, fields: JsonObject):
        super().__init__("submit_result")
        self.fields = fields


class ToolCallRouter:
    """Runs the tool calls of one turn, each where its tool runs."""

    def __init__(self, owned: OwnedTurn, replay: CallReplay, tools: TurnTools):
        self._owned = owned
        self._tools = tools
        self._replay = replay
        self._journal = replay.journal
        self._local = LocalToolExecutor(owned, replay)
        self._approvals = Approvals(owned.claimed.agent, owned.taint, replay.journal)
        self._limits = NO_LIMITS
        self._results: dict[str, Json] = {}
        self._results_of: dict[str, CallResult] = {}
        self._checks: dict[tuple[int, int], _Checked] = {}  # of the coming calls: each is checked once
        self._last_model_call = max(
            last_model_call(owned.claimed.waits, replay.journal.prefix), *owned.executed_steps, 0
        )

    def has_result(self, tool: str) -> bool:
        return tool in self._results

    def output_of(self, tool: str) -> Json:
        """The result of the tool's last successful call."""
        return self._results[tool]

    def result_of(self, call: ToolCall) -> CallResult | None:
        """The result of a call of the last batch, or its denial; None for a call that was rejected before it began."""
        return self._results_of.get(call.id)

    def first_calls(self, step: int, calls: Sequence[ToolCall]) -> list[NextCall]:
        """The calls that `execute` begins at once: those of a reply in which all tools are functions of this process.

        A tool with a limit of parallel calls begins when it is its turn, and one that needs approval when it has it.
        """
        self._checks.clear()
        if self._batch_problem(step, calls) is not None:
            return []
        local_calls: dict[int, LocalCall] = {}
        for n, call in enumerate(calls):
            if call.tool in self._tools.builtin or (tool := self._tools.bound.get(call.tool)) is None:
                return []
            if tool.tool.function is None or tool.slots is not None:
                return []
            checked = self._checks[step, n] = self._checked(step, n, tool, call)
            if isinstance(checked, BadArguments):
                continue
            arguments, needs_approval = checked
            if needs_approval:
                return []
            local_calls[n] = tool, arguments
        reserve = self._replay.steps.tool_reserve
        return [NextCall(request, reserve) for request in self._local.requests(step, local_calls)]

    async def execute(
        self, step: int, calls: Sequence[ToolCall], limits: CallLimits = NO_LIMITS,
        following: Callable[[], CallRequest] | None = None,
    ) -> Mapping[int, ToolMessage]:  # fmt: skip
        """Run the calls, and return a message for each, by its position. Raises Submitted, Suspended, TurnLost.

        limits: of each call, in place of those of its tool or agent. following: returns the model call after them, if it is
        known to follow.
        """
        self._limits = limits
        if (why := self._batch_problem(step, calls)) is not None:
            return {n: failed_message(call, why) for n, call in enumerate(calls)}
        self._owned.executed_steps.add(step)
        messages = await self._route(step, calls, following)
        self._owned.taint.read_messages(calls, messages)
        for n, call in enumerate(calls):
            if not messages[n].is_error:
                self._results[call.tool] = messages[n].content
        return messages

    def _batch_problem(self, step: int, calls: Sequence[ToolCall]) -> str | None:
        """The reason to run none of a reply's calls, if there is one."""
        if len(calls) > _CALLS_MAX:
            return f"one reply may have {_CALLS_MAX} calls, and this one has {len(calls)}: none of them was made; call fewer"
        is_submitted = SUBMIT_RESULT in self._tools.builtin and any(call.tool == SUBMIT_RESULT for call in calls)
        # an earlier version may have started the calls of such a reply; these continue
        if is_submitted and len(calls) > 1 and not any(self._is_recorded(step, n) for n in range(len(calls))):
            return f"{SUBMIT_RESULT} must be the only call: none of these calls was made"
        return None

    def _check_may_end(self, step: int, n: int, call: ToolCall) -> None:
        """Raise BadArguments for a call of the last step that cannot end the turn: the model would never read its result."""
        is_last = step >= self._owned.spec.max_steps
        if is_last and call.tool != self._tools.must_end_with and not self._is_recorded(step, n):
            raise BadArguments(f"it was not made: this was the last step, in which {call.tool} was not offered")

    async def _route(
        self, step: int, calls: Sequence[ToolCall], following: Callable[[], CallRequest] | None
    ) -> dict[int, ToolMessage]:
        """Run each call where its tool runs; return the messages by the positions of the calls."""
        messages: dict[int, ToolMessage] = {}
        local_calls: dict[int, LocalCall] = {}
        waits: dict[int, CallRequest] = {}
        approvals: dict[int, LocalCall] = {}
        for n, call in enumerate(calls):
            try:
                self._check_may_end(step, n, call)
                if call.tool == SUBMIT_RESULT and SUBMIT_RESULT in self._tools.builtin:
                    self._submit(step, n, call, is_alone=len(calls) == 1)
                elif call.tool in self._tools.builtin:
                    waits[n] = self._builtin_call(step, n, call)
                elif call.tool in self._tools.bound:
                    tool = self._tools.bound[call.tool].limited(self._limits.timeout_seconds, self._limits.retry)
                    checked = self._checks.pop((step, n), None) or self._checked(step, n, tool, call)
                    if isinstance(checked, BadArguments):
                        raise checked
                    arguments, needs_approval = checked
                    if needs_approval:
                        approvals[n] = tool, arguments
                        waits[n] = self._approvals.request(step, n, tool, arguments)
                    elif tool.tool.function is None:
                        waits[n] = self._external(step, n, tool, arguments)
                    else:
                        local_calls[n] = tool, arguments
                else:
                    messages[n] = await self._unknown_tool(step, n, call)
            except BadArguments as error:
                messages[n] = failed_message(call, error.message)
        if waits or any(message.is_untrusted for message in messages.values()):
            following = None
        messages |= await self._run_local(step, calls, local_calls, following)
        if waits:
            results = dict(zip(waits, await self._replay.all(list(waits.values())), strict=True))
            messages |= {
                n: self._validated_message(calls[n], waits[n], results[n]) for n in waits if n not in approvals
            }
            messages |= await self._run_approved(step, calls, approvals, waits, results)
        return messages

    async def _run_approved(
        self, step: int, calls: Sequence[ToolCall], approvals: Mapping[int, LocalCall],
        waits: Mapping[int, CallRequest], results: Mapping[int, CallResult], time: int = 1,
    ) -> dict[int, ToolMessage]:  # fmt: skip
        """Run the approved calls, and report the denied ones. Edits that do not match the tool repeat the question."""
        messages: dict[int, ToolMessage] = {}
        local_calls: dict[int, LocalCall] = {}
        external_calls: dict[int, CallRequest] = {}
        again: dict[int, CallRequest] = {}
        for n, (tool, arguments) in approvals.items():
            try:
                allowed = self._approvals.granted_arguments(step, n, tool, waits[n], results[n], time)
            except Denied as error:
                messages[n] = self._denied_message(
                    calls[n], waits[n], error, self._approvals.are_due_to_taint(tool, arguments)
                )
                continue
            except BadArguments as error:
                again[n] = self._approvals.request(step, n, tool, arguments, time + 1, error.message)
                continue
            if tool.tool.function is None:
                external_calls[n] = self._external(step, n, tool, allowed)
            else:
                local_calls[n] = tool, allowed
        messages |= await self._run_local(step, calls, local_calls)
        if external_calls:
            for n, result in zip(external_calls, await self._replay.all(list(external_calls.values())), strict=True):
                messages[n] = self._tool_message(calls[n], result)
        if again:
            decided = dict(zip(again, await self._replay.all(list(again.values())), strict=True))
            messages |= await self._run_approved(
                step, calls, {n: approvals[n] for n in again}, again, decided, time + 1
            )
        return messages

    async def _run_local(
        self, step: int, calls: Sequence[ToolCall], local_calls: Mapping[int, LocalCall],
        following: Callable[[], CallRequest] | None = None,
    ) -> dict[int, ToolMessage]:  # fmt: skip
        reads = [calls[n].tool for n in local_calls if not self._tools.is_trusted(calls[n].tool)]
        results = await self._local.run_all(
            step, local_calls, None if following is None else lambda: NextCall(following(), reads=reads)
        )
        return {n: self._tool_message(calls[n], result) for n, result in results.items()}

    def _checked(self, step: int, n: int, tool: BoundTool, call: ToolCall) -> _Checked:
        """The checked arguments of a call, and whether it requires approval; or why it is not made."""
        try:
            self._check_may_end(step, n, call)
            arguments = self._arguments(step, n, tool, call)
        except BadArguments as error:
            return error
        return arguments, self._approvals.are_needed(step, n, tool, arguments)

    def _arguments(self, step: int, n: int, tool: BoundTool, call: ToolCall) -> dict[str, Any]:
        """The checked arguments. Raises BadArguments, but not for a recorded call: it was valid when it was recorded."""
        try:
            arguments = tool.checked(call.arguments)
        except BadArguments:
            if self._is_recorded(step, n) and isinstance(call.arguments, dict):
                return call.arguments
            raise
        self._check_not_rejected(step, n)
        return arguments

    def _is_recorded(self, step: int, n: int) -> bool:
        call_id = self._journal.call_id(step, n + 1)
        return self._journal.has_call(str(call_id)) or self._journal.has_call(call_id.approval())

    def _check_not_rejected(self, step: int, n: int) -> None:
        """Raise BadArguments for a valid call that was invalid when the model received its error.

        Errors are not recorded. But all calls that ran before the last model call are recorded, so an unrecorded one was rejected.
        """
        if step < self._last_model_call and not self._is_recorded(step, n):
            raise BadArguments("it was rejected and did not run; it is valid now, so call it again")

    async def _unknown_tool(self, step: int, n: int, call: ToolCall) -> ToolMessage:
        """The error for a call of a tool that does not exist, or no longer exists."""
        missing = f"there is no tool {call.tool}; {_known_tools(self._tools.names)}"
        request = CallRequest(str(self._journal.call_id(step, n + 1)), self._journal.new_step(), call.tool, "inline")
        result = self._replay.recorded_result(request)
        if result is None and self._journal.has_call(request.call_id):  # it started, and its worker died
            steps = self._replay.steps
            result = await steps.begin(request) or await steps.fail(request, TOOL_ERROR, f"not made again: {missing}")
        return failed_message(call, missing) if result is None else self._tool_message(call, result)

    def _tool_message(self, call: ToolCall, result: CallResult) -> ToolMessage:
        self._results_of[call.id] = result
        return tool_message(call, result, is_untrusted=not self._tools.is_trusted(call.tool))

    def _denied_message(
        self, call: ToolCall, request: CallRequest, error: Denied, is_due_to_taint: bool
    ) -> ToolMessage:
        message = f"{error.message}; it was not called"
        failure: JsonObject = {**error.error, "code": error.code, "message": message, "recoverable": False,
                               "untrusted": is_due_to_taint}  # fmt: skip
        self._results_of[call.id] = CallResult(request.call_id, "failed", None, failure)
        return failed_message(call, message)

    def _validated_message(self, call: ToolCall, request: CallRequest, result: CallResult) -> ToolMessage:
        """The message for a result from elsewhere. A person's answer that does not match its form becomes an error."""
        if request.kind != "human":
            return self._tool_message(call, result)
        if result.status in ("success", "failed"):
            try:
                answer_of(Question.of(request.input), "the question", result)
            except ToolFailed as error:
                return failed_message(call, error.message)
        return tool_message(call, result)

    def _external(self, step: int, n: int, bound: BoundTool, arguments: dict[str, Any]) -> CallRequest:
        tool = bound.tool
        return guarded(self._owned, bound, CallRequest(
            str(self._journal.call_id(step, n + 1)), self._journal.new_step(), tool.name, "tool", arguments,
            effect=tool.effect, output_problems=bound.output_problems, is_trusted=tool.trusted,
        ))  # fmt: skip

    def _builtin_call(self, step: int, n: int, call: ToolCall) -> CallRequest:
        call_id, step_id = str(self._journal.call_id(step, n + 1)), self._journal.new_step()
        if call.tool == ASK_HUMAN:
            question = question_of(call)
            self._check_not_rejected(step, n)
            return CallRequest(call_id, step_id, ASK_HUMAN, "human", question.record(),
                         _seconds(self._owned.spec.asks_human), needs_token=False)  # fmt: skip
        delegation = self._tools.delegations.request_of(call, is_recorded=self._journal.has_call(call_id))
        workflow = self._owned.workflow
        is_remote = workflow.is_remote(delegation.agent)
        instance = None if is_remote else instance_of(self._owned.claimed.turn_id, call_id)
        self._check_not_rejected(step, n)
        settings = workflow.delegation_settings(self._owned.spec.name, delegation.agent)
        own = self._limits
        seconds = own.timeout_seconds or settings.timeout_of(delegation.seconds)
        return CallRequest(call_id, step_id, delegation.agent, "child", delegation.task, seconds, "idempotent", instance=instance,
                     context_box_id=delegation.context_box_id, priority=delegation.priority,
                     retry=narrowest(own.retry, settings.retry), circuit_breaker=settings.circuit_breaker,
                     rates=rates_of("agent", delegation.agent, settings.rate_limit))  # fmt: skip

    def _submit(self, step: int, n: int, call: ToolCall, *, is_alone: bool) -> None:
        """Raise Submitted, or BadArguments for arguments that cannot be the result."""
        if not is_alone:
            raise BadArguments(
                f"{SUBMIT_RESULT} must be the only call: call it again after the results of the other calls"
            )
        if not isinstance(call.arguments, dict):
            raise BadArguments(f"the arguments of {SUBMIT_RESULT} must be a JSON object")
        if problems := problems_of(self._owned.required_fields, call.arguments):
            raise BadArguments(f"the result does not match the result fields: {'; '.join(problems)}")
        self._check_not_rejected(step, n)
        raise Submitted(call.arguments)


def _known_tools(names: Sequence[str]) -> str:
    return f"there are {', '.join(names)}" if names else "the agent has no tools: list them in its option tools"


def _seconds(asks_human: bool | float) -> float | None:
    return None if isinstance(asks_human, bool) else asks_human
