"""head_transitions is the state machine: every row of it happens, and the guard of the tests rejects all else (G-68)."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import suppress

import asyncpg
import pytest
import pytest_asyncio

from heliograph.testing.kernel.transition_guard import guard_transitions
from tests.kernel.kit import Item, Kernel, draft, turn_item
from tests.kernel.waits import TOKEN, begin, command, defer, report, suspend, suspended, timer, tool
from tools.docs import render_moves

STATUSES = ("idle", "dispatched", "running", "suspended")

# docs/internals/states.md: move, from, to, by how much the epoch rises
MOVES = {
    ("dispatch", "idle", "dispatched", 1), ("claim", "dispatched", "running", 1), ("suspend", "running", "suspended", 0),
    ("resume", "suspended", "dispatched", 0), ("recover", "running", "dispatched", 1), ("defer", "running", "dispatched", 1),
    ("release", "running", "dispatched", 1), ("end", "dispatched", "idle", 1), ("end", "running", "idle", 1),
    ("end", "suspended", "idle", 1), ("stop", "suspended", "dispatched", 0),
}  # fmt: skip
LEGAL = {move[1:] for move in MOVES}

WATCH = """
create schema if not exists watched;
create table watched.moves (project text, old text, new text, raised bigint);
create function watched.note() returns trigger language plpgsql security definer as $$
begin
    insert into watched.moves values (new.project_id, old.status, new.status, new.turn_epoch - old.turn_epoch);
    return null;
end $$;
create trigger watched after update on heliograph.agent_state_head for each row
    when (old.status <> new.status or old.turn_epoch <> new.turn_epoch) execute function watched.note();
"""


@pytest_asyncio.fixture
async def watched(kernel: Kernel) -> AsyncIterator[None]:
    """Each move of a head is noted in watched.moves."""
    await kernel.connection.execute(WATCH)
    yield
    await kernel.connection.execute("drop trigger watched on heliograph.agent_state_head; drop schema watched cascade")


async def moves(kernel: Kernel) -> list[tuple[str, str, int]]:
    """The transitions since the last call."""
    rows = await kernel.connection.fetch(
        "delete from watched.moves where project = $1 returning old, new, raised", kernel.project
    )
    return [tuple(row) for row in rows]


@pytest.mark.proves("G-68", "L0-14")
async def test_table_of_moves_matches_the_specification(kernel: Kernel) -> None:
    rows = await kernel.connection.fetch(
        "select move, from_status, to_status, epoch_step::integer from heliograph.head_transitions order by 1, 2"
    )
    assert {tuple(row) for row in rows} == MOVES


async def test_page_of_states_is_generated_from_the_table(kernel: Kernel) -> None:
    rows = await kernel.connection.fetch("select * from heliograph.head_transitions order by 1, 2")
    drawn = render_moves().splitlines()[2:]
    assert len(drawn) == len(rows)
    for row in rows:
        (line,) = [line for line in drawn if line.startswith(f"| {row['move']} | {row['from_status']} |")]
        assert all(text in line for text in (row["to_status"], *row["by"].split(", "), row["note"]))


@pytest.mark.usefixtures("watched")
@pytest.mark.proves("G-68", "L0-14", "L0-10", "L0-11", "L0-12", "L0-13", "K6", "K7", "K1", "K12", "K19")
async def test_every_move_of_the_table_happens(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert await moves(kernel) == [("dispatched", "running", 1)]  # a new head is dispatched when it is created
    await suspend(kernel, claimed, command("c1"))
    assert await moves(kernel) == [("running", "suspended", 0)]
    await report(kernel, "turn_a", "c1", token=TOKEN)
    assert await moves(kernel) == [("suspended", "dispatched", 0)]
    claimed = await kernel.claim_one()
    await defer(kernel, claimed, 0)
    assert await moves(kernel) == [("dispatched", "running", 1), ("running", "dispatched", 1)]
    await kernel.call("release", [turn_item(await kernel.claim_one())])
    assert await moves(kernel) == [("dispatched", "running", 1), ("running", "dispatched", 1)]
    await kernel.claim_one()
    kernel.wait(31)
    await kernel.sweep("leases")
    assert await moves(kernel) == [("dispatched", "running", 1), ("running", "dispatched", 1)]
    await kernel.enqueue("run_a", "writer", "turn_2")
    await kernel.stop("turn_a")
    assert await moves(kernel) == [("dispatched", "idle", 1), ("idle", "dispatched", 1)]
    claimed = await kernel.claim_one()
    await kernel.enqueue("run_a", "writer", "turn_3")
    await kernel.finish(claimed, version=(await kernel.run("run_a"))["version"])
    assert await moves(kernel) == [("dispatched", "running", 1), ("running", "idle", 1), ("idle", "dispatched", 1)]
    await suspend(kernel, await kernel.claim_one(), command("c1"))
    await kernel.stop("turn_3")
    assert await moves(kernel) == [("dispatched", "running", 1), ("running", "suspended", 0), ("suspended", "idle", 1)]


ENDINGS: dict[str, tuple[str, str]] = {  # the ways to end a turn: from which status, with which outcome
    "finish": ("running", "success"), "stop dispatched": ("dispatched", "canceled"), "stop running": ("running", "canceled"),
    "stop suspended": ("suspended", "canceled"), "expire dispatched": ("dispatched", "timeout"),
    "expire running": ("running", "timeout"), "expire suspended": ("suspended", "timeout"), "lose worker": ("running", "failed"),
    "defer once more": ("running", "failed"),
}  # fmt: skip


@pytest.mark.usefixtures("watched")
@pytest.mark.proves("L0-80", "L0-03", "L0-07", "L0-87", "G-68", "K12", "K19")
@pytest.mark.parametrize("how", ENDINGS)
async def test_every_ending_writes_one_transition_one_deliverable_and_one_event(kernel: Kernel, how: str) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"}, ttl_seconds=100, max_attempts=1)
    before, outcome = ENDINGS[how]
    claimed: Item = {} if before == "dispatched" else await kernel.claim_one()
    if before == "suspended":
        await suspend(kernel, claimed, tool("c1", None))
    await moves(kernel)
    if how == "finish":
        await kernel.finish(claimed, ends="success")
    elif how == "defer once more":
        await defer(kernel, claimed, deferrals_max=0)
    elif how == "lose worker":
        kernel.wait(31)
        await kernel.sweep("leases")
    elif how.startswith("expire"):
        kernel.wait(101)
        await kernel.sweep("expired")
    else:
        await kernel.stop("turn_a")
    assert await moves(kernel) == [(before, "idle", 1)]
    assert (await kernel.turn("turn_a"))["outcome"] == outcome
    assert len(await kernel.rows("cards", "*", "kind = 'task.deliverable'")) == 1
    assert [event["body"]["status"] for event in await kernel.call("read_outbox", 10)] == [outcome]
    head = await kernel.head("run_a/writer")
    empty = ("active_agent_turn_id", "owner", "lease_until", "phase", "ready_at", "due_at", "resume_deadline", "resumes_on",
             "stop_requested_at", "force_at", "stop_reason", "activation_seq", "expecting_correlation_id")  # fmt: skip
    assert [column for column in empty if head[column] is not None] == []
    assert (head["waiting_tool_count"], head["sweep_failures"]) == (0, 0)


async def heads_in_all_states(kernel: Kernel) -> None:
    """An agent in each status, named after it."""
    for status in STATUSES:
        await kernel.start(
            f"run_{status}", ["writer"], {f"turn_{status}": "writer"} if status != "idle" else {"turn_i": "writer"}
        )
    for claimed in await kernel.claim():
        if claimed["run_id"] == "run_suspended":
            await suspend(kernel, claimed, timer("c1", 60))
        elif claimed["run_id"] == "run_idle":
            await kernel.finish(claimed, ends="success")
        elif claimed["run_id"] == "run_dispatched":
            await kernel.call("release", [turn_item(claimed)])
    for status in STATUSES:
        assert (await kernel.head(f"run_{status}/writer"))["status"] == status


SHAPED = (  # a row of each status that all constraints take
    "active_agent_turn_id = case when '{0}' <> 'idle' then coalesce(active_agent_turn_id, 'turn_x') end,"
    " owner = case when '{0}' = 'running' then 'w' end, lease_until = case when '{0}' = 'running' then now() end,"
    " waiting_tool_count = ('{0}' = 'suspended')::integer, resumes_on = case when '{0}' = 'suspended' then 'all' end, due_at = null"
)


@pytest.mark.proves("G-68", "L0-14")
async def test_no_other_move_is_taken_by_a_guarded_database(kernel: Kernel) -> None:
    await guard_transitions(kernel.connection)  # a second time is harmless
    await heads_in_all_states(kernel)
    taken = set()
    for before, after, raised in itertools.product(STATUSES, STATUSES, (-1, 0, 1, 2)):
        if (before, raised) == (after, 0):
            continue
        attempt = kernel.connection.transaction()
        await attempt.start()
        with suppress(asyncpg.CheckViolationError):
            await kernel.connection.execute(
                f"update heliograph.agent_state_head set status = '{after}', turn_epoch = turn_epoch + {raised}, {SHAPED.format(after)}"
                f" where project_id = $1 and agent_id = 'run_{before}/writer'", kernel.project,
            )  # fmt: skip
            taken.add((before, after, raised))
        await attempt.rollback()
    assert taken == LEGAL


WRONG = [
    ("update {} set active_agent_turn_id = 'turn_x' where project_id = $1 and agent_id = 'run_running/writer'", "got another turn"),
    ("update {} set status = 'dispatched', turn_epoch = turn_epoch + 1, owner = null, lease_until = null, active_agent_turn_id = 'x'"
     " where project_id = $1 and agent_id = 'run_running/writer'", "went on with another turn"),
    ("delete from {} where project_id = $1 and agent_id = 'run_running/writer'", "is deleted while running"),
    ("insert into {} (project_id, agent_id, run_id, agent_name, target, turn_epoch, moved_at)"
     " values ($1, 'run_x/y', 'run_x', 'y', 't', 5, now())", "there is no move"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "message"), WRONG)
async def test_guarded_database_rejects_swapped_turns_and_lost_agents(
    kernel: Kernel, statement: str, message: str
) -> None:
    await heads_in_all_states(kernel)
    with pytest.raises(asyncpg.CheckViolationError, match=message):
        await kernel.connection.execute(statement.format("heliograph.agent_state_head"), kernel.project)


async def test_turn_overview_reports_the_activity_of_an_agent(kernel: Kernel) -> None:
    claimed = await kernel.running()

    async def seen() -> tuple[str, str | None]:
        (row,) = await kernel.rows("turn_overview", "activity, current_tool", "turn_id = 'turn_a'")
        return row["activity"], row["current_tool"]

    assert await seen() == ("thinking", None)
    await begin(kernel, claimed, "c1")
    assert await seen() == ("executing_tool", "charge")
    await kernel.call("record_call", [turn_item(claimed, call_id="c1", status="success")])
    await suspend(kernel, claimed, command("c2"), signals=[draft("tool:call", claimed["activation_id"])])
    assert await seen() == ("awaiting_tool_result", "search")


async def test_suspended_turns_remain_suspended_while_others_of_their_run_progress(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"))
    before = await kernel.head("run_a/writer")
    await kernel.enqueue("run_a", "writer", "turn_2")
    await kernel.enqueue("run_a", "critic", "turn_3")
    assert [each["turn_id"] for each in await kernel.claim()] == ["turn_3"]
    assert await kernel.head("run_a/writer") == before
