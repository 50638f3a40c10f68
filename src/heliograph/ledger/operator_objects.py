"""Objects that an operator has created on tables of the schema: no migration drops them silently, and its error names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.errors import Conflict

DEPENDENT = "2BP01"  # dependent_objects_still_exist: the detail of the error names the objects

# the columns that a migration moves, by table: PostgreSQL drops the statistics and grants of a column with it, without an error
_MOVED: Mapping[int, Mapping[str, str]] = {
    61: {
        "runs": "state version signal_seq updated_at ended_at open_turns pending_reactions activations status outcome memory",
        "agent_state_head": (
            "ready_at active_agent_turn_id turn_epoch moved_at lease_until resume_deadline waiting_tool_count status phase owner resumes_on"
        ),
        "agent_turns": "finished_at card_count state outcome deliverable_card_id",
        "agent_inbox": "turn_epoch status consumed_at",
        "turn_waiting_tools": "resolved_at resolved_position state status result_card_id",
    },
}  # fmt: skip

_LOST = """
with moved as (
    select a.attrelid, a.attnum, a.attname, a.attacl
      from rows from (unnest($1::text[]), unnest($2::text[])) m (relation, name)
      join pg_attribute a on a.attrelid = to_regclass('heliograph.' || m.relation) and a.attname = m.name and not a.attisdropped)
select distinct pg_describe_object('pg_statistic_ext'::regclass, s.oid, 0)
  from pg_statistic_ext s join moved m on m.attrelid = s.stxrelid and m.attnum = any (s.stxkeys)
union
select distinct pg_describe_object(d.classid, d.objid, d.objsubid)
  from pg_depend d join moved m on d.refclassid = 'pg_class'::regclass and d.refobjid = m.attrelid and d.refobjsubid = m.attnum
 where d.classid = 'pg_statistic_ext'::regclass
union
select format('grants on column %s of table %s', m.attname, m.attrelid::regclass) from moved m where m.attacl is not null
 order by 1"""


async def reject_lost_objects(connection: Any, version: int) -> None:
    """Raise Conflict (`schema_in_use`) if a migration would drop statistics or grants of an operator with the columns that it moves."""
    moved = [(table, name) for table, names in _MOVED.get(version, {}).items() for name in names.split()]
    if not moved:
        return
    tables, names = zip(*moved, strict=True)
    lost = [row[0] for row in await connection.fetch(_LOST, tables, names)]
    if lost:
        raise in_use(f"migration {version:04d} would drop {', '.join(lost)}")


def in_use(reason: str) -> Conflict:
    """The error of a migration that objects of an operator prevent."""
    return Conflict(
        f"the schema is not installed: {reason}. Drop what your programs have created there, run helio db install, "
        "then create it again", code="schema_in_use",
    )  # fmt: skip
