"""The function of an agent with a retry policy: which failures repeat it, how often, and with which recorded calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph, RetryPolicy, Signal, tool
from heliograph.errors import InvalidInput
from heliograph.recording.replay_recording import replay_recording
from tests.recording.simulated import record_simulated
from tests.runtime.kit import START, Rig, lost, one

NOW: Any = {"initial_delay_seconds": 0.001, "jitter": False}
CLOSED = RetryPolicy(3, "constant", **NOW, retryable_errors=(LookupError, "SOLD_OUT"))


class ShopClosed(LookupError):
    pass


class Shop:
    """An agent that orders a lamp in a step, and then fails with one of its failures after another."""

    def __init__(self, *failures: Exception):
        self.failures = failures
        self.runs = self.orders = 0

    def app(self, **options: Any) -> Heliograph:
        app = Heliograph("shop")

        def order() -> int:
            self.orders += 1
            return self.orders

        @app.agent(activate_on=START, updates="bought", **options)
        async def buyer(ctx: Context) -> list[int]:
            self.runs += 1
            number = await ctx.step("order", order)
            if ctx.deferrals < len(self.failures):
                raise self.failures[ctx.deferrals]
            return [number, ctx.deferrals]

        return app


async def ran(rig: Rig, app: Heliograph) -> list[Signal]:
    run_id = await rig.start(app)
    async with rig.serving(app):
        return await rig.ended(run_id)


@pytest.mark.proves("P-42")
async def test_function_is_repeated_after_the_exceptions_and_codes_of_its_policy_with_its_recorded_steps(
    rig: Rig,
) -> None:
    shop = Shop(ShopClosed("on Sunday"), ShopClosed("on Monday"))
    signals = await ran(rig, shop.app(retry=CLOSED))
    assert one(signals, "workflow:end")["state"] == {"bought": [1, 2]}
    assert (shop.runs, shop.orders) == (3, 1)
    turn = await rig.turn_of("buyer")
    rows = await rig.fetch(
        "select retry_count, defer_reason from heliograph.inbox_overview where turn_id = $1", turn.turn_id
    )
    assert [tuple(row) for row in rows] == [(2, "ShopClosed: on Monday")]


@pytest.mark.proves("P-42")
async def test_function_fails_with_its_last_error_and_the_number_of_its_repetitions(rig: Rig) -> None:
    shop = Shop(*[ShopClosed(day) for day in ("Monday", "Tuesday", "Wednesday")])
    signals = await ran(rig, shop.app(retry=CLOSED))
    failed = one(signals, "agent:failed")
    assert (shop.runs, failed["outcome"], failed["error"]["message"]) == (3, "failed", "ShopClosed: Wednesday")
    assert failed["error"]["details"] == {"retry_count": 2, "max_retries": 2}


@pytest.mark.proves("P-42")
@pytest.mark.parametrize(
    ("options", "failure", "runs"),
    [
        ({"retry": CLOSED}, ValueError("no lamp"), 1),
        ({"retry": RetryPolicy(2, **NOW)}, ConnectionError("reset"), 2),
        ({"retry": RetryPolicy(2, **NOW)}, ValueError("no lamp"), 1),
        ({"retry": RetryPolicy(2, **NOW, retryable_errors="recoverable")}, ValueError("no lamp"), 2),
        ({"retry": RetryPolicy(2, **NOW, retryable_errors="any"), "effect": "once"}, ValueError("no lamp"), 2),
        ({}, ConnectionError("reset"), 1),
    ],
)
def test_only_failures_of_the_policy_repeat_a_function(options: dict[str, Any], failure: Exception, runs: int) -> None:
    shop = Shop(failure)
    recording = record_simulated(shop.app(**options), 1)
    assert (shop.runs, recording.header.outcome) == (runs, "success" if runs == 2 else "failed")
    assert replay_recording(recording, Shop(failure).app(**options).workflow).is_same


def test_failed_call_is_recorded_and_so_repeats_no_function() -> None:
    runs = []
    app = Heliograph("careless")

    def fail() -> None:
        raise ConnectionError("reset")

    @app.agent(activate_on=START, retry=RetryPolicy(3, **NOW, retryable_errors="any"))
    async def careless(ctx: Context) -> None:
        runs.append(ctx.deferrals)
        await ctx.step("fail", fail)

    assert record_simulated(app, 1).header.outcome == "failed"
    assert runs == [0]


@pytest.mark.parametrize(("effect", "runs"), [("idempotent", 2), ("once", 1)])
def test_function_that_ran_too_long_is_repeated_unless_it_may_have_had_its_effect(effect: Any, runs: int) -> None:
    begun: list[int] = []
    app = Heliograph("slow")

    @app.agent(
        activate_on=START, effect=effect, timeout_seconds=1, retry=RetryPolicy(2, **NOW, retryable_errors=("TIMEOUT",))
    )
    async def slow(ctx: Context) -> None:
        begun.append(ctx.deferrals)
        if not ctx.deferrals:
            await asyncio.Event().wait()

    record_simulated(app, 1)
    assert len(begun) == runs


async def test_killed_worker_does_not_shorten_the_repetitions(rig: Rig) -> None:
    begun = asyncio.Event()
    shop = Shop(ShopClosed("on Sunday"), ShopClosed("on Monday"))
    dying = Heliograph("shop")

    @dying.agent(activate_on=START, updates="bought", retry=CLOSED)
    async def buyer(ctx: Context) -> Any:
        begun.set()
        await asyncio.Event().wait()

    run_id = await lost(rig, dying, begun)
    async with rig.serving(shop.app(retry=CLOSED)):
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"bought": [1, 2]}
    assert shop.runs == 3


def test_classes_of_exceptions_are_rejected_where_only_a_recorded_code_decides() -> None:
    with pytest.raises(InvalidInput, match="a call is repeated by the code of its recorded error") as found:
        tool(effect="idempotent", retry=CLOSED)(len)
    assert found.value.path == "/tools/len/retry/retryable_errors"
    app = Heliograph("asks")
    with pytest.raises(InvalidInput) as of_model:
        app.prompt_agent("writer", "Write.", activate_on=START, retry=CLOSED)
    assert of_model.value.path == "/agents/writer/retry/retryable_errors"
