"""The tools that the model of one turn may call: the agent's own, those of its tool servers, and the runtime's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.agent_loop.builtin_tools import builtin_specs
from heliograph.agent_loop.delegation_tool import DelegationTools
from heliograph.agent_loop.required_result import submits
from heliograph.definitions.tool import SUBMIT_RESULT, Tool
from heliograph.errors import InvalidInput
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.ports import ToolSpec
from heliograph.tools.bound_tool import BoundTool
from heliograph.turn.taint import Taint
from heliograph.turn.untrusted import framed_schema, untrusted


class TurnTools:
    """The tools of one turn, by their names.

    bound: the tools of the agent and of its servers. builtin: the tools of the runtime, delegations included.
    """

    def __init__(self, owned: OwnedTurn, contexts: Mapping[str, str]):
        """contexts: the context boxes that the model may pass on, by the names in its prompt.

        Raises InvalidInput, and the error of a tool server that could not be opened.
        """
        spec, resources = owned.spec, owned.resources
        self._spec = spec
        self.delegations = DelegationTools(owned, contexts)
        self.builtin = builtin_specs(spec, owned.required_fields if submits(owned) else (), self.delegations.specs)
        self.bound: dict[str, BoundTool] = {}
        self._bound_specs: dict[str, ToolSpec] = {}
        if resources.tools_error is not None:
            raise resources.tools_error
        for place, given in enumerate(spec.tools):
            is_own = isinstance(given, Tool)
            for bound in resources.tools[place]:
                tool = bound.tool
                if tool.name in self.bound or tool.name in self.builtin:
                    raise InvalidInput(f"agent {spec.name} has two tools named {tool.name}; give one of them another name, "
                                       "or its server a prefix", code="duplicate_entry")  # fmt: skip
                self.bound[tool.name] = bound
                is_framed = not (is_own or tool.trusted)
                self._bound_specs[tool.name] = _framed(bound.spec, given, owned.taint) if is_framed else bound.spec
                owned.taint.offer(tool)

    @property
    def names(self) -> list[str]:
        return sorted([*self.bound, *self.builtin])

    @property
    def must_end_with(self) -> str | None:
        """The tool whose call must end the turn, if there is one."""
        return self._spec.must_end_with or (SUBMIT_RESULT if SUBMIT_RESULT in self.builtin else None)

    @property
    def step_specs(self) -> list[ToolSpec]:
        """The tools and delegations that the steps of a plan may use."""
        return [*self._bound_specs.values(), *self.delegations.specs]

    def specs_at(self, step: int) -> list[ToolSpec]:
        """The tools that the model may call in this step; in the last step only those that can still end the turn."""
        specs = [*self._bound_specs.values(), *self.builtin.values()]
        return specs if step < self._spec.max_steps else [each for each in specs if each.name == self.must_end_with]

    def is_trusted(self, name: str) -> bool:
        """Whether the results of a tool are trusted. A tool that no longer exists counts as untrusted."""
        if name in self.bound:
            return self.bound[name].tool.trusted
        return name in self.builtin and self.delegations.is_trusted(name)


def _framed(spec: ToolSpec, server: Any, taint: Taint) -> ToolSpec:
    """A tool whose description, from an untrusted server, gets a frame. Offering it taints the turn."""
    source = f"the tools of {getattr(server, 'label', 'a server')}"
    taint.read(source)
    parameters = framed_schema(spec.parameters, source)
    assert isinstance(parameters, dict)
    return ToolSpec(spec.name, untrusted(spec.description, source) if spec.description else "", parameters)
