"""Settings of control signals, the signals that they compose, and the expressions of their templates."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heliograph.control.envelope import Envelope
from heliograph.control.expressions import NAMES, evaluate, uuid_from
from heliograph.control.payloads import ToolCallPayload
from heliograph.control.settings import ControlSettings, RetrySettings, read_settings
from heliograph.control.signals import CONTROL_SIGNALS, ToolCallSignal
from heliograph.errors import InvalidInput
from heliograph.signals.json_parser import parse_json
from tests.rules.control_examples import CORRELATION, SETTINGS, SETTINGS_BUILT
from tests.rules.control_kit import MINIMAL

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@cache
def parent_of_req_1() -> Envelope:
    signal = ToolCallSignal(payload=ToolCallPayload(tool_name="search", parameters={}, correlation_id="req-1"))
    return Envelope(
        id="msg-1", timestamp=datetime(2024, 1, 15, tzinfo=UTC), source="lead", destination="search", trace_id="trace-1",
        span_id="span-1", signal=signal,
    )  # fmt: skip


class Ids:
    """Ids as a world creates them: each one new."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = iter(range(1000))

    def __call__(self) -> str:
        return f"sig_{next(self._numbers)}"


def rejected(wire: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read_settings(wire)
    return caught.value


@pytest.mark.proves("CTL-04", "CTL-73")
@pytest.mark.parametrize("name", SETTINGS)
def test_example_of_settings_is_the_same_over_the_wire_and_in_python(name: str) -> None:
    received = read_settings(parse_json(json.dumps(SETTINGS[name])))
    assert received == SETTINGS_BUILT[name]()
    sent: Any = received.to_wire()
    for kind, given_settings in SETTINGS[name].items():
        assert sent[kind] == {**sent[kind], **given_settings}
    assert read_settings(parse_json(json.dumps(sent))) == received


@pytest.mark.proves("CTL-04")
def test_settings_override_the_defaults_of_a_type_and_one_signal_overrides_the_settings() -> None:
    settings = read_settings(
        {"tool_call": {"async": False, "timeout_seconds": 120}, "heartbeat": {"interval_seconds": 7}}
    )
    composed = settings.compose("tool_call", MINIMAL["tool_call"], Ids())
    assert (composed.async_, composed.timeout_seconds) == (False, 120)
    own = settings.compose("tool_call", MINIMAL["tool_call"], Ids(), async_=True, timeout_seconds=10)
    assert (own.async_, own.timeout_seconds) == (True, 10)
    other = settings.compose("delegation", MINIMAL["delegation"], Ids())
    assert (other.async_, other.timeout_seconds) == (True, 300)
    assert settings.compose("heartbeat", MINIMAL["heartbeat"], Ids()).to_wire()["interval_seconds"] == 7


@pytest.mark.parametrize(
    ("keys", "first", "factor"),
    [({}, 1000, 2), ({"backoff_ms": 5000}, 5000, 2), ({"backoff_ms": 200, "backoff_multiplier": 3}, 200, 3),
     ({"initial_delay_ms": 50}, 50, 2)],
)  # fmt: skip
def test_both_shapes_of_a_retry_give_the_same_settings(keys: Any, first: float, factor: float) -> None:
    retry = read_settings({"tool_call": {"retry": keys}}).tool_call.retry
    assert isinstance(retry, RetrySettings)
    assert (retry.strategy, retry.first_delay_ms, retry.factor, retry.max_delay_ms) == (
        "exponential",
        first,
        factor,
        30_000,
    )


@pytest.mark.parametrize("backoff", ["backoff_ms", "backoff_multiplier"])
@pytest.mark.parametrize(
    ("key", "value"), [("strategy", "linear"), ("initial_delay_ms", 1000), ("max_delay_ms", 30_000), ("jitter", True)]
)
def test_both_shapes_of_a_retry_at_once_are_rejected(backoff: str, key: str, value: Any) -> None:
    error = rejected({"tool_call": {"retry": {backoff: 2, key: value}}})
    assert (error.code, error.path) == ("two_retry_shapes", f"/tool_call/retry/{key}")
    assert f"'{backoff}' and '{key}'" in error.message


@pytest.mark.proves("CTL-06")
@pytest.mark.parametrize(
    ("wire", "code", "path"),
    [
        ({"tool_cal": {}}, "unknown_signal_type", "/tool_cal"),
        ({"tool_call_response": {}}, "unknown_signal_type", "/tool_call_response"),
        ({"tool_call": {"timeout": 5}}, "unknown_field", "/tool_call/timeout"),
        ({"tool_call": []}, "wrong_type", "/tool_call"),
        ({"tool_call": {"retry": {"strategy": "exponentially"}}}, "invalid_enum", "/tool_call/retry/strategy"),
        ({"tool_call": {"retry": {"max_attempts": 0}}}, "out_of_range", "/tool_call/retry/max_attempts"),
        ({"tool_call": {"retry": {"max_attempts": 1.5}}}, "wrong_type", "/tool_call/retry/max_attempts"),
        ({"tool_call": {"force_after_seconds": 5}}, "unknown_field", "/tool_call/force_after_seconds"),
        ({"delegation": {"circuit_breaker": {"failure_threshold": True}}}, "wrong_type",
         "/delegation/circuit_breaker/failure_threshold"),
        ([], "wrong_type", None),
    ],
)  # fmt: skip
def test_malformed_settings_are_rejected_with_their_pointer(wire: Any, code: str, path: str | None) -> None:
    error = rejected(wire)
    assert (error.code, error.path) == (code, path)


@pytest.mark.proves("CTL-90", "G-16")
@pytest.mark.parametrize("kind", list(CONTROL_SIGNALS))
def test_composed_request_always_has_a_correlation_id(kind: str) -> None:
    signal = ControlSettings().compose(kind, MINIMAL[kind], Ids())
    found = getattr(signal.payload, "correlation_id", None)
    if kind in ("tool_call", "delegation"):
        assert UUID.fullmatch(str(found))
        own = ControlSettings().compose(kind, {**MINIMAL[kind], "correlation_id": "req-7"}, Ids())
        assert own.payload["correlation_id"] == "req-7"
    else:
        assert found is None


@pytest.mark.proves("CTL-91", "G-16")
def test_composed_request_has_the_correlation_id_of_its_parent() -> None:
    signal = ControlSettings().compose("delegation", MINIMAL["delegation"], Ids(), parent=parent_of_req_1())
    assert signal.payload["parent_correlation_id"] == "req-1"
    assert (
        "parent_correlation_id"
        not in ControlSettings().compose("delegation", MINIMAL["delegation"], Ids()).payload.to_wire()
    )


@pytest.mark.proves("CTL-90", "CTL-91", "G-30")
def test_example_of_a_template_gives_each_signal_its_own_id_and_that_of_its_parent() -> None:
    settings = read_settings({"tool_call": {"payload": CORRELATION}})
    ids = Ids()
    first, second = (
        settings.compose("tool_call", MINIMAL["tool_call"], ids, parent=parent_of_req_1()).payload for _ in range(2)
    )
    assert first["correlation_id"] == uuid_from("sig_0")
    assert second["correlation_id"] == uuid_from("sig_1")
    assert first["parent_correlation_id"] == second["parent_correlation_id"] == "req-1"
    root = settings.compose("tool_call", MINIMAL["tool_call"], ids).payload.to_wire()
    assert UUID.fullmatch(str(root["correlation_id"]))
    assert "parent_correlation_id" not in root


@pytest.mark.proves("G-30")
@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${parent.correlation_id}", "req-1"),
        ("${ parent.id }", "msg-1"),
        ("from ${parent.source} to ${parent.destination}", "from lead to search"),
        ({"a": ["${parent.trace_id}", 7, None, "plain"]}, {"a": ["trace-1", 7, None, "plain"]}),
        ("$${uuid()} is literal, $5 and ${parent.span_id} are not", "${uuid()} is literal, $5 and span-1 are not"),
        ("${parent.parent_correlation_id}", None),
        ({"${parent.id}": 1}, {"${parent.id}": 1}),
    ],
)
def test_expressions_of_the_fixed_list_have_values(template: Any, value: Any) -> None:
    assert evaluate(template, Ids(), parent_of_req_1()) == value


@pytest.mark.proves("G-30")
def test_value_that_looks_like_an_expression_is_unchanged() -> None:
    hostile = "${uuid()} ${parent.id} ${__import__('os')}"
    signal = ToolCallSignal(payload=ToolCallPayload(tool_name="a", parameters={}, correlation_id=hostile))
    parent = Envelope(**{**dict(parent_of_req_1()), "signal": signal})
    assert evaluate(["${parent.correlation_id}", "<${parent.correlation_id}>"], Ids(), parent) == [
        hostile,
        f"<{hostile}>",
    ]
    settings = read_settings({"tool_call": {"payload": CORRELATION}})
    composed = settings.compose("tool_call", {"tool_name": "a", "parameters": {"text": hostile}}, Ids(), parent=parent)
    assert composed.payload["parameters"] == {"text": hostile}
    assert composed.payload["parent_correlation_id"] == hostile


@pytest.mark.proves("G-30")
@pytest.mark.parametrize(
    "text",
    ["${parent.corelation_id}", "${uuid}", "${}", "${", "${parent}", "${__import__('os').system('x')}", "${a${uuid()}}",
     "${parent.signal}", "${parent.__class__}", "${env.HOME}", "${HOME:-x}", "${uuid()", "x ${" + "a" * 300 + "}"],
)  # fmt: skip
def test_unknown_expression_is_rejected_with_its_place(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        evaluate({"deep": [text]}, Ids(), parent_of_req_1())
    assert (caught.value.code, caught.value.path) == ("unknown_expression", "/deep/0")
    assert ("did you mean parent.correlation_id?" in caught.value.message) == (text == "${parent.corelation_id}")


@pytest.mark.proves("G-30")
def test_part_of_a_text_needs_a_value() -> None:
    with pytest.raises(InvalidInput) as caught:
        evaluate({"note": "caused by ${parent.id}"}, Ids())
    assert (caught.value.code, caught.value.path) == ("no_parent", "/note")


@pytest.mark.proves("G-30")
@given(st.text("${}", max_size=12), st.sampled_from(NAMES))
def test_text_without_an_opening_is_never_changed(text: str, name: str) -> None:
    plain = text.replace("${", "")
    assume("${" not in plain)
    assert evaluate(plain + name, Ids(), parent_of_req_1()) == plain + name


@pytest.mark.proves("CTL-90")
def test_uuid_depends_only_on_the_id_of_the_world() -> None:
    found = {uuid_from(f"sig_{n}") for n in range(1000)}
    assert len(found) == 1000
    assert all(UUID.fullmatch(each) for each in found)
    assert uuid_from("sig_1") == uuid_from("sig_1")


def test_settings_do_not_change_their_template() -> None:
    template = copy.deepcopy(CORRELATION)
    settings = read_settings({"tool_call": {"payload": template}})
    settings.compose("tool_call", MINIMAL["tool_call"], Ids(), parent=parent_of_req_1())
    assert settings.tool_call.payload == CORRELATION == template
