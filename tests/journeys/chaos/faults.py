"""The faults: each kind at its own pace, drawn from the seed and its name, so that omitting one shifts no other.

A fault that lasts ends in a `finally`, so the site is whole after all faults are cancelled. The faults of the database
(stops, a full disk, slow flushes) occur one at a time; all others may overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg

from tests.journeys.chaos.away import AWAY
from tests.journeys.chaos.cluster import StopMode
from tests.journeys.chaos.procs import CLIENT, TOOL, WORKER
from tests.journeys.chaos.site import Site


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault. inject: causes it once. alone: a lock; the fault is skipped while another has it.
    why_not: the reason why this machine cannot inject it."""

    name: str
    inject: Callable[[random.Random], Coroutine[Any, Any, None]]
    every_seconds: float
    alone: asyncio.Lock | None = None
    why_not: str | None = None


class Faults:
    """All kinds of faults on one site. unavailable: by title, why an enabled kind cannot be injected here."""

    def __init__(self, site: Site):
        self._site = site
        enabled = [fault for fault in self._kinds() if fault.every_seconds > 0]
        self.unavailable: Mapping[str, str] = {TITLES[f.name]: f.why_not for f in enabled if f.why_not is not None}
        self._used = [fault for fault in enabled if fault.why_not is None]

    def _kinds(self) -> list[Fault]:
        options, site = self._site.options, self._site
        database, wire = asyncio.Lock(), asyncio.Lock()
        return [
            Fault("kill_worker", partial(self._kill, WORKER), options.kill_worker_every),
            Fault("kill_tool", partial(self._kill, TOOL), options.kill_tool_every),
            Fault("kill_client", partial(self._kill, CLIENT), options.kill_client_every),
            Fault("freeze", self._freeze, options.freeze_every),
            Fault("cut", self._cut, options.cut_every),
            Fault("hole", self._hole, options.hole_every, wire),
            Fault("vanish", self._vanish, options.vanish_every),
            Fault("delay", self._delay, options.delay_every, wire),
            Fault("pg_stop", self._stop_server, options.pg_stop_every, database),
            Fault("disk_full", self._fill_disk, options.disk_full_every, database, site.disk.why_not),
            Fault("slow_fsync", self._slow_fsync, options.slow_fsync_every, database, site.fsync.why_not),
            Fault("nats_down", self._nats_down, options.nats_down_every, asyncio.Lock()),
        ]

    async def run(self) -> None:
        """Inject faults until cancelled; every lasting fault ends then."""
        async with asyncio.TaskGroup() as group:
            for fault in self._used:
                group.create_task(self._keep_injecting(fault, group), name=fault.name)

    async def _keep_injecting(self, fault: Fault, group: asyncio.TaskGroup) -> None:
        dice = random.Random(f"{self._site.options.seed} {fault.name}")
        while True:
            await asyncio.sleep(fault.every_seconds * (0.5 + dice.random()))
            if fault.alone is None:
                group.create_task(fault.inject(dice), name=fault.name)
            elif not fault.alone.locked():
                group.create_task(_inject_alone(fault, fault.alone, dice), name=fault.name)

    # ── Processes ──

    async def _kill(self, role: str, dice: random.Random) -> None:
        if (name := self._site.fleet.kill(role, dice)) is not None:
            self._site.timeline.note(f"kill_{role}", name=name)

    async def _freeze(self, dice: random.Random) -> None:
        seconds = self._site.options.lease_seconds * (0.3 + 1.7 * dice.random())
        process = self._site.fleet.choose_to_freeze(dice)
        if process is None:
            return
        process.send_signal(signal.SIGSTOP)
        try:
            with self._site.timeline.lasting("freeze", pid=process.pid):
                await asyncio.sleep(seconds)
        finally:
            process.send_signal(signal.SIGCONT)

    # ── The network ──

    async def _cut(self, dice: random.Random) -> None:
        self._site.timeline.note("cut", connections=self._site.proxy.cut(dice, dice.choice([0.2, 0.5, 1.0])))

    async def _hole(self, dice: random.Random) -> None:
        self._site.proxy.hold()
        try:
            with self._site.timeline.lasting("hole"):
                await asyncio.sleep(self._site.options.lease_seconds * (0.4 + dice.random()))
        finally:
            if dice.random() < 0.5:  # delayed bytes arrive late, or never
                self._site.proxy.cut(dice, 1.0)
            self._site.proxy.release()

    async def _vanish(self, dice: random.Random) -> None:
        self._site.timeline.note("vanish", connections=self._site.proxy.vanish(dice, 0.25))

    async def _delay(self, dice: random.Random) -> None:
        self._site.proxy.delay_seconds = 0.002 + 0.04 * dice.random()
        try:
            with self._site.timeline.lasting("delay", seconds_each=self._site.proxy.delay_seconds):
                await asyncio.sleep(2 + 2 * dice.random())
        finally:
            self._site.proxy.delay_seconds = 0.0

    # ── The database ──

    async def _stop_server(self, dice: random.Random) -> None:
        mode: StopMode = "immediate" if dice.random() < 0.6 else "fast"
        self._site.timeline.counts[f"pg_{mode}"] += 1
        with self._site.timeline.lasting("pg_stop", mode=mode):
            try:
                await self._site.server.stop(mode)
                await asyncio.sleep(0.5 * dice.random())
            finally:
                await self._site.server.start()

    async def _fill_disk(self, dice: random.Random) -> None:
        """Fill the disk; in half of the cases also switch the log to a new file. Then the server panics and cannot
        restart before space is free."""
        with self._site.timeline.lasting("disk_full"):
            try:
                self._site.timeline.write("filled", megabytes=await asyncio.to_thread(self._site.disk.fill))
                await asyncio.sleep(1)
                if dice.random() < 0.5:
                    await self._switch_log()
                await asyncio.sleep(0.5 + dice.random())
            finally:
                self._site.disk.free()
                await self._site.server.recover()

    async def _switch_log(self) -> None:
        with contextlib.suppress(*AWAY):
            connection = await asyncpg.connect(self._site.server.url, timeout=2)
            for _ in range(8):  # recycled files are used first
                await connection.execute(
                    "select pg_logical_emit_message(false, 'chaos', ''), pg_switch_wal()", timeout=2
                )

    async def _slow_fsync(self, dice: random.Random) -> None:
        microseconds = dice.choice([2_000, 10_000, 30_000])
        self._site.fsync.set(microseconds)
        try:
            with self._site.timeline.lasting("slow_fsync", us=microseconds):
                await asyncio.sleep(2 + 5 * dice.random())
        finally:
            self._site.fsync.set(0)

    # ── NATS ──

    async def _nats_down(self, dice: random.Random) -> None:
        with self._site.timeline.lasting("nats_down"):
            self._site.nats.kill()
            try:
                await asyncio.sleep(2 + 4 * dice.random())
            finally:
                await asyncio.to_thread(self._site.nats.start)


async def _inject_alone(fault: Fault, lock: asyncio.Lock, dice: random.Random) -> None:
    async with lock:
        await fault.inject(dice)


TITLES: Mapping[str, str] = {
    "kill_worker": "kill -9 of a worker",
    "kill_tool": "kill -9 of a tool that reports",
    "kill_client": "kill -9 of a client that starts runs",
    "freeze": "SIGSTOP, SIGCONT of a worker",
    "cut": "connections reset",
    "hole": "all traffic delayed, then delivered or reset",
    "vanish": "connections vanish without a reset",
    "delay": "every packet late",
    "pg_stop": "PostgreSQL stopped and started",
    "disk_full": "disk full",
    "slow_fsync": "flushes slow",
    "nats_down": "NATS down",
}
