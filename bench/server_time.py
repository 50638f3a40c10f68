"""Time one statement: as its caller waits for it, and the CPU time of the server's process, in which other processes of the machine do not count."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any


@dataclass(slots=True)
class Times:
    """The times of one kind of statement, in seconds."""

    waited: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class Stopwatch:
    """Times statements of one connection."""

    def __init__(self, process: int):
        self._schedule = Path(f"/proc/{process}/schedstat")

    @classmethod
    async def of(cls, connection: Any) -> Stopwatch:
        return cls(await connection.fetchval("select pg_backend_pid()"))

    async def time(self, times: Times, statement: Awaitable[Any]) -> Any:
        """Run a statement, and add its times."""
        cpu, began = self._cpu_seconds(), perf_counter()
        answer = await statement
        times.waited.append(perf_counter() - began)
        times.cpu.append(self._cpu_seconds() - cpu)
        return answer

    def _cpu_seconds(self) -> float:
        """The CPU time of the process on Linux."""
        return int(self._schedule.read_text().split()[0]) / 1e9
