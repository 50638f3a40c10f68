"""Measure each peer in a process of the peers' environment (`python -m bench.peers`)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from bench.meter.sample import Done, Sample
from bench.peers.catalog import Entry
from bench.place import Place

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench"
PATIENCE_SECONDS = 300.0
_LINE_BYTES_MAX = 2**26
_ERROR_LINES = 6


def are_installed() -> bool:
    """Return whether the peers are installed: tools/bootstrap.py writes the stamp last."""
    return (VENV / "heliograph.stamp").exists()


def read_versions() -> dict[str, str]:
    """Return each peer's package and version, or nothing if they are not installed."""
    if not are_installed():
        return {}
    command = [str(VENV / "bin" / "python"), "-m", "bench.peers", "versions"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603  our own
    versions: dict[str, str] = json.loads(done.stdout)
    return versions


async def measure_peer(entry: Entry, work: str, place: Place, callers: int, seconds: float) -> Sample:
    """Measure one workload of a peer. Raises RuntimeError with the last lines of its stderr, TimeoutError after five minutes."""
    async with place.database(sql="") as url, asyncio.timeout(PATIENCE_SECONDS):
        with tempfile.TemporaryFile("w+") as errors:
            process = await asyncio.create_subprocess_exec(
                str(VENV / "bin" / "python"), "-m", "bench.peers", "measure", entry.key, work, str(callers), str(seconds),
                cwd=ROOT, env={**os.environ, "BENCH_URL": url}, stdin=PIPE, stdout=PIPE, stderr=errors,
                limit=_LINE_BYTES_MAX, start_new_session=True,
            )  # fmt: skip
            try:
                await _answer(process, entry, errors)

                async def load() -> Done:
                    return Done(**await _answer(process, entry, errors, continues=True))

                sample = await place.measure(load, caller=process.pid)
                await _continue(process)
                await process.wait()
                return sample
            finally:
                _end(process)
                await process.wait()


async def _answer(process: Process, entry: Entry, errors: IO[str], *, continues: bool = False) -> dict[str, Any]:
    assert process.stdout is not None
    if continues:
        await _continue(process)
    line = await process.stdout.readline()
    if not line:
        errors.seek(0)
        last_lines = " / ".join(errors.read().splitlines()[-_ERROR_LINES:])
        raise RuntimeError(f"{entry.title} ended with {await process.wait()}: {last_lines}")
    answer: dict[str, Any] = json.loads(line)
    return answer


async def _continue(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go on\n")
    await process.stdin.drain()


def _end(process: Process) -> None:
    """Kill the process and its worker, which is in the same session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
