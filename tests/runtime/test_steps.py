"""Steps: effects that happen once despite failures of workers."""

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph, Step
from heliograph.errors import StepInDoubt, StoreUnavailable, ToolFailed, ToolTimedOut
from heliograph.ledger.client import Ledger
from tests.runtime.kit import START, Rig, lost, one, until


@pytest.mark.proves("K13", "SIG-33")
async def test_step_runs_once_and_a_replay_returns_its_recorded_result(rig: Rig) -> None:
    happened: list[str] = []
    app = Heliograph("steps")

    def charge(amount: int) -> Any:
        happened.append("charge")
        return {"charged": amount}

    async def send(text: str) -> str:
        happened.append("send")
        return text.upper()

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        charged = await ctx.step("charge", charge, 5)
        reply = await ctx.call("ship")
        sent = await ctx.step("send", send, f"shipped {reply}")
        await ctx.call("rate")
        return [charged, sent]

    run_id = await rig.start(app)
    async with rig.serving(app):
        for tool in ("ship", "rate"):
            (command,) = await rig.taken(tool)
            await command.report(result=tool)
        signals = await rig.ended(run_id)
    assert happened == ["charge", "send"]
    assert one(signals, "workflow:end")["state"]["seen"] == [{"charged": 5}, "SHIPPED SHIP"]
    payloads_of_steps: list[Any] = [s.payload for s in signals if s.name in ("tool:call", "tool:result")]
    assert [(payload["id"], payload["name"]) for payload in payloads_of_steps][:2] == [
        ("c1", "charge"),
        ("c1", "charge"),
    ]
    assert payloads_of_steps[1]["output"] == {"charged": 5}


@pytest.mark.proves("K14")
@pytest.mark.parametrize(
    ("effect", "again"), [("once", False), ("transactional", True), ("idempotent", True), ("pure", True)]
)
async def test_step_of_a_dead_worker_is_repeated_only_if_its_effect_allows_it(
    rig: Rig, effect: Any, again: bool
) -> None:
    begun, happened = asyncio.Event(), list[int]()
    app = Heliograph("doubt")

    async def pay(*_connection: Any) -> str:
        happened.append(1)
        begun.set()
        if len(happened) == 1:
            await asyncio.Event().wait()
        return "paid"

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        try:
            return await ctx.step(Step("pay", effect=effect), pay)
        except StepInDoubt as doubt:
            return [doubt.code, doubt.step, doubt.call_id, ctx.attempt]

    run_id = await lost(rig, app, begun)
    async with rig.serving(app):
        state = one(await rig.ended(run_id), "workflow:end")["state"]
    assert state == {"seen": "paid" if again else ["IN_DOUBT", "pay", "c1", 2]}
    assert len(happened) == (2 if again else 1)


@pytest.mark.proves("K14")
async def test_unhandled_step_in_doubt_ends_its_turn_in_doubt(rig: Rig) -> None:
    begun = asyncio.Event()
    app = Heliograph("doubt")

    async def pay() -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.agent(activate_on=START)
    async def shop(ctx: Context) -> None:
        await ctx.step("pay", pay)

    run_id = await lost(rig, app, begun)
    async with rig.serving(app):
        assert one(await rig.ended(run_id), "agent:failed")["error"]["code"] == "IN_DOUBT"


class Final(Exception):
    """An exception that marks itself as not recoverable."""

    recoverable = False


@pytest.mark.proves("CTL-17", "ERR-04")
@pytest.mark.parametrize(("kind", "recoverable"), [(ValueError, True), (Final, False)])
async def test_exception_of_a_step_is_recorded_as_a_tool_error_with_its_message_and_whether_it_is_recoverable(
    rig: Rig, kind: type[Exception], recoverable: bool
) -> None:
    app = Heliograph("raises")

    def broken() -> None:
        raise kind("no ink")

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        try:
            await ctx.step("print", broken)
        except ToolFailed as error:
            return error.recoverable

    signals = (await rig.run(app)).signals
    error = {"code": "TOOL_ERROR", "message": f"{kind.__name__}: no ink", "recoverable": recoverable}
    assert one(signals, "tool:result")["error"] == error
    card = (await rig.runtime.reader.cards((await rig.turn_of("shop")).turn_id))[0]
    assert (card.kind, card.content["error"]) == ("tool.result", error)
    assert one(signals, "workflow:end")["state"] == {"seen": recoverable}


@pytest.mark.proves("K13")
async def test_exception_of_a_step_is_recorded_and_raised_again_in_a_replay(rig: Rig) -> None:
    happened: list[int] = []
    app = Heliograph("raises")

    def broken() -> None:
        happened.append(1)
        raise ValueError("no ink")

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        error_fields: list[str] = []
        try:
            await ctx.step("print", broken)
        except ToolFailed as error:
            error_fields = [error.code, error.message, error.call_id]
        await ctx.call("a")
        return error_fields

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        await command.report(result=1)
        state = one(await rig.ended(run_id), "workflow:end")["state"]
    assert state == {"seen": ["TOOL_ERROR", "print (call c1): ValueError: no ink", "c1"]}
    assert happened == [1]


@pytest.mark.parametrize(("effect", "raised"), [("pure", ToolTimedOut), ("once", StepInDoubt)])
async def test_step_past_its_timeout_is_in_doubt_unless_it_is_repeatable(rig: Rig, effect: Any, raised: Any) -> None:
    app = Heliograph("slow")

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        try:
            await ctx.step(Step("wait", effect=effect, timeout=0.02), asyncio.Event().wait)
        except raised as error:
            return error.message

    message = (await rig.run(app)).state["seen"]
    assert "it took longer than 0.02 s" in message


@pytest.mark.parametrize("waiting", ["call", "step", "pause", "delegate"])
async def test_waiting_inside_a_step_is_rejected(rig: Rig, waiting: str) -> None:
    app = Heliograph("nested")

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        async def inner() -> None:
            arguments: dict[str, Any] = {"call": ["a"], "step": ["b", int], "pause": [1], "delegate": ["shop"]}
            await getattr(ctx, waiting)(*arguments[waiting])

        try:
            await ctx.step("outer", inner)
        except ToolFailed as error:
            return error.message

    assert (
        f"agent shop cannot {'call' if waiting == 'delegate' else waiting}: a step runs without interruption"
        in (await rig.run(app)).state["seen"]
    )


async def test_steps_beside_a_call_are_recorded_before_the_turn_suspends(rig: Rig) -> None:
    happened: list[str] = []
    app = Heliograph("beside")

    async def slowly() -> str:
        await asyncio.sleep(0.05)
        happened.append("done")
        return "done"

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        return list(await asyncio.gather(ctx.step("slowly", slowly), ctx.call("a")))

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        assert happened == ["done"]
        await command.report(result=1)
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {"seen": ["done", 1]}
    assert happened == ["done"]


async def test_steps_of_tasks_that_end_out_of_order_run_once(rig: Rig) -> None:
    happened: list[str] = []
    second_is_done = asyncio.Event()
    app = Heliograph("chains")

    async def slowly() -> str:
        await second_is_done.wait()
        happened.append("slowly")
        return "slow"

    def quickly() -> str:
        happened.append("quickly")
        return "quick"

    def after(name: str) -> str:
        happened.append(name)
        second_is_done.set()
        return name

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        async def chain(name: str, function: Any) -> list[Any]:
            return [await ctx.step("work", function), await ctx.step("after", after, name), await ctx.call("a")]

        return list(await asyncio.gather(chain("one", slowly), chain("two", quickly)))

    run_id = await rig.start(app)
    async with rig.serving(app):
        for command in await rig.taken("a", count=2):
            await command.report(result=1)
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {
            "seen": [["slow", "one", 1], ["quick", "two", 1]]
        }
    assert happened == ["quickly", "two", "slowly", "one"]


@pytest.mark.parametrize("rounds", range(6))
async def test_step_started_during_a_suspension_ends_before_the_turn_suspends(rig: Rig, rounds: int) -> None:
    happened: list[str] = []
    app = Heliograph("late")

    async def work(name: str) -> str:
        await asyncio.sleep(0.05)
        happened.append(name)
        return name

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        async def chain() -> list[Any]:
            first = await ctx.step("first", work, "first")
            for _ in range(rounds):  # of the event loop: while the call beside it leaves the function, too
                await asyncio.sleep(0)
            return [first, await ctx.step("second", work, "second")]

        return list(await asyncio.gather(chain(), ctx.call("a")))

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        await command.report(result=1)
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {"seen": [["first", "second"], 1]}
    assert happened == ["first", "second"]


async def test_nested_tasks_replay_their_own_steps(rig: Rig) -> None:
    happened: list[str] = []
    quick_is_done = asyncio.Event()
    app = Heliograph("tasks")

    async def work(name: str) -> str:
        if name == "a1":
            await quick_is_done.wait()
        if name == "b2":
            quick_is_done.set()
        await asyncio.gather(
            asyncio.sleep(0), asyncio.sleep(0)
        )  # a step is one call: tasks that it starts are not numbered
        happened.append(name)
        return name

    @app.agent(activate_on=START, updates="seen")
    async def many(ctx: Context) -> Any:
        async def part(name: str) -> Any:
            return await ctx.step("work", work, name)

        async def chain(name: str) -> list[Any]:
            [first] = await asyncio.gather(part(f"{name}1"))
            return [first, *await asyncio.gather(part(f"{name}2"))]

        chains = await asyncio.gather(chain("a"), chain("b"))
        return [*chains, await asyncio.wait_for(ctx.call("a"), 3600)]

    run_id = await rig.start(app)
    async with rig.serving(app):
        [command] = await rig.taken("a")
        await command.report(result=1)
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {"seen": [["a1", "a2"], ["b1", "b2"], 1]}
    assert happened == ["b1", "b2", "a1", "a2"]


@pytest.mark.more
async def test_step_beside_a_wait_in_a_task_group_runs_once_and_is_not_in_doubt(rig: Rig) -> None:
    """The group cancels it in the moment in which its intent was to be recorded."""
    happened: list[str] = []
    app = Heliograph("group")

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.pause(0.05))
            paid = group.create_task(ctx.step("pay", happened.append, "paid"))
        return paid.done()

    assert (await rig.run(app)).state == {"seen": True}
    assert happened == ["paid"]


@pytest.mark.proves("L0-110", "K13")
async def test_step_of_a_lost_turn_does_not_start(rig: Rig) -> None:
    inside, may_continue, happened = asyncio.Event(), asyncio.Event(), list[int]()
    app = Heliograph("fenced")

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        if ctx.attempt == 1 and not inside.is_set():
            inside.set()
            await may_continue.wait()
        try:
            return await ctx.step("pay", lambda: happened.append(ctx.attempt))
        except Exception:
            happened.append(-1)  # an agent that handles its errors does not handle this one

    run_id = await rig.start(app)
    stalled = rig.serving(app, sweep_seconds=60)
    await stalled.__aenter__()
    await inside.wait()
    await rig.fetch("update heliograph.agent_state_head set lease_until = now() where run_id = $1", run_id)
    await rig.runtime.ledger.sweep("leases")
    may_continue.set()
    async with rig.serving(app):
        await rig.ended(run_id)
    await stalled.__aexit__(None, None, None)
    assert happened == [2]


async def test_long_outage_of_the_store_ends_the_drive_and_not_the_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []
    begin = Ledger.begin_call

    async def away_once(self: Ledger, item: dict[str, Any]) -> Any:
        if not failures:
            failures.append(1)
            raise StoreUnavailable("away")
        return await begin(self, item)

    monkeypatch.setattr(Ledger, "begin_call", away_once)
    app = Heliograph("away")

    @app.agent(activate_on=START, updates="seen")
    async def shop(ctx: Context) -> Any:
        return [await ctx.step("pay", lambda: "paid"), ctx.attempt]

    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=0.3) as worker:
        await until(lambda: bool(failures))
        state = one(await rig.ended(run_id), "workflow:end")["state"]
        await until(lambda: not worker._running)
    assert state == {"seen": ["paid", 2]}
