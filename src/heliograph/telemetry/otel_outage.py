"""Report an outage of the collector in one line of the log, and not in one for each batch that it loses."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("heliograph.telemetry")

# The loggers of OpenTelemetry that write a line for each batch.
_LOGGERS = ("opentelemetry.sdk._shared_internal", "opentelemetry.exporter.otlp.proto.grpc.exporter",
            "opentelemetry.exporter.otlp.proto.http.trace_exporter",
            "opentelemetry.exporter.otlp.proto.http.metric_exporter")  # fmt: skip


class ExportOutage:
    """The state of one way to a collector. where: its URL, for the log; None if a standard variable or a default chooses it."""

    def __init__(self, where: str | None):
        self._where = where or "OTEL_EXPORTER_OTLP_ENDPOINT"
        self._lock = threading.Lock()
        self._lost = 0
        self.is_on = False

    def failed(self, count: int, what: str) -> None:
        """Note that `count` spans or metrics are lost."""
        with self._lock:
            is_new, self.is_on = not self.is_on, True
            self._lost += count
        if is_new:
            log.warning("the collector at %s does not accept %s; they are lost until it does", self._where, what)

    def succeeded(self) -> None:
        with self._lock:
            lost, self._lost, was_on, self.is_on = self._lost, 0, self.is_on, False
        if was_on:
            log.info("the collector at %s accepts data again; %d items were lost", self._where, lost)

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Keep OpenTelemetry's own lines about failed exports out of the log, because this object reports them."""
        _quiet.outage = self
        try:
            yield
        finally:
            _quiet.outage = None


class _Quiet(logging.Filter):
    """Drops the lines of OpenTelemetry that it writes for our exporters, and takes a full queue for an outage."""

    def __init__(self) -> None:
        super().__init__()
        self._current = threading.local()

    @property
    def outage(self) -> ExportOutage | None:
        return getattr(self._current, "outage", None)

    @outage.setter
    def outage(self, value: ExportOutage | None) -> None:
        self._current.outage = value

    def filter(self, record: logging.LogRecord) -> bool:
        if (outage := self.outage) is None:
            return True
        if str(record.msg).startswith("Queue full"):
            outage.failed(1, "spans as fast as they are recorded")
        return False


_quiet = _Quiet()


def keep_quiet() -> None:
    """Install the filter once for each logger."""
    for name in _LOGGERS:
        if _quiet not in (logger := logging.getLogger(name)).filters:
            logger.addFilter(_quiet)
