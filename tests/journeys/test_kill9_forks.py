"""`kill -9` of workers while a hundred children are forked and joined."""

import json
import os
import random
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.kill9_forks_app import CHILDREN, MAPPED
from tests.journeys.kit import fetch, forked
from tests.reach.embedded_kit import eventually

ROOT = Path(__file__).parent.parent.parent
KILLS = 6


@pytest.mark.proves("L0-38", "L0-63", "L0-111", "K4", "K15")
async def test_hundred_children_end_and_the_parent_resumes_exactly_once_despite_kills(
    database_url: str, tmp_path: Path
) -> None:
    output, ran = run_with_kills(database_url, tmp_path, CHILDREN, KILLS)
    assert output == ["success", [n * n for n in range(CHILDREN)]]
    assert ran["joined"] == 1
    assert all(ran[f"child-{n}"] >= 1 for n in range(CHILDREN))
    assert sum(ran.values()) > CHILDREN + 11  # some of them were lost in the middle and begun again
    [row] = await fetch(database_url, """
        select (select count(*) from heliograph.turn_waiting_tools where kind = 'child' and status = 'success') as joined,
               (select count(*) from heliograph.agent_turns where agent_id like '%/child/%') as children,
               (select count(*) from heliograph.agent_turns where attempts > 0) as recovered,
               (select count(distinct turn_epoch) from heliograph.leases l
                  join heliograph.agent_turns t using (project_id, agent_turn_id) where t.depth = 0) as claims""")  # fmt: skip
    assert (row["joined"], row["children"]) == (CHILDREN, CHILDREN)
    assert row["recovered"] > 0
    parents = await fetch(database_url, "select attempts from heliograph.agent_turns where depth = 0")
    assert row["claims"] == 2 + parents[0]["attempts"]  # once to fork, once to join, and once for each worker it lost
    [found] = await fetch(database_url, "select heliograph.doctor('default', false) as found")
    assert json.loads(found["found"]) == []


@pytest.mark.more
async def test_mapped_children_survive_kills_and_never_exceed_their_limit(database_url: str, tmp_path: Path) -> None:
    output, ran = run_with_kills(database_url, tmp_path, MAPPED, 3, limit=4)
    assert output == ["success", [n * n for n in range(MAPPED)]]
    assert all(ran[f"child-{n}"] >= 1 for n in range(MAPPED))
    [row] = await fetch(database_url, """
        select count(*) as children, (select max(open) from (
                 select sum(case e.entry -> 'payload' ->> 'status' when 'accepted' then 1 when 'completed' then -1 else 0 end)
                        over (order by s.seq, e.n) as open
                   from heliograph.signals s, jsonb_array_elements(s.entries) with ordinality e (entry, n)
                  where e.entry ->> 'name' in ('delegation', 'delegation_response')) o) as most
          from heliograph.agent_turns where agent_id like '%/child/%'""")  # fmt: skip
    assert (row["children"], row["most"]) == (MAPPED, 4)


def run_with_kills(
    database_url: str, tmp_path: Path, count: int, kills: int, limit: int = 0
) -> tuple[Any, Counter[str]]:
    """The outcome of a run of `count` children whose workers are killed, and how often each effect happened."""
    effects = tmp_path / "effects"
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                   "KILL9_EFFECTS": str(effects), "KILL9_LIMIT": str(limit)}  # fmt: skip

    def begin(what: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(forked("tests.journeys.kill9_forks_app", what), env=environment, cwd=ROOT,
                                stdout=subprocess.PIPE, text=True)  # fmt: skip

    def begun() -> Counter[str]:
        return Counter(effects.read_text().split() if effects.exists() else [])

    def is_begun(number: int) -> bool:
        return len(begun()) >= number

    starter = begin("start")
    workers = [begin("work"), begin("work")]
    dice = random.Random(7)
    try:
        for kill in range(1, kills + 1):
            has_gone_on = partial(is_begun, kill * count // (kills + 2))
            eventually(has_gone_on, 30)
            victim = dice.randrange(2)
            workers[victim].kill()
            workers[victim].communicate()
            workers[victim] = begin("work")
        output, _ = starter.communicate(timeout=40)
    finally:
        for process in (starter, *workers):
            process.kill()
            process.communicate()
    return json.loads(output), begun()
