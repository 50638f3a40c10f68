"""Several systems at one gateway: none affects the tasks of another, and two that delegate to each other come to an end."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import DelegationFailed
from tests.reach.hook_server import hooked
from tests.runtime.gateway_kit import SECRET, Served, delegation, envelope, gateway_of
from tests.runtime.kit import START, Rig
from tests.runtime.test_gateway import application
from tests.runtime.test_projects import rigs

__all__ = ["rigs"]


def sent_by(source: str, wire: dict[str, Any]) -> dict[str, Any]:
    return {"envelope": {**wire["envelope"], "source": source}}


@pytest.mark.proves("CTL-93", "CTL-34")
async def test_two_systems_may_use_the_same_correlation_id(rig: Rig) -> None:
    ran: list[Any] = []
    app = application(ran)
    halt = {"type": "halt", "payload": {"reason": "external_signal", "graceful": False, "correlation_id": "req-1"}}
    async with gateway_of(rig, app, wait_seconds=0) as served, rig.serving(app):
        waiting = await served.post(sent_by("a", delegation("waits")))
        await rig.turn_of("waits", "suspended")
        stranger = await served.post(sent_by("b", envelope(halt, destination="waits")))
        assert stranger.error == (404, "unknown_target", "/envelope/destination")
        other = await served.post(sent_by("b", delegation("waits", task={"n": 3})))
        assert (waiting.status, other.status) == (202, 202)
        assert waiting.payload["task_id"] != other.payload["task_id"]
        stopped = await served.post(sent_by("b", envelope(halt, destination="waits")))
        assert stopped.body["halt"]["target"] == other.payload["task_id"]
        again = await served.post(sent_by("a", delegation("waits")))
        assert (again.status, again.payload["task_id"]) == (202, waiting.payload["task_id"])
        await served.post(sent_by("a", envelope(halt, destination="waits")))
        for task in (waiting, other):
            await rig.ended((await rig.runtime.reader.turn(task.payload["task_id"])).run_id)


@pytest.mark.proves("S27")
async def test_equal_turns_of_two_projects_send_different_requests(rigs: list[Rig]) -> None:
    async with hooked(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}") as hook:
        route = {"match": {"target_agent": "far"}, "destination": {"gateway": hook.url}}
        app = Heliograph("till", routes={"kind": "MessageRouting", "routes": [route]})

        @app.agent(on_request=True)
        async def clerk(ctx: Context) -> Any:
            try:
                return await ctx.delegate("far", {"n": 1})
            except DelegationFailed as error:
                return error.code

        @app.agent(activate_on=START)
        async def keeper(ctx: Context) -> None:
            await ctx.pause(3600)

        for rig in rigs[:2]:
            rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=hook.origin)
            await rig.start(app, run_id="run_same")
            await rig.client.enqueue("run_same", "clerk", turn_id="turn_same")
            async with rig.serving(app):
                await rig.turn_of("clerk", "done")
                await rig.client.stop_run("run_same", now=True)
                await rig.ended("run_same")
        sent = [json.loads(request.body)["envelope"] for request in hook.requests]
    projects = [rig.runtime.settings.project for rig in rigs[:2]]
    assert [each["source"] for each in sent] == [f"{project}/till/clerk" for project in projects]
    assert len({each["id"] for each in sent}) == 2


@pytest.mark.more
@pytest.mark.proves("G-74", "S12")
async def test_two_deployments_that_delegate_to_each_other_come_to_an_end(rig: Rig, lone_rig: Rig) -> None:
    urls: dict[str, str] = {}
    gateways: dict[str, Served] = {}

    def player(name: str, other: str) -> Heliograph:
        route = {"match": {"target_agent": other}, "destination": {"gateway": urls[other]}}
        app = Heliograph(name, routes={"kind": "MessageRouting", "routes": [route]})

        @app.agent(name=name, on_request=True)
        async def play(ctx: Context) -> Any:
            return await ctx.delegate("inner", {})

        @app.agent(name="inner", on_request=True)
        async def inner(ctx: Context) -> Any:
            try:
                return await ctx.delegate(other, {})
            except DelegationFailed as error:
                return error.error

        return app

    async with AsyncExitStack() as stack:
        ports = await _free_ports(2)
        urls |= {name: f"http://127.0.0.1:{port}/" for name, port in zip(("ping", "pong"), ports, strict=True)}
        apps = {"ping": player("ping", "pong"), "pong": player("pong", "ping")}
        for name, each, port in zip(("ping", "pong"), (rig, lone_rig), ports, strict=True):
            await each.fetch("select heliograph.set_limits($1, '{\"depth_max\": 6}')", each.runtime.settings.project)
            each.runtime.settings = replace(each.runtime.settings, gateway_secrets=(SECRET,),
                                            egress_allow=" ".join(url[:-1] for url in urls.values()))  # fmt: skip
            gateways[name] = await stack.enter_async_context(gateway_of(each, apps[name], agents=[name], port=port))
            await stack.enter_async_context(each.serving(apps[name]))
        answer = await gateways["pong"].post(delegation("pong", {}))
    error = answer.payload["result"]
    assert (error["code"], error["details"]["reason"]) == ("DELEGATION_ERROR", "recursion_depth_exceeded")
    query = "select depth from heliograph.agent_turns where project_id = $1"
    rows = [row["depth"] for each in (rig, lone_rig) for row in await each.fetch(query, each.runtime.settings.project)]
    assert sorted(rows) == [1, 2, 3, 4, 5, 6]


@pytest.mark.proves("CTL-90", "ENV-06")
async def test_trace_of_the_first_sender_continues_in_each_deployment_and_in_every_turn(rig: Rig) -> None:
    """The received task, a turn that it delegates to, and one that its signal wakes each send a request to a third system."""
    async with hooked(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}") as hook:
        rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=hook.origin)
        route = {"match": {"target_agent": "third"}, "destination": {"gateway": hook.url}}
        app = Heliograph("second", routes={"kind": "MessageRouting", "routes": [route]})

        async def ask(ctx: Context) -> None:
            with suppress(DelegationFailed):
                await ctx.delegate("third", {})

        @app.agent(on_request=True, emits=["went:on"])
        async def received(ctx: Context) -> None:
            await ask(ctx)
            await ctx.delegate("child", {})
            ctx.emit("went:on", {})

        app.agent(name="child", on_request=True)(ask)
        app.agent(name="woken", activate_on=["went:on"])(ask)
        async with gateway_of(rig, app, agents=["received"]) as served, rig.serving(app):
            answer = await served.post(delegation("received", {}))
            await rig.ended((await rig.runtime.reader.turn(answer.payload["task_id"])).run_id)
        sent = [json.loads(request.body)["envelope"] for request in hook.requests]
    assert [each["source"].rpartition("/")[2] for each in sent] == ["received", "child", "woken"]
    assert {each["trace_id"] for each in sent} == {"trace-abc123"}


async def _free_ports(count: int) -> list[int]:
    servers = [await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) for _ in range(count)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports
