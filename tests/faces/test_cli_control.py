"""`helio signal control`: the control signals of a run in envelopes, as lines and as JSON."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from heliograph.control.envelope import read_envelope
from tests.faces.cli_support import Shell, normalised, open_shell

LINES = """\
TIME  sig_run_ID_3  ready  writer -> runtime  {"capabilities":["draft:ready"],"version":"1","metadata":{"runtime":"PYTHON","tools_loaded":0}}
TIME  sig_run_ID_13  ready  critic -> runtime  {"capabilities":[],"version":"1","metadata":{"runtime":"PYTHON","tools_loaded":0}}"""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    opened = open_shell(tmp_path, database_url)
    assert opened.helio("run", "press.py:app").returncode == 0
    return opened


async def empty_payload(url: str, agent: str, name: str) -> None:
    """Replace the payload of an agent's signals of this name by one without a key."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            """update heliograph.signals set entries = (
                   select jsonb_agg(case when e ->> 'agent' = $1 and e ->> 'name' = $2
                                         then e || '{"payload": {}}' else e end order by n)
                     from jsonb_array_elements(entries) with ordinality x (e, n))""",
            agent,
            name,
        )
    finally:
        await connection.close()


@pytest.mark.proves("ENV-01", "CTL-95")
def test_control_signals_of_a_run_are_printed_as_lines_and_as_envelopes(shell: Shell) -> None:
    run_id = shell.rows("run", "list")[0]["run_id"]
    for follow in ((), ("--follow",)):
        done = shell.helio("signal", "control", run_id, *follow)
        assert (done.returncode, normalised(done.stdout)) == (0, LINES)
        strict = shell.helio("signal", "control", run_id, "--strict", *follow)
        assert (strict.returncode, strict.stdout) == (0, done.stdout), "no error has a code of our own"
        rows = shell.rows("signal", "control", run_id, *follow)
        assert [(row["envelope"]["source"], row["envelope"]["signal"]["type"]) for row in rows] == [
            ("writer", "ready"), ("critic", "ready"),
        ]  # fmt: skip
        assert [read_envelope(row).to_wire() for row in rows] == rows


def test_malformed_signal_is_reported_and_the_others_are_printed(shell: Shell, database_url: str) -> None:
    run_id = shell.rows("run", "list")[0]["run_id"]
    asyncio.run(empty_payload(database_url, "writer", "ready"))
    for follow in ((), ("--follow",)):
        done = shell.helio("signal", "control", run_id, *follow)
        assert (done.returncode, normalised(done.stdout)) == (1, LINES.splitlines()[1])
        assert f"error: the payload of sig_{run_id}_3 (ready) is malformed: " in done.stderr
        assert f"hint: helio signal tail --run {run_id} shows it" in done.stderr


def test_control_signals_of_an_unknown_run_are_rejected(shell: Shell) -> None:
    for follow in ((), ("--follow",)):
        done = shell.helio("signal", "control", "run_none", *follow)
        assert (done.returncode, done.stdout) == (3, "")
        assert "no run run_none" in done.stderr
