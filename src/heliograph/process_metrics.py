"""Measure this process: memory, processor time, open files and connections. A value that the system does not provide is omitted."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import resource  # not on Windows
except ImportError:
    resource = None  # type: ignore[assignment]

_MB = 1024 * 1024
_CPU_SECONDS_MIN = 1.0  # a shorter time, as at the start of a process, does not show its load
_UNLIMITED_BYTES = 2**60  # version 1 of cgroups writes a number near 2**63 for no limit
# By the controllers of a line of /proc/self/cgroup, for versions 2 and 1: the mount, and the file with the limit.
_MEMORY_LIMITS = {"": ("sys/fs/cgroup", "memory.max"), "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes")}


class ProcessMetrics:
    """Reads the metrics; the processor's share counts from the previous reading. root: replaced by tests."""

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)
        self._started = self._read_at = time.monotonic()
        self._cpu_seconds = time.process_time()
        self.memory_limit_mb = self._memory_limit_mb()

    def read(self) -> dict[str, float]:
        """Return what can be measured of these.

        memory_mb: resident memory. memory_percent: its share of the limit of the container, or of the machine's memory.
        cpu_percent: of one processor. open_connections: sockets. open_files_percent: of the limit of the process.
        """
        now, cpu = time.monotonic(), time.process_time()
        metrics = {"uptime_seconds": round(now - self._started, 1)}
        if now >= self._read_at + _CPU_SECONDS_MIN:
            metrics["cpu_percent"] = round(100 * (cpu - self._cpu_seconds) / (now - self._read_at), 1)
            self._read_at, self._cpu_seconds = now, cpu
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages = int((self._root / "proc/self/statm").read_text("ascii").split()[1])
            metrics["memory_mb"] = round(pages * os.sysconf("SC_PAGE_SIZE") / _MB, 1)
            if self.memory_limit_mb is not None:
                metrics["memory_percent"] = round(100 * metrics["memory_mb"] / self.memory_limit_mb, 1)
        return {**metrics, **self._read_files()}

    def _read_files(self) -> dict[str, float]:
        """Count the open files, and the sockets among them."""
        files = sockets = 0
        try:
            for name in os.listdir(self._root / "proc/self/fd"):
                with contextlib.suppress(OSError):  # the folder itself, which is closed by now
                    sockets += stat.S_ISSOCK(os.stat(self._root / "proc/self/fd" / name).st_mode)
                    files += 1
        except OSError:
            return {}
        counts: dict[str, float] = {"open_connections": sockets}
        if resource is not None:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if limit > 0:  # negative: unlimited
                counts["open_files_percent"] = round(100 * files / limit, 1)
        return counts

    def _memory_limit_mb(self) -> float | None:
        """The least of the limits that apply, in megabytes; None if none is known."""
        limits = [value / _MB for value in self._limits() if 0 < value < _UNLIMITED_BYTES]
        return round(min(limits), 1) if limits else None

    def _limits(self) -> Iterator[int]:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for place in self._cgroups():
            with contextlib.suppress(OSError, ValueError):  # "max" is no number
                yield int((self._root / place).read_text("ascii"))

    def _cgroups(self) -> Iterator[str]:
        """The files with the memory limits of the process's cgroup and of those above it, in a container or outside."""
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = (self._root / "proc/self/cgroup").read_text("ascii", "replace").splitlines()
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if controllers not in _MEMORY_LIMITS:
                continue
            mount, limit = _MEMORY_LIMITS[controllers]
            parts = [part for part in path.split("/") if part]
            for depth in range(len(parts), -1, -1):
                yield "/".join([mount, *parts[:depth], limit])
