"""What must be true after chaos, by the database, by the wire, and by what really happened outside."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from heliograph.runtime import Runtime
from heliograph.signals.trace import check_trace
from tests.journeys.chaos_app import expected_state

SHOWN_MAX = 5
# Each finds turns that are wrong; none of them is what `doctor` asks, so that one mistake does not hide in both.
TURN_CHECKS = {
    "a turn is not done": "select agent_turn_id from heliograph.agent_turns where state <> 'done'",
    "a turn has no deliverable, or two": """
        select agent_turn_id from heliograph.agent_turns where (
          select count(*) from heliograph.cards c
           where c.agent_turn_id = agent_turns.agent_turn_id and c.kind = 'task.deliverable') <> 1""",
    "a turn has no task event, or two": """
        select agent_turn_id from heliograph.agent_turns where (
          select count(*) from heliograph.outbox o where o.agent_turn_id = agent_turns.agent_turn_id) <> 1""",
    "a turn ended twice in the log, or not at all": """
        select agent_turn_id from heliograph.agent_turns where (
          select count(*) from heliograph.signals s where s.agent_turn_id = agent_turns.agent_turn_id
             and s.name in ('agent:completed', 'agent:failed')) <> 1""",
    # its name has the epoch that its writer believed in
    "a deliverable was written by a former owner": """
        select agent_turn_id from heliograph.agent_turns t
         where outcome = 'success' and substring(deliverable_card_id from '[0-9]+$')::bigint <> (
               select max(turn_epoch) from heliograph.leases l where l.agent_turn_id = t.agent_turn_id)""",
    "a signal woke an agent twice": """
        select min(agent_turn_id) from heliograph.agent_turns group by agent_id, cause_seq having count(*) > 1""",
}


async def find_violations(
    runtime: Runtime, acknowledged: Mapping[str, int], heard: Counter[str], effects: Path
) -> list[str]:
    """acknowledged: the runs that `start` answered for, with their n; heard: keys of the events on the wire."""
    found = [f"doctor: {problem}" for problem in await runtime.world.call("doctor", "default", True)]
    for what, query in TURN_CHECKS.items():
        found += _told(what, [row[0] for row in await runtime.database.fetch(query)])
    turns = await runtime.database.fetch(
        "select t.agent_turn_id, t.run_id, t.outcome, h.agent_name from heliograph.agent_turns t "
        "join heliograph.agent_state_head h using (project_id, agent_id)"
    )
    keys = {f"evt:{turn['agent_turn_id']}" for turn in turns}
    found += _told("a task event was never heard", keys - set(heard))
    found += _told("a task event of no turn was heard", set(heard) - keys)
    return found + _check_effects(turns, effects) + await _check_runs(runtime, acknowledged, turns)


def _check_effects(turns: list[Any], effects: Path) -> list[str]:
    lines = effects.read_text().splitlines() if effects.exists() else []
    times = Counter(line.split()[1] for line in lines)
    once = [turn for turn in turns if turn["agent_name"] == "payer"]
    done = [turn for turn in turns if turn["agent_name"] in ("payer", "filer") and turn["outcome"] == "success"]
    return [
        *_told("a once agent ran twice", [t["agent_turn_id"] for t in once if times[t["agent_turn_id"]] > 1]),
        *_told("a finished effect never happened", [t["agent_turn_id"] for t in done if not times[t["agent_turn_id"]]]),
        *_told("an effect belongs to no turn", set(times) - {t["agent_turn_id"] for t in turns}),
    ]


async def _check_runs(runtime: Runtime, acknowledged: Mapping[str, int], turns: list[Any]) -> list[str]:
    runs = {row["run_id"]: row for row in await runtime.database.fetch("select * from heliograph.runs")}
    failed = {turn["run_id"] for turn in turns if turn["outcome"] != "success"}
    unpaid = {turn["run_id"] for turn in turns if turn["agent_name"] == "medic"}
    found = _told("an acknowledged run is gone", acknowledged.keys() - runs.keys())
    found += _told("a turn failed that may run again", failed - unpaid)
    for run_id, n in acknowledged.items():
        row = runs.get(run_id)
        if row is None:
            continue
        if row["status"] != "ended" or row["outcome"] != ("failed" if run_id in failed else "success"):
            found.append(f"{run_id} is {row['status']} with outcome {row['outcome']}")
        state = msgspec.json.decode(row["state"])
        if state != expected_state(n, is_paid=run_id not in unpaid):
            found.append(f"{run_id} ended with the state {state}")
        found += [f"{run_id}: {problem}" for problem in check_trace(await runtime.reader.all_signals(run_id))]
    return found


def _told(what: str, subjects: Any) -> list[str]:
    subjects = sorted(subjects)
    return [f"{what}: {len(subjects)} times, such as {', '.join(subjects[:SHOWN_MAX])}"] if subjects else []


async def find_figures(runtime: Runtime, log: Path, lease_seconds: float) -> dict[str, object]:
    """Numbers for people: how much was recovered and refused, and how long things took."""

    async def row(query: str) -> Any:
        return (await runtime.database.fetch(query))[0]

    turns = await row("""
        select count(*) as turns, count(*) filter (where attempts > 0) as recovered, sum(attempts) as recoveries,
               max(attempts) as most, count(*) filter (where outcome <> 'success') as in_doubt
          from heliograph.agent_turns""")
    runs = await row("""
        select count(*) / extract(epoch from max(ended_at) - min(created_at)) as per_second,
               percentile_cont(array[0.5, 0.99]) within group (order by extract(epoch from ended_at - created_at)) as took
          from heliograph.runs""")
    away = await row("""
        select percentile_cont(array[0.5, 0.99]) within group (order by gap) as took from (
          select extract(epoch from started_at - lag(ended_at) over (partition by agent_turn_id order by turn_epoch)) as gap
            from heliograph.leases) l where gap is not null""")
    deadlocks = await row("select deadlocks from pg_stat_database where datname = current_database()")
    lines = await asyncio.to_thread(lambda: log.read_text(errors="replace").splitlines())
    return {
        "turns": turns["turns"], "recovered_turns": turns["recovered"], "recoveries": turns["recoveries"],
        "most_attempts": turns["most"] + 1, "in_doubt": turns["in_doubt"],
        "stale_refused": sum("no longer this worker's" in line or "was taken from this worker" in line for line in lines),
        "run_p50_s": round(runs["took"][0], 2), "run_p99_s": round(runs["took"][1], 2),
        "runs_per_s": round(float(runs["per_second"]), 1),
        "swept_to_claimed_p50_s": round(away["took"][0], 2) if away["took"] else None,
        "swept_to_claimed_p99_s": round(away["took"][1], 2) if away["took"] else None,
        "lease_s": lease_seconds, "deadlocks": deadlocks["deadlocks"],
        "errors_logged": sum("error:" in line or "Traceback" in line for line in lines),
    }  # fmt: skip
