"""`kind: MessageRouting`: the route table of a deployment."""

# Requirements: RTE-01 to RTE-09, G-24, G-32.
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.control.routing import RouteTable, read_routes
from heliograph.control.wildcard import compile_wildcard
from heliograph.errors import InvalidInput
from heliograph.manifest.document import Document
from heliograph.manifest.problems import ManifestProblem, ManifestRejected, accepted
from heliograph.manifest.sections import misplaced_expressions, problems_of_schema, read_section
from heliograph.policy.app_routes import check_routes

KIND = "MessageRouting"
_ROUTED = ("delegation", "tool_call")
_OF_APPLICATION = "/routes"


@dataclass(frozen=True, slots=True)
class MessageRouting:
    """A route table that was read. document: the places of all values. warnings: the routes without an effect."""

    document: Document
    table: RouteTable
    warnings: tuple[ManifestProblem, ...] = ()

    def checked_table(self, gateways: Mapping[str, str] | None) -> RouteTable:
        """Return the table with the URLs of its gateways. Raises ManifestRejected for a name without a URL."""
        try:
            return check_routes(self.table, gateways)
        except InvalidInput as error:
            if not (error.path or "").startswith(_OF_APPLICATION):
                raise  # the gateways themselves are wrong, and they do not come from the manifest
            raise ManifestRejected([self.document.problem_of(error, _OF_APPLICATION)]) from None


def read_message_routing(document: Document) -> MessageRouting:
    """Read a route table. Raises ManifestRejected with all problems."""
    found = [*document.problems, *problems_of_schema(document, KIND)]
    if document.is_readable:
        found += misplaced_expressions(document, lambda pointer: False)
    table = read_section(document, "", read_routes, found)
    if table is not None:
        found += _warn_of_types(document, table)
    warnings = accepted(found)
    assert table is not None
    return MessageRouting(document, table, tuple(warnings))


def _warn_of_types(document: Document, table: RouteTable) -> list[ManifestProblem]:
    """Return a warning for each route of signals that the runtime does not route."""
    return [
        document.problem("no_effect", f"a route of {route.match.signal_type} has no effect: only delegations and tool calls are routed",
                         f"/routes/{n}/match/signal_type", "remove the route", is_warning=True)
        for n, route in enumerate(table.routes)
        if route.match.signal_type is not None
        and not any(compile_wildcard(route.match.signal_type).matches(each) for each in _ROUTED)
    ]  # fmt: skip
