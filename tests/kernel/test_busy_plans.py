"""The cost of a call depends on its own rows, not on other work: 300 running turns, 300 suspended ones, 300 that wait for
a worker, and 300 events that wait for a wire. ANALYZE has not run, as on the first day of a project. PostgreSQL's
statistics count the rows that each call reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from heliograph.ledger.log_reader import CLAIMS_OF_RUN
from tests.kernel.kit import (
    Item,
    Kernel,
    activation,
    connect,
    draft,
    ending,
    following,
    message,
    run_item,
    stopping,
    turn_item,
)
from tests.kernel.waits import TOKEN, activated, child, command, result, suspended, tool

EACH = 300
BATCH = 50
AGENTS = [f"a{n}" for n in range(BATCH)]
BEGUN: Item = {"call_id": "i1", "tool": "charge", "effect": "once", "timeout_seconds": None}
READ_MAX = 60  # rows of all tables, for one item; for a batch, of each item in it
ROWS_READ = """
select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
  from pg_stat_xact_user_tables where schemaname = 'heliograph'
"""


@dataclass(frozen=True)
class Measured:
    """Calls, one after another, and a check of the last answer: a call that does less would read less."""

    calls: Sequence[tuple[Any, ...]]
    answers: Callable[[Any], bool]


def of(outcome: str, *calls: tuple[Any, ...]) -> Measured:
    """Every item has this outcome."""
    return Measured(calls, lambda answer: bool(answer) and {each["outcome"] for each in answer} == {outcome})


def sweep(kind: str, finds: str, *turns: str) -> Measured:
    call = (f"sweep_{kind}", 1, *[""] * (kind == "stuck"))
    return Measured([call], lambda answer: answer.get(finds, []) == list(turns) and not answer["failed"])


@pytest.mark.more
async def test_one_item_costs_the_same_on_a_busy_database(database_url: str) -> None:
    kernel = Kernel(await connect(database_url), "busy")
    await kernel.call("declare_wire", "postgres")
    one = (await _at_work(kernel))[0][-1]
    turn, run = one["turn_id"], one["run_id"]
    card = {"card_id": "card_new", "kind": "note", "content": {}}
    family = [child("c8", "critic", "turn_new"), tool("c9"), command("c10")]
    measured = {
        "start": of("started", ("start_runs", [run_item("run_new", ["writer"], {"turn_new": "writer"})])),
        "enqueue": of("queued", ("enqueue", [message(run, "critic", "turn_new")])),
        "claim": Measured([("claim", [{"target": "newsroom"}], "worker", 1, 30.0)], lambda answer: len(answer) == 1),
        "append": of("ok", ("append", [turn_item(one, draft("x", f"sig_{run}_1"), cards=[card])])),
        "renew": of("ok", ("renew", [turn_item(one)], 30.0)),
        "release": of("ok", ("release", [turn_item(one)])),
        "defer": of("deferred", ("defer", [turn_item(one, reason="x", delay_seconds=1, deferrals_max=None)])),
        "begin": of("fresh", ("begin_call", [turn_item(one, **BEGUN)])),
        "record": of("ok", ("begin_call", [turn_item(one, **BEGUN)]),
                     ("record_call", [turn_item(one, call_id="i1", status="success", result=1)])),
        "suspend": of("suspended", ("suspend", [turn_item(one, *activated("critic", parent=f"sig_{run}_1"), calls=family, cards=[card])])),
        "report": of("applied", ("report", [result("turn_suspended_7", "c1", token=TOKEN)])),
        "early report": of("early", ("report", [result(turn, "c7")])),
        "finish": of("ok", ("finish", [ending(one, ends="success")])),
        "react": of("ok", ("react", [await _reaction(kernel, run)])),
        "stop": of("stopped", ("stop", [stopping(turn)])),
        "stop gracefully": of("stopping", ("stop", [stopping(turn, "graceful")])),
        "stop of a run": of("stopping", ("stop_runs", [stopping(run)])),
        "outbox": Measured([("read_outbox", 2)], lambda answer: len(answer) == 2),
        "publish": Measured([("mark_published", ["evt:turn_finished_1"])], lambda answer: answer == 1),
        "commands": Measured([("take_commands", ["search"], 1, 30.0)], lambda answer: len(answer) == 1),
        "sweep of leases": sweep("leases", "recovered", "turn_lost"),
        "sweep of waits": sweep("waits", "resumed", "turn_late"),
        "sweep of expired": sweep("expired", "ended", "turn_old"),
        "sweep of stops": sweep("stops", "stopped", "turn_told"),
        "sweep of reports": sweep("reports", "resumed", "turn_parent"),
        "sweep of stuck": sweep("stuck", "resumed"),
        "sweep of queued": sweep("queued", "dispatched"),
        "pending": Measured([("sweep_pending_reactions", ["newsroom"], 1)], lambda answer: [each["run"]["run_id"] for each in answer] == ["run_old"]),
    }  # fmt: skip
    kernel.wait(2)
    read: dict[str, int] = {}
    for what, each in measured.items():
        begins = [("sweep_expired", 1)] if what == "pending" else []
        read[what], answer = await _rows_read(kernel, *begins, *each.calls)
        assert each.answers(answer), (what, answer)
    before = await kernel.connection.fetchval(ROWS_READ)
    assert [tuple(row) for row in await kernel.connection.fetch(CLAIMS_OF_RUN, kernel.project, run)] == [(turn, 2, 0)]
    read["claims of a run"] = await kernel.connection.fetchval(ROWS_READ) - before
    before = await kernel.connection.fetchval(ROWS_READ)
    log = await kernel.connection.fetch("select * from heliograph.read_log($1, $2, 0, 100)", kernel.project, run)
    assert len(log) > 0
    read["log of a run"] = await kernel.connection.fetchval(ROWS_READ) - before
    before = await kernel.connection.fetchval(ROWS_READ)
    assert await kernel.connection.fetchval("select heliograph._owner_at($1, $2, 1)", kernel.project, run) == run
    read["owner of a signal"] = await kernel.connection.fetchval(ROWS_READ) - before
    await kernel.connection.close()
    assert {what: rows for what, rows in read.items() if rows > READ_MAX} == {}
    assert {what for what, rows in read.items() if rows == 0} == {
        "start",
        "sweep of queued",
    }  # a new run has no row yet


@pytest.mark.more
async def test_batch_costs_the_sum_of_its_items(database_url: str) -> None:
    kernel = Kernel(await connect(database_url), "busy")
    await kernel.call("declare_wire", "postgres")
    running, of_a_run = await _at_work(kernel)
    some = running[:BATCH]
    measured = {
        "start": of("started", ("start_runs", [_run(f"new_{n}") for n in range(BATCH)])),
        "claim": Measured([("claim", [{"target": "newsroom"}], "worker", BATCH, 30.0)], lambda answer: len(answer) == BATCH),
        "append": of("ok", ("append", [turn_item(one, draft("x", f"sig_{one['run_id']}_1")) for one in some])),
        "renew": of("ok", ("renew", [turn_item(one) for one in some], 30.0)),
        "begin": of("fresh", ("begin_call", [turn_item(one, **BEGUN) for one in some])),
        "suspend": of("suspended", ("suspend", [
            turn_item(one, draft("x", f"sig_{one['run_id']}_1"), calls=[tool("c8")],
                      cards=[{"card_id": f"card {one['turn_id']}", "kind": "note", "content": {}}]) for one in some])),
        "report": of("applied", ("report", [result(f"turn_suspended_{n}", "c1", token=TOKEN) for n in range(BATCH)])),
        "defer": of("deferred", ("defer", [turn_item(one, reason="x", delay_seconds=1) for one in some])),
        "react": of("ok", ("react", [await _reaction(kernel, one["run_id"]) for one in some])),
        "finish": of("ok", ("finish", [ending(one, ends="success") for one in some])),
        "finish of one run": of("ok", ("finish", following(of_a_run))),
        "outbox": Measured([("read_outbox", BATCH)], lambda answer: len(answer) == BATCH),
        "publish": Measured([("mark_published", [f"evt:turn_finished_{n}" for n in range(BATCH)])],
                         lambda answer: answer == BATCH),
    }  # fmt: skip
    read: dict[str, float] = {}
    for what, each in measured.items():
        rows, answer = await _rows_read(kernel, *each.calls)
        read[what] = rows / BATCH
        assert each.answers(answer), (what, answer)
    await kernel.connection.close()
    assert read.pop("start") == 0  # new runs have no rows yet
    assert {what: rows for what, rows in read.items() if not 1 <= rows <= READ_MAX} == {}


async def _at_work(kernel: Kernel) -> tuple[list[Item], list[Item]]:
    """Fill a busy project and return its running turns, and those of one run. All calls use one connection, which plans them meanwhile.

    A second or two later there is one candidate for each sweep: turn_lost has lost its owner, turn_late waits too long,
    turn_old has not started in time, turn_told has a pending stop, and turn_parent has a child that has ended.
    """
    ended = await kernel.call("finish", [ending(one, ends="success") for one in await _claimed(kernel, "finished")])
    asleep = await kernel.call(
        "suspend", [turn_item(one, calls=[command("c1")]) for one in await _claimed(kernel, "suspended")]
    )
    assert ({each["outcome"] for each in ended}, {each["outcome"] for each in asleep}) == ({"ok"}, {"suspended"})
    running = await _claimed(kernel, "running")
    await kernel.start("run_many", AGENTS, {f"turn_many_{name}": name for name in AGENTS})
    of_a_run = await kernel.claim(limit=BATCH)
    await _due(kernel)
    await kernel.call("start_runs", [_run(f"ready_{n}") for n in range(EACH)])
    return running, of_a_run


async def _due(kernel: Kernel) -> None:
    await suspended(kernel, child("c1", "critic", "turn_child"), run_id="run_parent", turn_id="turn_parent",
                    signals=activated("critic", parent="sig_run_parent_1"))  # fmt: skip
    await kernel.finish(await kernel.claim_one(), version=(await kernel.run("run_parent"))["version"])
    await suspended(kernel, tool("c1", 1.0), run_id="run_late", turn_id="turn_late")
    await kernel.running("run_told", "turn_told")
    await kernel.stop("turn_told", "graceful", grace_seconds=1.0)
    await kernel.start("run_lost", ["writer"], {"turn_lost": "writer"})
    await kernel.claim_one(lease=1.0)
    await kernel.start("run_old", ["writer"], {"turn_old": "writer"}, ttl_seconds=1.0)


async def _claimed(kernel: Kernel, name: str) -> list[Item]:
    await kernel.call("start_runs", [_run(f"{name}_{n}") for n in range(EACH)])
    claimed = await kernel.claim(limit=EACH)
    assert len(claimed) == EACH
    return claimed


async def _reaction(kernel: Kernel, run_id: str) -> Item:
    """A reaction that wakes an agent of the run."""
    return {
        "run_id": run_id, "version": (await kernel.run(run_id))["version"], "signals": list(activated("critic", parent=f"sig_{run_id}_1")),
        "reaction": {"activations": [activation("critic", f"new_{run_id}", 0, {"seq": 1})]},
    }  # fmt: skip


def _run(name: str) -> Item:
    return run_item(f"run_{name}", ["writer", "critic"], {f"turn_{name}": "writer"})


async def _rows_read(kernel: Kernel, *calls: tuple[Any, ...]) -> tuple[int, Any]:
    """Count the rows of all tables that the last of these calls reads, return its answer too, and roll all calls back."""
    undone = kernel.connection.transaction()
    await undone.start()
    answer: Any = None
    before = after = 0
    for function, *args in calls:
        before = await kernel.connection.fetchval(ROWS_READ)
        answer = await kernel.call(function, *args)
        after = await kernel.connection.fetchval(ROWS_READ)
    await undone.rollback()
    return int(after - before), answer
