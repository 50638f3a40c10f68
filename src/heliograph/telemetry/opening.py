"""Open the telemetry of a process. Without it, nothing of OpenTelemetry is imported."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from heliograph.errors import SetupError
from heliograph.ports import Tracer
from heliograph.telemetry.null_tracer import NULL_TRACER
from heliograph.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from heliograph.telemetry.otel_metrics import MetricExport

log = logging.getLogger("heliograph.telemetry")
_warned: set[str] = set()


def open_metric_export(settings: TelemetrySettings) -> MetricExport | None:
    """Open the export of metrics; None if it is off. Raises SetupError (`no_otel_library`), InvalidInput for a wrong interval."""
    if not (settings.is_on and settings.metrics):
        return None
    try:
        from heliograph.telemetry.otel_metrics import MetricExport
    except ImportError as error:
        raise SetupError("telemetry needs OpenTelemetry: pip install 'heliograph[otel]', or set HELIOGRAPH_OTEL=0",
                         code="no_otel_library") from error  # fmt: skip
    return MetricExport(settings)


@asynccontextmanager
async def open_telemetry(settings: TelemetrySettings, now: Callable[[], datetime]) -> AsyncIterator[Tracer]:
    """Open the tracer. At the end, spans are exported for at most `FLUSH_SECONDS`. now: the clock of the world.

    Raises SetupError (`no_otel_library`) if telemetry is on and not installed.
    """
    for warning in settings.warnings:
        if warning not in _warned:  # once in a process, which may open several databases
            _warned.add(warning)
            log.warning("%s", warning)
    if not (settings.is_on and settings.traces):
        yield NULL_TRACER
        return
    try:
        from heliograph.telemetry.otel_export import span_export
    except ImportError as error:
        raise SetupError("telemetry needs OpenTelemetry: pip install 'heliograph[otel]', or set HELIOGRAPH_OTEL=0",
                         code="no_otel_library") from error  # fmt: skip
    export = span_export(settings)
    try:
        yield export.tracer(now)
    finally:
        await export.flush()
