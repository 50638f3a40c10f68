"""Compare the texts of a model request with the hashes (marks) that the record of its reply, or the signal of its end, keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from heliograph.agent_loop.request_marks import changed_marks, marks_of
from heliograph.definitions.agent import AgentSpec
from heliograph.json_differences import Difference
from heliograph.ports import ModelRequest
from heliograph.recording.logged_replies import LoggedCall
from heliograph.recording.policy import ReplayPolicy
from heliograph.records import Wait

TEXTS = {
    "prompt": "prompt",
    "system": "system text",
    "tools": "list of tools",
    "settings": "temperature or output limit",
}


def recorded_marks(reply: Wait | None, call: LoggedCall) -> Mapping[str, str] | None:
    """The marks of a request: of the record of its reply, or of the log if the reply ended its turn. None if an earlier version made it."""
    content: Any = None if reply is None else reply.content
    output = content.get("output") if isinstance(content, dict) else None
    found: Any = output.get("marks") if isinstance(output, dict) else call.marks
    return found if isinstance(found, dict) else None


def changed_texts(
    spec: AgentSpec, request: ModelRequest, recorded: Mapping[str, str], policy: ReplayPolicy, *, is_prompt_logged: bool
) -> tuple[Difference, ...]:
    """How the texts of a request differ from the recorded marks: each side is a hash. A prompt in the log is compared as a whole."""
    old_names = {new: old for old, new in policy.renamed_tools.items()}
    tools = tuple(replace(tool, name=old_names.get(tool.name, tool.name)) for tool in request.tools)
    now = marks_of(spec, replace(request, tools=tools))
    return tuple(
        Difference(f"/{name}", recorded[name], now[name])
        for name in changed_marks(recorded, now)
        if name != "prompt" or not is_prompt_logged
    )
