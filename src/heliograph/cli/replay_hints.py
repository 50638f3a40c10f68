"""The next steps after a replay that diverged: the options that accept an intended change of the code."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.reactive.workflow import Workflow
from heliograph.recording.policy import agents_of
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import ReplayResult

_TOOL_NAME = re.compile(r"/tools/\d+/name|/payload/capabilities/\d+")


def hints(recording: Recording, workflow: Workflow, result: ReplayResult, accept: Collection[str]) -> Iterator[str]:
    """The options that would accept what differs; none if the replay is the same."""
    if result.is_same:
        return
    if "agents" not in accept and (added := _added_agents(recording, workflow)):
        yield f"the application has agents that the recording lacks: {safe_repr(', '.join(added))}; --accept agents replays without them"
    found = [
        each for divergence in result.divergences for each in divergence.differences if _TOOL_NAME.fullmatch(each.path)
    ]
    if found:
        yield f"if a tool has another name now, add --renamed-tool {safe_repr(str(found[0].left))}={safe_repr(str(found[0].right))}"
    elif "prompts" not in accept and any(each.kind == "request" for each in result.divergences):
        yield "if the other request is intended, add --accept prompts, which uses the recorded reply; or record the run again"


def _added_agents(recording: Recording, workflow: Workflow) -> list[str]:
    if recording.start is None:
        return []
    try:
        return sorted(workflow.agents.keys() - agents_of(recording.start))
    except InvalidInput:  # of a file that was edited
        return []
