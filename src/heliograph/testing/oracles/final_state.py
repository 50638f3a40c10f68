"""Check the end of a simulation: the logs, the state, the wire and the ledger agree, and the doctor finds nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from heliograph.reactive.run_memory import SESSION
from heliograph.reactive.state_taint import untrusted_keys
from heliograph.reactive.workflow import Workflow
from heliograph.signals.state_change import changed_value
from heliograph.testing.kernel.tables import Row
from heliograph.testing.oracles.kernel_calls import Oracles
from heliograph.testing.oracles.log import RunLog, logs_of, signals_of, without_repeated, without_times
from heliograph.testing.oracles.phases import check_phases
from heliograph.testing.oracles.reservations import check_reservations
from heliograph.testing.oracles.standard_payloads import check_standard
from heliograph.testing.oracles.taint import check_state_taint, check_turn_taint
from heliograph.testing.oracles.trace import FORK_NAME, check_trace
from heliograph.turn.phase_records import PHASE_END

# Sent ahead in batches: a batch that is logged twice shows as equal signals at the same time.
_REACTIONS = ("agent:activated", "agent:skipped")
_SENT_AHEAD = ("harness:start", "text:delta", "thinking:delta", "agent:progress")


def check_end(oracles: Oracles, workflows: Mapping[str, Workflow], *, is_quiet: bool) -> None:
    """Record every violation. With `is_quiet` all work is done; without it, check only the rules that hold at every moment.

    The doctor comes last: the first violation names the failure, and only PostgreSQL has a doctor.
    """
    backend, project = oracles.backend, oracles.project
    tables = backend.dump(project)
    for log in logs_of(tables):
        oracles.count(f"run {log.run['outcome']}")
        if not log.run["pruned_seq"]:
            _check_log(oracles, log, workflows[log.run["target"]], tables["agent_turns"], is_quiet=is_quiet)
    check_reservations(oracles.blame, tables)
    if is_quiet:
        _check_outside(oracles, tables)
    for row in backend.doctor(project, is_quiet):
        oracles.blame(row["check"].partition(" ")[0], f"{row['check']}: {row['subject']}")


def check_logs(oracles: Oracles, workflows: Mapping[str, Workflow], *, is_quiet: bool) -> None:
    """Record the violations of the rules that hold for the logs of all applications, whatever their agents do."""
    tables = oracles.backend.dump(oracles.project)
    for log in logs_of(tables):
        workflow = workflows[log.run["target"]]
        check_state_taint(oracles.blame, log.run, log.whole, workflow)
        _check_emitted(oracles, log.own)
        _check_shape(oracles, log.whole)
        _check_phases(oracles, log.own)
        if is_quiet:
            check_turn_taint(oracles.blame, oracles.books, log.whole)
            _check_woken(oracles, log.run, without_repeated(log.whole, tables["agent_turns"]), workflow)
    check_reservations(oracles.blame, tables)
    if is_quiet:
        _check_outside(oracles, tables)


def _check_log(oracles: Oracles, log: RunLog, workflow: Workflow, turns: list[Row], *, is_quiet: bool) -> None:
    """Check a log that is complete."""
    run = log.run
    _check_session(oracles, run)
    _check_state(oracles, run, log.whole, workflow)
    check_state_taint(oracles.blame, run, log.whole, workflow)
    oracles.count("run with untrusted state" if untrusted_keys(run["memory"]) else "run with trusted state")
    _check_emitted(oracles, log.own)
    _check_shape(oracles, log.whole)
    _check_phases(oracles, log.own)
    if is_quiet:
        _check_turns(oracles, run["run_id"], log.own, workflow)
        check_turn_taint(oracles.blame, oracles.books, log.whole)
        _check_results(oracles, run["run_id"], log.own)
        _check_woken(oracles, run, without_repeated(log.whole, turns), workflow)


def _check_session(oracles: Oracles, run: Row) -> None:
    """Check that a session ends only once it is closed, stopped, or at a limit."""
    session, is_over = run["memory"].get("session"), run["status"] == "ended"
    if (
        is_over
        and "stopped_by" not in run["memory"]
        and session is not None
        and (session, run["outcome"]) != ("closed", "success")
    ):
        oracles.blame("session_ended", f"{run['run_id']} is {session} and ended as {run['outcome']}")


def _check_state(oracles: Oracles, run: Row, log: list[Row], workflow: Workflow) -> None:
    """Check that the state follows from the log, and that no update is lost: sums agree with the outputs of the agents."""
    state = dict(log[0]["payload"]["state"]) if log else {}
    sums: Counter[str] = Counter()
    for signal in log:
        first, _, rest = signal["name"].partition(":")
        if signal["name"] == FORK_NAME and "state" in signal["payload"]:
            state = dict(signal["payload"]["state"])
            sums = Counter({"total": state["total"]})
        elif first == "state":
            key = rest.removesuffix(":changed")
            state[key] = changed_value(state.get(key), signal["payload"])
        elif signal["name"] == "agent:completed":
            agent = workflow.agents[signal["agent"]]
            for key in agent.updates if "total" in agent.updates else ():
                output = signal["payload"]["output"]
                sums[key] += output if agent.updates_one else output[key]
    if state != run["state"]:
        oracles.blame("state_is_not_its_log", f"{run['run_id']}: {run['state']}, and its log says {state}")
    if "total" in state and state["total"] != sums["total"]:
        oracles.blame(
            "lost_update", f"{run['run_id']}: the agents returned {sums['total']}, the state has {state['total']}"
        )


def _check_emitted(oracles: Oracles, log: list[Row]) -> None:
    """Check that no signal sent before its commit is logged twice, and that joined deltas equal the complete text."""
    ahead = [s for s in log if s["name"] in _SENT_AHEAD]
    for logged, count in Counter(
        (s["name"], repr(s["payload"]), s["agent"], s["at"], s["agent_turn_id"]) for s in ahead
    ).items():
        if count > 1:
            oracles.blame("logged_twice", f"{logged[0]} {logged[1]} of {logged[4]}")
    texts: dict[str | None, str] = {}
    for signal in log:
        if signal["name"] == "text:delta":
            text, delta = texts.get(signal["parent_id"], ""), signal["payload"]
            if delta["offset"] != len(text):
                oracles.blame("delta_offset", f"{delta} after {text!r} in {signal['agent_turn_id']}")
            texts[signal["parent_id"]] = text + delta["content"]
        elif signal["name"] == "text:complete" and texts.get(signal["parent_id"], "") != signal["payload"]["content"]:
            oracles.blame("delta_lost", f"{texts.get(signal['parent_id'])!r} of {signal['payload']['content']!r}")


def _check_phases(oracles: Oracles, log: list[Row]) -> None:
    """Check the signals of phases, except in turns that forks started again, and in those into which a scenario wrote calls."""
    foreign = oracles.books.origins.keys() | {turn.turn_id for turn in oracles.books.turns.values()
               if any(wait.call_id.startswith("guarded-") for wait in turn.waits.values())}  # fmt: skip
    check_phases(oracles.blame, [signal for signal in log if signal["agent_turn_id"] not in foreign])


def _check_shape(oracles: Oracles, log: list[Row]) -> None:
    """Check that the log is a tree of causes with one root, and that standard signals have the payloads of the catalog."""
    for problem in check_trace(without_times(log)):
        oracles.blame("trace", problem)
    for signal in log:
        for problem in check_standard(signal["name"], signal["payload"]):
            oracles.blame("standard_payload", f"{problem}, in {signal['run_id']} at {signal['seq']}")


def _check_turns(oracles: Oracles, run_id: str, log: list[Row], workflow: Workflow) -> None:
    """Check that every turn ends once, in the log as well, and that a successful turn had its effect."""
    for signal in log:
        is_once = signal["name"] == "agent:completed" and workflow.agents[signal["agent"]].effect == "once"
        if is_once and oracles.books.effects[signal["agent_turn_id"]] != 1:
            oracles.blame("effect_missing", f"{signal['agent_turn_id']} succeeded without its effect")
    ends = Counter(s["agent_turn_id"] for s in log if s["name"] in ("agent:completed", "agent:failed"))
    for turn in oracles.books.turns.values():
        if turn.run_id == run_id and ends[turn.turn_id] != 1:
            oracles.blame("turn_end_in_log", f"{turn.turn_id} ends {ends[turn.turn_id]} times in the log")


def _check_results(oracles: Oracles, run_id: str, log: list[Row]) -> None:
    """Check that the log contains the result of each resolved call once, and of no other call. Phases have signals of their own."""
    logged = Counter((s["agent_turn_id"], s["payload"]["id"]) for s in log if _is_result(s))
    resolved = Counter(
        (turn.turn_id, wait.call_id) for turn in oracles.books.turns.values() if turn.run_id == run_id
        for wait in turn.waits.values()
        if wait.state == "resolved" and not PHASE_END.fullmatch(wait.call_id) and (turn.turn_id, wait.call_id) not in oracles.books.unlogged
    )  # fmt: skip
    for call in sorted((logged - resolved) + (resolved - logged)):
        oracles.blame(
            "result_in_log", f"{call} was resolved {resolved[call]} times and is {logged[call]} times in the log"
        )


def _is_result(signal: Row) -> bool:
    is_told = signal["name"] == "delegation_response" and signal["payload"]["status"] != "in_progress"
    return bool(is_told or signal["name"] == "tool:result")


def _check_woken(oracles: Oracles, run: Row, log: list[Row], workflow: Workflow) -> None:
    """Check that each signal woke or skipped each subscribed agent once. A stopped run may lack some.

    An agent's own activations and skips cause nothing, and a skip causes no skip (`ReactionBuilder._match`).
    """
    if "stopped_by" in run["memory"]:
        return
    answers = Counter((s["parent_id"], s["agent"]) for s in log if s["name"] in _REACTIONS)
    met: dict[str, Counter[int]] = {name: Counter() for name in workflow.agents}
    for signal in log:
        if signal["name"] == "workflow:end":
            break
        if signal["name"] == "workflow:start" and signal["payload"].get(SESSION) is True:
            continue  # the start of a session wakes no agent
        signal_id = f"sig_{signal['run_id']}_{signal['seq']}"
        for woken, n in set(workflow.wakes.match(signal["name"])):
            if signal["name"] in _REACTIONS and signal["agent"] == woken:
                continue
            count = answers[signal_id, woken]
            if n >= 0:
                met[woken][n] += 1
            elif count != 1 and (count or signal["name"] != "agent:skipped"):
                oracles.blame("not_woken", f"{woken} by {signal['name']} {signal_id}: {count} times")
    for name, agent in workflow.agents.items():
        if agent.activate_when_all:
            due = min(met[name][n] for n in range(len(agent.activate_when_all)))
            got = sum(s["name"] in _REACTIONS and s["agent"] == name for s in log)
            if got > due or (due and not got):
                oracles.blame("join", f"{name} of {run['run_id']}: {got} times, and its signals met {due} times")


def _check_outside(oracles: Oracles, tables: Mapping[str, list[Row]]) -> None:
    """Compare the ledger with the outside: events on the wire, acknowledged messages, effects."""
    books = oracles.books
    gone = {row["id"] for row in tables.get("pruned", ())}
    turns = {t["agent_turn_id"] for t in tables["agent_turns"]} | {i[5:] for i in gone if i.startswith("turn:")}
    runs = {r["run_id"] for r in tables["runs"]} | {i[4:] for i in gone if i.startswith("run:")}
    expected = {f"evt:{turn_id}" for turn_id in turns} if tables["project_wires"] else set[str]()
    if set(books.published) != expected:
        oracles.blame(
            "events", f"{sorted(expected ^ set(books.published))} are on the wire or in the ledger, not in both"
        )
    if turns != set(books.turns):
        oracles.blame("turns", f"{sorted(turns ^ set(books.turns))} are in the ledger or were acknowledged, not both")
    if runs != set(books.runs):
        oracles.blame("runs", f"{sorted(runs ^ set(books.runs))} are in the ledger or were acknowledged, not both")
    signals = {(s["run_id"], s["seq"]): s for row in tables["signals"] for s in signals_of(row)}
    for turn in tables["agent_turns"]:
        message = books.messages.get(turn["agent_turn_id"])
        cause = signals.get((turn["run_id"], turn["cause_seq"]))
        if message is not None and (
            cause is None or (cause["name"], cause["payload"]) != (message["name"], message["payload"])
        ):
            oracles.blame("message", f"{turn['agent_turn_id']} was sent as {message['name']} and is logged as {cause}")
