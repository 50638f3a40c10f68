"""What agents reach outside, in a simulation: MCP servers have stubs, and the rejection of a connection or a program names the stub to write."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heliograph import Context, Heliograph, ToolContext
from heliograph.errors import InvalidInput
from heliograph.models import ScriptedModel, ToolCall, ToolMessage
from heliograph.testing import (
    ApplicationServer,
    RecordedRun,
    Simulation,
    StubServer,
    crash_at_every_await,
    simulate,
    virtual_time,
)
from heliograph.testing.stub_server import NotStubbed
from heliograph.tools import MCPServer

START = ["workflow:start"]
TOOLS = [
    {"name": "find", "description": "Find issues.", "annotations": {"readOnlyHint": True, "title": "Find"},
     "inputSchema": {"type": "object", "properties": {"text": {"type": "string", "minLength": 3}}, "required": ["text"]}},
    {"name": "close", "inputSchema": {"type": "object"}},
]  # fmt: skip


def tracker(model: ScriptedModel, **options: Any) -> Heliograph:
    app = Heliograph("tracker")
    server = MCPServer(url="https://tracker.example/mcp", name="issues", **options)
    app.prompt_agent("clerk", "Help.", model=model, tools=[server], activate_on=START, updates="answer")
    return app


def calling(*calls: ToolCall) -> ScriptedModel:
    return ScriptedModel([list(calls), "done"], per_turn=True)


def results(model: ScriptedModel) -> list[Any]:
    return [each.content for each in model.requests[-1].messages if isinstance(each, ToolMessage)]


@virtual_time
@pytest.mark.proves("P-02")
async def test_stub_of_a_server_has_its_declared_schemas_and_the_options_of_the_application(sim: Simulation) -> None:
    found: list[Any] = []

    def find(text: str, ctx: ToolContext) -> list[str]:
        found.append((text, ctx.agent))
        return ["A-1"]

    model = calling(ToolCall("1", "is_find", {"text": "ink"}), ToolCall("2", "is_find", {"text": "i"}))
    app = sim.serve(tracker(model, prefix="is_", tools=["find"], trusted=True, trusts_annotations=True),
                    servers={"issues": StubServer({"find": find}, {"tools": TOOLS})})  # fmt: skip
    assert (await app.run({})).state["answer"] == "done"
    [offered] = model.requests[0].tools
    assert (offered.name, offered.description, offered.parameters) == (
        "is_find",
        "Find issues.",
        TOOLS[0]["inputSchema"],
    )
    assert found == [("ink", "clerk")]
    right, wrong = results(model)
    assert right == ["A-1"]
    assert "text" in wrong


@virtual_time
async def test_stub_without_a_declaration_is_described_by_its_functions(sim: Simulation) -> None:
    async def find(text: str, limit: int = 5) -> list[str]:
        """Find issues."""
        return [text] * limit

    model = calling(ToolCall("1", "find", {"text": "ink"}))
    await sim.serve(tracker(model, trusted=True), servers={"issues": StubServer({"find": find})}).run({})
    [offered] = model.requests[0].tools
    assert (offered.description, offered.parameters["required"]) == ("Find issues.", ["text"])
    assert results(model) == [["ink"] * 5]


async def closed(sim: Simulation) -> Any:
    def close(issue: str) -> str:
        sim.effect(f"close {issue}", key=issue)
        return "closed"

    app = tracker(calling(ToolCall("1", "close", {"issue": "A-1"})), effects={"close": "idempotent"}, trusted=True)
    return (await sim.serve(app, servers={"issues": StubServer({"close": close})}).run({})).state["answer"]


@pytest.mark.more
def test_stub_of_a_server_is_called_under_faults_and_crashes() -> None:
    report = crash_at_every_await(closed)
    assert report.crashes == report.awaits > 20
    simulate(seeds=5)(closed)()


def test_called_tool_without_a_function_fails_the_test_that_simulates_it() -> None:
    @virtual_time
    async def scenario(sim: Simulation) -> None:
        app = tracker(calling(ToolCall("1", "close", {})), trusted=True)
        await sim.serve(app, servers={"issues": StubServer({}, TOOLS)}).run({})

    with pytest.raises(NotStubbed, match="tool close of MCP server issues was called and has no function; add one to"):
        scenario()


def test_stub_that_does_not_fit_the_server_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "tools.json").write_text(json.dumps({"tools": TOOLS}))
    wrong: list[tuple[dict[str, StubServer], str]] = [
        ({}, r"agent clerk has the MCP server issues, which a simulation cannot reach: pass servers=\{'issues': StubServer"),
        ({"bugs": StubServer({})}, "application tracker has no MCP server bugs; it has issues"),
        ({"issues": StubServer({"open": print}, tmp_path / "tools.json")}, "declares no such tool; it declares close, find"),
        ({"issues": StubServer({"other": lambda: 1})}, "has no tool find; it has other"),
        ({"issues": StubServer({}, str(tmp_path / "none.json"))}, "cannot read .*none.json: .*No such file"),
        ({"issues": StubServer({}, tmp_path / "broken.json")}, "cannot read .*broken.json: Input data was truncated"),
        ({"issues": StubServer({"find": print}, TOOLS)}, "tool find takes args by position only"),
        ({"issues": StubServer({}, [{"name": "find"}])}, "declared must be what the server answers to tools/list.*inputSchema"),
    ]  # fmt: skip

    @virtual_time
    async def scenario(sim: Simulation) -> None:
        for servers, problem in wrong:
            with pytest.raises(InvalidInput, match=problem):
                sim.serve(tracker(ScriptedModel({"": "x"}), tools=["find"]), servers=servers)

    scenario()


@pytest.mark.more
async def test_served_and_recorded_applications_have_stubs_of_servers(
    heliograph_app: ApplicationServer, tmp_path: Path
) -> None:
    model = calling(ToolCall("1", "find", {"text": "ink"}))
    servers = {"issues": StubServer({"find": lambda text: f"no {text}"}, TOOLS)}
    async with heliograph_app(tracker(model, trusted=True), servers=servers) as app:
        await app.run({})
    assert results(model) == ["no ink"]
    path = tmp_path / "run.jsonl"
    written = RecordedRun(path, "t.py::test", heliograph_app.database_url)
    await written.run(tracker(model, trusted=True), {}, servers=servers)
    replayed = await RecordedRun(path, "t.py::test", None).run(tracker(ScriptedModel(["x"]), trusted=True), {})
    assert replayed.state["answer"] == "done"


# ── Connections and programs ──


def connect() -> None:
    socket.create_connection(("127.0.0.1", 9))


def send_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.sendto(b"x", ("127.0.0.1", 9))


async def raw_socket() -> None:
    with socket.socket() as made:
        await asyncio.get_running_loop().sock_connect(made, ("10.0.0.1", 80))


@pytest.mark.parametrize(
    ("work", "did"),
    [
        (lambda: asyncio.open_connection("127.0.0.1", 9), "connects to 127.0.0.1:9, and a simulation has no network"),
        (lambda: asyncio.open_unix_connection("/none"), "connects to /none"),
        (lambda: asyncio.get_running_loop().getaddrinfo("example.com", 80), "looks up example.com"),
        (raw_socket, "connects to 10.0.0.1:80"),
        (lambda: asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("::1", 1)), "opens a socket"),
        (lambda: asyncio.create_subprocess_exec("true"), "starts the program true, and a simulation has no subprocesses"),
        (lambda: asyncio.create_subprocess_shell("true"), "starts the program true"),
        (lambda: asyncio.to_thread(connect), "looks up 127.0.0.1"),
        (lambda: asyncio.to_thread(urllib.request.urlopen, "https://example.com"), "looks up example.com"),
        (lambda: asyncio.to_thread(socket.gethostbyname, "example.com"), "looks up example.com"),
        (lambda: asyncio.to_thread(subprocess.run, ["true"], check=True), "starts the program true"),
        (lambda: asyncio.to_thread(socket.gethostbyname_ex, "example.com"), "looks up example.com"),
        (lambda: asyncio.to_thread(send_datagram), "sends to 127.0.0.1:9"),
        (lambda: asyncio.to_thread(os.system, "true"), "starts the program true"),
        (lambda: asyncio.to_thread(os.posix_spawn, "/bin/true", ["true"], {}), "starts the program /bin/true"),
    ],
    ids=["socket", "unix", "name", "raw", "datagram", "program", "shell", "plain", "urllib", "plain-name", "plain-program",
         "plain-names", "plain-datagram", "plain-shell", "plain-spawn"],
)  # fmt: skip
def test_attempt_is_rejected_where_it_is_made(work: Callable[[], Any], did: str) -> None:
    @virtual_time
    async def scenario(_sim: Simulation) -> None:
        await work()

    with pytest.raises(NotStubbed, match=f"the test {did}.*: replace the function that does it"):
        scenario()


@pytest.mark.proves("P-03")
def test_tool_that_connects_fails_the_test_and_names_the_stub_even_if_its_code_handles_it() -> None:
    async def fetch(url: str) -> str:
        """Fetch a page."""
        try:
            await asyncio.gather(asyncio.open_connection(url, 443))
        except Exception:
            return "the site is down"
        return "it is up"

    def plain(url: str) -> None:
        """Fetch a page."""
        with socket.socket() as made:
            made.connect((url, 443))

    @virtual_time
    async def scenario(sim: Simulation, number: int) -> None:
        app = Heliograph("pages")
        model = calling(ToolCall("1", ("fetch", "plain")[number], {"url": "example.com"}))
        app.prompt_agent("reader", "Read.", model=model, tools=[fetch, plain], activate_on=START, updates="answer")
        assert (await sim.serve(app).run({})).state["answer"] == "done"
        assert number == 0

    told = "{} of agent reader connects to example.com:443, and a simulation has no network: pass tools={{{}: a stub}} to sim.serve"
    with pytest.raises(NotStubbed) as found:
        scenario(number=0)
    assert str(found.value) == told.format("tool fetch", '"fetch"')
    with pytest.raises(AssertionError) as failed:
        scenario(number=1)
    assert failed.value.__notes__ == [told.format("tool plain", '"plain"')]
    assert "connect" not in vars(socket.socket)


def test_agent_that_connects_is_named() -> None:
    app = Heliograph("direct")

    @app.agent(activate_on=START)
    async def scout(ctx: Context) -> None:
        await asyncio.open_connection("example.com", 80)

    @virtual_time
    async def scenario(sim: Simulation) -> None:
        await sim.serve(app).run({})

    with pytest.raises(NotStubbed, match=r"agent scout connects to example\.com:80, and .* or make it a tool"):
        scenario()
