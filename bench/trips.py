"""The round trips and statements of an item, by side: a proxy between the processes of a work and the server reads what they send.

A round trip is a request after which the client waits for the server: a query, or messages up to a Sync. A statement is one execution in it. A client
that pipelines sends several statements in a round trip. A process of a socket is known to the operating system: the caller, or another, which is the
worker. Connections with the settings `WATCH` observe results, and do not count. A proxy delays each call, so this is a pass of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

from rich.console import Console
from rich.table import Table

from bench.load import WATCH
from bench.meter.sample import Done, Sample
from bench.place import Place
from bench.works import HELIOGRAPH, SINGLE, SIXTEEN, Contender

CALLER, WORKER = SIDES = ("caller", "worker")
LOADS = (SINGLE, SIXTEEN)
_PLAIN_REQUESTS = (80877102, 80877103, 80877104)  # cancel, SSL, GSSENC: they have no parameters
_READ_BYTES = 2**16
_FUNCTION = re.compile(r"\b(?:heliograph\.)?(\w+)\(")
_NAME_CHARACTERS, _LISTED = 48, 12


@dataclass(slots=True)
class Trips:
    """What was sent. by_statement: statements by side and name: that of a kernel function, or how the statement begins."""

    items: int = 0
    trips: Counter[str] = field(default_factory=Counter)
    by_statement: Counter[tuple[str, str]] = field(default_factory=Counter)

    def per_item(self, count: int) -> float:
        return count / self.items

    def as_json(self) -> dict[str, Any]:
        statements = {f"{side}: {name}": self.per_item(n) for (side, name), n in self.by_statement.most_common()}
        return {"trips": {side: self.per_item(n) for side, n in self.trips.items()}, "statements": statements}


class CountingPlace(Place):
    """A place whose databases are reached through a proxy. `measure` counts into `found`, and measures nothing else."""

    def __init__(self, place: Place):
        super().__init__(place.url, place.bin, place._numbers)
        self.found = Trips()
        self.counting: Trips | None = None  # between measurements, as workers start and end
        self._caller = os.getpid()

    @asynccontextmanager
    async def database(self, *, sql: str | None = None, existing: str | None = None) -> AsyncIterator[str]:
        async with super().database(sql=sql, existing=existing) as url:
            [host], [port] = (parse_qs(urlsplit(url).query)[key] for key in ("host", "port"))
            behind = f"{host}/.s.PGSQL.{port}"
            with tempfile.TemporaryDirectory(prefix="hb-") as folder:
                proxy = await asyncio.start_unix_server(
                    lambda reader, writer: self._forward(behind, reader, writer), f"{folder}/.s.PGSQL.{port}"
                )
                try:
                    yield urlunsplit(urlsplit(url)._replace(query=f"host={quote(folder, safe='')}&port={port}"))
                finally:
                    proxy.close()

    async def measure(
        self, work: Callable[[], Awaitable[Done]], *, caller: int | None = None, url: str | None = None
    ) -> Sample:
        self._caller = caller or os.getpid()
        self.found = self.counting = Trips()
        began = perf_counter()
        done = await work()
        self.found.items = done.items
        self.counting = None
        return Sample(done, perf_counter() - began)

    async def _forward(self, behind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_unix_connection(behind)
        client = Client(self, _process_of(writer.get_extra_info("socket")))
        with suppress(OSError):
            await asyncio.gather(_copy(reader, to_server, client.read), _copy(server, writer, lambda _: None))

    def side_of(self, process: int) -> str:
        return CALLER if process == self._caller else WORKER


def _process_of(client: socket.socket) -> int:
    """The process at the other end of a Unix socket; on other systems than Linux 0, which is nobody's."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    size = struct.calcsize("3i")
    process: int = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
    return process


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, see: Callable[[bytes], None]) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            see(data)
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


class Client:
    """Reads the messages of one connection to the server, from its first byte."""

    def __init__(self, place: CountingPlace, process: int):
        self._place, self._process = place, process
        self._data = bytearray()
        self._has_started = self._is_watch = False
        self._statements: dict[bytes, str] = {}  # by the name of the prepared statement
        self._portals: dict[bytes, str] = {}

    def read(self, data: bytes) -> None:
        if self._is_watch:
            return
        self._data += data
        while True:
            head = 1 if self._has_started else 0
            if len(self._data) < head + 4:
                return
            length = head + int.from_bytes(self._data[head : head + 4], "big")
            if len(self._data) < length:
                return
            message, kind = bytes(self._data[head + 4 : length]), bytes(self._data[:head])
            del self._data[:length]
            self._take(kind, message)

    def _take(self, kind: bytes, message: bytes) -> None:
        if not kind:
            self._has_started = int.from_bytes(message[:4], "big") not in _PLAIN_REQUESTS
            self._is_watch = WATCH["application_name"].encode() in message.split(b"\0")
        elif kind == b"P":
            name, text, _ = message.split(b"\0", 2)
            self._statements[name] = name_of(text.decode())
        elif kind == b"B":
            portal, name, _ = message.split(b"\0", 2)
            self._portals[portal] = self._statements.get(name, "?")
        elif kind == b"E":
            self._count(self._portals.get(message.partition(b"\0")[0], "?"))
        elif kind == b"Q":
            self._count(name_of(message.rstrip(b"\0").decode()))
        if kind in (b"S", b"Q") and (counting := self._place.counting):
            counting.trips[self._place.side_of(self._process)] += 1

    def _count(self, name: str) -> None:
        if counting := self._place.counting:
            counting.by_statement[self._place.side_of(self._process), name] += 1


def name_of(statement: str) -> str:
    """The kernel function that a statement calls, or how the statement begins."""
    found = _FUNCTION.search(statement) if "heliograph." in statement or "pg_notify" in statement else None
    return found[1] if found else " ".join(statement.split())[:_NAME_CHARACTERS]


async def count_trips(place: Place, lines: Sequence[Contender], seconds: float) -> dict[tuple[str, str, str], Trips]:
    """Count each line under each of its loads once; return the counts by work, name and load. A line that fails is left out."""
    counting = CountingPlace(place)
    found: dict[tuple[str, str, str], Trips] = {}
    for line in lines:
        for load in LOADS:
            if load in line.loads:
                measure, callers = line.loads[load]
                with suppress(RuntimeError, TimeoutError):
                    await measure(counting, callers, seconds)
                    found[line.work, line.name, load] = counting.found
    return found


def print_trips(console: Console, found: Mapping[tuple[str, str, str], Trips]) -> None:
    """Print the counts per item, and the statements of Heliograph by name."""
    if not found:
        return
    console.print("\nRound trips and statements per item, of all processes", style="bold")
    table = Table(box=None, pad_edge=False)
    for title in ("", "", "trips", *(f"of the {side}" for side in SIDES), "statements"):
        table.add_column(title, justify="right" if title else "left")
    for (work, name, load), trips in found.items():
        counts = (sum(trips.trips.values()), *(trips.trips[side] for side in SIDES), sum(trips.by_statement.values()))
        table.add_row(f"{work}, {load}", name, *(f"{trips.per_item(count):.2f}" for count in counts))
    console.print(table)
    for (work, name, load), trips in found.items():
        if name == HELIOGRAPH:
            listed = (
                f"{side} {statement} {trips.per_item(count):.2f}"
                for (side, statement), count in trips.by_statement.most_common(_LISTED)
            )
            console.print(f"  {work}, {load}: {', '.join(listed)}")
