"""Logins of services have timeouts, so a frozen client does not keep its locks (S21)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest

from heliograph.ledger.roles import SERVICES
from tests.kernel.kit import Kernel, connect, message
from tests.logins import connected, login, name_of


@pytest.mark.proves("S21")
async def test_login_gets_the_timeouts_of_its_role_and_keeps_its_own(shared_url: str) -> None:
    async with login(shared_url, services=("worker", "api")) as url, connected(url) as service:
        bounds = {
            name: await service.fetchval("select setting || coalesce(unit, '') from pg_settings where name = $1", name)
            for name in ("statement_timeout", "idle_in_transaction_session_timeout", "tcp_user_timeout")
        }
    assert bounds == {
        "statement_timeout": "30000ms", "idle_in_transaction_session_timeout": "5000ms", "tcp_user_timeout": bounds["tcp_user_timeout"],
    }  # fmt: skip
    operator = await connect(shared_url)
    for service_name in SERVICES:
        found = await operator.fetchval("select setconfig from pg_db_role_setting where setdatabase = 0 and setrole = to_regrole($1)",
                                        f"heliograph_{service_name}")  # fmt: skip
        assert sorted(each.partition("=")[0] for each in found) == [
            "idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout", "tcp_user_timeout",
        ]  # fmt: skip
    await operator.close()


@pytest.mark.proves("S21")
async def test_frozen_client_locks_a_head_only_until_the_timeout_of_its_role(kernel: Kernel, shared_url: str) -> None:
    await kernel.start("run_a", ["writer"], {})
    async with login(shared_url) as url:
        name = name_of(url)
        await kernel.connection.execute(f"alter role {name} set idle_in_transaction_session_timeout = '200ms'")
        async with connected(url) as frozen, connected(url) as other:
            is_cut_off = asyncio.Event()
            frozen.add_termination_listener(lambda _: is_cut_off.set())
            await frozen.execute("begin")
            await frozen.fetchval(
                "select heliograph.enqueue($1, $2, now())", kernel.project, [message("run_a", "writer", "turn_1")]
            )
            # the client is frozen; another caller waits for the head, but not forever
            async with asyncio.timeout(60):
                (answer,) = await Kernel(other, kernel.project, datetime.now(UTC)).call(
                    "enqueue", [message("run_a", "writer", "turn_2")]
                )
            assert answer["outcome"] == "queued"
            async with asyncio.timeout(60):
                await is_cut_off.wait()  # a call at the moment of the cut would raise any of several errors
            with pytest.raises(asyncpg.InterfaceError, match="connection is closed"):
                await frozen.execute("commit")
    turns = await kernel.rows("agent_turns", "agent_turn_id, state")
    assert [tuple(row) for row in turns] == [("turn_2", "active")]
