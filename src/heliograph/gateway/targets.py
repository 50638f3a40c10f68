"""The agents and tools that a gateway exposes to other systems. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heliograph.control.model_errors import nearest
from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.tool_agent import ToolPlan
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.reactive.workflow import Workflow


@dataclass(frozen=True, slots=True)
class Target:
    """An agent that executes received tasks. Each task is a run of `workflow`."""

    workflow: Workflow
    agent: AgentSpec

    @property
    def key(self) -> str:
        return f"{self.workflow.name}/{self.agent.name}"

    @property
    def is_tool(self) -> bool:
        """Whether the agent was made by `tool_agent`, so that it takes tool calls."""
        return isinstance(self.agent.hooks.get("plan"), ToolPlan)


class Targets:
    """The exposed agents of some applications, by name.

    names: the exposed agents; None for those without a signal that activates them, which exist to receive tasks.
    Raises InvalidInput: `duplicate_agent`, `unknown_agent`, and the problem of an application whose state needs a value.
    """

    def __init__(self, workflows: Iterable[Workflow], names: Sequence[str] | None):
        self.applications: dict[str, Workflow] = {}
        self._by_name: dict[str, Target] = {}
        for workflow in workflows:
            self.applications[workflow.name] = workflow
            _check_state(workflow)
            for agent in workflow.agents.values():
                if agent.name in names if names is not None else not agent.patterns:
                    self._add(Target(workflow, agent))
        for name in names or ():
            self._find(name, self._by_name, "agent", "/agents")
        if not self._by_name:
            raise InvalidInput("a gateway needs an agent to expose; add one with @app.agent(on_request=True), or name it in agents",
                               code="no_agents", path="/agents")  # fmt: skip

    def agent(self, name: str, path: str = "/envelope/signal/payload/target_agent") -> Target:
        """Return the target of a delegation. path: the JSON pointer of the name. Raises NotFound (`unknown_agent`) with the nearest name."""
        return self._find(name, self._by_name, "agent", path)

    def tool(self, name: str) -> Target:
        """Return the target of a tool call. Raises NotFound (`unknown_tool`) with the nearest name."""
        tools = {key: target for key, target in self._by_name.items() if target.is_tool}
        return self._find(name, tools, "tool", "/envelope/signal/payload/tool_name")

    def _add(self, target: Target) -> None:
        if (other := self._by_name.get(target.agent.name)) is not None:
            raise InvalidInput(f"applications {other.workflow.name} and {target.workflow.name} both expose an agent {target.agent.name}; "
                               "rename one, or use two gateways", code="duplicate_agent", path="/agents")  # fmt: skip
        self._by_name[target.agent.name] = target

    @staticmethod
    def _find(name: str, known: dict[str, Target], what: str, path: str) -> Target:
        if name not in known:
            raise NotFound(f"this gateway exposes no {what} {safe_repr(name, 80)}{nearest(name[:200], known)}",
                           code=f"unknown_{what}", path=path)  # fmt: skip
        return known[name]


def _check_state(workflow: Workflow) -> None:
    """A received task starts a run with an empty state."""
    try:
        workflow.shape.dump({})
    except InvalidInput as error:
        raise InvalidInput(f"application {workflow.name} cannot start with an empty state, as tasks of a gateway do ({error.message}); "
                           "give each key a default", code=error.code, path="/state") from None  # fmt: skip
