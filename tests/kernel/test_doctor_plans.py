"""The doctor reads each row a few times, with any statistics of the planner."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from heliograph.testing.database import TestServer
from tests.kernel.kit import TABLES, Kernel, connect
from tests.kernel.waits import activated, child, suspended

CHILDREN = 300
TIMES = 5  # that a check may look at each row of the project: it joins five tables at most

PARTS = """
select p.proname, p.prosrc from pg_proc p
 where p.pronamespace = 'heliograph'::regnamespace and p.proname like '\\_doctor\\_%' order by p.proname
"""


async def forked(kernel: Kernel) -> None:
    """A turn that has waited for its children; all have ended but the turn itself."""
    await kernel.call("set_limits", {"queue_max": 2 * CHILDREN, "waits_max": 2 * CHILDREN})
    calls = [child(f"c{n}", "critic", f"turn_{n}", n, instance=f"i{n}") for n in range(CHILDREN)]
    await suspended(kernel, *calls, signals=activated("critic") * CHILDREN)
    version = (await kernel.run("run_a"))["version"]
    for claimed in await kernel.claim(CHILDREN):
        await kernel.finish(claimed, version=version)
        version += 1
    for _ in range(CHILDREN // 100 + 1):
        await kernel.sweep("reports")


async def plans(kernel: Kernel) -> dict[str, list[Any]]:
    """The executed plans of each check, under the settings of the doctor."""
    settings = await kernel.connection.fetchval(
        "select proconfig from pg_proc where oid = 'heliograph.doctor'::regproc"
    )
    for setting in settings:
        name, _, value = setting.partition("=")
        await kernel.connection.execute("select set_config($1, $2, false)", name, value)
    found = {}
    for part, source in await kernel.connection.fetch(PARTS):
        query = source.replace("p_project", f"'{kernel.project}'").replace("p_quiescent", "false")
        [explained] = await kernel.connection.fetchval(f"explain (analyze, timing off, format json) {query}")
        plan = explained["Plan"]
        found[part] = plan["Plans"] if plan["Node Type"] == "Append" else [plan]
    return found


def looked_at(node: dict[str, Any]) -> float:
    """How many rows this node and those below it passed on, or compared and dropped."""
    dropped = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    return float((node["Actual Rows"] + dropped) * node["Actual Loops"]) + sum(map(looked_at, node.get("Plans", [])))


@pytest.mark.more
async def test_database_that_was_never_analyzed_is_examined_in_proportion_to_its_rows(postgres: TestServer) -> None:
    url = await postgres.create()
    kernel = Kernel(await connect(url), "never-analyzed")
    await forked(kernel)
    rows = sum([await _count(kernel.connection, table) for table in TABLES])
    dear = {
        (part, number): round(looked_at(check) / rows, 1)
        for part, checks in (await plans(kernel)).items()
        for number, check in enumerate(checks, 1)
        if looked_at(check) > TIMES * rows
    }
    assert dear == {}
    assert await kernel.call("doctor", False) == []
    await kernel.connection.close()
    await postgres.drop(url)


async def _count(connection: asyncpg.Connection, table: str) -> int:
    return int(await connection.fetchval(f"select count(*) from heliograph.{table}"))
