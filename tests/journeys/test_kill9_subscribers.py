"""`kill -9` of subscribers in the middle of a signal, while runs go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from heliograph import Client, Context, Heliograph, open_runtime
from heliograph.config import Settings
from heliograph.runtime import Runtime
from tests.journeys.kit import fetch, forked
from tests.runtime.kit import until

ROOT = Path(__file__).parent.parent.parent
WAVES, RUNS = 3, 5  # runs of each wave
LEASE_SECONDS = 4.0
SUBSCRIBERS = {"called": ("called", 3), "iterated": ("iterating", 2)}  # killed: name -> kind, processes

Events = dict[tuple[str, str], list[tuple[int, int, str]]]  # (name, run) -> (process, position, begin or end), in order


class Subscribers:
    """The processes, the file to which they write, and which of them are killed."""

    def __init__(self, url: str, folder: Path):
        self.effects = folder / "effects"
        self.killed: set[int] = set()
        self.lives: dict[int, tuple[str, subprocess.Popen[str]]] = {}
        self._environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                             "KILL9_EFFECTS": str(self.effects)}  # fmt: skip

    def begin(self, name: str, kind: str, lease_seconds: float) -> None:
        command = forked("tests.journeys.kill9_subscribers_app", kind, name, str(lease_seconds))
        process = subprocess.Popen(command, env=self._environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        self.lives[int(process.stdout.readline())] = name, process

    def hold(self) -> list[Path]:
        """Let each process of SUBSCRIBERS wait in the middle of its next `part:b`, until these files are deleted."""
        files = [self.effects.with_name(f"hold-{pid}") for pid, (name, _) in self.lives.items() if name in SUBSCRIBERS]
        for file in files:
            file.touch()
        return files

    def kill(self, pid: int) -> None:
        name, process = self.lives.pop(pid)
        os.kill(pid, signal.SIGKILL)
        process.communicate()
        self.killed.add(pid)
        self.begin(name, SUBSCRIBERS[name][0], LEASE_SECONDS)

    def events(self) -> Events:
        found: Events = defaultdict(list)
        for line in self.effects.read_text().splitlines() if self.effects.exists() else ():
            name, pid, run_id, position, what = line.split()
            found[name, run_id].append((int(pid), int(position), what))
        return found

    def in_the_middle(self) -> dict[int, str]:
        """The processes that have begun a signal and not ended it, with the names of their subscriptions."""
        return {events[-1][0]: name for (name, _), events in self.events().items()
                if events[-1][2] == "begin" and events[-1][0] in self.lives}  # fmt: skip

    def ended(self, name: str) -> dict[str, set[int]]:
        return {run: {at for _, at, what in events if what == "end"}
                for (of, run), events in self.events().items() if of == name}  # fmt: skip

    def close(self) -> None:
        for _, process in self.lives.values():
            process.kill()
            process.communicate()


def application(gates: dict[str, asyncio.Event]) -> Heliograph:
    """An application whose runs emit four signals in two turns, and two more once their gate is open."""
    app = Heliograph("kill9-subscribers")

    @app.agent(activate_on=["workflow:start"], emits=["part:a", "one:done"])
    def one(ctx: Context) -> None:
        for name in ("part:a", "part:a", "one:done"):
            ctx.emit(name)

    @app.agent(activate_on=["one:done"], emits=["part:b", "two:done"])
    def two(ctx: Context) -> None:
        for name in ("part:b", "part:b", "two:done"):
            ctx.emit(name)

    @app.agent(activate_on=["two:done"], emits=["part:c"])
    async def three(ctx: Context) -> None:
        await gates[ctx.run_id].wait()
        for name in ("part:c", "part:c"):
            ctx.emit(name)

    return app


async def positions_of_parts(runtime: Runtime, runs: Iterable[str]) -> dict[str, list[int]]:
    return {
        run: [each.seq for each in await runtime.reader.all_signals(run) if each.name.startswith("part:")]
        for run in runs
    }


async def test_killed_subscribers_lose_no_signal_and_no_position_and_disturb_no_others(
    database_url: str, tmp_path: Path
) -> None:
    subscribers, gates = Subscribers(database_url, tmp_path), dict[str, asyncio.Event]()
    app, stopping = application(gates), asyncio.Event()
    async with open_runtime(Settings(database_url=database_url)) as runtime, Client(database_url) as client:
        serving = asyncio.create_task(runtime.serve(runtime.worker(app.workflow), stopping))
        try:
            for name, (kind, count) in SUBSCRIBERS.items():
                for _ in range(count):
                    subscribers.begin(name, kind, LEASE_SECONDS)
            subscribers.begin("calm", "called", 60.0)
            for wave in range(WAVES):
                holds, gate = subscribers.hold(), asyncio.Event()
                runs = dict.fromkeys([f"run_{wave}_{n}" for n in range(RUNS)], gate)
                gates |= runs
                for run_id in runs:
                    await runtime.start(app.workflow, {}, run_id)
                await kill_in_the_middle(subscribers, database_url, [*runs])
                for file in holds:
                    file.unlink()
                gate.set()
            found: dict[str, list[int]] = {}

            async def are_ended() -> bool:
                found.update(await positions_of_parts(runtime, gates))
                return all(len(positions) == 6 for positions in found.values()) and all(
                    subscribers.ended(name) == {run: {*positions} for run, positions in found.items()}
                    for name in ("calm", *SUBSCRIBERS)
                )

            async def are_recorded() -> bool:
                return [row.behind for row in await client.subscriptions()] == [0, 0, 0]

            await until(are_ended)
            await until(are_recorded)
        finally:
            subscribers.close()
            stopping.set()
            await serving
    check(subscribers, found)


async def kill_in_the_middle(subscribers: Subscribers, url: str, runs: list[str]) -> None:
    """Kill all processes that wait in the middle of a signal, of each name in SUBSCRIBERS at least one."""

    def are_held() -> bool:
        # others are not held up, neither by these nor by those of earlier waves that were killed
        calm = subscribers.ended("calm")
        are_calm = all(len(calm.get(run_id, ())) == 4 for run_id in runs)
        return are_calm and {*subscribers.in_the_middle().values()} >= {*SUBSCRIBERS}

    await until(are_held)
    leases = await leases_of(url)

    async def are_renewed() -> bool:  # so that positions in the middle of a page are recorded
        now = await leases_of(url)
        return {key[0] for key in now if key in leases and now[key] > leases[key]} >= {*SUBSCRIBERS}

    await until(are_renewed)
    for pid in [pid for pid, name in subscribers.in_the_middle().items() if name in SUBSCRIBERS]:
        subscribers.kill(pid)


async def leases_of(url: str) -> dict[tuple[str, ...], datetime]:
    rows = await fetch(
        url,
        """
        select name, run_id, subscriber, lease_until from heliograph.subscription_runs where subscriber is not null""",
    )
    return {(row["name"], row["run_id"], row["subscriber"]): row["lease_until"] for row in rows}


def check(subscribers: Subscribers, positions: dict[str, list[int]]) -> None:
    """Assert the order of each run, one process at a time, and no repetition but of signals that a killed process had."""
    assert len(subscribers.killed) >= WAVES * len(SUBSCRIBERS)
    repeated = 0
    calm = {pid for (name, _), events in subscribers.events().items() if name == "calm" for pid, _, _ in events}
    assert calm.isdisjoint(subscribers.killed)
    for (name, run), events in subscribers.events().items():
        done, last, begun = 0, None, set[int]()
        for pid, position, what in events:
            place = positions[run].index(position)
            if what == "begin":
                assert place <= done, "a signal came before one that precedes it"
                assert last is None or last[2] == "end" or last[0] in subscribers.killed, "two have the run at once"
                repeated += place in begun
                begun.add(place)
            else:
                assert last == (pid, position, "begin")
                done = max(done, place + 1)
            last = pid, position, what
        if not subscribers.killed & {pid for pid, _, _ in events}:
            assert [(at, what) for _, at, what in events] == [
                (at, what) for at in positions[run] for what in ("begin", "end")
            ], name
    assert repeated > 0
