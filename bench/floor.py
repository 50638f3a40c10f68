"""The floor: three PL/pgSQL calls per item, driven by pgbench, which costs next to nothing itself."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from bench.place import Place, Sample

SQL = Path(__file__).with_name("sql")


async def floor(place: Place, clients: int, seconds: float) -> Sample:
    """Put, claim, done; each its own commit. pgbench counts in whole seconds, at least one."""
    async with place.database(sql=(SQL / "floor.sql").read_text(encoding="utf-8")) as url:

        async def work() -> tuple[int, Sequence[float]]:
            latencies = await asyncio.to_thread(_pgbench, place.bin, url, clients, max(1, round(seconds)))
            connection = await asyncpg.connect(url)  # a claim may pass over a row that is just being committed
            done = await connection.fetchval("select count(*) from job where state = 2")
            await connection.close()
            return done, latencies

        return await place.measure(work)


def _pgbench(folder: Path, url: str, clients: int, seconds: int) -> list[float]:
    """How long each transaction took, in seconds."""
    with tempfile.TemporaryDirectory() as logs:
        command = [
            str(folder / "pgbench"), "--no-vacuum", "--protocol", "prepared", "--file", str(SQL / "job.sql"),
            "--client", str(clients), "--jobs", str(min(2, clients)), "--time", str(seconds), "--log", url,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=logs, capture_output=True, text=True, check=False)  # noqa: S603  our own
        if done.returncode != 0:
            raise RuntimeError(f"pgbench failed: {done.stderr[-2000:]}")
        lines = [line for log in sorted(Path(logs).iterdir()) for line in log.read_text().splitlines()]
    return [int(line.split()[2]) / 1e6 for line in lines]
