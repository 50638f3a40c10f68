"""The route of a call: chosen when the call is written, and stored with it in the same commit. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.definitions.agent import PRIORITIES
from heliograph.definitions.rate_limits import Rate, rates_of
from heliograph.execution.delegation_targets import check_agent
from heliograph.execution.gateway_calls import check_for_gateway
from heliograph.reactive.workflow import Workflow
from heliograph.turn.calls import CallRequest

if TYPE_CHECKING:
    from heliograph.control.routing import Destination


def destination_of_call(workflow: Workflow, request: CallRequest) -> Destination | None:
    """Where the application's routes lead a delegation or a call of an external tool; None without a route, and for other calls."""
    if workflow.routes is None or request.kind not in ("child", "tool"):
        return None
    if request.kind == "child":
        return workflow.routes.destination_of_call("delegation", target_agent=request.tool)
    return workflow.routes.destination_of_call("tool_call", tool_name=request.tool)


def check_delegation(workflow: Workflow, request: CallRequest) -> CallRequest:
    """Return a delegation that is made now. Raises InvalidInput: `unknown_agent`, and `unknown_field` for an option that only a local
    turn can have.
    """
    if request.kind == "child":
        if workflow.is_remote(request.tool):
            return check_for_gateway(request)
        check_agent(request.tool, workflow)
    return request


def rates_of_call(workflow: Workflow, request: CallRequest, destination: Destination | None) -> tuple[Rate, ...]:
    """The rates of a call: its own, and that of its route, whose bucket has the name of the application and the place of the route."""
    routes = workflow.routes
    if routes is None or destination is None or destination.rate_limit is None:
        return request.rates
    places = [str(n) for n, route in enumerate(routes.routes) if route.destination is destination]
    name = f"{workflow.name}/{places[0] if places else 'default'}"
    return (*request.rates, *rates_of("route", name, destination.rate_limit))


def is_tool_call(workflow: Workflow, request: CallRequest) -> bool:
    """Whether the kernel records a call as that of a tool: external tools, and delegations through a gateway."""
    destination = destination_of_call(workflow, request)
    return request.kind == "tool" or (destination is not None and destination.gateway is not None)


def priority_of_delegation(workflow: Workflow, request: CallRequest, destination: Destination | None) -> int:
    """The priority of a delegated turn: that of the delegation, else of the route, else of the agent. A route can force its own."""
    own = request.priority
    if destination is not None:
        chosen = destination.choose_priority(None if own is None else PRIORITIES[own])
        own = None if chosen is None else PRIORITIES.index(chosen)
    return workflow.agents[request.tool].priority if own is None else own
