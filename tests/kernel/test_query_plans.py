"""Calls stay cheap however much is finished: on a ledger of 100,000 finished turns, each of them finds what it needs by
its indexes. Counted as PostgreSQL counts it, in rows read within the call's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from heliograph.testing.database import TestServer
from tests.kernel.kit import TABLES, TARGET, Kernel, connect, draft, ending, fill, message, run_item, saying

FINISHED_TURNS = 100_000
ROWS_READ_MAX = 400  # of a million: what one call may touch for a handful of heads

FILL = f"""
set session_replication_role = replica; -- the rows fit each other; no need to ask for each
insert into runs select 'filled', 'run_' || n, '{TARGET}', 'ended', 'success', '', '{{}}', '{{}}', 9, 4, 0, 5, 0, now(), now(), now()
  from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into agent_state_head (project_id, agent_id, run_id, agent_name, target, moved_at)
  select 'filled', 'run_' || n || '/writer', 'run_' || n, 'writer', '{TARGET}', now() from generate_series(1, {FINISHED_TURNS} / 5) n;
insert into agent_turns (project_id, agent_turn_id, agent_id, run_id, state, outcome, max_attempts, cause_seq,
    activation_seq, output_box_id, deliverable_card_id, created_at, expires_at, finished_at)
  select 'filled', 'done_' || n, 'run_' || 1 + n / 5 || '/writer', 'run_' || 1 + n / 5, 'done', 'success', 3, 1, 2,
         'box_' || n, 'card_' || n, now(), now(), now() from generate_series(1, {FINISHED_TURNS}) n;
insert into agent_inbox (project_id, agent_id, agent_turn_id, message_type, status, correlation_id, next_retry_at, created_at)
  select project_id, agent_id, agent_turn_id, 'turn', 'consumed', 'sig_x_1', now(), now() from agent_turns;
insert into execution_edges (project_id, primitive, edge_phase, run_id, agent_id, agent_turn_id, cause_id, created_at)
  select project_id, 'enqueue', 'request', run_id, agent_id, agent_turn_id, 'sig_x_1', now() from agent_turns;
insert into cards select project_id, deliverable_card_id, agent_turn_id, 2, 'task.deliverable', '{{}}', now() from agent_turns;
insert into box_cards (project_id, box_id, card_id) select project_id, output_box_id, deliverable_card_id from agent_turns;
insert into leases select project_id, agent_id, queue_seq, agent_turn_id, 'worker', now(), now() from agent_turns;
insert into outbox (project_id, kind, key, subject, agent_turn_id, body, created_at, published_at)
  select project_id, 'task_event', 'evt:' || agent_turn_id, '', agent_turn_id, '{{}}', now(), now() from agent_turns;
insert into signals select 'filled', 'run_' || r, s, 'note', '{{}}', now(), null, case when s > 1 then 'sig_x_1' end
  from generate_series(1, {FINISHED_TURNS} / 5) r, generate_series(1, 9) s;
set session_replication_role = origin;
analyze;
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
    await connection.execute("set search_path to heliograph")
    await connection.execute(FILL)
    await fill(Kernel(connection, "filled"))
    await connection.close()
    return url


class Measured:
    """Calls whose reads are counted; each is undone."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    async def __call__(self, query: str, *args: object) -> tuple[int, set[str]]:
        """Rows read of all tables, and the indexes used."""
        undone = self.kernel.connection.transaction()
        await undone.start()
        await self.kernel.connection.fetch(query, *args)
        read = await self.kernel.connection.fetchval(
            "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables where schemaname = 'heliograph'"
        )
        used = await self.kernel.connection.fetch(
            "select relname from pg_class where relkind = 'i' and relnamespace = 'heliograph'::regnamespace"
            " and pg_stat_get_xact_numscans(oid) > 0 order by 1"
        )
        await undone.rollback()
        return int(read), {row[0] for row in used}


# a call -> the indexes that it may not do without
CALLS: list[tuple[str, str, list[object], set[str]]] = [
    ("start", "select heliograph.start_runs('filled', $1, now())",
     [[run_item("run_new", ["writer"], {"turn_new": "writer"})]], {"agent_state_head_pkey", "turn_queued"}),
    ("start again", "select heliograph.start_runs('filled', $1, now())", [[run_item("run_a", ["writer"], {})]], {"runs_pkey"}),
    ("enqueue", "select heliograph.enqueue('filled', $1, now())",
     [[message("run_a", "critic", f"turn_new_{n}") for n in range(5)]], {"agent_turns_pkey", "turn_queued", "inbox_open"}),
    ("enqueue again", "select heliograph.enqueue('filled', $1, now())", [[message("run_a", "writer", "turn_3")]],
     {"agent_turns_pkey", "signals_pkey"}),
    ("sweep of leases", "select heliograph.sweep_leases('filled', 100, '2040-01-01')", [], {"head_lease", "inbox_open"}),
    ("sweep of expired", "select heliograph.sweep_expired('filled', 100, '2040-01-01')", [], {"turn_expiry", "inbox_open"}),
    ("sweep of queued", "select heliograph.sweep_queued('filled', 100, now())", [], {"turn_queued"}),
    ("bells", "select heliograph.sweep_bells('filled', 0, '2040-01-01')", [], {"head_ready"}),
    ("owed", f"select heliograph.sweep_owed('filled', '[\"{TARGET}\"]', 100)", [], {"runs_owed"}),
    ("outbox", "select heliograph.read_outbox('filled', 100)", [], {"outbox_unpublished"}),
    ("publish", "select heliograph.mark_published('filled', $1, now())", [list(range(1, 6))], {"outbox_unpublished"}),
    ("react", "select heliograph.react('filled', $1, now())",
     [[{"run_id": "run_a", "signals": [draft("x", "sig_run_a_1")], "reaction": {"version": 0}}]], {"runs_pkey"}),
    ("a run", "select * from heliograph.run_overview where project_id = 'filled' and run_id = 'run_7'", [], {"runs_pkey"}),
    ("newest runs", "select * from heliograph.run_overview where project_id = 'filled' order by created_at desc, run_id limit 20",
     [], {"runs_recent"}),
    ("a turn", "select * from heliograph.turn_overview where project_id = 'filled' and turn_id = 'done_7'", [],
     {"agent_turns_pkey", "leases_pkey"}),
    ("turns of a run", "select * from heliograph.turn_overview where project_id = 'filled' and run_id = 'run_7'", [],
     {"turn_of_run"}),
    ("cards of a turn", "select * from heliograph.card_overview where project_id = 'filled' and turn_id = 'done_7' order by position",
     [], {"box_cards_pkey", "cards_pkey"}),
    ("leases of a turn", "select * from heliograph.lease_overview where project_id = 'filled' and turn_id = 'done_7'", [],
     {"leases_pkey"}),
    ("a page of a log",
     "select * from heliograph.signal_log where project_id = 'filled' and run_id = 'run_7' and seq > 3 order by seq limit 1000",
     [], {"signals_pkey"}),
]  # fmt: skip


@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
async def test_no_call_reads_the_finished(filled_url: str, plan: str) -> None:
    kernel = Kernel(await connect(filled_url), "filled")
    await kernel.connection.execute(f"set plan_cache_mode = {plan}")
    measured = Measured(kernel)
    too_many, not_used = {}, {}
    for what, query, args, indexes in [*CALLS, *await _calls_of_an_owner(kernel)]:
        read, used = await measured(query, *args)
        if read > ROWS_READ_MAX:
            too_many[what] = read
        if not indexes <= used:
            not_used[what] = indexes - used
    await kernel.connection.close()
    assert (too_many, not_used) == ({}, {})


async def _calls_of_an_owner(kernel: Kernel) -> list[tuple[str, str, list[object], set[str]]]:
    """The calls for a turn that is held, and the claim of the one that waits."""
    head = await kernel.head("run_a/writer")
    claimed = {"agent_id": head["agent_id"], "agent": "writer", "turn_id": "turn_3", "epoch": head["turn_epoch"],
               "activation_id": "sig_run_a_2", "run": {"version": (await kernel.run("run_a"))["version"]}}  # fmt: skip
    card = {"card_id": "card_new", "kind": "note", "content": {}}
    return [
        ("append", "select heliograph.append('filled', $1, now())",
         [[saying(claimed, draft("x", "sig_run_a_1"), cards=[card])]], {"agent_state_head_pkey", "leases_pkey", "cards_pkey"}),
        ("renew", "select heliograph.renew('filled', $1, 30, now())", [[saying(claimed)]], {"agent_state_head_pkey"}),
        ("finish", "select heliograph.finish('filled', $1, now())", [[ending(claimed, wakes={"turn_new": "critic"})]],
         {"agent_state_head_pkey", "agent_turns_pkey", "turn_queued", "inbox_open", "runs_pkey"}),
        ("finish and claim",
         "select heliograph.finish('filled', $1, now()), heliograph.claim('filled', $2, 'worker', 10, 30, now())",
         [[ending(claimed, wakes={"turn_new": "critic"})], [TARGET]], {"head_ready", "inbox_open", "signals_pkey"}),
    ]  # fmt: skip


async def test_indexes_of_what_is_open_hold_nothing_that_is_finished(filled_url: str) -> None:
    connection = await connect(filled_url)
    await connection.execute("vacuum analyze")
    rows = await connection.fetch(
        "select c.relname, c.reltuples from pg_index x join pg_class c on c.oid = x.indexrelid"
        " where c.relnamespace = 'heliograph'::regnamespace and x.indpred is not null order by 1"
    )
    await connection.close()
    held = {name: int(count) for name, count in rows}
    assert held.pop("card_one_deliverable") >= FINISHED_TURNS  # a constraint, not a queue
    assert set(held) == {"runs_owed", "head_ready", "head_lease", "turn_one_active", "turn_queued", "turn_expiry",
                         "inbox_open", "outbox_unpublished", "signals_owed"}  # fmt: skip
    assert max(held.values()) < 10


async def test_each_table_of_the_ledger_was_filled(filled_url: str) -> None:
    connection = await connect(filled_url)
    counts = {table: await connection.fetchval(f"select count(*) from heliograph.{table}") for table in TABLES}
    await connection.close()
    assert min(counts.values()) >= FINISHED_TURNS / 5


@pytest.mark.proves("L0-40", "K22")
async def test_a_claim_reads_what_it_takes_however_long_the_queue_is(filled_url: str) -> None:
    kernel = Kernel(await connect(filled_url), "filled")
    undone = kernel.connection.transaction()
    await undone.start()
    await kernel.connection.execute(
        "update heliograph.agent_state_head set status = 'dispatched', ready_at = created.at, active_agent_turn_id = turn,"
        "   turn_epoch = 1000000"
        "  from (select agent_id, min(agent_turn_id) as turn, min(created_at) as at from heliograph.agent_turns group by 1) created"
        " where agent_state_head.agent_id = created.agent_id and status = 'idle'"
    )
    await kernel.connection.execute("analyze heliograph.agent_state_head")
    read = (
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_user_tables"
        " where relname = 'agent_state_head'"
    )
    before = await kernel.connection.fetchval(read)
    claimed = await kernel.call("claim", [TARGET, "other"], "worker-1", 10, 30.0)
    after = await kernel.connection.fetchval(read)
    await undone.rollback()
    await kernel.connection.close()
    assert (len(claimed), after - before < 100) == (10, True)
