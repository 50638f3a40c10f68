"""Measure the checkout on PYTHONPATH, which may be of an earlier commit: a child process of `bench.compare`.

Reads a JSON line from stdin (url, bin, work, callers, seconds, is_single) and prints one: items, seconds, commits, and the CPU
seconds of the server and of the Python processes. It imports only names of that checkout that earlier commits have too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from bench.full import measure_heliograph
from bench.place import Place, Sample

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(postmaster: int) -> dict[str, float]:
    """The CPU time so far of the server, its ended connections included, and of the processes in this session."""
    spent = {"server": 0, "python": 0}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended: its parent has counted it
            continue
        parent, _, session, *rest = (int(field) for field in text[text.rindex(")") + 4 :].split()[:14])
        user, system, children_user, children_system = rest[7:11]
        if int(entry.name) == postmaster:
            spent["server"] += user + system + children_user + children_system
        elif parent == postmaster:
            spent["server"] += user + system
        elif session == os.getsid(0):
            spent["python"] += user + system + children_user + children_system
    return {name: ticks / TICKS_PER_SECOND for name, ticks in spent.items()}


def parent_of(process: int) -> int:
    stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    return int(stat[stat.rindex(")") + 4 :].split()[0])


class MeasuredPlace(Place):
    """A place that also measures CPU time while it measures the work."""

    spent: dict[str, float]
    postmaster: int

    async def measure(self, work: Callable[[], Awaitable[Any]]) -> Sample:
        before = cpu_seconds(self.postmaster)
        sample = await super().measure(work)
        after = cpu_seconds(self.postmaster)
        self.spent = {name: after[name] - before[name] for name in before}
        return sample


async def measure(cell: dict[str, Any]) -> dict[str, Any]:
    place = MeasuredPlace(cell["url"], Path(cell["bin"]))
    connection = await asyncpg.connect(place.url)
    place.postmaster = parent_of(await connection.fetchval("select pg_backend_pid()"))
    await connection.close()
    sample = await measure_heliograph(
        cell["work"], place, cell["callers"], cell["seconds"], is_single=cell["is_single"]
    )
    return {
        "items": sample.items, "seconds": sample.seconds, "commits": sample.transactions, **place.spent,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(json.loads(sys.stdin.readline())))))
