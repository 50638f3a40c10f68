"""Which tools an agent of a manifest may use, and whose calls require an approval."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from heliograph.error_text import safe_repr
from heliograph.manifest.agent_tools import ServerReference, ToolReference, bound_name
from heliograph.manifest.manifest_fields import ManifestFields

_AUTONOMY = "/spec/autonomy"
_DENIED = "/spec/tools/deny"
_PERMISSIONS = "/governance/authorization/tool_permissions"


@dataclass(frozen=True, slots=True)
class ToolRules:
    """The rules of a manifest for its tools. Names are compared as Heliograph has them: `stock.count` is `stock_count`.

    approvals: the tools whose calls require the approval of a person, or True for all of them. blocked: those that the agent must not
    use. allowed: None, or the only ones that it may use. allowed_of_servers: the same for tools that only an MCP server knows.
    """

    approvals: frozenset[str] | bool = False
    blocked: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None
    allowed_of_servers: frozenset[str] | None = None

    @property
    def narrows_servers(self) -> bool:
        """Whether a tool that only an MCP server knows may be excluded, or require an approval."""
        return bool(self.blocked or self.approvals) or self.allowed_of_servers is not None

    def permits(self, *names: str) -> bool:
        """Whether the agent may use a tool, or a server, with these names."""
        return self.blocked.isdisjoint(_bound(names)) and (
            self.allowed is None or not self.allowed.isdisjoint(_bound(names))
        )

    def permits_of_server(self, server: str, *names: str) -> bool:
        """Whether the agent may use the tool of an MCP server that has these names there."""
        allowed = self.allowed_of_servers
        known = _bound(names)
        return self.blocked.isdisjoint((bound_name(server), *known)) and (
            allowed is None or not allowed.isdisjoint((bound_name(server), *known))
        )

    def requires_approval(self, *names: str) -> bool:
        """Whether calls of a tool, or of a server, with these names require an approval."""
        return self.approvals if isinstance(self.approvals, bool) else not self.approvals.isdisjoint(_bound(names))


def read_rules(fields: ManifestFields, tools: Iterable[ToolReference], servers: Iterable[ServerReference]) -> ToolRules:
    """Read `autonomy` and the permissions of `governance`. A name that no tool can have gets a warning."""
    named, offering = list(tools), list(servers)
    known = _bound([*(each.name for each in named), *(each.name for each in offering), *(each.server for each in named if each.server),
                    *(name for each in offering for name in each.tools or ())])  # fmt: skip
    is_open = any(each.tools is None for each in offering) or any(each.kind == "mcp" for each in named)
    approvals = _approvals(fields)
    blocked = _names(fields, "blocked_actions")
    allowed = _names(fields, "allowed_actions")
    permitted = _permissions(fields)
    for key, names in (("approval_required", approvals), ("blocked_actions", blocked), ("allowed_actions", allowed)):
        for each in sorted(names if isinstance(names, frozenset) and not is_open else ()):
            if bound_name(each) not in known:
                fields.warn("no_effect", f"{key} names {safe_repr(each)}, which is no tool of the agent", f"{_AUTONOMY}/{key}",
                            "name its tools")  # fmt: skip
    for pointer, name in permitted.items():
        if not is_open and bound_name(name) not in known:
            fields.warn(
                "no_effect",
                f"a permission names {safe_repr(name)}, which is no tool of the agent",
                pointer,
                "name its tools",
            )
    is_about_tools = allowed is not None and not known.isdisjoint(_bound(allowed))
    if allowed is not None and is_open and not is_about_tools:
        fields.warn("no_effect", "allowed_actions names no tool of the manifest, so it only limits the tools of MCP servers to these names",
                    f"{_AUTONOMY}/allowed_actions", "name its tools")  # fmt: skip
    only = None if allowed is None else _bound(allowed)
    return ToolRules(
        approvals if approvals is True else _bound([*(approvals or ()), *permitted.values()]), _bound([*(blocked or ()), *fields.texts(_DENIED)]),
        only if is_about_tools else None, only,
    )  # fmt: skip


def _approvals(fields: ManifestFields) -> frozenset[str] | bool:
    """Return the names in `approval_required`, or whether all calls require an approval. Another value is an error: it must not be lost."""
    place = f"{_AUTONOMY}/approval_required"
    value = fields.value(place)
    if value is None or isinstance(value, bool):
        return value is True
    names = fields.texts(place)
    if not isinstance(value, list) or len(names) < len(value):
        fields.reject(
            "wrong_type",
            "approval_required must be true, false or a list of tools",
            place,
            "write the names of tools in a list",
        )
    return frozenset(names)


def _names(fields: ManifestFields, key: str) -> frozenset[str] | None:
    """Return the names in a list of actions; None without one. Another value is an error."""
    place = f"{_AUTONOMY}/{key}"
    value = fields.value(place)
    if value is None:
        return None
    names = fields.texts(place)
    if not isinstance(value, list) or len(names) < len(value):
        fields.reject("wrong_type", f"{key} must be a list of tools", place, "write the names of tools in a list")
    return frozenset(names)


def _permissions(fields: ManifestFields) -> dict[str, str]:
    """Return the tools whose permission requires an approval, by the pointer of their names."""
    found: dict[str, str] = {}
    for pointer, item in fields.items(_PERMISSIONS):
        if isinstance(item, dict) and fields.flag(f"{pointer}/requires_approval"):
            name = fields.string(f"{pointer}/tool")
            if name is not None:
                found[f"{pointer}/tool"] = name
    return found


def _bound(names: Collection[str]) -> frozenset[str]:
    return frozenset(bound_name(each) for each in names)
