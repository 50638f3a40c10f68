"""The route table of an application: checked when the application is built, with the URLs of its gateways in place of their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.control.model_errors import nearest
from heliograph.control.routing import Destination, RouteTable, read_routes
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer
from heliograph.policy.egress import EgressRejected, parse

_EXAMPLE = "for example https://agents.example/"


def check_routes(given: Any, gateways: Any = None) -> RouteTable:
    """Read the routes of an application: a RouteTable, or its parsed JSON or YAML. gateways: URLs by the names that routes use.

    Raises InvalidInput: the errors of `read_routes`, `unknown_gateway`, and `invalid_url` and `wrong_type` for a gateway.
    """
    table = given if isinstance(given, RouteTable) else read_routes(given, "/routes")
    urls = check_gateways(gateways)
    routes = tuple(
        route.model_copy(update={"destination": _addressed(route.destination, urls, f"/routes/routes/{n}/destination")})
        for n, route in enumerate(table.routes)
    )
    default = None if table.default is None else _addressed(table.default, urls, "/routes/default")
    return table.model_copy(update={"routes": routes, "default": default})


def check_gateways(gateways: Any) -> dict[str, str]:
    """Return the URLs of gateways by their names. Raises InvalidInput: `wrong_type`, `invalid_url`."""
    if gateways is None:
        return {}
    if not isinstance(gateways, Mapping):
        raise InvalidInput(f"gateways must be an object of names and URLs, not {safe_repr(repr_of(gateways))}", code="wrong_type",
                           path="/gateways")  # fmt: skip
    for name, url in gateways.items():
        path = pointer("/gateways", str(name))
        if not _is_url(url):
            raise InvalidInput(f"the gateway {safe_repr(name)} must be a URL, {_EXAMPLE}, not {safe_repr(repr_of(url))}", code="invalid_url",
                               path=path)  # fmt: skip
        _check_url(url, path)
    return dict(gateways)


def _addressed(destination: Destination, urls: Mapping[str, str], path: str) -> Destination:
    """Return the destination with the URL of its gateway in place of the name."""
    name = destination.gateway
    if name is None:
        return destination
    if name in urls:
        return destination.model_copy(update={"gateway": urls[name]})
    if not _is_url(name):
        raise InvalidInput(f"the gateway {safe_repr(name)} of a route has no URL: add it to the gateways of the application, or write a "
                           f"URL, {_EXAMPLE}{nearest(name, urls)}", code="unknown_gateway", path=f"{path}/gateway")  # fmt: skip
    _check_url(name, f"{path}/gateway")
    return destination


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("https://", "http://"))


def _check_url(url: str, path: str) -> None:
    try:
        parse(url)
    except EgressRejected as error:  # whose message has no password
        raise InvalidInput(
            f"the URL of a gateway is not acceptable: {error.message}", code="invalid_url", path=path
        ) from None
