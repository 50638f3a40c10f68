"""The log of a run as control signals in envelopes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heliograph import Client, Context, Heliograph, Signal
from heliograph.control.envelope import Envelope, read_envelope
from heliograph.control.run_log import LOG_NAMES, RunLog, as_object
from heliograph.control.signals import TYPES
from heliograph.errors import KernelRejected, ToolFailed
from heliograph.signals.catalog import CATALOG
from heliograph.signals.model import Source
from tests.runtime.kit import START, Rig

PAGE = Path(__file__).parents[2] / "docs/reference/control-signals.md"
AT = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
TRACE, SPAN = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{16}")


def newsroom() -> Heliograph:
    """A lead that calls a tool and delegates; a clerk that calls a tool in a turn of its own."""
    app = Heliograph("newsroom")

    @app.agent(activate_on=START, updates="seen", version="2.1")
    async def lead(ctx: Context) -> Any:
        found = await ctx.call("search", {"q": "x"}, timeout=7)
        kept = await ctx.step("keep", lambda: {"kept": found})
        try:
            await ctx.call("broken")
        except ToolFailed:
            return [kept, await ctx.delegate("clerk", {"n": 1}, context={"pr": 1}, priority="high", timeout=30)]

    @app.agent(on_request=True)
    async def clerk(ctx: Context) -> Any:
        return await ctx.call("lookup", {"n": ctx.task["n"]}, timeout=None)

    return app


async def envelopes_of(rig: Rig, app: Heliograph, **results: Any) -> list[Envelope]:
    """The control signals of a run, followed while it runs, with a report for each tool."""
    run_id = await rig.start(app)
    async with rig.serving(app):
        for tool, result in results.items():
            (command,) = await rig.taken(tool)
            await command.report(**result)
        return [envelope async for envelope in rig.client.control_signals(run_id)]


def of_type(envelopes: list[Envelope], *kinds: str) -> list[Any]:
    return [envelope.to_wire()["envelope"] for envelope in envelopes if envelope.signal.type in kinds]


def logged(name: str, payload: Any, *, agent: str | None = "lead", turn: str | None = "turn_1", seq: int = 1) -> Signal:
    return Signal(f"sig_run_a_{seq}", name, payload, AT, Source(agent), "run_a", seq, turn)


def converted(name: str, payload: Any, **more: Any) -> Any:
    envelope = RunLog().envelope_of(logged(name, payload, **more))
    assert envelope is not None
    return envelope.to_wire()["envelope"]


@pytest.mark.proves("ENV-01", "ENV-02", "ENV-03", "ENV-04", "ENV-05", "ENV-06", "ENV-07", "ENV-08", "CTL-95", "CTL-90")
async def test_run_is_a_sequence_of_control_signals_in_envelopes(rig: Rig) -> None:
    envelopes = await envelopes_of(
        rig, newsroom(), search={"result": {"hits": 3}}, broken={"error": "no luck"}, lookup={"result": "found"}
    )
    assert [read_envelope(envelope.to_wire()) for envelope in envelopes] == envelopes
    assert [(envelope.signal.type, envelope.source, envelope.destination) for envelope in envelopes] == [
        ("ready", "lead", "runtime"),
        ("tool_call", "lead", "search"), ("tool_call_response", "search", "lead"),
        ("tool_call", "lead", "keep"), ("tool_call_response", "keep", "lead"),
        ("tool_call", "lead", "broken"), ("tool_call_response", "broken", "lead"),
        ("delegation", "lead", "clerk"), ("ready", "clerk", "runtime"), ("delegation_response", "clerk", "lead"),
        ("tool_call", "clerk", "lookup"), ("tool_call_response", "lookup", "clerk"),
        ("delegation_response", "clerk", "lead"),
    ]  # fmt: skip
    (trace,) = {envelope.trace_id for envelope in envelopes}
    assert TRACE.fullmatch(trace)
    assert all(SPAN.fullmatch(envelope.span_id) for envelope in envelopes)
    assert len({envelope.id for envelope in envelopes}) == len(envelopes)
    calls, replies = of_type(envelopes, "tool_call"), of_type(envelopes, "tool_call_response")
    assert [call["span_id"] for call in calls] == [reply["span_id"] for reply in replies]
    assert all(envelope.signal.timestamp == envelope.timestamp for envelope in envelopes)


@pytest.mark.proves("CTL-10", "CTL-11", "CTL-13", "CTL-14", "CTL-15", "CTL-19", "CTL-90", "CTL-91", "G-16")
async def test_calls_and_delegations_of_a_run_have_their_specified_payloads(rig: Rig) -> None:
    envelopes = await envelopes_of(
        rig, newsroom(), search={"result": {"hits": 3}}, broken={"error": "no luck"}, lookup={"result": "found"}
    )
    lead, clerk = await rig.turn_of("lead"), await rig.turn_of("clerk")
    search, keep, broken, lookup = (call["signal"] for call in of_type(envelopes, "tool_call"))
    first = f"{lead.turn_id}:c1"
    assert search == {
        "type": "tool_call", "async": True, "timeout_seconds": 7,
        "payload": {"correlation_id": first, "tool_name": "search", "parameters": {"q": "x"}},
    }  # fmt: skip
    assert (keep["timeout_seconds"], broken["timeout_seconds"], lookup["timeout_seconds"]) == (None, 60, None)
    found, kept, failed, _ = (reply["signal"]["payload"] for reply in of_type(envelopes, "tool_call_response"))
    duration = found.pop("duration_ms")
    assert isinstance(duration, int)
    assert duration >= 0
    assert found == {"tool_name": "search", "correlation_id": first, "success": True, "result": {"hits": 3}}
    assert (kept["success"], kept["result"]) == (True, {"kept": {"hits": 3}})
    assert failed["error"] == {"code": "TOOL_ERROR", "message": "no luck", "recoverable": False}
    (delegation,) = of_type(envelopes, "delegation")
    cause = delegation["signal"]["payload"]["correlation_id"]
    assert delegation["signal"] == {
        "type": "delegation", "async": True, "timeout_seconds": 30,
        "payload": {"correlation_id": cause, "target_agent": "clerk", "task": {"n": 1}, "context": {"pr": 1}, "priority": "high"},
    }  # fmt: skip
    assert lookup["payload"]["parent_correlation_id"] == cause
    assert "parent_correlation_id" not in search["payload"]
    accepted, completed = (reply["signal"]["payload"] for reply in of_type(envelopes, "delegation_response"))
    assert accepted == {
        "target_agent": "clerk",
        "task_id": clerk.turn_id,
        "correlation_id": cause,
        "status": "in_progress",
    }
    assert (completed["task_id"], completed["correlation_id"], completed["status"]) == (
        clerk.turn_id,
        cause,
        "completed",
    )
    assert completed["duration_ms"] >= 0


@pytest.mark.proves("CTL-16", "CTL-28", "CTL-45", "CTL-46", "CTL-47")
async def test_failures_of_a_run_are_error_signals_and_error_responses(rig: Rig) -> None:
    app = Heliograph("fails")

    @app.agent(activate_on=START)
    async def lead(ctx: Context) -> Any:
        await ctx.delegate("clerk", "a task in plain text")

    @app.agent(on_request=True)
    async def clerk(ctx: Context) -> Any:
        await ctx.call("slow", timeout=0.05)

    run_id = await rig.start(app)
    async with rig.serving(app):
        envelopes = [envelope async for envelope in rig.client.control_signals(run_id)]
    (delegation,) = of_type(envelopes, "delegation")
    assert delegation["signal"]["payload"]["task"] == {"value": "a task in plain text"}
    (timed_out,) = (reply["signal"]["payload"]["error"] for reply in of_type(envelopes, "tool_call_response"))
    assert (timed_out["code"], timed_out["recoverable"]) == ("TOOL_TIMEOUT", True)
    failed = of_type(envelopes, "delegation_response")[-1]["signal"]["payload"]
    assert (failed["status"], failed["details"]) == ("failed", {"reason": "failed"})
    assert failed["error"]["message"]
    errors = [(error["source"], error["signal"]["payload"]["error_code"]) for error in of_type(envelopes, "error")]
    assert [source for source, _ in errors] == ["clerk", "lead"]


@pytest.mark.proves("CTL-30", "CTL-31", "CTL-36", "CTL-37")
@pytest.mark.parametrize(
    ("options", "payload", "source"),
    [
        ({}, {"reason": "user_interrupt", "graceful": True}, "runtime"),
        ({"reason": "the budget is spent", "actor": "ada", "now": True},
         {"reason": "user_interrupt", "graceful": False, "message": "the budget is spent"}, "ada"),
        ({"reason": "policy_violation"}, {"reason": "policy_violation", "graceful": True}, "runtime"),
        ({"reason": "deploy"}, {"reason": "external_signal", "graceful": True, "message": "deploy"}, "runtime"),
    ],
)  # fmt: skip
async def test_stop_is_a_halt_with_one_of_the_five_reasons(rig: Rig, options: Any, payload: Any, source: str) -> None:
    app = Heliograph("stopped")

    @app.agent(activate_on=START)
    async def lead(ctx: Context) -> Any:
        await ctx.call("never")

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("never")
        await rig.client.stop_turn(command.turn_id, **options)
        envelopes = [envelope async for envelope in rig.client.control_signals(run_id)]
    (halt,) = of_type(envelopes, "halt")
    assert (halt["source"], halt["destination"]) == (source, "lead")
    assert halt["signal"] == {"type": "halt", "async": False, "timeout_seconds": 5, "payload": payload}


@pytest.mark.proves("CTL-55", "CTL-56")
async def test_ready_of_an_agent_has_its_capabilities_and_version(rig: Rig) -> None:
    app = Heliograph("able")
    app.agent(name="lead", activate_on=START, emits=["lead:done"], version="2.1")(lambda _ctx: None)
    run_id = (await rig.run(app)).run_id
    envelopes = [envelope async for envelope in Client.on(rig.runtime).control_signals(run_id)]
    (ready,) = of_type(envelopes, "ready")
    metadata = ready["signal"]["payload"]["metadata"]
    assert ready["signal"]["payload"] == {"capabilities": ["lead:done"], "version": "2.1", "metadata": metadata}
    assert metadata["tools_loaded"] == 0


@pytest.mark.proves("G-14")
def test_log_names_are_in_the_catalog_and_stand_for_all_types() -> None:
    assert set(LOG_NAMES) <= {entry.name for entry in CATALOG}
    assert set(LOG_NAMES.values()) == set(TYPES)
    for entry in CATALOG:
        if entry.name not in LOG_NAMES:
            assert RunLog().envelope_of(logged(entry.name.replace("*", "key"), {})) is None


@pytest.mark.proves("CTL-46")
def test_error_without_a_text_has_an_empty_message() -> None:
    payload = {"error_code": "UNKNOWN", "message": "", "recoverable": False, "details": {"phase": "act"}}
    assert converted("error", payload)["signal"]["payload"] == payload


@pytest.mark.parametrize(("name", "kind"), LOG_NAMES.items())
def test_page_on_control_signals_maps_each_name_of_the_log(name: str, kind: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert re.search(rf"^\| `{re.escape(name)}` \| .* \| `{kind}` \|", page, re.MULTILINE)


@pytest.mark.proves("CTL-14", "CTL-15")
@pytest.mark.parametrize(
    ("payload", "end"),
    [
        ({"status": "success", "output": None}, {"success": True, "result": None}),
        ({"status": "success", "card_id": "card_9"}, {"success": True, "result": None, "details": {"card_id": "card_9"}}),
        ({"status": "unknown", "card_id": "card_9"},
         {"success": False, "error": {"code": "IN_DOUBT", "message": "the call ended as unknown", "recoverable": False},
          "details": {"card_id": "card_9"}}),
        ({"status": "failed", "error": {"code": "E1", "message": "m", "recoverable": True, "line": 3}},
         {"success": False, "error": {"code": "E1", "message": "m", "recoverable": True, "details": {"line": 3}}}),
        ({"status": "timeout", "error": None},
         {"success": False, "error": {"code": "TOOL_TIMEOUT", "message": "the call ended as timeout", "recoverable": True}}),
    ],
)  # fmt: skip
def test_result_without_its_call_is_a_response_too(payload: Any, end: Any) -> None:
    wire = converted("tool:result", {"id": "c1", "name": "search", **payload})
    assert wire["signal"]["payload"] == {"tool_name": "search", "correlation_id": "turn_1:c1", **end}


@pytest.mark.proves("CTL-25", "CTL-26", "G-22")
@pytest.mark.parametrize(
    ("payload", "end"),
    [
        ({"status": "completed", "outcome": "success", "result": 1}, {"status": "completed", "result": 1}),
        ({"status": "completed", "outcome": "partial"}, {"status": "completed", "details": {"outcome": "partial"}}),
        ({"status": "failed", "outcome": "timeout"},
         {"status": "failed", "details": {"reason": "timeout"},
          "error": {"code": "DELEGATION_TIMEOUT", "message": "the turn ended as timeout", "recoverable": True}}),
        ({"status": "failed", "outcome": "canceled", "error": {"code": "CANCELED", "message": "m", "recoverable": False}},
         {"status": "failed", "details": {"reason": "canceled"},
          "error": {"code": "CANCELED", "message": "m", "recoverable": False}}),
    ],
)  # fmt: skip
def test_outcome_of_a_delegation_is_a_status_with_details(payload: Any, end: Any) -> None:
    wire = converted("delegation_response", {"id": "c1", "target_agent": "clerk", "task_id": "turn_2", **payload})
    assert (wire["source"], wire["destination"]) == ("clerk", "lead")
    common = {"target_agent": "clerk", "task_id": "turn_2", "correlation_id": "turn_1:c1"}
    assert wire["signal"]["payload"] == {**common, **end}


@pytest.mark.proves("CTL-60", "CTL-61", "CTL-64")
def test_heartbeat_of_the_log_is_one_on_the_wire() -> None:
    payload = {"timestamp": "2026-01-31T09:30:00Z", "phase": "act", "status": "healthy", "metrics": {"cpu_percent": 1}}
    wire = converted("heartbeat", {**payload, "interval_seconds": 5, "worker": "w1"})
    assert wire["signal"] == {"type": "heartbeat", "async": False, "interval_seconds": 5, "payload": payload}


@pytest.mark.parametrize(
    ("value", "wanted"), [(None, {}), ({"a": 1}, {"a": 1}), ("text", {"value": "text"}), ([1], {"value": [1]})]
)
def test_input_on_the_wire_is_always_an_object(value: Any, wanted: Any) -> None:
    assert as_object(value) == wanted


@pytest.mark.parametrize(
    ("name", "payload"),
    [("tool:call", None), ("tool:call", {"name": "x"}), ("error", {"message": 3}), ("halt", {}), ("ready", [])],
)
def test_malformed_payload_in_the_log_is_reported_with_its_signal(name: str, payload: Any) -> None:
    with pytest.raises(KernelRejected, match=r"the payload of sig_run_a_1 \(.*\) is malformed") as caught:
        RunLog().envelope_of(msgspec.structs.replace(logged(name, {}), payload=payload))
    assert caught.value.code == "UNDECODABLE"
