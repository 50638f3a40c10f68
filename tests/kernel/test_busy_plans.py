"""A call costs what it is about, not what else is at work: 300 turns that run, 300 that are suspended, 300 that wait for
a worker, 300 events that wait for the wire; nobody has run ANALYZE, as on the first day of a project. Counted as
PostgreSQL counts it, in rows read within the call."""

from __future__ import annotations

from typing import Any

from tests.kernel.kit import Item, Kernel, connect, draft, ending, message, run_item, saying, stopping
from tests.kernel.waits import TOKEN, activated, child, command, result, tool

EACH = 300
BATCH = 50
READ_MAX = 60  # rows of all tables, for one item; for a batch, of each item in it
ROWS_READ = """
select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
  from pg_stat_xact_user_tables where schemaname = 'heliograph'
"""


async def test_one_item_is_as_cheap_while_much_is_at_work(database_url: str) -> None:
    kernel = Kernel(await connect(database_url), "busy")
    running = await _at_work(kernel)
    one = running[-1]
    turn, run = one["turn_id"], one["run_id"]
    card = {"card_id": "card_new", "kind": "note", "content": {}}
    begun = [saying(one, call_id="i1", tool="charge", effect="once", timeout_seconds=None)]
    done = [saying(one, call_id="i1", status="success", result=1)]
    family = [child("c8", "critic", "turn_new"), tool("c9"), command("c10")]
    calls: dict[str, list[tuple[Any, ...]]] = {
        "start": [("start_runs", [run_item("run_new", ["writer"], {"turn_new": "writer"})])],
        "enqueue": [("enqueue", [message(run, "critic", "turn_new")])],
        "claim": [("claim", ["newsroom"], "worker", 1, 30.0)],
        "append": [("append", [saying(one, draft("x", f"sig_{run}_1"), cards=[card])])],
        "renew": [("renew", [saying(one)], 30.0)],
        "release": [("release", [saying(one)])],
        "defer": [("defer", [saying(one, reason="x", delay_seconds=1, defers_max=None)])],
        "begin and record": [("begin_call", begun), ("record_call", done)],
        "suspend": [("suspend", [saying(one, *activated("critic", parent=f"sig_{run}_1"), calls=family)])],
        "report": [("report", [result("turn_suspended_7", "c1", token=TOKEN)])],
        "early report": [("report", [result(turn, "c7")])],
        "finish": [("finish", [ending(one, ends="success")])],
        "stop": [("stop", [stopping(turn)])],
        "stop gracefully": [("stop", [stopping(turn, "graceful")])],
        "stop of a run": [("stop_runs", [stopping(run)])],
        "outbox": [("read_outbox", 2)],
        "publish": [("mark_published", ["evt:turn_finished_1"])],
        "commands": [("take_commands", ["search"], 1, 30.0)],
        "sweep of leases": [("sweep_leases", 1)],
        "sweep of waits": [("sweep_waits", 1)],
        "sweep of stuck": [("sweep_stuck", 1, "")],
        "sweep of reports": [("sweep_reports", 1)],
        "sweep of stops": [("sweep_stops", 1)],
        "sweep of expired": [("sweep_expired", 1)],
        "sweep of queued": [("sweep_queued", 1)],
        "owed": [("sweep_owed", ["newsroom"], 1)],
    }
    read = {what: await _rows_read(kernel, *each) for what, each in calls.items()}
    await kernel.connection.close()
    assert {what: rows for what, rows in read.items() if rows > READ_MAX} == {}


async def test_a_batch_costs_what_its_items_cost(database_url: str) -> None:
    kernel = Kernel(await connect(database_url), "busy")
    some = (await _at_work(kernel))[:BATCH]
    batches: dict[str, tuple[Any, ...]] = {
        "start": ("start_runs", [_run(f"new_{n}") for n in range(BATCH)]),
        "claim": ("claim", ["newsroom"], "worker", BATCH, 30.0),
        "append": ("append", [saying(one, draft("x", f"sig_{one['run_id']}_1")) for one in some]),
        "renew": ("renew", [saying(one) for one in some], 30.0),
        "begin": ("begin_call", [saying(one, call_id="i1", tool="charge", effect="once") for one in some]),
        "suspend": ("suspend", [saying(one, calls=[tool("c8")]) for one in some]),
        "report": ("report", [result(f"turn_suspended_{n}", "c1", token=TOKEN) for n in range(BATCH)]),
        "finish": ("finish", [ending(one, ends="success") for one in some]),
        "outbox": ("read_outbox", BATCH),
        "publish": ("mark_published", [f"evt:turn_finished_{n}" for n in range(BATCH)]),
    }
    read = {what: await _rows_read(kernel, batch) / BATCH for what, batch in batches.items()}
    await kernel.connection.close()
    assert {what: rows for what, rows in read.items() if rows > READ_MAX} == {}


async def _at_work(kernel: Kernel) -> list[Item]:
    """What runs, of a project that is busy. All of it went through the connection, whose plans were made on the way."""
    await kernel.call("finish", [ending(one, ends="success") for one in await _claimed(kernel, "finished")])
    await kernel.call("suspend", [saying(one, calls=[command("c1")]) for one in await _claimed(kernel, "suspended")])
    running = await _claimed(kernel, "running")
    await kernel.call("start_runs", [_run(f"ready_{n}") for n in range(EACH)])
    return running


async def _claimed(kernel: Kernel, name: str) -> list[Item]:
    await kernel.call("start_runs", [_run(f"{name}_{n}") for n in range(EACH)])
    claimed = await kernel.claim(limit=EACH)
    assert len(claimed) == EACH
    return claimed


def _run(name: str) -> Item:
    return run_item(f"run_{name}", ["writer", "critic"], {f"turn_{name}": "writer"})


async def _rows_read(kernel: Kernel, *calls: tuple[Any, ...]) -> int:
    """Rows of all tables that calls read; what they do is undone."""
    undone = kernel.connection.transaction()
    await undone.start()
    before = await kernel.connection.fetchval(ROWS_READ)
    for function, *args in calls:
        await kernel.call(function, *args)
    after = await kernel.connection.fetchval(ROWS_READ)
    await undone.rollback()
    return int(after - before)
