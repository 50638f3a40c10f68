"""The runtime itself halts a turn that exceeds a budget or breaks a rule; the log and the wire name the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph import (
    AgentFailed,
    BudgetExceeded,
    Context,
    DelegationFailed,
    Denied,
    Heliograph,
    ModelReply,
    ToolFailed,
)
from heliograph.codes import POLICY_VIOLATION, RESOURCE_LIMIT
from heliograph.policy.egress import EgressRejected
from heliograph.turn.halt_reasons import halt_reason_of
from tests.runtime.gateway_kit import SECRET
from tests.runtime.kit import START, Rig, names, one
from tests.runtime.loop_kit import Model, agent, call
from tests.runtime.test_agent_loop import add


async def halt_of(rig: Rig, run_id: str) -> dict[str, Any]:
    """The only halt of a run, which must be the same in the log and on the wire, and stand before the end of its turn."""
    signals = await rig.runtime.reader.all_signals(run_id)
    logged = one(signals, "halt")
    assert names(signals).index("halt") < names(signals).index("terminated")
    [sent] = [each async for each in rig.client.control_signals(run_id) if each.signal.type == "halt"]
    assert (sent.source, sent.signal.payload.to_wire()) == ("runtime", logged)
    return logged  # type: ignore[no-any-return]


@pytest.mark.proves("CTL-32")
@pytest.mark.parametrize("is_caught", [False, True])
async def test_turn_that_fails_at_its_budget_is_halted_as_resource_limit(rig: Rig, is_caught: bool) -> None:
    app = Heliograph("costs")

    @app.agent(activate_on=START, budget={"tool_calls": 1}, updates="out")
    async def spender(ctx: Context) -> Any:
        try:
            return await ctx.call("a") and await ctx.call("b")
        except BudgetExceeded:
            if is_caught:
                return "enough"
            raise

    run_id = await rig.start(app)
    async with rig.serving(app):
        [command] = await rig.taken("a")
        await command.report(result=1)
        await rig.ended(run_id)
    if is_caught:
        assert "halt" not in names(await rig.runtime.reader.all_signals(run_id))
        return
    halt = await halt_of(rig, run_id)
    assert (halt["reason"], halt["graceful"]) == (RESOURCE_LIMIT, True)
    assert "tool_calls" in halt["message"]


@pytest.mark.proves("CTL-32")
async def test_model_agent_that_its_budget_cuts_short_is_halted_as_resource_limit(rig: Rig) -> None:
    model = Model(ModelReply("so far: 3", tool_calls=(call("add", {"a": 1, "b": 2}),)))
    result = await rig.run(agent(model, [add], budget={"model_calls": 1}))
    halt = await halt_of(rig, result.run_id)
    assert (halt["reason"], result.state["out"]) == (RESOURCE_LIMIT, "so far: 3")


@pytest.mark.proves("CTL-33")
async def test_turn_that_calls_a_forbidden_address_is_halted_as_policy_violation(rig: Rig) -> None:
    rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,))
    route = {"match": {"target_agent": "far"}, "destination": {"gateway": "http://127.0.0.1:1/"}}
    app = Heliograph("leaks", routes={"kind": "MessageRouting", "routes": [route]})

    @app.agent(activate_on=START)
    async def caller(ctx: Context) -> Any:
        return await ctx.delegate("far", {"secret": 1})

    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.ended(run_id)
    halt = await halt_of(rig, run_id)
    assert halt["reason"] == POLICY_VIOLATION
    failed = one(await rig.runtime.reader.all_signals(run_id), "agent:failed")
    assert (failed["outcome"], failed["error"]["code"]) == ("failed", "DELEGATION_ERROR")


@pytest.mark.proves("CTL-32", "CTL-33")
@pytest.mark.parametrize(
    ("error", "has_read_untrusted", "reason"),
    [
        (BudgetExceeded("no more"), False, RESOURCE_LIMIT),
        (Denied("ann said no"), True, POLICY_VIOLATION),
        (Denied("ann said no"), False, None),
        (EgressRejected("not this host"), False, POLICY_VIOLATION),
        (ToolFailed("the call failed", error={"code": "egress_rejected"}), False, POLICY_VIOLATION),
        (DelegationFailed("the task failed", error={"code": "egress_rejected"}), False, POLICY_VIOLATION),
        (ToolFailed("the call failed", error={"code": "TOOL_ERROR"}), True, None),
        (AgentFailed("no"), True, None),
        (ValueError("no"), True, None),
    ],
)
def test_reason_of_a_halt_follows_from_the_failure(
    error: Exception, has_read_untrusted: bool, reason: str | None
) -> None:
    assert halt_reason_of(error, has_read_untrusted=has_read_untrusted) == reason


@pytest.mark.proves("CTL-33")
def test_error_that_a_forbidden_address_causes_is_a_policy_violation() -> None:
    error = AgentFailed("the server cannot be used")
    error.__cause__ = EgressRejected("not this host")
    assert halt_reason_of(error, has_read_untrusted=False) == POLICY_VIOLATION
