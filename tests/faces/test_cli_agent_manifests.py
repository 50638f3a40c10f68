"""`helio run agent.yaml`, `validate`, `init` and `export ossa`: agents from manifests, with a model behind a real protocol."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.bindings import Bindings
from heliograph.cli.load_target import load_manifest
from heliograph.tools import MCPServer
from tests.faces.cli_support import Running, Shell, open_shell
from tests.reach.model_server import Answer, Provider, env_of, serve

pytestmark = pytest.mark.more  # each command imports the library of a model

AGENT = """\
apiVersion: ossa/v0.4
kind: Agent
metadata:
  name: clerk
  version: 1.2.0
spec:
  role: Keep a shop.
  llm:
    provider: openai
    model: ${MODEL:-gpt-4o}
    temperature: 0.3
    maxTokens: 300
  tools:
    - type: function
      name: stock.count
      description: Counts an item.
"""

# The application whose tools a manifest may bind.
TOOLS = """
from heliograph import Heliograph, external_tool, tool
from heliograph.tools import MCPServer

app = Heliograph("shop")


@tool(effect="pure")
def stock_count(item: str) -> int:
    "Return the number of an item in stock."
    return {"tea": 3}.get(item, 0)


@tool
def order(item: str) -> str:
    "Order an item."
    return "ordered"


app.prompt_agent("keeper", "{state.question}", system="Sell.", model="openai-chat:gpt-4o", temperature=0.5, max_output_tokens=99,
                 tools=[stock_count, order], activate_on=["workflow:start"], updates="answer", max_steps=4, timeout_seconds=60, version="2.0.0",
                 budget={"tokens": 9000}, retries=1, priority="high")
"""

# Tools are compared by name: each load of their file makes new ones.
COMPARE = """
from argparse import Namespace
from dataclasses import replace

from heliograph.cli.load_target import load_target
from heliograph.cli.load_application import load_app


def parts(application):
    agent = application.workflow.agents["keeper"]
    return replace(agent, tools=()), [each.name for each in agent.tools]


options = Namespace(tools="shop.py:app", model=None, start_servers=False, external_tools=False, allow_secret_literals=False)
print(parts(load_target("keeper.yaml", options)) == parts(load_app("shop.py:app")))
"""


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serve(
        Provider([Answer(calls=[("call_1", "stock_count", '{"item": "tea"}')]), Answer(("Three ", "teas."))])
    ) as served:
        yield served


@pytest.fixture
def shell(tmp_path: Path, database_url: str, provider: Provider) -> Shell:
    made = open_shell(tmp_path, database_url)
    made.extra = env_of(provider)
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "shop.py").write_text(TOOLS)
    return made


def report(shell: Shell, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The report of `helio validate` about one file."""
    done = shell.helio("validate", *arguments, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_manifest_runs_with_the_tools_of_an_application_and_a_model_behind_its_protocol(
    shell: Shell, provider: Provider
) -> None:
    done = shell.helio(
        "run", "agent.yaml", "--tools", "shop.py:app", "--state", '{"input": "How many teas?"}', "--json"
    )
    assert done.returncode == 0, done.stderr
    *signals, end = [json.loads(each) for each in done.stdout.splitlines()]
    assert end["state"] == {"input": "How many teas?", "output": "Three teas."}
    assert [each["payload"]["name"] for each in signals if each["name"] == "tool:call"] == ["stock_count"]
    first = provider.requests[0]
    assert (first["model"], first["temperature"]) == ("gpt-4o", 0.3)
    assert first["messages"] == [
        {"role": "system", "content": "Keep a shop."},
        {"role": "user", "content": "How many teas?"},
    ]
    assert [each["function"]["name"] for each in first["tools"]] == ["stock_count"]
    assert next(each for each in signals if each["name"] == "ready")["payload"]["version"] == "1.2.0"


def test_option_model_overrides_the_model_of_the_manifest(shell: Shell, provider: Provider) -> None:
    (shell.folder / "scripted.py").write_text(
        'from heliograph.models import ScriptedModel\n\nmodel = ScriptedModel(["from a script"])\n'
    )
    done = shell.helio("run", "agent.yaml", "--tools", "shop.py:app", "--model", "scripted.py:model", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["state"] == {"output": "from a script"}
    provider.answers = [Answer(("hello",))]
    done = shell.helio(
        "run", "agent.yaml", "--tools", "shop.py:app", "--model", "anthropic:claude-sonnet-4-5", "--json"
    )
    assert json.loads(done.stdout.splitlines()[-1])["state"] == {"output": "hello"}
    assert provider.requests[-1]["model"] == "claude-sonnet-4-5"


def test_missing_tool_is_named_with_its_place_and_nothing_runs(shell: Shell) -> None:
    done = shell.helio("run", "agent.yaml", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["file"], error["line"], error["column"]) == ("missing_tool", "agent.yaml", 14, 7)
    assert "stock.count" in error["message"]
    assert shell.rows("run", "list") == []


def test_external_tools_wait_for_other_programs(shell: Shell, provider: Provider, started: list[Running]) -> None:
    running = shell.start("run", "agent.yaml", "--external-tools", "--state", '{"input": "tea?"}', "--run-id", "run_1")
    started.append(running)
    running.read_until("stock_count")
    while not (calls := shell.rows("call", "take", "stock_count", "--limit", "1")):
        pass
    call = calls[0]
    shell.helio("call", "report", call["turn_id"], call["call_id"], "--token", call["token"], "--result", "3")
    running.read_until("Three teas.")
    assert running.process.wait() == 0


def test_programs_of_a_manifest_are_started_only_if_the_operator_allows_it(shell: Shell) -> None:
    program = "    - type: mcp\n      name: clock\n      config: {server: sh --fast}\n"
    (shell.folder / "mcp.yaml").write_text(AGENT[: AGENT.index("    - type")] + program)
    (found,) = report(shell, "mcp.yaml", "--level", "runnable", code=2)["missing"]
    assert (found["binding"], found["name"], found["line"]) == ("tool", "clock", 14)
    assert report(shell, "mcp.yaml", "--level", "runnable", "--start-servers")["runnable"] is True


def test_server_at_a_url_receives_nothing_unless_the_operator_allows_it(shell: Shell) -> None:
    server = "    - type: mcp\n      name: docs\n      url: https://docs.example/mcp\n      headers: {X: '${HOME}'}\n"
    (shell.folder / "mcp.yaml").write_text(AGENT[: AGENT.index("    - type")] + server)
    (found,) = report(shell, "mcp.yaml", "--level", "runnable", code=2)["missing"]
    assert (found["binding"], found["line"]) == ("tool", 14)
    assert "may not send there" in found["message"]
    assert report(shell, "mcp.yaml", "--level", "runnable", "--start-servers")["runnable"] is True


@pytest.mark.parametrize(
    "spec",
    [
        "  autonomy: {approval_required: [merge]}\n",
        "  autonomy: {approval_required: [github]}\n",
        "  autonomy: {approval_required: true}\n",
        "    - {type: mcp, name: merge, server: github, requires_approval: true}\n    - {type: mcp, name: read, server: github}\n",
    ],
)
@pytest.mark.parametrize("is_declared", [False, True])
def test_approval_of_one_tool_applies_to_all_calls_of_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, *, is_declared: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    server = "    - {type: mcp, name: github, command: [sh], tools: [merge, read]}\n"
    named = "    - {type: mcp, name: merge, server: github}\n" + (
        "" if is_declared else "    - {type: mcp, name: github}\n"
    )
    (tmp_path / "agent.yaml").write_text(
        AGENT[: AGENT.index("    - type")] + (server if is_declared else "") + named + spec
    )
    bindings = Bindings(starts_servers=is_declared)
    if not is_declared:
        bindings.servers["github"] = MCPServer(["server"], name="github", tools=["merge", "read"])
    application, _ = load_manifest(tmp_path / "agent.yaml", bindings)
    (bound,) = application.workflow.agents["clerk"].tools
    assert bound.approval is True


def test_approval_of_a_manifest_waits_for_a_person(shell: Shell, provider: Provider, started: list[Running]) -> None:
    (shell.folder / "agent.yaml").write_text(
        AGENT.replace("stock.count", "order") + "  autonomy: {approval_required: [order]}\n"
    )
    provider.answers = [Answer(calls=[("call_1", "order", '{"item": "tea"}')]), Answer(("Done.",))]
    running = shell.start("run", "agent.yaml", "--tools", "shop.py:app", "--run-id", "run_1")
    started.append(running)
    running.read_until("helio approval")
    (task,) = shell.rows("approval", "list")
    assert task["tool"] == "order"
    assert shell.helio("approval", "grant", task["turn_id"], task["call_id"]).returncode == 0
    running.read_until("Done.")


def test_validate_reports_three_levels_and_the_missing_binding(shell: Shell) -> None:
    found = report(shell, "agent.yaml")
    assert {key: found[key] for key in ("file", "kind", "apiVersion", "parsed", "valid", "runnable")} == {
        "file": "agent.yaml", "kind": "Agent", "apiVersion": "ossa/v0.4", "parsed": True, "valid": True, "runnable": False,
    }  # fmt: skip
    assert [(each["binding"], each["line"], each["path"]) for each in found["missing"]] == [
        ("tool", 14, "/spec/tools/0")
    ]
    assert report(shell, "agent.yaml", "--tools", "shop.py:app", "--level", "runnable")["runnable"] is True
    report(shell, "agent.yaml", "--level", "runnable", code=2)


@pytest.mark.parametrize(
    ("text", "levels", "code"),
    [
        (AGENT.replace("kind: Agent", "kind:\tAgent: x"), (False, False, False), 2),
        (
            AGENT.replace("ossa/v0.4", "ossa/v0.4.6").replace("provider: openai", "provider: nobody"),
            (True, False, False),
            2,
        ),
        (
            AGENT.replace("kind: Agent", "kind: Workflow").replace("spec:", "spec:\n  steps: [{id: one}]"),
            (True, True, False),
            0,
        ),
        (AGENT.replace("kind: Agent", "kind: Agnet"), (True, False, False), 2),
        (AGENT.replace("ossa/v0.4", "ossa/v0.5").replace("temperature: 0.3", "temperature: 9"), (True, True, False), 0),
    ],
)
def test_validate_stops_at_the_level_that_a_file_reaches(
    shell: Shell, text: str, levels: tuple[bool, ...], code: int
) -> None:
    (shell.folder / "agent.yaml").write_text(text)
    found = report(shell, "agent.yaml", code=code)
    assert (found["parsed"], found["valid"], found["runnable"]) == levels
    assert all(each["line"] >= 1 and each["hint"] for each in found["problems"] if each["severity"] == "error")


def test_validate_names_missing_models_and_credentials(shell: Shell) -> None:
    shell.extra = {}
    found = report(shell, "agent.yaml", "--tools", "shop.py:app")
    assert [each["binding"] for each in found["missing"]] == ["credential"]
    assert "OPENAI_API_KEY" in found["missing"][0]["message"]
    (shell.folder / "agent.yaml").write_text(AGENT.replace("provider: openai", "provider: custom"))
    assert [each["binding"] for each in report(shell, "agent.yaml", "--tools", "shop.py:app")["missing"]] == ["model"]


def test_validate_reports_several_files_and_one_that_does_not_exist(shell: Shell) -> None:
    done = shell.helio("validate", "agent.yaml", "nowhere.yaml", "--tools", "shop.py:app")
    assert done.returncode == 2
    assert "agent.yaml: Agent of ossa/v0.4\n  parsed    yes\n  valid     yes\n  runnable  yes\n" in done.stdout
    assert "nowhere.yaml:1:1: file_not_found" in done.stdout


@pytest.mark.parametrize(
    ("kind", "file"), [("Agent", "agent.yaml"), ("RuntimeSpec", "runtime.yaml"), ("MessageRouting", "routing.yaml")]
)
def test_starter_of_every_kind_is_valid_and_points_to_its_schema(shell: Shell, kind: str, file: str) -> None:
    (shell.folder / "agent.yaml").unlink()
    assert shell.helio("init", kind).returncode == 0
    text = (shell.folder / file).read_text()
    first = text.splitlines()[0]
    assert first == f"# yaml-language-server: $schema={kind}.schema.json"
    assert json.loads((shell.folder / f"{kind}.schema.json").read_text())["title"]
    found = report(shell, file, "--level", "runnable")
    assert (found["kind"], found["problems"]) == (kind, [])
    again = shell.helio("init", kind)
    assert again.returncode == 4
    assert (shell.folder / file).read_text() == text


def test_starters_run(shell: Shell, provider: Provider) -> None:
    (shell.folder / "agent.yaml").unlink()
    for kind in ("Agent", "RuntimeSpec", "MessageRouting"):
        assert shell.helio("init", kind).returncode == 0
    provider.answers = [Answer(("Much.",))]
    done = shell.helio("run", "agent.yaml", "--runtime", "runtime.yaml", "--routing", "routing.yaml", "--state",
                       '{"input": "What can you do?"}', "--json")  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1])["state"]["output"] == "Much."


def test_exported_manifest_is_valid_and_loads_to_the_same_agent(shell: Shell) -> None:
    done = shell.helio("export", "ossa", "shop.py:app")
    assert done.returncode == 0, done.stderr
    (shell.folder / "keeper.yaml").write_text(done.stdout)
    assert report(shell, "keeper.yaml", "--tools", "shop.py:app", "--level", "runnable")["problems"] == []
    (shell.folder / "compare.py").write_text(COMPARE)
    assert shell.bash(f"{sys.executable} compare.py").stdout == "True\n"


def test_export_rejects_options_without_a_place_in_manifests(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(TOOLS.replace('priority="high"', "trusted=True"))
    done = shell.helio("export", "ossa", "shop.py:app")
    assert done.returncode == 2
    assert "trusted" in done.stderr
    assert done.stdout == ""


def test_export_of_an_application_without_a_prompt_names_the_remedy(shell: Shell) -> None:
    done = shell.helio("export", "ossa", "press.py:app")
    assert (done.returncode, "add one with app.prompt_agent" in done.stderr) == (2, True), done.stderr


def test_bindings_are_rejected_for_an_application(shell: Shell) -> None:
    done = shell.helio("run", "shop.py:app", "--model", "openai-chat:gpt-5")
    assert done.returncode == 2
    assert "--model" in done.stderr
