"""Commands survive rows that hold what no client can decode, and show them: each column of JSON is poisoned by hand (S22)."""

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
    """A run that waits for a person and one that has ended, all of whose columns are poisoned. Answers their ids."""
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


@pytest.mark.proves("S22")
@pytest.mark.parametrize(("name", "where"), [("huge", "instead"), ("deep", "inside")])
def test_every_command_survives_poisoned_rows_and_shows_them(
    tmp_path: Path, database_url: str, name: str, where: str
) -> None:
    shell = open_shell(tmp_path, database_url)
    runs = asyncio.run(prepare(database_url, name, where))
    turns = {str(row["run_id"]): str(row["turn_id"]) for row in shell.rows("turn", "list")}
    assert {row["run_id"] for row in shell.rows("runs")} == set(turns) == set(runs)
    for run_id, options in zip(runs, ([], ["--json"]), strict=True):
        shows_it = [
            ("turn", "show", turns[run_id]), ("box", "show", f"box_{turns[run_id]}"), ("signal", "trace", run_id),
            ("signal", "tail", "--run", run_id), ("signal", "why", f"sig_{run_id}_3"),
        ]  # fmt: skip
        for command in shows_it:
            done = shell.helio(*command, *options)
            assert (done.returncode, done.stderr) == (0, ""), command
            assert "undecodable" in done.stdout, command
        for command in [
            ("turn", "children", turns[run_id]),
            ("calls",),
            ("approval", "list"),
            ("callback", "list"),
            ("db", "doctor"),
        ]:
            done = shell.helio(*command, *options)
            assert done.returncode in (0, 1), command  # 1: the doctor has found something
            assert "Traceback" not in done.stderr, command
    waiting, _ = runs
    answered = shell.helio("approval", "grant", turns[waiting], "c3")
    assert "Traceback" not in answered.stderr
    assert shell.helio("turn", "stop", turns[waiting]).returncode == 0
    assert shell.helio("runs", "stop", waiting).returncode == 0
