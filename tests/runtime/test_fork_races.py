"""Forks beside a prune, beside each other, and of forks whose origin is pruned."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from heliograph.errors import Conflict, HeliographError, NotFound
from heliograph.run_fork import Fork, fork_run
from tests.runtime.kit import Rig
from tests.runtime.test_run_forks import Shop, first_run, fork

pytestmark = pytest.mark.more
_PRUNED = {"unknown_run", "pruned_run", "pruned_signal", "pruned_turn"}
_RUNS = 5


async def prune(rig: Rig) -> int:
    """Delete what has ended by now; return the number of runs."""
    runs = 0
    more = True
    while more:
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        query = "select heliograph.prune($1, $2, 3, clock_timestamp()) as answer"
        [row] = await rig.fetch(query, rig.runtime.settings.project, before)
        answer = json.loads(row["answer"])
        runs, more = runs + int(answer["runs"]), answer["more"]
    return runs


async def test_fork_beside_a_prune_shares_a_whole_log_or_is_rejected(rig: Rig) -> None:
    drawn, shop, made = random.Random(5), Shop(), list[Fork]()
    results = [await rig.run(shop.app, run_id=f"run-{n}") for n in range(_RUNS)]
    last = next(signal.seq for signal in results[0].signals if signal.name == "mailed")
    codes = set[str]()

    async def fork_some(who: int) -> None:
        for n in range(_RUNS):
            origin, at = f"run-{drawn.randrange(_RUNS)}", drawn.randint(1, last)
            try:
                made.append(await fork_run(rig.runtime, shop.app.workflow, origin, at, None, f"fork-{who}-{n}"))
            except HeliographError as error:
                codes.add(str(error.code))

    async def prune_always() -> None:
        while True:
            await prune(rig)

    pruning = asyncio.create_task(prune_always())
    await asyncio.gather(fork_some(0), fork_some(1))
    pruning.cancel()
    assert made
    assert codes <= _PRUNED
    for each in made:
        result = await rig.run(shop.app, run_id=each.run_id)
        assert (result.outcome, result.state) == ("success", {"amount": 40, "mail": "40 paid", "ended": True})
        assert [signal.seq for signal in result.signals] == list(range(1, len(result.signals) + 1))
    await asyncio.sleep(0.01)
    await prune(rig)  # forks before the runs that they share
    await prune(rig)
    assert await rig.runtime.reader.runs(10) == []
    for read in (rig.runtime.reader.run("run-1"), fork_run(rig.runtime, shop.app.workflow, "run-1", 3, None, None)):
        with pytest.raises(
            NotFound, match=r"run run-1 is pruned .*; to keep runs for longer, give helio db prune"
        ) as caught:
            await read
        assert caught.value.code == "pruned_run"


async def test_calls_for_one_fork_at_the_same_time_make_one(rig: Rig) -> None:
    shop = Shop()
    ids = await first_run(rig, shop)
    same = await asyncio.gather(*(fork(rig, shop, ids["paid"]) for _ in range(3)))
    assert sorted(each.is_new for each in same) == [False, False, True]
    assert len({each.turns for each in same}) == 1
    others = await asyncio.gather(
        *(fork(rig, shop, ids["paid"], {"amount": n}, "other") for n in range(3)), return_exceptions=True
    )
    assert Counter(map(type, others)) == {Fork: 1, Conflict: 2}
    for name in ("fork", "other"):
        assert (await rig.run(shop.app, run_id=name)).outcome == "success"


async def test_fork_of_a_pruned_fork_remains_and_can_be_forked(rig: Rig) -> None:
    shop = Shop()
    ids = await first_run(rig, shop)
    await fork(rig, shop, ids["paid"], None, "middle")
    await rig.run(shop.app, run_id="middle")
    await fork_run(rig.runtime, shop.app.workflow, "middle", ids["paid"], None, "late")
    assert await prune(rig) == 1
    with pytest.raises(NotFound) as caught:
        await fork_run(rig.runtime, shop.app.workflow, "middle", 1)
    assert caught.value.code == "pruned_run"
    await fork_run(rig.runtime, shop.app.workflow, "late", 2, {"amount": 1}, "again")
    for name in ("late", "again"):
        result = await rig.run(shop.app, run_id=name)
        assert (result.outcome, result.state["mail"]) == ("success", "40 paid")
        assert result.signals[0].id == "sig_first_1"
