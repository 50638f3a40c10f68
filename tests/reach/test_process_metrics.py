"""Metrics of a process: those of this one, of containers with limits, and of systems without /proc."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from heliograph.process_metrics import ProcessMetrics

MB = 1024 * 1024


@pytest.mark.proves("CTL-62")
def test_own_process_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = ProcessMetrics()
    before = metrics.read()
    assert "cpu_percent" not in before  # the time was too short
    monkeypatch.setattr("heliograph.process_metrics._CPU_SECONDS_MIN", 0.0)
    with socket.socket(), socket.socket():
        sum(range(300_000))  # something to measure
        after = metrics.read()
    assert after["open_connections"] == before["open_connections"] + 2
    assert after["uptime_seconds"] >= before["uptime_seconds"] >= 0
    assert after["cpu_percent"] > 0
    assert 1 < after["memory_mb"] < 100_000
    assert 0 < after["memory_percent"] < 100
    assert 0 < after["open_files_percent"] < 100


def test_system_without_proc_leaves_values_out(tmp_path: Path) -> None:
    assert set(ProcessMetrics(str(tmp_path)).read()) == {"uptime_seconds"}


@pytest.mark.parametrize(
    ("line", "limits", "expected"),
    [
        ("0::/pod/app", {"pod/memory.max": "268435456", "pod/app/memory.max": "max"}, 256),
        ("0::/pod/app", {"pod/memory.max": "268435456", "pod/app/memory.max": "134217728"}, 128),
        ("0::/", {"memory.max": "67108864"}, 64),
        ("4:memory:/pod", {"memory/pod/memory.limit_in_bytes": "33554432"}, 32),
        ("4:cpu:/pod", {"memory/pod/memory.limit_in_bytes": "33554432"}, None),
        ("4:memory:/pod", {"memory/pod/memory.limit_in_bytes": str(2**63 - 4096)}, None),
    ],
)
def test_memory_limit_is_the_least_of_the_cgroups(
    tmp_path: Path, line: str, limits: dict[str, str], expected: int | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{line}\n")
    (tmp_path / "proc/self/statm").write_text("9999 4096 1 1 0 1 0\n")
    for name, limit in limits.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")
    metrics = ProcessMetrics(str(tmp_path))
    machine = ProcessMetrics(str(tmp_path / "elsewhere")).memory_limit_mb
    assert metrics.memory_limit_mb == (machine if expected is None else expected)
    read = metrics.read()
    assert read["memory_mb"] == 16
    if expected is not None:
        assert read["memory_percent"] == round(1600 / expected, 1)
