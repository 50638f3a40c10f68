"""A worker process that sends its metrics to a collector, with and without a listener."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.faces.cli_support import Shell, open_shell
from tests.reach.otlp_receiver import receiving_http


@pytest.mark.more
@pytest.mark.proves("OBS-02")
async def test_worker_sends_its_metrics_and_once_more_when_it_ends(tmp_path: Path, database_url: str) -> None:
    open_shell(tmp_path, database_url)
    with receiving_http() as receiver:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_TRACES_EXPORTER": "none"}
        shell = Shell(tmp_path, database_url, settings)
        worker = shell.start("worker", "press.py:app")
        try:
            await asyncio.to_thread(worker.read_until, "started: serves press")
            done = await asyncio.to_thread(Shell(tmp_path, database_url).helio, "run", "press.py:app", "--no-worker")
            assert done.returncode == 0, done.stderr
            assert "signal_count" not in receiver.metrics  # the first export is due after a minute
            worker.signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.end) == 0
        finally:
            worker.signal(signal.SIGKILL)
        ready = receiver.points("signal_count", "sum")["signal_type=ready", "status=sent"]
        assert ready.as_double == 2
        assert set(receiver.points("agent.lifecycle.act.started", "sum")) == {("agent=writer",), ("agent=critic",)}
        assert receiver.points("heliograph_database_up", "gauge")[()].as_double == 1
