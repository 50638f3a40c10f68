"""The last line of defence (K21): constraints reject rows that no function would write."""

from __future__ import annotations

import re

import asyncpg
import pytest

from tests.kernel.filled import fill
from tests.kernel.kit import Kernel

NEW_TURN = (
    "insert into agent_turns (project_id, agent_turn_id, agent_id, run_id, state, max_attempts, cause_seq, activation_seq,"
    " output_box_id, created_at, expires_at) values ($1, {turn}, {agent}, 'run_a', {state}, 1, 1, 2, 'box', now(), now())"
)
NEW_INBOX = (
    "insert into agent_inbox (project_id, agent_turn_id, message_type, status, correlation_id, report_status, applied,"
    " next_retry_at, created_at) values ($1, 'turn_c', {kind}, {status}, 'c1', {report}, {applied}, now(), now())"
)
NEW_CARD = (
    "insert into cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)"
    " values ($1, {card}, 'box_a', {turn}, {epoch}, {kind}, '{{}}', now())"
)
NEW_BOX = (
    "insert into boxes (project_id, box_id, kind, base_box_id, base_position, writer_turn_id, created_at)"
    " values ($1, {box}, {kind}, {base}, 1, {writer}, now())"
)
NEW_EVENT = (
    "insert into outbox (project_id, kind, key, agent_turn_id, created_at, due_at)"
    " values ($1, {kind}, {key}, 'turn_3', now(), now())"
)
NEW_SIGNAL = "insert into signals (project_id, run_id, seq, count, entries, at) values ($1, 'run_a', {seq}, {count}, {entries}, now())"
CIRCUIT = (
    "insert into circuit_breakers (project_id, type, target, state, generation, open_until, changed_at)"
    " select $1, {}, now() from generate_series(1, {}) n"
)
RUN = "update runs set {} where project_id = $1 and run_id = 'run_a'"
HEAD = "update agent_state_head set {} where project_id = $1 and agent_id = '{}'"
TURN = "update agent_turns set {} where project_id = $1 and agent_turn_id = 'turn_{}'"
WAIT = "update turn_waiting_tools set {} where project_id = $1 and tool_call_id = '{}'"
LIMIT = "update project_limits set {} = -1 where project_id = $1"
SUSPENDED, RUNNING, IDLE = "run_c/writer", "run_a/writer", "run_a/critic"

# constraint or unique index -> a statement that it rejects
REJECTED = {
    "runs_pkey": "insert into runs select * from runs where project_id = $1 and run_id = 'run_a'",
    "run_status_check": RUN.format("status = 'asleep'"),
    "outcome_check": RUN.format("status = 'ended', outcome = 'fine', ended_at = now(), open_turns = 0"),
    "runs_check": RUN.format("status = 'ended', ended_at = now(), open_turns = 0"),
    "runs_check1": RUN.format("status = 'ended', outcome = 'success', open_turns = 0"),
    "runs_forked_check": RUN.format("forked_from = 'run_c'"),
    "open_count_check": RUN.format("pending_reactions = -1"),
    "runs_check3": RUN.format("status = 'ended', outcome = 'success', ended_at = now()"),
    "agent_state_head_pkey": f"insert into agent_state_head select * from agent_state_head where project_id = $1 and agent_id = '{IDLE}'",
    "head_status_check": HEAD.format("status = 'asleep', active_agent_turn_id = 'turn_3'", IDLE),
    "phase_check": HEAD.format("phase = 'lunch'", RUNNING),
    "priority_check": HEAD.format("priority = 4", IDLE),
    "resumes_on_check": HEAD.format("resumes_on = 'some'", SUSPENDED),
    "agent_state_head_check": HEAD.format("active_agent_turn_id = 'turn_3'", IDLE),
    "agent_state_head_check1": HEAD.format("lease_until = null", RUNNING),
    "agent_state_head_check2": HEAD.format("owner = null", RUNNING),
    "agent_state_head_check3": HEAD.format("waiting_tool_count = 0", SUSPENDED),
    "agent_state_head_check4": HEAD.format("resumes_on = null", SUSPENDED),
    "agent_state_head_check5": HEAD.format("due_at = now()", RUNNING),
    "agent_state_head_check6": HEAD.format("force_at = now()", RUNNING),
    "agent_state_head_stop": HEAD.format("force_at = now(), stop_requested_at = now()", SUSPENDED),
    "agent_turns_pkey": NEW_TURN.format(turn="'turn_3'", agent="'run_a/critic'", state="'queued'"),
    "turn_state_check": NEW_TURN.format(turn="'turn_9'", agent="'run_a/critic'", state="'asleep'"),
    "turn_message_type_check": TURN.format("message_type = 'gossip'", "a"),
    "max_attempts_check": TURN.format("max_attempts = 0", "3"),
    "agent_turns_check": TURN.format("outcome = null", "a"),
    "agent_turns_check2": TURN.format("finished_at = null", "a"),
    "agent_turns_check3": TURN.format("parent_turn_id = 'turn_c'", "a"),
    "turn_one_active": TURN.format("state = 'active'", "4"),
    "agent_inbox_pkey": "insert into agent_inbox overriding system value select * from agent_inbox where project_id = $1 and not applied",
    "agent_inbox_check": "update agent_inbox set correlation_id = null where project_id = $1 and message_type = 'tool_result'",
    "message_type_check": NEW_INBOX.format(kind="'gossip'", status="'queued'", report="null", applied="false"),
    "message_status_check": NEW_INBOX.format(kind="'turn'", status="'lost'", report="null", applied="false"),
    "call_status_check": NEW_INBOX.format(kind="'tool_result'", status="'pending'", report="'fine'", applied="false"),
    "inbox_one_applied": NEW_INBOX.format(kind="'tool_result'", status="'pending'", report="'success'", applied="true"),
    "cards_pkey": NEW_CARD.format(card="'card_note_2'", turn="'turn_3'", epoch=1, kind="'note'"),
    "cards_check": NEW_CARD.format(card="'card_9'", turn="'turn_3'", epoch=1, kind="'task.deliverable'"),
    "cards_check1": NEW_CARD.format(card="'card_9'", turn="null", epoch=1, kind="'note'"),
    "blobs_pkey": "insert into blobs select * from blobs where project_id = $1",
    "boxes_pkey": NEW_BOX.format(box="'fork_1'", kind="'context'", base="'context_1'", writer="null"),
    "box_kind_check": NEW_BOX.format(box="'fork_2'", kind="'bin'", base="'context_1'", writer="null"),
    "boxes_check": NEW_BOX.format(box="'fork_2'", kind="'context'", base="null", writer="null"),
    "boxes_check1": NEW_BOX.format(box="'fork_2'", kind="'context'", base="'context_1'", writer="'turn_3'"),
    "project_wires_pkey": "insert into project_wires values ($1, 'nats', now()), ($1, 'nats', now())",
    "leases_pkey": "insert into leases select * from leases where project_id = $1",
    "turn_waiting_tools_pkey": "insert into turn_waiting_tools overriding system value select * from turn_waiting_tools where project_id = $1",
    "call_kind_check": WAIT.format("kind = 'magic'", "c1"),
    "effect_check": WAIT.format("effect = 'twice'", "c1"),
    "call_state_check": WAIT.format("state = 'lost', resolved_at = now()", "c2"),
    "after_execution_check": WAIT.format("after_execution = 'sleep'", "c1"),
    "rate_mark_check": WAIT.format("""rate = '{"starts_at": "infinity", "rates": []}'""", "c1"),
    "turn_waiting_tools_check": WAIT.format("status = null", "c1"),
    "turn_waiting_tools_check1": WAIT.format("resolved_position = null", "c1"),
    "turn_waiting_tools_check2": WAIT.format("resolved_at = null", "c1"),
    "turn_waiting_tools_check3": WAIT.format("child_turn_id = 'turn_3'", "c1"),
    "outbox_pkey": NEW_EVENT.format(kind="'task_event'", key="'evt:turn_a'"),
    "outbox_kind_check": NEW_EVENT.format(kind="'rumour'", key="'evt:turn_3'"),
    "signals_pkey": NEW_SIGNAL.format(seq=1, count=1, entries="'[{}]'"),
    "signals_check": NEW_SIGNAL.format(seq=99, count=2, entries="'[{}]'"),
    "signal_count_check": NEW_SIGNAL.format(seq=99, count=0, entries="'[]'"),
    "project_limits_pkey": "insert into project_limits select * from project_limits where project_id = $1",
    "memories_pkey": "insert into memories (project_id, memory_id, text, metadata, created_at)"
                     " select project_id, memory_id, 'other', '{}', now() from memories where project_id = $1",
    "memories_metadata_check": "update memories set metadata = '[]' where project_id = $1",
    "budgets_pkey": "insert into budgets select * from budgets where project_id = $1",
    "budgets_kind_check": "update budgets set kind = 'hours' where project_id = $1",
    "budgets_used_check": "update budgets set used = -1 where project_id = $1",
    "budgets_reserved_check": "update budgets set reserved = -1 where project_id = $1",
    "budgets_overspent_check": "update budgets set overspent = -1 where project_id = $1",
    "budgets_check": "update budgets set used = 60, reserved = 41 where project_id = $1",
    "callbacks_pkey": "insert into callbacks select * from callbacks where project_id = $1",
    "callbacks_state_check": "update callbacks set state = 'lost', due_at = null, finished_at = created_at where project_id = $1",
    "callbacks_check": "update callbacks set due_at = null where project_id = $1",
    "callbacks_check1": "update callbacks set finished_at = created_at where project_id = $1",
    "subscriptions_pkey": "insert into subscriptions select * from subscriptions where project_id = $1",
    "subscriptions_name_check": "update subscriptions set name = '' where project_id = $1",
    "subscriptions_patterns_check": "update subscriptions set patterns = '{}' where project_id = $1",
    "subscriptions_check": "update subscriptions set next_xid = '1', next_feed_id = null where project_id = $1",
    "run_feed_pkey": "insert into run_feed overriding system value select * from run_feed where project_id = $1",
    "subscription_runs_pkey": "insert into subscription_runs select * from subscription_runs where project_id = $1",
    "subscription_runs_upto_check": "update subscription_runs set upto = position - 1, subscriber = 'w' where project_id = $1",
    "subscription_runs_position_check": "update subscription_runs set position = -1 where project_id = $1",
    "signal_grants_pkey": "insert into signal_grants select * from signal_grants where project_id = $1",
    "signal_grants_pattern_check": "update signal_grants set pattern = '' where project_id = $1",
    "workers_pkey": "insert into workers select * from workers where project_id = $1",
    "workers_capabilities_check": "update workers set capabilities = '{}' where project_id = $1",
    "workers_metadata_check": "update workers set metadata = '[]' where project_id = $1",
    "workers_slots_check": "update workers set slots = -1 where project_id = $1",
    "workers_slots_used_check": "update workers set slots_used = -1 where project_id = $1",
    "workers_interval_seconds_check": "update workers set interval_seconds = 0 where project_id = $1",
    "workers_missed_threshold_check": "update workers set missed_threshold = 0 where project_id = $1",
    "workers_phase_check": "update workers set phase = 'asleep' where project_id = $1",
    "workers_status_check": "update workers set status = 'fine' where project_id = $1",
    "workers_metrics_check": "update workers set metrics = '[]' where project_id = $1",
    "workers_warnings_check": "update workers set warnings = '{}' where project_id = $1",
    "workers_pools_check": "update workers set pools = '{}' where project_id = $1",
    "circuit_breakers_pkey": CIRCUIT.format("'tool_call', 't', 'closed', 0, null", 2),
    "circuit_breakers_type_check": CIRCUIT.format("'halt', 't', 'closed', 0, null", 1),
    "circuit_breakers_state_check": CIRCUIT.format("'tool_call', 't', 'shut', 0, null", 1),
    "circuit_breakers_check": CIRCUIT.format("'tool_call', 't', 'open', 0, null", 1),
    "circuit_breakers_values": CIRCUIT.format("'tool_call', '', 'closed', 0, null", 1),
    "circuit_calls_values": "update circuit_calls set generation = -1 where project_id = $1",
    "circuit_mark_check": "update turn_waiting_tools set circuit = '{}' where project_id = $1",
    "circuit_calls_pkey": "insert into circuit_calls overriding system value select * from circuit_calls where project_id = $1",
    "circuit_calls_status_check": "update circuit_calls set status = 'lost' where project_id = $1",
    "circuit_calls_check": "update circuit_calls set ended_at = null where project_id = $1",
    "start_time_check": TURN.format("starts_at = 'infinity'", 3),
    "run_checkpoints_pkey": "insert into run_checkpoints select * from run_checkpoints where project_id = $1",
    "run_checkpoints_seq_check": "update run_checkpoints set seq = 0 where project_id = $1",
    "run_checkpoints_activations_check": "update run_checkpoints set activations = -1 where project_id = $1",
    "signals_recording_check": "update signals set recording = repeat('x', 67108865) where project_id = $1",
    "recording_name_check": "update runs set recording_name = '' where project_id = $1",
    "rate_buckets_pkey": "insert into rate_buckets select * from rate_buckets where project_id = $1",
    "rate_buckets_kind_check": "update rate_buckets set kind = 'halt' where project_id = $1",
    "rate_buckets_tokens_max_check": "update rate_buckets set tokens_max = 0 where project_id = $1",
    "rate_buckets_seconds_check": "update rate_buckets set seconds = 3601 where project_id = $1",
    "rate_buckets_full_at_check": "update rate_buckets set full_at = 9000000000000000000 where project_id = $1",
    "rate_buckets_last_start_check": "update rate_buckets set last_start = -1 where project_id = $1",
    "rate_buckets_peaks_check": "update rate_buckets set peaks = '[[1, -1]]' where project_id = $1",
    "pruned_pkey": "insert into pruned select * from pruned where project_id = $1",
    "head_transitions_pkey": "insert into head_transitions select * from head_transitions where $1 <> ''",
    "head_transitions_epoch_step_check": "update head_transitions set epoch_step = 2 where $1 <> ''",
} | {
    f"project_limits_{limit}_check": LIMIT.format(limit)
    for limit in ("queue_max", "depth_max", "fan_out_max", "cards_max", "waits_max", "payload_bytes_max", "card_bytes_max",
                  "result_bytes_max", "blob_bytes_max", "running_max", "deferrals_max", "memories_max", "memory_bytes_max",
                  "dispatch_seconds_max")
}  # fmt: skip

# constraint of a type -> a further statement that it rejects, on another column of that type
REJECTED_TOO = {
    "outcome_check": TURN.format("outcome = 'fine'", "a"),
    "open_count_check": RUN.format("open_turns = -1"),
    "call_status_check": WAIT.format("status = 'fine'", "c1"),
    "priority_check": "update outbox set priority = 4 where project_id = $1",
}


@pytest.mark.proves("K21", "L0-01", "L0-07", "G-60", "K6", "G-69")
async def test_each_constraint_rejects_its_violation(kernel: Kernel) -> None:
    await fill(kernel)
    before = await kernel.everything()
    for name, statement in [*REJECTED.items(), *REJECTED_TOO.items()]:
        with pytest.raises(asyncpg.IntegrityConstraintViolationError) as raised:
            await kernel.harm(statement)
        assert raised.value.constraint_name == name
    assert await kernel.everything() == before


@pytest.mark.proves("K21")
async def test_no_constraint_is_without_a_test(kernel: Kernel) -> None:
    rows = await kernel.connection.fetch(
        "select conname from pg_constraint where connamespace = 'heliograph'::regnamespace and contype <> 'n'"
        "   and conrelid not in ('heliograph.schema_version'::regclass, 'heliograph.kernel_version'::regclass)"
        " union select i.relname from pg_index x join pg_class i on i.oid = x.indexrelid"
        "  where i.relnamespace = 'heliograph'::regnamespace and x.indisunique and i.relname !~ '_version_pkey$'"
    )
    bells = {
        "bell_secret_pkey",
        "bell_secret_is_only_check",
    }  # of one row, which the migration wrote and no function writes
    assert {row[0] for row in rows} - {"project_grants_pkey"} - bells == set(REJECTED)


# status columns -> all that they take
STATUSES = {
    "message_status_check": {"queued", "pending", "processing", "deferred", "consumed", "duplicate", "dead", "canceled"},
    "outcome_check": {"success", "failed", "canceled", "timeout", "partial"},
    "head_status_check": {"idle", "dispatched", "running", "suspended"},
    "phase_check": {"init", "plan", "act", "reflect", "terminate"},
    "resumes_on_check": {"all", "each"},
    "call_state_check": {"open", "resolved", "closed"},
    "call_status_check": {"success", "failed", "timeout", "unknown", "canceled"},
    "effect_check": {"pure", "idempotent", "transactional", "once"},
}  # fmt: skip


@pytest.mark.proves("G-64", "G-69")
async def test_statuses_are_those_of_the_specification_and_no_others(kernel: Kernel) -> None:
    rows = await kernel.connection.fetch(
        "select conname, pg_get_constraintdef(oid) from pg_constraint"
        " where connamespace = 'heliograph'::regnamespace and conname = any ($1)", list(STATUSES)
    )  # fmt: skip
    assert {name: set(re.findall(r"'(\w+)'::text", written)) for name, written in rows} == STATUSES


@pytest.mark.proves("L0-30")
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("agent_turns", "output_box_id"), ("agent_turns", "expires_at"), ("agent_turns", "cause_seq"),
        ("agent_inbox", "agent_turn_id"), ("agent_inbox", "next_retry_at"), ("cards", "content"), ("cards", "box_id"),
        ("outbox", "key"), ("outbox", "due_at"), ("leases", "owner"), ("signals", "entries"), ("runs", "request_hash"),
        ("turn_waiting_tools", "epoch"), ("turn_waiting_tools", "kind"), ("boxes", "kind"),
    ],
)  # fmt: skip
async def test_columns_required_by_recovery_are_not_null(kernel: Kernel, table: str, column: str) -> None:
    await fill(kernel)
    with pytest.raises(asyncpg.NotNullViolationError):
        await kernel.connection.execute(
            f"update heliograph.{table} set {column} = null where project_id = $1", kernel.project
        )


@pytest.mark.proves("S1")
async def test_every_key_begins_with_the_project(kernel: Kernel) -> None:
    rows = await kernel.connection.fetch(
        "select c.relname as table, array_agg(a.attname order by k.n) as columns"
        "  from pg_index x join pg_class c on c.oid = x.indrelid, unnest(x.indkey) with ordinality k (attnum, n)"
        "  join pg_attribute a on a.attnum = k.attnum"
        " where c.relnamespace = 'heliograph'::regnamespace and a.attrelid = x.indrelid and c.relname !~ '_version$'"
        " group by c.relname, x.indexrelid"
    )
    data = {
        "head_transitions",
        "bell_secret",
    }  # of no project and never written; project_grants is read by login, for all its projects
    assert [
        tuple(row)
        for row in rows
        if row["columns"][0] != "project_id" and row["table"] not in data | {"project_grants"}
    ] == []


@pytest.mark.proves("S1")
async def test_schema_has_no_foreign_keys_and_the_doctor_looks_for_orphans(kernel: Kernel) -> None:
    foreign = "select conname from pg_constraint where connamespace = 'heliograph'::regnamespace and contype = 'f'"
    assert await kernel.connection.fetch(foreign) == []


async def test_text_sorts_by_bytes_in_every_locale(kernel: Kernel) -> None:
    rows = await kernel.connection.fetch(
        "select a.attrelid::regclass::text as table, a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'r' and a.attnum > 0 and a.atttypid = 'text'::regtype"
        "   and a.attcollation <> 'pg_catalog.\"C\"'::regcollation"
        "   and exists (select from pg_attribute p where p.attrelid = c.oid and p.attname = 'project_id')"
        "   and c.relname <> 'project_grants'"
    )
    assert rows == []
