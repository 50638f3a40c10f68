"""Workers of two pools: each claims the turns of its pools, and a route chooses the pool of a call when it is written."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import DelegationFailed
from tests.runtime.kit import SOON_SECONDS, START, Rig, one, until


def routes(queue: str, **more: Any) -> dict[str, Any]:
    return {"kind": "MessageRouting", "routes": [
        {"match": {"target_agent": "clerk"}, "destination": {"queue": queue, **more}},
        {"match": {"tool_name": "ext_*"}, "destination": {"queue": queue, "priority": "high"}},
    ]}  # fmt: skip


def press(table: Any = None, **options: Any) -> Heliograph:
    """An editor in the default pool delegates to a painter, whose agent names pool gpu, and to a clerk, which names none."""
    app = Heliograph("press", routes=table)

    @app.agent(activate_on=START, updates="seen")
    async def editor(ctx: Context) -> Any:
        return [await ctx.delegate("painter"), await ctx.delegate("clerk", priority="low")]

    @app.agent(on_request=True, pool="gpu")
    async def painter(ctx: Context) -> str:
        return "painted"

    @app.agent(on_request=True)
    async def clerk(ctx: Context) -> str:
        return "filed"

    return app


async def owner_of(rig: Rig, agent: str) -> str:
    turn = await rig.turn_of(agent, "done")
    return (await rig.runtime.reader.leases(turn.turn_id))[-1].owner


@pytest.mark.proves("RTE-05")
async def test_turns_run_on_workers_of_the_pool_of_their_agent(rig: Rig) -> None:
    app = press()
    async with rig.serving(app, label="plain"), rig.serving(app, label="gpu", pools=["gpu"]):
        run_id = await rig.start(app)
        assert one(await rig.ended(run_id), "workflow:end")["state"]["seen"] == ["painted", "filed"]
        pools = {row.label: row.pools for row in await rig.runtime.reader.workers()}
    assert {"plain": ["default"], "gpu": ["gpu"]}.items() <= pools.items()
    owners = [(await owner_of(rig, agent)).partition(":")[0] for agent in ("editor", "painter", "clerk")]
    assert owners == ["plain", "gpu", "plain"]
    await rig.check()


@pytest.mark.proves("RTE-05", "RTE-06", "G-25")
@pytest.mark.parametrize(
    ("destination", "priority"),
    [({"priority": "critical"}, "low"), ({"priority": "critical", "force": True}, "critical")],
)
async def test_route_chooses_pool_and_priority_of_a_delegation(rig: Rig, destination: Any, priority: str) -> None:
    app = press(routes("court", **destination))
    async with (
        rig.serving(app, label="plain", pools=["default", "gpu"]),
        rig.serving(app, label="court", pools=["court"]),
    ):
        run_id = await rig.start(app)
        log = await rig.ended(run_id)
    assert (await owner_of(rig, "clerk")).startswith("court:")
    payloads: list[Any] = [signal.payload for signal in log if signal.name == "delegation"]
    assert [each["priority"] for each in payloads if each["target_agent"] == "clerk"] == [priority]
    await rig.check()


@pytest.mark.proves("RTE-05")
async def test_changed_table_reroutes_no_turn_that_is_under_way(rig: Rig) -> None:
    before, after = press(routes("old")), press(routes("new"))
    async with rig.serving(before, pools=["default", "gpu"]):
        run_id = await rig.start(before)
        clerk = await rig.turn_of("clerk", "dispatched")
    assert clerk.pool == "old"
    async with rig.serving(after, label="new", pools=["default", "gpu", "new"]):
        late = await rig.start(after)
        await rig.ended(late)  # and the turn of the old table is still not claimed
        assert (await rig.runtime.reader.turn(clerk.turn_id)).status == "dispatched"
        async with rig.serving(after, label="old", pools=["old"]):
            await rig.ended(run_id)
    assert [lease.owner.partition(":")[0] for lease in await rig.runtime.reader.leases(clerk.turn_id)] == ["old"]


@pytest.mark.proves("RTE-05", "RTE-06")
async def test_routed_tool_call_is_taken_from_its_pool(rig: Rig) -> None:
    app = Heliograph("asking", routes=routes("out"))

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        return await ctx.call("ext_mail", {"to": "you"}, timeout=None)

    async with rig.serving(app):
        run_id = await rig.start(app)
        await rig.turn_of("asker", "suspended")
        assert await rig.client.take_commands(["ext_mail"]) == []
        [row] = await rig.runtime.ledger.take_commands([{"tool": "ext_mail", "pool": "out"}], 1, 0.0)
        assert (row["body"]["queue"], row["body"]["priority"]) == ("out", "high")
        [command] = await rig.client.take_commands(["ext_mail"], pool="out")
        await command.report(result="sent")
        assert one(await rig.ended(run_id), "workflow:end")["state"]["seen"] == "sent"


@pytest.mark.more
@pytest.mark.proves("RTE-05", "K20")
async def test_turn_of_a_pool_without_workers_fails_with_the_name_of_the_pool(rig: Rig) -> None:
    app = Heliograph("lonely")

    @app.agent(activate_on=START, updates="seen")
    async def editor(ctx: Context) -> Any:
        try:
            return await ctx.delegate("painter", timeout=SOON_SECONDS)
        except DelegationFailed as error:
            return str(error)

    @app.agent(on_request=True, pool="gpu")
    async def painter(ctx: Context) -> None: ...

    await rig.runtime.world.call("set_limits", rig.runtime.settings.project, {"dispatch_seconds_max": 1})
    async with rig.serving(app):
        run_id = await rig.start(app)
        assert (
            "no worker of pool gpu claimed it within 1 s"
            in one(await rig.ended(run_id), "workflow:end")["state"]["seen"]
        )


@pytest.mark.proves("RTE-05")
async def test_run_with_a_worker_in_its_process_serves_all_pools(rig: Rig) -> None:
    result = await rig.run(press(routes("court")))
    assert result.state["seen"] == ["painted", "filed"]
    assert (await rig.turn_of("clerk")).pool == "court"
    assert (await rig.turn_of("painter")).pool == "gpu"
    await until(rig.is_published)
