"""Kill -9 at random moments: `python -m tests.journeys.chaos --runs 500 --seed 1 --kill-every 1`.

Several `helio worker` processes serve chaos_app.py while they are killed, and stopped past their lease and let go on.
Once every run has ended, `chaos_checks` looks at what must be true. Prints its figures; exits 1 on any violation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from heliograph.config import Settings
from heliograph.errors import StoreUnavailable
from heliograph.runtime import Runtime, open_runtime
from heliograph.testing.database import TestServer
from tests.journeys.chaos_app import app
from tests.journeys.chaos_checks import find_figures, find_violations

APP = Path(__file__).with_name("chaos_app.py")
ROOT = APP.parent.parent.parent
TICK_SECONDS = 0.02


@dataclass(frozen=True)
class Options:
    runs: int = 500
    seed: int = 1
    workers: int = 4
    concurrency: int = 8
    lease_seconds: float = 1.0
    start_every: float = 0.05
    kill_every: float = 1.0
    stop_every: float = 2.0
    limit_seconds: float = 900.0


@dataclass
class Report:
    """What was done to the workers, what came of it, and what must not be (`violations`)."""

    kills: int = 0
    stops: int = 0
    violations: list[str] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)


class Fleet:
    """The worker processes: each that is dead is replaced at once."""

    def __init__(self, url: str, folder: Path, options: Options):
        self._options = options
        self._folder = folder
        self._environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": url, "PYTHONPATH": str(ROOT),
                             "CHAOS_EFFECTS": str(folder / "effects"), "CHAOS_LEASE": str(options.lease_seconds)}  # fmt: skip
        self._processes: list[subprocess.Popen[bytes]] = []
        self._frozen: dict[int, float] = {}
        for _ in range(options.workers):
            self._processes.append(self._spawn())

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "heliograph.cli.main", "worker", f"{APP}:app", "--lease",
                   str(self._options.lease_seconds), "--concurrency", str(self._options.concurrency)]  # fmt: skip
        with (self._folder / "workers.log").open("ab") as log:
            return subprocess.Popen(command, env=self._environment, cwd=self._folder, stdout=log, stderr=log)

    def replace_dead(self) -> None:
        self._processes = [p if p.poll() is None else self._spawn() for p in self._processes]

    def kill(self, victim: int) -> None:
        self._processes[victim].send_signal(signal.SIGKILL)

    def freeze(self, victim: int, seconds: float) -> None:
        self._processes[victim].send_signal(signal.SIGSTOP)
        self._frozen[victim] = time.monotonic() + seconds

    def thaw(self, *, all_of_them: bool = False) -> None:
        for victim, until in list(self._frozen.items()):
            if all_of_them or time.monotonic() > until:
                self._processes[victim].send_signal(signal.SIGCONT)
                del self._frozen[victim]

    def stop(self) -> list[int]:
        """As a service is stopped; answers how each process ended."""
        self.thaw(all_of_them=True)
        for process in self._processes:
            process.terminate()
        return [process.wait(30) for process in self._processes]

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


async def run_chaos(url: str, folder: Path, options: Options) -> Report:
    """One whole chaos run on an empty database; `folder` takes the effects and the workers' log."""
    report, heard = Report(), Counter[str]()
    listener = await asyncpg.connect(url)
    await listener.add_listener("heliograph_events", lambda *args: heard.update([json.loads(args[3])["key"]]))
    fleet = Fleet(url, folder, options)
    try:
        async with open_runtime(Settings(database_url=url)) as runtime:
            acknowledged: dict[str, int] = {}
            starting = asyncio.create_task(_start_runs(runtime, acknowledged, options))
            began = time.monotonic()
            await _harass(runtime, fleet, starting, report, options)
            report.figures["seconds"] = round(time.monotonic() - began, 1)
            await starting
            await _settled(runtime, options)
            endings = await asyncio.to_thread(fleet.stop)
            # -SIGTERM: it was told so early that it had not begun
            bad = [code for code in endings if code not in (0, -signal.SIGTERM)]
            report.violations += [f"a worker that was told to stop ended with {code}" for code in bad]
            await listener.fetchval("select 1")  # what was rung before this has been heard after it
            report.violations += await find_violations(runtime, acknowledged, heard, folder / "effects")
            report.figures |= await find_figures(runtime, folder / "workers.log", options.lease_seconds)
    finally:
        fleet.end()
        await listener.close()
    return report


async def _start_runs(runtime: Runtime, acknowledged: dict[str, int], options: Options) -> None:
    for n in range(options.runs):
        run_id = f"run_chaos_{options.seed}_{n}"
        await runtime.start(app.workflow, {"n": n}, run_id)
        acknowledged[run_id] = n
        await asyncio.sleep(options.start_every)


async def _harass(
    runtime: Runtime, fleet: Fleet, starting: asyncio.Task[None], report: Report, options: Options
) -> None:
    """Faults until nearly all runs have ended; then until all have, without. Gives up after the time limit."""
    dice = random.Random(options.seed)
    begun = next_look = time.monotonic()
    next_kill, next_stop, ended = begun + options.kill_every, begun + options.stop_every, 0
    while ended < options.runs:
        now = time.monotonic()
        if now - begun > options.limit_seconds or (starting.done() and starting.exception()):
            report.violations.append(f"given up after {now - begun:.0f} s: {options.runs - ended} runs have not ended")
            return
        fleet.replace_dead()
        fleet.thaw()
        if ended < 0.95 * options.runs:
            if now > next_kill:
                next_kill = now + options.kill_every * (0.5 + dice.random())
                fleet.kill(dice.randrange(options.workers))
                report.kills += 1
            if now > next_stop:
                next_stop = now + options.stop_every * (0.5 + dice.random())
                fleet.freeze(dice.randrange(options.workers), options.lease_seconds * (0.3 + 1.5 * dice.random()))
                report.stops += 1
        if now > next_look:
            next_look = now + 0.25
            ended = await _count(runtime, "select count(*) from heliograph.runs where status = 'ended'")
        await asyncio.sleep(TICK_SECONDS)
    fleet.thaw(all_of_them=True)


async def _settled(runtime: Runtime, options: Options) -> None:
    """Until the last event is published, and a late zombie has had its time to do harm."""
    until = time.monotonic() + 30
    while await _count(runtime, "select count(*) from heliograph.outbox where published_at is null"):
        if time.monotonic() > until:
            return  # the doctor will say so
        await asyncio.sleep(0.1)
    await asyncio.sleep(2 * options.lease_seconds)


async def _count(runtime: Runtime, query: str) -> int:
    try:
        return int((await runtime.database.fetch(query))[0][0])
    except StoreUnavailable:
        return 1


async def _on_a_server_of_its_own(options: Options) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        server = TestServer(Path(folder) / "home")
        try:
            report = await run_chaos(await server.create(), Path(folder), options)
            if report.violations:
                print((Path(folder) / "workers.log").read_text()[-20_000:])
            return report
        finally:
            server.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in vars(Options()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, metavar=str(default))
    options = Options(**vars(parser.parse_args()))
    report = asyncio.run(_on_a_server_of_its_own(options))
    figures = {
        "runs": options.runs,
        "seed": options.seed,
        "kills": report.kills,
        "stops": report.stops,
        **report.figures,
    }
    print("  ".join(f"{name}={value}" for name, value in figures.items()))
    for violation in report.violations:
        print(f"VIOLATED {violation}")
    return 1 if report.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
