"""Agents that misbehave: each ends its own turn, at once and with a reason, and nothing else."""

import asyncio
import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from heliograph import Context, Heliograph
from heliograph.types import Json
from tests.runtime.kit import START, Rig, names, one


async def failed_with(rig: Rig, function: Callable[[Any], Any], **options: Any) -> Any:
    """The payload of agent:failed. It failed the first time it ran: nothing was retried by way of a lost lease."""
    app = Heliograph("fails")
    app.agent(name="bad", activate_on=START, **options)(function)
    app.agent(name="good", activate_on=START)(lambda _ctx: "fine")
    result = await rig.run(app)
    turns = {turn.agent: turn for turn in await rig.runtime.reader.turns()}
    assert (turns["good"].outcome, turns["bad"].attempts) == ("success", 0)
    assert result.outcome == "failed"
    return one(result.signals, "agent:failed")


def _raises(_ctx: Context) -> None:
    raise ValueError("broken")


async def _raises_async(_ctx: Context) -> None:
    raise ValueError("broken")


def _exits(_ctx: Context) -> None:
    sys.exit("broken")


async def _exits_async(_ctx: Context) -> None:
    sys.exit("broken")


def _stops_iterating(_ctx: Context) -> Any:
    return next(iter(()))


async def _cancels_itself(_ctx: Context) -> None:
    raise asyncio.CancelledError


async def _awaits_what_was_cancelled(_ctx: Context) -> None:
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task


async def _gives_up_waiting(_ctx: Context) -> None:
    raise TimeoutError("the agent's own")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_raises, "ValueError: broken"),
        (_raises_async, "ValueError: broken"),
        (_exits, "SystemExit: broken"),
        (_exits_async, "SystemExit: broken"),
        (_stops_iterating, "StopIteration"),
        (_cancels_itself, "cancelled from within"),
        (_awaits_what_was_cancelled, "cancelled from within"),
        (_gives_up_waiting, "TimeoutError: the agent's own"),
    ],
)
async def test_raising_agent_fails_its_turn_and_no_other(rig: Rig, function: Any, message: str) -> None:
    failed = await failed_with(rig, function)
    assert (failed["outcome"], failed["error"]["code"]) == ("failed", "ACTION_FAILED")
    assert message in failed["error"]["message"]


@pytest.mark.parametrize(
    "text", ["nul \0 inside", "half \ud800 pair", "x" * 100_000, "line\nbreak \x1b[31m"],
    ids=["nul", "surrogate", "long", "control"],
)  # fmt: skip
async def test_any_exception_message_is_stored_in_the_ledger(
    rig: Rig, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    # the log has the original exception, and half of a surrogate pair cannot pass from one test process to another
    caplog.set_level(logging.CRITICAL, "heliograph")

    def fails(_ctx: Context) -> None:
        raise ValueError(text)

    failed = await failed_with(rig, fails)
    assert len(failed["error"]["message"]) <= 8192
    assert failed["error"]["message"].isprintable()


def _inside(inner: Any, _n: int) -> Any:
    return [inner]


@pytest.mark.proves("S11")
@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (object(), "cannot be converted to JSON"),
        ("a\0b", "U+0000"),
        ({"n": float("nan")}, "nan is not a number in JSON"),
        ("\ud800", "surrogate"),
        (functools.reduce(_inside, range(100), None), "are nested inside each other"),
    ],
    ids=["object", "nul", "nan", "surrogate", "deep"],
)
async def test_unstorable_output_fails_the_turn(rig: Rig, output: Any, reason: str) -> None:
    assert reason in (await failed_with(rig, lambda _ctx: output))["error"]["message"]


@pytest.mark.proves("S11")
@pytest.mark.parametrize("updates", ["x", ()])
async def test_output_beyond_the_limit_fails_the_turn_with_the_limit(rig: Rig, updates: Any) -> None:
    failed = await failed_with(rig, lambda _ctx: "x" * 17_000_000, updates=updates)
    assert "the limit is 16777216" in failed["error"]["message"]


async def test_large_output_is_delivered_whole_by_its_card(rig: Rig) -> None:
    app = Heliograph("large")
    app.agent(name="a", activate_on=START, emits=["a:done"])(lambda _ctx: "x" * 3_000_000)
    result = await rig.run(app)
    assert one(result.signals, "a:done")["output"] is None
    (turn,) = await rig.runtime.reader.turns()
    (card,) = await rig.runtime.reader.cards(turn.turn_id)
    assert len(card.content["text"]) == 3_000_000


@pytest.mark.proves("S11")
@pytest.mark.parametrize(
    ("name", "payload", "reason"),
    [
        ("not:declared", None, "declare 'not:declared' in emits first"),
        ("agent:completed", None, "declare 'agent:completed' in emits first"),
        ("x:y", "x" * 70_000, "the limit is 65536"),
        ("x:y", "a\0b", "U+0000"),
        ("x:y", object(), "cannot be converted to JSON"),
    ],
)
async def test_forbidden_signal_fails_the_agent(rig: Rig, name: str, payload: Any, reason: str) -> None:
    failed = await failed_with(rig, lambda ctx: ctx.emit(name, payload), emits=["x:y"])
    assert reason in failed["error"]["message"]


@pytest.mark.parametrize(("fraction", "message"), [(2, ""), (-0.1, ""), (float("nan"), ""), (True, ""), (0.5, "a\0b")])
async def test_invalid_progress_fails_the_agent(rig: Rig, fraction: Any, message: str) -> None:
    await failed_with(rig, lambda ctx: ctx.progress(fraction, message))


async def _sleeps(_ctx: Context) -> None:
    await asyncio.Event().wait()


@pytest.mark.proves("ERR-13")
async def test_async_agent_past_its_timeout_is_cancelled(rig: Rig) -> None:
    failed = await failed_with(rig, _sleeps, timeout_seconds=0.05)
    assert (failed["outcome"], failed["error"]["code"]) == ("timeout", "TIMEOUT")


async def test_plain_agent_past_its_timeout_is_abandoned(rig: Rig) -> None:
    is_over = threading.Event()
    failed = await failed_with(rig, lambda _ctx: is_over.wait(20), timeout_seconds=0.05)
    is_over.set()
    assert failed["outcome"] == "timeout"


async def test_plain_agents_that_never_return_do_not_starve_those_that_do(rig: Rig) -> None:
    is_over = threading.Event()
    app = Heliograph("stuck")
    for n in range(40):
        app.agent(name=f"stuck{n}", activate_on=START, timeout_seconds=0.05)(lambda _ctx: is_over.wait(20))
    app.agent(name="last", activate_on=["agent:failed"], when=lambda _state, signal: signal.payload["agent"] == "stuck39",
              timeout_seconds=5, updates="x")(lambda _ctx: 1)  # fmt: skip
    result = await rig.run(app)
    is_over.set()
    assert result.state == {"x": 1}


def _sync_around(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def wrapper(ctx: Context) -> Any:
        return inner(ctx)

    return wrapper


async def test_plain_function_that_only_wraps_an_async_one_is_awaited(rig: Rig) -> None:
    async def inner(_ctx: Context) -> int:
        return 7

    app = Heliograph("wrapped")
    app.agent(name="a", activate_on=START, updates="n")(_sync_around(inner))
    assert (await rig.run(app)).state == {"n": 7}


def _not_a_number(_old: Any, _new: Any) -> float:
    return float("nan")


def _unhappy(_old: Any, _new: Any) -> Any:
    raise LookupError("reducer")


@pytest.mark.parametrize("reducer", [_not_a_number, _unhappy])
async def test_failing_reducer_fails_the_turn_that_produced_the_output(rig: Rig, reducer: Any) -> None:
    app = Heliograph("reducer", reducers={"n": reducer})
    app.agent(name="a", activate_on=START, updates="n")(lambda _ctx: 1)
    result = await rig.run(app, {"n": 0})
    assert result.outcome == "failed"
    assert result.state == {"n": 0}


async def test_reducer_that_fails_only_against_the_newer_state_still_ends_the_turn_once(rig: Rig) -> None:
    first_is_done = asyncio.Event()

    def only_once(old: Json, new: Json) -> Json:
        if old is not None:
            raise ValueError("there is one already")
        return new

    app = Heliograph("second", reducers={"n": only_once})

    async def agent(ctx: Context) -> int:
        if ctx.agent == "b":
            async with asyncio.timeout(60):
                await first_is_done.wait()
        return 1

    for name in ("a", "b"):
        app.agent(name=name, activate_on=START, updates="n")(agent)

    def watch(signal: Any) -> None:
        if signal.name == "agent:completed":
            first_is_done.set()

    result = await rig.run(app, on_signal=watch)
    assert result.state == {"n": 1}
    assert one(result.signals, "agent:failed")["agent"] == "b"
    signals_of_b = [signal.name for signal in result.signals if signal.agent == "b"]
    assert signals_of_b == ["agent:activated", "ready", "plan_ready", "error", "terminated", "agent:failed"]


class Count(BaseModel):
    n: int = 0


async def test_output_of_the_wrong_type_fails_the_turn(rig: Rig) -> None:
    app = Heliograph("wrong", state=Count)
    app.agent(name="a", activate_on=START, updates="n")(lambda _ctx: "many")
    result = await rig.run(app)
    assert "/n" in one(result.signals, "agent:failed")["error"]["message"]
    assert result.state == Count()


class Renamed(BaseModel):
    m: int


async def test_state_unreadable_by_a_new_version_of_the_application_fails_the_turn_at_once(rig: Rig) -> None:
    old = Heliograph("deployed", state=Count)
    old.agent(name="a", activate_on=START, updates="n")(lambda _ctx: 1)
    new = Heliograph("deployed", state=Renamed)
    new.agent(name="a", activate_on=START, updates="m")(lambda _ctx: 1)
    run_id = await rig.start(old)
    async with rig.serving(new):
        signals = await rig.ended(run_id)
    assert "is not a valid Renamed" in one(signals, "agent:failed")["error"]["message"]
    assert "agent:activated" in names(signals)
