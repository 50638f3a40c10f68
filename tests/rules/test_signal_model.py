"""Signals as JSON, in the format of the specification."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.signals.model import Draft, Signal, Source, to_wire
from heliograph.types import Json

AT = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


def a_signal(source: Source | None = None, at: datetime = AT) -> Signal:
    return Signal(
        id="sig_abc_2",
        name="analysis:complete",
        payload={"score": 0.5},
        timestamp=at,
        source=source,
        run_id="run_abc",
        seq=2,
        turn_id="turn_1",
    )


@pytest.mark.proves("SIG-10", "SIG-11", "SIG-12", "SIG-13", "SIG-15", "SIG-16")
def test_wire_format_has_the_specified_shape_and_the_position() -> None:
    assert to_wire(a_signal(Source(agent="analyzer", parent="sig_abc_1"))) == {
        "id": "sig_abc_2",
        "name": "analysis:complete",
        "payload": {"score": 0.5},
        "timestamp": "2026-01-31T09:30:00.000000Z",
        "source": {"agent": "analyzer", "parent": "sig_abc_1"},
        "run_id": "run_abc",
        "seq": 2,
    }


@pytest.mark.proves("SIG-12")
@pytest.mark.parametrize("payload", [None, False, 0, "", [], {}, "text", [1, {"deep": None}]])
def test_wire_format_transports_any_json_payload_unchanged(payload: Json) -> None:
    wire = to_wire(msgspec.structs.replace(a_signal(), payload=payload))
    assert wire["payload"] == payload
    assert type(wire["payload"]) is type(payload)


@pytest.mark.proves("SIG-14", "SIG-15", "SIG-16")
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (Source(agent="analyzer"), {"agent": "analyzer"}),
        (Source(parent="sig_abc_1"), {"parent": "sig_abc_1"}),
        (Source(), None),
        (None, None),
    ],
    ids=["agent only", "parent only", "neither", "no source"],
)
def test_absent_parts_of_the_source_are_omitted(source: Source | None, expected: object) -> None:
    assert to_wire(a_signal(source)).get("source") == expected


def test_timestamp_of_another_zone_is_written_in_utc() -> None:
    there = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert to_wire(a_signal(at=there))["timestamp"] == "2026-01-31T09:30:00.000000Z"


def test_signal_without_source_has_neither_agent_nor_parent() -> None:
    assert (a_signal().agent, a_signal().parent) == (None, None)
    assert (a_signal(Source("a", "sig_1")).agent, a_signal(Source("a", "sig_1")).parent) == ("a", "sig_1")


def test_signal_decodes_from_json_with_its_payload_unchanged() -> None:
    signal = a_signal(Source("a", "sig_abc_1"))
    assert msgspec.json.decode(msgspec.json.encode(signal), type=Signal) == signal


def test_draft_may_name_its_parent_by_id_or_by_its_place_in_the_batch() -> None:
    assert Draft("a:b").parent is None
    assert Draft("a:b", {}, parent="sig_abc_1").parent == "sig_abc_1"
    assert Draft("a:b", {}, parent=0).parent == 0


parts = st.none() | st.text("abc_-09", min_size=1, max_size=5)
sources = st.builds(Source, agent=parts, parent=parts).map(lambda source: source if source != Source() else None)


@given(
    source=sources,
    at=st.datetimes(datetime(1970, 1, 2), datetime(2999, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds
    payload=st.none() | st.booleans() | st.integers() | st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
    seq=st.integers(1, 2**40),
)
def test_wire_format_of_a_signal_reads_back_unchanged(
    source: Source | None, at: datetime, payload: Json, seq: int
) -> None:
    signal = Signal(f"sig_r_{seq}", "a:b", payload, at, source, "run_r", seq)
    assert msgspec.convert({"source": None, **to_wire(signal)}, Signal) == signal
