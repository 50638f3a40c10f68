"""Searches for signals: where they continue, how much of a log they read, and what they must not pass."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from time import perf_counter
from typing import Any

import pytest

from tests.kernel.kit import Connect, Item, Kernel, draft
from tests.kernel.test_subscriptions import of, record, seqs, subscribe, take


async def test_search_continues_after_pages_without_a_matching_signal(kernel: Kernel) -> None:
    await subscribe(kernel, "s", "x:y")
    claimed = await kernel.running()
    for emitted in (0, 150, 300, 450):
        await kernel.append(
            claimed, *[draft("a:b", claimed["activation_id"]) for _ in range(150)], signals_emitted=emitted
        )
    await kernel.append(claimed, draft("x:y", claimed["activation_id"]), signals_emitted=600)
    answer: dict[str, Any] = {"runs": [], "more": True}
    while not answer["runs"] and answer["more"]:
        answer = await kernel.call("take_signals", "s", "w", 10, 30.0)
    assert seqs(answer["runs"]) == {"run_a": [603]}


@pytest.mark.more  # three megabytes of signals
async def test_search_reads_few_large_commits_at_once(kernel: Kernel) -> None:
    claimed = await kernel.running()
    chance = random.Random(1)
    for emitted in (0, 12, 24, 36):  # commits of 0.7 MB, which cannot be compressed
        large = [draft("x:y", claimed["activation_id"], payload=chance.randbytes(30_000).hex()) for _ in range(12)]
        await kernel.append(claimed, *large, signals_emitted=emitted)
    length = "select heliograph._page_length($1, 'run_a', $2)"
    assert [await kernel.connection.fetchval(length, kernel.project, after) for after in (0, 2, 38)] == [26, 24, 12]
    await subscribe(kernel, "s", "x:y")
    answer: dict[str, Any] = {"runs": []}
    while not answer["runs"]:
        answer = await kernel.call("take_signals", "s", "w", 1, 30.0)
    assert seqs(answer["runs"]) == {"run_a": [*range(3, 27)]}


async def test_search_passes_no_signal_of_a_run_whose_release_has_not_committed(
    kernel: Kernel, beside: Connect
) -> None:
    """The release reads the log before a commit that the search sees, and commits after the search."""
    await subscribe(kernel)
    claimed = await kernel.running()
    [mine] = await take(kernel, "w1")
    writer, releaser = await beside(), await beside()
    writing, releasing = writer.connection.transaction(), releaser.connection.transaction()
    await writing.start()
    await writer.append(claimed, draft("x:y", claimed["activation_id"]))
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    [end] = [row["feed_id"] for row in await kernel.rows("run_feed", "run_id, feed_id") if row["run_id"] == "run_b"]
    await searched(kernel, "next_feed_id", end)
    await releasing.start()
    assert await record(releaser, "run_a", mine["upto"]) == "ok"
    await writing.commit()
    searching = asyncio.create_task(searched(kernel, "feed_id", end))
    await asyncio.wait({searching}, timeout=0.2)
    await releasing.commit()
    found = [*await searching, *await take(kernel, "w3")]
    assert [(run["run_id"], run["after"]) for run in found] == [("run_a", mine["upto"])]


async def searched(kernel: Kernel, column: str, end: int) -> list[Item]:
    """Search until the subscription has come so far. A transaction that is in progress in any database of the server delays it."""
    found = []
    for _ in range(3000):  # transactions of other tests may last for as long as a database is copied
        found += await take(kernel, "w2")
        [row] = await kernel.rows("subscriptions", column)
        if (row[column] or 0) >= end:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"{column} does not reach {end}")


@pytest.mark.more
async def test_time_of_one_renewal_grows_with_its_leases_and_not_with_their_square(kernel: Kernel) -> None:
    await subscribe(kernel)
    await kernel.connection.execute(
        "insert into heliograph.subscription_runs (project_id, name, run_id, position, subscriber, upto, has_news, lease_until)"
        " select $1, 's', 'run_' || n, 0, 'w1', 1, true, $2 from generate_series(1, 5000) n", kernel.project, kernel.now,
    )  # fmt: skip
    kernel.is_corrupted = True  # there are no such runs
    seconds = {}
    for count in (500, 5000):
        items = [of("s", "w1", f"run_{n}", 1, lease_seconds=60) for n in range(1, count + 1)]
        measured = []
        for _ in range(3):
            started = perf_counter()
            assert {each["outcome"] for each in await kernel.call("record_positions", items)} == {"ok"}
            measured.append(perf_counter() - started)
        seconds[count] = min(measured)
    assert seconds[5000] < 25 * seconds[500]


async def test_prune_passes_a_run_while_a_subscriber_records_its_position(kernel: Kernel, beside: Connect) -> None:
    """Subscribers record the positions of many runs at once: prune, which has many runs, must not wait for one of them."""
    await subscribe(kernel)
    for run in ("run_a", "run_b"):
        await kernel.finish(await kernel.running(run, f"turn_{run}"), ends="success")
    await take(kernel, lease=600)
    kernel.wait(10)
    await kernel.publish()
    other = await beside()
    other.now = kernel.now
    recording = other.connection.transaction()
    await recording.start()
    assert await record(other, "run_b", 1, lease_seconds=600) == "ok"
    async with asyncio.timeout(5):
        await kernel.call("prune", kernel.now - timedelta(seconds=5), 100)
    await recording.commit()
    assert [row["run_id"] for row in await kernel.rows("subscription_runs", "run_id")] == ["run_b"]
    assert [row["run_id"] for row in await kernel.rows("runs", "run_id")] == ["run_b"]
    await kernel.call("prune", kernel.now - timedelta(seconds=5), 100)
    assert await kernel.rows("subscription_runs") == await kernel.rows("runs") == []
    assert await record(kernel, "run_b", 1) == "stale"


@pytest.mark.more  # six thousand signals
async def test_search_with_a_hundred_patterns_takes_little_time_and_continues_in_the_next_call(kernel: Kernel) -> None:
    """PostgreSQL keeps 32 compiled expressions: with more patterns, it compiled each of them again for each signal."""
    patterns = [f"order:**:item{number}:*" for number in range(99)]
    await subscribe(kernel, "s", "x:**:end", *patterns)
    for number in range(60):
        claimed = await kernel.running(f"run_{number:02}", f"turn_{number}")
        drafts = [draft(f"x:y{n}:z", claimed["activation_id"]) for n in range(98)]
        await kernel.append(claimed, *drafts, draft("x:y:end", claimed["activation_id"]))
    answers: list[Item] = [{"more": True, "runs": []}]
    started = perf_counter()
    while answers[-1]["more"] or len(answers) < 3:
        answers.append(await kernel.call("take_signals", "s", "w", 1000, 30.0))
    assert perf_counter() - started < 8  # and not about twenty
    assert sorted(run for each in answers for run in seqs(each["runs"])) == [f"run_{n:02}" for n in range(60)]
    assert all(seqs([run]) == {run["run_id"]: [101]} for each in answers for run in each["runs"])
    assert 0 < len(answers[1]["runs"]) < 60
