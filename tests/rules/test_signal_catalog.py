"""The catalog: payloads of the specification are valid, missing keys are named, and the page has the same table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph.signals.catalog import CATALOG
from heliograph.signals.names import RESERVED_FIRST_SEGMENTS, RESERVED_NAMES, check_name
from heliograph.signals.pattern import compile_pattern
from heliograph.testing.oracles.standard_payloads import check_standard
from tools.docs import render_catalog

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "signals.md"
FAILURE = {"code": "TIMEOUT", "message": "late", "recoverable": False}


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        pytest.param("workflow:start", {"state": {}}, marks=pytest.mark.proves("SIG-20")),
        pytest.param("workflow:end", {"state": {}, "metrics": {}}, marks=pytest.mark.proves("SIG-21")),
        ("workflow:terminating", {"reason": "endWhen"}),
        pytest.param("agent:activated", {"agent": "analyzer"}, marks=pytest.mark.proves("SIG-22")),
        pytest.param("agent:skipped", {"agent": "a", "reason": "when guard false"}, marks=pytest.mark.proves("SIG-23")),
        pytest.param("agent:completed", {"agent": "a", "output": None}, marks=pytest.mark.proves("SIG-24")),
        ("agent:failed", {"agent": "a", "outcome": "timeout", "error": FAILURE, "deliverable_card_id": None}),
        ("agent:progress", {"agent": "a", "fraction": 1, "message": "half"}),
        pytest.param("harness:start", {"model": "m"}, marks=pytest.mark.proves("SIG-25")),
        pytest.param(
            "harness:end",
            {"usage": {"inputTokens": 1, "outputTokens": 2}, "output": "x", "durationMs": 1.5},
            marks=pytest.mark.proves("SIG-26", "G-43"),
        ),
        pytest.param("harness:error", {"error": "late", **FAILURE}, marks=pytest.mark.proves("SIG-27", "G-43")),
        pytest.param("text:delta", {"content": "The ", "offset": 0}, marks=pytest.mark.proves("SIG-28")),
        ("text:complete", {"content": "The end"}),
        pytest.param("thinking:delta", {"content": "Hm"}, marks=pytest.mark.proves("SIG-30")),
        pytest.param("thinking:complete", {"content": "Hm"}, marks=pytest.mark.proves("SIG-31")),
        pytest.param("tool:call", {"id": "1", "name": "Read", "input": {}}, marks=pytest.mark.proves("G-43")),
        pytest.param("tool:result", {"id": "1", "name": "Read", "output": ""}, marks=pytest.mark.proves("G-43")),
        pytest.param("state:score:changed", {"value": 0.95}, marks=pytest.mark.proves("SIG-34")),
        ("ready", {"capabilities": [], "version": "1.0"}),
        ("plan_ready", {"steps": 3, "tools_required": []}),
        ("action_complete", {"steps_executed": 3, "success": True}),
        ("reflection_complete", {"decision": "goal_achieved", "confidence": 0.9}),
        ("reflection_complete", {"decision": "iteration_needed", "reason": "a gap"}),
        ("terminated", {"status": "success", "outputs": []}),
        ("error", {"error_code": "TIMEOUT", "message": "late", "recoverable": False}),
        ("halt", {"reason": "user_interrupt"}),
        ("heartbeat", {"timestamp": "2026-01-31T09:30:00Z", "phase": "act"}),
    ],
)
def test_sound_payload_has_no_problems_and_requires_each_of_its_keys(name: str, payload: dict[str, Any]) -> None:
    assert check_standard(name, payload) == []
    assert check_standard(name, payload | {"more": 1}) == []
    (entry,) = [entry for entry in CATALOG if compile_pattern(entry.name).matches(name)]
    required = {key for key in entry.payload if not key.endswith("?")}
    assert required <= set(payload)
    for key in required:
        without = {other: value for other, value in payload.items() if other != key}
        assert check_standard(name, without) == [f"{name}: '{key}' is missing"]


@pytest.mark.parametrize(
    ("name", "payload", "problem"),
    [
        ("agent:activated", {"agent": 1}, "agent:activated.agent: expected string, not int"),
        ("agent:progress", {"agent": "a", "fraction": True}, "agent:progress.fraction: expected number, not bool"),
        ("agent:activated", None, "agent:activated: expected an object, not NoneType"),
        (
            "harness:end",
            {"usage": {"inputTokens": 1, "outputTokens": "2"}},
            "harness:end.usage.outputTokens: expected integer, not str",
        ),
        ("harness:end", {"usage": 3}, "harness:end.usage: expected an object, not int"),
        ("text:delta", {"content": "", "offset": None}, "text:delta.offset: expected integer, not NoneType"),
    ],
)
def test_wrongly_typed_key_is_named_with_its_required_type(name: str, payload: Any, problem: str) -> None:
    assert check_standard(name, payload) == [problem]


@pytest.mark.proves("SIG-35")
def test_custom_signal_accepts_any_payload() -> None:
    assert check_standard("analysis:complete", ["any", 1]) == []


@pytest.mark.parametrize("name", ["agent:finished", "state:score", "kernel:x", "tool"])
def test_reserved_name_outside_the_catalog_is_a_problem(name: str) -> None:
    assert check_standard(name, {}) == [f"{name}: a reserved name that is not in the catalog"]


def test_only_the_runtime_may_emit_names_of_the_catalog() -> None:
    for entry in CATALOG:
        name = check_name(entry.name.replace("*", "key"))
        assert name in RESERVED_NAMES or name.partition(":")[0] in RESERVED_FIRST_SEGMENTS


def test_page_on_signals_lists_the_current_catalog() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.endswith(render_catalog())
    assert render_catalog().count("\n") == len(CATALOG) + 2
