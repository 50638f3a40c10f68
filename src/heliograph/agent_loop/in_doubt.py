"""Calls in doubt: a tool call started and its outcome is unknown, so the model is informed, the turn fails, or a person decides."""

from __future__ import annotations

from heliograph.codes import IN_DOUBT
from heliograph.definitions.forms import schema_of
from heliograph.definitions.tool import Tool
from heliograph.errors import AgentFailed, Denied, ToolFailed
from heliograph.tools.bound_tool import BoundTool
from heliograph.turn.call_results import check_result
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.human_tasks import Question, grant_from, timeout_message
from heliograph.types import JsonObject


def check_doubt(tool: Tool, result: CallResult) -> None:
    """Raise AgentFailed (IN_DOUBT) if the outcome is unknown and the tool has in_doubt="fail"."""
    if result.status == "unknown" and tool.in_doubt == "fail":
        message = (result.error or {}).get("message", "its outcome is unknown")
        raise AgentFailed(f"{tool.name} (call {result.call_id}) is in doubt: {message}", code=IN_DOUBT)


def question_of_doubt(tool: Tool, call_id: str, step_id: str, arguments: JsonObject) -> CallRequest:
    """The question to a person about a call in doubt; granting it repeats the call."""
    text = f"The outcome of {tool.name} is unknown. Grant: call it again. Deny: do not call it again. Answer: it happened, and this is its result."
    form = (
        None
        if tool.result_schema is None
        else schema_of(f"the result_schema of {tool.name}", tool.result_schema, "/form")
    )
    question = Question("decision", text, arguments, form=form, may_answer=True)
    return CallRequest(
        call_id, step_id, tool.name, "human", question.record(), tool.approval_seconds, needs_token=False
    )


def resolve_doubt(tool: BoundTool, request: CallRequest, result: CallResult, decision: CallResult) -> CallResult | None:
    """The result after the person's decision; None if the call is to be repeated."""
    answer = decision.output if decision.status == "success" and isinstance(decision.output, dict) else {}
    try:
        if "answer" in answer:
            return CallResult(
                result.call_id, "success", check_result(tool.tool.name, tool.output_problems, answer["answer"])
            )
        if decision.status == "timeout":
            raise Denied(timeout_message(decision, "approval_seconds"))
        grant_from(Question.of(request.input), "another try", decision)
    except Denied as error:
        message = f"its outcome is unknown, and it was not called again: {error.message}"
        return CallResult(result.call_id, "unknown", None, {**(result.error or {}), "message": message})
    except ToolFailed as error:
        envelope: JsonObject = {"code": error.code, "message": error.message, "recoverable": False}
        return CallResult(result.call_id, "failed", None, envelope)
    return None
