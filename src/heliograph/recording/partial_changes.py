"""Changes of the state in a recording of an earlier version, as this version records them (decisions 0145 and 0180)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from heliograph.recording.recording import Recording
from heliograph.signals.model import Signal
from heliograph.signals.state_change import change_payload, changed_key, changed_value


def with_partial_changes(recording: Recording) -> Recording:
    """The recording with the parts of values in place of whole values. Earlier versions recorded the whole value of each change."""
    signals = _changed(recording.signals)
    if signals == list(recording.signals):
        return recording
    return Recording(recording.header, signals, recording.parts, recording.gaps, recording.untrusted)


def _changed(signals: Sequence[Signal]) -> list[Signal]:
    state: dict[str, Any] = {}
    found = list[Signal]()
    for signal in signals:
        payload: Any = signal.payload
        if signal.name in ("workflow:start", "workflow:forked") and isinstance(payload, dict):
            state = dict(payload["state"]) if isinstance(payload.get("state"), dict) else state
        key = changed_key(signal.name)
        if key is None or not isinstance(payload, dict) or "value" not in payload:
            found.append(signal)
            continue
        before, state[key] = state.get(key), changed_value(state.get(key), payload)
        found.append(replace(signal, payload=change_payload(before, state[key])))
    return found
