"""Callbacks end to end over real sockets: signed, retried, abandoned, redelivered, and only to allowed receivers."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.egress.messenger import Messenger
from heliograph.errors import NotFound
from heliograph.policy import callbacks as policy
from heliograph.webhooks import verify_webhook
from heliograph.worker.callbacks import send_callbacks
from tests.reach.hook_server import OK, Hook, hooked
from tests.runtime.kit import SOON_SECONDS, START, Rig, until

SECRETS = tuple(f"whsec_{b64encode(bytes([n]) * 32).decode()}" for n in (1, 2))


def status(code: int) -> bytes:
    return f"HTTP/1.1 {code} X\r\n\r\n".encode()


def verified_body(hook: Hook, place: int = 0) -> Any:
    request = hook.requests[place]
    verify_webhook(request.headers, request.body, SECRETS[:1], datetime.now(UTC))
    return json.loads(request.body)


def application(url: str | None = None) -> Heliograph:
    app = Heliograph("calls-back")

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate("child", {"n": 2}, callback_url=url)

    @app.agent(on_request=True)
    def child(ctx: Context) -> Any:
        if ctx.task == "fail":
            raise ValueError("no")
        return {"doubled": 2 * ctx.task["n"]}

    return app


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "heliograph.worker.callbacks.again_seconds", lambda i, n, _=0.0: 0.0 if n < policy.POLICY.max_attempts else None
    )


def allow(rig: Rig, *hooks: Hook, secrets: tuple[str, ...] = SECRETS) -> None:
    allowed = " ".join(hook.origin for hook in hooks)
    rig.runtime.settings = replace(rig.runtime.settings, webhook_secrets=secrets, egress_allow=allowed)


@pytest.mark.proves("CTL-23", "CTL-25", "G-23", "S15")
async def test_end_of_a_delegation_and_end_of_its_run_are_each_sent_once_and_signed(rig: Rig) -> None:
    async with hooked() as hook:
        allow(rig, hook)
        app = application(hook.url)
        run_id, _ = await rig.runtime.start(app.workflow, {}, callback_url=f"{hook.url}?run")
        async with rig.serving(app):
            await rig.ended(run_id)
            await hook.until(lambda: len(hook.requests) == 2)
            await until(lambda: _are_delivered(rig, 2))
        child = await rig.turn_of("child")
        by_path = {request.path: verified_body(hook, place) for place, request in enumerate(hook.requests)}
        assert by_path["/hook"] == {
            "type": "delegation_response", "target_agent": "child", "task_id": child.turn_id, "id": "c1", "run_id": run_id,
            "status": "completed", "outcome": "success", "duration_ms": by_path["/hook"]["duration_ms"],
            "deliverable_card_id": f"card:{child.turn_id}:end", "result": {"doubled": 4},
            "correlation_id": f"{child.parent_turn_id}:c1",
        }  # fmt: skip
        assert by_path["/hook?run"]["state"] == {"seen": {"doubled": 4}}
        assert by_path["/hook?run"]["type"] == "run_response"
        ids = [request.headers["webhook-id"] for request in hook.requests]
        assert sorted(ids) == sorted(row.callback_id for row in await rig.client.callbacks("delivered"))


@pytest.mark.proves("S14")
async def test_callback_is_signed_with_every_active_secret(rig: Rig) -> None:
    async with hooked() as hook:
        allow(rig, hook)
        await rig.run(application(), {}, callback_url=hook.url)
        await hook.until(lambda: bool(hook.requests))
        request = hook.requests[0]
        for secret in SECRETS:
            assert verify_webhook(request.headers, request.body, [secret], datetime.now(UTC))


async def test_message_from_outside_has_its_own_callback_which_receives_failures(rig: Rig) -> None:
    async with hooked() as hook:
        allow(rig, hook)
        app = application()
        app.agent(name="waits", activate_on=START)(_hang)
        run_id = await rig.start(app)
        async with rig.serving(app):
            await rig.client.enqueue(run_id, "child", "fail", callback_url=hook.url)
            await hook.until(lambda: bool(hook.requests))
            await rig.client.stop_run(run_id, now=True)
            await rig.ended(run_id)
    assert (verified_body(hook)["status"], verified_body(hook)["error"]["code"]) == ("failed", "ACTION_FAILED")


async def _hang(ctx: Context) -> None:
    await asyncio.Event().wait()


@pytest.mark.proves("S15")
async def test_failing_receiver_gets_a_retry_with_the_same_id_and_body(rig: Rig, quick: None) -> None:
    async with hooked(status(500), status(302), status(429), OK) as hook:
        allow(rig, hook)
        app = application()
        await rig.runtime.start(app.workflow, {}, "again", hook.url)
        async with rig.serving(app):
            await hook.until(lambda: len(hook.requests) == 4)
            await until(lambda: _is(rig, "delivered"))
    assert len({(r.headers["webhook-id"], r.body) for r in hook.requests}) == 1


async def _are_delivered(rig: Rig, count: int) -> bool:
    return len(await rig.client.callbacks("delivered")) == count


async def _is(rig: Rig, state: str) -> bool:
    return [row.state for row in await rig.client.callbacks()] == [state]


@pytest.mark.proves("S15", "G-23")
async def test_callback_beyond_its_attempts_is_a_dead_letter_until_it_is_redelivered(rig: Rig, quick: None) -> None:
    async with hooked(*[status(503)] * policy.POLICY.max_attempts, OK) as hook:
        allow(rig, hook)
        app = application()
        await rig.runtime.start(app.workflow, {}, "dead", hook.url)
        async with rig.serving(app):
            await until(lambda: _is(rig, "dead"))
            (row,) = await rig.client.callbacks("dead")
            assert (row.attempts, row.last_error, row.run_id) == (policy.POLICY.max_attempts, "answered 503", "dead")
            await rig.client.redeliver(row.callback_id)
            await until(lambda: _is(rig, "delivered"))
        with pytest.raises(NotFound):
            await rig.client.redeliver("callback_none")


async def test_permanently_gone_receiver_gets_no_retry(rig: Rig) -> None:
    async with hooked(status(410)) as hook:
        allow(rig, hook)
        app = application()
        await rig.runtime.start(app.workflow, {}, "gone", hook.url)
        async with rig.serving(app):
            await until(lambda: _is(rig, "dead"))
        assert len(hook.requests) == 1


@pytest.mark.proves("S7")
@pytest.mark.parametrize("mcp", [False, True], ids=["not allowed", "allowed for MCP servers"])
async def test_forbidden_receiver_is_never_connected_to_and_the_callback_has_the_reason(rig: Rig, mcp: bool) -> None:
    """The allow list of tool servers does not apply to callbacks, which every caller that starts a run may name."""
    async with hooked() as hook:
        allow(rig)
        rig.runtime.settings = replace(rig.runtime.settings, mcp_allow=hook.origin if mcp else "")
        app = application()
        await rig.runtime.start(app.workflow, {}, "inside", hook.url)
        async with rig.serving(app):
            await until(lambda: _has_failed(rig))
        (row,) = await rig.client.callbacks("due")
        assert "requests are sent over https only" in str(row.last_error)
        assert hook.connections == 0


@pytest.mark.proves("ERR-10")
async def test_callback_to_a_receiver_that_is_away_has_the_code_of_the_network(rig: Rig) -> None:
    async with hooked() as hook:
        allow(rig, hook)
    app = application()
    await rig.runtime.start(app.workflow, {}, "away", hook.url)
    async with rig.serving(app):
        await until(lambda: _has_failed(rig))
    (row,) = await rig.client.callbacks("due")
    assert str(row.last_error).startswith(f"NETWORK_ERROR: {hook.origin} cannot be reached")


async def _has_failed(rig: Rig) -> bool:
    return any(row.last_error for row in await rig.client.callbacks())


@pytest.mark.proves("S14")
async def test_callback_waits_for_a_worker_with_the_secret(rig: Rig) -> None:
    async with hooked() as hook:
        allow(rig, hook, secrets=())
        await rig.run(application(), {}, callback_url=hook.url)
        assert (await _is(rig, "due"), hook.connections) == (True, 0)
        allow(rig, hook)
        async with rig.serving(application()):
            await until(lambda: _is(rig, "delivered"))


@pytest.mark.proves("S11")
async def test_callback_that_no_worker_can_sign_is_a_dead_letter_after_its_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.worker.retention.INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("heliograph.worker.retention.ONLOOKER_SECONDS", 0.0)
    async with hooked() as hook:
        allow(rig, hook, secrets=())
        await rig.run(application(), {}, callback_url=hook.url)
        async with rig.serving(application()):
            assert await _is(rig, "due")
            monkeypatch.setattr("heliograph.worker.retention.UNTRIED_SECONDS_MAX", 0.0)
            await until(lambda: _is(rig, "dead"))
        allow(rig, hook)
        (row,) = await rig.client.callbacks("dead")
        async with rig.serving(application()):  # a worker with a secret abandons no callback
            await rig.client.redeliver(row.callback_id)
            await until(lambda: _is(rig, "delivered"))


@pytest.mark.proves("S11")
async def test_wires_that_are_away_hold_up_neither_retention_nor_sweeps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.worker.retention.INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("heliograph.worker.retention.ONLOOKER_SECONDS", 0.0)
    monkeypatch.setattr("heliograph.worker.retention.UNTRIED_SECONDS_MAX", 0.0)
    is_waiting = asyncio.Event()

    async def hangs(*_: Any) -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    async with hooked() as hook:
        allow(rig, hook, secrets=())
        with monkeypatch.context() as away:
            away.setattr(rig.runtime.world, "publish", hangs)
            await rig.runtime.ledger.declare_wire("postgres")
            pruned = asyncio.Event()
            async with serving_until_cancelled(rig, pruned):
                await rig.runtime.start(application().workflow, {}, callback_url=hook.url)
                await asyncio.wait_for(is_waiting.wait(), 30)
                await until(lambda: _is(rig, "dead"))
                pruned.clear()
                await asyncio.wait_for(pruned.wait(), 30)
        assert not await rig.is_published()
        await rig.runtime.worker(application().workflow).watchdog.relay()
        assert await rig.is_published()


@asynccontextmanager
async def serving_until_cancelled(rig: Rig, pruned: asyncio.Event) -> AsyncIterator[None]:
    """A worker that prunes; killed at the end, because it cannot settle while a wire hangs."""
    worker = rig.runtime.worker(application().workflow)
    worker.watchdog.interval_seconds = 0.05
    [services] = worker.projects
    services = replace(services, prune_after_seconds=86_400.0)
    worker.watchdog.projects = [services]

    async def prune(*_: Any) -> dict[str, Any]:
        pruned.set()
        return {"more": False}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services.ledger, "prune", prune)
        task = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("where", ["take", "send"])
async def test_callback_taken_by_a_stopped_worker_is_sent_by_the_next_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    came, stays = asyncio.Event(), asyncio.Event()
    async with hooked() as hook:
        allow(rig, hook, secrets=())
        await rig.run(application(), {}, callback_url=hook.url)
        allow(rig, hook)
        services = rig.runtime.worker(application().workflow).projects[0]
        owner = services.ledger.callbacks if where == "take" else services.callbacks
        real = getattr(owner, where)

        async def done_and_not_answered(*args: Any, **options: Any) -> Any:
            answer = await real(*args, **options) if where == "take" else None
            came.set()
            await stays.wait()
            return answer

        with monkeypatch.context() as stopping:
            stopping.setattr(owner, where, done_and_not_answered)
            calling = asyncio.create_task(send_callbacks(services))
            await came.wait()
            calling.cancel()
            await asyncio.sleep(0)
            stays.set()
            with pytest.raises(asyncio.CancelledError):
                await calling
        assert hook.connections == 0
        await send_callbacks(services)
        assert len(hook.requests) == 1


@pytest.mark.parametrize("where", ["send", "record"])
async def test_callback_sent_by_a_stopped_worker_is_not_sent_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    came, arrived = asyncio.Event(), asyncio.Event()
    async with hooked() as hook:
        allow(rig, hook, secrets=())
        for _ in range(2):
            await rig.run(application(), {}, callback_url=hook.url)
        allow(rig, hook)
        services = rig.runtime.worker(application().workflow).projects[0]
        owner = services.ledger.callbacks if where == "record" else services.callbacks
        real, begun = getattr(owner, where), list[Any]()

        async def first_only(*args: Any, **options: Any) -> Any:
            """One message arrives and the other hangs; or both have, and the record hangs until it is made again."""
            begun.append(args)
            if len(begun) == (1 if where == "record" else 2):
                came.set()
                await asyncio.Event().wait()
            answer = await real(*args)
            arrived.set()
            return answer

        with monkeypatch.context() as stopping:
            stopping.setattr(owner, where, first_only)
            calling = asyncio.create_task(send_callbacks(services))
            await came.wait()
            if where == "send":
                await arrived.wait()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        await send_callbacks(services)
        assert len(hook.requests) == 2
        assert len(await rig.client.callbacks("delivered")) == 2


@pytest.mark.proves("L0-111")
async def test_worker_past_its_grace_waits_for_no_receiver(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, came, is_over, send = Heliograph("hangs"), asyncio.Event(), asyncio.Event(), Messenger.send

    @hanging.agent(activate_on=START)
    async def hangs(_ctx: Context) -> None:
        """Takes its time to clean up, so that its worker is at work still."""
        try:
            await asyncio.Event().wait()
        finally:
            await is_over.wait()

    async def hangs_once(*args: Any, **options: Any) -> Any:
        if came.is_set():
            return await send(*args, **options)
        came.set()
        return await asyncio.Event().wait()

    rig.ends_with_open_work = True
    monkeypatch.setattr(Messenger, "send", hangs_once)
    async with hooked() as hook:
        allow(rig, hook, secrets=())
        await rig.run(application(), {}, callback_url=hook.url)
        allow(rig, hook)
        await rig.start(hanging)
        async with asyncio.timeout(SOON_SECONDS), rig.serving(hanging, grace_seconds=0.01):
            await rig.turn_of("hangs", "running")
            await came.wait()
        is_over.set()
        assert len(hook.requests) == 1  # by the same worker, when it had given it back


@pytest.mark.proves("S13")
async def test_no_secret_reaches_a_table(rig: Rig) -> None:
    async with hooked(status(500)) as hook:
        allow(rig, hook)
        await rig.run(application(), {}, callback_url=hook.url)
        await until(lambda: _has_failed(rig))
    for (table,) in await rig.fetch(
        "select format('%I', table_name) from information_schema.tables where table_schema = 'heliograph'"
    ):
        rows = await rig.fetch(f"select t::text from heliograph.{table} t where t::text like '%whsec_%'")
        assert rows == []
