"""`kill -9` in each phase of an agent with hooks and between every two hooks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.journeys.kit import fetch, forked

ROOT = Path(__file__).parent.parent.parent
PROCESSES_MAX = 60
HOOKS = ["init-0", "plan-0", "act-0", "reflect-0", "plan-1", "act-1", "reflect-1", "terminate-1"]
SIGNALS = ["ready", "plan_ready", "action_complete", "reflection_complete", "plan_ready", "action_complete", "reflection_complete",
           "terminated"]  # fmt: skip


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.more
@pytest.mark.proves("LC-02", "LC-22", "LC-32", "LC-72", "LC-63", "LC-52")
async def test_each_hook_takes_effect_once_although_each_of_its_places_kills_a_process(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "places").mkdir()
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": str(ROOT),
                   "KILL9_FOLDER": str(tmp_path)}  # fmt: skip
    command = forked("tests.journeys.kill9_hooks_app", "run_hooks")
    ended = [run(command, environment)]
    while ended[-1].returncode == -9 and len(ended) < PROCESSES_MAX:
        ended.append(run(command, environment))
    assert ended[-1].returncode == 0, ended[-1].stderr
    places = sorted(place.name for place in (tmp_path / "places").iterdir())
    assert len(ended) - 1 == len(places) == 4 * len(HOOKS) - 1 - 4 + 1, places
    outcome, state = json.loads(ended[-1].stdout)
    assert (outcome, state) == ("success", {"did": HOOKS[:-2]})
    assert (tmp_path / "effects").read_text().split() == HOOKS
    rows = await fetch(database_url, "select entry ->> 'name' as name from heliograph.signals s, "
                       "jsonb_array_elements(s.entries) with ordinality e (entry, n) order by s.seq, e.n")  # fmt: skip
    assert [row["name"] for row in rows if row["name"] in SIGNALS] == SIGNALS
    heads = await fetch(database_url, "select status, owner, active_agent_turn_id from heliograph.agent_state_head")
    assert [tuple(head) for head in heads] == [("idle", None, None)]
    assert (
        await fetch(database_url, "select tool_call_id from heliograph.turn_waiting_tools where state = 'open'") == []
    )
