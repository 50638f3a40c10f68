"""Commands survive rows that no client can decode, and print them: the test poisons each JSON column (S22)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from heliograph import Context, Heliograph
from heliograph.config import Settings
from heliograph.runtime import open_runtime
from tests.faces.cli_support import open_shell
from tests.runtime import poison
from tests.runtime.kit import Rig

app = Heliograph("poisoned")


@app.agent(activate_on=["workflow:start"], updates="seen", budget={"tokens": 100})
async def asker(c: Context) -> object:
    await c.step("large", lambda: c.run_id + "x" * 300_000)
    await c.remember("a memory", of=c.run_id)
    if c.document["waits"]:
        await c.approve("may I go on?")
    return c.document


async def prepare(url: str, name: str, where: str) -> tuple[str, str]:
    """A run that waits for a person and one that has ended, all of whose columns are poisoned. Returns their ids."""
    async with open_runtime(Settings(database_url=url)) as runtime:
        rig = Rig(runtime, url)
        ended, waiting = [await rig.start(app, {"waits": waits}) for waits in (False, True)]
        async with rig.serving(app):
            await rig.ended(ended)
            await rig.turn_of("asker", "suspended")
    connection = await asyncpg.connect(url)
    try:
        for run_id in (waiting, ended):
            for column in poison.COLUMNS:
                await poison.put(connection, column, run_id, poison.POISONS[name], where)
    finally:
        await connection.close()
    return waiting, ended


@pytest.mark.more
@pytest.mark.proves("S22")
@pytest.mark.parametrize(("name", "where"), [("huge", "instead"), ("deep", "inside")])
def test_every_command_survives_poisoned_rows_and_prints_them(
    tmp_path: Path, database_url: str, name: str, where: str
) -> None:
    shell = open_shell(tmp_path, database_url)
    runs = asyncio.run(prepare(database_url, name, where))
    turns = {str(row["run_id"]): str(row["turn_id"]) for row in shell.rows("turn", "list")}
    assert {row["run_id"] for row in shell.rows("run", "list")} == set(turns) == set(runs)
    for run_id, options in zip(runs, ([], ["--json"]), strict=True):
        shows_it = [
            ("turn", "show", turns[run_id]), ("box", "show", f"box_{turns[run_id]}"), ("signal", "tail", "--run", run_id),
        ]  # fmt: skip
        for command in shows_it:
            done = shell.helio(*command, *options)
            assert (done.returncode, done.stderr) == (0, ""), command
            assert "undecodable" in done.stdout, command
        for command in [
            ("turn", "children", turns[run_id]),
            ("call", "list"),
            ("approval", "list"),
            ("callback", "list"),
            ("db", "doctor"),
            ("signal", "tree", run_id),
            ("signal", "graph", run_id),
            ("signal", "why", f"sig_{run_id}_3"),
            ("signal", "why-not", run_id, "asker"),
        ]:
            done = shell.helio(*command, *options)
            assert done.returncode == 0 or command[0] == "db", command  # the doctor has found something
            assert "Traceback" not in done.stderr, command
    waiting, _ = runs
    answered = shell.helio("approval", "grant", turns[waiting], "c3")
    assert "Traceback" not in answered.stderr
    assert shell.helio("turn", "stop", turns[waiting]).returncode == 0
    assert shell.helio("run", "stop", waiting).returncode == 0


ENDS = ["null", "5", "[1]", "{}", '{"outcome": 5}', poison.HUGE, poison.DEEP,
        '{"outcome": "success", "state": [], "metrics": {}}',
        '{"outcome": "success", "state": {}, "metrics": {"turns": 1, "failed": 0, "skipped": 0, "duration_ms": 1e300,'
        ' "usage": {"inputTokens": 0, "outputTokens": 0}}}']  # fmt: skip
APP = """
from heliograph import Heliograph

app = Heliograph("poisoned")


@app.agent(activate_on=["workflow:start"], updates="seen")
def asker(c):
    return 1
"""


async def end_one(url: str) -> str:
    async with open_runtime(Settings(database_url=url)) as runtime:
        rig = Rig(runtime, url)
        run_id = await rig.start(app, {"waits": False})
        async with rig.serving(app):
            await rig.ended(run_id)
    return run_id


async def replace_end(url: str, run_id: str, entry: str) -> None:
    """Replace the entry of `workflow:end` by itself with these parts."""
    connection = await asyncpg.connect(url)
    try:
        done = await connection.execute(
            "update heliograph.signals set entries ="
            " (select jsonb_agg(case when e ->> 'name' ~ '^workflow:(end|gone)' then e || $2::text::jsonb else e end order by n)"
            "    from jsonb_array_elements(entries) with ordinality x (e, n))"
            " where run_id = $1 and entries::text ~ 'workflow:(end|gone)'",
            run_id, entry,
        )  # fmt: skip
        assert done == "UPDATE 1"
    finally:
        await connection.close()


@pytest.mark.more
@pytest.mark.proves("S22")
def test_run_command_names_the_signal_of_an_end_that_was_replaced(tmp_path: Path, database_url: str) -> None:
    shell = open_shell(tmp_path, database_url)
    run_id = asyncio.run(end_one(database_url))
    (tmp_path / "poisoned.py").write_text(APP)
    command = ("run", f"{tmp_path}/poisoned.py:app", "--run-id", run_id)
    for payload in ENDS:
        asyncio.run(replace_end(database_url, run_id, f'{{"payload": {payload}}}'))
        done = shell.helio(*command)
        assert done.returncode == 1, (payload, done.stdout, done.stderr)
        assert "workflow:end" in done.stderr, payload
        assert f"sig_{run_id}_" in done.stderr, payload
        assert "Traceback" not in done.stderr, payload
    asyncio.run(replace_end(database_url, run_id, '{"name": "workflow:gone"}'))
    done = shell.helio(*command)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert f"run {run_id} has ended, but its log does not end with workflow:end" in done.stderr
