"""Control signals for systems that know only the codes of the specification."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from heliograph import Context, Heliograph, Step
from heliograph.codes import CODES, SPECIFIED_CODES
from heliograph.control.envelope import Envelope, read_envelope
from heliograph.control.signals import read_signal
from heliograph.control.strict_codes import strict_envelope
from heliograph.errors import RecoverableError, ToolFailed
from tests.runtime.kit import START, Rig

OWN = [code.code for code in CODES if code.code not in SPECIFIED_CODES]


def envelope_of(kind: str, payload: Any) -> Envelope:
    return Envelope(id="m", timestamp=datetime(2026, 1, 31, tzinfo=UTC), source="a", destination="b", trace_id="t", span_id="s",
                    signal=read_signal({"type": kind, "payload": payload}))  # fmt: skip


def strict(kind: str, payload: Any) -> Any:
    """The payload that a strict reader receives; its envelope must be valid."""
    envelope = strict_envelope(envelope_of(kind, payload))
    assert read_envelope(envelope.to_wire()) == envelope
    return envelope.to_wire()["envelope"]["signal"]["payload"]  # type: ignore[index,call-overload]


def failure(code: str, **more: Any) -> dict[str, Any]:
    return {"code": code, "message": "no", "recoverable": True, **more}


@pytest.mark.proves("G-03")
@pytest.mark.parametrize(
    ("code", "phase", "replaced"),
    [
        ("RATE_LIMITED", "act", "TOOL_ERROR"), ("CIRCUIT_OPEN", "act", "TOOL_ERROR"), ("CIRCUIT_OPEN", "plan", "PLAN_FAILED"),
        ("RATE_LIMITED", "terminate", "UNKNOWN"), ("BUDGET_EXCEEDED", "act", "RESOURCE_EXHAUSTED"),
        ("MODEL_TIMEOUT", "reflect", "TIMEOUT"), ("MAX_ITERATIONS", "reflect", "REFLECTION_ERROR"),
        ("IN_DOUBT", "act", "ACTION_FAILED"), ("NO_INDEX", "act", "ACTION_FAILED"),
    ],
)  # fmt: skip
def test_own_code_is_replaced_and_remains_the_reason(code: str, phase: str, replaced: str) -> None:
    given = {
        "error_code": code,
        "message": "no",
        "recoverable": False,
        "details": {"phase": phase, "retry_after_ms": 7},
    }
    details = {"phase": phase, "retry_after_ms": 7, "reason": code}
    assert strict("error", given) == {**given, "error_code": replaced, "details": details}


@pytest.mark.proves("G-03")
@pytest.mark.parametrize("code", OWN)
def test_own_code_of_a_response_is_replaced_by_that_of_its_kind(code: str) -> None:
    by_code = {"BUDGET_EXCEEDED": "RESOURCE_EXHAUSTED", "MODEL_TIMEOUT": "TIMEOUT"}
    called = strict(
        "tool_call_response", {"tool_name": "t", "success": False, "error": failure(code, details={"a": 1})}
    )
    assert called["error"] == failure(by_code.get(code, "TOOL_ERROR"), details={"a": 1, "reason": code})
    delegated = strict("delegation_response", {"target_agent": "a", "status": "failed", "error": failure(code)})
    assert delegated["error"] == failure(by_code.get(code, "DELEGATION_ERROR"), details={"reason": code})


@pytest.mark.proves("G-03", "G-02")
@pytest.mark.parametrize("code", SPECIFIED_CODES)
def test_code_of_the_specification_is_unchanged(code: str) -> None:
    payload = {"tool_name": "t", "success": False, "error": failure(code)}
    assert strict("tool_call_response", payload) == payload
    error = envelope_of("error", {"error_code": code, "message": "no", "recoverable": True})
    assert strict_envelope(error) is error
    assert len(SPECIFIED_CODES) == 14


def test_signal_without_an_error_is_unchanged() -> None:
    for kind, payload in (
        ("tool_call_response", {"tool_name": "t", "success": True, "result": 1}),
        ("halt", {"reason": "resource_limit"}),
    ):
        envelope = envelope_of(kind, payload)
        assert strict_envelope(envelope) is envelope


@pytest.mark.proves("G-03")
async def test_strict_signals_of_a_run_have_only_codes_of_the_specification(rig: Rig) -> None:
    app = Heliograph("guarded")

    def fail() -> None:
        raise RecoverableError("down")

    @app.agent(activate_on=START)
    async def worker(ctx: Context) -> None:
        with suppress(ToolFailed):
            await ctx.step(Step("charge", circuit_breaker={"failure_threshold": 1}), fail)
        await ctx.step(Step("charge", circuit_breaker={"failure_threshold": 1}), fail)

    run_id = (await rig.run(app)).run_id
    own = [error async for error in errors_of(rig, run_id, is_strict=False)]
    replaced = [error async for error in errors_of(rig, run_id, is_strict=True)]
    assert ("CIRCUIT_OPEN", None) in own
    assert ("TOOL_ERROR", "CIRCUIT_OPEN") in replaced
    assert len(replaced) == len(own)
    assert {code for code, _ in replaced} <= set(SPECIFIED_CODES)


async def errors_of(rig: Rig, run_id: str, *, is_strict: bool) -> AsyncIterator[tuple[str, Any]]:
    """The code and the reason of each error among the control signals of a run."""
    async for envelope in rig.client.control_signals(run_id, strict=is_strict):
        payload: Any = envelope.signal.payload
        error = payload if envelope.signal.type == "error" else getattr(payload, "error", None)
        if error is not None:
            yield error.code, (error.details or {}).get("reason")
