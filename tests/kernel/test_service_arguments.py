"""What a service login may name: times near the server's, parents that the log has, and result fields as the client checks them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import pytest
import pytest_asyncio

from heliograph.ledger.roles import SERVICES
from tests.kernel.filled import fill
from tests.kernel.kit import Kernel
from tests.kernel.strangers import functions, known
from tests.kernel.test_tenancy import fitted
from tests.kernel.waits import TOKEN
from tests.logins import connected, login

FAR = [
    "infinity",
    "-infinity",
    "4713-01-01 BC",
    "294276-01-01",
    "now() + interval '25 hours'",
    "now() - interval '25 hours'",
]
MAY = "select p.proname from pg_proc p where p.pronamespace = 'heliograph'::regnamespace and has_function_privilege(p.oid, 'execute')"


@pytest_asyncio.fixture
async def service(kernel: Kernel, shared_url: str) -> AsyncIterator[Kernel]:
    """The project's kernel as a login with all service roles calls it, at the server's time."""
    async with login(shared_url, kernel.project, services=SERVICES) as url, connected(url) as connection:
        yield Kernel(connection, kernel.project, datetime.now(UTC))


@pytest.mark.proves("S26")
@pytest.mark.parametrize("time", [*FAR, None], ids=str)
async def test_a_service_names_no_time_far_from_the_servers(kernel: Kernel, service: Kernel, time: str | None) -> None:
    await fill(kernel)
    before, ids = await kernel.everything(), await known(kernel, TOKEN, 0.0)
    may = {row[0] for row in await service.connection.fetch(MAY)}
    far = "null::timestamptz" if time is None else time if time.startswith("now") else f"'{time}'::timestamptz"
    refused = set()
    for function in await functions(kernel.connection):
        names = [name for name, _ in function.parameters]
        if function.name not in may or "p_now" not in names:
            continue
        assert names[-1] == "p_now"
        arguments = fitted(function, next(function.tries(kernel.project, ids)))[:-1]
        statement = function.call().replace(f"${len(names)}::timestamp with time zone", far)
        with pytest.raises(asyncpg.InvalidParameterValueError, match="p_now is within a day of the server's time"):
            await service.connection.fetch(statement, *arguments)
        refused.add(function.name)
    assert len(refused) > 30
    assert await kernel.everything() == before


@pytest.mark.proves("S26")
async def test_a_service_works_at_the_servers_time_and_an_operator_at_any(kernel: Kernel, service: Kernel) -> None:
    assert (await service.start("run_a", ["writer"], {"turn_a": "writer"}))["outcome"] == "started"
    kernel.now = datetime(2100, 1, 1, tzinfo=UTC)
    assert (await kernel.claim_one())["turn_id"] == "turn_a"


@pytest.mark.proves("S2")
async def test_a_service_reads_every_view_row_by_row(kernel: Kernel, service: Kernel) -> None:
    await fill(kernel)
    views = await kernel.connection.fetch(
        "select relname from pg_class where relnamespace = 'heliograph'::regnamespace and relkind = 'v' order by 1"
    )
    for (view,) in views:
        assert len(await service.connection.fetch(f"select * from heliograph.{view}")) > 0
