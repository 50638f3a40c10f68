"""Two and three real connections, ordered by the test: one keeps its transaction open while another call waits for its
lock (docs/internals/kernel.md). The test detects a waiting call in pg_stat_activity, and never by time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.kernel.filled import RATE
from tests.kernel.kit import START, TARGET, Connect, Item, Kernel, draft, ending, run_item
from tests.kernel.waits import begin, command, suspended


async def when_blocked(waiting: Kernel, call: Awaitable[Any], watcher: Kernel) -> asyncio.Task[Any]:
    """Begin `call` on `waiting`, and come back once it waits for a lock."""
    task = asyncio.ensure_future(call)
    pid = waiting.connection.get_server_pid()
    query = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1"
    while not await watcher.connection.fetchval(query, pid):
        assert not task.done(), f"it did not wait for a lock: {task}"
    return task


def opened(kernel: Kernel) -> AbstractAsyncContextManager[Any]:
    """A transaction of the caller around the kernel's own; its end is the commit."""
    transaction: AbstractAsyncContextManager[Any] = kernel.connection.transaction()
    return transaction


@pytest.mark.proves("K9", "K8", "L0-34")
async def test_enqueue_waits_for_a_concurrent_ending_and_is_dispatched(kernel: Kernel, beside: Connect) -> None:
    client, watcher = await beside(), await beside()
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer", "turn_c": "critic"})
    _, claimed = await kernel.claim()
    async with opened(kernel):
        assert (await kernel.finish(claimed))["outcome"] == "ok"
        task = await when_blocked(client, client.enqueue("run_a", "writer", "turn_2"), watcher)
    assert (await task)["targets"] == [TARGET]
    assert (await kernel.claim_one())["turn_id"] == "turn_2"


@pytest.mark.proves("K9", "K8")
async def test_ending_waits_for_a_concurrent_enqueue_and_dispatches_it(kernel: Kernel, beside: Connect) -> None:
    worker, watcher = await beside(), await beside()
    claimed = await kernel.running()
    async with opened(kernel):
        await kernel.enqueue("run_a", "writer", "turn_2")
        task = await when_blocked(worker, worker.finish(claimed), watcher)
    answer = await task
    assert answer["outcome"] == "conflict"  # the message moved the run on
    assert (await worker.finish(claimed, version=answer["run"]["version"]))["targets"] == [TARGET]


@pytest.mark.proves("K9", "K8")
async def test_enqueue_after_a_rolled_back_ending_meets_a_busy_agent(kernel: Kernel, beside: Connect) -> None:
    client, watcher = await beside(), await beside()
    claimed = await kernel.running()
    transaction = kernel.connection.transaction()
    await transaction.start()
    await kernel.finish(claimed)
    task = await when_blocked(client, client.enqueue("run_a", "writer", "turn_2"), watcher)
    await transaction.rollback()
    assert (await task)["targets"] == []
    assert (await kernel.turn("turn_2"))["state"] == "queued"


@pytest.mark.proves("L0-40", "L0-48")
async def test_two_enqueues_to_one_agent_are_taken_in_the_order_of_their_locks(kernel: Kernel, beside: Connect) -> None:
    second, watcher = await beside(), await beside()
    await kernel.running()
    async with opened(kernel):
        await kernel.enqueue("run_a", "critic", "turn_1")
        task = await when_blocked(second, second.enqueue("run_a", "critic", "turn_2"), watcher)
        assert await watcher.claim() == []  # uncommitted rows are invisible
    assert (await task)["targets"] == []
    assert (await kernel.claim_one())["turn_id"] == "turn_1"


@pytest.mark.proves("S12")
async def test_two_claims_at_once_keep_the_limit_of_running_turns(kernel: Kernel, beside: Connect) -> None:
    second, watcher = await beside(), await beside()
    await kernel.call("set_limits", {"running_max": 1})
    for name in "ab":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"})
    async with opened(kernel):
        assert [each["turn_id"] for each in await kernel.claim()] == ["turn_a"]
        task = await when_blocked(second, second.claim(), watcher)
    assert await task == []


@pytest.mark.proves("L0-40")
async def test_no_claim_takes_a_later_turn_of_an_agent_while_another_locks_its_head(
    kernel: Kernel, beside: Connect
) -> None:
    other = await beside()
    await kernel.start("run_a", ["writer"], {"turn_1": "writer", "turn_2": "writer"})
    async with opened(kernel):
        assert (await kernel.claim_one())["turn_id"] == "turn_1"
        assert await other.claim() == []
    assert await other.claim() == []


@pytest.mark.proves("L0-01", "L0-40", "K6", "K17")
async def test_two_claims_never_take_the_same_head(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    for name in "abcd":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"})
    async with opened(kernel):
        first = [each["turn_id"] for each in await kernel.claim(2)]
        assert [each["turn_id"] for each in await other.claim(4)] == ["turn_c", "turn_d"]
    assert first == ["turn_a", "turn_b"]
    assert await other.claim() == []


@pytest.mark.proves("L0-40")
async def test_rolled_back_claim_frees_the_head(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    transaction = kernel.connection.transaction()
    await transaction.start()
    first = await kernel.claim_one()
    await transaction.rollback()
    second = await other.claim_one()
    assert (second["turn_id"], second["epoch"]) == ("turn_a", first["epoch"])
    assert (await kernel.finish(second, ends="success"))["outcome"] == "ok"


@pytest.mark.proves("K21", "L0-01")
async def test_second_active_turn_of_an_agent_waits_and_is_rejected(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1")
    await kernel.finish(await kernel.claim_one())
    for n in (2, 3):
        await kernel.enqueue("run_a", "writer", f"turn_{n}")
    activate = (
        "update heliograph.agent_turns set agent_id = 'run_a/critic', state = 'active'"
        " where project_id = $1 and agent_turn_id = $2"
    )
    transaction = kernel.connection.transaction()
    await transaction.start()
    await kernel.connection.execute(activate, kernel.project, "turn_2")
    task = await when_blocked(other, other.connection.execute(activate, kernel.project, "turn_3"), watcher)
    await transaction.commit()
    with pytest.raises(asyncpg.UniqueViolationError, match="turn_one_active"):
        await task
    kernel.is_corrupted = True


@pytest.mark.proves("K24", "L0-110")
async def test_one_of_two_simultaneous_endings_is_recomputed(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    await kernel.start("run_a", ["critic", "judge"], {"turn_c": "critic", "turn_j": "judge"})
    first, second = await kernel.claim()
    async with opened(kernel):
        assert (await kernel.finish(first, state={"critic": "done"}))["outcome"] == "ok"
        task = await when_blocked(other, other.finish(second, state={"judge": "done"}), watcher)
    answer = await task
    assert (answer["outcome"], answer["run"]["state"]) == ("conflict", {"critic": "done"})
    both = {"critic": "done", "judge": "done"}
    again = await other.finish(second, version=answer["run"]["version"], state=both, ends="success")
    assert (again["outcome"], (await kernel.run("run_a"))["state"]) == ("ok", both)


@pytest.mark.proves("L0-110", "G-60", "L0-07")
async def test_retry_during_its_first_call_waits_and_is_a_duplicate(kernel: Kernel, beside: Connect) -> None:
    again, watcher = await beside(), await beside()
    claimed = await kernel.running()
    async with opened(kernel):
        assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"
        task = await when_blocked(again, again.finish(claimed, ends="success"), watcher)
    assert (await task)["outcome"] == "duplicate"


@pytest.mark.proves("K2")
async def test_append_during_its_first_call_waits_and_writes_nothing(kernel: Kernel, beside: Connect) -> None:
    again, watcher = await beside(), await beside()
    claimed = await kernel.running()
    note = draft("note", claimed["activation_id"])
    async with opened(kernel):
        first = await kernel.append(claimed, note)
        task = await when_blocked(again, again.append(claimed, note), watcher)
    assert await task == first
    assert (await kernel.names("run_a")).count("note") == 1


async def test_sweep_skips_a_turn_that_is_just_ending_or_renewing(kernel: Kernel, beside: Connect) -> None:
    watchdog = await beside()
    claimed = await kernel.running()
    watchdog.wait(31)
    async with opened(kernel):
        await kernel.append(claimed, phase="act")
        assert (await watchdog.sweep("leases"))["recovered"] == []
        kernel.wait(31)
        await kernel.renew(claimed)
    assert (await watchdog.sweep("leases"))["recovered"] == []
    async with opened(kernel):
        await kernel.finish(claimed, ends="success")
        watchdog.wait(60)
        assert (await watchdog.sweep("leases"))["recovered"] == []
    assert await watchdog.sweep("leases") == {"recovered": [], "ended": [], "failed": [], "targets": []}


@pytest.mark.proves("L0-02", "L0-110", "L0-111")
@pytest.mark.parametrize("call", ["finish", "renew", "append"])
async def test_owner_that_writes_during_the_sweep_of_its_lease_waits_and_is_stale(
    kernel: Kernel, beside: Connect, call: str
) -> None:
    worker, watcher = await beside(), await beside()
    claimed = await kernel.running()
    kernel.wait(30)
    async with opened(kernel):
        assert (await kernel.sweep("leases"))["recovered"] == ["turn_a"]
        late = {"finish": worker.finish, "renew": worker.renew, "append": worker.append}[call](claimed)
        task = await when_blocked(worker, late, watcher)
    before = await kernel.everything()
    assert (await task)["outcome"] == "stale"
    assert await kernel.everything() == before


@pytest.mark.proves("K17", "K19")
@pytest.mark.parametrize("kind", ["leases", "expired"])
async def test_each_candidate_is_taken_by_one_of_two_sweeps(kernel: Kernel, beside: Connect, kind: str) -> None:
    other = await beside()
    for name in "ab":
        await kernel.running(f"run_{name}", f"turn_{name}", ttl_seconds=30, max_attempts=1)
    kernel.wait(30)
    other.wait(30)
    async with opened(kernel):
        assert (await kernel.sweep(kind, 1))["ended"] == ["turn_a"]
        assert (await other.sweep(kind))["ended"] == ["turn_b"]
    assert (await other.sweep(kind))["ended"] == []


@pytest.mark.proves("K25", "K24")
async def test_second_of_two_simultaneous_reactions_finds_it_committed(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    await kernel.running(ttl_seconds=10)
    kernel.wait(10)
    await kernel.sweep("expired")
    version = (await kernel.run("run_a"))["version"]
    end = draft("workflow:end", "sig_run_a_3")
    async with opened(kernel):
        assert (await kernel.react("run_a", version, end, status="ended", outcome="failed"))["outcome"] == "ok"
        task = await when_blocked(other, other.react("run_a", version, end, status="ended", outcome="failed"), watcher)
    assert (await task)["outcome"] == "conflict"
    assert (await kernel.names("run_a")).count("workflow:end") == 1


@pytest.mark.parametrize(("other_hash", "outcome"), [("hash of run_a", "duplicate"), ("another", "conflict")])
async def test_second_of_two_simultaneous_starts_of_one_id_waits(
    kernel: Kernel, beside: Connect, other_hash: str, outcome: str
) -> None:
    other, watcher = await beside(), await beside()
    item = run_item("run_a", ["writer"], {"turn_b": "writer"}) | {"request_hash": other_hash}
    async with opened(kernel):
        await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
        task = await when_blocked(other, other.call("start_runs", [item]), watcher)
    assert [each["outcome"] for each in await task] == [outcome]
    assert [row["agent_turn_id"] for row in await kernel.rows("agent_turns")] == ["turn_a"]


@pytest.mark.proves("K9")
async def test_message_to_a_run_that_is_just_being_started_writes_nothing_without_its_lock(
    kernel: Kernel, beside: Connect
) -> None:
    client, starter, watcher = await beside(), await beside(), await beside()
    await kernel.start("run_0", ["writer"], {"turn_0": "writer"})
    async with opened(kernel):  # holds the lock of the head that the client locks first
        await kernel.append(await kernel.claim_one())
        batch = [_mail("run_0", "turn_1"), _mail("run_a", "turn_2")]
        task = await when_blocked(client, client.call("enqueue", batch), watcher)
        await starter.start("run_a", ["writer"], {"turn_a": "writer"})  # is created while the client waits
    assert [each["outcome"] for each in await task] == ["queued", "unknown_agent"]
    assert (await client.call("enqueue", batch))[1]["outcome"] == "queued"


def _mail(run_id: str, turn_id: str) -> Item:
    return {
        "run_id": run_id,
        "agent": "writer",
        "turn_id": turn_id,
        "name": "mail:came",
        "max_attempts": 3,
        "ttl_seconds": 60,
    }


@pytest.mark.proves("G-61")
async def test_two_relays_that_mark_the_same_events_do_not_wait_for_each_other(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    for name in "ab":
        await kernel.finish(await kernel.running(f"run_{name}", f"turn_{name}"), ends="success")
    first, second = [event["key"] for event in await kernel.call("read_outbox", 10)]
    async with opened(kernel):
        assert await kernel.call("mark_published", [first]) == 1
        assert await other.call("mark_published", [second, first]) == 1
        assert await kernel.call("mark_published", [second]) == 0
    assert await kernel.call("read_outbox", 10) == []


@pytest.mark.proves("K17", "K18")
async def test_relay_does_not_wait_for_reports_of_the_commands_that_it_marks(kernel: Kernel, beside: Connect) -> None:
    relay = await beside()
    for name in "ab":
        await suspended(kernel, command("c1"), run_id=f"run_{name}", turn_id=f"turn_{name}", limits={"ttl_seconds": 10})
    keys = ["cmd:turn_a:c1", "cmd:turn_b:c1"]
    async with opened(kernel):
        await kernel.stop(
            "turn_b"
        )  # the second one first: a wait for locks in the order of the keys would be a deadlock
        assert await relay.call("mark_published", keys) == 1
        assert (await kernel.stop("turn_a"))["outcome"] == "stopped"
    assert await kernel.rows("outbox", "*", "kind = 'cmd' and published_at is null") == []


async def test_calls_of_different_runs_do_not_wait_for_each_other(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    first, second = await kernel.running(), await kernel.running("run_b", "turn_b")
    async with opened(kernel):
        await kernel.finish(first, ends="success")
        await other.connection.execute("set lock_timeout = 1")
        assert (await other.call("finish", [ending(second, ends="success")]))[0]["outcome"] == "ok"


@pytest.mark.proves("K17")
@pytest.mark.parametrize("function", ["stop", "report"])
async def test_turn_that_is_created_while_a_call_waits_for_locks_is_unknown_to_it(
    kernel: Kernel, beside: Connect, function: str
) -> None:
    """The call has not locked its head, so another transaction may be changing the turn."""
    client, watcher = await beside(), await beside()
    await kernel.running()
    items: list[Item] = [
        {"turn_id": turn_id, **({"mode": "force"} if function == "stop" else {"call_id": "c1", "status": "success"})}
        for turn_id in ("turn_a", "turn_b")
    ]
    async with opened(kernel):
        assert (await kernel.enqueue("run_a", "critic", "turn_b"))["outcome"] == "queued"
        task = await when_blocked(client, client.call(function, items), watcher)
    known = {"stop": "stopped", "report": "early"}[function]
    assert [answer["outcome"] for answer in await task] == [known, "unknown_turn"]
    assert (await kernel.claim_one())["turn_id"] == "turn_b"


@pytest.mark.proves("RTE-08", "G-24")
async def test_call_counts_the_tokens_of_a_commit_that_it_waited_for(kernel: Kernel, beside: Connect) -> None:
    first, other, watcher = await kernel.running(), await beside(), await beside()
    await begin(kernel, first, "c1", "pure", rates=[RATE])
    await other.start("run_b", ["writer"], {"turn_b": "writer"})
    (second,) = await other.claim()
    async with opened(kernel):  # two tokens at once, and this is the second
        await begin(kernel, first, "c2", "pure", rates=[RATE])
        task = await when_blocked(other, begin(other, second, "c1", "pure", rates=[RATE]), watcher)
    answer = await task
    assert datetime.fromisoformat(answer["rate"]["starts_at"]) == START + timedelta(seconds=0.5)


async def test_run_that_another_caller_starts_at_the_same_moment_is_a_duplicate(
    kernel: Kernel, beside: Connect
) -> None:
    client, watcher = await beside(), await beside()
    items = [run_item(run, ["writer"], {f"turn_{run}": "writer"}) for run in ("run_b", "run_a", "run_b")]
    async with opened(kernel):
        await kernel.start("run_b", ["writer"], {"turn_run_b": "writer"})
        task = await when_blocked(client, client.call("start_runs", items), watcher)
    assert [row["outcome"] for row in await task] == ["duplicate", "started", "duplicate"]
    assert await kernel.checks() == []


async def test_run_that_another_caller_starts_is_a_conflict_of_a_transaction_that_does_not_see_it(
    kernel: Kernel, beside: Connect
) -> None:
    client = await beside()
    async with client.connection.transaction(isolation="repeatable_read"):
        await client.rows("runs")
        await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
        with pytest.raises(asyncpg.SerializationError, match="another transaction has created one of these runs"):
            await client.start("run_a", ["writer"], {"turn_a": "writer"})
