"""Report an outage of the collector in one line of the log, and not in one for each batch that it loses."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

log = logging.getLogger("heliograph.telemetry")

_FULL_SECONDS = 60.0

# The loggers of OpenTelemetry that write a line for each batch.
_LOGGERS = ("opentelemetry.sdk._shared_internal", "opentelemetry.exporter.otlp.proto.grpc.exporter",
            "opentelemetry.exporter.otlp.proto.http.trace_exporter",
            "opentelemetry.exporter.otlp.proto.http.metric_exporter")  # fmt: skip


class ExportOutage:
    """The state of one way to a collector.

    where: its URL, for the log; None if a standard variable or a default chooses it. is_rejecting: the last export failed.
    """

    def __init__(self, where: str | None, clock: Callable[[], float] = time.monotonic):
        self._where = where or "OTEL_EXPORTER_OTLP_ENDPOINT"
        self._clock = clock
        self._lock = threading.Lock()
        self._lost = 0
        self._is_on = False
        self._full_until = 0.0  # a slow collector accepts batches, and the queue is full again at once
        self.is_rejecting = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_renew_lock, weakref.ref(self)))

    def failed(self, count: int, what: str) -> None:
        """Note that the collector did not accept `count` spans or metrics."""
        self.is_rejecting = True
        self._lose(count, what)

    def was_full(self) -> None:
        """Note that a span is lost because the queue is full. This outage ends after a minute without such a loss."""
        self._full_until = self._clock() + _FULL_SECONDS
        self._lose(1, "spans as fast as they are recorded")

    def _lose(self, count: int, what: str) -> None:
        with self._lock:
            is_new, self._is_on = not self._is_on, True
            self._lost += count
        if is_new:
            log.warning("the collector at %s does not accept %s; they are lost until it does", self._where, what)

    def succeeded(self) -> None:
        """Note that the collector has accepted data."""
        self.is_rejecting = False
        with self._lock:
            if self._clock() < self._full_until:
                return
            lost, self._lost, was_on, self._is_on = self._lost, 0, self._is_on, False
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


def _renew_lock(outage: weakref.ref[ExportOutage]) -> None:
    """Give an outage a new lock in a forked process, because a thread that this process lacks may hold the old one."""
    if (kept := outage()) is not None:
        kept._lock = threading.Lock()


class _Quiet(logging.Filter):
    """Drops the lines of OpenTelemetry that it writes for our exporters, and takes a full queue for an outage."""

    def __init__(self) -> None:
        super().__init__()
        self.current = threading.local()

    @property
    def outage(self) -> ExportOutage | None:
        return getattr(self.current, "outage", None)

    @outage.setter
    def outage(self, value: ExportOutage | None) -> None:
        self.current.outage = value

    def filter(self, record: logging.LogRecord) -> bool:
        if (outage := self.outage) is None:
            return True
        if str(record.msg).startswith("Queue full"):
            outage.was_full()
        return False


_quiet = _Quiet()


def notice_full_queue(outage: ExportOutage | None) -> None:
    """Report to `outage` if this thread finds the queue full from now on; None ends this. Each recorded span calls it twice."""
    _quiet.current.outage = outage


def keep_quiet() -> None:
    """Install the filter once for each logger."""
    for name in _LOGGERS:
        if _quiet not in (logger := logging.getLogger(name)).filters:
            logger.addFilter(_quiet)
