"""A gateway runs tasks for other systems: once for each correlation id, and with the same response for each request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from heliograph import Context, Heliograph, tool
from heliograph.agents import tool_agent
from heliograph.definitions.agent import PRIORITIES
from heliograph.errors import InvalidInput
from heliograph.gateway import Gateway
from heliograph.gateway.targets import Targets
from heliograph.phases import Lifecycle
from tests.reach.hook_server import hooked
from tests.runtime.gateway_kit import delegation, envelope, gateway_of
from tests.runtime.kit import START, Rig, names, one, until
from tests.runtime.test_callbacks import allow, verified_body
from tests.runtime.test_service_settings import StubbornAgent


@dataclass
class _Needs:
    title: str


def application(ran: list[Any] | None = None) -> Heliograph:
    """Agents that other systems may use, and one that they may not. ran: receives the task of each execution."""
    app = Heliograph("offers")

    @app.agent(on_request=True, updates="doubled")
    async def double(ctx: Context) -> Any:
        if ran is not None:
            ran.append(ctx.task)
        if ctx.task.get("fails"):
            raise ValueError("no luck")
        return {"doubled": 2 * ctx.task["n"], **ctx.task_context}

    @app.agent(on_request=True)
    async def waits(ctx: Context) -> Any:
        return await ctx.call("external")

    @app.agent(activate_on=START)
    def inner(ctx: Context) -> None:
        raise AssertionError("a task does not start the application's own work")

    return app


@pytest.mark.proves("ENV-01", "ENV-02", "ENV-05", "ENV-06", "ENV-07", "ENV-08", "CTL-20", "CTL-22", "CTL-25")
async def test_delegation_from_outside_returns_the_response_envelope(rig: Rig) -> None:
    app = application()
    async with gateway_of(rig, app) as served, rig.serving(app):
        answer = await served.post(delegation(context={"pr": 1}, priority="high", parent_correlation_id="req-0"))
    turn = await rig.turn_of("double")
    assert answer.status == 200
    assert answer.payload == {
        "target_agent": "double", "task_id": turn.turn_id, "status": "completed", "result": {"doubled": 4, "pr": 1},
        "duration_ms": answer.payload["duration_ms"], "correlation_id": "req-1",
    }  # fmt: skip
    response = answer.body["envelope"]
    assert response["signal"]["type"] == "delegation_response"
    assert (response["source"], response["destination"]) == ("double", "orchestrator")
    assert (response["trace_id"], response["span_id"]) == ("trace-abc123", "span-def456")
    log = await rig.ended(turn.run_id)
    assert names(log)[:3] == ["workflow:start", "delegation", "agent:activated"]
    assert "inner" not in {signal.agent for signal in log}
    async with asyncio.timeout(60):
        [request, *_] = [each async for each in rig.client.control_signals(turn.run_id)]
    assert (request.source, request.destination, request.trace_id) == ("orchestrator", "double", "trace-abc123")
    assert request.span_id == "span-def456"
    await rig.check()


@pytest.mark.proves("CTL-90", "CTL-91")
async def test_correlation_ids_of_the_sender_continue_in_the_run(rig: Rig) -> None:
    app = Heliograph("chain")

    @app.agent(on_request=True)
    async def outer(ctx: Context) -> Any:
        return await ctx.delegate("inner", {"n": 1})

    @app.agent(activate_on=["never"])
    def inner(ctx: Context) -> int:
        return 1

    wire = delegation("outer", parent_correlation_id="req-0")
    async with gateway_of(rig, app) as served, rig.serving(app):
        answer = await served.post(wire)
        del wire["envelope"]["signal"]["payload"]["correlation_id"]
        minted = await served.post(wire)
    run_id = (await rig.runtime.reader.turn(answer.payload["task_id"])).run_id
    sent: list[Any] = [
        each.signal.payload async for each in rig.client.control_signals(run_id) if each.signal.type == "delegation"
    ]
    assert [each.correlation_id for each in sent] == ["req-1", f"{answer.payload['task_id']}:c1"]
    assert [each.parent_correlation_id for each in sent] == ["req-0", "req-1"]
    assert minted.payload["correlation_id"] == wire["envelope"]["id"]  # no request is without one


@pytest.mark.proves("CTL-93", "G-17")
async def test_requests_with_one_correlation_id_run_once_and_get_one_response(rig: Rig) -> None:
    ran: list[Any] = []
    app = application(ran)
    async with gateway_of(rig, app) as one_gateway, gateway_of(rig, app) as other, rig.serving(app), rig.serving(app):
        answers = await asyncio.gather(*(served.post(delegation()) for served in (one_gateway, other) * 4))
        again = await other.post(delegation(message_id="msg-2"))
        conflict = await one_gateway.post(delegation(task={"n": 3}))
        elsewhere = await other.post(delegation(correlation_id="req-2"))
    assert [answer.status for answer in answers] == [200] * 8
    assert all(answer.body == answers[0].body for answer in answers)
    assert again.body == answers[0].body
    assert conflict.error == (409, "id_conflict", "/envelope/signal/payload/correlation_id")
    assert elsewhere.payload["task_id"] != again.payload["task_id"]
    assert ran == [{"n": 2}, {"n": 2}]


@pytest.mark.proves("CTL-93")
async def test_response_remains_after_a_failure_and_a_pruned_task_does_not_run_again(rig: Rig) -> None:
    app = application()
    async with gateway_of(rig, app) as served:
        async with rig.serving(app):
            failed = await served.post(delegation(task={"fails": True}))
            await rig.ended((await rig.turn_of("double")).run_id)
        assert failed.status == 200
        assert (failed.payload["status"], failed.payload["error"]["code"]) == ("failed", "ACTION_FAILED")
        assert failed.payload["details"] == {"reason": "failed"}
        assert (await served.post(delegation(task={"fails": True}))).body == failed.body  # without a worker
        await until(rig.is_published)
        await rig.runtime.ledger.prune(rig.runtime.world.now(), 100)
        pruned = await served.post(delegation(task={"fails": True}))
        assert pruned.error[:2] == (410, "result_pruned")
        assert (await served.post(delegation(task={"n": 1}))).error[:2] == (409, "id_conflict")


async def test_task_that_lasts_longer_is_accepted_and_its_result_follows(rig: Rig) -> None:
    app, wire = application(), delegation("waits")
    wire["envelope"]["signal"]["timeout_seconds"] = 0.2
    async with hooked() as hook, gateway_of(rig, app) as served:
        allow(rig, hook)
        queued = await served.post(wire)  # there is no worker yet
        assert (queued.status, queued.payload["status"]) == (202, "accepted")
        called = await served.post(delegation(callback=hook.url))
        assert called.status == 202  # at once: the callback receives the result
        async with rig.serving(app):
            turn = await rig.turn_of("waits", "suspended")
            assert queued.payload["task_id"] == turn.turn_id
            working = await served.post(wire)
            assert (working.status, working.payload["status"]) == (202, "in_progress")
            [command] = await rig.taken("external")
            await command.report(result=5)
            await rig.ended(turn.run_id)
            ended = await served.post(wire)
            assert (ended.status, ended.payload["status"], ended.payload["result"]) == (200, "completed", 5)
            await hook.until(lambda: bool(hook.requests))
    sent = verified_body(hook)
    assert (sent["task_id"], sent["result"]) == (called.payload["task_id"], {"doubled": 4})
    assert sent["correlation_id"] == "req-1"


@pytest.mark.proves("CTL-34", "CTL-37")
async def test_halt_from_outside_stops_a_task_or_a_run_once(rig: Rig) -> None:
    app, other = application(), Heliograph("other")
    other.agent(name="own", on_request=True)(lambda ctx: None)
    halt = {"type": "halt", "payload": {"reason": "external_signal", "message": "maintenance"}}
    async with gateway_of(rig, app, wait_seconds=0) as served, gateway_of(rig, other) as foreign, rig.serving(app):
        task = (await served.post(delegation("waits"))).payload["task_id"]
        turn = await rig.turn_of("waits", "suspended")
        stranger = {"source": "stranger"}
        inside = await rig.start(app)  # a run that no gateway has started
        await rig.ended(inside)
        for answer in (
            await foreign.post(envelope(halt, destination=task)),
            await served.post(envelope(halt, destination=task, **stranger)),
            await served.post(envelope(halt, destination=turn.run_id, **stranger)),
            await served.post(envelope(halt, destination=inside)),
        ):
            assert answer.error == (404, "unknown_target", "/envelope/destination")
        assert (await rig.turn_of("waits", "suspended")).stop_requested_at is None
        stopped = await served.post(envelope(halt, destination=task))
        assert (stopped.status, stopped.body) == (200, {"halt": {"target": task, "outcome": "stopped"}})
        again = await served.post(envelope(halt, destination=task))
        assert again.body == {"halt": {"target": task, "outcome": "already_done", "ended_as": "canceled"}}
        log = await rig.ended(turn.run_id)
        ended = await served.post(envelope(halt, destination=turn.run_id))
        assert ended.body["halt"]["outcome"] == "already_done"
        assert (await served.post(delegation("waits"))).payload["details"] == {"reason": "canceled"}
    assert one(log, "halt")["actor"] == "orchestrator"
    halts: list[Any] = [
        each.signal async for each in rig.client.control_signals(turn.run_id) if each.signal.type == "halt"
    ]
    assert [(each.payload.reason, each.payload.message) for each in halts] == [("external_signal", "maintenance")]


@pytest.mark.proves("CTL-34")
async def test_halt_may_name_a_task_by_its_agent_and_correlation_id(rig: Rig) -> None:
    app = application()
    payload = {"reason": "parent_termination", "correlation_id": "req-1"}
    halt = {"type": "halt", "payload": payload}
    async with gateway_of(rig, app, wait_seconds=0) as served, rig.serving(app):
        task = (await served.post(delegation("waits"))).payload["task_id"]
        turn = await rig.turn_of("waits", "suspended")
        unknown = {"type": "halt", "payload": {**payload, "correlation_id": "req-2"}}
        for answer, code in (
            (await served.post(envelope(halt, destination="waits", source="stranger")), "unknown_target"),
            (await served.post(envelope(unknown, destination="waits")), "unknown_target"),
            (await served.post(envelope(halt, destination="double")), "unknown_target"),
            (await served.post(envelope(halt, destination="nobody")), "unknown_agent"),
        ):
            assert answer.error == (404, code, "/envelope/destination")
        stopped = await served.post(envelope(halt, destination="waits"))
        assert stopped.body == {"halt": {"target": task, "outcome": "stopped"}}
        await rig.ended(turn.run_id)


@pytest.mark.proves("CTL-73", "CTL-34")
@pytest.mark.parametrize(("own", "sent", "grace"), [(None, None, 10), (40, None, 40), (40, 25.5, 25.5), (None, 25, 25)])
async def test_grace_of_a_halt_is_that_of_its_sender_or_else_of_the_application(
    rig: Rig, own: float | None, sent: float | None, grace: float
) -> None:
    agent = StubbornAgent(**({} if own is None else {"control_signals": {"halt": {"force_after_seconds": own}}}))
    halt: dict[str, Any] = {"type": "halt", "payload": {"reason": "external_signal", "correlation_id": "req-1"}}
    if sent is not None:
        halt["force_after_seconds"] = sent
    async with gateway_of(rig, agent.app, agents=["worker"], wait_seconds=0) as served, rig.serving(agent.app):
        await served.post(delegation("worker"))
        await agent.begun.wait()
        too_long = await served.post(envelope(halt | {"force_after_seconds": 86_400.01}, destination="worker"))
        assert too_long.error == (400, "out_of_range", "/envelope/signal/force_after_seconds")
        assert too_long.body["error"]["message"].endswith("must be from 0 to 86400, not 86400.01")
        stopped = await served.post(envelope(halt, destination="worker"))
        assert stopped.body["halt"]["outcome"] == "stopping"
        query = "select force_at - stop_requested_at as grace from heliograph.agent_state_head where project_id = $1"
        [row] = await rig.fetch(query, rig.runtime.settings.project)
        agent.released.set()
        await rig.ended((await rig.turn_of("worker")).run_id)
    assert row["grace"].total_seconds() == grace


@pytest.mark.proves("CTL-20")
@pytest.mark.parametrize(
    ("allowed", "chosen", "priority"),
    [([], "critical", "high"), (["news*", "desk"], "critical", "high"), (["orchestra*"], "critical", "critical"),
     (["orchestrator"], "critical", "critical"), ([], "high", "high"), ([], "low", "low"), (["*"], "normal", "normal")],
)  # fmt: skip
async def test_priority_critical_is_for_the_sources_that_the_receiver_lists(
    rig: Rig, allowed: list[str], chosen: str, priority: str
) -> None:
    app = application()
    async with gateway_of(rig, app, wait_seconds=0, critical_sources=allowed) as served:
        assert (await served.post(delegation(priority=chosen))).status == 202
    query = "select priority from heliograph.agent_turns where project_id = $1"
    [row] = await rig.fetch(query, rig.runtime.settings.project)
    assert PRIORITIES[row["priority"]] == priority
    rig.ends_with_open_work = True


@pytest.mark.parametrize(
    ("given", "code"), [("news", "wrong_type"), ([1], "wrong_type"), (["a b"], "invalid_wildcard")]
)
def test_sources_that_are_no_list_of_names_are_rejected(given: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Gateway(application(), critical_sources=given)
    assert (raised.value.code, raised.value.path) == (code, "/critical_sources")


@pytest.mark.proves("CTL-11", "CTL-12")
async def test_arguments_of_a_tool_call_that_look_like_references_are_values(rig: Rig) -> None:
    @tool
    def keep(value: Any) -> Any:
        """Keep a value."""
        return value

    app = application()
    app.add(tool_agent(keep))
    value = {"$step": 1, "path": "/x", "more": {"$literal": 1}}
    call = {
        "type": "tool_call",
        "payload": {"tool_name": "keep", "parameters": {"value": value}, "correlation_id": "k"},
    }
    async with gateway_of(rig, app) as served, rig.serving(app):
        answer = await served.post(envelope(call))
    assert (answer.payload["success"], answer.payload.get("result")) == (True, value)


@pytest.mark.proves("CTL-15")
async def test_tool_that_was_skipped_is_no_success_for_its_caller(rig: Rig) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    app = application()
    app.add(tool_agent(fail, lifecycle=Lifecycle(on_tool_error="skip")))
    call = {"type": "tool_call", "payload": {"tool_name": "fail", "parameters": {}, "correlation_id": "k"}}
    async with gateway_of(rig, app) as served, rig.serving(app):
        answer = await served.post(envelope(call))
    assert (await rig.turn_of("fail")).outcome == "partial"
    assert answer.payload["success"] is False
    assert answer.payload["error"]["message"] == "the turn ended as partial"


@pytest.mark.proves("CTL-12", "CTL-15", "CTL-93")
async def test_tool_call_from_outside_executes_an_exposed_tool_once(rig: Rig) -> None:
    calls: list[str] = []

    @tool
    def greet(name: str) -> str:
        """Greet a person."""
        calls.append(name)
        if name == "nobody":
            raise ValueError("nobody is there")
        return f"hello {name}"

    app = application()
    app.add(tool_agent(greet))

    def call(name: Any, key: str = "k1") -> Any:
        payload = {"tool_name": "greet", "parameters": {"name": name}, "correlation_id": key}
        return envelope({"type": "tool_call", "payload": payload})

    async with gateway_of(rig, app) as served, rig.serving(app):
        answers = await asyncio.gather(*(served.post(call("ann")) for _ in range(4)))
        failed = await served.post(call("nobody", "k2"))
        invalid = await served.post(call(7, "k3"))
        unknown = await served.post(
            envelope({"type": "tool_call", "payload": {"tool_name": "double", "parameters": {}}})
        )
    assert {str(answer.body) for answer in answers} == {str(answers[0].body)}
    assert answers[0].body["envelope"]["signal"]["type"] == "tool_call_response"
    assert answers[0].payload == {
        "tool_name": "greet", "success": True, "result": "hello ann", "correlation_id": "k1",
        "duration_ms": answers[0].payload["duration_ms"],
    }  # fmt: skip
    assert (failed.payload["success"], failed.payload["error"]["code"]) == (False, "TOOL_ERROR")
    assert not invalid.payload["success"]
    assert unknown.error == (404, "unknown_tool", "/envelope/signal/payload/tool_name")  # an agent, not a tool
    assert calls == ["ann", "nobody"]


@pytest.mark.parametrize("trusted", [False, True])
async def test_content_of_other_systems_is_untrusted_unless_the_author_vouches_for_it(rig: Rig, trusted: bool) -> None:
    app = application()
    async with gateway_of(rig, app, trusted=trusted) as served, rig.serving(app):
        turn = await rig.runtime.reader.turn((await served.post(delegation())).payload["task_id"])
    rows = await rig.fetch("select name, trust from heliograph.signal_log where run_id = $1", turn.run_id)
    trusts = {row["name"]: row["trust"] for row in rows}
    assert (trusts["delegation"], trusts["agent:completed"]) == (
        ("trusted", "trusted") if trusted else ("untrusted", "untrusted")
    )


async def test_client_that_leaves_does_not_disturb_its_task(rig: Rig) -> None:
    app = application()
    async with gateway_of(rig, app) as served, rig.serving(app):
        leaving = asyncio.create_task(served.post(delegation("waits")))
        turn = await rig.turn_of("waits", "suspended")
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        [command] = await rig.taken("external")
        await command.report(result=1)
        await rig.ended(turn.run_id)
        assert (await served.post(delegation("waits"))).payload["result"] == 1


def test_gateway_exposes_agents_for_requests_and_rejects_what_cannot_work() -> None:
    app = application()
    assert [Targets([app.workflow], None).agent(name).agent.name for name in ("double", "waits")] == ["double", "waits"]
    assert Targets([app.workflow], ["inner"]).agent("inner").key == "offers/inner"

    def problem(*apps: Heliograph, names: list[str] | None = None) -> str:
        with pytest.raises(InvalidInput) as caught:
            Targets([each.workflow for each in apps], names)
        return caught.value.code

    needs_state = Heliograph("typed", state=_Needs)
    needs_state.agent(name="own", on_request=True)(lambda ctx: None)
    idle = Heliograph("idle")
    idle.agent(name="own", activate_on=START)(lambda ctx: None)
    assert problem(app, application()) == "duplicate_agent"
    assert problem(needs_state) == "invalid_state"
    assert problem(idle) == "no_agents"
