"""`python -m bench.latency`: measure the time of a delta from the model to a follower in another process, and its cost.

Models emit one numbered token every few milliseconds. A worker records them in batches; another process follows each run
and records the arrival of each piece. Both read one clock. Prints percentiles over all pieces, and how many
commits the deltas of one token cost. The server is an embedded PostgreSQL of its own, with fsync on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg

from heliograph import Client, Heliograph, ModelReply, ModelRequest, TextDelta
from heliograph.config import Settings
from heliograph.embedded.server import open_embedded
from heliograph.ledger.install import install
from heliograph.runtime import open_runtime

FOLLOWER_SECONDS = 30.0


class Steady:
    """A model that emits numbered pieces and records the time of each by the offset of its end."""

    model = "steady"

    def __init__(self, pieces: int, between_seconds: float):
        self.emitted_at: dict[int, float] = {}
        self._pieces = pieces
        self._between_seconds = between_seconds

    async def stream(self, _request: ModelRequest) -> AsyncIterator[Any]:
        text = ""
        begun = time.monotonic()
        for n in range(self._pieces):
            await asyncio.sleep(max(0.0, begun + n * self._between_seconds - time.monotonic()))
            text += f"{n} "
            self.emitted_at[len(text)] = time.monotonic()
            yield TextDelta(f"{n} ")
        yield ModelReply(text)


async def follow(url: str, runs: list[str]) -> None:
    """Follow runs, and print the arrival time of each delta with the offset of its end."""
    heard: list[tuple[str, int, float]] = []

    async def one(client: Client, run_id: str) -> None:
        async for signal in client.follow(run_id):
            payload: Any = signal.payload
            if signal.name == "text:delta":
                heard.append((run_id, payload["offset"] + len(payload["content"]), time.monotonic()))
            if signal.name == "agent:activated":
                print("ready", flush=True)

    async with Client(url) as client:
        await asyncio.gather(*(one(client, run_id) for run_id in runs))
    print(json.dumps(heard), flush=True)


async def set_up(url: str) -> None:
    connection = await asyncpg.connect(url)
    await install(connection)
    await connection.close()


async def measure(url: str, streams: int, pieces: int, between_seconds: float) -> tuple[list[float], int]:
    """Return the seconds that each piece took, and the number of recorded deltas."""
    models = {f"latency-{streams}-{n}": Steady(pieces, between_seconds) for n in range(streams)}
    took: list[float] = []
    async with open_runtime(Settings(database_url=url)) as runtime:
        apps = {}
        for run_id, model in models.items():
            app = apps[run_id] = Heliograph(run_id)
            app.prompt_agent("speaker", "Speak.", model=model, activate_on=["workflow:start"])
            await runtime.start(app.workflow, {}, run_id)
        follower = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.latency", "--follow", url, *models, stdout=subprocess.PIPE, limit=1 << 26
        )
        assert follower.stdout is not None
        async with asyncio.timeout(FOLLOWER_SECONDS + pieces * between_seconds):
            for _ in models:
                assert await follower.stdout.readline() == b"ready\n"
            worker = runtime.worker(*(app.workflow for app in apps.values()), concurrency=streams)
            stopping = asyncio.Event()
            serving = asyncio.create_task(runtime.serve(worker, stopping))
            heard = json.loads(await follower.stdout.readline())
            stopping.set()
            await serving
            await follower.wait()
    before = dict.fromkeys(models, 0)
    for run_id, end, at in heard:
        emitted_at = models[run_id].emitted_at
        took += [at - emitted_at[place] for place in emitted_at if before[run_id] < place <= end]
        before[run_id] = end
    assert len(took) == streams * pieces, "a piece has not come"
    return took, len(heard)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 16], help="answers that stream at once (1 16)")
    parser.add_argument("--pieces", type=int, default=400, help="of each answer (400)")
    parser.add_argument("--every-ms", type=float, default=13.0, help="between two pieces (13)")
    parser.add_argument("--follow", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        asyncio.run(follow(options.follow[0], options.follow[1:]))
        return
    home = Path(tempfile.mkdtemp(prefix="heliograph-latency-"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, a piece every {options.every_ms:g} ms")
    try:
        with open_embedded(home, version=18) as server:
            asyncio.run(set_up(server.url))
            for streams in options.streams:
                took, deltas = asyncio.run(measure(server.url, streams, options.pieces, options.every_ms / 1000))
                parts = statistics.quantiles(took, n=100)
                figures = ", ".join(f"p{p} {parts[p - 1] * 1000:.0f} ms" for p in (50, 95, 99))
                print(f"{streams} streams: {figures}, most {max(took) * 1000:.0f} ms; {deltas / len(took):.3f} deltas, "
                      f"each in a commit, per token")  # fmt: skip
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
