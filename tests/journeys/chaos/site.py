"""All machinery that chaos acts on, and the timeline of injected faults."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.journeys.chaos.cluster import PostgresServer
from tests.journeys.chaos.disk import SmallDisk
from tests.journeys.chaos.options import Options
from tests.journeys.chaos.procs import Fleet
from tests.journeys.chaos.proxy import Proxy
from tests.journeys.chaos.slow_fsync import SlowFsync
from tests.journeys.chaos.wire import Listener
from tests.reach.nats_kit import NatsServer


@dataclass
class Timeline:
    """The injected faults: counted by kind, timed if they last, and written to a file.

    ends: the end of each lasting fault, by the machine's clock.
    """

    file: Path
    counts: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    ends: dict[str, list[float]] = field(default_factory=dict)

    def note(self, kind: str, **details: object) -> None:
        self.counts[kind] += 1
        self.write(kind, **details)

    def write(self, kind: str, **details: object) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps({"at": round(time.time(), 3), "kind": kind, **details}) + "\n")

    @contextmanager
    def lasting(self, kind: str, **details: object) -> Iterator[None]:
        """Record a fault that lasts until the end of the block."""
        self.note(kind, **details)
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            self.seconds.setdefault(kind, []).append(took)
            self.ends.setdefault(kind, []).append(time.time())
            self.write(f"{kind} over", seconds=round(took, 3))


@dataclass
class Site:
    """One chaos run's machinery; run.py creates and removes it."""

    folder: Path
    options: Options
    disk: SmallDisk
    fsync: SlowFsync
    server: PostgresServer
    proxy: Proxy
    nats: NatsServer
    fleet: Fleet
    listeners: list[Listener]
    timeline: Timeline
