"""`kill -9` in the middle of tools: one that may happen once, one that writes with its result, one of an MCP program."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.journeys.kit import fetch, forked
from tests.reach.embedded_kit import eventually

ROOT = Path(__file__).parent.parent.parent


def open_gate(path: str) -> None:
    Path(path).touch()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.proves("K13", "K14")
async def test_turn_killed_in_the_middle_of_each_tool_makes_each_effect_at_most_once(
    database_url: str, tmp_path: Path
) -> None:
    effects, gate = tmp_path / "effects", tmp_path / "gate-"
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                   "KILL9_EFFECTS": str(effects), "KILL9_GATE": str(gate)}  # fmt: skip
    await fetch(database_url, "create table bookings (key text)")

    def begin() -> "subprocess.Popen[str]":
        return subprocess.Popen(forked("tests.journeys.kill9_tools_app", "run_tools"), env=environment,
                                cwd=ROOT, stdout=subprocess.PIPE, text=True)  # fmt: skip

    def killed_when(began: list[str]) -> None:
        process = begin()
        eventually(lambda: effects.exists() and effects.read_text().split() == began, 40)
        process.kill()
        process.communicate()

    killed_when(["mark"])
    killed_when(["mark", "book"])
    assert await fetch(database_url, "select * from bookings") == []
    open_gate(f"{gate}book")
    process = begin()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    pid, mark, book = json.loads(output)
    assert mark.startswith("IN_DOUBT: ")
    assert book == "booked"
    assert effects.read_text().split() == ["mark", "book", "book"]
    assert len(await fetch(database_url, "select * from bookings")) == 1
    eventually(lambda: is_gone(pid["result"]), 20)  # the first process was killed, and its program has noticed
