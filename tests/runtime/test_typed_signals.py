"""A signal with a definition in a whole run: emitted, received as a model, and rejected without a trace of its payload."""

import logging
from typing import Any

import pydantic
import pytest

from heliograph import Context, Heliograph, define_signal
from heliograph.signals.model import to_wire
from tests.runtime.kit import START, Rig

CANARY = "canary-51ab"


class Order(pydantic.BaseModel):
    number: int


PLACED = define_signal("order:placed", Order)


async def test_agent_receives_the_payload_as_its_type_and_an_invalid_emit_fails_the_turn_without_its_payload(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    app = Heliograph("shop")

    @app.agent(activate_on=START, emits=[PLACED])
    def clerk(ctx: Context) -> None:
        ctx.emit(PLACED, Order(number=7) if ctx.state["good"] else ctx.state["payload"])

    @app.agent(activate_on=[PLACED], updates="number")
    def packer(ctx: Context) -> int:
        return PLACED.payload_of(ctx.signal).number

    result = await rig.run(app, {"good": True})
    assert result.state["number"] == 7

    app = Heliograph("shop")
    given: dict[str, Any] = {"number": CANARY}

    @app.agent(name="clerk", activate_on=START, emits=["order:placed"])
    def by_name(ctx: Context) -> None:
        ctx.emit("order:placed", given)

    app.agent(name="packer", activate_on=[PLACED])(lambda ctx: None)
    with caplog.at_level(logging.DEBUG):
        result = await rig.run(app)
    [failure] = result.failures
    assert result.outcome == "failed"
    assert "signal order:placed" in failure.message
    assert "/number: int_parsing" in failure.message
    assert CANARY not in str([to_wire(signal) for signal in result.signals]) + caplog.text
