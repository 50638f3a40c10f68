"""Compare the system text and the tools of a model request with the hashes (marks) that the record of its reply keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heliograph.agent_loop.request_marks import changed_marks, marks_of
from heliograph.definitions.agent import AgentSpec
from heliograph.json_differences import Difference
from heliograph.ports import ModelRequest
from heliograph.recording.policy import ReplayPolicy
from heliograph.records import Wait

TEXTS = {"prompt": "prompt", "system": "system text", "tools": "list of tools"}


def changed_texts(
    spec: AgentSpec, request: ModelRequest, reply: Wait | None, policy: ReplayPolicy
) -> tuple[Difference, ...]:
    """How the system text and the tools of a request differ from those to which a reply was recorded: each side is a hash.

    reply: its record; a reply that ended its turn has none. The prompt is in the log, and is compared as a whole.
    """
    content: Any = None if reply is None else reply.content
    output = content.get("output") if isinstance(content, dict) else None
    recorded = output.get("marks") if isinstance(output, dict) else None
    if not isinstance(recorded, dict):
        return ()
    old_names = {new: old for old, new in policy.renamed_tools.items()}
    tools = tuple(replace(tool, name=old_names.get(tool.name, tool.name)) for tool in request.tools)
    now = marks_of(spec, replace(request, tools=tools))
    return tuple(
        Difference(f"/{name}", recorded[name], now[name]) for name in changed_marks(recorded, now) if name != "prompt"
    )
