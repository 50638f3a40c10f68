from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from heliograph.errors import Rejected, StoreUnavailable
from heliograph.ledger import install as installer
from heliograph.ledger.install import SchemaState, check, install, migrations, read_state
from heliograph.ledger.pool import SESSION_NAME, explain
from tests.kernel.filled import fill
from tests.kernel.kit import START, Kernel, connect
from tests.kernel.schema_objects import objects

NEWEST = migrations()[-1].version


async def test_install_creates_everything_and_a_second_one_does_nothing(connection: asyncpg.Connection) -> None:
    assert await read_state(connection) == SchemaState(0, NEWEST, kernel_is_current=False)
    assert len(await install(connection)) == len(migrations()) + 1
    assert (await read_state(connection)).is_current
    before = await objects(connection)
    assert await install(connection) == []
    assert await objects(connection) == before


@pytest.mark.more
async def test_one_of_many_simultaneous_installers_does_the_work(empty_url: str) -> None:
    connections = [await connect(empty_url) for _ in range(4)]
    done = await asyncio.gather(*map(install, connections))
    assert sorted(map(len, done)) == [0, 0, 0, len(migrations()) + 1]
    assert (await read_state(connections[0])).is_current
    for each in connections:
        await each.close()


@pytest.mark.more
async def test_installer_killed_midway_creates_nothing(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, other = await connect(empty_url), await connect(empty_url)
    whole = installer.kernel_sql()
    with monkeypatch.context() as patched:
        patched.setattr(installer, "kernel_sql", lambda: f"{whole}; select pg_terminate_backend(pg_backend_pid());")
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
            await install(victim)
    assert await objects(other) == []
    assert (await read_state(other)).installed == 0
    assert len(await install(other)) == len(migrations()) + 1
    await other.close()


@pytest.mark.more
async def test_upgrade_that_fails_midway_changes_nothing(
    empty_url: str, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install(connection)
    kernel = Kernel(connection, "project")
    await fill(kernel)
    rows, functions = await kernel.everything(), await objects(connection)
    whole = installer.kernel_sql()
    with monkeypatch.context() as patched:
        patched.setattr(installer, "kernel_sql", lambda: f"{whole}; select broken.at_the_end();")
        with pytest.raises(asyncpg.PostgresError):
            await install(connection)
    assert (await kernel.everything(), await objects(connection)) == (rows, functions)
    assert (await kernel.claim(), await kernel.checks()) == ([], [])


@pytest.mark.more
async def test_upgrade_replaces_all_functions_and_keeps_the_data(connection: asyncpg.Connection) -> None:
    await install(connection)
    kernel = Kernel(connection, "project")
    await fill(kernel)
    rows, functions = await kernel.everything(), await objects(connection)
    await connection.execute(
        "create function heliograph.leftover(p_project text) returns integer language sql as 'select 1'"
    )
    await connection.execute(
        "create view heliograph.left_view as select heliograph.leftover('x') from heliograph.run_overview"
    )
    await connection.execute("update heliograph.kernel_version set checksum = 'an older kernel'")
    assert await read_state(connection) == SchemaState(NEWEST, NEWEST, kernel_is_current=False)
    assert await install(connection) == ["installed the kernel's functions and views"]
    assert (await read_state(connection)).is_current
    assert (await kernel.everything(), await objects(connection)) == (rows, functions)


@pytest.mark.more
async def test_memory_of_an_earlier_version_counts_as_untrusted(connection: asyncpg.Connection) -> None:
    """The migration is applied to the tables as they were before it."""
    await install(connection)
    (taint,) = [each for each in migrations() if each.name == "taint"]
    insert = "insert into heliograph.memories (project_id, memory_id, text, metadata, created_at) values ($1, $1, 'x', '{}', now())"
    await connection.execute("alter table heliograph.memories drop column is_untrusted")
    await connection.execute("alter table heliograph.turn_waiting_tools drop column taint, drop column is_trusted")
    await connection.execute(insert, "before")
    await connection.execute(taint.sql)
    await connection.execute(insert, "after")
    rows = await connection.fetch("select memory_id, is_untrusted from heliograph.memories")
    assert dict(map(tuple, rows)) == {"before": True, "after": False}


OLD_ROWS = (
    """insert into heliograph.runs (project_id, run_id, target, status, request_hash, state, memory, version, signal_seq,
                                    open_turns, activations, owed, hears_reports, refusals, created_at, updated_at)
       values ('project', 'run_a', 'newsroom', 'running', 'h', '{}', '{}', 3, 4, 1, 1, 1, true, 2, $1, $1)""",
    """insert into heliograph.signals (project_id, run_id, seq, count, entries, at, owed) values
       ('project', 'run_a', 1, 2, '[{"name": "workflow:start"}, {"name": "agent:activated", "parent": 0}]', $1, false),
       ('project', 'run_a', 3, 2, '[{"name": "note", "parent": "sig_run_a_2", "owed": false},
                                    {"name": "finding", "parent": 0, "owed": true}]', $1, true)""",
    """insert into heliograph.agent_state_head
       (project_id, agent_id, run_id, agent_name, target, status, active_agent_turn_id, turn_epoch, waiting_tool_count,
        resumes_on, refusals, moved_at)
       values ('project', 'run_a/writer', 'run_a', 'writer', 'newsroom', 'suspended', 'turn_a', 2, 1, 'all', 3, $1)""",
    """insert into heliograph.agent_turns
       (project_id, agent_turn_id, agent_id, run_id, state, max_attempts, defers, cause_seq, activation_seq,
        output_box_id, created_at, expires_at, people_since, people_time, budgets)
       values ('project', 'turn_a', 'run_a/writer', 'run_a', 'active', 3, 2, 1, 2, 'box_turn_a', $1, $1::timestamptz + interval '1 h',
               $1, '90 s', '{turn_a}')""",
    """insert into heliograph.leases
       (project_id, agent_id, turn_epoch, agent_turn_id, owner, started_at, ended_at, said, said_seq)
       values ('project', 'run_a/writer', 2, 'turn_a', 'worker-1', $1, $1, 2, 3)""",
    """insert into heliograph.budgets (project_id, turn_id, kind, most, used, over)
       values ('project', 'turn_a', 'tokens', 100, 100, 7)""",
    "insert into heliograph.project_limits (project_id, queue_max, defers_max) values ('project', 7, 5)",
    """insert into heliograph.cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)
       values ('project', 'card_1', 'box_turn_a', 'turn_a', 2, 'tool.result',
               '{"call_id": "c1", "error": {"code": "CANCELED", "failed_first": "c2"}}', $1),
              ('project', 'card_2', 'box_turn_a', 'turn_a', 2, 'tool.result', '{"$blob": "sha256:x", "bytes": 60}', $1)""",
    """insert into heliograph.turn_waiting_tools
       (project_id, agent_turn_id, tool_call_id, agent_id, run_id, tool, kind, state, epoch, status, result_card_id,
        resolved_position, opened_at, resolved_at)
       values ('project', 'turn_a', 'c1', 'run_a/writer', 'run_a', 'search', 'tool', 'resolved', 2, 'canceled', 'card_1',
               1, $1, $1),
              ('project', 'turn_a', 'c2', 'run_a/writer', 'run_a', 'search', 'tool', 'resolved', 2, 'canceled', 'card_2',
               2, $1, $1),
              ('project', 'turn_a', 'c3', 'run_a/writer', 'run_a', 'ask', 'human', 'open', 2, null, null, null, $1, null)""",
    """insert into heliograph.blobs (project_id, blob_id, bytes, content, created_at)
       values ('project', 'sha256:x', 60, '{"call_id": "c2", "error": {"code": "CANCELED", "failed_first": "c3"}}', $1)""",
)


async def install_before(version: int, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the schema as it was before a migration, with another kernel."""
    older = [each for each in migrations() if each.version < version]
    with monkeypatch.context() as patched:
        patched.setattr(installer, "migrations", lambda: older)
        patched.setattr(installer, "kernel_sql", lambda: "select 'an older kernel';")
        await install(connection)


@pytest.mark.more
async def test_upgrade_keeps_the_names_and_the_tags_of_recordings(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_before(52, connection, monkeypatch)
    await connection.execute(
        """insert into heliograph.runs (project_id, run_id, target, status, request_hash, state, memory, created_at, updated_at)
           select 'project', id, 'newsroom', 'running', '', '{}', '{}', now(), now() from unnest(array['a', 'b', 'c']) id;
           insert into heliograph.recordings (project_id, run_id, name, tags, at)
           values ('project', 'a', 'shop', '{x,y}', now()), ('project', 'b', null, '{}', now())"""
    )
    await install(connection)
    rows = await connection.fetch("select run_id, name, tags from heliograph.recording_overview order by run_id")
    assert list(map(tuple, rows)) == [("a", "shop", ["x", "y"]), ("b", None, [])]


@pytest.mark.more
async def test_upgrade_keeps_the_rows_of_renamed_columns(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database of version 14, with a turn that waits for a human and a signal without a reaction, is upgraded."""
    older = [each for each in migrations() if each.name != "plain_names" and each.version < 15]
    with monkeypatch.context() as patched:
        patched.setattr(installer, "migrations", lambda: older)
        patched.setattr(installer, "kernel_sql", lambda: "select 'an older kernel';")
        await install(connection)
    for statement in OLD_ROWS:
        await connection.execute(statement, *([START] if "$1" in statement else []))
    await install(connection)

    kernel = Kernel(connection, "project")
    rows = await kernel.rows("runs", "pending_reactions, wakes_on_results, rejections")
    assert list(map(tuple, rows)) == [(1, True, 2)]
    rows = await kernel.rows("agent_turns", "defer_count, human_wait_since, human_wait_time")
    assert list(map(tuple, rows)) == [(2, START, timedelta(seconds=90))]
    assert list(map(tuple, await kernel.rows("agent_state_head", "sweep_failures"))) == [(3,)]
    assert list(map(tuple, await kernel.rows("leases", "signals_emitted, last_append_seq"))) == [(2, 3)]
    assert list(map(tuple, await kernel.rows("budgets", "amount_max, used, overspent"))) == [(100, 100, 7)]
    limits = await kernel.rows("project_limits", "queue_max, deferrals_max")
    assert list(map(tuple, limits)) == [(7, 5)]
    contents = [content for (_, content) in await kernel.rows("cards", "card_id, content")]
    assert contents == [
        {"call_id": "c1", "error": {"code": "CANCELED", "first_failed_call": "c2"}},
        {"call_id": "c2", "error": {"code": "CANCELED", "first_failed_call": "c3"}},
    ]
    (pending,) = await kernel.pending()
    assert [(each["seq"], each["name"]) for each in pending["signals"]] == [(4, "finding")]
    assert not {"R2", "W11"} & set(await kernel.checks())  # pending reactions and waits for humans are counted right

    names = await connection.fetch(
        "select conname from pg_constraint where connamespace = 'heliograph'::regnamespace"
        " union all select relname from pg_class where relnamespace = 'heliograph'::regnamespace"
    )
    old = ("owed", "said", "defers_", "people", "refusals", "hears", "_most_", "_over_")
    assert not [name for (name,) in names if any(word in name for word in old)]


@pytest.mark.parametrize(
    "name", ["heliograph", "heliograph tools", "heliograph - 10.0.0.7:50123", "heliograph tools - fe80::1:6432"]
)
async def test_worker_of_an_older_version_takes_and_ends_nothing_after_the_upgrade(kernel: Kernel, name: str) -> None:
    """It could not decode its claims, and would end those turns as failed. It retries what fails with 57P03."""
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    await kernel.connection.execute(f"set application_name = '{name}'")
    with pytest.raises(asyncpg.CannotConnectNowError, match="start the version that was installed") as raised:
        await kernel.claim()
    await kernel.connection.execute("reset application_name")
    assert "needs another application_name" in str(raised.value.hint)
    assert isinstance(explain(raised.value, "heliograph.claim"), StoreUnavailable)
    assert len(await kernel.claim()) == 1


@pytest.mark.parametrize(
    "name", ["", "psql", SESSION_NAME, f"{SESSION_NAME} - 10.0.0.7:50123", "heliograph transactions", "heliograph bell",
             "heliograph - billing", "Heliograph", "heliograph ", "my heliograph"],
)  # fmt: skip
async def test_session_of_another_name_is_not_taken_for_an_older_worker(kernel: Kernel, name: str) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    await kernel.connection.execute(f"set application_name = '{name}'")
    assert len(await kernel.claim()) == 1
    await kernel.connection.execute("reset application_name")


@pytest.mark.more
async def test_upgrade_that_waits_for_a_locked_table_gives_up_changes_nothing_and_names_the_next_step(
    connection: asyncpg.Connection, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_before(15, connection, monkeypatch)
    before = await objects(connection)
    reader = await connect(empty_url)
    async with reader.transaction():
        await reader.fetch("select * from heliograph.runs")
        with monkeypatch.context() as patched:
            patched.setattr(installer, "_WAIT", "set local lock_timeout = '100ms';")
            with pytest.raises(StoreUnavailable, match=r"end long transactions .* then run helio db install") as raised:
                await install(connection)
    await reader.close()
    assert raised.value.code == "schema_locked"
    assert await objects(connection) == before
    assert (await read_state(connection)).installed == 14
    await install(connection)
    assert (await read_state(connection)).is_current
    assert (
        await connection.fetchval("show lock_timeout") == "10s"
    )  # that of this connection: it survives an installation


@pytest.mark.more
async def test_migration_may_take_longer_than_a_call_of_the_kernel(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = installer.Migration(NEWEST + 1, "slow", "select pg_sleep(2);")
    monkeypatch.setattr(installer, "migrations", lambda: [*migrations(), slow])
    opened = await asyncpg.connect(empty_url, command_timeout=1.5)
    assert f"applied migration {NEWEST + 1:04d} slow" in await install(opened)
    await opened.close()


@pytest.mark.more
async def test_database_newer_than_the_program_is_rejected_and_unchanged(connection: asyncpg.Connection) -> None:
    await install(connection)
    await connection.execute(
        "insert into heliograph.schema_version (version, name, checksum) values (9999, 'later', 'x')"
    )
    before = await objects(connection)
    with pytest.raises(Rejected, match=f"schema version 9999, newer than this program's {NEWEST}") as refused:
        await install(connection)
    assert refused.value.code == "schema_version"
    with pytest.raises(Rejected, match="newer"):
        check(await read_state(connection))
    assert await objects(connection) == before


@pytest.mark.more
async def test_migration_edited_after_its_release_is_rejected(connection: asyncpg.Connection) -> None:
    await install(connection)
    await connection.execute("update heliograph.schema_version set checksum = 'of other contents'")
    before = await objects(connection)
    await connection.execute("update heliograph.kernel_version set checksum = 'an older kernel'")
    with pytest.raises(Rejected, match="differs from the one in this program") as refused:
        await install(connection)
    assert refused.value.code == "schema_version"
    assert await objects(connection) == before


@pytest.mark.more
async def test_unusable_database_is_rejected_with_the_next_command(connection: asyncpg.Connection) -> None:
    with pytest.raises(Rejected, match="run helio db install") as refused:
        check(await read_state(connection))
    assert refused.value.code == "schema_missing"
    with pytest.raises(Rejected, match="other functions: run helio db install"):
        check(SchemaState(NEWEST, NEWEST, kernel_is_current=False))
    with pytest.raises(Rejected, match=f"schema version 1, this program needs {NEWEST + 1}: run helio db install"):
        check(SchemaState(1, NEWEST + 1, kernel_is_current=False))
    await install(connection)
    check(await read_state(connection))


@pytest.mark.more
async def test_installing_needs_no_superuser(empty_url: str) -> None:
    owner = await connect(empty_url)
    name = await owner.fetchval("select current_database()")
    await owner.execute(
        f'create role "{name}" nosuperuser; grant create on database "{name}" to "{name}"; set role "{name}"'
    )
    assert len(await install(owner)) == len(migrations()) + 1
    await owner.execute("set heliograph.project = 'project'")  # row security binds this owner too
    kernel = Kernel(owner, "project")
    await fill(kernel)
    assert await kernel.checks() == []
    await owner.execute(f'reset role; drop owned by "{name}"; drop role "{name}"')
    await owner.close()
