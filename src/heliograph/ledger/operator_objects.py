"""Objects that an operator has created on tables, views and functions of the schema: no upgrade drops them silently, and its error names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.errors import Conflict

_VIOLATION = "23"  # the class of errors of constraints

DEPENDENT = "2BP01"  # dependent_objects_still_exist: the detail of the error names the objects

TABLE = "*"  # in place of columns: the whole table

# What a migration drops, by table. PostgreSQL drops what belongs to a column or a table with it, without an error.
DROPPED: Mapping[int, Mapping[str, str]] = {
    61: {
        "runs": "state version signal_seq updated_at ended_at open_turns pending_reactions activations status outcome memory",
        "agent_state_head": (
            "ready_at active_agent_turn_id turn_epoch moved_at lease_until resume_deadline waiting_tool_count status phase owner resumes_on"
        ),
        "agent_turns": "finished_at card_count state outcome deliverable_card_id",
        "agent_inbox": "turn_epoch status consumed_at",
        "turn_waiting_tools": "resolved_at resolved_position state status result_card_id",
    },
    67: {"execution_edges": TABLE},
    68: {"agent_inbox": "agent_id payload_card_id"},
    69: {"turn_waiting_tools": "agent_id run_id result_card_id"},
    70: {"agent_turns": "deliverable_card_id"},
}  # fmt: skip
# This migration moves columns. It creates their indexes and checks again, also those of an operator.
_CREATES_AGAIN = 61
# a guarded database has the check (heliograph.testing.kernel.row_guard)
_OURS = ("execution_edges_pkey", "agent_turns_check1")
_OUR_POLICIES = ("project", "own", "seen")  # 96_roles.sql creates them on each table

# A name of null stands for the whole table. Not-null constraints belong to their columns.
_LOST = """
with dropped as (
    select c.oid as relation, c.relowner, c.relacl, a.attnum
      from rows from (unnest($1::text[]), unnest($2::text[])) m (relation, name)
      join pg_class c on c.oid = to_regclass('heliograph.' || m.relation)
      left join pg_attribute a on a.attrelid = c.oid and a.attname = m.name and not a.attisdropped
     where m.name is null or a.attnum is not null)
select pg_describe_object(d.classid, d.objid, 0)
  from pg_depend d
  join dropped m on d.refclassid = 'pg_class'::regclass and d.refobjid = m.relation and coalesce(m.attnum, d.refobjsubid) = d.refobjsubid
  left join pg_constraint c on d.classid = 'pg_constraint'::regclass and c.oid = d.objid
  left join pg_class i on d.classid = 'pg_class'::regclass and i.oid = d.objid and i.relkind = 'i'
  left join pg_trigger t on d.classid = 'pg_trigger'::regclass and t.oid = d.objid
  left join pg_policy p on d.classid = 'pg_policy'::regclass and p.oid = d.objid
 where d.deptype = 'a' and coalesce(c.conname, i.relname, '') <> all ($3::text[])
   and (d.classid in ('pg_statistic_ext'::regclass, 'pg_rewrite'::regclass) or not t.tgisinternal or p.polname <> all ($5::text[])
        or i.relname is not null and not $4 or c.contype <> 'n' and not (c.contype = 'c' and $4))
union
select format('grants on column %s of table %s', a.attname, a.attrelid::regclass)
  from dropped m join pg_attribute a on a.attrelid = m.relation and a.attnum = coalesce(m.attnum, a.attnum) where a.attacl is not null
union
select format('grants on table %s', m.relation::regclass)
  from dropped m cross join aclexplode(m.relacl) g left join pg_roles r on r.oid = g.grantee
 where m.attnum is null and g.grantee <> m.relowner and (r.rolname ~ '^heliograph_') is not true
 order by 1"""


# The objects that depend on a view, a function or a type of the schema, and are none of these. PostgreSQL would drop them with what an upgrade replaces.
_DEPENDENT = """
with ours as (
    select 'pg_class'::regclass as classid, c.oid from pg_class c
     where c.relnamespace = 'heliograph'::regnamespace and c.relkind in ('v', 'c')
    union all
    select 'pg_proc'::regclass, p.oid from pg_proc p where p.pronamespace = 'heliograph'::regnamespace
    union all
    select 'pg_type'::regclass, x.oid
      from pg_class c join pg_type t on t.oid = c.reltype cross join unnest(array[t.oid, t.typarray]) x (oid)
     where c.relnamespace = 'heliograph'::regnamespace and c.relkind in ('v', 'c'))
select distinct pg_describe_object(f.classid, f.oid, f.place)
  from ours join pg_depend d on d.refclassid = ours.classid and d.refobjid = ours.oid and d.deptype <> 'i'
  left join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and w.oid = d.objid and w.rulename = '_RETURN'
 cross join lateral (
       select case when w.oid is null then d.classid else 'pg_class'::regclass end as classid,
              coalesce(w.ev_class, d.objid) as oid, case when w.oid is null then d.objsubid else 0 end as place) f
 where (f.classid, f.oid) not in (select o.classid, o.oid from ours o)
 order by 1"""


async def reject_dependent_objects(connection: Any) -> None:
    """Raise Conflict (`schema_in_use`) if an operator's objects, like views, depend on what an upgrade drops and creates again."""
    if found := [row[0] for row in await connection.fetch(_DEPENDENT)]:
        raise in_use(
            f"an upgrade replaces views and functions on which {', '.join(found)} depend{'s' * (len(found) == 1)}"
        )


def violated_constraint(error: Exception) -> str | None:
    """Why a migration cannot write a row; None for another error. Constraints of the schema accept what migrations write."""
    if not str(getattr(error, "sqlstate", "")).startswith(_VIOLATION) or not getattr(error, "constraint_name", None):
        return None
    where: Any = error
    return (
        f"{where.constraint_name} on table {where.schema_name}.{where.table_name} rejects a row that a migration writes"
    )


async def reject_lost_objects(connection: Any, version: int) -> None:
    """Raise Conflict (`schema_in_use`) if a migration would drop objects or grants of an operator with its columns and tables."""
    dropped = [(table, name) for table, names in DROPPED.get(version, {}).items() for name in names.split()]
    if not dropped:
        return
    tables = [table for table, _ in dropped]
    columns = [None if name == TABLE else name for _, name in dropped]
    lost = [
        row[0]
        for row in await connection.fetch(_LOST, tables, columns, _OURS, version == _CREATES_AGAIN, _OUR_POLICIES)
    ]
    if lost:
        raise in_use(f"migration {version:04d} would drop {', '.join(lost)}")


def in_use(reason: str) -> Conflict:
    """The error of a migration that objects of an operator prevent."""
    return Conflict(
        f"the schema is not installed: {reason}. Drop the objects and revoke the grants of your programs, "
        "run helio db install, then create them again", code="schema_in_use",
    )  # fmt: skip
