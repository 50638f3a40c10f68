"""`kill -9` in the middle of a turn, and the same command again."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.kit import forked
from tests.reach.embedded_kit import eventually

ROOT = Path(__file__).parent.parent.parent


class Journey:
    """The processes of one run, the files to which they write their effects, and the gate that stops the agent in the middle."""

    def __init__(self, url: str, folder: Path, effect: str):
        self.effects, self.gate = folder / "effects", folder / "gate"
        self._command = forked("tests.journeys.kill9_app", "run_kill9", effect)
        self._environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": url, "PYTHONPATH": str(ROOT),
                             "KILL9_EFFECTS": str(self.effects), "KILL9_GATE": str(self.gate)}  # fmt: skip

    def begin(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self._command, env=self._environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def killed_in_the_middle(self, times: int) -> None:
        process = self.begin()
        eventually(lambda: self.ran()["middle"] == times, 30)
        process.kill()
        process.communicate()

    def result(self) -> Any:
        process = self.begin()
        output, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        return json.loads(output)

    def ran(self) -> Counter[str]:
        return Counter(self.effects.read_text().split() if self.effects.exists() else [])


@pytest.mark.proves("L0-111", "G-62")
def test_run_of_a_killed_process_continues_and_repeats_no_finished_turn(database_url: str, tmp_path: Path) -> None:
    journey = Journey(database_url, tmp_path, "idempotent")
    journey.killed_in_the_middle(1)
    journey.killed_in_the_middle(2)
    journey.gate.touch()
    assert journey.result() == ["success", {"done": ["first", "last", "middle"]}]
    assert journey.ran() == {"first": 1, "middle": 3, "last": 1}
    assert journey.result() == ["success", {"done": ["first", "last", "middle"]}]  # over: it is only read
    assert journey.ran() == {"first": 1, "middle": 3, "last": 1}


@pytest.mark.proves("K14")
def test_once_agent_of_a_killed_process_never_runs_again(database_url: str, tmp_path: Path) -> None:
    journey = Journey(database_url, tmp_path, "once")
    journey.killed_in_the_middle(1)
    journey.gate.touch()
    assert journey.result() == ["failed", {"done": ["first"]}]
    assert journey.ran() == {"first": 1, "middle": 1}
