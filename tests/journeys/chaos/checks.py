"""The claims after chaos, checked against the database, the wires and the external effects.

E1 to E4 check from outside: the answers to clients, the events at listeners, and the effects in files. The others
query the database, by the product's doctor and by our own queries, so that one mistake cannot hide in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from heliograph.runtime import Runtime
from heliograph.testing.oracles.trace import check_trace
from heliograph.world.bell_tokens import Tokens
from tests.journeys.chaos.ageing import PROJECT
from tests.journeys.chaos.checks_trials import judge_trials, violations
from tests.journeys.chaos.marks import read_lines
from tests.journeys.chaos.trials import ORACLE
from tests.journeys.chaos.verdict import Verdict, capped, listed
from tests.journeys.chaos.waiting import COURIER
from tests.journeys.chaos.wire import Listener
from tests.journeys.chaos.workload import expected_state, number_of

# The allowed answers to a report. late: after the timeout; turn_done: after the turn has ended
_KNOWN = ("duplicate", "late", "turn_done")
ANSWERS = {"true": ("applied", *_KNOWN), "again": _KNOWN, "forged": ("bad_token", "bad_signature", *_KNOWN)}
# Violations at any time. Each query scans a table once, because no index serves these queries
TURN_CHECKS = {
    "a turn has no deliverable, or two": """
        select agent_turn_id from heliograph.agent_turns t left join (
          select agent_turn_id, count(*) as times from heliograph.cards where kind = 'task.deliverable' group by 1) c using (agent_turn_id)
         where t.state = 'done' and coalesce(c.times, 0) <> 1""",
    "a turn has no task event, or two": """
        select agent_turn_id from heliograph.agent_turns t left join (
          select agent_turn_id, count(*) as times from heliograph.outbox where kind = 'task_event' group by 1) o using (agent_turn_id)
         where t.state = 'done' and coalesce(o.times, 0) + t.lacks_event::integer <> 1""",
    "a turn ended twice in the log, or not at all": """
        select agent_turn_id from heliograph.agent_turns t left join (
          select turn_id as agent_turn_id, count(*) as ends from heliograph.signal_log
           where name in ('agent:completed', 'agent:failed') group by turn_id) s using (agent_turn_id)
         where t.state = 'done' and coalesce(s.ends, 0) <> 1""",
    "a deliverable was written by a former owner": """
        select agent_turn_id from heliograph.agent_turns t join heliograph.cards c using (agent_turn_id)
          join (select agent_turn_id, max(turn_epoch) as last from heliograph.leases group by 1) l using (agent_turn_id)
         where t.outcome = 'success' and c.kind = 'task.deliverable' and c.turn_epoch <> l.last""",
    "a signal woke an agent twice": """
        select min(agent_turn_id) from heliograph.agent_turns group by agent_id, cause_seq having count(*) > 1""",
}
NOT_DONE = "select agent_turn_id from heliograph.agent_turns where state <> 'done'"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence outside the database. Four files have a line per acknowledged start, acknowledged message, effect and
    answered report."""

    acknowledged: Path
    greeted: Path
    effects: Path
    reported: Path
    listeners: Sequence[Listener]


async def judge(runtime: Runtime, evidence: Evidence) -> list[Verdict]:
    """Check every claim about the data."""
    turns = await runtime.database.fetch(
        "select t.*, h.agent_name, extract(epoch from t.finished_at)::float8 as ended, "
        "extract(epoch from o.published_at)::float8 as published from heliograph.agent_turns t "
        "join heliograph.agent_state_head h using (project_id, agent_id) "
        "left join heliograph.outbox o on o.agent_turn_id = t.agent_turn_id and o.kind = 'task_event'"
    )
    waits = await runtime.database.fetch(
        "select w.*, t.run_id from heliograph.turn_waiting_tools w join heliograph.agent_turns t using (project_id, agent_turn_id)"
        f" where w.tool <> '{ORACLE}'"
    )
    found = await runtime.database.fetch("select * from heliograph.runs")
    peaceful = [run for run in found if run["target"] == "chaos"]
    doctor = [found for project in ("default", PROJECT) for found in await runtime.world.call("doctor", project, True)]
    gone = {row[0]: row[1] for row in await runtime.database.fetch("select id, outcome from heliograph.pruned")}
    pruned = await runtime.database.fetch("select project_id, id from heliograph.pruned where id like 'turn:%'")
    for project in ("default", PROJECT):
        await runtime.world.bells.learn(project)
    tokens = runtime.world.bells.tokens
    return [
        _acknowledged(evidence.acknowledged, found, gone),
        *(_events(listener, turns, pruned, tokens) for listener in evidence.listeners),
        *_effects(evidence.effects, turns, waits),
        _reports(evidence.reported),
        Verdict("the doctor finds nothing", capped(f"{p['check']}: {p['subject']}" for p in doctor)),
        await _turns(runtime),
        await _runs(runtime, peaceful, turns, waits),
        await _logs(runtime, [run for run in found if run["project_id"] != PROJECT]),
        _forgotten(found, gone),
        *await judge_trials(runtime, evidence.greeted),
        await _deadlocks(runtime),
    ]


def _acknowledged(path: Path, runs: list[Any], gone: Mapping[str, str]) -> Verdict:
    started, found = set(read_lines(path)), {row["run_id"] for row in runs}
    problems = listed(
        "an acknowledged run is gone", {run_id for run_id in started - found if f"run:{run_id}" not in gone}
    )
    return Verdict("E1 every acknowledged start is in the database", problems, f"{len(started)} starts")


def _events(listener: Listener, turns: list[Any], pruned: list[Any], tokens: Tokens) -> Verdict:
    keys = {listener.spelled(turn["project_id"], f"evt:{turn['agent_turn_id']}", tokens): turn for turn in turns}
    missing = [keys[key] for key in keys.keys() - listener.received.keys()]
    # it was published between its end and its mark; a disconnection in that time excuses a missing event
    excused = [
        t for t in missing if t["published"] is not None and listener.was_disconnected(t["ended"], t["published"])
    ]
    lost = {turn["agent_turn_id"] for turn in missing} - {turn["agent_turn_id"] for turn in excused}
    twice = sum(times > 1 for times in listener.received.values())
    problems = listed("a task event never arrived", lost)
    known = keys.keys() | {
        listener.spelled(row["project_id"], f"evt:{row['id'].removeprefix('turn:')}", tokens) for row in pruned
    }
    problems += listed("a task event without a turn arrived", listener.received.keys() - known)
    return Verdict(f"E2 every ended turn had its event on {listener.name}", problems,
                   f"{len(listener.received)} received, {twice} more than once, {len(excused)} published during a disconnection")  # fmt: skip


def _effects(path: Path, turns: list[Any], waits: list[Any]) -> list[Verdict]:
    """Compare effects with records: agents and steps are keyed by turn, tools by turn and call."""
    times = Counter(" ".join(line.split()[:2]) for line in read_lines(path))
    once = {key for key in times if not key.startswith("filer ")}
    done = {f"{t['agent_name']} {t['agent_turn_id']}" for t in turns
            if t["agent_name"] in ("payer", "filer") and t["outcome"] == "success"}  # fmt: skip
    done |= {_key(wait) for wait in waits if wait["kind"] in ("inline", "tool") and wait["status"] == "success"}
    meant = {f"{turn['agent_name']} {turn['agent_turn_id']}" for turn in turns} | {_key(wait) for wait in waits}
    in_doubt = sum(turn["agent_name"] == "payer" and turn["outcome"] != "success" for turn in turns)
    in_doubt += sum(wait["status"] == "unknown" for wait in waits)
    return [
        Verdict("E3 no effect that may happen once happened twice", listed("an effect happened twice", {k for k in once if times[k] > 1}),
                f"{len(once)} once, {in_doubt} in doubt, {times.total()} effects in all"),
        Verdict("E4 an effect has its intent, and a success its effect",
                listed("an effect without a durable intent", set(times) - meant)
                + listed("a success whose effect never happened", done - set(times))),
    ]  # fmt: skip


def _key(wait: Any) -> str:
    """Return the beginning of the effect's mark."""
    if wait["kind"] == "inline":
        return f"{wait['tool']} {wait['agent_turn_id']}"
    return f"tool:{wait['tool']} {wait['agent_turn_id']}/{wait['tool_call_id']}"


def _reports(path: Path) -> Verdict:
    """Check the answers to tools: a true report counts once, a second one is acknowledged, a forged one is rejected."""
    lines = [line.split() for line in read_lines(path)]
    answers, ways = [(line[2], line[3]) for line in lines], Counter(line[0] for line in lines if line[2] == "true")
    wrong = Counter(
        f"a {kind} report was answered {outcome}" for kind, outcome in answers if outcome not in ANSWERS[kind]
    )
    seen = ", ".join(f"{n} {outcome}" for outcome, n in Counter(outcome for _, outcome in answers).most_common())
    seen += "; commands: " + ", ".join(f"{n} {way}" for way, n in ways.items())
    return Verdict(
        "every report was answered by the state of its call",
        [f"{n} x {kind_of_problem}" for kind_of_problem, n in wrong.items()],
        seen,
    )


async def _turns(runtime: Runtime) -> Verdict:
    problems = await violations(runtime.database, {"a turn is not done": NOT_DONE, **TURN_CHECKS})
    return Verdict("every turn ended once, by its last owner", problems)


async def _runs(runtime: Runtime, runs: list[Any], turns: list[Any], waits: list[Any]) -> Verdict:
    """Check that each run ended with the same state as without faults."""
    of = {run["run_id"] for run in runs}
    failed = {turn["run_id"] for turn in turns if turn["outcome"] not in (None, "success")} & of
    unpaid = {turn["run_id"] for turn in turns if turn["agent_name"] == "medic"}
    uncharged = {wait["run_id"] for wait in waits if wait["status"] == "unknown"}
    late = {wait["run_id"] for wait in waits if wait["status"] == "timeout" and wait["tool"] == COURIER}
    problems = listed("a turn failed although it may run again", failed - unpaid)
    for row in runs:
        run_id = row["run_id"]
        if row["status"] != "ended" or row["outcome"] != ("failed" if run_id in failed else "success"):
            problems.append(f"{run_id} is {row['status']} with outcome {row['outcome']}")
            continue
        state = msgspec.json.decode(row["state"])
        if state != expected_state(
            number_of(run_id),
            is_paid=run_id not in unpaid,
            is_charged=run_id not in uncharged,
            is_courier_late=run_id in late,
        ):
            problems.append(f"{run_id} ended with the state {state}")
    return Verdict("every run ended as without faults", problems)


async def _logs(runtime: Runtime, runs: list[Any]) -> Verdict:
    """Check that the log of each run is a valid trace, for any outcome."""
    problems = []
    for row in runs:
        run_id = row["run_id"]
        problems += [f"{run_id}: {problem}" for problem in check_trace(await runtime.reader.all_signals(run_id))]
    return Verdict("every run's log is a valid trace", problems)


def _forgotten(runs: list[Any], gone: Mapping[str, str]) -> Verdict:
    """Check that the project pruned during the chaos has no failure and no remaining run."""
    ended = {each: outcome for each, outcome in gone.items() if each.startswith("run:")}
    problems = listed(
        "a run remains that should be pruned", {run["run_id"] for run in runs if run["project_id"] == PROJECT}
    )
    problems += listed(
        "a pruned run did not succeed", {each for each, outcome in ended.items() if outcome != "success"}
    )
    return Verdict("pruning removes ended runs and nothing that is needed", problems, f"{len(ended)} runs")


async def _deadlocks(runtime: Runtime) -> Verdict:
    [[deadlocks]] = await runtime.database.fetch(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    return Verdict("pg_stat_database counts no deadlock", [f"{deadlocks} deadlocks"] if deadlocks else [])
