"""`python -m bench.telemetry`: compare Heliograph with itself without telemetry, with a tenth of the traces, and with all of them.

All processes export over OTLP to a collector of this process, which reads the spans and drops them. Prints for each load the median over
the rounds of items/s and of CPU time per item (server and Python processes), and the ratio to telemetry off: its median, and the
quartiles between which half of the rounds lie. See `bench.sides`. Needs Linux (/proc) and `heliograph[otel]`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bench.sides import OFF, OFF_AGAIN, compare_sides
from bench.works import SINGLE, SIXTEEN

SHARES = {OFF: None, OFF_AGAIN: None, "10 %": "0.1", "100 %": "1"}
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"


class Collector:
    """Accepts everything that is sent to it, and counts the bytes. endpoint: its URL."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.received = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = (line.split(b":", 1) for line in head.lower().split(b"\r\n") if b":" in line)
                length = int({name.strip(): value for name, value in lines}[b"content-length"])
                self.received += len(await reader.readexactly(length))
                writer.write(_ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):  # the client has gone
            writer.close()


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector in a thread; it costs less than one that decodes the spans."""
    collector, loop, ready = Collector(), asyncio.new_event_loop(), threading.Event()

    async def listen() -> None:
        server = await asyncio.start_server(collector.answer, "127.0.0.1", 0)
        collector.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()

    def run() -> None:
        loop.create_task(listen())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield collector
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def environment_of(share: str | None, endpoint: str) -> dict[str, str]:
    """Return the variables of the processes that are measured. share: of the traces that are recorded; None for no telemetry."""
    if share is None:
        return {"HELIOGRAPH_OTEL": "0"}
    return {"HELIOGRAPH_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_METRICS_EXPORTER": "none",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": share}  # fmt: skip


def main() -> None:
    with collecting() as collector:
        received = 0

        def check(side: str) -> None:
            """Raise RuntimeError if a side sent spans that should send none, or the reverse."""
            nonlocal received
            before, received = received, collector.received
            if (received > before) is not (SHARES[side] is not None):
                raise RuntimeError(f"telemetry {side} sent {received - before} bytes")

        environments = {
            side: lambda share=share: environment_of(share, collector.endpoint) for side, share in SHARES.items()
        }
        compare_sides("python -m bench.telemetry", __doc__, environments, [SIXTEEN, SINGLE], check)


if __name__ == "__main__":
    main()
