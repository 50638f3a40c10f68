"""A worker that commits several endings of a run in a row keeps which signals a join has collected."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph
from tests.recording.simulated import record_simulated


def joining() -> Heliograph:
    app = Heliograph("joins")

    async def quick(ctx: Context) -> str:
        await ctx.sleep(0.01)
        return "done"

    async def late(ctx: Context) -> str:
        await ctx.sleep(1.0)
        return "done"

    async def join(ctx: Context) -> None:
        """It waits for the first of the quick agents and for the late one."""

    for name in ("a", "b", "c"):
        app.agent(name=name, activate_on=["workflow:start"], updates=name)(quick)
    app.agent(name="late", activate_on=["workflow:start"], updates="late")(late)
    app.agent(name="join", activate_when_all=["state:a:changed", "state:late:changed"])(join)
    return app


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_join_names_both_signals_though_other_endings_of_the_same_worker_follow_the_first(seed: int) -> None:
    found = record_simulated(joining(), seed, record=False, workers=1)
    payloads: list[Any] = [s.payload for s in found.signals if s.name == "agent:activated" and s.agent == "join"]
    [payload] = payloads
    assert [each["pattern"] for each in payload["joined"]] == ["state:a:changed", "state:late:changed"]
