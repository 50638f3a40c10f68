"""Routes lead calls to the gateway of another deployment, with its own database, over real sockets."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from heliograph import Client, Context, Delegation, Heliograph, tool
from heliograph.agents import tool_agent
from heliograph.control.partial_results import with_outcome, without_outcome
from heliograph.errors import DelegationFailed, InvalidInput
from heliograph.models import ScriptedModel
from heliograph.policy.gateway_answers import report_of
from heliograph.ports import ModelReply
from tests.reach.hook_server import hooked
from tests.runtime.gateway_kit import SECRET, allowed, gateway_of, local, run_of
from tests.runtime.kit import START, Rig
from tests.runtime.loop_kit import call
from tests.runtime.test_agent_loop import add

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)


def remote(ran: list[Any]) -> Heliograph:
    """The other deployment: an agent, and a tool."""
    app = Heliograph("remote")

    @app.agent(on_request=True)
    async def appraiser(ctx: Context) -> Any:
        ran.append(ctx.task)
        if ctx.task.get("fails"):
            raise ValueError("no luck")
        return {"price": 2 * ctx.task["n"], **ctx.task_context}

    @tool(effect="pure")
    def far_sum(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    app.add(tool_agent(far_sum))
    return app


@pytest.mark.proves("RTE-07", "ENV-01", "ENV-04", "ENV-05", "ENV-06", "CTL-90", "CTL-91")
async def test_calls_of_one_deployment_run_in_another(rig: Rig, lone_rig: Rig) -> None:
    ran: list[Any] = []
    far = remote(ran)
    async with gateway_of(lone_rig, far) as served, lone_rig.serving(far), allowed(rig, served) as url:
        app = local(url, {"n": 2})
        run_id = await rig.start(app)
        async with rig.serving(app):
            await rig.ended(run_id)
            sent = [each async for each in rig.client.control_signals(run_id)]
        [task] = [
            each async for each in Client.on(lone_rig.runtime).control_signals(await run_of(lone_rig, "appraiser"))
        ][:1]
    state = (await rig.runtime.reader.run(run_id)).state
    assert state == {"seen": [{"price": 4, "from": "buyer"}, "TOOL_ERROR", "unknown_tool"]}
    assert ran == [{"n": 2}]
    kinds = [(each.signal.type, each.source, each.destination) for each in sent]
    assert ("delegation", "buyer", "appraiser") in kinds
    assert ("delegation_response", "appraiser", "buyer") in kinds
    assert ("tool_call_response", "far_sum", "buyer") in kinds
    [request] = [each for each in sent if each.signal.type == "delegation"]
    payload: Any = task.signal.payload
    sender = f"{rig.runtime.settings.project}/local/buyer"
    assert (task.source, task.trace_id, task.span_id) == (sender, request.trace_id, request.span_id)
    assert payload.correlation_id == request.signal.payload["correlation_id"]
    turn = await lone_rig.turn_of("appraiser")
    [row] = await lone_rig.fetch("select priority from heliograph.agent_turns where agent_turn_id = $1", turn.turn_id)
    assert row["priority"] == 2


@pytest.mark.proves("CTL-91")
async def test_request_of_a_delegated_turn_names_the_delegation_as_its_parent(rig: Rig) -> None:
    async with hooked(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}") as hook:
        rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=hook.origin)
        app = Heliograph("chain", routes={"kind": "MessageRouting", "routes": [
            {"match": {"target_agent": "appraiser"}, "destination": {"gateway": hook.url}}]})  # fmt: skip

        @app.agent(activate_on=START)
        async def owner(ctx: Context) -> Any:
            return await ctx.delegate("buyer", {})

        @app.agent(on_request=True)
        async def buyer(ctx: Context) -> Any:
            return await ctx.delegate("appraiser", {})

        run_id = (await rig.run(app)).run_id
        [sent] = [json.loads(request.body)["envelope"]["signal"]["payload"] for request in hook.requests]
    outer, inner = [
        each.signal.payload async for each in rig.client.control_signals(run_id) if each.signal.type == "delegation"
    ]
    assert sent["parent_correlation_id"] == outer["correlation_id"] == inner["parent_correlation_id"]
    assert sent["correlation_id"] == inner["correlation_id"]


@pytest.mark.more
@pytest.mark.proves("RTE-07")
async def test_failure_and_timeout_of_the_other_deployment_reach_the_caller(rig: Rig, lone_rig: Rig) -> None:
    far = remote([])
    async with gateway_of(lone_rig, far) as served, allowed(rig, served) as url:
        failing, waiting = local(url, {"fails": True}), local(url, {"n": 1}, timeout=0.3)
        async with rig.serving(failing):
            run_id = await rig.start(failing)
            async with lone_rig.serving(far):
                await rig.ended(run_id)
        assert (await rig.runtime.reader.run(run_id)).state["seen"] == ["DELEGATION_ERROR", "failed", "ACTION_FAILED"]
        async with rig.serving(waiting):  # no worker of the other deployment
            late = await rig.start(waiting)
            await rig.ended(late)
        assert (await rig.runtime.reader.run(late)).state["seen"] == [
            "DELEGATION_TIMEOUT",
            "timeout",
            "DELEGATION_TIMEOUT",
        ]
        async with lone_rig.serving(far):  # the accepted task ends there, without effect here
            await lone_rig.ended(await run_of(lone_rig, "appraiser"))


@pytest.mark.more
@pytest.mark.proves("RTE-07", "CTL-93")
async def test_lost_response_and_outages_repeat_the_request_and_run_the_task_once(rig: Rig, lone_rig: Rig) -> None:
    unavailable = b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n"
    async with hooked(unavailable, b"", unavailable) as hook:
        rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=hook.origin)
        app = local(hook.url, {"n": 1})
        run_id = await rig.start(app)
        async with rig.serving(app):
            await hook.until(lambda: len(hook.requests) >= 4)
            sent = json.loads(hook.requests[0].body)
            assert {request.body for request in hook.requests} == {hook.requests[0].body}
            correlation = sent["envelope"]["signal"]["payload"]["correlation_id"]
            assert {request.headers["webhook-id"] for request in hook.requests} == {sent["envelope"]["id"]}
            done = json.dumps(response(correlation)).encode()
            chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(done), done)
            ok = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunked
            # the next request gets the response, and those of the second call, which can come at once, a 404
            hook.answers = [*[unavailable] * len(hook.requests), ok, b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}"]
            await rig.ended(run_id)
    assert (await rig.runtime.reader.run(run_id)).state["seen"] == [{"price": 7}, "TOOL_ERROR", "rejected"]


def response(correlation_id: str, **payload: Any) -> dict[str, Any]:
    given = {
        "target_agent": "appraiser",
        "status": "completed",
        "result": {"price": 7},
        "correlation_id": correlation_id,
        **payload,
    }
    return {"envelope": {
        "id": "r", "timestamp": "2026-01-15T10:30:00Z", "source": "appraiser", "destination": "buyer", "trace_id": "t",
        "span_id": "s", "signal": {"type": "delegation_response", "payload": given},
    }}  # fmt: skip


async def test_result_that_the_kernel_rejects_fails_the_call(rig: Rig) -> None:
    async with hooked(b"") as hook:
        rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=hook.origin)
        app = local(hook.url, {"n": 1})
        run_id = await rig.start(app)
        async with rig.serving(app):
            await hook.until(lambda: bool(hook.requests))
            correlation = json.loads(hook.requests[0].body)["envelope"]["signal"]["payload"]["correlation_id"]
            large = json.dumps(response(correlation, result="x" * 1_200_000)).encode()
            hook.answers[-1] = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(large), large)
            await rig.ended(run_id)
    assert (await rig.runtime.reader.run(run_id)).state["seen"] == [
        "DELEGATION_ERROR", "failed", "DELEGATION_ERROR", "payload_too_large"]  # fmt: skip


@pytest.mark.more
async def test_delegation_through_a_gateway_uses_the_budget_of_tool_calls(rig: Rig, lone_rig: Rig) -> None:
    ran: list[Any] = []
    far = remote(ran)
    async with gateway_of(lone_rig, far) as served, lone_rig.serving(far), allowed(rig, served) as url:
        route = {"match": {"signal_type": "delegation"}, "destination": {"gateway": url}}
        app = Heliograph("frugal", routes={"kind": "MessageRouting", "routes": [route]})

        @app.agent(activate_on=START, budget={"tool_calls": 1}, updates="seen")
        async def buyer(ctx: Context) -> Any:
            await ctx.delegate("appraiser", {"n": 1})
            try:
                return await ctx.delegate("appraiser", {"n": 2})
            except DelegationFailed as error:
                return error.error["code"]

        result = await rig.run(app)
    assert (result.state, ran) == ({"seen": "BUDGET_EXCEEDED"}, [{"n": 1}])


@pytest.mark.more
@pytest.mark.proves("RTE-07", "CTL-20")
async def test_model_delegates_to_an_agent_that_exists_only_behind_a_route(rig: Rig, lone_rig: Rig) -> None:
    ran: list[Any] = []
    far = remote(ran)
    ask = call("delegate_to_appraiser", {"task": {"n": 4}, "priority": "normal", "deadline": 60})
    model = ScriptedModel([ModelReply("", tool_calls=(ask,)), ModelReply("8 it is")])
    async with gateway_of(lone_rig, far) as served, lone_rig.serving(far), allowed(rig, served) as url:
        app = Heliograph("near", routes={"kind": "MessageRouting", "routes": [
            {"match": {"target_agent": "appraiser"}, "destination": {"gateway": url}}]})  # fmt: skip
        app.prompt_agent("buyer", "Buy.", model=model, activate_on=START, agents=["appraiser"], updates="seen")
        result = await rig.run(app)
    assert (result.state, ran) == ({"seen": "8 it is"}, [{"n": 4}])
    [offered] = [each for each in model.requests[0].tools if each.name == "delegate_to_appraiser"]
    properties: Any = offered.parameters["properties"]
    assert properties["deadline"]["maximum"] == 3600
    assert properties["priority"]["enum"] == ["low", "normal"]
    assert "context" not in properties


def test_agent_for_a_model_is_known_to_the_application_or_a_route_leads_to_it() -> None:
    app = Heliograph("near")
    app.prompt_agent("buyer", "Buy.", model="scripted", activate_on=START, agents=["buyre"])
    with pytest.raises(
        InvalidInput, match=r"buyer delegates to buyre, which application near does not have.*mean buyer"
    ) as raised:
        _ = app.workflow
    assert (raised.value.code, raised.value.path) == ("unknown_agent", "/agents/buyer/agents")


@pytest.mark.more
@pytest.mark.proves("RTE-07", "CTL-22")
async def test_partial_result_of_the_other_deployment_is_partial_for_the_caller(rig: Rig, lone_rig: Rig) -> None:
    far = Heliograph("far")
    model = ScriptedModel([ModelReply("so far: 3", tool_calls=(call("add", {"a": 1, "b": 2}),))])
    far.prompt_agent("appraiser", "Work.", model=model, on_request=True, tools=[add], max_steps=1)
    async with gateway_of(lone_rig, far) as served, lone_rig.serving(far), allowed(rig, served) as url:
        app = Heliograph("near", routes={"kind": "MessageRouting", "routes": [
            {"match": {"target_agent": "appraiser"}, "destination": {"gateway": url}}]})  # fmt: skip

        @app.agent(activate_on=START, updates="seen")
        async def buyer(ctx: Context) -> Any:
            return [[each.status, each.output] for each in await ctx.delegates([Delegation("appraiser", {"n": 1})])]

        result = await rig.run(app)
        sent = [each.signal async for each in rig.client.control_signals(result.run_id)]
    assert result.state == {"seen": [["partial", "so far: 3"]]}
    [end] = [each.payload for each in sent if each.type == "delegation_response"]
    assert (end["status"], end["result"], end["details"]) == ("completed", "so far: 3", {"outcome": "partial"})


@pytest.mark.parametrize(
    "output", [None, 1, {}, {"outcome": "partial", "result": 1}, {"outcome": "x", "result": {}, "more": 1}]
)
def test_each_output_is_read_as_it_was_recorded(output: Any) -> None:
    for is_partial in (False, True):
        assert without_outcome(with_outcome(output, is_partial=is_partial)) == (output, is_partial)


REQUEST: Any = {"envelope": {"signal": {"type": "delegation", "payload": {"correlation_id": "c"}}}}


@pytest.mark.parametrize("status", [202, 408, 429, 500, 503])
def test_temporary_statuses_are_tried_again(status: int) -> None:
    assert report_of(REQUEST, status, b"{}", is_first=True) is None


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (200, b"{", "malformed"), (200, None, "too large"), (200, b"{}", "malformed"), (302, b"{}", "status 302"),
        (200, json.dumps(response("other")).encode(), "another request"), (404, b"nothing", "malformed"),
        (404, b'{"error": {"code": "unknown_agent", "message": "none"}}', "none"),
        (200, json.dumps(response("c", status="failed", result=None)).encode(), "without an error"),
    ],
)  # fmt: skip
def test_unusable_responses_fail_the_call(status: int, body: bytes | None, text: str) -> None:
    report: Any = report_of(REQUEST, status, body, is_first=True)
    assert (report["status"], report["error"]["code"]) == ("failed", "DELEGATION_ERROR")
    assert text in report["error"]["message"]


@pytest.mark.proves("CTL-35")
@pytest.mark.parametrize(
    ("status", "body", "of_first", "of_later"),
    [
        (401, b"{}", False, True), (404, b"{}", False, True), (404, b"<html>", False, True), (302, b"", False, True),
        (200, b"<html>", True, True), (200, None, True, True), (204, b"", True, True),
        (200, json.dumps(response("other")).encode(), True, True), (200, json.dumps(response("c")).encode(), False, False),
        (200, json.dumps(response("c", status="failed", result=None)).encode(), False, False),
    ],
)  # fmt: skip
def test_task_may_still_run_unless_its_end_was_read_or_its_first_request_was_rejected(
    status: int, body: bytes | None, of_first: bool, of_later: bool
) -> None:
    for is_first, expected in ((True, of_first), (False, of_later)):
        report: Any = report_of(REQUEST, status, body, is_first=is_first)
        assert report.get("may_still_run", False) is expected


@pytest.mark.proves("RTE-07")
@pytest.mark.parametrize("kind", ["tool_call", "delegation"])
def test_response_to_a_signal_of_another_type_ends_no_call(kind: str) -> None:
    request: Any = {"envelope": {"signal": {"type": kind, "payload": {"correlation_id": "c"}}}}
    of_delegation, of_tool = response("c", details={"outcome": "partial"}), response("c")
    of_tool["envelope"]["signal"] = {"type": "tool_call_response", "payload": {
        "tool_name": "far_sum", "success": True, "result": {"outcome": "partial", "result": 1}, "correlation_id": "c"}}  # fmt: skip
    own, other = (of_tool, of_delegation) if kind == "tool_call" else (of_delegation, of_tool)
    report: Any = report_of(request, 200, json.dumps(other).encode(), is_first=True)
    assert (report["status"], report["may_still_run"]) == ("failed", True)
    assert "another type" in report["error"]["message"]
    assert report_of(request, 200, json.dumps(own).encode(), is_first=True) == {
        "status": "success",
        "result": {"outcome": "partial", "result": 1 if kind == "tool_call" else {"price": 7}},
    }
    error = {"code": "E", "message": "m", "recoverable": True}
    still_open = response("c", status="in_progress", result=None, error=error)
    assert report_of(request, 200, json.dumps(still_open).encode(), is_first=True) is None
