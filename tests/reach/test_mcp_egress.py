"""Workers reach an MCP server over HTTP only if the egress policy allows it, and only at the checked address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from heliograph import Heliograph
from heliograph.config import Settings
from heliograph.errors import HarnessError
from heliograph.models import ScriptedModel, ToolCall
from heliograph.policy.egress import EgressPolicy, EgressRejected
from heliograph.runtime import open_runtime
from heliograph.tools import MCPServer
from heliograph.tools.mcp_connection import Connection
from heliograph.tools.mcp_http import http_client
from tests.reach.hook_server import hooked
from tests.reach.mcp_http_server import HttpServer
from tests.reach.test_post import certificates
from tests.runtime.loop_kit import results

pytestmark = [pytest.mark.proves("S7"), pytest.mark.timeout(60)]


def connection(url: str, resolve: Any, egress: EgressPolicy | None = None) -> Connection:
    return Connection("own", None, url, {}, {}, None, 5.0, egress=egress or EgressPolicy(), resolve=resolve)


async def test_private_address_is_never_connected_to_and_the_error_names_the_setting() -> None:
    async with hooked() as inside:
        for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
            with pytest.raises(EgressRejected, match="add it to HELIOGRAPH_MCP_ALLOW") as refused:
                async with MCPServer(url=f"http://{host}:{inside.port}/mcp").open_tools():
                    pass
            assert refused.value.code == "egress_rejected"
        assert inside.connections == 0


async def test_name_with_a_private_address_is_rejected_by_that_address() -> None:
    async def inside(host: str, port: int) -> Sequence[str]:
        return ["93.184.215.14", "10.0.0.1"]

    with pytest.raises(EgressRejected, match=r"tools\.example is not on the public internet"):
        await connection("https://tools.example/mcp", inside).offered()


async def test_unresolvable_name_is_an_unreachable_server() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(HarnessError, match="Name or service not known") as away:
        await connection("https://tools.example/mcp", unknown).offered()
    assert (away.value.code, away.value.recoverable) == ("NETWORK_ERROR", True)


async def test_connection_goes_to_a_checked_address_despite_dns_rebinding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A resolver that returns public addresses first, and a private one from then on."""
    reached: list[tuple[str, str, str]] = []
    answers = iter([["93.184.215.14", "2606:2800::1"], ["127.0.0.1"]])

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    async def connect(self: object, request: httpx2.Request) -> httpx2.Response:
        reached.append((request.url.host, request.headers["host"], request.extensions["sni_hostname"]))
        raise httpx2.ConnectError("refused", request=request)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", connect)
    async with http_client("https://rebind.example/mcp", {}, EgressPolicy(), rebinding) as client:
        with pytest.raises(httpx2.ConnectError, match="refused"):
            await client.get("https://rebind.example/mcp")
        with pytest.raises(httpx2.ConnectError, match="not on the public internet"):
            await client.get("https://rebind.example/mcp")
    assert reached == [(address, "rebind.example", "rebind.example") for address in ("93.184.215.14", "2606:2800::1")]


async def test_silent_address_does_not_use_the_time_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("heliograph.tools.mcp_http.CONNECT_SECONDS_MAX", 0.2)

    async def both(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with hooked() as hook:
        origin = f"http://tools.example:{hook.port}"
        with swallowing("127.0.0.2", hook.port):
            async with http_client(origin, {}, EgressPolicy(frozenset({origin})), both) as client, asyncio.timeout(60):
                assert (await client.post(f"{origin}/x", json={})).status_code == 204


@contextmanager
def swallowing(address: str, port: int) -> Iterator[None]:
    """A socket that listens and accepts no connection: clients receive no reply."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(100):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect((address, port))
            except TimeoutError:
                yield
                return
        raise AssertionError("its backlog is never full")


async def test_certificate_is_checked_against_the_requested_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, server = certificates(tmp_path, "hook.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))

    async def local_resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with hooked(tls=server) as hook:
        origins = {name: f"https://{name}.example:{hook.port}" for name in ("hook", "other")}
        allowed = EgressPolicy(frozenset(origins.values()))
        async with http_client(origins["hook"], {"x-key": "k"}, allowed, local_resolver) as client:
            assert (await client.post(f"{origins['hook']}/x", json={})).status_code == 204
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                await client.post(f"{origins['other']}/x", json={})
        (request,) = hook.requests
        assert (request.headers["host"], request.headers["x-key"]) == (f"hook.example:{hook.port}", "k")


@pytest.mark.proves("S13")
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_secret_headers_are_never_sent_to_another_origin_after_a_redirect(code: int) -> None:
    async def local_resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    secret = {"Authorization": "Bearer k", "X-Api-Key": "k"}
    async with hooked() as other:
        moved = f"HTTP/1.1 {code} Moved\r\nLocation: {other.url}\r\nContent-Length: 0\r\n\r\n".encode()
        async with hooked(moved) as first:
            allowed = EgressPolicy(frozenset({first.origin, other.origin}))
            server = Connection("own", None, first.url, {}, secret, None, 5.0, egress=allowed, resolve=local_resolver)
            with pytest.raises(HarnessError):
                await server.offered()
            assert {request.headers["x-api-key"] for request in first.requests} == {"k"}
            assert other.connections == 0  # the SDK follows nothing to another origin
            async with http_client(first.url, secret, allowed, local_resolver) as client:
                assert (await client.post(first.url, json={})).status_code == code
                await client.post(other.url, json={})  # a request to another origin carries no credentials
        assert [sorted({"authorization", "x-api-key"} & request.headers.keys()) for request in other.requests] == [[]]


async def test_proxy_of_the_environment_does_not_bypass_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async def local_resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with hooked() as proxy, hooked() as hook:
        for name in ("HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.origin)
        async with http_client(hook.url, {}, EgressPolicy(frozenset({hook.origin})), local_resolver) as client:
            assert (await client.post(hook.url, json={})).status_code == 204
        assert (proxy.connections, hook.connections) == (0, 1)


@pytest.mark.more
async def test_worker_settings_allow_an_origin_for_the_agents_of_all_projects(
    database_url: str, http: HttpServer
) -> None:
    await http.start()
    origin = http.url.removesuffix("/mcp")
    assert await outcome_of(database_url, http.url, mcp_allow=origin) == ("success", [{"result": 3}])
    assert await outcome_of(database_url, http.url, egress_allow=origin) == (
        "failed",
        ["ACTION_FAILED"],
    )  # where callbacks may go


async def test_allow_entry_for_one_project_is_rejected_at_the_start(database_url: str) -> None:
    with pytest.raises(EgressRejected, match=r"default=https://tools\.internal names a project"):
        await outcome_of(database_url, "https://tools.internal/mcp", mcp_allow="default=https://tools.internal")


async def outcome_of(database_url: str, url: str, **allow: Any) -> tuple[str, list[Any]]:
    """The outcome of an agent under these settings, and the results of its tool, or the codes of its errors."""
    model = ScriptedModel([ToolCall("x1", "add", {"a": 1, "b": 2}), "done"])
    app = Heliograph("asks")
    app.prompt_agent(
        "asker",
        "Ask.",
        model=model,
        activate_on=["workflow:start"],
        updates="out",
        tools=[MCPServer(url=url, trusted=True)],
    )
    async with open_runtime(Settings(database_url=database_url, **allow)) as runtime:
        result = await runtime.run(app.workflow)
    if model.requests:
        return result.outcome, results(model)
    payloads: list[Any] = [signal.payload for signal in result.signals]
    return result.outcome, [
        outcome_of["error"]["code"]
        for outcome_of in payloads
        if isinstance(outcome_of, dict) and outcome_of.get("error")
    ]
