"""The MCP servers of an agent's manifest: when they are made, which variables they receive, and what they lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph import redaction
from heliograph.cli.bindings import Bindings
from heliograph.cli.load_target import load_manifest
from heliograph.manifest.problems import ManifestProblem, ManifestRejected
from heliograph.models import ScriptedModel
from heliograph.tools.mcp import MCPServer

AGENT = """\
apiVersion: ossa/v0.5
kind: Agent
metadata: {name: clerk}
spec:
  role: R
  tools:
    - type: mcp
      name: shop
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction._kept, "forms", set(redaction._kept.forms))
    for name, value in {
        "SHOP_TOKEN": "tok-12345678",
        "SHOP": "main",
        "PORT": "80",
        "HELIOGRAPH_SECRET_CRM": "crm-12345678",
    }.items():
        monkeypatch.setenv(name, value)


def server(path: Path, lines: str, **bindings: object) -> MCPServer:
    application, _ = loaded(path, lines, **bindings)
    (made,) = application.workflow.agents["clerk"].tools
    assert isinstance(made, MCPServer)
    return made


def loaded(path: Path, lines: str, **bindings: object):  # type: ignore[no-untyped-def]
    (path / "a.yaml").write_text(
        AGENT + "".join(f"      {each.strip()}\n" for each in lines.splitlines() if each.strip())
    )
    given = {"model": ScriptedModel(["Hi."]), "starts_servers": True, **bindings}
    return load_manifest(path / "a.yaml", Bindings(**given))  # type: ignore[arg-type]


def problem(path: Path, lines: str, **bindings: object) -> ManifestProblem:
    with pytest.raises(ManifestRejected) as caught:
        loaded(path, lines, **bindings)
    return caught.value.problems[0]


@pytest.mark.proves("G-30")
def test_variables_of_a_server_are_expanded_in_every_text_when_the_manifest_is_loaded(tmp_path: Path) -> None:
    made = server(tmp_path, """
        command: sh
        args: ["--shop=${SHOP}", "${SHOP}${PORT}", "${NONE:-d}", "$${SHOP}"]
        env: {TOKEN: "Bearer ${SHOP_TOKEN}", KEPT: "secret://CRM", SHORT: "${PORT}"}
        """)  # fmt: skip
    assert made.command == ["sh", "--shop=main", "main80", "d", "${SHOP}"]
    assert made.env == {"TOKEN": "Bearer tok-12345678", "KEPT": "secret://CRM", "SHORT": "80"}
    assert "tok-12345678" not in redaction.redacted("the server wrote tok-12345678")


def test_variables_of_a_server_at_a_url_are_expanded(tmp_path: Path) -> None:
    made = server(tmp_path, """
        url: "https://${SHOP}.example/mcp"
        headers: {Authorization: "Bearer ${SHOP_TOKEN}"}
        """)  # fmt: skip
    assert made.url == "https://main.example/mcp"
    assert made.headers == {"Authorization": "Bearer tok-12345678"}


@pytest.mark.parametrize(
    ("lines", "binding"),
    [
        ("command: sh\nenv: {A: '${NOT_SET}'}", "NOT_SET"), ("command: sh\nargs: ['${NOT_SET}']", "NOT_SET"),
        ("url: 'https://x.example/${NOT_SET}'", "NOT_SET"), ("command: sh\nenv: {A: 'x secret://other-one'}", "HELIOGRAPH_SECRET_OTHER_ONE"),
    ],
)  # fmt: skip
def test_variable_without_a_value_is_the_missing_credential(tmp_path: Path, lines: str, binding: str) -> None:
    found = problem(tmp_path, lines)
    assert (found.code, found.binding, found.line) == ("missing_credential", binding, 7)


def test_program_that_is_not_installed_is_a_missing_tool(tmp_path: Path) -> None:
    found = problem(tmp_path, "command: no-such-program")
    assert (found.code, found.binding) == ("missing_tool", "shop")
    assert "no-such-program, which is not installed here" in found.message
    (tmp_path / "mine").write_text("")
    (tmp_path / "mine").chmod(0o755)
    assert server(tmp_path, f"command: mine\nenv: {{PATH: '{tmp_path}'}}").command == ["mine"]


def test_malformed_url_from_a_variable_is_rejected_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", "ftp//hunter22")
    found = problem(tmp_path, "url: '${PLACE}'")
    assert found.code == "invalid_url"
    assert "hunter22" not in found.message + found.hint


def test_tool_of_the_application_stands_for_a_server_of_its_name(tmp_path: Path) -> None:
    from heliograph import tool

    @tool
    def shop(item: str) -> str:
        """Look up an item."""
        return item

    lines = "command: no-such-program\n"
    application, _ = loaded(tmp_path, lines, tools={"shop": shop}, starts_servers=False)
    assert [each.name for each in application.workflow.agents["clerk"].tools] == ["shop"]


def test_server_that_no_tool_names_is_left_out_with_a_warning_if_other_programs_run_the_tools(tmp_path: Path) -> None:
    text = AGENT[: AGENT.index("  tools")] + "  extensions: {mcp: {servers: [{name: shop, command: sh}]}}\n"
    (tmp_path / "a.yaml").write_text(text)
    bindings = Bindings(model=ScriptedModel(["Hi."]), external=True)
    application, warnings = load_manifest(tmp_path / "a.yaml", bindings)
    assert application.workflow.agents["clerk"].tools == ()
    assert [(each.code, each.is_warning) for each in warnings] == [("missing_tool", True)]
    bindings.external = False
    with pytest.raises(ManifestRejected):
        load_manifest(tmp_path / "a.yaml", bindings)
