"""A tool that began and of which nobody knows whether it happened: told to the model, the end of the turn, or asked."""

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
    """Raises AgentFailed (IN_DOUBT) for a tool whose doubt ends the turn."""
    if result.status == "unknown" and tool.in_doubt == "fail":
        message = (result.error or {}).get("message", "it is not known whether it happened")
        raise AgentFailed(f"{tool.name} (call {result.call_id}) is in doubt: {message}", code=IN_DOUBT)


def question_of_doubt(tool: Tool, call_id: str, step_id: str, arguments: JsonObject) -> CallRequest:
    """What a person is asked about it: an approval that is granted has it made again."""
    text = f"It is not known whether {tool.name} happened. Grant: make it again. Deny: leave it. Answer: it happened, and this is its result."
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
    """What is known after the decision: None where the call is to be made again."""
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
        message = f"it is not known whether it happened, and it was not made again: {error.message}"
        return CallResult(result.call_id, "unknown", None, {**(result.error or {}), "message": message})
    except ToolFailed as error:
        told: JsonObject = {"code": error.code, "message": error.message, "recoverable": False}
        return CallResult(result.call_id, "failed", None, told)
    return None
