"""The simulations of the testing kit, as the tests of an application use them."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from heliograph import Context, Heliograph, ToolContext, tool
from heliograph.errors import Denied, InvalidInput, NotFound, SetupError
from heliograph.models import FunctionHarness, ModelRequest, ScriptedModel, ToolCall
from heliograph.testing import (
    ServedApplication,
    Simulation,
    contains,
    crash_at,
    crash_at_every_await,
    eventually,
    simulate,
    virtual_time,
)
from heliograph.testing.simulation.scenario_run import CALM, Case, run_scenario
from heliograph.testing.simulation.words_memory import WordsMemory

START = ["workflow:start"]
DAY = 86_400.0


@tool(effect="idempotent", approval=lambda call: call["amount"] > 100, approval_seconds=DAY)
def refund(order: str, amount: int) -> str:
    """Pay a customer back."""
    raise NotImplementedError


shop = Heliograph("shop")
shop.prompt_agent("clerk", "Help.", model="openai-chat:gpt-5", tools=[refund], activate_on=START, updates="answer", emits=["answered"],
                  ttl_seconds=3 * DAY)  # fmt: skip


@shop.agent(activate_on=["answered"], updates="asked", ttl_seconds=3 * DAY)
async def survey(ctx: Context) -> int:
    await ctx.pause(DAY)
    await asyncio.gather(asyncio.sleep(1), asyncio.sleep(2))
    return random.randrange(1_000_000)


def serve(sim: Simulation, amount: int = 40, *, is_careful: bool = True) -> ServedApplication:
    def pay(order: str, amount: int, ctx: ToolContext) -> str:
        sim.effect(f"pay {order}", key=ctx.idempotency_key if is_careful else None)
        return f"paid {amount}"

    script = ScriptedModel([ToolCall("1", "refund", {"order": "A", "amount": amount}), "done"], per_turn=True)
    return sim.serve(shop, models=script, tools={"refund": pay})


async def refunded(sim: Simulation) -> Any:
    result = await serve(sim).run({})
    assert result.outcome == "success"
    return {"answer": result.state["answer"]}


async def paid_twice(sim: Simulation) -> Any:
    return (await serve(sim, is_careful=False).run({})).state["answer"]


# ── Virtual time ──


@virtual_time
async def test_approval_after_hours_and_a_pause_of_a_day_take_no_time(sim: Simulation) -> None:
    started = sim.now()
    app = serve(sim, 500)
    run_id = await app.start({})
    task = await app.question(run_id)
    await sim.sleep(3600)
    waiting = asyncio.create_task(app.client.result(run_id))
    await app.client.grant(task.turn_id, task.call_id, by="ada")
    result = await app.result(run_id)
    assert (await waiting).state == result.state
    assert result.outcome == "success"
    assert timedelta(hours=25) < sim.now() - started < timedelta(hours=25, seconds=10)
    assert sim.effects == {"pay A": 1}
    assert await app.signals(run_id) == result.signals


@virtual_time
async def test_agents_may_wake_by_activations_and_skips_of_others(sim: Simulation) -> None:
    app = Heliograph("chain")

    @app.agent(activate_on=START)
    async def first(ctx: Context) -> None: ...

    @app.agent(activate_on=["agent:*"], when=lambda state, signal: signal.agent == "first")
    async def second(ctx: Context) -> None: ...

    @app.agent(activate_on=["agent:skipped"], when=lambda state: False)
    async def third(ctx: Context) -> None: ...

    result = await sim.serve(app).run({})
    assert [s.agent for s in result.signals if s.name == "agent:activated"] == ["first", "second", "second"]


@virtual_time
async def test_approval_without_a_decision_times_out_after_a_day(sim: Simulation) -> None:
    result = await serve(sim, 500).run({})
    assert timedelta(days=2) < sim.now() - result.signals[0].timestamp
    assert sim.effects == {}
    contains(result, "answered")


@virtual_time
async def test_approvals_and_external_tools_take_part(sim: Simulation) -> None:
    app = Heliograph("outside")

    @app.agent(activate_on=START, updates="weather")
    async def asks(ctx: Context) -> Any:
        return await ctx.call("weather", {"city": "Oslo"}, timeout=600.0)

    @app.agent(on_request=True, updates="note")
    async def notes(ctx: Context) -> Any:
        await ctx.remember("the customer likes tea")
        return [hit.text for hit in await ctx.recall("tea")]

    served = sim.serve(app)

    async def report() -> None:
        async for command in served.client.commands(["weather"]):
            await asyncio.sleep(300)
            await command.report(result=f"snow in {command.arguments['city']}")

    sim.spawn("the weather service", report())
    run_id = await served.start({})
    await served.client.enqueue(run_id, "notes", {})
    result = await served.result(run_id)
    assert result.state == {"weather": "snow in Oslo", "note": ["the customer likes tea"]}
    assert len([turn async for turn in _turns(served)]) == 2


async def _turns(served: ServedApplication) -> Any:
    for turn in await served._runtime.reader.turns():
        yield turn


@virtual_time
async def test_run_is_stopped_from_outside(sim: Simulation) -> None:
    app = serve(sim, 500)
    run_id = await app.start({})
    await eventually(app, run_id, "tool:call")
    await app.client.stop_run(run_id)
    assert (await app.result(run_id)).outcome == "canceled"


@virtual_time
async def test_denial_reaches_the_function_of_an_agent(sim: Simulation) -> None:
    app = Heliograph("asking")

    @app.agent(activate_on=START, updates="verdict")
    async def asks(ctx: Context) -> str:
        try:
            await ctx.approve("May I?", timeout=DAY)
        except Denied as denied:
            return str(denied)
        return "yes"

    served = sim.serve(app)
    run_id = await served.start({})
    task = await served.question(run_id)
    await served.client.deny(task.turn_id, task.call_id, reason="not today")
    assert "not today" in (await served.result(run_id)).state["verdict"]


@virtual_time
async def test_reader_of_a_simulation_reads_as_that_of_a_database(sim: Simulation) -> None:
    app = serve(sim, 500)
    run_id = await app.start({})
    task = await app.question(run_id)
    reader = app._runtime.reader
    [turn] = await reader.turns(run_id=run_id, status="suspended")
    assert (turn.agent, turn.turn_id, turn.phase, turn.waiting_tool_count) == ("clerk", task.turn_id, "act", 1)
    assert (await reader.turn(task.turn_id)) == turn
    [wait] = await reader.open_calls()
    assert (wait.kind, wait.call_id) == ("human", task.call_id)
    assert wait in await reader.waits(turn.turn_id)
    assert [card.kind for card in await reader.cards(turn.turn_id)][-1] == "tool.call"
    assert (await reader.runs(9), (await reader.run(run_id)).status) == ([await reader.run(run_id)], "running")
    for unknown in (reader.run("no"), reader.turn("no"), reader.wait(turn.turn_id, "no")):
        with pytest.raises(NotFound, match=r"no (run|turn|call) no in this simulation"):
            await unknown
    with pytest.raises(SetupError, match="a simulation cannot read box_overview"):
        await reader.box("box_1")


def test_test_that_waits_for_nothing_receives_the_open_waits() -> None:
    @virtual_time
    async def waits(sim: Simulation) -> None:
        app = Heliograph("stuck")

        @app.agent(activate_on=START, ttl_seconds=DAY)
        async def asks(ctx: Context) -> None:
            await ctx.call("nobody", {}, timeout=60.0)

        await sim.serve(app).start({})
        await asyncio.get_running_loop().create_future()

    with pytest.raises(AssertionError, match="nothing can happen any more, and the test still waits"):
        waits()


@virtual_time
async def test_plain_function_is_a_model_without_a_thread(sim: Simulation) -> None:
    threads = []

    def rule(_request: ModelRequest) -> str:
        threads.append(threading.current_thread())
        return "by rule"

    result = await sim.serve(shop, models=FunctionHarness(rule)).run({})
    assert (result.state["answer"], threads) == ("by rule", [threading.current_thread()])


# ── Crashes ──


@pytest.mark.more
def test_careful_tool_pays_once_whichever_await_its_worker_dies_at() -> None:
    report = crash_at_every_await(refunded)
    assert report.crashes == report.awaits > 25
    assert sum(report.places.values()) == report.crashes
    assert {"before the commit of finish", "after the commit of finish", "after the commit of record_call"} <= set(
        report.places
    )
    assert any(place.startswith("test_simulated_applications.py:") for place in report.places)


@pytest.mark.more
def test_careless_tool_is_found_with_the_await_at_which_it_pays_twice() -> None:
    with pytest.raises(AssertionError, match=r"the effect 'pay A' happened twice instead of once") as found:
        crash_at_every_await(paid_twice)
    text = str(found.value)
    assert "\n  the await is before the commit of record_call\n  to repeat it: crash_at(paid_twice, " in text
    number = int(text.rpartition(", ")[2].rstrip(")"))
    with pytest.raises(AssertionError, match=f"killed at await {number} of"):
        crash_at(paid_twice, number)
    assert crash_at(paid_twice, number - 1) == "done"


@pytest.mark.proves("P-05")
def test_result_that_depends_on_the_attempt_is_found() -> None:
    async def counted(sim: Simulation) -> int:
        app = Heliograph("counted")

        @app.agent(activate_on=START, updates="n")
        async def counts(ctx: Context) -> int:
            await asyncio.sleep(1)
            return ctx.attempt

        return int((await sim.serve(app).run({})).state["n"])

    with pytest.raises(AssertionError, match=r"killed at await 1 of .*, the result differs: 2 instead of 1"):
        crash_at_every_await(counted)


# ── Seeds ──


@pytest.mark.more
@simulate(seeds=20)
async def test_refund_is_paid_once_under_faults(sim: Simulation) -> None:
    await refunded(sim)


@pytest.mark.proves("P-04")
def test_same_seed_gives_the_same_trace_and_value() -> None:
    async def scenario(sim: Simulation) -> Any:
        return (await serve(sim).run({})).state

    runs = [run_scenario(scenario, Case(seed), workers=2, dies=True) for seed in (3, 3, 4)]
    assert [each.error for each in runs] == [None, None, None]
    first, again, other = runs
    assert (first.trace_hash, first.value, first.faults) == (again.trace_hash, again.value, again.faults)
    assert first.trace_hash != other.trace_hash
    assert run_scenario(scenario, CALM).faults == []


def failing(scenario: Callable[[Simulation], Awaitable[Any]]) -> AssertionError:
    with pytest.raises(AssertionError) as failed:
        simulate(seeds=40)(scenario)()
    return failed.value


@pytest.mark.more
def test_failure_names_the_seed_the_smallest_schedule_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = failing(paid_twice)
    assert str(failure) == "the effect 'pay A' happened 2 times, and 1 time without faults"
    [note] = failure.__notes__
    assert re.search(r"schedule smaller: [1-4] faults, 0 tasks out of order", note)
    assert "the faults, each at its place:" in note
    assert "test_simulated_applications.py::test_failure_names_the_seed" in note
    case = note.rpartition("HELIOGRAPH_CASE='")[2].partition("'")[0]
    monkeypatch.setenv("HELIOGRAPH_CASE", case)
    assert str(failing(paid_twice)) == str(failure)
    monkeypatch.setenv("HELIOGRAPH_CASE", "{")
    with pytest.raises(InvalidInput, match="HELIOGRAPH_CASE must be a case"):
        simulate(seeds=1)(paid_twice)()


def test_message_of_a_test_that_fails_without_faults_names_no_fault() -> None:
    async def wrong(sim: Simulation) -> None:
        assert (await serve(sim).run({})).outcome == "failed"

    assert failing(wrong).__notes__ == ["the test fails without any fault"]


async def test_memory_of_a_simulation_finds_shared_words() -> None:
    memory = WordsMemory()
    await memory.store("p", "1", None, "tea and milk", {})
    await memory.store("p", "2", "ann", "Tea!", {"trust": "untrusted", "by": "x"})
    found = await memory.search("p", "bob", "milk tea", 9)
    assert [(hit.memory_id, hit.rank, hit.trust) for hit in found] == [("1", 2.0, "trusted")]
    [mine] = await memory.search("p", "ann", "TEA", 1)
    assert mine.memory_id == "1"
    assert (await memory.search("p", None, "tea", 9))[1].metadata == {"by": "x"}


def test_function_in_an_executor_is_a_step_that_dies_with_its_worker() -> None:
    async def scenario(sim: Simulation) -> int:
        app = Heliograph("threads")

        @app.agent(activate_on=["workflow:start"], updates="n")
        async def one(ctx: Context) -> int:
            with pytest.raises(ValueError, match="no number"):
                await asyncio.to_thread(int, "no number")
            sim.effect("called", key=ctx.turn_id)
            return await asyncio.to_thread(int, "7") + threading.active_count()

        found: int = (await sim.serve(app).run()).state["n"]
        return found

    before = threading.active_count()
    report = crash_at_every_await(scenario)
    assert sum("test_simulated_applications.py" in place for place in report.places) == 2, (
        "the worker died at both calls"
    )
    assert virtual_time(scenario)() == 7 + before
