"""Objects that an operator has created on tables of the schema are neither lost by a migration nor the cause of a raw error."""

from __future__ import annotations

import asyncpg
import pytest

from heliograph.errors import Conflict
from heliograph.ledger.install import install, read_state
from tests.kernel.test_changing_columns import MOVED
from tests.kernel.test_install import install_before

CREATED = {
    "view": ("create view public.waiting as select status from heliograph.runs", "view .*waiting depends on column status of table heliograph.runs"),
    "trigger": (
        "create function public.seen() returns trigger language plpgsql as $$ begin return new; end $$;"
        " create trigger seen after update of state on heliograph.agent_turns for each row when (new.state is not null)"
        " execute function public.seen()",
        "trigger seen on table heliograph.agent_turns depends on column state of table heliograph.agent_turns",
    ),
    "statistics": (
        "create statistics public.paired (dependencies) on status, target from heliograph.agent_state_head",
        "migration 0061 would drop statistics object public.paired",
    ),
    "statistics of an expression": (
        "create statistics public.lower on lower(status) from heliograph.agent_state_head",
        "migration 0061 would drop statistics object public.lower",
    ),
    "grant": (
        "grant select (status, created_at) on heliograph.runs to public",
        "migration 0061 would drop grants on column status of table heliograph.runs",
    ),
}  # fmt: skip


@pytest.mark.more
@pytest.mark.parametrize("kind", CREATED)
async def test_migration_of_columns_names_what_an_operator_has_created(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await install_before(MOVED, connection, monkeypatch)
    statement, message = CREATED[kind]
    await connection.execute(statement)
    with pytest.raises(Conflict, match=f"{message}.*run helio db install, then create it again") as raised:
        await install(connection)
    assert raised.value.code == "schema_in_use"
    assert (await read_state(connection)).installed < MOVED
