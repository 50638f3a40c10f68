"""Bind the tools of agent manifests: limits hold for each tool of a server, and every error has its place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from heliograph import Heliograph, external_tool, tool
from heliograph.cli.bindings import Bindings
from heliograph.cli.load_target import load_manifest
from heliograph.manifest.problems import ManifestProblem, ManifestRejected
from heliograph.models import ScriptedModel
from heliograph.tools import MCPServer
from heliograph.tools.mcp_decoding import OfferedTool
from heliograph.tools.restricted_server import RestrictedServer

HEAD = "apiVersion: ossa/v0.5\nkind: Agent\nmetadata: {name: clerk}\nspec:\n  role: Keep a shop.\n"
OFFERED = [OfferedTool(name, "", {"type": "object"}) for name in ("merge", "read", "repo.list")]
SERVER = """\
import json, sys

for line in sys.stdin:
    request = json.loads(line)
    method, number = request["method"], request.get("id")
    if number is None:
        continue
    result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("look_up", "drop")]}
    if method == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "stock", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
"""
BLOCKED = "  autonomy: {blocked_actions: [merge]}\n"


def load(
    tmp_path: Path, text: str, servers: dict[str, Any] | None = None, tools: dict[str, Any] | None = None, **permissions: Any
) -> tuple[Heliograph, list[ManifestProblem]]:  # fmt: skip
    (tmp_path / "agent.yaml").write_text(HEAD + text)
    return load_manifest(
        tmp_path / "agent.yaml", Bindings(tools or {}, servers or {}, ScriptedModel(["hello"]), **permissions)
    )


def offered(application: Heliograph) -> dict[str, Any]:
    """The tools that the agent's only server gives to its model, and whether their calls require an approval."""
    (server,) = application.workflow.agents["clerk"].tools
    connection: Any = None
    return {each.name: each.approval for each in server.allowed(OFFERED, connection)}


@pytest.mark.proves("S12")
@pytest.mark.parametrize("server", ["{type: mcp, name: git, command: [sh]}", "{type: mcp, name: git}"])
@pytest.mark.parametrize(
    ("actions", "names"),
    [
        ("blocked_actions: [merge]", ["read", "repo_list"]),
        ("blocked_actions: [repo.list, git.read]", ["merge"]),
        ("blocked_actions: [repo_list, 'git/merge']", ["read"]),
        ("allowed_actions: [read]", ["read"]),
        ("allowed_actions: [git]", ["merge", "read", "repo_list"]),
        ("allowed_actions: [git], blocked_actions: ['git:merge']", ["read", "repo_list"]),
        ("allowed_actions: []", []),
        ("allowed_actions: [fly]", []),
    ],
)
def test_actions_narrow_the_tools_of_a_server(tmp_path: Path, server: str, actions: str, names: list[str]) -> None:
    bound = {} if "command" in server else {"git": MCPServer(["server"], name="git")}
    text = f"  tools: [{server}]\n  autonomy: {{{actions}}}\n"
    assert sorted(offered(load(tmp_path, text, bound, starts_servers=True)[0])) == names


def test_actions_narrow_a_server_with_a_prefix(tmp_path: Path) -> None:
    bound = {"git": MCPServer(["server"], name="git", prefix="my.")}
    text = f"  tools: [{{type: mcp, name: git}}]\n{BLOCKED}"
    assert sorted(offered(load(tmp_path, text, bound)[0])) == ["my_read", "my_repo_list"]


def test_blocked_tool_of_a_server_is_excluded_although_another_tool_binds_the_server(tmp_path: Path) -> None:
    tools = "  tools: [{type: mcp, name: merge, server: git}, {type: mcp, name: read, server: git}]\n"
    bound = {"git": MCPServer(["server"], name="git")}
    assert sorted(offered(load(tmp_path, tools + BLOCKED, bound)[0])) == ["read"]


@pytest.mark.proves("S12")
@pytest.mark.parametrize(
    ("tools", "names", "is_logged"),
    [
        ("{type: mcp, name: read, server: git}", ["read"], False),
        ("{type: mcp, name: repo.list, server: git}, {type: mcp, name: git/merge, server: git}", ["merge", "repo_list"], False),
        ("{type: mcp, name: read, server: git}, {type: mcp, name: git}", ["merge", "read", "repo_list"], False),
        ("{type: mcp, name: history, server: git}", [], True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_declared", [False, True])
def test_agent_has_only_the_tools_of_a_server_that_it_lists(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tools: str, names: list[str], is_logged: bool, is_declared: bool
) -> None:
    bound = {} if is_declared else {"git": MCPServer(["server"], name="git")}
    more = "extensions: {mcp: {servers: [{name: git, command: [sh]}]}}\n" if is_declared else ""
    application, warnings = load(tmp_path, f"  tools: [{tools}]\n{more}", bound, starts_servers=is_declared)
    assert warnings == []
    assert sorted(offered(application)) == names
    assert ("has none of the tools that the agent lists; it has merge, read, repo_list" in caplog.text) == is_logged


@pytest.mark.proves("S12")
def test_tool_that_is_listed_narrows_the_list_of_its_declared_server(tmp_path: Path) -> None:
    more = "extensions: {mcp: {servers: [{name: git, command: [sh], tools: [merge, read]}]}}\n"
    for tools, names in (("[read]", ["read"]), ("[]", ["merge", "read"])):
        made, _ = load(tmp_path, f"  tools: {tools}\n{more}", starts_servers=True)
        (server,) = made.workflow.agents["clerk"].tools
        assert sorted(each.name for each in server.allowed(OFFERED, None)) == names


@pytest.mark.proves("S12")
@pytest.mark.parametrize(
    ("listed", "names"), [("[read]", ["read"]), ("[repo.list, history]", ["repo_list"]), ("[]", [])]
)
def test_list_of_a_declared_server_narrows_that_of_the_application(
    tmp_path: Path, listed: str, names: list[str]
) -> None:
    bound = {"git": MCPServer(["server"], name="git")}
    application, _ = load(tmp_path, f"  tools: [{{type: mcp, name: git, command: [sh], tools: {listed}}}]\n", bound)
    assert sorted(offered(application)) == names
    more = f"extensions: {{mcp: {{servers: [{{name: git, command: [sh], tools: {listed}}}]}}}}\n"
    application, _ = load(tmp_path, f"  tools: [{{type: mcp, name: read, server: git}}]\n{more}", bound)
    assert sorted(offered(application)) == [each for each in names if each == "read"]


def test_server_with_an_empty_list_of_tools_is_not_used(tmp_path: Path) -> None:
    server = "{type: mcp, name: git, command: [sh], tools: []}"
    application, warnings = load(tmp_path, f"  tools: [{server}]\n", starts_servers=True)
    assert application.workflow.agents["clerk"].tools == ()
    assert [(each.code, each.pointer) for each in warnings] == [("no_effect", "/spec/tools/0")]
    assert warnings[0].message.endswith("git is empty, so the agent has no tool of it")


@pytest.mark.parametrize("is_declared", [False, True])
def test_parameters_of_a_tool_of_a_server_get_a_warning(tmp_path: Path, is_declared: bool) -> None:
    tool = "{type: mcp, name: read, server: git, parameters: {type: object}}"
    bound = {} if is_declared else {"git": MCPServer(["server"], name="git")}
    more = "extensions: {mcp: {servers: [{name: git, command: [sh]}]}}\n" if is_declared else ""
    _, warnings = load(tmp_path, f"  tools: [{tool}]\n{more}", bound, starts_servers=is_declared)
    assert [(each.code, each.pointer, each.is_warning) for each in warnings] == [("no_effect", "/spec/tools/0", True)]
    assert "the MCP server git describes its tools" in warnings[0].message


@pytest.mark.more
def test_server_without_a_list_is_asked_for_its_tools_with_consent(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    text = f"  tools: [look.up]\nextensions: {{mcp: {{servers: [{{name: stock, command: ['{sys.executable}', '{program}']}}]}}}}\n"
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, text)
    missing = next(each for each in caught.value.problems if each.binding == "look.up")
    assert "--start-servers" in missing.hint
    assert "server: stock" in missing.hint
    application, warnings = load(tmp_path, text, starts_servers=True)
    assert warnings == []
    (server,) = application.workflow.agents["clerk"].tools
    connection: Any = None
    offers = [OfferedTool(name, "", {"type": "object"}) for name in ("look_up", "drop")]
    assert [each.name for each in server.allowed(offers, connection)] == ["look_up"]
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, text.replace("look.up", "fly"), starts_servers=True)
    assert [each.binding for each in caught.value.problems if not each.is_warning] == ["fly"]


def test_server_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    text = "  tools: [look]\nextensions: {mcp: {servers: [{name: stock, command: ['false']}]}}\n"
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, text, starts_servers=True)
    assert [(each.code, each.binding) for each in caught.value.problems] == [
        ("missing_tool", "look"),
        ("missing_tool", "stock"),
    ]


def test_listed_tools_of_a_server_are_found_although_its_name_has_other_characters(tmp_path: Path) -> None:
    tools = "  tools: [{type: mcp, name: my.git/read, server: my.git}]\n"
    bound = {"my.git": MCPServer(["server"], name="my.git")}
    assert sorted(offered(load(tmp_path, tools, bound)[0])) == ["read"]


def test_toolset_that_is_no_server_keeps_all_its_tools_if_the_agent_lists_some(tmp_path: Path) -> None:
    class Toolset:
        label = "git"

        def open_tools(self) -> None: ...

    toolset = Toolset()
    application, _ = load(tmp_path, "  tools: [{type: mcp, name: read, server: git}]\n", {"git": toolset})
    assert application.workflow.agents["clerk"].tools == (toolset,)


@pytest.mark.parametrize("place", ["tools: [{type: mcp, name: git, command: [sh]}]", "role: R"])
def test_blocked_server_is_not_started(tmp_path: Path, place: str) -> None:
    more = "extensions: {mcp: {servers: [{name: git, command: sh}]}}\n" if place == "role: R" else ""
    text = (f"  {place}\n" if not more else "") + "  autonomy: {blocked_actions: [git]}\n" + more
    assert load(tmp_path, text, starts_servers=True)[0].workflow.agents["clerk"].tools == ()


def test_approval_of_a_tool_that_only_the_server_has_applies_to_its_calls(tmp_path: Path) -> None:
    text = "  tools: [{type: mcp, name: git, command: [sh]}]\n  autonomy: {approval_required: [merge]}\n"
    found = offered(load(tmp_path, text, starts_servers=True)[0])
    assert found == {"merge": True, "read": False, "repo_list": False}


def test_server_without_limits_is_unchanged(tmp_path: Path) -> None:
    bound = MCPServer(["server"], name="git")
    application, _ = load(tmp_path, "  tools: [{type: mcp, name: git}]\n", {"git": bound})
    assert application.workflow.agents["clerk"].tools == (bound,)
    assert not isinstance(bound, RestrictedServer)


def test_limits_are_rejected_for_a_toolset_that_has_none(tmp_path: Path) -> None:
    class Own:
        label = "git"
        tools = None

        def open_tools(self) -> None: ...

    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, f"  tools: [{{type: mcp, name: git}}]\n{BLOCKED}", {"git": Own()})
    assert [(each.code, each.line) for each in caught.value.problems] == [("not_allowed", 7)]


@pytest.mark.parametrize("effect", ["pure", "once"])
def test_approval_of_a_manifest_applies_to_each_effect(tmp_path: Path, effect: Any) -> None:
    @tool(effect=effect)
    def look(item: str) -> str:
        return item

    application, _ = load(tmp_path, "  tools: [look]\n  autonomy: {approval_required: true}\n", tools={"look": look})
    assert [each.approval for each in application.workflow.agents["clerk"].tools] == [True]


def test_tool_that_is_named_twice_gets_a_warning_and_an_approval_of_either_counts(tmp_path: Path) -> None:
    tools = {"look_up": external_tool("look_up", "")}
    application, warnings = load(
        tmp_path, "  tools: [{name: look.up, requires_approval: true}, look_up]\n", tools=tools
    )
    assert [each.approval for each in application.workflow.agents["clerk"].tools] == [True]
    assert [(each.code, each.pointer) for each in warnings] == [("no_effect", "/spec/tools/1")]


def test_parameters_that_the_bound_tool_does_not_have_get_a_warning(tmp_path: Path) -> None:
    bound = {"look": external_tool("look", "", {"type": "object", "properties": {"item": {"type": "string"}}})}
    text = "  tools: [{{type: function, name: look, parameters: {{type: object, properties: {{{}: {{type: string}}}}}}}}]\n"
    assert load(tmp_path, text.format("item"), tools=bound)[1] == []
    assert [each.pointer for each in load(tmp_path, text.format("thing"), tools=bound)[1]] == ["/spec/tools/0"]


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("  tools:\n    - {name: final_result}\n", "reserved_name", 7, 7),
        (
            "  tools:\n    - {name: f, parameters: {type: object, properties: {a: {type: nothing}}}}\n",
            "invalid_schema",
            7,
            7,
        ),
        ("  tools:\n    - {name: f, parameters: {$ref: 'https://x.example/s'}}\n", "invalid_schema", 7, 7),
        ("extensions:\n  heliograph:\n    emits: [agent:activated]\n", "reserved_name", 8, 12),
        ("extensions:\n  heliograph:\n    emits: 7\n", "wrong_type", 8, 12),
        ("extensions:\n  heliograph:\n    budget: {cows: 1}\n", "unknown_field", 8, 13),
    ],
)
def test_error_of_a_binding_has_its_place(tmp_path: Path, text: str, code: str, line: int, column: int) -> None:
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, text, external=True)
    found = caught.value.problems[0]
    assert (found.code, found.line, found.column) == (code, line, column)
    assert found.file.endswith("agent.yaml")
    assert found.hint
    assert caught.value.exit_code == 2


@pytest.mark.proves("S16")
@pytest.mark.parametrize("server", ["command: [sh]", "url: https://docs.example/mcp"])
@pytest.mark.parametrize("place", ["tool", "extension"])
def test_server_of_a_manifest_is_used_only_with_the_consent_of_the_operator(
    tmp_path: Path, server: str, place: str
) -> None:
    item = f"{{type: mcp, name: docs, {server}, headers: {{X: '${{HOME}}'}}}}"
    text = f"  tools: [{item}]\n" if place == "tool" else f"extensions: {{mcp: {{servers: [{item}]}}}}\n"
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, text)
    assert [each.code for each in caught.value.problems if not each.is_warning] == ["missing_tool"]
    assert len(load(tmp_path, text, starts_servers=True)[0].workflow.agents["clerk"].tools) == 1


@pytest.mark.proves("S12")
@pytest.mark.parametrize(
    "text",
    [
        "  tools: [{type: mcp, name: git, command: [sh], tools: [merge, read]}]\n  autonomy: {approval_required: [merge]}\n",
        "  tools: [{type: mcp, name: git, command: [sh]}, {type: mcp, name: merge, server: git, requires_approval: true}, {type: mcp, name: read, server: git}]\n",
        "  autonomy: {approval_required: [git]}\nextensions: {mcp: {servers: [{name: git, command: sh}]}}\n",
    ],
)
def test_approval_of_one_tool_holds_for_all_calls_of_a_declared_server(tmp_path: Path, text: str) -> None:
    (server,) = load(tmp_path, text, starts_servers=True)[0].workflow.agents["clerk"].tools
    assert server.approval is True


@pytest.mark.proves("S12")
def test_approval_of_one_tool_holds_for_all_calls_of_a_bound_server(tmp_path: Path) -> None:
    text = "  tools: [{type: mcp, name: merge, server: git, requires_approval: true}, {type: mcp, name: read, server: git}]\n"
    (server,) = load(tmp_path, text, {"git": MCPServer(["server"], name="git")})[0].workflow.agents["clerk"].tools
    assert server.approval is True


def test_problems_of_the_schema_of_values_and_of_bindings_are_reported_together(tmp_path: Path) -> None:
    text = "  llm: {provider: 7}\n  lifecycle: {turn_timeout: soon}\n  tools: [{type: function, name: f, requires_approval: 'x'}]\n"
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, text.replace("llm: {provider: 7}", "colour: red") + "security: 7\n")
    found = [(each.code, each.line) for each in caught.value.problems if not each.is_warning]
    assert found == [("invalid_format", 7), ("missing_tool", 8), ("wrong_type", 8), ("wrong_type", 9)]
    text = "  tools: [nowhere]\nextensions: {heliograph: {priority: urgent}}\n"
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, text)
    assert [(each.code, each.line) for each in caught.value.problems] == [("missing_tool", 6), ("invalid_enum", 7)]
    text = "  tools: [{name: final_result}, {name: f, parameters: {$ref: 'https://x.example/s'}}]\n"
    own = "extensions:\n  heliograph:\n    priority: urgent\n    max_attempts: 0\n    activate_on: ['agent:activated:x']\n    effect: twice\n"
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, text + own, external=True)
    assert [(each.code, each.line) for each in caught.value.problems] == [
        ("reserved_name", 6), ("invalid_schema", 6), ("invalid_enum", 9), ("out_of_range", 10), ("invalid_enum", 12),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "text", "line"),
    [
        ("extensions.heliograph.name", "extensions:\n  heliograph:\n    name: a b\n", 8),
        ("extensions.heliograph.priority", "extensions:\n  heliograph:\n    priority: 9\n", 8),
    ],
)
def test_error_of_an_option_has_the_key_of_the_manifest(tmp_path: Path, key: str, text: str, line: int) -> None:
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, text)
    (found,) = caught.value.problems
    assert (found.pointer, found.line) == (f"/{key.replace('.', '/')}", line)
    assert "Heliograph" not in found.message
