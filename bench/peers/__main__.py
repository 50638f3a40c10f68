"""`python -m bench.peers`, measure one peer under one load, in the peers' own environment, with JSON lines as output.

    versions                                 one line: each package and its version
    measure KEY WORK CALLERS SECONDS         "ready" when all is warm; on a line from stdin the load runs; its figures
    worker KEY                               READY, then the peer's worker until SIGTERM

BENCH_URL is an empty database. The peers' own output goes to stderr.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from typing import TextIO

from bench.load import MANY, SINGLE, warm_up
from bench.peers.catalog import CATALOG
from bench.peers.peer import Peer

CLASSES = {
    "dbos-direct": ("dbos", "DbosDirect"),
    "dbos-queue": ("dbos", "DbosQueue"),
    "absurd": ("absurd", "Absurd"),
    "langgraph": ("langgraph", "LangGraph"),
    "procrastinate": ("procrastinate", "Procrastinate"),
    "pgqueuer": ("pgqueuer", "Pgqueuer"),
}


def peer_of(key: str) -> Peer:
    module, name = CLASSES[key]
    peer: Peer = getattr(import_module(f"bench.peers.{module}"), name)(os.environ["BENCH_URL"])
    return peer


async def measure(key: str, work: str, callers: int, seconds: float, out: TextIO) -> None:
    peer = peer_of(key)
    await peer.install()
    async with _worker(peer, key):
        await peer.open(callers)
        await warm_up(peer, work, callers)
        print(json.dumps({"ready": True}), file=out, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        done = await (SINGLE if callers == 1 else MANY)[work](peer, callers, seconds)
        print(json.dumps(asdict(done)), file=out, flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # the counters are read before anything closes
        await peer.close()


@asynccontextmanager
async def _worker(peer: Peer, key: str) -> AsyncIterator[None]:
    if not peer.has_worker:
        yield
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.peers", "worker", key, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            if line == b"READY\n":
                break
        else:
            raise RuntimeError(f"the worker ended with {await process.wait()}")
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def main() -> None:
    command, *rest = sys.argv[1:]
    if command == "versions":
        print(json.dumps({entry.package: version(entry.package) for entry in CATALOG}))
    elif command == "worker":
        asyncio.run(peer_of(rest[0]).serve())
    else:
        key, work, callers, seconds = rest
        out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        asyncio.run(measure(key, work, int(callers), float(seconds), out))
    sys.stdout.flush()
    os._exit(0)  # some peers leave threads that would keep the process


if __name__ == "__main__":
    main()
