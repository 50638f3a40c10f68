"""A changed route table reroutes no call that is under way: the commit that wrote the call chose its route."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.client import Command
from heliograph.errors import DelegationFailed
from heliograph.execution.gateway_calls import gateway_pool
from heliograph.turn.calls import GATEWAY
from tests.runtime.kit import START, Rig, one, until

REMOTE = {"match": {"target_agent": "clerk"}, "destination": {"gateway": "http://127.0.0.1:9/"}}
REMOTE_COMMANDS = {"tool": GATEWAY, "pool": gateway_pool("http://127.0.0.1:9/")}


def table(*routes: Any) -> dict[str, Any]:
    return {"kind": "MessageRouting", "routes": list(routes)}


def to_pool(pool: str) -> dict[str, Any]:
    return table({"match": {"tool_name": "mail"}, "destination": {"queue": pool}})


@pytest.mark.proves("RTE-05", "G-24")
async def test_tool_call_under_way_remains_in_its_pool(rig: Rig) -> None:
    def mailing(pool: str) -> Heliograph:
        app = Heliograph("mailing", routes=to_pool(pool))

        @app.agent(activate_on=START, updates="out")
        async def sender(ctx: Context) -> Any:
            return [await ctx.call("mail", {"n": n}, timeout=None) for n in range(2)]

        return app

    async with rig.serving(mailing("old")):
        run_id = await rig.start(mailing("old"))
        await rig.turn_of("sender", "suspended")
    async with rig.serving(mailing("new")):
        assert await rig.client.take_commands(["mail"], pool="new") == []
        [command] = await rig.client.take_commands(["mail"], pool="old")
        await command.report(result="sent")
        commands: list[Command] = []

        async def is_taken() -> bool:
            commands.extend(await rig.client.take_commands(["mail"], pool="new"))
            return bool(commands)

        await until(is_taken)  # the next call is a new one
        await commands[0].report(result="sent again")
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"]["out"] == ["sent", "sent again"]


def asking(routes: Any, *, has_clerk: bool, **options: Any) -> Heliograph:
    app = Heliograph("asking", routes=routes)

    @app.agent(activate_on=START, updates="out")
    async def lead(ctx: Context) -> Any:
        try:
            return await ctx.delegate("clerk", {"n": 1}, **options)
        except DelegationFailed as error:
            return [error.code, error.error["message"]]

    @app.agent(activate_on=["never:emitted"])
    async def other(ctx: Context) -> None: ...

    if has_clerk:

        @app.agent(name="clerk", on_request=True)
        async def clerk(ctx: Context) -> Any:
            return await ctx.call("stamp", {}, timeout=None)

    return app


@pytest.mark.proves("RTE-07", "G-24")
@pytest.mark.parametrize("has_clerk", [True, False])
async def test_delegation_sent_through_a_gateway_keeps_its_result_without_the_route(rig: Rig, has_clerk: bool) -> None:
    before = asking(table(REMOTE), has_clerk=False)
    async with rig.serving(before):
        run_id = await rig.start(before)
        await rig.turn_of("lead", "suspended")
    async with rig.serving(asking(None, has_clerk=has_clerk)):
        [row] = await rig.runtime.ledger.take_commands([REMOTE_COMMANDS], 1, 0.0)
        assert row["body"]["gateway"] == "http://127.0.0.1:9/"
        call = {"turn_id": row["turn_id"], "call_id": row["call_id"], "token": row["body"]["token"]}
        await rig.runtime.ledger.report({**call, "status": "success", "result": "stamped far away"})
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"]["out"] == "stamped far away"


@pytest.mark.proves("RTE-07", "G-24")
@pytest.mark.parametrize("options", [{}, {"instance": "desk"}, {"budget": {"tool_calls": 5}}])
async def test_delegation_in_the_project_keeps_its_result_after_a_route_to_a_gateway_is_added(
    rig: Rig, options: Any
) -> None:
    before = asking(None, has_clerk=True, **options)
    async with rig.serving(before):
        run_id = await rig.start(before)
        [command] = await rig.taken("stamp")
    async with rig.serving(asking(table(REMOTE), has_clerk=True, **options)):
        await command.report(result="stamped here")
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"]["out"] == "stamped here"


@pytest.mark.proves("RTE-07")
async def test_next_attempt_of_a_delegation_whose_route_and_agent_are_gone_fails_the_turn(rig: Rig) -> None:
    retry = {"max_attempts": 3, "strategy": "constant", "initial_delay_ms": 5, "retryable_errors": ["NETWORK_ERROR"]}
    before, after = (asking(routes, has_clerk=False, retry=retry) for routes in (table(REMOTE), None))
    async with rig.serving(before):
        run_id = await rig.start(before)
        await rig.turn_of("lead", "suspended")
    async with rig.serving(after):
        [row] = await rig.runtime.ledger.take_commands([REMOTE_COMMANDS], 1, 0.0)
        call = {"turn_id": row["turn_id"], "call_id": row["call_id"], "token": row["body"]["token"]}
        error = {"code": "NETWORK_ERROR", "message": "away", "recoverable": True}
        await rig.runtime.ledger.report({**call, "status": "failed", "error": error})
        signals = await rig.ended(run_id)
    assert "has no agent clerk" in one(signals, "agent:failed")["error"]["message"]
