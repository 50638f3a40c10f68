"""The floor of the benchmark: PL/pgSQL calls, one commit each, driven by pgbench, which adds almost no cost."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from bench.load import WATCH
from bench.meter.sample import Done, Sample
from bench.place import SQL, Place


@dataclass(frozen=True)
class Floor:
    """One work as bare SQL. schema: files in `sql/`, in order. script: for pgbench. counted: a query for the finished items."""

    schema: tuple[str, ...]
    script: str
    counted: str


JOB = Floor(("floor.sql",), "job.sql", "select count(*) from job where state = 2")
TURN = Floor(("floor_turn.sql",), "turn.sql", "select count(*) from turn where state = 3")
TURN_WITH_SIGNALS = Floor(("floor_turn.sql", "floor_signals.sql"), "turn.sql", TURN.counted)


async def measure_floor(
    floor: Floor, place: Place, clients: int, seconds: float, *, per_second: int | None = None
) -> Sample:
    """Measure the floor. pgbench takes whole seconds, at least one. per_second: its rate; as fast as possible without one."""
    schema = "\n".join((SQL / name).read_text(encoding="utf-8") for name in floor.schema)
    async with place.database(sql=schema) as url:

        async def work() -> Done:
            latencies = await asyncio.to_thread(
                _pgbench, place.bin, url, floor.script, clients, max(1, round(seconds)), per_second
            )
            connection = await asyncpg.connect(
                url, server_settings=WATCH
            )  # a claim may pass over a row that is just being committed
            items = await connection.fetchval(floor.counted)
            await connection.close()
            return Done(items, latencies)

        return await place.measure(work)


def _pgbench(folder: Path, url: str, script: str, clients: int, seconds: int, per_second: int | None) -> list[float]:
    """Run pgbench and return the duration of each item in seconds, without the delay of one that starts later than it should."""
    with tempfile.TemporaryDirectory() as logs:
        command = [
            str(folder / "pgbench"), "--no-vacuum", "--protocol", "prepared", "--file", str(SQL / script),
            "--client", str(clients), "--jobs", str(min(2, clients)), "--time", str(seconds), "--log",
            *(["--rate", str(per_second)] if per_second else []), url,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=logs, capture_output=True, text=True, check=False)  # noqa: S603  our own
        if done.returncode != 0:
            raise RuntimeError(f"pgbench failed: {done.stderr[-2000:]}")
        lines = [line for log in sorted(Path(logs).iterdir()) for line in log.read_text().splitlines()]
    items = [[int(field) for field in line.split()] for line in lines]
    return [(item[2] - (item[6] if per_second else 0)) / 1e6 for item in items]
