"""The end of a run, read from its signal `workflow:end`: its payload may have been replaced in the ledger."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from heliograph.codes import UNDECODABLE
from heliograph.errors import KernelRejected
from heliograph.signals.model import Signal
from heliograph.types import JsonObject

_MILLISECONDS_MAX = 1e15  # a timedelta holds 86 times as much


class _Usage(msgspec.Struct):
    inputTokens: int
    outputTokens: int


class _Metrics(msgspec.Struct):
    turns: int
    failed: int
    skipped: int
    usage: _Usage
    duration_ms: Annotated[float, msgspec.Meta(ge=0, le=_MILLISECONDS_MAX)]


class _End(msgspec.Struct):
    outcome: str
    state: dict[str, Any]
    metrics: _Metrics
    reason: str | None = None
    code: str | None = None


def read_end(run_id: str, signal: Signal | None) -> JsonObject:
    """The payload of a run's `workflow:end`. Raises KernelRejected (UNDECODABLE) for one that describes no end."""
    if signal is None or signal.name != "workflow:end":
        raise KernelRejected(f"run {run_id} has ended, and its log has no workflow:end", code=UNDECODABLE)
    try:
        msgspec.convert(signal.payload, _End)
    except msgspec.ValidationError as error:
        raise KernelRejected(f"the payload of {signal.id} (workflow:end) describes no end: {error}",
                            code=UNDECODABLE, hint=f"helio signal tail --run {run_id} shows it") from error  # fmt: skip
    assert isinstance(signal.payload, dict)
    return signal.payload
