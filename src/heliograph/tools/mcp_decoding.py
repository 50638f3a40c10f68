"""Convert the tools and results of an MCP server to values of Heliograph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heliograph.errors import ToolFailed
from heliograph.signals.payload import cleaned
from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as the server describes it. parameters: JSON Schema."""

    name: str
    description: str
    parameters: JsonObject
    is_read_only: bool = False
    is_idempotent: bool = False


def requires_task(tool: Any) -> bool:
    """Whether the server accepts calls of this tool only as tasks of its own, which Heliograph does not support."""
    return tool.execution is not None and tool.execution.task_support == "required"


def offered_tool(tool: Any) -> OfferedTool:
    """Convert a tool description of the MCP SDK."""
    hints, schema = tool.annotations, dict(tool.input_schema)
    if schema.get("properties") is None:
        schema["properties"] = {}  # model providers require it
    return OfferedTool(
        tool.name, cleaned(tool.description or ""), schema,
        bool(hints and hints.read_only_hint), bool(hints and hints.idempotent_hint),
    )  # fmt: skip


def json_of(label: str, tool: str, result: Any) -> Json:
    """Return a tool's result as JSON: the structured content, else the text, else all parts. Raises ToolFailed."""
    parts: list[Json] = [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in result.content]
    texts = [str(part["text"]) for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    if result.is_error:
        raise ToolFailed("\n".join(texts) or f"{tool} of MCP server {label} failed without a message", tool=tool)
    if result.structured_content is not None:
        structured: Json = result.structured_content
        return structured
    return "\n".join(texts) if len(texts) == len(parts) else {"content": parts}
