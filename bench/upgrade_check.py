"""`python -m bench.upgrade_check`: measure `helio upgrade check` on 10,000 suspended turns.

One run of `bench/upgrade_app.py` waits with six turns: after steps, in parallel calls, as parent and children, and in a conversation of a
model. The run is copied until there are `--turns` open turns, and the command checks them with the same code. The floor is the time in which
the same command checks one run. The server is an embedded PostgreSQL of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import asyncpg

from bench.upgrade_app import app
from heliograph.embedded.server import open_embedded
from heliograph.ledger.install import install

COPY = Path(__file__).with_name("sql") / "open_turns.sql"
APP = Path(__file__).with_name("upgrade_app.py")
PROJECT, RUN = "default", "bench_run"
TARGET_SECONDS = 60.0
TURNS_OF_A_RUN = 6
WAITING = "select count(*) from heliograph.agent_state_head where project_id = $1 and status = 'suspended'"


async def fill(url: str, turns: int) -> int:
    """Let one run wait, and copy it; return the number of open turns."""
    connection = await asyncpg.connect(url)
    await install(connection)
    await connection.execute("alter table heliograph.agent_state_head disable row level security")
    running = asyncio.ensure_future(app.run({"text": "hello"}, run_id=RUN))
    while await connection.fetchval(WAITING, PROJECT) < TURNS_OF_A_RUN and not running.done():  # noqa: ASYNC110  no bell here
        await asyncio.sleep(0.2)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await connection.execute(COPY.read_text(encoding="utf-8"))
    await connection.execute("select pg_temp.copy_run($1, $2, $3)", PROJECT, RUN, turns // TURNS_OF_A_RUN)
    await connection.execute("vacuum analyze")
    count: int = await connection.fetchval(WAITING, PROJECT)
    await connection.execute("alter table heliograph.agent_state_head enable row level security")
    await connection.close()
    return count


def check(*options: str) -> tuple[dict[str, Any], float, float]:
    """Run the command; return its summary, its seconds, and the CPU seconds of its processes."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    done = subprocess.run(  # noqa: S603  our own command
        [sys.executable, "-m", "heliograph", "upgrade", "check", f"{APP}:app", "--json", *options],
        stdout=subprocess.PIPE,
        check=False,
    )
    seconds, after = perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    *found, summary = map(json.loads, done.stdout.splitlines())
    for each in found[:3]:
        print(json.dumps(each))
    return summary, seconds, cpu


def measure(url: str, turns: int) -> bool:
    os.environ["HELIOGRAPH_DATABASE_URL"] = url
    count = asyncio.run(fill(url, turns))
    _, floor, floor_cpu = check("--run", RUN)
    summary, seconds, cpu = check()
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{count} open turns: {seconds:.1f} s, CPU {cpu:.1f} s, {1000 * (cpu - floor_cpu) / count:.2f} ms of CPU per turn, "
          f"at most {memory:.0f} MB per process; one run alone {floor:.1f} s, CPU {floor_cpu:.1f} s")  # fmt: skip
    print(json.dumps({"turns": count, "checked": summary["checked"], "diverged": summary["diverged"], "seconds": round(seconds, 1),
                      "cpu_seconds": round(cpu, 1)}))  # fmt: skip
    return summary["checked"] == count and summary["diverged"] == 0 and seconds < TARGET_SECONDS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.upgrade_check", description=__doc__)
    parser.add_argument("--turns", type=int, default=10_000, help="open turns (default 10,000)")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        with open_embedded(home, version=18) as server:
            is_quick = measure(server.url, options.turns)
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    raise SystemExit(0 if is_quick else f"the check took over {TARGET_SECONDS:.0f} s, or did not continue all turns")


if __name__ == "__main__":
    main()
