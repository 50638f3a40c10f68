"""Check what an application is given: functions and classes of agents, their tools, the routes and the memory."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.hooks import Agent, methods_of
from heliograph.definitions.lifecycle import HOOKS
from heliograph.definitions.tool import Tool
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput

if TYPE_CHECKING:
    from heliograph.control.routing import RouteTable


def hooks_of(kind: type[Agent], options: Mapping[str, Any]) -> dict[str, Any]:
    """The hooks of a class, as options of `define_agent`. Raises InvalidInput for a hook that is also an option."""
    if twice := next((hook for hook in HOOKS if options.get(hook) is not None), None):
        raise InvalidInput(f"agent {kind.__name__}: {twice} must be a method of the class, not an option", code="wrong_type",
                           path=f"/agents/{kind.__name__}/{twice}")  # fmt: skip
    methods = methods_of(kind)
    return {"run" if phase == "act" else phase: function for phase, function in methods.items()}


def name_of_function(function: Any) -> str:
    """Return the name of a function. Raises InvalidInput (`required_field`) for a lambda or an object, which have none."""
    if isinstance(function, Agent):
        kind = type(function).__name__
        raise InvalidInput(f"an agent with hooks is a class, not an object: register {kind} instead of {kind}()", code="wrong_type",
                           path="/agents")  # fmt: skip
    if not callable(function):
        raise InvalidInput(f"an agent must be a function of the context, not {safe_repr(repr_of(function))}", code="wrong_type",
                           path="/agents")  # fmt: skip
    name = getattr(function, "__name__", "<lambda>")
    if name == "<lambda>":
        raise InvalidInput(f"{named(function)} has no name of its own; write @app.agent(name='...', "
                           "activate_on=[...])", code="required_field", path="/agents")  # fmt: skip
    return str(name)


def check_tools(spec: AgentSpec) -> None:
    """Raise InvalidInput for a tool that no model can call, before a model calls it."""
    tools = [each for each in spec.tools if isinstance(each, Tool)]
    if tools and find_spec("pydantic_ai") is not None:
        from heliograph.tools.bound_tool import BoundTool

        for each in tools:
            BoundTool(each)


def checked_routes(routes: Any, gateways: Any) -> RouteTable | None:
    if routes is None and gateways is None:
        return None
    from heliograph.policy.app_routes import check_gateways, check_routes  # slow to import

    if routes is None:  # the route table may come from a manifest
        check_gateways(gateways)
        return None
    return check_routes(routes, gateways)


def checked_memory(memory: Any) -> Any:
    if memory is not None and not all(
        inspect.iscoroutinefunction(getattr(memory, f, None)) for f in ("store", "search")
    ):
        raise InvalidInput(f"memory must have the async methods store and search of heliograph.memory.Memory; {named(memory)} "
                           "does not have them", code="wrong_type", path="/memory")  # fmt: skip
    return memory


def named(value: object) -> str:
    """Return a function's name, or the repr of another value: a function's repr would contain its address in memory."""
    return str(getattr(value, "__qualname__", None) or safe_repr(repr_of(value)))
