"""What counts as a divergence where the code has changed since the recording."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_differences import Difference
from heliograph.reactive.workflow import Workflow
from heliograph.recording.recording import Part, Recording
from heliograph.signals.guard_record import GUARD_PLACE
from heliograph.types import JsonObject

CHANGES = ("prompts", "agents")
# What is not compared, by the name of its signal: hashes of requests and steps, which are compared themselves; the line of a guard, which
# moves; and the Python of the worker, since a replay runs on another machine.
_UNCOMPARED = {
    "harness:end": "/payload/marks", "tool:call": "/payload/input_hash", "agent:skipped": GUARD_PLACE, "ready": "/payload/metadata/runtime",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """Which changes of the code a replay accepts.

    accept: `prompts`, a model would receive another request: the recorded reply is its answer. `agents`, the application has more agents:
    they do not run. renamed_tools: the new names of tools, by their recorded names.
    Raises InvalidInput (`unknown_change`).
    """

    accept: Collection[str] = ()
    renamed_tools: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.accept) - set(CHANGES)):
            raise InvalidInput(f"a replay cannot accept {safe_repr(unknown[0])}; it can accept {', '.join(CHANGES)}",
                               code="unknown_change", path="/accept")  # fmt: skip

    @property
    def accepts_prompts(self) -> bool:
        return "prompts" in self.accept

    def applied_to(self, recording: Recording) -> Recording:
        """The recording with the new names of renamed tools."""
        if not self.renamed_tools:
            return recording
        signals = [replace(s, payload=self._renamed(s.payload)) for s in recording.signals]
        parts = [Part(p.name, self._renamed(p.data), self._renamed(p.entries)) for p in recording.parts]
        return Recording(recording.header, signals, parts, recording.gaps, recording.untrusted)

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._renamed(each) for each in value]
        if not isinstance(value, dict):
            return value
        found = {key: self._renamed(each) for key, each in value.items()}
        is_tool = "name" in found and (
            "parameters" in found or {"id", "input"} <= found.keys() or {"id", "status"} <= found.keys()
        )
        for key in ("tool", "tool_name", *(("name",) if is_tool else ())):
            if isinstance(found.get(key), str):
                found[key] = self.renamed_tools.get(found[key], found[key])
        if isinstance(found.get("capabilities"), list):  # of the signal `ready`
            found["capabilities"] = [self.renamed_tools.get(each, each) for each in found["capabilities"]]
        return found

    def workflow_for(self, workflow: Workflow, recording: Recording) -> Workflow:
        """The application without the agents that were added since, if the policy accepts these."""
        start = recording.start
        if "agents" not in self.accept or start is None:
            return workflow
        known = agents_of(start)
        return dataclasses.replace(workflow, agents={n: agent for n, agent in workflow.agents.items() if n in known})

    def counted(self, recorded: JsonObject, found: tuple[Difference, ...]) -> tuple[Difference, ...]:
        """Return the differences of a signal that are a divergence."""
        if (uncompared := _UNCOMPARED.get(str(recorded["name"]))) is not None:
            return tuple(each for each in found if not each.path.startswith(uncompared))
        if self.accepts_prompts and recorded["name"] == "harness:start":
            return tuple(each for each in found if each.path != "/payload/input")
        return found


def agents_of(start: Part) -> set[str]:
    """The agents with which a run began. Raises InvalidInput (`invalid_recording`) for a part that was edited."""
    data: Any = start.data
    try:
        if "ledger" in data:
            return set(data["ledger"]["agents"])
        if "memory" in data:
            return set(data["memory"]["agents"])
        [call] = start.calls()  # of an earlier version
        return set(call[3]["reaction"]["memory"]["agents"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput("the start of the recording does not have the agents of its application; restore the file from "
                           "its history", code="invalid_recording", path="/start") from error  # fmt: skip
