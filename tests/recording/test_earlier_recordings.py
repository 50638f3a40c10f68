"""Recordings that earlier versions wrote, also on another Python, are replayed by this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph import Context, Heliograph
from heliograph.recording.file import read_recording
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import replay_recording
from heliograph.testing import ServedApplication, Simulation
from tests.recording.simulated import RUN, simulated

# Written before the memory of a run left out counters that are zero, and before skips had the line of their guard.
SHOP = Path(__file__).parent / "earlier" / "shop.jsonl"


def shop(price: int = 42) -> Heliograph:
    """The application with which the file was recorded."""
    app = Heliograph("shop")

    @app.agent(activate_on=["workflow:start"], updates="order", emits=["order:placed"])
    async def clerk(ctx: Context) -> dict[str, int]:
        async def price_of() -> int:
            return 42

        n: Any = await ctx.step("price", price_of)
        ctx.emit("order:placed", {"n": price if n == 42 else n})
        return {"n": n}

    @app.agent(activate_on=["order:placed"], when=lambda state: state["order"]["n"] > 100, updates="big")
    async def big(ctx: Context) -> str:
        return "big"

    @app.agent(activate_on=["order:*"], when=lambda state: state["missing"] > 1)
    async def broken(ctx: Context) -> str:
        return "x"

    @app.agent(activate_on=["order:placed"], updates="note")
    async def noter(ctx: Context) -> str:
        return "noted"

    return app


@pytest.mark.proves("SIG-04")
def test_recording_of_an_earlier_version_is_reproduced() -> None:
    recording = read_recording(str(SHOP))
    result = replay_recording(recording, shop().workflow)
    assert result.is_same, [*result.lines()]
    assert result.reproduced == len(recording.signals) == 23
    first = replay_recording(recording, shop(price=43).workflow).first
    assert first is not None
    assert (first.seq, first.difference) == (12, "order:placed differs: /payload/n was 42, and is 43 now")


@pytest.mark.proves("SIG-04")
def test_recording_of_another_python_is_reproduced() -> None:
    found = read_recording(str(SHOP))
    signals = []
    for signal in found.signals:
        payload: Any = signal.payload
        if signal.name == "ready":
            payload = {**payload, "metadata": {**payload["metadata"], "runtime": "python 4.1"}}
        signals.append(replace(signal, payload=payload))
    result = replay_recording(
        Recording(found.header, signals, found.parts, found.gaps, found.untrusted), shop().workflow
    )
    assert result.is_same, [*result.lines()]
    assert [*result.signals] == signals


@pytest.mark.proves("SIG-04")
def test_command_of_an_earlier_version_that_repeats_its_call_is_reproduced() -> None:
    app = Heliograph("asking")

    @app.agent(activate_on=["workflow:start"])
    async def asker(ctx: Context) -> Any:
        return await ctx.call("search", {"query": "tides"})

    recording = simulated(app, 1, _answered)
    [suspension] = [call for part in recording.parts for call in part.calls() if call[2] == "suspend"]
    [call] = suspension[3]["calls"]
    assert call["command"]["body"] == {"arguments": {"query": "tides"}}
    call["command"]["body"] |= {
        "tool_call_id": "c1", "agent_turn_id": "turn_1", "turn_epoch": 2, "agent_id": "run_one/asker", "run_id": RUN, "step_id": "s1",
        "tool_name": "search", "after_execution": "suspend",
    }  # fmt: skip
    result = replay_recording(recording, app.workflow)
    assert result.is_same, [*result.lines()]


async def _answered(sim: Simulation, served: ServedApplication) -> Recording:
    async for command in served.client.commands(["search"]):
        await command.report(result="found")
        break
    await served.result(RUN)
    return await served.recording(RUN)
