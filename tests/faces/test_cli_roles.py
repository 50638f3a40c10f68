"""`helio db grant`, `revoke` and `roles`, and the application run by a login that has no more than they gave it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from tests.faces.cli_support import Shell, open_shell
from tests.logins import PASSWORD, of


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return open_shell(tmp_path, database_url)


@pytest_asyncio.fixture
async def shop(database_url: str) -> AsyncIterator[str]:
    """A login without roles and projects."""
    name = f"shop_{os.getpid()}"
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"create role {name} login password '{PASSWORD}'")
    yield name
    await connection.execute(f"drop owned by {name}; drop role {name}")
    await connection.close()


@pytest.mark.more
@pytest.mark.proves("S2", "S1", "S18")
async def test_granted_login_runs_the_application(shell: Shell, shop: str, database_url: str) -> None:
    assert (
        shell.helio("db", "grant", shop, "--project", "shop").stdout
        == f"login {shop}: roles none; projects shop; signals none\n"
    )
    granted = shell.helio("db", "grant", shop, "--role", "worker", "--role", "api", "--project", "outlet")
    assert granted.stdout == f"login {shop}: roles worker, api; projects outlet, shop; signals all\n"
    (row,) = [row for row in shell.rows("db", "roles") if row["name"] == shop]
    assert row == {
        "type": "login",
        "name": shop,
        "is_operator": False,
        "services": ["worker", "api"],
        "projects": ["outlet", "shop"],
        "signals": {},
    }
    listed = shell.helio("db", "roles").stdout.splitlines()
    assert listed[0].split() == ["LOGIN", "ROLES", "PROJECTS", "SIGNALS"]
    assert any(line.split()[1:] == ["operator", "all", "all"] for line in listed)

    own = open_shell(shell.folder, of(database_url, shop))
    ran = own.helio("run", "press.py:app", "--project", "shop", "--run-id", "first")
    assert (ran.returncode, "outcome  success" in ran.stdout) == (0, True), ran.stderr
    assert [row["run_id"] for row in own.rows("run", "list", "--project", "shop")] == ["first"]
    assert own.rows("run", "list", "--project", "outlet") == []
    assert own.helio("db", "doctor", "--project", "shop").returncode == 0
    for foreign in ("default", "nowhere"):
        refused = own.helio("run", "press.py:app", "--project", foreign)
        assert (refused.returncode, refused.stderr.strip()) == (
            3, f"error: no project {foreign} for this login; helio db roles lists its projects",
        )  # fmt: skip
    assert own.helio("db", "grant", shop, "--role", "reader").returncode != 0

    assert (
        shell.helio("db", "revoke", shop, "--project", "outlet").stdout
        == f"login {shop}: roles worker, api; projects shop; signals all\n"
    )
    assert shell.helio("db", "revoke", shop).stdout == f"login {shop}: roles none; projects none; signals none\n"
    assert own.helio("run", "list", "--project", "shop").returncode != 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("grant", "nobody", "--role", "api"), 3, "there is no role nobody; create it first"),
        (("grant", "nobody"), 2, "nothing to grant"),
        (("grant", "nobody", "--role", "king"), 2, "--role must be one of worker, api, reader, subscriber, not 'king'"),
        (("grant", "nobody", "--role", "api", "--project", "a b"), 2, "--project takes ASCII letters"),
        (("revoke", "nobody"), 3, "there is no role nobody"),
    ],
    ids=["unknown role", "nothing", "unknown service", "no project", "revoke unknown"],
)
def test_impossible_grant_is_rejected_with_a_message(
    shell: Shell, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = shell.helio("db", *arguments)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
