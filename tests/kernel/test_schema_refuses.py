"""The last line of defence (K21): what no function would write, and the tables do not take."""

from __future__ import annotations

import re

import asyncpg
import pytest

from tests.kernel.kit import Kernel, fill

NEW_TURN = (
    "insert into agent_turns (project_id, agent_turn_id, agent_id, run_id, state, max_attempts, cause_seq, activation_seq,"
    " output_box_id, created_at, expires_at) values ($1, {turn}, {agent}, 'run_a', {state}, 1, 1, 2, 'box', now(), now())"
)
NEW_INBOX = (
    "insert into agent_inbox (project_id, agent_id, agent_turn_id, message_type, status, correlation_id, next_retry_at,"
    " created_at) values ($1, 'run_a/writer', 'turn_3', {kind}, {status}, 'sig_run_a_1', now(), now())"
)
NEW_EDGE = (
    "insert into execution_edges (project_id, primitive, edge_phase, run_id, agent_id, agent_turn_id, cause_id, created_at)"
    " values ($1, {primitive}, {phase}, 'run_a', 'run_a/writer', 'turn_3', 'sig_run_a_1', now())"
)
NEW_CARD = "insert into cards values ($1, {card}, {turn}, 1, {kind}, '{{}}', now())"
NEW_EVENT = (
    "insert into outbox (project_id, kind, key, subject, agent_turn_id, body, created_at)"
    " values ($1, {kind}, {key}, '', 'turn_3', '{{}}', now())"
)
NEW_SIGNAL = "insert into signals (project_id, run_id, seq, name, payload, at, parent_id) values ($1, 'run_a', {seq}, 'x', '{{}}', now(), {parent})"
RUN = "update runs set {} where project_id = $1 and run_id = 'run_a'"
HEAD = "update agent_state_head set {} where project_id = $1 and agent_id = 'run_a/{}'"
TURN = "update agent_turns set {} where project_id = $1 and agent_turn_id = 'turn_{}'"

# constraint or unique index -> what it refuses
REFUSED = {
    "runs_pkey": "insert into runs select * from runs where project_id = $1 and run_id = 'run_a'",
    "runs_status_check": RUN.format("status = 'asleep'"),
    "runs_outcome_check": RUN.format("status = 'ended', outcome = 'fine', ended_at = now(), open_turns = 0"),
    "runs_check": RUN.format("status = 'ended', ended_at = now(), open_turns = 0"),
    "runs_check1": RUN.format("status = 'ended', outcome = 'success', open_turns = 0"),
    "runs_check2": RUN.format("owed = -1"),
    "runs_check3": RUN.format("status = 'ended', outcome = 'success', ended_at = now()"),
    "agent_state_head_pkey": "insert into agent_state_head select * from agent_state_head where project_id = $1",
    "agent_state_head_project_id_run_id_fkey": HEAD.format("run_id = 'run_x'", "critic"),
    "agent_state_head_status_check": HEAD.format("status = 'asleep', active_agent_turn_id = 'turn_3'", "critic"),
    "agent_state_head_phase_check": HEAD.format("phase = 'lunch'", "writer"),
    "agent_state_head_priority_check": HEAD.format("priority = 4", "critic"),
    "agent_state_head_check": HEAD.format("active_agent_turn_id = 'turn_3'", "critic"),
    "agent_state_head_check1": HEAD.format("lease_until = null", "writer"),
    "agent_state_head_check2": HEAD.format("owner = null", "writer"),
    "agent_turns_pkey": NEW_TURN.format(turn="'turn_3'", agent="'run_a/critic'", state="'queued'"),
    "agent_turns_project_id_agent_id_fkey": NEW_TURN.format(turn="'turn_9'", agent="'run_a/nobody'", state="'queued'"),
    "agent_turns_state_check": NEW_TURN.format(turn="'turn_9'", agent="'run_a/critic'", state="'asleep'"),
    "agent_turns_outcome_check": TURN.format("outcome = 'fine'", "a"),
    "agent_turns_max_attempts_check": TURN.format("max_attempts = 0", "3"),
    "agent_turns_check": TURN.format("outcome = null", "a"),
    "agent_turns_check1": TURN.format("deliverable_card_id = null", "a"),
    "agent_turns_check2": TURN.format("finished_at = null", "a"),
    "turn_one_active": TURN.format("state = 'active'", "4"),
    "agent_inbox_pkey": "insert into agent_inbox overriding system value select * from agent_inbox where project_id = $1",
    "agent_inbox_message_type_check": NEW_INBOX.format(kind="'gossip'", status="'queued'"),
    "agent_inbox_status_check": NEW_INBOX.format(kind="'turn'", status="'lost'"),
    "execution_edges_pkey": "insert into execution_edges overriding system value select * from execution_edges where project_id = $1",
    "execution_edges_primitive_check": NEW_EDGE.format(primitive="'hint'", phase="'request'"),
    "execution_edges_edge_phase_check": NEW_EDGE.format(primitive="'enqueue'", phase="'silence'"),
    "cards_pkey": NEW_CARD.format(card="'card_note_2'", turn="'turn_3'", kind="'note'"),
    "cards_project_id_agent_turn_id_fkey": NEW_CARD.format(card="'card_9'", turn="'turn_9'", kind="'note'"),
    "card_one_deliverable": NEW_CARD.format(card="'card_9'", turn="'turn_a'", kind="'task.deliverable'"),
    "box_cards_pkey": "insert into box_cards overriding system value select * from box_cards where project_id = $1",
    "box_cards_project_id_card_id_fkey": "insert into box_cards (project_id, box_id, card_id) values ($1, 'box_a', 'card_9')",
    "leases_pkey": "insert into leases select * from leases where project_id = $1",
    "outbox_pkey": "insert into outbox overriding system value select * from outbox where project_id = $1",
    "outbox_kind_check": NEW_EVENT.format(kind="'rumour'", key="'evt:turn_3'"),
    "outbox_project_id_key_key": NEW_EVENT.format(kind="'task_event'", key="'evt:turn_a'"),
    "signals_pkey": NEW_SIGNAL.format(seq=2, parent="'sig_run_a_1'"),
    "signals_check": NEW_SIGNAL.format(seq=99, parent="null"),
}


@pytest.mark.proves("K21", "L0-01", "L0-07", "G-60", "K6", "G-69")
async def test_each_constraint_refuses_what_it_is_there_for(kernel: Kernel) -> None:
    await fill(kernel)
    before = await kernel.everything()
    await kernel.connection.execute("set search_path to heliograph")
    for name, statement in REFUSED.items():
        with pytest.raises(asyncpg.IntegrityConstraintViolationError) as raised:
            await kernel.connection.execute(statement, kernel.project)
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
    assert {row[0] for row in rows} == set(REFUSED)


# status columns -> all that they take
STATUSES = {
    "agent_inbox_status_check": {"queued", "pending", "processing", "deferred", "consumed", "duplicate", "dead", "canceled"},
    "agent_turns_outcome_check": {"success", "failed", "canceled", "timeout", "partial"},
    "agent_state_head_status_check": {"idle", "dispatched", "running", "suspended"},
    "agent_state_head_phase_check": {"init", "plan", "act", "reflect", "terminate"},
}  # fmt: skip


@pytest.mark.proves("G-64", "G-69")
async def test_the_statuses_are_those_of_the_specification_and_no_others(kernel: Kernel) -> None:
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
        ("agent_inbox", "correlation_id"), ("agent_inbox", "next_retry_at"), ("cards", "content"), ("cards", "turn_epoch"),
        ("outbox", "key"), ("leases", "owner"), ("signals", "name"), ("runs", "request_hash"),
    ],
)  # fmt: skip
async def test_what_recovery_needs_cannot_be_missing(kernel: Kernel, table: str, column: str) -> None:
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
    generated = {"inbox_id", "edge_id", "outbox_id"}  # given by the database, never by a caller
    assert [
        tuple(row) for row in rows if row["columns"][0] != "project_id" and row["columns"][0] not in generated
    ] == []
    foreign = await kernel.connection.fetch(
        "select pg_get_constraintdef(oid) from pg_constraint where connamespace = 'heliograph'::regnamespace and contype = 'f'"
    )
    assert len(foreign) == 4
    assert all(row[0].startswith("FOREIGN KEY (project_id, ") for row in foreign)
