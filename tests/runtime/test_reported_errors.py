"""Errors that agents report and from which they recover: logged once and at once, classified, redacted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph, Signal
from heliograph.codes import CODES, code_in_phase
from heliograph.errors import InvalidInput, ToolFailed
from heliograph.redaction import keep_out
from heliograph.signals.error_payload import DETAILS_BYTES_MAX, STACK_TRACE_MAX
from heliograph.testing import eventually
from tests.runtime.kit import SOON_SECONDS, START, Rig, lost, one

SECRET = "sk-live-0123456789abcdef"
PHASES = ("init", "plan", "act", "reflect", "terminate")


def errors_in(signals: list[Signal]) -> list[Any]:
    return [signal.payload for signal in signals if signal.name == "error"]


def reporting(function: Any, **options: Any) -> Heliograph:
    app = Heliograph("reports")
    app.agent(name="worker", activate_on=START, updates="out", **options)(function)
    return app


@pytest.mark.proves("CTL-48", "CTL-49", "CTL-50")
async def test_agent_reports_an_error_with_redacted_details_and_stack_trace_and_continues(rig: Rig) -> None:
    keep_out(SECRET)

    async def worker(ctx: Context) -> str:
        try:
            raise OSError(f"exit code 1 with {SECRET}")
        except OSError as error:
            details = {
                "tool": "scan",
                "exit_code": 1,
                "stderr": f"bad key {SECRET}",
                "retry_count": 2,
                "max_retries": 3,
            }
            await ctx.report_error("TOOL_ERROR", f"the scan failed with {SECRET}", details=details, exception=error)
        return "done without the scan"

    result = await rig.run(reporting(worker))
    error = one(result.signals, "error")
    assert (error["error_code"], error["message"], error["recoverable"]) == (
        "TOOL_ERROR",
        "the scan failed with ***",
        True,
    )
    assert error["details"] == {"tool": "scan", "exit_code": 1, "stderr": "bad key ***", "retry_count": 2, "max_retries": 3,
                                "phase": "act"}  # fmt: skip
    assert error["stack_trace"].startswith("Traceback (most recent call last):")
    assert error["stack_trace"].endswith("OSError: exit code 1 with ***")
    assert "0123456789" not in str(result.signals)
    assert (result.state, one(result.signals, "terminated")["status"]) == ({"out": "done without the scan"}, "success")


@pytest.mark.proves("CTL-49", "CTL-50")
async def test_report_without_details_has_no_stack_trace_and_a_long_trace_keeps_its_end(rig: Rig) -> None:
    async def worker(ctx: Context) -> None:
        await ctx.report_error("NO_INDEX", "there is no index")
        await ctx.report_error("NO_INDEX", "long", exception=ValueError("x" * 10_000 + " the end"))

    plain, traced = errors_in((await rig.run(reporting(worker))).signals)
    assert plain == {
        "error_code": "NO_INDEX",
        "message": "there is no index",
        "recoverable": True,
        "details": {"phase": "act"},
    }
    assert (len(traced["stack_trace"]), traced["stack_trace"][-8:]) == (STACK_TRACE_MAX, " the end")


async def test_error_is_logged_once_and_before_the_turn_ends_although_the_function_runs_again(rig: Rig) -> None:
    runs: list[int] = []
    gate = asyncio.Event()

    async def worker(ctx: Context) -> str:
        runs.append(ctx.attempt)
        await ctx.report_error("FIRST", "before the wait")
        await ctx.pause(0.01)
        await ctx.report_error("SECOND", "after the wait")
        await gate.wait()
        return "done"

    app = reporting(worker)
    run_id = await rig.start(app)
    async with rig.serving(app):
        first: Any = (await eventually(rig, run_id, "error", within_seconds=SOON_SECONDS)).payload
        assert first["error_code"] == "FIRST"
        gate.set()
        signals = await rig.ended(run_id)
    assert [each["error_code"] for each in errors_in(signals)] == ["FIRST", "SECOND"]
    assert len(runs) == 2


async def test_error_of_a_lost_worker_is_not_logged_again(rig: Rig) -> None:
    begun = asyncio.Event()

    async def worker(ctx: Context) -> None:
        await ctx.report_error("ONCE", "the first worker dies after this")
        if ctx.attempt == 1:
            begun.set()
            await asyncio.Event().wait()

    app = reporting(worker)
    run_id = await lost(rig, app, begun)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert one(signals, "error")["error_code"] == "ONCE"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("no spaces", "x"), "invalid_code"), ((5, "x"), "invalid_code"), (("A", 5), "wrong_type"),
        (("A", "x", {"details": [1]}), "wrong_type"), (("A", "x", {"details": {"a": "x" * DETAILS_BYTES_MAX}}), "payload_too_large"),
        (("A", "x", {"details": {"a": float("nan")}}), "json_non_finite"),
    ],
    ids=str,
)  # fmt: skip
async def test_malformed_report_raises_and_logs_nothing(rig: Rig, arguments: Any, code: str) -> None:
    async def worker(ctx: Context) -> str:
        try:
            await ctx.report_error(*arguments[:2], **(arguments[2] if len(arguments) > 2 else {}))
        except InvalidInput as error:
            return error.code
        return "nothing raised"

    result = await rig.run(reporting(worker))
    assert result.state == {"out": code}
    assert "error" not in [s.name for s in result.signals]


# ── Codes and phases ──


@pytest.mark.proves("ERR-15")
def test_code_of_another_phase_becomes_the_code_of_this_phase() -> None:
    own = {"init": "INIT_FAILED", "plan": "PLAN_FAILED", "act": "ACTION_FAILED", "reflect": "REFLECTION_ERROR"}
    for code in CODES:
        for phase in PHASES:
            is_kept = code.phase in ("any", phase) and (phase, code.code) != ("init", "AUTH_ERROR")
            expected = code.code if is_kept else own.get(phase, code.code)
            assert code_in_phase(code.code, phase) == expected
    assert code_in_phase("NO_INDEX", "plan") == "NO_INDEX"
    assert {code.code for code in CODES if code.phase != "any"} == {
        *own.values(), "MAX_ITERATIONS", "TOOL_ERROR", "TOOL_TIMEOUT", "DELEGATION_ERROR", "DELEGATION_TIMEOUT"}  # fmt: skip


@pytest.mark.proves("ERR-15")
async def test_code_of_another_phase_is_replaced_in_the_log_and_kept_in_the_details(rig: Rig) -> None:
    async def plan(ctx: Context) -> None:
        await ctx.report_error("REFLECTION_ERROR", "too early")
        raise ToolFailed("no index", code="TOOL_ERROR", details={"shelf": 3})

    async def worker(ctx: Context) -> None: ...

    signals = (await rig.run(reporting(worker, plan=plan))).signals
    reported, failed = errors_in(signals)
    assert (reported["error_code"], reported["details"]) == (
        "PLAN_FAILED",
        {"original_code": "REFLECTION_ERROR", "phase": "plan"},
    )
    assert (failed["error_code"], failed["recoverable"]) == ("PLAN_FAILED", False)
    assert failed["details"] == {"shelf": 3, "original_code": "TOOL_ERROR", "phase": "plan", "scope": "turn"}
    assert one(signals, "agent:failed")["error"]["details"] == {"shelf": 3, "original_code": "TOOL_ERROR"}


@pytest.mark.proves("G-15")
async def test_result_of_a_call_has_code_and_the_signal_error_has_error_code(rig: Rig) -> None:
    async def fails() -> None:
        raise ToolFailed("no index", code="NO_INDEX", details={"shelf": 3})

    async def worker(ctx: Context) -> None:
        await ctx.step("look", fails)

    signals = (await rig.run(reporting(worker))).signals
    of_call, of_turn = one(signals, "tool:result")["error"], one(signals, "error")
    assert of_call == {"code": "NO_INDEX", "message": "no index", "recoverable": False, "details": {"shelf": 3}}
    assert "code" not in of_turn
    assert (of_turn["error_code"], of_turn["recoverable"]) == ("NO_INDEX", False)
    assert of_turn["details"] == {"shelf": 3, "phase": "act", "scope": "turn"}
    assert "error_code" not in one(signals, "agent:failed")["error"]
