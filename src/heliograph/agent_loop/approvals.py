"""Approvals of a model's tool calls: the calls that require one, the questions to people, and the approved arguments."""

from __future__ import annotations

from typing import Any

from heliograph.errors import Denied
from heliograph.tools.bound_tool import BoundTool
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.human_tasks import Question, grant_from, timeout_message
from heliograph.turn.journal import Journal
from heliograph.turn.taint import Taint


class Approvals:
    """The approvals of one turn's tool calls."""

    def __init__(self, agent: str, taint: Taint, journal: Journal):
        self._agent = agent
        self._taint = taint
        self._journal = journal

    def are_needed(self, step: int, n: int, tool: BoundTool, arguments: dict[str, Any]) -> bool:
        """Whether the call requires approval. A recorded call keeps its first decision, because the rule may have changed."""
        call_id = self._journal.call_id(step, n + 1)
        if self._journal.has_call(call_id.approval()):
            return True
        return not self._journal.has_call(str(call_id)) and (
            tool.tool.needs_approval(arguments) or self._taint.needs_approval(tool.tool)
        )

    def are_due_to_taint(self, tool: BoundTool, arguments: dict[str, Any]) -> bool:
        """Whether only untrusted content requires the approval of this call, and no rule of the tool."""
        return self._taint.needs_approval(tool.tool) and not tool.tool.needs_approval(arguments)

    def granted_arguments(
        self, step: int, n: int, tool: BoundTool, request: CallRequest, result: CallResult, time: int
    ) -> dict[str, Any]:
        """The approved arguments. Raises Denied; BadArguments for edited arguments that do not match the tool."""
        if result.status == "timeout":
            raise Denied(timeout_message(result, "approval_seconds"))
        grant = grant_from(Question.of(request.input), tool.tool.name, result)
        call_id = self._journal.call_id(
            step, n + 1
        )  # it started with these arguments, unless another approval followed
        is_recorded = self._journal.has_call(str(call_id)) and not self._journal.has_call(call_id.approval(time + 1))
        return grant.arguments if is_recorded else tool.checked(grant.arguments)

    def request(
        self, step: int, n: int, bound: BoundTool, arguments: dict[str, Any], time: int = 1, problem: str = ""
    ) -> CallRequest:  # fmt: skip
        """The question to a person. time: the number of this question; problem: the reason why the last arguments were invalid."""
        tool = bound.tool
        question_text = f"May {self._agent} call {tool.name}?"
        question_text += f" It was approved with other arguments, and was not called: {problem}" if problem else ""
        question_text += (
            f" The agent has read untrusted content: {self._taint.source_names}." if self._taint.has_read else ""
        )
        question = Question("decision", question_text, arguments, tool.may_edit,
                            form=bound.spec.parameters if tool.may_edit else None)  # fmt: skip
        call_id = self._journal.call_id(step, n + 1).approval(time)
        return CallRequest(call_id, self._journal.new_step(), tool.name, "human", question.record(),
                     tool.approval_seconds, needs_token=False)  # fmt: skip
