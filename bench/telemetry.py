"""`python -m bench.telemetry`: compare Heliograph with itself without telemetry, with a tenth of the traces, and with all of them.

Each round measures the three on one server, in alternating order, so that a slow minute of the machine affects all of them. All
processes export over OTLP to a collector of this process, which reads the spans and drops them. Prints for each load the median over
the rounds of items/s and of CPU time per item (server and Python processes), and the ratio to telemetry off: its median, and the
quartiles between which half of the rounds lie. Two more lines say how much of the difference is noise: telemetry off is measured
twice in each round, and the second measurement is a side of its own. Needs Linux (/proc) and `heliograph[otel]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from bench.__main__ import SERVER
from bench.compare import CALLERS, HERE, Figures, measure_tree, ratios
from bench.machine import read_header
from bench.place import Place
from heliograph.embedded.server import open_embedded

OFF = "off"
SHARES = {OFF: None, "off again": None, "10 %": "0.1", "100 %": "1"}
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


def run(place: Place, options: argparse.Namespace) -> dict[str, dict[str, list[Figures]]]:
    """Measure and print each work under each load. Returns the figures of each side."""
    found: dict[str, dict[str, list[Figures]]] = {}
    with collecting() as collector:
        for work, load in product(options.work.upper(), options.load):
            sides: dict[str, list[Figures]] = {name: [] for name in SHARES}
            print(f"\n{work}, {load}, {options.rounds} rounds", flush=True)
            for number in range(options.rounds):
                names = list(SHARES)
                turned = names[number % len(names) :] + names[: number % len(names)]
                for name in turned if number % 2 else turned[::-1]:
                    environment = environment_of(SHARES[name], collector.endpoint)
                    before = collector.received
                    sides[name].append(measure_tree(HERE, place, work, load, options.seconds, environment))
                    if (collector.received > before) is not (SHARES[name] is not None):
                        raise RuntimeError(f"telemetry {name} sent {collector.received - before} bytes")
            print_cell(sides)
            found[f"{work}, {load}"] = sides
    return found


def print_cell(sides: Mapping[str, Sequence[Figures]]) -> None:
    off = sides[OFF]
    for key in ("items/s", "commits", "server µs", "python µs", "CPU µs"):
        print(f"  {key:10} off {statistics.median(each[key] for each in off):10,.2f}")
        for name, side in sides.items():
            if side is not off:
                median = statistics.median(each[key] for each in side)
                print(f"  {'':10} {name:9} {median:10,.2f}   {name}/off {ratios(off, side, key)}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.telemetry", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12, help="measurements of each side and load (default 12)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (default 2)")
    parser.add_argument("--work", default="A", help="A (default), B or both")
    parser.add_argument("--load", nargs="+", choices=CALLERS, default=["16 callers", "one at a time"], help="the loads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    options: Any = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        with open_embedded(home, version=18, settings=SERVER) as server:
            header = asyncio.run(read_header(server.url, options.seconds, options.rounds))
            print(json.dumps(header, indent=2, ensure_ascii=False))
            found = run(Place(server.url, server.bin), options)
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if options.json is not None:
        options.json.write_text(
            json.dumps({"header": header, "figures": found}, indent=2, ensure_ascii=False), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
