"""Put stubs in the place of an application's models, tools and MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from heliograph.app import Heliograph
from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.tool import Tool
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, SetupError
from heliograph.harness.resolve import Harnesses
from heliograph.ports import Harness
from heliograph.testing.stub_server import StubbedServer, StubServer
from heliograph.type_variables import AppDeps, AppState
from heliograph.types import JsonObject

Models: TypeAlias = Harness | Mapping[str, Harness] | None  # one for all models, or one for each name
Tools: TypeAlias = Mapping[str, Callable[..., Any]]  # by the names of tools
Servers: TypeAlias = Mapping[str, StubServer]  # by the labels of MCP servers


class StubbedModels(Harnesses):
    """The harnesses of a process in which no model is called over the network.

    stubs: replace the models with these names, or all models. A model without a stub must be a harness, such as a ScriptedModel.
    """

    def __init__(self, stubs: Models):
        super().__init__()
        self._stubs = stubs

    def __call__(self, model: Any) -> Harness:
        """Return the stub of a model. Raises SetupError (`no_model`)."""
        if self._stubs is not None and not isinstance(self._stubs, Mapping):
            return self._stubs
        named = getattr(model, "model_name", None) or getattr(model, "model", None)
        for name in (model, named):
            if isinstance(name, str) and self._stubs is not None and name in self._stubs:
                return self._stubs[name]
        if hasattr(model, "stream") and hasattr(model, "model"):
            return super().__call__(model)
        what = "the default model" if model is None else f"model {safe_repr(model)}"
        raise SetupError(
            f"{what} has no stub: pass models=ScriptedModel(...) for all models, or models={{name: ScriptedModel(...)}}",
            code="no_model",
        )


def with_stubs(
    app: Heliograph[AppState, AppDeps], tools: Tools | None, servers: Servers | None
) -> Heliograph[AppState, AppDeps]:
    """Return a copy of an application with stubs of tools and of MCP servers; schemas, effects and approvals of the tools remain.

    tools: functions by the names of the tools that they replace. They receive the arguments as JSON, by name, and a ToolContext if a
    parameter is annotated with it. servers: stubs by the labels of the MCP servers.

    Raises InvalidInput (`unknown_tool`, `unknown_server`) for a name that no function tool and no server has.
    """
    stubs, used = _Stubs(tools or {}, servers or {}), set[tuple[str, str]]()
    agents = {name: _with_stubs(spec, stubs, used) for name, spec in app.workflow.agents.items()}
    for kind, code, given, known in (
        ("tool", "unknown_tool", stubs.tools, {each.name for each in _tools_of(app) if _is_function(each)}),
        ("server", "unknown_server", stubs.servers, {each.label for each in _tools_of(app) if _is_server(each)}),
    ):
        if unused := sorted(name for name in given if (kind, name) not in used):
            what = "tool {} that is a function" if kind == "tool" else "MCP server {}"
            raise InvalidInput(f"application {app.name} has no {what.format(unused[0])}; it has {', '.join(sorted(known)) or 'none'}",
                               code=code, path=f"/{kind}s/{unused[0]}")  # fmt: skip
    made = copy(app)
    made.__dict__.pop("_workflow", None)
    made._agents = agents
    return made


@dataclass(frozen=True, slots=True)
class _Stubs:
    tools: Tools
    servers: Servers


def _tools_of(app: Heliograph) -> Iterable[Any]:
    return (each for spec in app.workflow.agents.values() for each in spec.tools)


def _is_function(each: Any) -> bool:
    return isinstance(each, Tool) and each.function is not None


def _is_server(each: Any) -> bool:
    return hasattr(each, "open_tools") and hasattr(each, "label")


def _with_stubs(spec: AgentSpec, stubs: _Stubs, used: set[tuple[str, str]]) -> AgentSpec:
    tools = []
    for each in spec.tools:
        if _is_function(each) and each.name in stubs.tools:
            used.add(("tool", each.name))
            tools.append(replace(each, function=stubs.tools[each.name], parameters=_schema_of(each), isolated=False))
        elif _is_server(each) and each.label in stubs.servers:
            used.add(("server", each.label))
            tools.append(StubbedServer(each, stubs.servers[each.label]))
        else:
            tools.append(each)
    return replace(spec, tools=tuple(tools))


def _schema_of(tool: Tool) -> JsonObject:
    """The schema of the real function, which models see and which checks their arguments."""
    from heliograph.tools.bound_tool import BoundTool  # slow to import, and applications without tools do without it

    return BoundTool(tool).spec.parameters
