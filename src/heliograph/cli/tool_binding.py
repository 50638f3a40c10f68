"""Bind the tools and MCP servers that a manifest's agent names: to an application, to MCP servers, or to external workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from heliograph.cli.bindings import Bindings
from heliograph.cli.bound_tools import (
    add_tool,
    approved_tool,
    external_tool_of,
    other_parameters,
    parameters_of_server,
    restricted_server,
)
from heliograph.cli.manifest_servers import offered_names, server_of
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError
from heliograph.manifest.agent_manifest import AgentManifest
from heliograph.manifest.agent_tools import ServerReference, ToolReference, bound_name
from heliograph.manifest.problems import ManifestProblem, gathered


def bound_tools(
    manifest: AgentManifest, bindings: Bindings, problems: list[ManifestProblem], *, asks: bool = True
) -> list[Any]:
    """Return the tools and servers of the agent. What is missing, what is invalid, and warnings are added to `problems`.

    asks: whether servers without a list of tools are started to ask them, if the bindings permit it. Otherwise a tool that such a server
    may have is not missing.
    """
    return _ToolBinding(manifest, bindings, problems, asks=asks).tools()


class _ToolBinding:
    """The binding of one manifest.

    bound: tools by their names in Heliograph. used: MCP servers by their labels. listed: the tools of a used server that the manifest
    lists one by one; the agent has only these. whole: the used servers that the manifest names as a whole. needed: declared servers that
    a tool needs. approved: servers of which all calls require an approval, because those of one tool do.
    """

    def __init__(self, manifest: AgentManifest, bindings: Bindings, problems: list[ManifestProblem], *, asks: bool):
        self._manifest = manifest
        self._rules = manifest.rules
        self._bindings = bindings
        self._problems = problems
        self._asks = asks
        self._declared = {each.name: each for each in manifest.servers}
        self._bound: dict[str, Any] = {}
        self._used: dict[str, Any] = {}
        self._listed: dict[str, set[str]] = {}
        self._whole: set[str] = set()
        self._needed: set[str] = set()
        self._approved: set[str] = set()

    def tools(self) -> list[Any]:
        for tool in self._manifest.tools:
            if self._rules.permits(tool.name, *([tool.server] if tool.server else [])):
                with gathered(self._problems):
                    self._bind(tool, requires=tool.needs_approval or self._rules.requires_approval(tool.name))
        for reference in self._manifest.servers:
            with gathered(self._problems):
                self._add(reference)
        made = list(self._bound.values())
        for label, server in self._used.items():
            only = self._listed_of(label)
            with gathered(self._problems):
                made.append(restricted_server(self._manifest, approved_tool(server, label in self._approved), only))
        return made

    def _listed_of(self, label: str) -> set[str] | None:
        """Return the tools of a used server that the manifest lists; None for all. A server of the application has its declaration's list."""
        listed = None if label in self._whole else self._listed.get(label)
        declared = self._declared.get(label)
        if declared is None or declared.tools is None or label not in self._bindings.servers:
            return listed
        permitted = {bound_name(each) for each in declared.tools}
        return permitted if listed is None else {each for each in listed if bound_name(each) in permitted}

    def _bind(self, tool: ToolReference, *, requires: bool) -> None:
        """Bind one tool. Raises ManifestRejected for one that is invalid."""
        own = self._bindings.tools.get(tool.name) or self._bindings.tools.get(tool.bound_name)
        if own is not None:
            self._problems += other_parameters(self._manifest, tool, own)
            add_tool(self._manifest, tool, approved_tool(own, requires), self._bound, self._problems)
        elif (server := self._server_with(tool)) is not None:
            self._used[server.label] = server
            self._list(tool, server.label, requires, is_whole=tool.name == server.label)
        elif (reference := self._declared_with(tool)) is not None:
            self._needed.add(reference.name)
            is_declaration = tool.pointer == reference.pointer
            self._list(tool, reference.name, requires, is_whole=is_declaration or tool.name == reference.name)
        elif (label := self._asked(tool)) is not None:
            self._list(tool, label, requires, is_whole=False)
        elif self._bindings.external:
            made = external_tool_of(self._manifest, tool, requires)
            add_tool(self._manifest, tool, made, self._bound, self._problems)
        elif self._asks or not self._may_have(tool):
            self._problems.append(self._missing(tool))

    def _list(self, tool: ToolReference, label: str, requires: bool, *, is_whole: bool) -> None:
        """Note that the agent has a tool of a server, or the whole server. An approval of one tool holds for all calls of the server."""
        if is_whole:
            self._whole.add(label)
        else:
            self._listed.setdefault(label, set()).add(tool.name)
        if requires:
            self._approved.add(label)
        self._problems += parameters_of_server(self._manifest, tool, label)

    def _add(self, reference: ServerReference) -> None:
        """Add a server that the manifest declares, if the agent needs it or may use it. Raises ManifestRejected for an invalid one."""
        name, rules = reference.name, self._rules
        named = {tool.server for tool in self._manifest.tools} | {tool.name for tool in self._manifest.tools}
        if reference.tools == () or (name not in self._needed and (name in named or not self._permits(reference))):
            return
        requires = rules.requires_approval(name)
        offered = [bound_name(each) for each in reference.tools or ()]
        if offered and all(each in self._bound for each in offered):  # the agent has all of its tools from elsewhere
            self._bound |= {each: approved_tool(self._bound[each], requires) for each in offered}
            return
        requires = rules.requires_approval(name, *(reference.tools or ()))
        if name in self._bindings.tools:  # the application has a tool instead
            self._bound[name] = approved_tool(self._bindings.tools[name], requires)
            return
        made = self._used.get(name) or self._made(reference)
        if isinstance(made, ManifestProblem):
            is_optional = self._bindings.external and not self._bindings.starts_servers and name not in self._needed
            self._problems.append(replace(made, is_warning=is_optional))  # other programs run the tools
            return
        self._used[name] = made
        if requires:
            self._approved.add(name)

    def _made(self, reference: ServerReference) -> Any:
        """Return the server in place of a declared one, or the problem of what it lacks. Raises ManifestRejected."""
        may_start = self._bindings.starts_servers
        return self._bindings.servers.get(reference.name) or server_of(
            self._manifest.document, reference, may_start=may_start
        )

    def _permits(self, reference: ServerReference) -> bool:
        """Whether the agent may use a server, or one of the tools that it lists."""
        permits = self._rules.permits_of_server
        if not reference.tools:
            return permits(reference.name)
        return any(permits(reference.name, each) for each in reference.tools)

    def _server_with(self, tool: ToolReference) -> Any:
        """Return the MCP server of the application with the tool: one of its name, or one that lists the tool."""
        servers = self._bindings.servers
        for key in (tool.server, tool.name):
            if key and key in servers:
                return servers[key]
        return next((each for each in servers.values() if each.tools is not None and tool.name in each.tools), None)

    def _declared_with(self, tool: ToolReference) -> ServerReference | None:
        """Return the server of the manifest with the tool, unless it may not be started and other programs run the tool."""
        servers = self._declared.values()
        offering = (each for each in servers if each.tools is not None and tool.name in each.tools)
        found = self._declared.get(tool.server or tool.name) or next(offering, None)
        is_usable = found is None or self._bindings.starts_servers or not self._bindings.external
        return found if is_usable else None

    def _asked(self, tool: ToolReference) -> str | None:
        """Return the label of the server that has a tool which nothing else has, according to its own list."""
        if tool.server or not (self._asks and self._bindings.starts_servers):
            return None
        for label, (server, names) in self._offers.items():
            if bound_name(tool.name) in names:
                self._used[label] = server
                self._needed |= {label} & self._declared.keys()
                return label
        return None

    def _may_have(self, tool: ToolReference) -> bool:
        """Whether a server that may be started and asked could have a tool."""
        return tool.server is None and self._bindings.starts_servers and any(True for _ in self._silent_servers())

    @cached_property
    def _offers(self) -> dict[str, tuple[Any, frozenset[str]]]:
        """The servers without a list of tools, and the names of the tools that each has. They are started to ask them."""
        found: dict[str, tuple[Any, frozenset[str]]] = {}
        for label, server in self._silent_servers():
            try:
                found[label] = (server, offered_names(server))
            except HeliographError as error:
                problem = self._manifest.document.problem(
                    "missing_tool", f"the MCP server {safe_repr(label)} did not list its tools: {safe_repr(error.message, 300)}",
                    self._declared[label].pointer if label in self._declared else "/spec/tools", "start it by hand, or correct its settings",
                )  # fmt: skip
                self._problems.append(replace(problem, binding=label))
        return found

    def _silent_servers(self) -> Iterator[tuple[str, Any]]:
        """Yield the servers without a list of tools: those of the application, and those of the manifest that lack nothing."""
        for label, server in self._bindings.servers.items():
            if getattr(server, "tools", ()) is None:
                yield label, server
        for reference in self._manifest.servers:
            if reference.tools is None and reference.name not in self._bindings.servers and self._permits(reference):
                made = self._made(reference)
                if not isinstance(made, ManifestProblem):
                    yield reference.name, made

    def _missing(self, tool: ToolReference) -> ManifestProblem:
        """Return the problem of a tool to which nothing is bound."""
        code, what = ("missing_agent", "agent") if tool.kind == "a2a" else ("missing_tool", "tool")
        known = [*self._bindings.tools, *self._bindings.servers]
        silent = [each.name for each in self._manifest.servers if each.tools is None]
        silent += [label for label, each in self._bindings.servers.items() if getattr(each, "tools", ()) is None]
        if similar := get_close_matches(tool.bound_name, known, 1):
            hint = f"did you mean {similar[0]}?"
        elif silent and not self._bindings.starts_servers:
            hint = f"if the MCP server {safe_repr(silent[0])} has it, --start-servers finds it there, or write server: {safe_repr(silent[0])}"
        elif known:
            hint = f"the application has {', '.join(known)}"
        else:
            hint = "bind it: --tools FILE.py:app names an application with this tool; --external-tools leaves it to other programs"
        problem = self._manifest.document.problem(
            code, f"nothing is bound to the {what} {safe_repr(tool.name)}", tool.pointer, hint
        )
        return replace(problem, binding=tool.name)
