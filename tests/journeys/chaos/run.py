"""One chaos run from an empty folder to a report: build the site, inject faults, wait for the ends, check the claims."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from heliograph.config import Settings
from heliograph.ledger.install import install
from heliograph.runtime import open_runtime
from heliograph.testing.kernel.row_guard import guard_rows
from heliograph.testing.kernel.transition_guard import guard_transitions
from heliograph.world.cancellation import cancel
from tests.journeys.chaos import logs, mutants
from tests.journeys.chaos.calm import stop_in_calm
from tests.journeys.chaos.checks import Evidence, judge
from tests.journeys.chaos.client import ACKNOWLEDGED, ENOUGH
from tests.journeys.chaos.client_actions import GREETED
from tests.journeys.chaos.cluster import PostgresServer
from tests.journeys.chaos.disk import SmallDisk
from tests.journeys.chaos.faults import Faults
from tests.journeys.chaos.figures import Spread, count, measure, skew_seen, spread_of
from tests.journeys.chaos.options import Options
from tests.journeys.chaos.procs import Fleet
from tests.journeys.chaos.proxy import Proxy
from tests.journeys.chaos.site import Site, Timeline
from tests.journeys.chaos.slow_fsync import SlowFsync
from tests.journeys.chaos.trials import LIMITS
from tests.journeys.chaos.verdict import Verdict
from tests.journeys.chaos.watch import Watch, read_number
from tests.journeys.chaos.wire import Listener, NatsListener, PostgresListener
from tests.reach.nats_kit import NatsServer

TICK_SECONDS = 0.1
SETTLE_SECONDS = 30.0
UNDER_WAY = "select count(*) from heliograph.runs where status <> 'ended'"


@dataclass
class Report:
    """Injected faults and observations. `violations` is empty if every claim holds."""

    options: Options
    disk: str = ""
    seconds: float = 0.0
    injected: dict[str, int] = field(default_factory=dict)
    lasted: dict[str, Spread] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    figures: dict[str, int | float] = field(default_factory=dict)
    latencies: dict[str, Spread] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        return [f"{verdict.claim}: {problem}" for verdict in self.verdicts for problem in verdict.problems]


async def run_chaos(folder: Path, options: Options, mutant: mutants.Mutant | None = None) -> Report:
    """Run chaos in an empty folder, which receives logs, timeline, marks and, if a claim fails, the server's data."""
    report = Report(options)
    async with _site(folder, options, mutant) as site:
        faults, began = Faults(site), time.monotonic()
        report.disk, report.unavailable = site.disk.kind, dict(faults.unavailable)
        site.fleet.start()
        report.verdicts += await _until_ended(site, faults, ends_early=mutant is not None)
        report.seconds = round(time.monotonic() - began, 1)
        if mutant is not None and report.violations:
            return report  # the mutant is detected: no further check is needed
        report.verdicts.append(await stop_in_calm(site))
        await _settle(site)
        try:
            await _examine(site, report)
        except BaseException:
            await _keep_data(site)  # a person can examine unchecked data
            raise
        if report.violations:
            await _keep_data(site)
    return report


async def _keep_data(site: Site) -> None:
    site.server.end()
    await asyncio.to_thread(site.disk.close, site.folder / "server-data")


@asynccontextmanager
async def _site(folder: Path, options: Options, mutant: mutants.Mutant | None) -> AsyncIterator[Site]:
    disk = SmallDisk(folder, options.disk_megabytes if options.disk_full_every > 0 else 0)
    fsync = SlowFsync(folder, is_enabled=options.slow_fsync_every > 0)
    server, nats = PostgresServer(disk.home, fsync.environment), NatsServer()
    proxy, fleet = Proxy(server.socket), None
    listeners, listening = list[Listener](), list[asyncio.Task[None]]()
    try:
        await server.make()
        await _install(server.url, options, mutant)
        await asyncio.to_thread(nats.start)
        parts = urlsplit(server.url)
        through = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{await proxy.open()}", query="")
        listeners += [PostgresListener(server.url), NatsListener(nats.url)]
        for listener in listeners:
            await listener.connect()
            listening.append(asyncio.create_task(listener.listen(), name=f"listen on {listener.name}"))
        fleet = Fleet(folder, options, {
            "HELIOGRAPH_DATABASE_URL": urlunsplit(through), "HELIOGRAPH_NATS_URL": nats.url,
            "CHAOS_EFFECTS": str(folder / "effects"), "CHAOS_LEASE": str(options.lease_seconds),
            "CHAOS_SLOW": str(options.slow_percent),
        })  # fmt: skip
        yield Site(folder, options, disk, fsync, server, proxy, nats, fleet, listeners, Timeline(folder / "timeline"))
    finally:
        if fleet is not None:
            fleet.end()
        await cancel(listening)
        for listener in listeners:
            await listener.disconnect()
        await proxy.close()
        nats.kill()
        server.end()
        disk.close()


async def _install(url: str, options: Options, mutant: mutants.Mutant | None) -> None:
    connection = await asyncpg.connect(url)
    try:
        await install(connection)
        # for the listeners: nothing is published before, and workers declare NATS before their first claim
        await connection.execute("select heliograph.declare_wire('default', 'postgres', clock_timestamp())")
        limits = json.dumps({**LIMITS, "running_max": options.running_max})
        await connection.execute("select heliograph.set_limits('default', $1::text::jsonb)", limits)
        if mutant is not None:
            await mutants.apply(connection, mutant)
        else:
            await guard_transitions(connection)
            await guard_rows(connection)
    finally:
        await connection.close()


async def _until_ended(site: Site, faults: Faults, *, ends_early: bool) -> list[Verdict]:
    """Inject faults until every run has ended; no fault is active on return.

    ends_early: return as soon as a check fails that must hold at any time.
    """
    problems, ended, watch = list[str](), asyncio.Event(), Watch(site)
    harassing = asyncio.create_task(_harass(site, faults, ended), name="faults")
    try:
        async with asyncio.timeout(site.options.limit_seconds):
            while not (harassing.done() and harassing.exception()) and not (ends_early and watch.has_seen):
                site.fleet.replace_dead()
                if await read_number(site, "select count(*) from heliograph.runs where status = 'ended'", 0):
                    ended.set()
                if site.fleet.started_all.is_set() and await read_number(site, UNDER_WAY, 1) == 0:
                    break
                await watch.look(is_thorough=ends_early)
                await asyncio.sleep(TICK_SECONDS)
    except TimeoutError:
        unfinished = await read_number(site, UNDER_WAY, -1)
        clients = "" if site.fleet.started_all.is_set() else ", and clients are not done"
        problems.append(f"stopped after {site.options.limit_seconds:g} s: {unfinished} runs have not ended{clients}")
    harassing.cancel()
    [failure] = await asyncio.gather(harassing, return_exceptions=True)
    if isinstance(failure, Exception):
        problems.append(f"a fault could not be injected or undone: {failure!r}")
    return [*watch.verdicts(), Verdict("every run came to its end", problems)]


async def _harass(site: Site, faults: Faults, first_ended: asyncio.Event) -> None:
    """Inject faults from the end of the first run to the start of the last one, at most for the configured time."""
    await first_ended.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(site.options.chaos_seconds), asyncio.TaskGroup() as group:
            chaos = group.create_task(faults.run())
            await site.fleet.started_all.wait()
            chaos.cancel()
    (site.folder / ENOUGH).touch()


async def _settle(site: Site) -> None:
    """Wait until the last event is published, plus the time in which a former owner could still write."""
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until:
        if not await read_number(site, "select count(*) from heliograph.outbox where published_at is null", 1):
            break
        site.fleet.replace_dead()
        await asyncio.sleep(TICK_SECONDS)
    await asyncio.sleep(2 * site.options.lease_seconds)


async def _examine(site: Site, report: Report) -> None:
    """Stop the workers as a service manager would, then check the claims."""
    fleet, timeline = site.fleet, site.timeline
    wrong = fleet.unexpected_exits + await asyncio.to_thread(fleet.stop_workers)
    for listener in site.listeners:
        await listener.catch_up()
    report.injected = {**timeline.counts, "panic": logs.count_panics(site.server.files.log)}
    report.lasted = {kind: s for kind, took in timeline.seconds.items() if (s := spread_of(took)) is not None}
    async with open_runtime(Settings(database_url=site.server.url)) as runtime:
        await runtime.database.fetch("analyze")  # autovacuum may not have run between two crashes
        outside = (site.folder / ACKNOWLEDGED, site.folder / GREETED, site.folder / "effects", fleet.reported)
        evidence = Evidence(*outside, site.listeners)
        report.verdicts += await judge(runtime, evidence)
        report.latencies = await measure(runtime, fleet.deaths, timeline.ends.get("pg_stop", []))
        report.figures = {
            **await count(runtime), "stale_refused": logs.count_stale(site.folder),
            "processes_replaced": fleet.replaced, "clock_off_s_max": round(max(map(abs, fleet.skews))),
            "clock_off_s_seen": round(await skew_seen(runtime)),
        }  # fmt: skip
    report.verdicts += [
        Verdict("every process ended with its documented code", wrong),
        logs.judge_workers(site.folder),
        logs.judge_server(site.server.files.log),
    ]
