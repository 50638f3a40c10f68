"""`python -m tests.reach.forked_exporter`: export a span, fork, and export further spans first in the child and then in the parent."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime

from heliograph.telemetry.opening import open_telemetry
from heliograph.telemetry.otel_spans import RunContext
from heliograph.telemetry.otel_tracer import OtelTracer
from heliograph.telemetry.settings import read_telemetry

COUNT = 3


def now() -> datetime:
    return datetime.now(UTC)


async def export(name: str) -> None:
    async with open_telemetry(read_telemetry(os.environ), now) as tracer:
        assert isinstance(tracer, OtelTracer)
        run = RunContext("run_forked", 1, None, is_sampled=True)
        tracer.recording.spans.record(run, name, None, since=now(), until=now())


def main() -> None:
    asyncio.run(export("before"))
    child = os.fork()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0  # meanwhile its connection is idle
    for n in range(COUNT):
        asyncio.run(export(f"{'parent' if child else 'child'} {n}"))
    if not child:
        os._exit(0)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
