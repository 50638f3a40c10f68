"""Task events, commands and steps on NATS, published by workers with the wire and never lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from heliograph import Call, Context, Heliograph
from heliograph import Client as HeliographClient
from heliograph.config import Settings
from heliograph.doorbell.nats import safe_subject
from heliograph.runtime import Runtime, open_runtime
from heliograph.testing.conformance import OnWire
from tests.reach.nats_ground import NatsGround, finishes, opened, two_steps
from tests.reach.nats_kit import NatsServer
from tests.reach.serving import serving
from tests.runtime.kit import until


async def is_suspended(runtime: Runtime) -> bool:
    return any(turn.status == "suspended" for turn in await runtime.reader.turns())


@pytest.mark.proves("L0-71", "L0-81", "L0-107", "L0-03", "G-61")
async def test_turn_event_on_nats_has_the_key_of_its_outbox_row(
    database_url: str, server: NatsServer, ground: NatsGround
) -> None:
    events = await ground.listen()
    async with opened(database_url, server.url) as runtime:
        await finishes(runtime, two_steps())
        rows = await runtime.database.fetch(
            "select key, agent_id from heliograph.outbox o join heliograph.agent_turns t using (project_id, agent_turn_id)"
            " order by outbox_id"
        )
    received: dict[str, OnWire] = {}
    while len(received) < 2:  # at least once: a second copy has the same key
        event = await events.get()
        received[event[1]] = event
    assert [event[:2] for event in received.values()] == [
        (safe_subject(f"evt.agent.{row['agent_id']}.task"), f"default/bells/{row['key']}") for row in rows
    ]
    for subject, _, body in received.values():
        assert subject.startswith("evt.agent.run_")
        assert subject.count(".") == 3
        assert set(body) == {"agent_turn_id", "status", "output_box_id", "deliverable_card_id"}


@pytest.mark.more
@pytest.mark.proves("L0-51", "K18")
async def test_call_is_published_on_nats_in_full_and_again_until_it_is_answered(
    database_url: str, server: NatsServer, ground: NatsGround
) -> None:
    commands = await ground.listen("cmd.tool.*")
    app = Heliograph("asks")
    arguments = {"text": "x" * 20_000}  # more than a NOTIFY takes

    @app.agent(activate_on=["workflow:start"], updates="seen")
    async def asker(ctx: Context) -> Any:
        return await ctx.call("search", arguments)

    async with opened(database_url, server.url) as runtime, serving(runtime, app) as worker:
        run_id, _ = await runtime.start(app.workflow, {})
        subject, key, command = await asyncio.wait_for(commands.get(), 30)
        assert (subject, key) == ("cmd.tool.search", f"default/asks/cmd:{command['agent_turn_id']}:c1")
        assert (command["tool_name"], command["arguments"], command["tool_call_id"]) == ("search", arguments, "c1")
        # it left after the commit of its card, its edge and its wait: another connection sees them all
        turn_id = command["agent_turn_id"]
        assert [card.kind for card in await runtime.reader.cards(turn_id)] == ["tool.call"]
        assert [wait.state for wait in await runtime.reader.waits(turn_id)] == ["open"]
        (edge,) = await runtime.database.fetch(
            "select primitive, edge_phase from heliograph.edge_overview where turn_id = $1 and call_id = 'c1'", turn_id
        )
        assert tuple(edge) == ("tool_call", "request")
        assert await asyncio.wait_for(commands.get(), 30) == (subject, key, command)  # after a second, and more
        client = HeliographClient.on(runtime)
        assert await client.report(command["agent_turn_id"], "c1", token=command["token"], result=5) == "applied"
        signals = [signal async for signal in runtime.follow(run_id)]
        while not commands.empty():
            assert commands.get_nowait()[1] == key
        await runtime.database.fetch("update heliograph.outbox set due_at = now() where kind = 'cmd'")
        await worker.watchdog.relay()
    end: Any = signals[-1].payload
    assert end["state"] == {"seen": 5}
    assert commands.empty()


@pytest.mark.proves("L0-108", "L0-03")
async def test_step_events_of_a_turn_are_published_without_a_commit(
    database_url: str, server: NatsServer, ground: NatsGround
) -> None:
    steps = await ground.listen("evt.agent.*.step")
    app = Heliograph("steps")

    @app.agent(activate_on=["workflow:start"], updates="seen")
    async def walker(ctx: Context) -> Any:
        await ctx.step("look", lambda: 1)
        return await ctx.step("leap", lambda: 2)

    async with opened(database_url, server.url) as runtime:
        result = await runtime.run(app.workflow, {}, run_id="walk")
        (turn,) = await runtime.reader.turns()
        received = [await asyncio.wait_for(steps.get(), 30) for _ in range(4)]
    assert result.state == {"seen": 2}
    assert {subject for subject, *_ in received} == {"evt.agent.walk%2Fwalker.step"}
    assert {(body["agent_turn_id"], body["turn_epoch"]) for *_, body in received} == {(turn.turn_id, turn.turn_epoch)}
    assert [(body["step_id"], body["phase"]) for *_, body in received] == [
        (None, "act"), ("s1", "act"), ("s2", "act"), (None, "terminate"),
    ]  # fmt: skip


@pytest.mark.proves("L0-16", "L0-17", "L0-18", "L0-113")
async def test_state_events_match_the_activity_in_the_view(
    database_url: str, server: NatsServer, ground: NatsGround
) -> None:
    events = await ground.listen("evt.agent.*.state")
    app = Heliograph("observed")
    views: list[tuple[str | None, str | None, int | None]] = []

    async with opened(database_url, server.url) as runtime:

        async def look() -> None:
            (turn,) = await runtime.reader.turns()
            views.append((turn.activity, turn.current_tool, turn.waiting_tool_count))

        @app.agent(activate_on=["workflow:start"], updates="seen")
        async def walker(ctx: Context) -> Any:
            await look()
            await ctx.step("look", look)
            return await ctx.calls([Call("search", needs_token=False), Call("fetch", needs_token=False)])

        async with serving(runtime, app):
            run_id, _ = await runtime.start(app.workflow, {}, "walk")
            await until(partial(is_suspended, runtime))
            await look()
            received = [await asyncio.wait_for(events.get(), 30) for _ in range(4)]
            (turn,) = await runtime.reader.turns()
            client = HeliographClient.on(runtime)
            for wait in await runtime.reader.waits(turn.turn_id):
                if wait.state == "open":
                    await client.report(turn.turn_id, wait.call_id, result=1)
            assert [signal async for signal in runtime.follow(run_id)][-1].name == "workflow:end"
    assert {subject for subject, *_ in received} == {"evt.agent.walk%2Fwalker.state"}
    assert {body["agent_turn_id"] for *_, body in received} == {turn.turn_id}
    metadata = [body["metadata"] for *_, body in received]
    assert [(each["activity"], each["current_tool"], each["waiting_tool_count"]) for each in metadata] == [
        ("thinking", None, 0), ("executing_tool", "look", 0), ("thinking", None, 0), ("awaiting_tool_result", "fetch", 2),
    ]  # fmt: skip
    # the later views show the next run of the function, after its calls have results
    assert views[:3] == [("thinking", None, 0), ("executing_tool", "look", 0), ("awaiting_tool_result", "fetch", 2)]


@pytest.mark.proves("L0-71", "L0-51", "G-61", "K18")
async def test_mixed_workers_with_and_without_nats_lose_no_event_and_no_command(
    database_url: str, server: NatsServer, ground: NatsGround
) -> None:
    """A worker with the wire publishes the events that a worker without it commits, however late it starts."""
    commands, events = await ground.listen("cmd.tool.*"), await ground.listen()
    app = Heliograph("mixed")

    @app.agent(activate_on=["workflow:start"], emits=["asked"], updates="first")
    def first(_: Context) -> int:
        return 1

    @app.agent(activate_on=["asked"], updates="second")
    async def second(ctx: Context) -> Any:
        return await ctx.call("search", needs_token=False)

    async with opened(database_url, server.url) as with_wire:
        await with_wire.worker(app.workflow).watchdog.relay()  # it was here once: the project has the wire
    async with open_runtime(Settings(database_url)) as without:
        client = HeliographClient.on(without)
        async with serving(without, app) as worker:
            run_id, _ = await without.start(app.workflow, {})
            await until(partial(is_suspended, without))
            await worker.watchdog.sweep()
            waiting = "select kind, count(*) from heliograph.outbox where published_at is null group by 1 order by 1"
            assert [tuple(row) for row in await without.database.fetch(waiting)] == [("cmd", 1), ("task_event", 1)]
            assert (events.empty(), commands.empty()) == (True, True)
            async with opened(database_url, server.url) as with_wire:
                await with_wire.worker(app.workflow).watchdog.relay()
                [turn] = [turn for turn in await without.reader.turns() if turn.status == "suspended"]
                _, key, _ = await asyncio.wait_for(commands.get(), 30)
                assert key.startswith(f"default/mixed/cmd:{turn.turn_id}")
                assert (await asyncio.wait_for(events.get(), 30))[1].startswith("default/mixed/evt:")
            assert await client.report(turn.turn_id, "c1", result=2) == "applied"
            signals = [signal async for signal in without.follow(run_id)]
        async with opened(database_url, server.url) as with_wire:
            await with_wire.worker(app.workflow).watchdog.relay()
            keys = {(await asyncio.wait_for(events.get(), 30))[1]}
        assert keys == {f"default/mixed/evt:{turn.turn_id}"}
        assert await without.database.fetch(waiting) == []
    end: Any = signals[-1].payload
    assert end["state"] == {"first": 1, "second": 2}
