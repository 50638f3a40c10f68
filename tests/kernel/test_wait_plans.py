"""Other waits do not slow down the calls that handle waits: 40,000 resolved waits, 5,000 suspended turns and 5,000
commands without a taker. PostgreSQL's statistics count the rows that each call reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from heliograph.testing.database import TestServer
from tests.kernel.kit import TARGET, Item, Kernel, connect, draft, turn_item
from tests.kernel.waits import TOKEN, activated, begin, child, command, result, suspend, suspended, tool

HISTORY, ASLEEP = 40_000, 5_000
READ_MAX = 120  # rows of all tables, for one call of one or two items
FILL = f"""
insert into runs (project_id, run_id, target, status, outcome, request_hash, state, memory, created_at, updated_at, ended_at)
  select 'filled', 'done_' || n, '{TARGET}', 'ended', 'success', '', '{{}}', '{{}}', now(), now(), now() from generate_series(1, {HISTORY}) n;
insert into agent_state_head (project_id, agent_id, run_id, agent_name, target, moved_at)
  select project_id, run_id || '/writer', run_id, 'writer', target, now() from runs where project_id = 'filled';
insert into agent_turns (project_id, agent_turn_id, agent_id, run_id, state, outcome, max_attempts, cause_seq, activation_seq,
    output_box_id, created_at, expires_at, finished_at)
  select project_id, 'turn_' || run_id, run_id || '/writer', run_id, 'done', 'success', 3, 1, 2, 'box_turn_' || run_id,
         now(), now(), now() from runs where project_id = 'filled';
insert into turn_waiting_tools (project_id, agent_turn_id, tool_call_id, tool, kind, state, epoch, deadline, status, resolved_position,
    opened_at, resolved_at)
  select project_id, agent_turn_id, 'c1', 'search', 'tool', 'resolved', 2, now(), 'success', 1, now(), now() from agent_turns
   where project_id = 'filled';
insert into agent_inbox (project_id, agent_turn_id, message_type, status, correlation_id, applied, next_retry_at, created_at)
  select project_id, agent_turn_id, 'tool_result', 'consumed', 'c1', true, now(), now() from agent_turns where project_id = 'filled';
insert into outbox (project_id, key, kind, agent_turn_id, call_id, tool, created_at, due_at, published_at)
  select project_id, 'cmd:' || agent_turn_id || ':c1', 'cmd', agent_turn_id, 'c1', 'search', now(), now(), now() from agent_turns
   where project_id = 'filled';
insert into leases (project_id, agent_id, turn_epoch, agent_turn_id, owner, started_at, ended_at)
  select project_id, agent_id, 2, agent_turn_id, 'w', now(), now() from agent_turns where project_id = 'filled';
insert into signals (project_id, run_id, seq, count, entries, at)
  select project_id, run_id, s, 1, '[{{}}]', now() from runs, generate_series(1, 3) s where project_id = 'filled';
insert into cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
  select project_id, 'card:' || agent_turn_id || ':call:c1', output_box_id, agent_turn_id, 2, 'tool.result', '{{}}', now() from agent_turns
   where project_id = 'filled';
"""

# The last of them remain suspended, each on a command for another tool.
SLEEP = f"""
update runs set status = 'running', outcome = null, ended_at = null, open_turns = 1
 where project_id = 'filled' and split_part(run_id, '_', 2)::int > {HISTORY - ASLEEP};
update agent_turns set state = 'active', outcome = null, finished_at = null, expires_at = '2040-01-01'
 where project_id = 'filled' and split_part(run_id, '_', 2)::int > {HISTORY - ASLEEP};
update agent_state_head set status = 'suspended', active_agent_turn_id = 'turn_' || run_id, waiting_tool_count = 1, resumes_on = 'all'
 where project_id = 'filled' and split_part(run_id, '_', 2)::int > {HISTORY - ASLEEP};
update turn_waiting_tools set state = 'open', status = null, resolved_position = null, resolved_at = null, deadline = '2039-01-01', tool = 'other'
 where project_id = 'filled' and split_part(agent_turn_id, '_', 3)::int > {HISTORY - ASLEEP};
update outbox set published_at = null, tool = 'other' where project_id = 'filled' and split_part(agent_turn_id, '_', 3)::int > {HISTORY - ASLEEP};
"""

pytestmark = pytest.mark.parametrize("postgres", [18], indirect=True)


@pytest.fixture(scope="module")
def filled_url(postgres: TestServer) -> Iterator[str]:
    url = asyncio.run(_filled(postgres))
    yield url
    asyncio.run(postgres.drop(url))


async def _filled(postgres: TestServer) -> str:
    url = await postgres.create()
    connection = await connect(url)
    await connection.execute("set search_path to heliograph; set session_replication_role = replica")
    for statement in (FILL, SLEEP):
        await connection.execute(statement)
    await connection.execute("set session_replication_role = origin; analyze")
    await connection.close()
    return url


@pytest.mark.more
@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
async def test_no_call_reads_resolved_waits_or_suspended_turns(filled_url: str, plan: str) -> None:
    kernel = Kernel(await connect(filled_url), "filled")
    await kernel.connection.execute(f"set plan_cache_mode = {plan}")
    undone = kernel.connection.transaction()
    await undone.start()
    running = await kernel.running("run_a", "turn_a")
    await begin(kernel, running, "i1", "pure")
    await suspended(kernel, tool("c1", 5), command("c2"), run_id="run_b", turn_id="turn_b")
    await suspended(
        kernel, child("c1", "critic", "turn_d"), run_id="run_c", turn_id="turn_c", signals=activated("critic")
    )
    await kernel.stop("turn_d")
    kernel.wait(60)
    card = {"card_id": "card_new", "kind": "tool.call", "content": {}}
    family = [child("c9", "critic", "turn_x", 0), tool("c8")]
    calls: dict[str, tuple[str, Any, *tuple[Any, ...]]] = {
        "suspend": (
            "suspend",
            [turn_item(running, draft("x", "sig_run_a_1"), cards=[card], calls=[tool("c1"), command("c2")])],
        ),
        "suspend with a child": ("suspend", [turn_item(running, *activated("critic"), calls=family)]),
        "report": ("report", [result("turn_b", "c1"), result("turn_b", "c2", token=TOKEN)]),
        "report again": ("report", [result("turn_done_1", "c1"), result("turn_done_2", "c9"), result("turn_no", "c1")]),
        "early report": ("report", [result("turn_a", "c7")]),
        "begin": ("begin_call", [turn_item(running, call_id=call, tool="t") for call in ("i1", "i2")]),
        "record": (
            "record_call",
            [turn_item(running, draft("x", "sig_run_a_1"), call_id="i1", status="success", result=1)],
        ),
        "defer": ("defer", [turn_item(running, reason="x", delay_seconds=1)]),
        "take commands": ("take_commands", ["search", "nobody"], 10, 30.0),
        "sweep of waits": ("sweep_waits", 10),
        "sweep of reports": ("sweep_reports", 10),
        "sweep of sleepers": ("sweep_stuck", 2, ""),
    }
    read = {what: await _rows_read(kernel, *call) for what, call in calls.items()}
    await undone.rollback()
    await kernel.connection.close()
    assert {what: rows for what, rows in read.items() if rows > READ_MAX} == {}


async def _rows_read(kernel: Kernel, function: str, *args: Any) -> int:
    """Count the rows of all tables that a call reads, and roll the call back."""
    query = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_user_tables where schemaname = 'heliograph'"
    undone = kernel.connection.transaction()
    await undone.start()
    before = await kernel.connection.fetchval(query)
    await kernel.call(function, *args)
    after = await kernel.connection.fetchval(query)
    await undone.rollback()
    return int(after - before)


@pytest.mark.more
async def test_turn_of_a_thousand_calls_costs_the_sum_of_its_calls(filled_url: str) -> None:
    kernel = Kernel(await connect(filled_url), "filled")
    undone = kernel.connection.transaction()
    await undone.start()
    claimed: Item = await kernel.running("run_a", "turn_a")
    calls = [tool(f"c{n}") for n in range(1000)]
    assert (await suspend(kernel, claimed, *calls))["outcome"] == "suspended"
    assert await _rows_read(kernel, "report", [result("turn_a", "c500")]) < 2_500
    answers = await kernel.call("report", [result("turn_a", f"c{n}") for n in range(1000)])
    assert all(each["resumed"] for each in answers)
    await undone.rollback()
    await kernel.connection.close()
