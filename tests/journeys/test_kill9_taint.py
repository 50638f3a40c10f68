"""`kill -9` of a worker whose turn read untrusted content: the next worker requires the same approval."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.journeys.kit import forked
from tests.reach.embedded_kit import eventually

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.proves("S24")
def test_recovered_turn_keeps_its_taint(database_url: str, tmp_path: Path) -> None:
    began, gate = tmp_path / "began", tmp_path / "gate"
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                   "KILL9_EFFECTS": str(began), "KILL9_GATE": str(gate)}  # fmt: skip

    def begin() -> "subprocess.Popen[str]":
        return subprocess.Popen(forked("tests.journeys.kill9_taint_app", "run_taint"), env=environment,
                                cwd=ROOT, stdout=subprocess.PIPE, text=True)  # fmt: skip

    process = begin()
    eventually(began.exists, 40)
    process.kill()
    process.communicate()
    gate.touch()
    process = begin()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(output) == [
        "May payer call pay? The agent has read untrusted content: state.order.", "success",
    ]  # fmt: skip
