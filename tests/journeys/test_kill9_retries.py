"""`kill -9` of the worker between the attempts of calls: no attempt is forgotten, and none is granted."""

import json
import os
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.journeys.kill9_retries_app import ATTEMPTS
from tests.journeys.kit import forked
from tests.reach.embedded_kit import eventually, query

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.proves("RET-03")
def test_killed_workers_neither_forget_an_attempt_nor_grant_one(database_url: str, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                   "KILL9_EFFECTS": str(effects)}  # fmt: skip

    def begin(what: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(forked("tests.journeys.kill9_retries_app", what), env=environment, cwd=ROOT,
                                stdout=subprocess.PIPE, text=True)  # fmt: skip

    def has_recorded(count: int) -> bool:
        statement = "select count(*) from heliograph.turn_waiting_tools where status = 'failed'"
        return query(database_url, statement) >= count  # type: ignore[operator]

    starter, worker = begin("start"), begin("work")
    try:
        for attempts in (
            1,
            2,
            ATTEMPTS + 1,
            2 * ATTEMPTS + 1,
        ):  # both pauses of the step, one of the child, one of the tool
            eventually(partial(has_recorded, attempts), 30)
            worker.kill()
            worker.communicate()
            worker = begin("work")
        output, _ = starter.communicate(timeout=40)
    finally:
        for process in (starter, worker):
            process.kill()
            process.communicate()
    _, state = json.loads(output)  # failed, because the attempts of the child are turns that failed
    details = {"retry_count": ATTEMPTS - 1, "max_retries": ATTEMPTS - 1}
    assert state["counts"] == {"step": details, "child": details}
    assert Counter(effects.read_text().split()) == {"step": ATTEMPTS, "child": ATTEMPTS, "lookup": ATTEMPTS}
