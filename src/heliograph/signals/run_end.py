"""Read and check the last signal of a run, `workflow:end`. Someone may have edited its payload in the database."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from heliograph.codes import UNDECODABLE
from heliograph.errors import KernelRejected
from heliograph.signals.model import Signal
from heliograph.types import JsonObject

END = "workflow:end"
_MILLISECONDS_MAX = 1e15  # far within the range of a timedelta, which the command line computes


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
    """Return the payload of a run's `workflow:end`.

    signal: the last signal of the run's log; None if the log is empty. Raises KernelRejected (UNDECODABLE) for a missing or
    malformed `workflow:end`.
    """
    if signal is None or signal.name != END:
        raise KernelRejected(f"run {run_id} has ended, but its log does not end with workflow:end", code=UNDECODABLE,
                            hint=f"helio signal tail --run {run_id} lists the log")  # fmt: skip
    try:
        msgspec.convert(signal.payload, _End)
    except msgspec.ValidationError as error:
        raise KernelRejected(f"the payload of {signal.id} (workflow:end) is malformed: {error}",
                            code=UNDECODABLE, hint=f"helio signal tail --run {run_id} shows it") from error  # fmt: skip
    assert isinstance(signal.payload, dict)
    return signal.payload
