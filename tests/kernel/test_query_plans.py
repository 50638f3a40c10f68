"""Finished turns do not slow calls down: on a ledger of 100,000 of them, each call finds its rows by an index.
PostgreSQL's statistics count the rows that each call reads within its own transaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from heliograph.ledger.kernel import KERNEL
from heliograph.ledger.load_reader import RUNS, TURNS, USES, WAITS
from heliograph.ledger.log_reader import CLAIMS_OF_RUN
from heliograph.testing.database import TestServer
from tests.kernel.finished_turns import FINISHED_TURNS, Measured, filled_database
from tests.kernel.kit import (
    TABLES,
    TARGET,
    Item,
    Kernel,
    connect,
    draft,
    encoded,
    ending,
    message,
    run_item,
    stopping,
    turn_item,
)
from tests.kernel.waits import TOKEN, activated, child, command

_NULL = "'{null}'"  # a column of one item that lacks this key
ROWS_READ_MAX = 200  # of a million: the rows that one call may read for a few heads

pytestmark = [pytest.mark.more, pytest.mark.parametrize("postgres", [18], indirect=True)]


@pytest.fixture(scope="module")
def filled_url(postgres: TestServer) -> Iterator[str]:
    url = asyncio.run(filled_database(postgres))
    yield url
    asyncio.run(postgres.drop(url))


def starting(item: Item) -> tuple[str, list[object]]:
    """The statement that starts a run, and its parameters."""
    definition = KERNEL["start_runs"]
    return definition.statement("now()"), definition.values(["filled", [item]], encoded)


RECORDINGS = "select * from heliograph.recording_overview where project_id = 'filled'"
# a call -> the indexes that it may not do without
REPORT = "heliograph.report('filled', '{{{}}}', '{{{}}}', '{{{}}}', '{{success}}', array['1'::jsonb], '{{null}}', '{{null}}', '{{null}}', now())"
SUSPEND = (
    "heliograph.suspend('filled', $1::text[], $2::text[], $3::bigint[], '{null}', '{0}', '{null}', $4::text[]::jsonb[], '{null}',"
    " '{null}', '{null}', $5::text[]::jsonb[], '{null}', now())"
)

CALLS: list[tuple[str, str, list[object], set[str]]] = [
    ("start", *starting(run_item("run_new", ["writer"], {"turn_new": "writer"})), {"pruned_pkey"}),
    ("start again", *starting(run_item("run_a", ["writer"], {})), {"runs_pkey"}),
    ("enqueue", "select heliograph.enqueue('filled', $1, now())",
     [[message("run_a", "critic", f"turn_new_{n}") for n in range(5)]], {"agent_turns_pkey", "turn_queued", "pruned_pkey"}),
    ("enqueue again", "select heliograph.enqueue('filled', $1, now())", [[message("run_a", "writer", "turn_3")]],
     {"agent_turns_pkey", "signals_pkey"}),
    ("sweep of leases", "select heliograph.sweep_leases('filled', 100, '2040-01-01')", [], {"head_lease", "agent_inbox_pkey"}),
    ("sweep of expired", "select heliograph.sweep_expired('filled', 100, '2040-01-01')", [], {"turn_expiry", "agent_inbox_pkey"}),
    ("sweep of queued", "select heliograph.sweep_queued('filled', 100, now())", [], {"turn_queued"}),
    ("sweep of waits", "select heliograph.sweep_waits('filled', 100, '2040-01-01')", [], {"wait_due", "turn_waiting_tools_pkey"}),
    ("sweep of reports", "select heliograph.sweep_reports('filled', 100, '2040-01-01')", [], {"outbox_unpublished"}),
    ("sweep of stuck turns", "select heliograph.sweep_stuck('filled', 100, '', '2040-01-01')", [], {"turn_one_active"}),
    ("sweep of stops", "select heliograph.sweep_stops('filled', 100, '2040-01-01')", [], {"head_stop", "outbox_unpublished"}),
    ("callbacks", "select heliograph.take_callbacks('filled', 100, 1, '2040-01-01')", [], {"callback_due"}),
    ("sweep of callbacks", "select heliograph.sweep_callbacks('filled', 100, 1, '2040-01-01')", [], {"callback_due"}),
    ("bells", "select heliograph.sweep_bells('filled', 0, '2040-01-01')", [], {"head_ready", "head_due"}),
    ("pending", f"select heliograph.sweep_pending_reactions('filled', '[\"{TARGET}\"]', 100)", [], {"runs_pending"}),
    ("outbox", "select heliograph.read_outbox('filled', 100, '2040-01-01')", [], {"outbox_unpublished"}),
    ("publish", "select heliograph.mark_published('filled', $1, now())", [["evt:turn_a", "cmd:turn_c:c2"]], {"outbox_pkey"}),
    ("commands", "select heliograph.take_commands('filled', '[\"search\"]', 100, 1, '2040-01-01')", [], {"outbox_commands"}),
    ("command pools", "select heliograph.command_pools('filled', 'search', '2040-01-01')", [], {"outbox_commands"}),
    ("report", f"select {REPORT.format('turn_c', 'c2', TOKEN)}", [],
     {"turn_waiting_tools_pkey", "agent_state_head_pkey", "outbox_pkey", "runs_pkey"}),
    ("react", "select heliograph.react('filled', '{run_a}', '{0}', $1::text[]::jsonb[], array['{}'::jsonb], '{null}', now())",
     [[json.dumps([draft("x", "sig_run_a_1")])]], {"runs_pkey"}),
    ("stop", "select heliograph.stop('filled', $1, now())", [[stopping(turn) for turn in ("turn_3", "turn_4", "turn_c")]],
     {"agent_turns_pkey", "agent_state_head_pkey", "turn_waiting_tools_pkey", "outbox_pkey", "runs_pkey"}),
    ("stop of what was", "select heliograph.stop('filled', $1, now())", [[stopping(turn) for turn in ("done_7", "turn_0", "turn_x")]],
     {"agent_turns_pkey", "pruned_pkey"}),
    ("stop of runs", "select heliograph.stop_runs('filled', $1, now())", [[stopping("run_a"), stopping("run_7")]],
     {"runs_pkey", "turn_of_run"}),
    ("put a box", "select heliograph.put_boxes('filled', $1, now())",
     [[{"box_id": "context_new", "cards": [{"kind": "note", "content": 1}]}]], {"boxes_pkey"}),
    ("fork a box", "select heliograph.fork_boxes('filled', $1, now())",
     [[{"box_id": "fork_new", "base_box_id": box} for box in ("context_1", "box_done_7")]], {"boxes_pkey", "agent_turns_pkey"}),
    ("read a box", "select heliograph.read_box('filled', 'fork_1', 0, 100)", [], {"boxes_pkey", "card_in_box"}),
    ("contents of a box", "select * from heliograph.box_contents where project_id = 'filled' and box_id = 'fork_1'", [],
     {"boxes_pkey", "card_in_box"}),
    ("liveness", "select heliograph.liveness('filled', '2040-01-01')", [],
     {"head_lease", "head_ready", "head_due", "head_stop", "wait_due", "turn_expiry", "turn_queued", "outbox_unpublished", "runs_pending",
      "callback_due"}),
    ("measure", "select heliograph.measure('filled', '2040-01-01')", [],
     {"head_lease", "head_ready", "head_due", "turn_queued", "turn_expiry", "outbox_unpublished", "circuit_breakers_by_change"}),
    ("prune of little", "select heliograph.prune('filled', '2020-01-01', 40, now())", [],
     {"runs_recent", "pruned_old", "blob_old", "box_old"}),
    ("recall", "select heliograph.recall('filled', 'memory', 'agent_7', 10, now())", [], {"memory_of_agent"}),
    ("a run", "select * from heliograph.run_overview where project_id = 'filled' and run_id = 'run_7'", [], {"runs_pkey"}),
    ("newest runs", "select * from heliograph.run_overview where project_id = 'filled' order by created_at desc, run_id desc limit 20",
     [], {"runs_recent"}),
    ("newest recordings", f"{RECORDINGS} order by started_at desc, run_id desc limit 20", [], {"runs_recorded"}),
    ("recordings with a name", f"{RECORDINGS} and name = 'shop' order by started_at desc, run_id desc limit 20", [], {"runs_recorded"}),
    ("a turn", "select * from heliograph.turn_overview where project_id = 'filled' and turn_id = 'done_7'", [],
     {"agent_turns_pkey", "leases_pkey"}),
    ("turns of a run", "select * from heliograph.turn_overview where project_id = 'filled' and run_id = 'run_7'", [],
     {"turn_of_run"}),
    ("calls of a turn", "select * from heliograph.wait_overview where project_id = 'filled' and turn_id = 'done_7' order by position",
     [], {"turn_waiting_tools_pkey"}),
    ("inbox of a turn", "select * from heliograph.inbox_overview where project_id = 'filled' and turn_id = 'done_7' order by inbox_id",
     [], {"agent_inbox_pkey"}),
    ("edges of a turn", "select * from heliograph.edge_overview where project_id = 'filled' and turn_id = 'done_7' order by edge_id",
     [], {"turn_waiting_tools_pkey", "agent_inbox_pkey"}),
    ("cards of a turn", "select * from heliograph.card_overview where project_id = 'filled' and turn_id = 'done_7' order by position",
     [], {"agent_turns_pkey", "card_in_box"}),
    ("leases of a turn", "select * from heliograph.lease_overview where project_id = 'filled' and turn_id = 'done_7'", [],
     {"leases_pkey"}),
    ("claims of a run", CLAIMS_OF_RUN, ["filled", "run_7"], {"turn_of_run", "leases_pkey"}),
    ("top: open waits", WAITS, ["filled", 1000], {"turn_one_active", "turn_waiting_tools_pkey"}),
    ("top: newest runs", RUNS, ["filled", ["run_7"], 20, None], {"runs_recent", "runs_pkey"}),
    ("top: newest runs of an application", RUNS, ["filled", [], 20, TARGET], {"runs_recent", "runs_pkey"}),
    ("top: open turns of runs", TURNS, ["filled", ["run_a", "run_7"], 50], {"turn_of_run"}),
    ("top: use of models", USES, ["filled", ["run_7", "run_long"], [0, 2900], [9, 3000]], {"signals_pkey"}),
    ("causes of a signal", "select heliograph.why('filled', 'sig_run_7_9', 100)", [], {"signals_pkey", "runs_pkey"}),
    ("what a fork shares", "select heliograph.read_shared_log('filled', 'run_7', 9, '{}', null)", [],
     {"signals_pkey", "runs_pkey", "run_checkpoints_pkey"}),
    ("what a fork shares of a long run", "select heliograph.read_shared_log('filled', 'run_long', 2950, '{}', null)", [],
     {"signals_pkey", "runs_pkey", "run_checkpoints_pkey"}),
    ("a fork of a long run",
     *starting(run_item("run_new", ["writer"], {}) | {"fork": {"run_id": "run_long", "seq": 2950, "activations": 1, "turns": []}}),
     {"signals_pkey", "runs_pkey"}),
    ("the first failure of a run", "select heliograph.first_failure('filled', 'run_7')", [],
     {"signals_pkey", "runs_pkey", "run_checkpoints_pkey"}),
    ("turns of activations", "select turn_id, outcome from heliograph.turn_overview where project_id = 'filled'"
     " and (run_id, activation_seq) in (select * from unnest(array['run_7', 'run_8'], array[2, 2]))", [], {"turn_of_run"}),
    ("a page of a tree", "select heliograph.read_tree('filled', 'sig_run_7_2', 0, 100)", [], {"signals_pkey", "runs_pkey"}),
    ("a page of a graph", "select heliograph.read_graph('filled', 'sig_run_7_2', 0, 100)", [], {"signals_pkey", "runs_pkey"}),
    ("an agent that did not wake", "select heliograph.why_not('filled', 'run_7', 'writer', 0, 100)", [],
     {"signals_pkey", "runs_pkey", "agent_state_head_pkey"}),
    ("signals of a subscription", "select heliograph.take_signals('filled', 'search', 'w', 10, 30, now())", [],
     {"subscription_news", "run_feed_order", "runs_pkey"}),
    ("open turns", "select heliograph.read_open_turns('filled', 'newsroom', null, '', 0, 10, now())", [],
     {"turn_one_active", "turn_queued", "agent_state_head_pkey", "runs_pkey"}),
    ("open turns of a run", "select heliograph.read_open_turns('filled', 'newsroom', 'run_a', '', 0, 10, now())", [],
     {"turn_of_run", "agent_state_head_pkey"}),
    ("ended turns of a run", "select heliograph.read_ended_turns('filled', 'run_7', 0, 10, now())", [], {"turn_of_run", "runs_pkey"}),
    ("a conversation", "select heliograph.read_conversation('filled', 'run_7', 'writer', 1000, 20)", [], {"turn_of_run", "runs_pkey"}),
    ("a page of a log", "select * from heliograph.read_log('filled', 'run_7', 3, 1000)", [], {"signals_pkey", "runs_pkey"}),
]  # fmt: skip


@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
async def test_no_call_reads_finished_rows(filled_url: str, plan: str) -> None:
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
    calls = [command("c1"), child("c2", "critic", "turn_new")]
    ended = KERNEL["finish"].values(["filled", [ending(claimed, wakes={"turn_new": "critic"})]], encoded)
    suspension: list[object] = [
        [claimed["agent_id"]],
        [claimed["turn_id"]],
        [claimed["epoch"]],
        [json.dumps(list(activated("critic")))],
        [json.dumps(calls)],
    ]
    return [
        ("append", "select heliograph.append('filled', $1::text[], $2::text[], $3::bigint[], '{null}', '{0}', $4::text[]::jsonb[], $5::text[]::jsonb[],"
                   " '{null}', now())",
         [[claimed["agent_id"]], [claimed["turn_id"]], [claimed["epoch"]], [json.dumps([card])], [json.dumps([draft("x", "sig_run_a_1")])]],
         {"agent_state_head_pkey", "leases_pkey", "cards_pkey"}),
        ("renew", "select heliograph.renew('filled', $1::text[], $2::text[], $3::bigint[], '{null}', 30, now())",
         [[claimed["agent_id"]], [claimed["turn_id"]], [claimed["epoch"]]], {"agent_state_head_pkey"}),
        ("release", "select heliograph.release('filled', $1, now())", [[turn_item(claimed)]], {"agent_state_head_pkey", "leases_pkey"}),
        ("defer", "select heliograph.defer('filled', $1::text[], $2::text[], $3::bigint[], '{null}', '{1}', '{null}', '{null}', '{null}', now())",
         [[claimed["agent_id"]], [claimed["turn_id"]], [claimed["epoch"]]],
         {"agent_state_head_pkey", "agent_inbox_pkey"}),
        ("begin and record", f"select heliograph.begin_call('filled', $1::text[], $2::text[], $3::bigint[], '{{c1}}', {_NULL}, '{{x}}', {', '.join(7 * [_NULL])},"
                             " now()), heliograph.record_call('filled', $1::text[], $2::text[], $3::bigint[],"
                             f" '{{c1}}', '{{success}}', '{{1}}', {', '.join(11 * [_NULL])}, now())",
         [[claimed["agent_id"]], [claimed["turn_id"]], [claimed["epoch"]]],
         {"agent_state_head_pkey", "turn_waiting_tools_pkey"}),
        ("suspend", f"select {SUSPEND}", suspension,
         {"agent_state_head_pkey", "turn_waiting_tools_pkey", "leases_pkey", "agent_turns_pkey"}),
        ("suspend and report", f"select {SUSPEND}, {REPORT.format('turn_3', 'c1', TOKEN)}", suspension,
         {"outbox_pkey"}),
        ("replace boxes", "select heliograph.replace_boxes('filled', $1, now())", [[turn_item(claimed, context_box_id="context_1")]],
         {"agent_state_head_pkey", "boxes_pkey"}),
        ("finish", KERNEL["finish"].statement("now()"), ended,
         {"agent_state_head_pkey", "agent_turns_pkey", "turn_queued", "agent_inbox_pkey", "runs_pkey"}),
        ("finish and claim", KERNEL["finish_and_claim"].statement("now()"), [*ended, [TARGET], [None], [None], [None], "worker", 10, 30.0],
         {"head_ready", "agent_inbox_pkey", "signals_pkey"}),
    ]  # fmt: skip


OF_EACH_TURN = [
    "runs", "agent_state_head", "agent_turns", "agent_inbox", "cards", "leases", "outbox", "signals",
    "turn_waiting_tools",
]  # fmt: skip
# Indexes with entries only for rare rows, and the functions that read them: contexts, blobs and forks are pruned last.
OF_RARE_ROWS = {"turn_context": "prune", "card_of_blob": "prune", "runs_forked": "prune", "signals_pending": "react"}


async def test_each_index_of_a_table_that_each_turn_writes_to_serves_a_query(filled_url: str) -> None:
    connection = await connect(filled_url)
    rows = await connection.fetch(
        "select i.relname from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid"
        " where i.relnamespace = 'heliograph'::regnamespace and t.relname = any ($1) and not x.indisunique", OF_EACH_TURN
    )  # fmt: skip
    await connection.close()
    assert {name for (name,) in rows} - set().union(*(indexes for *_, indexes in CALLS)) == set(OF_RARE_ROWS)


async def test_indexes_of_open_work_contain_no_finished_rows(filled_url: str) -> None:
    connection = await connect(filled_url)
    await connection.execute("reindex schema heliograph")  # afterwards reltuples is exact
    rows = await connection.fetch(
        "select c.relname, c.reltuples from pg_index x join pg_class c on c.oid = x.indexrelid"
        " where c.relnamespace = 'heliograph'::regnamespace and x.indpred is not null order by 1"
    )
    await connection.close()
    sizes = {name: int(count) for name, count in rows}
    # only these indexes contain old rows
    assert min(sizes.pop("box_old"), 4 * sizes.pop("runs_recorded")) >= FINISHED_TURNS / 5
    assert set(sizes) == {
        "runs_pending", "callback_due", "head_ready", "head_due", "head_lease", "head_stop", "turn_one_active", "turn_queued", "turn_expiry",
        "inbox_one_applied", "wait_due", "outbox_unpublished", "outbox_commands", "signals_pending", "turn_context", "box_base",
        "box_writer", "card_of_blob", "memory_expiry", "runs_forked", "subscription_news",
    }  # fmt: skip
    assert max(sizes.values()) < 10


async def test_query_plan_data_fills_each_table_of_the_ledger(filled_url: str) -> None:
    connection = await connect(filled_url)
    tables = set(TABLES) - {"project_limits", "subscriptions", "signal_grants"}
    counts = {table: await connection.fetchval(f"select count(*) from heliograph.{table}") for table in tables}
    await connection.close()
    assert min(counts.values()) >= FINISHED_TURNS / 5


async def test_pruning_reads_in_proportion_to_the_removed_rows(filled_url: str) -> None:
    kernel = Kernel(await connect(filled_url), "filled")
    measured = Measured(kernel)
    prune = "select heliograph.prune('filled', '2040-01-01', $1, '2041-01-01')"
    read = {limit: (await measured(prune, limit))[0] for limit in (1, 10, 100)}
    await kernel.connection.close()
    assert {limit: rows for limit, rows in read.items() if rows > 100 + 200 * limit} == {}


@pytest.mark.proves("L0-40", "K22")
async def test_claim_reads_only_its_rows_for_any_length_of_the_queue(filled_url: str) -> None:
    kernel = Kernel(await connect(filled_url), "filled")
    undone = kernel.connection.transaction()
    await undone.start()
    await kernel.connection.execute(
        "update heliograph.agent_state_head set status = 'dispatched', ready_at = created.at, active_agent_turn_id = turn,"
        "   turn_epoch = 1000000"
        "  from (select agent_id, min(agent_turn_id) as turn, min(created_at) as at from heliograph.agent_turns"
        "         where state = 'done' group by 1) created"
        " where agent_state_head.agent_id = created.agent_id and status = 'idle'"
    )
    await kernel.connection.execute("analyze heliograph.agent_state_head")
    read = (
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_user_tables"
        " where relname = 'agent_state_head'"
    )
    before = await kernel.connection.fetchval(read)
    claimed = await kernel.call("claim", [{"target": TARGET}, {"target": "other"}], "worker-1", 10, 30.0)
    after = await kernel.connection.fetchval(read)
    await undone.rollback()
    await kernel.connection.close()
    assert (len(claimed), after - before < 100) == (10, True)
