"""The runtime's own tools: submit_result and ask_human."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.tool import ASK_HUMAN, SUBMIT_RESULT
from heliograph.ports import ToolCall, ToolSpec
from heliograph.tools.bound_tool import BadArguments
from heliograph.turn.human_tasks import Question
from heliograph.types import Json, JsonObject


def builtin_specs(
    spec: AgentSpec, result_fields: Sequence[Mapping[str, Any]], delegations: Sequence[ToolSpec]
) -> dict[str, ToolSpec]:
    found = list(delegations)
    if spec.asks_human:
        found.append(_HUMAN_SPEC)
    if result_fields or spec.must_end_with == SUBMIT_RESULT:
        found.append(_submit(result_fields))
    return {each.name: each for each in found}


def question_of(call: ToolCall) -> Question:
    """The question to a person from a call of ask_human. Raises BadArguments."""
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    question, options = arguments.get("question"), arguments.get("options", [])
    if not isinstance(question, str) or not question.strip():
        raise BadArguments(f"{ASK_HUMAN} takes an object with a question, which is a text")
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise BadArguments(f"the options of {ASK_HUMAN} are a list of texts")
    return Question("answer", question, options=tuple(map(str, options)))


_HUMAN_SPEC = ToolSpec(
    ASK_HUMAN, "Ask a person, and wait for the answer. Use it for facts that you cannot know and decisions that are not yours.",
    {"type": "object", "required": ["question"], "properties": {
        "question": {"type": "string"},
        "options": {"type": "array", "items": {"type": "string"}, "description": "answers to choose from, if any"},
    }},
)  # fmt: skip


def _submit(fields: Sequence[Mapping[str, Any]]) -> ToolSpec:
    properties: JsonObject = {
        str(f["name"]): {k: f[k] for k in ("type", "description") if f.get(k) is not None} for f in fields
    }
    required: list[Json] = [str(f["name"]) for f in fields if f.get("required", True)]
    return ToolSpec(
        SUBMIT_RESULT,
        "Submit the result of your work, once and as the only call, when you are done. It ends your work.",
        {"type": "object", "properties": properties, "required": required},
    )
