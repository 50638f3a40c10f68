"""The benchmark runs and every line counts something. Its figures need a quiet machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bench import beside, compare, schema_variants
from bench.__main__ import RESULTS, measure_all
from bench.agent_apps import application
from bench.beside import measure_peer
from bench.history import database_with_history
from bench.kernel_calls import CALLS, Cost, measure_calls
from bench.load import (
    CHILDREN,
    ITEMS,
    RUN_OF_AGENTS,
    STEPS,
    STREAM,
    WATCH,
    in_lanes,
    jobs,
    single_runs,
    single_turns,
    turns,
)
from bench.machine import read_header
from bench.meter import processes
from bench.meter.processes import ROLES, is_supported
from bench.meter.sample import COMMITS, CPU, P50, RATE, SERVER, WAL, Done, Sample, Spread
from bench.parts import Parts
from bench.peers.catalog import CATALOG
from bench.place import Place
from bench.provider import providing
from bench.report import Row, as_json, print_report
from bench.trips import CountingPlace
from bench.works import (
    AFTER,
    BASES,
    HELIOGRAPH,
    IN_MEMORY,
    LOADS,
    MANY,
    PEER,
    SINGLE,
    SIXTEEN,
    STREAMS,
    Contender,
    contenders,
)
from heliograph.embedded.cluster import find_binaries
from heliograph.testing.database import TestServer

HEADER = {
    "at": "2030-01-01 00:00 UTC", "commit": "abc1234", "machine": "2 cores", "load_before": 0.1, "python": "3.11",
    "packages": {"asyncpg": "1"}, "peers": {}, "seconds": 1.0, "repetitions": 1,
    "postgresql": {"server_version": "18.4", "fsync": "on", "synchronous_commit": "on"},
}  # fmt: skip


class Instant:
    """A contender that finishes all work at once, and records it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def start(self, lane: int) -> int:
        return self._note("start")

    async def start_turn(self, lane: int) -> int:
        return self._note("start_turn")

    async def start_agents(self, work: str) -> int:
        return self._note(f"start_agents {work}")

    async def report(self, lane: int, key: int) -> None:
        self._note(f"report {key}")

    async def count_ended(self, keys: Sequence[int]) -> int:
        return len(keys)

    async def count_suspended(self, keys: Sequence[int]) -> int:
        self._note("suspended")
        return len(keys)

    async def count_finished(self, keys: Sequence[int]) -> int:
        self._note("finished")
        return len(keys)

    def _note(self, what: str) -> int:
        self.calls.append(what)
        return len(self.calls)


@pytest.fixture
def place(postgres: TestServer) -> Place:
    return Place(postgres.admin_url, find_binaries(18))


@pytest.mark.more
@pytest.mark.parametrize("works", ["AB", STEPS, CHILDREN, STREAM])
async def test_every_line_without_a_peer_is_measured_and_printed(
    works: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    # one caller and 128 callers are measured by the function of 16, and many streams by that of one
    lines = [
        replace(
            line, loads={load: line.loads[load] for load in (SIXTEEN, SINGLE, *[*STREAMS][:1]) if load in line.loads}
        )
        for line in contenders()
        if line.kind != PEER and line.work in works
    ]
    rows = await measure_all(place, lines, seconds=0.1, reps=1)
    header = await read_header(place.url, 0.1, 1)
    print_report(header, lines, rows)
    output = capsys.readouterr().out
    assert [(row.name, row.load) for row in rows] == [
        (o.name, load) for o in lines for load in LOADS if load in o.loads
    ]
    for row in rows:
        assert row.name in output
        stored = () if row.kind == IN_MEMORY else (COMMITS, WAL, SERVER)
        for figure in (RATE, *(each for each in (*stored, CPU) if is_supported() or not each.endswith("µs"))):
            assert row.figures[figure].median > 0, (row.name, row.load, figure)
        assert P50 in row.figures or row.load not in (SINGLE, *STREAMS)
    document = json.loads(json.dumps(as_json(header, rows, Parts())))
    assert document["header"]["postgresql"]["server_version"].startswith("18")


def test_each_peer_has_its_line_in_both_works_with_the_reason_where_it_has_no_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(beside, "VENV", tmp_path)
    lines = [line for line in contenders() if line.kind == PEER and line.work in BASES]
    assert len(lines) == 2 * len(CATALOG)
    assert not any(line.loads for line in lines)
    print_report(HEADER, lines, [])
    output = capsys.readouterr().out
    for entry in CATALOG:
        assert output.count(f"{entry.title}: not installed: make bench-peers") == len(entry.works)
        assert output.count(f"{entry.title}: no suspend") == 2 - len(entry.works)


async def test_failing_peer_is_reported_and_stops_no_other(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    async def fails(place: Place, callers: int, seconds: float) -> Sample:
        raise RuntimeError("no such schema")

    async def works(place: Place, callers: int, seconds: float) -> Sample:
        return Sample(Done(10), 1.0)

    lines = [
        Contender("A", "broken", PEER, {SIXTEEN: (fails, 16)}),
        Contender("A", "sound", PEER, {SIXTEEN: (works, 16)}),
    ]
    rows = await measure_all(place, lines, 0.1, 2)
    print_report(HEADER, lines, rows)
    assert "failed: A, broken, 16 callers: RuntimeError: no such schema" in capsys.readouterr().out
    assert [row.median(RATE) for row in rows] == [None, 10.0]


async def test_round_trips_and_statements_are_counted_by_side_without_those_that_observe(place: Place) -> None:
    counting = CountingPlace(place)
    async with counting.database(sql="create table t (n integer)") as url:
        connection = await asyncpg.connect(url)
        watch = await asyncpg.connect(url, server_settings=WATCH)
        insert = await connection.prepare("insert into t values ($1)")

        async def work() -> Done:
            await watch.fetchval("select 1")
            await insert.executemany([(1,), (2,), (3,)])  # together, in one round trip
            await insert.fetchval(4)
            await connection.execute("select  pg_notify('a', 'b')")
            return Done(2)

        await counting.measure(work)
        await connection.execute("select 2")  # is no part of the work
        await watch.close()
        await connection.close()
    found = counting.found
    assert found.by_statement == {("caller", "insert into t values ($1)"): 4, ("caller", "pg_notify"): 1}
    assert found.trips == {"caller": 3}
    assert found.as_json()["trips"] == {"caller": 1.5}


@pytest.mark.more
@pytest.mark.parametrize("work", "AB")
async def test_process_with_a_worker_of_its_own_waits_for_results_as_an_application_does(
    work: str, place: Place
) -> None:
    """Instead of a poll for their end, so that the figures of that line are those of the product. Suspended calls are found in the log."""
    [line] = [line for line in contenders() if line.name == f"{HELIOGRAPH}, own worker" and line.work == work]
    [(measure, callers)] = line.loads.values()
    counting = CountingPlace(place)
    await measure(counting, callers, 0.1)
    found = counting.found
    reads = sum(count for (_, name), count in found.by_statement.items() if name == "read_log")
    assert reads == 0 if work == "A" else reads >= found.items


@pytest.mark.more
async def test_each_kernel_call_has_a_cost(place: Place) -> None:
    costs = await measure_calls(place, 1, (1, 2))
    assert list(costs) == list(CALLS)
    assert all(cost > 0 for each in costs.values() for cost in each.per_item.values())


@pytest.mark.more
async def test_variants_of_the_schema_are_measured_in_databases_of_their_own(place: Place) -> None:
    found = await schema_variants.measure(
        place, {"as it is": "", "wide": "alter table heliograph.runs add column x text"}, 1, 1
    )
    assert {name: list(times) for name, times in found.items()} == {name: list(CALLS) for name in ("as it is", "wide")}


def test_cost_of_a_call_has_a_fixed_part_and_a_part_per_item() -> None:
    cost = Cost({1: 110.0, 64: 10.0 + 100.0 / 64})
    assert cost.fixed == pytest.approx(100.0)
    assert cost.marginal == pytest.approx(10.0)


async def test_lanes_count_their_own_work() -> None:
    calls_made = 0

    async def one(_: int) -> int:
        nonlocal calls_made
        calls_made += 1
        await asyncio.sleep(0)
        return 3

    items, durations = await in_lanes(4, 0.01, one)
    assert items == 3 * calls_made
    assert len(durations) == calls_made


async def test_each_lane_calls_once_when_no_time_is_left() -> None:
    async def one(lane: int) -> int:
        return lane

    items, durations = await in_lanes(4, -1.0, one)
    assert (items, len(durations)) == (0 + 1 + 2 + 3, 4)


async def test_load_of_jobs_counts_each_started_job() -> None:
    contender = Instant()
    done = await jobs(contender, 4, 0.02)
    assert done.items == contender.calls.count("start") > 0


async def test_load_of_turns_reports_each_turn_once_after_all_are_suspended() -> None:
    contender = Instant()
    done = await turns(contender, 4, 0.02)  # a pause of a millisecond must not end it before the first turn
    reports = [what for what in contender.calls if what.startswith("report")]
    assert done.items == len(reports) == len(set(reports)) == contender.calls.count("start_turn")
    assert contender.calls.index("suspended") < contender.calls.index(reports[0])
    assert contender.calls[-1] == "finished"


def test_run_of_a_thousand_agents_has_as_many() -> None:
    assert len(application(RUN_OF_AGENTS).workflow.agents) == ITEMS[RUN_OF_AGENTS] == 1000


async def test_latency_of_a_run_of_agents_is_divided_by_its_items() -> None:
    contender = Instant()
    done = await single_runs(STEPS, contender, 1, 0.001)
    assert done.items == len(done.latencies) * ITEMS[STEPS] > 0
    assert set(contender.calls) == {"start_agents P"}


def test_row_upon_a_history_is_compared_with_the_empty_database_of_the_same_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def row(name: str, rate: float) -> Row:
        return Row("A", name, HELIOGRAPH, MANY, figures={RATE: Spread.of([rate])})

    print_report(HEADER, [], [row(HELIOGRAPH, 1000.0), row(f"{HELIOGRAPH}{AFTER}1,000,000 turns", 950.0)])
    printed = capsys.readouterr().out
    assert "A, heliograph, after 1,000,000 turns, 128 callers: items/s x 0.95 of an empty database" in printed
    assert printed.count("of an empty database") == 1


async def test_single_turn_has_its_latency_and_the_part_after_the_report() -> None:
    done = await single_turns(Instant(), 1, 0.001)
    assert done.items == len(done.latencies) == len(done.resumes)
    assert all(0 < resume < whole for whole, resume in zip(done.latencies, done.resumes, strict=True))


async def test_measurement_has_the_commits_log_and_cpu_time_of_its_work_alone(place: Place) -> None:
    sql = "create schema heliograph create table t (n integer)"
    async with place.database(sql=sql) as url:
        connection = await asyncpg.connect(url)
        await connection.execute("insert into heliograph.t select generate_series(1, 1000)")

        async def work() -> Done:
            for n in range(5):
                await connection.execute("insert into heliograph.t values ($1)", n)
            await connection.execute("select pg_switch_wal()")  # the log lies in two files
            await connection.execute("insert into heliograph.t values (5)")
            await connection.execute("select count(*) from generate_series(1, 300000)")
            ended = await asyncpg.connect(url)  # a process that ends before the measurement does
            await ended.execute("select count(*) from generate_series(1, 300000)")
            await ended.close()
            return Done(5)

        sample = await place.measure(work, url=url)
        await connection.close()
    assert sample.commits >= 5  # other tests may use the server
    assert 6 * 59 <= sample.relations["t"] < 1000 * 59  # an insert logs at least 59 bytes; those before do not count
    assert sample.wal_bytes >= sum(sample.relations.values()) - 100  # the message that flushes
    if is_supported():
        assert sample.figures()[SERVER] > 1000
        assert set(sample.cpu) == set(ROLES)


@pytest.mark.skipif(not is_supported(), reason="needs /proc")
def test_processes_have_the_cpu_time_of_their_roles() -> None:
    def reading(server: dict[int, float], background: dict[int, float], ended: float) -> processes._Reading:
        return processes._Reading(server, background, ended, 1.0, {9: 1.0}, 100.0)

    before = reading({1: 10.0, 2: 20.0}, {5: 3.0}, 50.0)
    # 2 has ended with 21, an autovacuum (6) with 4, and another process (3) that came and ended with 7
    after = reading({1: 11.0}, {5: 3.5}, 50.0 + 21.0 + 4.0 + 7.0)
    spent = processes.Spent()
    processes._fill(spent, before, after, {5: 3.4, 6: 4.0}, 0.0)
    assert spent.by_role == {"server": 1.0 + 1.0 + 7.0, "background": 0.5 + 4.0, "caller": 0.0, "worker": 0.0}


@pytest.mark.more
def test_comparison_of_a_checkout_with_itself_prints_rates_cpu_times_and_ratios(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    compare.run(
        place, compare.HERE, argparse.Namespace(work="B", load=[SIXTEEN, SINGLE], peer=None, rounds=1, seconds=0.3)
    )
    printed = capsys.readouterr().out
    assert [line.partition(",")[0] for line in printed.splitlines() if line.endswith("rounds")] == ["B"] * 2
    for figure in (RATE, "server µs", "worker µs", CPU, WAL):
        found = re.findall(rf"{figure} +before +([\d,.]+) +now +([\d,.]+) +now/before [\d.]+", printed)
        assert len(found) == 2
        assert all(float(each.replace(",", "")) > 0 for pair in found for each in pair)


@pytest.mark.more
async def test_copied_history_has_the_requested_length_and_satisfies_the_doctor(place: Place) -> None:
    async with database_with_history(place, 20) as url, place.database(existing=url) as existing:
        connection = await asyncpg.connect(existing)
        ended = await connection.fetchval("select count(*) from heliograph.runs where status = 'ended'")
        turns_done = await connection.fetchval("select count(*) from heliograph.agent_turns where state = 'done'")
        broken: Any = json.loads(await connection.fetchval("select heliograph.doctor('default', true)"))
        await connection.close()
    assert (ended, turns_done, broken) == (21, 21, [])


@pytest.mark.skipif(not beside.are_installed(), reason="the peers are not installed: make bench-peers")
@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.key)
async def test_installed_peer_runs_each_of_its_workloads(entry: Any, place: Place) -> None:
    for work in entry.works:
        sample = await measure_peer(entry, work, place, 1, 0.1)
        assert sample.done.items == len(sample.done.latencies) > 0
        assert len(sample.done.resumes) == (sample.done.items if work == "B" else 0)


@pytest.mark.more
@pytest.mark.skipif(not beside.are_installed(), reason="the peers are not installed: make bench-peers")
@pytest.mark.parametrize("entry", [entry for entry in CATALOG if entry.agents], ids=lambda entry: entry.key)
async def test_installed_peer_runs_each_of_its_works_of_agents(entry: Any, place: Place) -> None:
    async with providing():
        for work in entry.agents:
            sample = await measure_peer(entry, work, place, 1, 0.1)
            assert sample.done.items == len(sample.done.latencies) * ITEMS[work] > 0


def test_stored_result_names_its_machine_and_commit_and_has_every_line() -> None:
    reference = json.loads((RESULTS / "reference.json").read_text(encoding="utf-8"))
    assert reference["header"]["commit"]
    assert reference["header"]["machine"]
    ours = {
        (line.work, line.name, load)
        for line in contenders()
        if line.kind != PEER and line.work in BASES
        for load in line.loads
    }
    theirs = {
        (work, entry.title, load) for entry in CATALOG for work in entry.works for load in (SIXTEEN, MANY, SINGLE)
    }
    assert {(row["work"], row["name"], row["load"]) for row in reference["rows"]} >= ours | theirs
    assert reference["header"]["peers"]
    assert (RESULTS / "reference.svg").exists()
