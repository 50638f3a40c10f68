"""Models of the three applications that need no key. They are not counted: a real application names its model instead."""

from heliograph.models import ModelRequest, ScriptedModel, ToolCall, ToolMessage

topic = ScriptedModel(lambda request: "refund")
mood = ScriptedModel(lambda request: "angry")
summary = ScriptedModel(lambda request: f"short {request.prompt.split()[-1]}")
digest = ScriptedModel(lambda request: f"{request.prompt.count('short')} documents")
chatter = ScriptedModel(lambda request: f"message {len(request.messages) // 2 + 1}")


def _clerk(request: ModelRequest) -> str | ToolCall:
    done = [message.tool for message in request.messages if isinstance(message, ToolMessage)]
    if "find_order" not in done:
        return ToolCall("1", "find_order", {"message": request.prompt})
    if "refund" not in done:
        return ToolCall("2", "refund", {"order": "A-17", "amount": 250})
    return "Your money is on its way."


clerk = ScriptedModel(_clerk)
