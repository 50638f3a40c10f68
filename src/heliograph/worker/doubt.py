"""A tool that began and of which nobody knows whether it happened: told to the model, the end of the turn, or asked."""

from __future__ import annotations

from heliograph.codes import IN_DOUBT
from heliograph.errors import AgentFailed
from heliograph.reactive.tool import Tool
from heliograph.turn.calls import Asked, CallResult
from heliograph.types import JsonObject


def check_doubt(tool: Tool, result: CallResult) -> None:
    """Raises AgentFailed (IN_DOUBT) for a tool whose doubt ends the turn."""
    if result.status == "unknown" and tool.in_doubt == "fail":
        message = (result.error or {}).get("message", "it is not known whether it happened")
        raise AgentFailed(f"{tool.name} (call {result.call_id}) is in doubt: {message}", code=IN_DOUBT)


def question_of_doubt(tool: Tool, call_id: str, step_id: str, arguments: JsonObject) -> Asked:
    """What a person is asked about it: an approval that is granted has it made again."""
    asked: JsonObject = {
        "question": f"It is not known whether {tool.name} happened. Grant: make it again. Deny: leave it. "
                    "Answer: it happened, and this is its result.",
        "arguments": arguments, "may_edit": False, "in_doubt": True,
    }  # fmt: skip
    return Asked(f"{call_id}-doubt", step_id, tool.name, "human", asked, tool.approval_seconds, needs_token=False)


def decided_doubt(result: CallResult, decision: CallResult) -> CallResult | None:
    """What is known after the decision: None where the call is to be made again."""
    answer = decision.output if decision.status == "success" and isinstance(decision.output, dict) else {}
    if answer.get("decision") == "grant":
        return None
    if "answer" in answer:
        return CallResult(result.call_id, "success", answer["answer"])
    reason = answer.get("reason")
    if not reason:
        return result
    error = {
        **(result.error or {}),
        "message": f"it is not known whether it happened, and it was not made again: {reason}",
    }
    return CallResult(result.call_id, "unknown", None, error)
