"""Check that all calls that share the bucket of a rate limit have the same limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.call_settings import CallSettings
from heliograph.definitions.tool import Tool
from heliograph.errors import InvalidInput
from heliograph.types import first_given

if TYPE_CHECKING:
    from heliograph.control.rates import RateLimit


def check_shared_limits(
    agents: Mapping[str, AgentSpec], tool_calls: Mapping[str, CallSettings],
    delegation_settings: Callable[[str, str], CallSettings],
) -> None:  # fmt: skip
    """Raise InvalidInput (`conflicting_limits`) if agents call one tool, or delegate to one agent, with different limits.

    tool_calls: the settings of the calls of each agent. delegation_settings: those of a caller's delegations to an agent.
    The calls share a bucket, which is exact for one limit only: if two limits alternate, each call with the higher one lets the
    bucket forget a part of what it has counted for the lower one. The names in the code of functions and the tools of servers are unknown here.
    """
    limits: dict[tuple[str, str], tuple[RateLimit, str]] = {}
    for caller in agents.values():
        for kind, name, limit in _limits_of(caller, tool_calls[caller.name], delegation_settings):
            first, owner = limits.setdefault((kind, name), (limit, caller.name))
            if limit != first:
                raise InvalidInput(
                    f"{kind} {name} has the rate limit {first} for the calls of agent {owner} and {limit} for those of agent {caller.name}, and "
                    f"they share one bucket: set one limit, at the {kind} or for the application, or give one {kind} another name",
                    code="conflicting_limits", path=f"/agents/{caller.name}/{kind}s")  # fmt: skip


def _limits_of(
    caller: AgentSpec, tool_calls: CallSettings, delegation_settings: Callable[[str, str], CallSettings]
) -> Iterator[tuple[str, str, RateLimit]]:
    """The known buckets of the calls of an agent, with their limits."""
    for tool in caller.tools:
        if isinstance(tool, Tool) and (limit := first_given(tool.limit, tool_calls.rate_limit)) is not None:
            yield "tool", tool.name, limit
    for name in caller.agents:
        if (limit := delegation_settings(caller.name, name).rate_limit) is not None:
            yield "agent", name, limit
