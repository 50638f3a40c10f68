"""Steps with other arguments than recorded: replays and the check of open turns name them, and no argument is in the log."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from heliograph import Context, Heliograph, Step
from heliograph.errors import ToolFailed
from heliograph.policy.retry import RetryPolicy
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import replay_recording
from heliograph.redaction import keep_out
from heliograph.turn.input_hash import input_hash
from tests.recording.simulated import record_simulated
from tests.upgrade.flights import checked, in_flight


def shop(
    amount: Any = 40, *, given: Callable[[], Any] = lambda: None, memory: str = "paid", waits: bool = False
) -> Heliograph:
    app = Heliograph("shop")

    @app.agent(activate_on=["workflow:start"], updates="paid")
    async def clerk(ctx: Context) -> str:
        await ctx.step("look", lambda: "open")
        await ctx.step("stamp", lambda _: "stamped", given())
        await ctx.step("pay", lambda name, amount: f"paid {bool(amount)}", "ann", amount=amount)
        await ctx.remember(memory, kind="bill")
        try:
            await ctx.step(Step("fails", effect="idempotent", retry=_TWICE), _fail, ["once"])
        except ToolFailed:
            if waits:
                await ctx.pause(100.0)
        return "done"

    return app


_TWICE = RetryPolicy(max_attempts=2, initial_delay_seconds=0.1, jitter=False)


def _fail(attempts: list[str]) -> None:
    attempts.append("again")  # a replay does not run it, so only the first attempt is compared
    raise ConnectionError("lost")


@pytest.fixture(scope="module", params=[True, False], ids=["recorded", "ledger"])
def recording(request: pytest.FixtureRequest) -> Recording:
    return record_simulated(shop(), 1, record=request.param, in_order=True)


@pytest.mark.proves("P-25")
@pytest.mark.parametrize(
    ("change", "call"), [({"amount": 41}, "step pay (c3)"), ({"memory": "due"}, "step remember (c4)")]
)
def test_step_with_other_arguments_is_the_first_divergence(
    recording: Recording, change: dict[str, Any], call: str
) -> None:
    first = replay_recording(recording, shop(**change).workflow).first
    assert first is not None
    [signal] = [s for s in recording.signals if s.name == "tool:call" and _id(s.payload) in call]
    assert (first.kind, first.agent, first.seq) == ("arguments", "clerk", signal.seq)
    assert first.message == f"{call} would receive other arguments (the log has a hash of them)"
    assert "/payload/input_hash was " in first.line()


def _id(payload: Any) -> str:
    return f"({payload['id']})"


@pytest.mark.proves("P-25")
@pytest.mark.parametrize(("change", "call"), [({"amount": 41}, "c3"), ({"memory": "due"}, "c4")])
def test_step_of_an_open_turn_with_other_arguments_is_named(change: dict[str, Any], call: str) -> None:
    turns = in_flight(shop(waits=True), 1, 2.0)
    assert checked(shop(waits=True), turns) == []
    [found] = checked(shop(waits=True, **change), turns)
    assert (found.kind, found.message) == ("arguments", "its arguments differ (the log has a hash of them)")
    assert found.call is not None
    assert found.call.call_id == call
    assert checked(shop(object(), waits=True), turns) == [], "arguments without a canonical form are not compared"
    assert checked(shop(waits=True, given=uuid.uuid4), in_flight(shop(waits=True, given=uuid.uuid4), 1, 2.0)) == []


def test_same_arguments_and_arguments_without_a_canonical_form_are_no_divergence(recording: Recording) -> None:
    for app in (shop(), shop(object())):
        result = replay_recording(recording, app.workflow)
        assert result.is_same, [*result.lines()]


@pytest.mark.parametrize("given", [uuid.uuid4, time.time_ns])
def test_arguments_of_chance_and_of_the_clock_hide_no_other_divergence(given: Callable[[], Any]) -> None:
    recorded = record_simulated(shop(given=given), 1)
    assert replay_recording(recorded, shop(given=given).workflow).is_same
    first = replay_recording(recorded, shop(41, given=given).workflow).first
    assert first is not None
    assert "step pay (c3)" in first.message


def test_arguments_of_the_clock_are_a_gap_of_a_run_that_nobody_recorded() -> None:
    result = replay_recording(
        record_simulated(shop(given=time.time_ns), 1, record=False), shop(given=time.time_ns).workflow
    )
    assert result.is_same
    assert "step stamp (c2) would receive other arguments" in result.gaps[-1].reason
    assert "the code reads time.time_ns at " in result.gaps[-1].reason


def test_step_that_changes_the_argument_of_a_later_one_is_named_because_no_resumed_turn_would_see_the_change() -> None:
    app = Heliograph("filling")

    @app.agent(activate_on=["workflow:start"])
    async def filler(ctx: Context) -> None:
        items: list[str] = []
        await ctx.step("fill", items.append, "a")
        await ctx.step("store", len, items)

    first = replay_recording(record_simulated(app, 1), app.workflow).first
    assert first is not None
    assert (first.kind, first.message.partition(" would")[0]) == ("arguments", "step store (c2)")


class Bill(BaseModel):
    amount: Decimal
    key: SecretStr = SecretStr("never in a hash")


@dataclass
class Line:
    name: str
    bill: Bill


def test_hash_has_equal_values_of_all_types_with_a_canonical_form() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    values = (Line("a", Bill(amount=Decimal("1.50"))), at, {"b": 1, "a": {3, 2, 1}}, b"bytes", None)
    again = (Line("a", Bill(amount=Decimal("1.50"))), at, {"a": {2, 3, 1}, "b": 1}, b"bytes", None)
    assert input_hash(values) == input_hash(again)
    assert input_hash(values) != input_hash((*values[:-1], 0))
    circle: list[Any] = []
    circle.append(circle)
    for value in (object(), lambda: 1, circle, "x" * 65_536):
        assert input_hash((value,)) is None


def test_known_secret_is_not_in_the_hash() -> None:
    before = input_hash(("one secret of the shop",))
    keep_out("one secret of the shop", "another secret of the shop")
    assert input_hash(("one secret of the shop",)) == input_hash(("another secret of the shop",)) != before
