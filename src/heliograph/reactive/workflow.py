"""A workflow: its agents, its state, how updates are merged, and when it is over. Checked when it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from heliograph.errors import InvalidInput
from heliograph.reactive.agent import AgentSpec
from heliograph.reactive.state import StateShape
from heliograph.signals.pattern import PatternTable, warn_unmatchable

Reducer = Callable[[Any, Any], Any]

# Names that the runtime writes in every run; a pattern may match them without any agent emitting anything.
_RUNTIME_NAMES = (
    "workflow:start", "workflow:terminating", "workflow:end", "agent:activated", "agent:skipped", "agent:completed",
    "agent:failed", "agent:progress", "harness:start", "harness:end", "harness:error", "text:delta", "text:complete",
    "thinking:delta", "thinking:complete", "tool:call", "tool:result", "ready", "plan_ready", "action_complete",
    "reflection_complete", "terminated", "error",
)  # fmt: skip


@dataclass(frozen=True)
class Workflow:
    """All that a reaction needs to know; immutable once built by `build_workflow`."""

    name: str
    agents: Mapping[str, AgentSpec]
    shape: StateShape
    reducers: Mapping[str, Reducer] = field(default_factory=dict)
    end_when: Callable[[Any], bool] | None = None
    max_activations: int = 1000

    @cached_property
    def wakes(self) -> PatternTable[tuple[str, int]]:
        """Signal name to (agent, n): n is -1 for activate_on, else the index into activate_when_all."""
        table: PatternTable[tuple[str, int]] = PatternTable()
        for agent in self.agents.values():
            for pattern in agent.activate_on:
                table.add(pattern, (agent.name, -1))
            for n, pattern in enumerate(agent.activate_when_all):
                table.add(pattern, (agent.name, n))
        return table

    @cached_property
    def warnings(self) -> list[str]:
        """What looks like a mistake and is not one for sure: patterns that nothing can match."""
        emitted = [name for agent in self.agents.values() for name in agent.emits]
        keys = self.shape.keys or {key for agent in self.agents.values() for key in agent.updates}
        emitted += [f"state:{key}:changed" for key in sorted(keys)]
        patterns = [pattern for agent in self.agents.values() for pattern in agent.patterns]
        return warn_unmatchable(patterns, [*_RUNTIME_NAMES, *emitted])


def build_workflow(workflow: Workflow) -> Workflow:
    """`workflow`, checked as a whole. Raises InvalidInput: `no_agents`, `unknown_state_key`, `out_of_range`."""
    if not workflow.agents:
        raise InvalidInput(f"application {workflow.name} has no agents: add one with @app.agent(...)", code="no_agents",
                           path="/agents")  # fmt: skip
    if not 1 <= workflow.max_activations <= 1_000_000:
        raise InvalidInput("max_activations is between 1 and 1000000", code="out_of_range", path="/max_activations")
    keys = workflow.shape.keys
    if keys is not None:
        used = {(f"/agents/{a.name}/updates", key) for a in workflow.agents.values() for key in a.updates}
        used |= {("/reducers", key) for key in workflow.reducers}
        for path, key in sorted(used):
            if key not in keys:
                raise InvalidInput(f"the state has no key {key!r}; it has {', '.join(sorted(keys))}",
                                   code="unknown_state_key", path=path)  # fmt: skip
    return workflow
