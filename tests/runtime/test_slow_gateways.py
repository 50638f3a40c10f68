"""A gateway that is slow, or whose responses take long to read, delays no calls to others."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from heliograph import Context, Delegation, Heliograph
from heliograph.egress.post import Posted
from heliograph.worker import gateway_sender
from heliograph.worker.gateway_sender import GatewaySender
from tests.reach.hook_server import hooked
from tests.runtime.gateway_kit import SECRET
from tests.runtime.kit import START, Rig, until
from tests.runtime.test_gateway_calls import response
from tests.runtime.test_gateway_sender import Services, answered


async def test_slow_gateway_delays_neither_calls_to_others_nor_those_of_other_projects() -> None:
    async def hang(_seconds: float) -> Posted:
        await asyncio.Event().wait()
        raise AssertionError

    sender, slow, other = GatewaySender(), Services(hang, "slow", rows=200), Services(hang, "other")
    for services in (slow, slow, other):
        await sender.send(services)  # type: ignore[arg-type]
    assert (len(slow.world.tasks), len(slow.rows), len(other.world.tasks)) == (64, 136, 1)
    slow.rows.append({**slow.rows[-1], "turn_id": "turn_b", "pool": "b"})
    assert await sender.send(slow)  # type: ignore[arg-type]
    assert (len(slow.world.tasks), len(slow.rows)) == (65, 136)
    slow.world.tasks[0].cancel()
    await asyncio.wait(slow.world.tasks[:1])
    assert await sender.send(slow)  # type: ignore[arg-type]
    assert (len(slow.world.tasks), len(slow.rows)) == (66, 135)
    sender.stop()
    ends = await asyncio.gather(*slow.world.tasks, *other.world.tasks, return_exceptions=True)
    assert {type(end) for end in ends} == {asyncio.CancelledError}


@pytest.mark.proves("RTE-07")
async def test_gateway_that_hangs_does_not_delay_calls_to_another_gateway(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_sender, "_AT_ONCE", 3)
    async with hooked(None) as slow, hooked(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}") as quick:
        rig.runtime.settings = replace(
            rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=f"{slow.origin} {quick.origin}"
        )
        routes = [{"match": {"target_agent": name}, "destination": {"gateway": hook.url}}
                  for name, hook in (("slow", slow), ("quick", quick))]  # fmt: skip
        app = Heliograph("near", routes={"kind": "MessageRouting", "routes": routes})

        @app.agent(activate_on=START)
        async def buyer(ctx: Context) -> Any:
            return await ctx.delegates([*[Delegation("slow", {"n": n}) for n in range(9)], Delegation("quick", {})])

        run_id = await rig.start(app)
        async with rig.serving(app):
            await slow.until(lambda: len(slow.requests) >= 3)
            await quick.until(lambda: len(quick.requests) >= 1)
            turn = await rig.turn_of("buyer")

            async def is_answered() -> bool:
                return "resolved" in {wait.state for wait in await rig.runtime.reader.waits(turn.turn_id)}

            await until(is_answered)
            assert len(slow.requests) == 3
            slow.answers = [
                None,
                None,
                None,
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            ]  # it confirms the halts
            await rig.client.stop_run(run_id, now=True)
            await rig.ended(run_id)
            await until(rig.is_published)


@pytest.mark.proves("RTE-07")
async def test_large_responses_of_a_gateway_delay_no_responses_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def post(_seconds: float) -> Posted:
        return answered(200, json.dumps(response("c", result="x" * 70_000)).encode())

    async def hang(*_: Any) -> Any:
        await asyncio.Event().wait()

    slow, other = Services(post, "slow", rows=2), Services(post, "other")
    other.rows[0]["body"] = {**other.rows[0]["body"], "gateway": "https://other.example/"}
    monkeypatch.setattr(slow.world, "run_sync", hang)
    sender = GatewaySender()
    await sender.send(slow)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await sender.send(other)  # type: ignore[arg-type]
    await asyncio.wait_for(asyncio.gather(*other.world.tasks), 20)
    assert (len(slow.reports), len(other.reports)) == (0, 1)
    sender.stop()
