"""The doctor finds each kind of violation: the tests trigger every check, and roll back."""

from __future__ import annotations

import pytest

from heliograph.testing.kernel.row_guard import ROWS
from tests.kernel.filled import fill
from tests.kernel.kit import Kernel
from tests.kernel.test_schema_rejects import REJECTED

RUN = "update runs set {} where project_id = $1 and run_id = 'run_a'"
HEAD = "update agent_state_head set {} where project_id = $1 and agent_id = '{}'"
TURN = "update agent_turns set {} where project_id = $1 and agent_turn_id = 'turn_{}'"
WAIT = "update turn_waiting_tools set {} where project_id = $1 and tool_call_id = '{}'"
LEASE = "update leases set {} where project_id = $1 and agent_turn_id = 'turn_{}'"
SET_CARD = "update cards set {} where project_id = $1 and card_id = '{}'"
CARD = (
    "insert into cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)"
    " values ($1, '{}', 'box_turn_{}', 'turn_{}', {}, '{}', '{{}}', '2030-01-01')"
)
EVENT = (
    "insert into outbox (project_id, kind, key, agent_turn_id, created_at, due_at)"
    " values ($1, 'task_event', 'evt:again', 'turn_{}', now(), now())"
)
MESSAGE = (
    "insert into agent_inbox (project_id, agent_turn_id, message_type, status, correlation_id, next_retry_at, created_at)"
    " select project_id, agent_turn_id, message_type, status, correlation_id, next_retry_at, created_at from agent_inbox"
    " where project_id = $1 and {}"
)
LOG = "update signals set {} where project_id = $1 and run_id = '{}' and seq = {}"
PARENT = LOG.format("entries = jsonb_set(entries, '{{1,parent}}', '{}')", "run_a", 3)
BOX = "update boxes set {} where project_id = $1 and box_id = '{}'"
LOST = "delete from {} where project_id = $1 and {}"

# the damage, the statements that cause it, the checks that the doctor then reports
HARM = [
    ("two active turns", ["drop index turn_one_active", TURN.format("state = 'active'", 4)], {"I1", "I2"}),
    ("a head at a finished turn", [HEAD.format("active_agent_turn_id = 'turn_a'", "run_a/writer")], {"I2", "H1"}),
    ("a deliverable lost", [LOST.format("cards", "card_id = 'card:turn_a:end'")], {"I3", "I4"}),
    ("a second deliverable",
     ["alter table cards drop constraint cards_check", CARD.format("card_9", "a", "a", 2, "task.deliverable")], {"I3"}),
    ("a deliverable in another box", [SET_CARD.format("box_id = 'box_turn_x'", "card:turn_a:end")], {"I4"}),
    ("a deliverable of a running turn", [CARD.format("card:turn_3:end", 3, 3, 1, "task.deliverable")], {"I5", "I12"}),
    ("an event lost", [LOST.format("outbox", "key = 'evt:turn_a'")], {"I6"}),
    ("an event twice", [EVENT.format("a")], {"I6"}),
    ("an event of a turn that is marked as lacking one", [TURN.format("lacks_event = true", "a")], {"I6"}),
    ("an event of a running turn", [EVENT.format(3)], {"I7"}),
    ("an inbox row lost", [LOST.format("agent_inbox", "agent_turn_id = 'turn_3'")], {"I10", "I14"}),
    ("an inbox row left open",
     ["update agent_inbox set status = 'pending' where project_id = $1 and agent_turn_id = 'turn_a'"], {"I11"}),
    ("a card after the end",
     [CARD.format("card_9", "a", "a", 2, "note"), TURN.format("card_count = card_count + 1", "a")], {"I12", "I16"}),
    ("a card of a newer epoch than the end", [SET_CARD.format("turn_epoch = 5", "card_note_0")], {"I12", "I16"}),
    ("turns out of order", [TURN.format("finished_at = '2031-01-01'", "a")], {"I13"}),
    ("a message twice", [MESSAGE.format("agent_turn_id = 'turn_3'")], {"I14"}),
    ("too many attempts", [TURN.format("attempts = max_attempts", 3)], {"I15"}),
    ("a card after its writer's lease", [SET_CARD.format("created_at = '2031-01-01'", "card_note_0")], {"I16"}),
    ("a card before its writer's lease", [SET_CARD.format("created_at = '2029-01-01'", "card_note_2")], {"I16"}),
    ("a card under an epoch that nobody had", [SET_CARD.format("turn_epoch = 1", "card_note_0")], {"I16"}),
    ("a lease that nobody closed", [LEASE.format("ended_at = null", "a")], {"I17", "H2"}),
    ("leases that overlap", [LEASE.format("ended_at = '2031-01-01'", "2")], {"I17"}),
    ("a deliverable by an earlier owner", [SET_CARD.format("turn_epoch = 1", "card:turn_2:end")], {"I12", "I18"}),
    ("a running head without a lease", [LEASE.format("ended_at = '2030-01-01 00:00:09'", "3")], {"H1"}),
    ("a lease of nobody", [LEASE.format("ended_at = null", "c")], {"H2"}),
    ("an idle head under an owner's epoch", [HEAD.format("turn_epoch = 2", "run_b/writer")], {"H3"}),
    ("a suspended head under an epoch that nobody had", [HEAD.format("turn_epoch = 3", "run_c/writer")], {"H3"}),
    ("a head behind its owner", [HEAD.format("turn_epoch = 1", "run_c/writer")], {"H3"}),
    ("a wait that is not counted", [HEAD.format("waiting_tool_count = 2", "run_c/writer")], {"W1"}),
    ("a wait left open",
     ["update turn_waiting_tools set agent_turn_id = 'turn_a' where project_id = $1 and tool_call_id = 'c2'"],
     {"W1", "W2", "W3", "W9"}),
    ("a command lost on its way", ["update outbox set published_at = now() where project_id = $1 and call_id = 'c2'"], {"W3"}),
    ("a command that nobody stops",
     ["insert into outbox (project_id, kind, key, agent_turn_id, call_id, created_at, due_at)"
      " values ($1, 'cmd', 'cmd:turn_c:c1', 'turn_c', 'c1', now(), now())"], {"W3"}),
    ("a result lost", [LOST.format("cards", "card_id = 'card:turn_c:call:c1'")], {"W4"}),
    ("a result twice in the order", [WAIT.format("resolved_position = 2", "c1")], {"W5"}),
    ("a child that is not there",
     [WAIT.format("kind = 'child', child_turn_id = 'turn_a'", "c2")], {"W6"}),
    ("a report lost", [LOST.format("agent_inbox", "correlation_id = 'c1'")], {"W8"}),
    ("a deadline that is not shown", [HEAD.format("resume_deadline = null", "run_c/writer")], {"W9"}),
    ("cards miscounted", [TURN.format("card_count = card_count + 1", "a")], {"W10"}),
    ("a running turn that waits for people", [TURN.format("human_wait_since = now()", 3)], {"W11"}),
    ("a turn miscounted", [RUN.format("open_turns = open_turns + 1")], {"R1"}),
    ("a reaction miscounted", [RUN.format("pending_reactions = 1")], {"R2"}),
    ("a debt forgotten",
     [LOG.format("is_pending = true, entries = jsonb_set(entries, '{0,is_pending}', 'true')", "run_a", 3)], {"R2"}),
    ("a position ahead of the log", [RUN.format("signal_seq = signal_seq + 1")], {"R3"}),
    ("a hole in the log", [LOST.format("signals", "run_id = 'run_a' and seq = 3")], {"R3", "R5"}),
    ("a log that begins too late", [RUN.format("pruned_seq = 1")], {"R3"}),
    ("an end in a run that goes on", [LOG.format("entries = jsonb_set(entries, '{0,name}', '\"workflow:end\"')", "run_a", 3)], {"R4"}),
    ("an ended run without an end",
     [LOG.format("entries = replace(entries::text, 'workflow:end', 'x')::jsonb", "run_b", 259)], {"R4"}),
    ("a signal that is its own parent", [PARENT.format('"sig_run_a_4"')], {"R5"}),
    ("a parent that comes later", [PARENT.format('"sig_run_a_5"')], {"R5"}),
    ("a parent that never came", [PARENT.format('"sig_run_a_99999999999999999999999"')], {"R5"}),
    ("a signal without a parent", [PARENT.format("null")], {"R5"}),
    ("a fork whose run is gone", [RUN.format("forked_from = 'run_none', forked_seq = 1")], {"R3", "R8"}),
    ("a run that nobody will move", [RUN.format("open_turns = 0")], {"R1", "R6"}),
    ("a box with two writers", [SET_CARD.format("box_id = 'box_turn_a'", "card_note_1")], {"B1"}),
    ("a card in a context box", [SET_CARD.format("box_id = 'fork_1'", "card_note_1")], {"B2"}),
    ("a box for two turns", [TURN.format("output_box_id = 'box_turn_3'", 4)], {"B3", "B4"}),
    ("an output box of another turn", [TURN.format("output_box_id = 'fork_1'", 4)], {"B4"}),
    ("a context that never was", [TURN.format("context_box_id = 'nowhere'", 4)], {"B5"}),
    ("a context of a turn that never was", [TURN.format("context_box_id = 'box_turn_x'", 4)], {"B5"}),
    ("a context that is still being written", [TURN.format("context_box_id = 'box_turn_3'", 4)], {"B6"}),
    ("a context that another may write to", [BOX.format("kind = 'output', writer_turn_id = 'turn_3'", "fork_1"),
     TURN.format("context_box_id = 'fork_1'", 4)], {"B6"}),
    ("an agent without its run", [HEAD.format("run_id = 'run_x'", "run_a/critic")], {"O1"}),
    ("a run lost", [LOST.format("runs", "run_id = 'run_b'")], {"O1", "O2", "O3", "O14"}),
    ("an agent lost", [LOST.format("agent_state_head", "agent_id = 'run_b/writer'")], {"O2"}),
    ("a turn lost", [LOST.format("agent_turns", "agent_turn_id = 'turn_a'")], {"O4", "O7", "O8", "O9"}),
    ("calls without a turn", ["update turn_waiting_tools set agent_turn_id = 'turn_x' where project_id = $1"],
     {"W1", "W3", "W4", "W5", "W8", "W9", "W10", "O6"}),
    ("a context box lost", [LOST.format("boxes", "box_id = 'context_1'")], {"O9", "O10"}),
    ("a box of a turn that never was", [BOX.format("kind = 'output', writer_turn_id = 'turn_x'", "fork_1")], {"O11"}),
    ("a blob lost", ["delete from blobs where project_id = $1"], {"O12"}),
    ("a reservation that nobody holds", ["update budgets set reserved = 5 where project_id = $1"], {"U1"}),
    ("a reservation of a call that is over",
     ["""update turn_waiting_tools set reserved = '{"tokens": 0}' where project_id = $1 and tool_call_id = 'c1'"""], {"U2"}),
    ("a budget above its limit",
     ["alter table budgets drop constraint budgets_check", "update budgets set used = 101 where project_id = $1"], {"U3"}),
    ("a failure under a state that never was", ["update circuit_calls set generation = 7 where project_id = $1"], {"C1"}),
    ("a success of a closed breaker", ["update circuit_calls set status = 'success' where project_id = $1"], {"C2"}),
    ("a trial of a call that no breaker admitted",
     ["insert into circuit_breakers (project_id, type, target, state, generation, changed_at)"
      " select project_id, type, target, 'half_open', generation, now() from circuit_calls where project_id = $1",
      "update circuit_calls set agent_turn_id = 'turn_c', call_id = 'c1', status = 'trial', ended_at = null, expires_at = now() where project_id = $1"],
     {"C3"}),
    ("a budget of a turn that never was", ["update budgets set turn_id = 'turn_x' where project_id = $1"], {"O13"}),
]  # fmt: skip

# constraint that only test databases have -> the check that finds such a row elsewhere
ROW_CHECKS = {
    "agent_state_head_check": "H4", "agent_state_head_check1": "H5", "agent_state_head_check2": "H5", "agent_state_head_check3": "H6",
    "agent_state_head_check4": "H6", "agent_state_head_check5": "H7", "agent_state_head_check6": "H7", "agent_state_head_stop": "H7",
    "agent_turns_check": "I19", "agent_turns_check2": "I19", "agent_turns_check3": "I20",
    "runs_check": "R9", "runs_check1": "R9", "runs_forked_check": "R10", "signals_check": "R11", "cards_check1": "B7",
    "turn_waiting_tools_check": "W12", "turn_waiting_tools_check1": "W12", "turn_waiting_tools_check2": "W12",
    "turn_waiting_tools_check3": "W13", "agent_inbox_check": "I21",
}  # fmt: skip


@pytest.mark.proves("K21")
async def test_each_row_that_only_test_databases_reject_is_found(kernel: Kernel) -> None:
    await fill(kernel)
    found = {}
    for table, constraints in ROWS.items():
        for name in constraints:
            harm = kernel.connection.transaction()
            await harm.start()
            await kernel.harm(f"alter table {table} drop constraint {name}", REJECTED[name])
            checks = await kernel.checks()
            found[name] = ROW_CHECKS[name] if ROW_CHECKS[name] in checks else checks
            await harm.rollback()
    assert found == ROW_CHECKS


async def test_stop_without_a_signal_is_found_by_a_check_that_names_stops(kernel: Kernel) -> None:
    await kernel.running("run_a", "turn_a")
    await kernel.stop("turn_a", "graceful")
    harm = kernel.connection.transaction()
    await harm.start()
    await kernel.harm(
        "alter table agent_inbox drop constraint agent_inbox_check",
        "update agent_inbox set correlation_id = null where project_id = $1 and message_type = 'stop'",
    )
    [found] = [row["check"] for row in await kernel.call("doctor", False)]
    await harm.rollback()
    assert found == "I21 a message about a call names the call, and one about a stop its signal"


@pytest.mark.proves("K21", "L0-03", "L0-07", "L0-82", "G-60")
async def test_each_violation_is_found_and_nothing_else(kernel: Kernel) -> None:
    await fill(kernel)
    assert await kernel.checks() == []
    violations = {}
    for what, statements, _ in HARM:
        harm = kernel.connection.transaction()
        await harm.start()
        await kernel.harm(*statements)
        violations[what] = set(await kernel.checks())
        await harm.rollback()
    assert violations == {what: found for what, _, found in HARM}
    assert await kernel.checks() == []


async def test_no_check_is_without_a_test(kernel: Kernel) -> None:
    bodies = await kernel.connection.fetch(
        "select prosrc from pg_proc where pronamespace = 'heliograph'::regnamespace and proname ~ '^_doctor_'"
    )
    lines = [line.strip() for (body,) in bodies for line in body.splitlines()]
    written = {line.split("'")[1].split()[0] for line in lines if line.startswith("select '")}
    quiescent = {"I8", "I9", "R7"}
    assert written == set().union(*(found for _, _, found in HARM), ROW_CHECKS.values()) | quiescent


async def test_open_work_is_a_violation_only_in_a_quiescent_project(kernel: Kernel) -> None:
    await fill(kernel)
    assert await kernel.checks() == []
    assert sorted(await kernel.checks(quiescent=True)) == ["I8"] * 6 + ["I9"] * 5 + ["R7"] * 2


async def test_finished_and_published_project_has_no_violation(kernel: Kernel) -> None:
    await kernel.finish(await kernel.running(), ends="success")
    assert await kernel.publish() == 1
    assert await kernel.checks(quiescent=True) == []


@pytest.mark.parametrize(
    "parent", ["sig_run_b_77", "sig_a_x_9", "sig_a_b_99", "sig_other_99999999999999999999999", "anything"]
)
async def test_parent_in_another_run_is_no_violation(kernel: Kernel, parent: str) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1", cause=parent)
    assert await kernel.checks() == []
