"""An agent that executes one tool: its task has the arguments, and its output is the tool's result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph.definitions.agent import AgentSpec, define_agent
from heliograph.definitions.plan import Plan, ToolStep
from heliograph.definitions.step_references import literal
from heliograph.definitions.tool import Tool
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput

if TYPE_CHECKING:
    from typing import Unpack

    from heliograph.definitions.agent_options import SharedOptions


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """A plan hook: one step, which calls the tool with the task."""

    tool: str

    def __call__(self, context: Any) -> Plan:
        task = context.task
        if not isinstance(task, dict):
            raise InvalidInput(
                f"the arguments of tool {self.tool} must be an object, not {safe_repr(task)}", code="wrong_type"
            )
        arguments: Any = literal(task)  # a sender's arguments are values, and no references to steps
        return Plan([ToolStep(self.tool, arguments)])


def tool_agent(tool: Tool, **options: Unpack[SharedOptions[Callable[[Any], Any]]]) -> AgentSpec:
    """Define an agent with the name of a tool that executes it, for `Heliograph.add`. A gateway sends it the `tool_call`s of others.

    options: those of `Heliograph.agent`. By default the tool runs without approval after an untrusted task, because every received task
    is untrusted; `Tool.approval` applies. Raises InvalidInput.
    """
    if not isinstance(tool, Tool):
        raise InvalidInput(f"the argument of tool_agent must be a Tool, not {safe_repr(repr_of(tool))}; decorate the function with @tool",
                           code="wrong_type", path="/tools")  # fmt: skip
    chosen: dict[str, Any] = {"on_request": True, "after_untrusted": "allow", **options}
    return define_agent(tool.name, **chosen, tools=[tool], plan=ToolPlan(tool.name))
