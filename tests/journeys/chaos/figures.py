"""Figures of a chaos run: recovered turns, rejected writes, durations, and the errors of the clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from heliograph.runtime import Runtime
from tests.journeys.chaos.procs import Death

SPREAD = "percentile_disc(array[0.5, 0.99]) within group (order by took) as p, max(took) as most, count(took) as n"


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of durations in seconds. n: the number of durations."""

    n: int
    p50: float
    p99: float
    most: float


async def count(runtime: Runtime) -> dict[str, int]:
    [row] = await runtime.database.fetch("""
        select (select count(*) from heliograph.runs) as runs, count(*) as turns, count(*) filter (where attempts > 0) as re_owned,
               coalesce(sum(attempts), 0) as recoveries, coalesce(max(attempts), 0) + 1 as most_attempts,
               count(*) filter (where outcome <> 'success') as not_successful
          from heliograph.agent_turns""")
    return dict(row)


async def measure(
    runtime: Runtime, deaths: Sequence[Death], returns: Sequence[float]
) -> dict[str, Spread]:  # fmt: skip
    """Read the figures from the database. deaths: of workers. returns: the times at which the server answered again."""
    spread = {
        "turn, from enqueued to ended": """
            select extract(epoch from finished_at - created_at)::float8 as took from heliograph.agent_turns""",
        "run, from started to ended": """
            select extract(epoch from ended_at - created_at)::float8 as took from heliograph.runs""",
        # recovery raises the epoch once, the claim once more; a suspended turn is only claimed
        "lost lease to next owner": """
            select extract(epoch from l.started_at - l.before)::float8 as took
              from (select agent_turn_id, started_at, turn_epoch, lag(ended_at) over w as before, lag(turn_epoch) over w as last
                      from heliograph.leases window w as (partition by agent_turn_id order by turn_epoch)) l
              join heliograph.agent_turns t using (agent_turn_id)
             where t.defer_count = 0 and l.turn_epoch = l.last + 2""",
    }
    found = {what: await _spread(runtime, query) for what, query in spread.items()}
    found["worker killed to next owner"] = await _spread(
        runtime,
        """select extract(epoch from n.started_at - d.at)::float8 as took
             from unnest($1::text[], $2::timestamptz[]) d (name, at)
             join heliograph.leases l on split_part(l.owner, ':', 1) = d.name and l.started_at <= d.at
                                     and (l.ended_at is null or l.ended_at > d.at)
             join lateral (select min(started_at) as started_at from heliograph.leases n
                            where n.project_id = l.project_id and n.agent_id = l.agent_id
                              and n.agent_turn_id = l.agent_turn_id and n.turn_epoch > l.turn_epoch) n
               on n.started_at is not null""",
        [death.name for death in deaths], [_moment(death.at) for death in deaths],
    )  # fmt: skip
    found["server back to first claim"] = await _spread(
        runtime,
        """select extract(epoch from min(l.started_at) - r.at)::float8 as took
             from unnest($1::timestamptz[]) r (at) join heliograph.leases l on l.started_at > r.at group by r.at""",
        [_moment(at) for at in returns],
    )  # fmt: skip
    return {what: each for what, each in found.items() if each is not None}


async def skew_seen(runtime: Runtime) -> float:
    """Return the largest error of a worker's clock: the difference between its times in the log and the database's."""
    [[most]] = await runtime.database.fetch("""
        select coalesce(max(abs(extract(epoch from s.timestamp - t.finished_at))), 0)::float8
          from heliograph.signal_log s join heliograph.agent_turns t on t.agent_turn_id = s.turn_id
         where s.name = 'agent:completed'""")
    return float(most)


def spread_of(seconds: Sequence[float]) -> Spread | None:
    ordered = sorted(seconds)
    if not ordered:
        return None
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99)]
    return Spread(len(ordered), at[0], at[1], ordered[-1])


async def _spread(runtime: Runtime, query: str, *args: Any) -> Spread | None:
    [row] = await runtime.database.fetch(f"select {SPREAD} from ({query}) measured", *args)
    return Spread(row["n"], row["p"][0], row["p"][1], row["most"]) if row["n"] else None


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
