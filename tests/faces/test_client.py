"""The client of processes outside the application, and the application's own methods."""

import asyncio
from typing import Any

import pytest

from heliograph import Client, Context, Heliograph
from heliograph.config import Settings
from heliograph.errors import Conflict, HeliographError, InvalidInput, NotFound, Rejected
from heliograph.runtime import open_runtime

START = ["workflow:start"]


def desk() -> Heliograph:
    app = Heliograph("desk", reducers={"heard": lambda old, new: [*(old or []), new]})

    @app.agent(activate_on=START, updates="answer")
    async def asker(ctx: Context) -> Any:
        return await ctx.call("approve", needs_token=False)

    @app.agent(on_request=True, updates="heard", priority="high", result_fields=[{"name": "said"}])
    def listener(ctx: Context) -> Any:
        return {"said": ctx.task}

    return app


@pytest.fixture
def environment(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", database_url)
    monkeypatch.delenv("HELIOGRAPH_PROJECT", raising=False)
    return database_url


async def test_messages_reports_and_stops_reach_a_run_from_outside(environment: str) -> None:
    app = desk()
    async with open_runtime(Settings(database_url=environment)) as runtime:
        run_id, _ = await runtime.start(app.workflow, {})
        first = await app.enqueue(run_id, "listener", "hello", turn_id="turn_mine")
        assert (first, await app.enqueue(run_id, "listener", "hello", turn_id="turn_mine")) == (
            "turn_mine",
            "turn_mine",
        )
        second = await app.enqueue(run_id, "listener", {"n": 1})
        async with Client() as client:
            with pytest.raises(Rejected) as other:
                await client.enqueue(run_id, "listener", "another", turn_id="turn_mine")
            assert other.value.code == "id_conflict"
            assert (await app.stop(turn=second)).outcome == "stopped"
            worker = runtime.worker(app.workflow)
            working = asyncio.create_task(worker.run())
            command = await anext(client.commands(["approve"]))
            assert command.token is None
            assert await command.report(result="yes") == "applied"
            signals = [signal async for signal in runtime.follow(run_id)]
            worker.stop()
            await working
            end: Any = signals[-1].payload
            assert end["state"] == {"answer": "yes", "heard": [{"said": "hello"}]}
            with pytest.raises(Rejected) as over:
                await client.enqueue(run_id, "listener", 1)
            assert over.value.code == "run_ended"
        assert (await app.stop(run_id)).ended_as == end["outcome"]
        (turn,) = [t for t in await runtime.reader.turns() if t.turn_id == "turn_mine"]
        assert turn.outcome == "success"


@pytest.mark.proves("L0-35")
async def test_started_run_waits_for_its_workers(environment: str) -> None:
    app = desk()
    async with open_runtime(Settings(database_url=environment)) as runtime:
        client = Client.on(runtime)
        assert await client.start(app, {}, run_id="monday") == "monday"
        assert await client.start(app, {}, run_id="monday") == "monday"
        with pytest.raises(Conflict):
            await client.start(app, {"answer": "no"}, run_id="monday")
        assert [signal.name for signal in await runtime.reader.signals("monday")] == [
            "workflow:start",
            "agent:activated",
        ]


async def test_action_is_accepted_by_an_idle_agent_at_once_or_rejected(environment: str) -> None:
    app = desk()
    async with open_runtime(Settings(database_url=environment)) as runtime:
        run_id, _ = await runtime.start(app.workflow, {})
        turn_id = await app.enqueue(run_id, "listener", 1, ui_action=True)
        turn = await runtime.reader.turn(turn_id)
        assert (turn.status, turn.message_type) == ("dispatched", "ui_action")
        with pytest.raises(Rejected) as busy:
            await app.enqueue(run_id, "listener", 2, ui_action=True)
        assert busy.value.code == "agent_busy"


@pytest.mark.proves("S1")
async def test_client_of_another_project_sees_nothing_of_this_one(environment: str) -> None:
    app = desk()
    async with open_runtime(Settings(database_url=environment)) as runtime:
        run_id, _ = await runtime.start(app.workflow, {})
        [turn] = await runtime.reader.turns()
    async with Client(environment, "another") as client:
        for work, code in (
            (client.stop_turn(turn.turn_id), "unknown_turn"),
            (client.stop_run(run_id), "unknown_run"),
            (client.report(turn.turn_id, "c1", result=1), "unknown_turn"),
            (client.enqueue(run_id, "listener", 1), "unknown_agent"),
        ):
            with pytest.raises(NotFound) as missing:
                await work
            assert missing.value.code == code


INVALID_REQUESTS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    # method, arguments, options, code
    ("enqueue", ("r", "a"), {"name": "workflow:end"}, "reserved_name"),
    ("enqueue", ("r", "a"), {"name": "a b"}, "invalid_signal_name"),
    ("enqueue", ("r", "a"), {"priority": "urgent"}, "invalid_enum"),
    ("enqueue", ("r", "a"), {"max_attempts": 0}, "out_of_range"),
    ("enqueue", ("r", "a"), {"ttl_seconds": 0}, "out_of_range"),
    ("enqueue", ("r", "a"), {"turn_id": "a/b"}, "invalid_id"),
    ("enqueue", ("r", "a"), {"turn_id": "x" * 3000}, "too_long"),
    ("enqueue", ("r", "a", "x" * 70_000), {}, "payload_too_large"),
    ("enqueue", ("r", "a"), {"result_fields": "summary"}, "wrong_type"),
    ("take_commands", ("search",), {}, "wrong_type"),
    ("take_commands", (["search"],), {"limit": 0}, "out_of_range"),
    ("take_commands", (["search"],), {"visible_seconds": -1}, "out_of_range"),
    ("report", ("turn\n1", "c1"), {}, "invalid_id"),
    ("report", ("turn_1", ""), {}, "invalid_id"),
    ("report", ("turn_1", "c1"), {"token": "a\0"}, "nul_character"),
    ("report", ("turn_1", "c1"), {"token": 5}, "wrong_type"),
    ("report", ("turn_1", "c1"), {"actor": "x" * 201}, "too_long"),
    ("stop_turn", ("turn_1",), {"reason": "a\0"}, "nul_character"),
    ("stop_run", ("r",), {"reason": "x" * 251}, "invalid_reason"),
    ("enqueue", ("r", "a"), {"context_box_id": "../x"}, "invalid_id"),
]


async def test_invalid_request_is_rejected_before_the_store_is_called(environment: str) -> None:
    codes = []
    async with Client() as client:
        for method, arguments, options, _ in INVALID_REQUESTS:
            with pytest.raises((InvalidInput, Rejected)) as caught:
                await getattr(client, method)(*arguments, **options)
            codes.append((method, arguments, options, caught.value.code))
    assert codes == INVALID_REQUESTS


async def test_closed_client_is_rejected_with_the_way_to_open_it() -> None:
    with pytest.raises(HeliographError, match="async with Client"):
        await Client().report("turn_1", "c1", result=1)


async def test_stop_requires_either_a_run_or_a_turn() -> None:
    for run_id, turn in ((None, None), ("r", "t")):
        with pytest.raises(InvalidInput, match="exactly one of run_id and turn"):
            await desk().stop(run_id, turn=turn)
    with pytest.raises(NotFound, match="did you mean listener"):
        await desk().enqueue("r", "listner")
