"""The doctor finds each kind of harm: every check is triggered by hand, in a transaction that is rolled back."""

from __future__ import annotations

import pytest

from tests.kernel.kit import Kernel, fill

RUN = "update runs set {} where project_id = $1 and run_id = 'run_a'"
TURN = "update agent_turns set {} where project_id = $1 and agent_turn_id = 'turn_{}'"
CARD = "insert into cards values ($1, 'card_9', 'turn_{}', {}, '{}', '{{}}', '2030-01-01')"
BOXED = "insert into box_cards (project_id, box_id, card_id) values ($1, 'box_a', 'card_9')"
EVENT = (
    "insert into outbox (project_id, kind, key, subject, agent_turn_id, body, created_at)"
    " values ($1, 'task_event', 'evt:again', '', 'turn_{}', '{{}}', now())"
)
SIGNAL = "update signals set {} where project_id = $1 and run_id = 'run_a' and seq = 3"

# what was done, the statements that do it, what the doctor then says
HARM = [
    ("two active turns", ["drop index turn_one_active", TURN.format("state = 'active'", 4)], {"I1", "I2"}),
    ("a head at a finished turn",
     ["update agent_state_head set active_agent_turn_id = 'turn_a' where project_id = $1 and agent_id = 'run_a/writer'"], {"I2"}),
    ("a deliverable lost",
     ["delete from box_cards where project_id = $1 and card_id = 'card_turn_a_2'",
      "delete from cards where project_id = $1 and card_id = 'card_turn_a_2'"], {"I3", "I4"}),
    ("a second deliverable", ["drop index card_one_deliverable", CARD.format("a", 2, "task.deliverable")], {"I3"}),
    ("a pointer to another card", [TURN.format("deliverable_card_id = 'card_note_0'", "a")], {"I4"}),
    ("a deliverable outside its box", ["delete from box_cards where project_id = $1 and card_id = 'card_turn_a_2'"], {"I4"}),
    ("a deliverable of a running turn", [CARD.format(3, 1, "task.deliverable")], {"I5"}),
    ("an event lost", ["delete from outbox where project_id = $1 and agent_turn_id = 'turn_a'"], {"I6"}),
    ("an event twice", [EVENT.format("a")], {"I6"}),
    ("an event of a running turn", [EVENT.format(3)], {"I7"}),
    ("an inbox row lost",
     ["delete from agent_inbox where project_id = $1 and agent_turn_id = 'turn_3'"], {"I10"}),
    ("an inbox row left open",
     ["update agent_inbox set status = 'pending' where project_id = $1 and agent_turn_id = 'turn_a'"], {"I11"}),
    ("a card after the end", [CARD.format("a", 2, "note"), BOXED], {"I12"}),
    ("a card of a newer epoch than the end",
     ["update cards set turn_epoch = 5 where project_id = $1 and card_id = 'card_note_0'"], {"I12", "I16"}),
    ("turns out of order", [TURN.format("finished_at = '2031-01-01'", "a")], {"I13"}),
    ("an edge lost", ["delete from execution_edges where project_id = $1 and agent_turn_id = 'turn_3'"], {"I14"}),
    ("an edge twice",
     ["insert into execution_edges (project_id, primitive, edge_phase, run_id, agent_id, agent_turn_id, cause_id, created_at)"
      " select project_id, primitive, edge_phase, run_id, agent_id, agent_turn_id, cause_id, created_at from execution_edges"
      " where project_id = $1 and agent_turn_id = 'turn_3'"], {"I14"}),
    ("too many attempts", [TURN.format("attempts = max_attempts", 3)], {"I15"}),
    ("a card after its writer's lease",
     ["update cards set created_at = '2031-01-01' where project_id = $1 and card_id = 'card_note_0'"], {"I16"}),
    ("a card before its writer's lease",
     ["update cards set created_at = '2029-01-01' where project_id = $1 and card_id = 'card_note_2'"], {"I16"}),
    ("a card under an epoch that nobody had",
     ["update cards set turn_epoch = 1 where project_id = $1 and card_id = 'card_note_0'"], {"I16"}),
    ("a lease that nobody closed",
     ["update leases set ended_at = null where project_id = $1 and agent_turn_id = 'turn_a'"], {"I17"}),
    ("leases that overlap",
     ["update leases set ended_at = '2031-01-01' where project_id = $1 and agent_turn_id = 'turn_2'"], {"I17"}),
    ("a deliverable by an earlier owner",
     ["update cards set turn_epoch = 1 where project_id = $1 and kind = 'task.deliverable' and agent_turn_id = 'turn_2'"],
     {"I12", "I18"}),
    ("a turn miscounted", [RUN.format("open_turns = open_turns + 1")], {"R1"}),
    ("a reaction miscounted", [RUN.format("owed = 1")], {"R2"}),
    ("a debt forgotten", [SIGNAL.format("owed = true")], {"R2"}),
    ("a position ahead of the log", [RUN.format("signal_seq = signal_seq + 1")], {"R3"}),
    ("a hole in the log", ["delete from signals where project_id = $1 and run_id = 'run_a' and seq = 3"], {"R3", "R5"}),
    ("an end in a run that goes on", [SIGNAL.format("name = 'workflow:end'")], {"R4"}),
    ("an ended run without an end",
     ["update signals set name = 'x' where project_id = $1 and run_id = 'run_b' and name = 'workflow:end'"], {"R4"}),
    ("a signal that is its own parent", [SIGNAL.format("parent_id = 'sig_run_a_3'")], {"R5"}),
    ("a parent that comes later", [SIGNAL.format("parent_id = 'sig_run_a_5'")], {"R5"}),
    ("a parent that never came", [SIGNAL.format("parent_id = 'sig_run_a_99999999999999999999999'")], {"R5"}),
    ("a run that nobody will move", [RUN.format("open_turns = 0")], {"R1", "R6"}),
]  # fmt: skip


@pytest.mark.proves("K21", "L0-03", "L0-07", "L0-82", "G-60")
async def test_each_harm_is_found_and_nothing_else(kernel: Kernel) -> None:
    await fill(kernel)
    assert await kernel.checks() == []
    said = {}
    for what, statements, _ in HARM:
        harm = kernel.connection.transaction()
        await harm.start()
        await kernel.connection.execute(
            "set local search_path to heliograph; set local session_replication_role = replica"
        )
        for statement in statements:
            await kernel.connection.execute(statement, *[kernel.project] * ("$1" in statement))
        said[what] = set(await kernel.checks())
        await harm.rollback()
    assert said == {what: found for what, _, found in HARM}
    assert await kernel.checks() == []


async def test_no_check_is_without_a_test(kernel: Kernel) -> None:
    body = await kernel.connection.fetchval("select prosrc from pg_proc where oid = 'heliograph.doctor'::regproc")
    written = {line.split("'")[1].split()[0] for line in body.splitlines() if line.strip().startswith("select '")}
    quiescent = {"I8", "I9", "R7"}
    assert written == set().union(*(found for _, _, found in HARM)) | quiescent


async def test_what_is_under_way_is_harm_only_once_all_should_be_done(kernel: Kernel) -> None:
    await fill(kernel)
    assert await kernel.checks() == []
    assert sorted(await kernel.checks(quiescent=True)) == ["I8"] * 3 + ["I9"] * 3 + ["R7"]


async def test_a_project_that_is_done_and_published_is_well(kernel: Kernel) -> None:
    await kernel.finish(await kernel.running(), ends="success")
    await kernel.call("mark_published", [event["outbox_id"] for event in await kernel.call("read_outbox", 10)])
    assert await kernel.checks(quiescent=True) == []


@pytest.mark.parametrize(
    "parent", ["sig_run_b_77", "sig_a_x_9", "sig_a_b_99", "sig_other_99999999999999999999999", "anything"]
)
async def test_a_parent_in_another_run_is_no_harm(kernel: Kernel, parent: str) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1", cause=parent)
    assert await kernel.checks() == []
