"""The processes: workers, clients that start runs, and tools that take commands and report.

They are programs that a user runs (`helio worker`) or writes (a client of the library, a program that uses SQL and
NATS). Each has its own wall clock and contains no test code. A process that dies is replaced by one with another clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.journeys.chaos.ageing import PROJECT
from tests.journeys.chaos.options import Options

ROOT = Path(__file__).resolve().parents[3]
STOP_SECONDS = 40.0
AT_WORK_SHARE = 0.8
WORKER, CLIENT, TOOL = "worker", "client", "tool"
APPLICATIONS = [f"tests.journeys.chaos.{module}:app" for module in ("workload", "trials", "doomed", "ageing")]
TOOL_WAYS = ("client", "wire")  # see tools.py


@dataclass
class Slot:
    """One place in the fleet. command: returns the command line for a process name."""

    role: str
    number: int
    command: Callable[[str], list[str]]
    generation: int = 0
    name: str = ""
    process: subprocess.Popen[bytes] | None = None
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """A killed worker: the name in its leases, and the time by the machine's clock."""

    name: str
    at: float


@dataclass
class Fleet:
    """All processes. folder: receives a log per role and number. deaths, skews: of all processes so far. started_all:
    every client is done."""

    folder: Path
    options: Options
    environment: Mapping[str, str]
    deaths: list[Death] = field(default_factory=list)
    skews: list[float] = field(default_factory=list)
    replaced: int = 0
    unexpected_exits: list[str] = field(default_factory=list)
    started_all: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._dice = random.Random(f"{self.options.seed} fleet")
        self._slots = [Slot(WORKER, n, self._worker) for n in range(self.options.workers)]
        self._slots += [Slot(CLIENT, n, self._client(n)) for n in range(self.options.clients)]
        self._slots += [Slot(TOOL, n, self._tool(way)) for n, way in enumerate(TOOL_WAYS)]

    @property
    def reported(self) -> Path:
        return self.folder / "reported"

    def start(self) -> None:
        for slot in self._slots:
            self._spawn(slot)

    def replace_dead(self) -> None:
        for slot in self._slots:
            if slot.is_done or slot.process is None or (code := slot.process.poll()) is None:
                continue
            if slot.role == CLIENT and code == 0:
                slot.is_done = True
                if all(each.is_done for each in self._slots if each.role == CLIENT):
                    self.started_all.set()
                continue
            if code not in (-signal.SIGKILL, 1):  # 1: it could not start; its log contains the reason
                self.unexpected_exits.append(f"{slot.name} ended by itself with {code}")
            self.replaced += 1
            self._spawn(slot)

    def kill(self, role: str, dice: random.Random) -> str | None:
        """Send SIGKILL to one process; return its name, or None without a candidate.

        Mostly choose a worker with a running turn: on a busy machine few workers would otherwise reach their first turn.
        """
        slot = self._choose(role, dice)
        if slot is None or slot.process is None:
            return None
        if role == WORKER:
            self.deaths.append(Death(slot.name, time.time()))
        slot.process.kill()
        return slot.name

    def choose_to_freeze(self, dice: random.Random) -> subprocess.Popen[bytes] | None:
        slot = self._choose(WORKER, dice)
        return slot.process if slot is not None else None

    def stop_workers(self) -> list[str]:
        """Stop all workers as a service manager would; return one text for each wrong exit."""
        self.replace_dead()  # a kill may just have been
        workers = [slot for slot in self._slots if slot.role == WORKER and slot.process is not None]
        for slot in workers:
            assert slot.process is not None
            slot.process.send_signal(signal.SIGCONT)
            slot.process.terminate()
        wrong = []
        for slot in workers:
            assert slot.process is not None
            try:
                code = slot.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                wrong.append(f"{slot.name} got SIGTERM and did not end within {STOP_SECONDS:g} s")
                continue
            if code not in (0, -signal.SIGTERM):  # -SIGTERM: the signal arrived before its handler was installed
                wrong.append(f"{slot.name} got SIGTERM and ended with {code}")
        return wrong

    def end(self) -> None:
        for slot in self._slots:
            if slot.process is not None:
                slot.process.kill()
                slot.process.wait()

    def _choose(self, role: str, dice: random.Random) -> Slot | None:
        living = [s for s in self._slots if s.role == role and s.process is not None and s.process.poll() is None]
        if role == WORKER and dice.random() < AT_WORK_SHARE:
            living = [slot for slot in living if self._is_at_work(slot)]
        return dice.choice(living) if living else None

    def _is_at_work(self, slot: Slot) -> bool:
        return f"worker {slot.name}:" in self._log_of(slot).read_text(errors="replace")

    def _log_of(self, slot: Slot) -> Path:
        return self.folder / f"{slot.role}{slot.number}.log"

    def _spawn(self, slot: Slot) -> None:
        slot.generation += 1
        slot.name = f"{slot.role}{slot.number}-{slot.generation}"
        skew = self._dice.uniform(-60, 60) * self.options.skew_minutes
        self.skews.append(skew)
        environment = {**os.environ, **self.environment, "CHAOS_SKEW_SECONDS": f"{skew:.3f}"}
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(reversed(path))
        log = self._log_of(slot)
        with log.open("ab") as out, log.with_suffix(".err").open("ab") as err:
            # on its own line, because the former process may have died in the middle of one
            begins = json.dumps({"level": "info", "message": f"{slot.name} begins, {skew:+.1f} s off"})
            out.write(f"\n{begins}\n".encode())
            out.flush()
            slot.process = subprocess.Popen(
                [sys.executable, *slot.command(slot.name)], env=environment, cwd=self.folder, stdout=out, stderr=err
            )

    def _worker(self, name: str) -> list[str]:
        options = self.options
        return ["-m", "tests.journeys.chaos.skewed", "worker", *APPLICATIONS, "--project", "default", "--project", PROJECT, "--json",
                "--name", name, "--lease", f"{options.lease_seconds}", "--concurrency", f"{options.concurrency}"]  # fmt: skip

    def _client(self, number: int) -> Callable[[str], list[str]]:
        options = self.options
        pause = options.start_every * options.clients
        arguments = [number, options.clients, options.runs, pause, options.open_max, self.folder]
        return lambda _name: ["-m", "tests.journeys.chaos.client", *map(str, arguments)]

    def _tool(self, way: str) -> Callable[[str], list[str]]:
        return lambda _name: ["-m", "tests.journeys.chaos.tools", way, str(self.reported)]
