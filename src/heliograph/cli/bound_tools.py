"""The tools and servers of a manifest's agent, once they are bound: with the manifest's approvals and limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError
from heliograph.manifest.agent_manifest import AgentManifest
from heliograph.manifest.agent_tools import ToolReference, bound_name
from heliograph.manifest.problems import ManifestProblem, ManifestRejected


def add_tool(
    manifest: AgentManifest, tool: ToolReference, made: Any, bound: dict[str, Any], warnings: list[ManifestProblem]
) -> None:
    """Add a tool, with a warning for one that is named before: an approval of either counts."""
    if tool.bound_name in bound:
        warnings.append(manifest.document.problem(
            "no_effect", f"the tool {safe_repr(tool.bound_name)} is named twice, and the agent has it once", tool.pointer, "remove one of them",
            is_warning=True,
        ))  # fmt: skip
        approvals = (bound[tool.bound_name].approval, made.approval)
        made = replace(made, approval=True if True in approvals else approvals[0] or approvals[1])
    bound[tool.bound_name] = made


def other_parameters(manifest: AgentManifest, tool: ToolReference, found: Any) -> list[ManifestProblem]:
    """Return a warning if the manifest describes other arguments than the bound tool has: those of the bound tool count."""
    from heliograph.tools.bound_tool import BoundTool

    if tool.parameters is None:
        return []
    own = BoundTool(found).spec.parameters
    described: list[Mapping[str, Any]] = [own, tool.parameters]
    keys = [(_names(each.get("properties")), _names(each.get("required"))) for each in described]
    return [] if keys[0] == keys[1] else [manifest.document.problem(
        "no_effect", f"the parameters of {safe_repr(tool.name)} have no effect, because the bound tool has others", tool.pointer,
        "remove them, or write those of the bound tool", is_warning=True)]  # fmt: skip


def parameters_of_server(manifest: AgentManifest, tool: ToolReference, label: str) -> list[ManifestProblem]:
    """Return a warning if the manifest describes the arguments of a tool whose MCP server describes them itself."""
    return [] if tool.parameters is None else [manifest.document.problem(
        "no_effect", f"the parameters of {safe_repr(tool.name)} have no effect, because the MCP server {safe_repr(label)} describes its tools",
        tool.pointer, "remove them", is_warning=True)]  # fmt: skip


def _names(given: Any) -> set[str]:
    """Return the names in a part of a schema, which may be malformed: the manifest's own is not used."""
    return {str(each) for each in given} if isinstance(given, Mapping | list) else set()


def restricted_server(manifest: AgentManifest, server: Any, listed: Collection[str] | None) -> Any:
    """Return a server without the tools that the manifest excludes. Raises ManifestRejected for a toolset that has no such limit.

    listed: the names of its tools that the agent lists; None if the agent names the server.
    """
    from heliograph.tools.mcp import MCPServer
    from heliograph.tools.restricted_server import restricted

    rules = manifest.rules
    is_limited = isinstance(server, MCPServer)
    if not rules.narrows_servers and (listed is None or not is_limited):
        return server
    if not is_limited:
        raise ManifestRejected([manifest.document.problem(
            "not_allowed", "the bound toolset is no MCP server, so the manifest cannot limit its tools", "/spec/autonomy",
            "remove the limits, or bind single tools")])  # fmt: skip
    chooses = {} if listed is None else {"chooses": partial(_is_listed, {bound_name(each) for each in listed})}
    return restricted(
        server, permits=partial(rules.permits_of_server, server.label), approves=rules.requires_approval, **chooses
    )


def _is_listed(listed: Collection[str], *names: str) -> bool:
    return any(bound_name(each) in listed for each in names)


def approved_tool(tool: Any, needs_approval: bool) -> Any:
    """Return a tool or a server; one whose calls require an approval if that is so."""
    return replace(tool, approval=True) if needs_approval else tool


def external_tool_of(manifest: AgentManifest, tool: ToolReference, needs_approval: bool) -> Any:
    """Return the external tool that the manifest describes. Raises ManifestRejected, for example for an invalid schema."""
    from heliograph.definitions.tool import external_tool
    from heliograph.tools.bound_tool import BoundTool

    schema = tool.parameters
    try:
        made = external_tool(
            tool.bound_name,
            tool.description,
            None if schema is None else {"type": "object", **schema},
            approval=needs_approval,
        )
        BoundTool(made)  # checks the schema
    except HeliographError as error:
        raise ManifestRejected(
            [manifest.document.problem(error.code, error.message, tool.pointer, error.hint or "correct the tool")]
        ) from error
    return made
