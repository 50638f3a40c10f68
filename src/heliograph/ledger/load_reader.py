"""Read the load of a project: its newest runs, their open turns and waits, and the use of models. Each query is bounded (decision 0153)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from heliograph.ledger.decoding import decode
from heliograph.ledger.pool import Database

ACTIVE_TURNS_MAX = 1000  # whose waits are read, in the order of their agents
TURNS_OF_RUN_MAX = 50  # the newest; a run has counters of all
PAGE = 1000  # signals of a run in which one call counts the use of models
RUNS_COUNTED_MAX = 40  # in one call


class RunLoad(msgspec.Struct, frozen=True):
    """A run without its state. status: running, terminating or ended."""

    run_id: str
    target: str
    status: str
    outcome: str | None
    signal_count: int
    open_turns: int
    activations: int
    created_at: datetime
    ended_at: datetime | None


class TurnLoad(msgspec.Struct, frozen=True):
    """An open turn. status: queued, dispatched, running or suspended."""

    run_id: str
    turn_id: str
    agent: str
    status: str
    phase: str | None
    current_tool: str | None
    created_at: datetime


class WaitLoad(msgspec.Struct, frozen=True):
    """The open calls of one kind and tool in a run. kind: human, tool or child. since: the oldest."""

    run_id: str
    kind: str
    tool: str
    count: int
    since: datetime


# waits have an index by their turn, and the turns that have begun one by their agent
WAITS = """
with active as materialized (
    select turn_id from heliograph.turn_overview where project_id = $1 and is_active order by agent_id limit $2)
select w.run_id, w.kind, w.tool, count(*)::int as count, min(w.opened_at) as since
  from active t
 cross join lateral (select run_id, kind, tool, opened_at from heliograph.wait_overview
                      where project_id = $1 and turn_id = t.turn_id and state = 'open' and kind in ('human', 'tool', 'child')
                     offset 0) w
 group by w.run_id, w.kind, w.tool order by since, w.run_id, w.kind, w.tool
"""
RUNS = f"""
with newest as materialized (
    select run_id from heliograph.run_overview where project_id = $1 and ($4::text is null or target = $4)
     order by created_at desc, run_id desc limit $3)
select r.* from (select run_id from newest union select unnest($2::text[])) n
 cross join lateral (select {", ".join(RunLoad.__struct_fields__)} from heliograph.run_overview
                      where project_id = $1 and run_id = n.run_id and ($4::text is null or target = $4) offset 0) r
 order by r.created_at desc, r.run_id desc
"""  # noqa: S608  the names of fields
TURNS = f"""
select {", ".join(f"t.{name}" for name in TurnLoad.__struct_fields__)} from unnest($2::text[]) r (run_id)
 cross join lateral (select * from heliograph.turn_overview t where t.project_id = $1 and t.run_id = r.run_id
                      order by t.activation_seq desc, t.queue_seq desc limit $3) t
 where t.status <> 'done' order by t.created_at, t.turn_id
"""  # noqa: S608  the names of fields
USES = """
select r.run_id, s.payload -> 'usage' as usage from unnest($2::text[], $3::bigint[], $4::bigint[]) r (run_id, after, upto)
 cross join lateral (select payload from heliograph.signal_log l
                      where l.project_id = $1 and l.run_id = r.run_id and l.commit_seq > r.after
                        and l.commit_seq <= r.upto and l.name = 'harness:end') s
"""


class LoadReader:
    """Queries for a view of a whole project. The number of statements does not depend on the number of runs."""

    def __init__(self, database: Database, project: str):
        self._database = database
        self._project = project

    async def waits(self) -> list[WaitLoad]:
        """Count the open calls of ACTIVE_TURNS_MAX turns by run, kind and tool, the oldest first."""
        return await self._rows(WaitLoad, WAITS, ACTIVE_TURNS_MAX)

    async def runs(self, limit: int, further: Sequence[str], target: str | None = None) -> list[RunLoad]:
        """Read the newest runs and further ones by id, the newest first. target: of these, only those of this application."""
        return await self._rows(RunLoad, RUNS, list(further), limit, target)

    async def turns(self, run_ids: Sequence[str]) -> list[TurnLoad]:
        """Read the open ones of the newest turns of these runs, the oldest first."""
        return await self._rows(TurnLoad, TURNS, list(run_ids), TURNS_OF_RUN_MAX) if run_ids else []

    async def uses(self, spans: Mapping[str, tuple[int, int]]) -> list[tuple[str, Any]]:
        """Read the `usage` of each model call in a span of the log of each run.

        spans: by run, two positions: the span has the commits that begin after the first, up to the second.
        """
        if not spans:
            return []
        columns = (list(spans), [after for after, _ in spans.values()], [upto for _, upto in spans.values()])
        rows = await self._database.fetch(USES, self._project, *columns)
        return [(row["run_id"], decode(row["usage"]) if row["usage"] is not None else None) for row in rows]

    async def _rows(self, kind: type[Any], query: str, *args: object) -> list[Any]:
        rows = await self._database.fetch(query, self._project, *args)
        return [msgspec.convert(dict(row), kind) for row in rows]
