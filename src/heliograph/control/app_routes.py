"""The route table of an application: what its runtime can do with the routes, checked when the application is built."""

from __future__ import annotations

from typing import Any

from heliograph.control.routing import Destination, RouteTable, read_routes
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput


def check_routes(given: Any) -> RouteTable:
    """Read the routes of an application: a RouteTable, or its parsed JSON or YAML.

    Raises InvalidInput: the errors of `read_routes`, and `unsupported_route` for a destination that no part of the runtime serves.
    """
    table = given if isinstance(given, RouteTable) else read_routes(given, "/routes")
    for n, route in enumerate(table.routes):
        _check_supported(route.destination, f"/routes/routes/{n}/destination")
    if table.default is not None:
        _check_supported(table.default, "/routes/default")
    return table


def _check_supported(destination: Destination, path: str) -> None:
    if destination.gateway is not None and not destination.gateway.startswith(("https://", "http://")):
        raise InvalidInput(f"the gateway {safe_repr(destination.gateway)} is no URL; write for example https://agents.example/",
                           code="unsupported_route", path=f"{path}/gateway")  # fmt: skip
