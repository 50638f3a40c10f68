"""Halts of tasks at gateways: which calls halt their task, and how long workers repeat a halt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from heliograph import Context, Delegation, Heliograph
from heliograph.egress.messenger import Messenger
from heliograph.errors import StoreUnavailable
from heliograph.policy.egress import EgressPolicy, read_allowed
from heliograph.worker import gateway_halts
from tests.reach.hook_server import OK, Hook, Request, hooked
from tests.runtime.gateway_kit import SECRET, allowed, gateway_of, local, run_of
from tests.runtime.kit import SOON_SECONDS, START, Rig, names, one, until

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)


def endless() -> tuple[Heliograph, asyncio.Event]:
    """The other deployment: an agent that never ends, and an event that it sets when it starts."""
    far = Heliograph("far")
    started = asyncio.Event()

    @far.agent(on_request=True)
    async def appraiser(ctx: Context) -> None:
        started.set()
        await ctx.sleep(600)

    return far, started


@asynccontextmanager
async def called(
    rig: Rig, lone_rig: Rig, far: Heliograph, started: asyncio.Event, **options: Any
) -> AsyncIterator[str]:
    """A run whose task at the gateway of the other deployment has started, while each deployment has a worker."""
    async with gateway_of(lone_rig, far) as served, lone_rig.serving(far), allowed(rig, served) as url:
        app = local(url, {"n": 1}, **options)
        run_id = await rig.start(app)
        async with rig.serving(app):
            await asyncio.wait_for(started.wait(), SOON_SECONDS)
            yield run_id


@pytest.mark.more
@pytest.mark.parametrize("options", [{}, {"timeout": 1.5}], ids=["stop", "timeout"])
@pytest.mark.proves("CTL-35", "RTE-07")
async def test_task_at_a_gateway_is_halted_when_its_caller_stops_or_no_longer_waits(
    rig: Rig, lone_rig: Rig, options: dict[str, Any]
) -> None:
    far, started = endless()
    async with called(rig, lone_rig, far, started, **options) as run_id:
        if not options:
            await rig.client.stop_run(run_id, now=True)
        await rig.ended(run_id)
        await lone_rig.ended(await run_of(lone_rig, "appraiser"))
    turn = await lone_rig.turn_of("appraiser")
    failed = one(await lone_rig.runtime.reader.all_signals(turn.run_id), "agent:failed")
    assert (turn.outcome, failed["error"]["message"]) == (
        "canceled",
        "parent_termination: its caller no longer waits for it",
    )


@pytest.mark.more
@pytest.mark.proves("CTL-35")
async def test_halt_survives_the_worker_whose_caller_was_stopped(rig: Rig, lone_rig: Rig) -> None:
    far, started = endless()
    async with gateway_of(lone_rig, far) as served, lone_rig.serving(far), allowed(rig, served) as url:
        app = local(url, {"n": 1})
        run_id = await rig.start(app)
        async with rig.serving(app):
            await asyncio.wait_for(started.wait(), SOON_SECONDS)
        caller = await rig.turn_of("buyer", "suspended")
        await rig.client.stop_turn(caller.turn_id, now=True)  # no worker is there
        assert (await lone_rig.turn_of("appraiser")).outcome is None
        async with rig.serving(app):
            await rig.ended(run_id)
            await until(rig.is_published)
        await lone_rig.ended(await run_of(lone_rig, "appraiser"))
    assert (await lone_rig.turn_of("appraiser")).outcome == "canceled"


@pytest.mark.proves("CTL-35")
async def test_gateway_that_accepts_a_call_and_later_rejects_it_receives_a_halt_of_the_task(
    rig: Rig, lone_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_halts, "AGAIN_SECONDS", 0.05)
    far, started = endless()
    other = Heliograph("other")
    other.agent(name="stranger", on_request=True)(lambda ctx: None)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(lone_rig.serving(far))
        async with gateway_of(lone_rig, far, wait_seconds=0) as served:
            url = await stack.enter_async_context(allowed(rig, served))
            app = local(url, {"n": 1})
            run_id = await rig.start(app)
            await stack.enter_async_context(rig.serving(app))
            await asyncio.wait_for(started.wait(), SOON_SECONDS)  # the response was 202
        async with gateway_of(lone_rig, other, port=served.port):  # which does not know the agent
            await rig.ended(run_id)
            assert (await rig.runtime.reader.run(run_id)).state["seen"] == [
                "DELEGATION_ERROR", "failed", "DELEGATION_ERROR", "unknown_agent", 404]  # fmt: skip
        assert (await lone_rig.turn_of("appraiser")).outcome is None
        async with gateway_of(lone_rig, far, port=served.port):
            await lone_rig.ended(await run_of(lone_rig, "appraiser"))
            await until(rig.is_published)
    assert (await lone_rig.turn_of("appraiser")).outcome == "canceled"


@pytest.mark.proves("CTL-73", "CTL-35")
async def test_halt_of_a_caller_carries_the_grace_of_its_application_for_the_cleanup_of_the_task(
    rig: Rig, lone_rig: Rig
) -> None:
    far, started, cleaned = Heliograph("far"), asyncio.Event(), asyncio.Event()

    @far.agent(on_request=True)
    async def appraiser(ctx: Context) -> None:
        ctx.on_cleanup(cleaned.set)
        started.set()
        await asyncio.Event().wait()

    options = {"control_signals": {"halt": {"force_after_seconds": 33}}}
    async with called(rig, lone_rig, far, started, **options) as run_id:
        await rig.client.stop_run(run_id, now=True)
        await rig.ended(run_id)
        log = await lone_rig.ended(await run_of(lone_rig, "appraiser"))
    halts = await rig.fetch(
        "select body from heliograph.outbox where project_id = $1 and kind = 'halt'", rig.runtime.settings.project
    )
    [sent] = [json.loads(row["body"])["request"]["envelope"]["signal"] for row in halts]
    assert (sent["force_after_seconds"], sent["payload"]["graceful"]) == (33, True)
    assert one(log, "halt")["graceful"] is True
    assert cleaned.is_set()


@pytest.mark.more
@pytest.mark.proves("CTL-35")
async def test_halt_whose_confirmation_is_lost_stops_its_task_once_and_no_other(
    rig: Rig, lone_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_halts, "AGAIN_SECONDS", 0.05)
    far, sent, begun = Heliograph("far"), 0, list[str]()

    @far.agent(on_request=True)
    async def appraiser(ctx: Context) -> None:
        begun.append(ctx.run_id)
        await ctx.sleep(600)

    real = type(rig.runtime.ledger).mark_published

    async def lose(ledger: Any, keys: Any) -> Any:
        nonlocal sent
        if any(key.startswith("halt:") for key in keys):
            sent += 1
            if sent < 4:  # the worker is killed, or the database is away
                raise StoreUnavailable("away")
        return await real(ledger, keys)

    monkeypatch.setattr(type(rig.runtime.ledger), "mark_published", lose)
    async with gateway_of(lone_rig, far, wait_seconds=0) as served, lone_rig.serving(far), allowed(rig, served) as url:
        app = local(url, {"n": 1})
        run_ids = [await rig.start(app) for _ in range(2)]
        async with rig.serving(app), rig.serving(app):
            await until(lambda: len(begun) == 2)
            await rig.client.stop_run(run_ids[0], now=True)
            await until(lambda: sent >= 4)
            logs = [await lone_rig.runtime.reader.all_signals(run_id) for run_id in begun]
            assert sorted(names(log).count("agent:failed") for log in logs) == [0, 1]
            await rig.client.stop_run(run_ids[1], now=True)
            for run_id in run_ids:
                await rig.ended(run_id)
            await until(rig.is_published)
        for run_id in begun:
            assert names(await lone_rig.ended(run_id)).count("agent:failed") == 1


@pytest.mark.proves("CTL-35")
async def test_halt_is_sent_again_until_the_gateway_has_confirmed_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_halts, "AGAIN_SECONDS", 0.05)
    unavailable, unknown = (b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status for status in (503, 404))
    async with hooked(unavailable) as hook:
        rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=hook.origin)
        app = local(hook.url, {"n": 1})
        run_id = await rig.start(app)
        async with rig.serving(app):
            await hook.until(lambda: len(hook.requests) >= 1)
            await rig.client.stop_run(run_id, now=True)
            await rig.ended(run_id)
            await hook.until(lambda: len(_halts(hook)) >= 2)
            hook.answers = [*[unknown] * (len(hook.requests) + 2), b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]
            await until(rig.is_published)
    sent = _halts(hook)
    assert len({each.body for each in sent}) == 1
    [request] = {each.body for each in hook.requests if each not in sent}
    asked, halt = (json.loads(body)["envelope"] for body in (request, sent[0].body))
    assert halt["signal"]["payload"] == {
        "reason": "parent_termination", "graceful": False, "message": "its caller no longer waits for it",
        "correlation_id": asked["signal"]["payload"]["correlation_id"],
    }  # fmt: skip
    sender = f"{rig.runtime.settings.project}/local/buyer"
    assert (halt["source"], halt["destination"]) == (asked["source"], asked["destination"]) == (sender, "appraiser")
    assert sent[0].headers["webhook-id"] == halt["id"] != asked["id"]


def _halts(hook: Hook) -> list[Request]:
    return [each for each in hook.requests if json.loads(each.body)["envelope"]["signal"]["type"] == "halt"]


@pytest.mark.proves("CTL-35")
async def test_gateway_that_does_not_respond_delays_no_halts_to_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_halts, "_AT_ONCE", 2)
    rig.ends_with_open_work = True  # three halts are never confirmed
    async with AsyncExitStack() as stack, hooked(None, OK) as quick:
        slow = await stack.enter_async_context(hooked(None))
        rig.runtime.settings = replace(
            rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=f"{slow.origin} {quick.origin}"
        )
        routes = [{"match": {"target_agent": name}, "destination": {"gateway": hook.url}}
                  for name, hook in (("slow", slow), ("quick", quick))]  # fmt: skip
        app = Heliograph("near", routes={"kind": "MessageRouting", "routes": routes})

        @app.agent(activate_on=START)
        async def buyer(ctx: Context) -> Any:
            return await ctx.delegates([*[Delegation("slow", {"n": n}) for n in range(3)], Delegation("quick", {})])

        run_id = await rig.start(app)
        async with rig.serving(app):
            await slow.until(lambda: len(slow.requests) == 3)
            await quick.until(lambda: len(quick.requests) == 1)
            await rig.client.stop_run(run_id, now=True)
            async with asyncio.timeout(10):  # less than a request may take
                await quick.until(lambda: len(_halts(quick)) == 1)
            left = "select call_id from heliograph.outbox where project_id = $1 and kind = 'halt' and deliveries = 0"
            assert len(await rig.fetch(left, rig.runtime.settings.project)) == 1
            await stack.aclose()


@pytest.mark.parametrize(
    ("status", "seconds", "is_done"),
    [(200, 0, True), (204, 0, True), (404, 79, False), (404, 81, True), (302, 0, False), (401, 3599, False), (401, 3601, True),
     (429, 3599, False), (503, 3599, False), (503, 3601, True)],
)  # fmt: skip
async def test_halt_ends_with_its_confirmation_or_when_it_is_abandoned(
    status: int, seconds: int, is_done: bool
) -> None:
    async with hooked(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status) as hook:
        messenger = Messenger([SECRET], EgressPolicy(read_allowed(hook.origin, "p")))
        row = {
            "key": "k", "turn_id": "t", "call_id": "c", "created_at": (NOW - timedelta(seconds=seconds)).isoformat(),
            "body": {"gateway": hook.url, "request": {"envelope": {"id": "e"}}},
        }  # fmt: skip
        assert await gateway_halts._is_done(messenger, row, NOW) is is_done
        assert len(hook.requests) == 1


@pytest.mark.parametrize(
    "change",
    [{"body": {}}, {"body": None}, {"body": {"gateway": "x", "request": []}}, {"body": {"gateway": "x", "request": {"envelope": {}}}},
     {"body": {"gateway": "x", "request": {"envelope": {"id": "a\nb"}}}}, {"created_at": "infinity"}, {"undecodable": "body/request: a number has 5000 digits"}],
)  # fmt: skip
async def test_malformed_halt_is_dropped_and_logged(change: Any, caplog: pytest.LogCaptureFixture) -> None:
    row = {"key": "halt:t:c", "turn_id": "t", "call_id": "c", "created_at": NOW.isoformat(),
           "body": {"gateway": "http://127.0.0.1:1/", "request": {"envelope": {"id": "e"}}}}  # fmt: skip
    messenger = Messenger([SECRET], EgressPolicy(read_allowed("", "p")))
    assert not await gateway_halts._is_done(messenger, row, NOW)  # the address is not allowed yet
    assert await gateway_halts._is_done(messenger, {**row, **change}, NOW)
    assert "halt halt:t:c is malformed" in caplog.text
