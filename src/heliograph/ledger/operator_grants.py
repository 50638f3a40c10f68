"""Grants of an operator on views and functions of the schema: an upgrade replaces these objects, and grants the same rights again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.ledger.operator_objects import in_use

# 96_roles.sql grants these roles what each version gives them.
_OUR_ROLES = (
    "heliograph_owner",
    "heliograph_views",
    "heliograph_worker",
    "heliograph_api",
    "heliograph_reader",
    "heliograph_subscriber",
)

_REPLACED = """
    select format('view %s', c.oid::regclass) as name, format('on %s', c.oid::regclass) as target, c.relowner as owner, c.relacl as acl
      from pg_class c where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'v'
    union all
    select format('column %s of view %s', a.attname, c.oid::regclass), format('(%I) on %s', a.attname, c.oid::regclass), c.relowner, a.attacl
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'v'
    union all
    select format('function %s', p.oid::regprocedure), format('on function %s', p.oid::regprocedure), p.proowner, p.proacl
      from pg_proc p where p.pronamespace = 'heliograph'::regnamespace"""

# An object without a list of rights has the defaults of PostgreSQL, which no operator has granted.
_GRANTS = f"""
with replaced as ({_REPLACED})
select r.name, coalesce(quote_ident(o.rolname), 'public') as role,
       format('grant %s %s to %s%s', g.privilege_type, r.target, coalesce(quote_ident(o.rolname), 'public'),
              case when g.is_grantable then ' with grant option' end) as statement
  from replaced r cross join aclexplode(r.acl) g left join pg_roles o on o.oid = g.grantee
 where g.grantee <> r.owner and coalesce(o.rolname, '') <> all ($1::text[])
 order by 1, 2, 3"""  # noqa: S608  our own text


async def read_grants(connection: Any) -> Sequence[Any]:
    """Read the rights that an operator has granted on views, their columns and functions of the schema."""
    return await connection.fetch(_GRANTS, _OUR_ROLES)  # type: ignore[no-any-return]


async def grant_again(connection: Any, grants: Sequence[Any]) -> None:
    """Grant these rights on the new views and functions.

    Raises Conflict (`schema_in_use`) if an object no longer exists: the operator decides about rights on another one.
    """
    present = {row["name"] for row in await connection.fetch(_REPLACED)} if grants else set()
    if lost := sorted(
        {f"the grants of {each['role']} on {each['name']}" for each in grants if each["name"] not in present}
    ):
        raise in_use(f"this version would drop {', '.join(lost)}")
    for each in grants:
        await connection.execute(each["statement"])
