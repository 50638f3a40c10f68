"""A checkpoint of a run stands for the log before it: a fork takes over the same from both."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import Any

import asyncpg
import pytest

from heliograph import Context, Heliograph
from heliograph.reactive.shared_log import collected_names
from heliograph.run_fork import fold_prefix, retry_run
from tests.runtime.kit import START, Rig

pytestmark = pytest.mark.more
ROUNDS = 16


def _application() -> Heliograph:
    """Agents that join, skip, fail and change the state, with many signals in each turn."""
    app = Heliograph("long", max_activations=10_000)

    @app.agent(activate_on=[*START, "again"], emits=["noted", "tick"], updates="turns")
    async def writer(ctx: Context) -> int:
        for number in range(60):
            ctx.emit("noted", {"number": number})
        ctx.emit("tick")
        return int(ctx.state.get("turns", 0)) + 1

    @app.agent(activate_on=["tick"], when=lambda state: state["turns"] % 3 == 0, updates="thirds")
    async def third(ctx: Context) -> int:
        return int(ctx.state["turns"])

    @app.agent(activate_on=["tick"])
    async def breaker(ctx: Context) -> None:
        if ctx.state["turns"] % 4 == 0:
            raise ValueError("every fourth")

    @app.agent(activate_when_all=["tick", "noted", "agent:failed"], updates="joined")
    async def joiner(ctx: Context) -> int:
        return int(ctx.state.get("joined", 0)) + 1

    @app.agent(activate_on=["tick"], when=lambda state: state["turns"] < ROUNDS, emits=["again"])
    async def closer(_ctx: Context) -> None: ...

    return app


async def _folds(rig: Rig, app: Heliograph, positions: list[int]) -> tuple[list[dict[str, Any]], int]:
    """What a fork at each position takes over, and how many folds began at a checkpoint."""
    found, checkpoints = [], 0
    for seq in positions:
        prefix = await rig.runtime.reader.forks.shared_prefix("first", seq, collected_names(app.workflow))
        assert prefix is not None
        checkpoints += prefix.checkpoint is not None
        taken = asdict(fold_prefix(app.workflow, "first", prefix))
        left_out = ("workflow", "ended", "_joined")
        for key in ("joins", "join_signals"):
            taken[key] = {agent: met for agent, met in taken[key].items() if met}
        found.append({key: value for key, value in taken.items() if key not in left_out})
    return found, checkpoints


async def test_fork_takes_over_the_same_from_a_checkpoint_as_from_the_whole_log(rig: Rig) -> None:
    app = _application()
    result = await rig.run(app, run_id="first")
    assert result.state["turns"] == ROUNDS
    positions = list(range(250, len(result.signals) - 20, 41))
    by_checkpoint, checkpoints = await _folds(rig, app, positions)
    connection = await asyncpg.connect(rig.url)
    sizes = await connection.fetch(
        "select seq, cardinality(in_progress) as open from heliograph.run_checkpoints order by seq"
    )
    await connection.execute("delete from heliograph.run_checkpoints")
    await connection.close()
    whole, rest = await _folds(rig, app, positions)
    for seq, taken, full in zip(positions, by_checkpoint, whole, strict=True):
        assert {key: taken[key] for key in taken if taken[key] != full[key]} == {}, seq
    assert (checkpoints > len(positions) * 3 / 4, rest) == (True, 0)
    assert len(sizes) >= 2
    assert max(row["open"] for row in sizes) > 0


async def test_run_is_retried_before_its_first_failure_also_if_checkpoints_follow(rig: Rig) -> None:
    app = _application()
    result = await rig.run(app, run_id="first")
    failed = next(signal for signal in result.signals if signal.name == "agent:failed")
    made = await retry_run(rig.runtime, app.workflow, "first", "again")
    assert [turn.agent for turn in made.turns if turn.turn_id == failed.turn_id] == ["breaker"]
    shared = int(made.signal.rpartition("_")[2])
    assert not any(signal.name == "agent:failed" for signal in result.signals[:shared])
    assert await rig.runtime.reader.forks.first_failure("nobody") is None
    await rig.run(app, run_id="again")


async def test_fork_folds_the_whole_log_if_the_memory_of_a_checkpoint_is_damaged(rig: Rig) -> None:
    app = _application()
    await rig.run(app, run_id="first")
    connection = await asyncpg.connect(rig.url)
    await connection.execute("update heliograph.run_checkpoints set memory = '{\"joins\": 7}'")
    await connection.close()
    prefix = await rig.runtime.reader.forks.shared_prefix("first", 600, None)
    assert prefix is not None
    assert (prefix.checkpoint, prefix.entries[0].seq, prefix.entries[-1].seq) == (None, 1, prefix.seq)


async def test_run_with_large_commits_gets_checkpoints(rig: Rig) -> None:
    app = Heliograph("large")

    @app.agent(
        activate_on=[*START, "again"],
        when=lambda state: state.get("turns", 0) < 5,
        emits=["noted", "again"],
        updates="turns",
    )
    async def writer(ctx: Context) -> int:
        for number in range(800):  # over three distances in one commit
            ctx.emit("noted", {"number": number})
        ctx.emit("again")
        return int(ctx.state.get("turns", 0)) + 1

    result = await rig.run(app, run_id="first")
    prefix = await rig.runtime.reader.forks.shared_prefix(
        "first", len(result.signals) - 2, collected_names(app.workflow)
    )
    assert prefix is not None
    assert prefix.checkpoint is not None
    assert len(prefix.entries) < 20


async def test_log_of_large_signals_is_read_in_pages_of_bounded_size(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app, forks, pages = Heliograph("heavy"), rig.runtime.reader.forks, list[int]()

    @app.agent(activate_on=START, emits=["noted"])
    async def writer(ctx: Context) -> None:
        for number in range(8):
            for each in range(10):
                ctx.emit("noted", "".join(sha256(f"{number} {each} {n}".encode()).hexdigest() for n in range(1000)))
            await ctx.step(f"step-{number}", lambda: None)

    result = await rig.run(app, run_id="first")
    assert result.outcome == "success", result.failures
    read = forks._page

    async def counted(*args: Any) -> Any:
        page = await read(*args)
        pages.append(len(page["entries"]))
        return page

    monkeypatch.setattr(type(forks), "_page", lambda self, *args: counted(*args))
    last = result.signals[-1].seq
    prefix = await forks.shared_prefix("first", last, None)
    assert prefix is not None
    assert [entry.seq for entry in prefix.entries] == list(range(1, last + 1))
    assert len(pages) > 1


async def test_look_that_was_due_while_a_reaction_was_pending_is_made_when_it_commits(rig: Rig) -> None:
    app = Heliograph("pending", max_activations=10_000)

    @app.agent(activate_on=START, emits=["noted"])
    async def writer(ctx: Context) -> None:
        for number in range(700):  # each progress wakes the other agent while this turn runs
            ctx.emit("noted", {"number": number})
            if number % 90 == 0:
                ctx.progress(number / 700)
                await ctx.sleep(0.02)

    @app.agent(activate_on=["agent:progress"], updates="seen")
    async def watcher(ctx: Context) -> int:
        return int(ctx.state.get("seen", 0)) + 1

    result = await rig.run(app, run_id="first")
    connection = await asyncpg.connect(rig.url)
    kept = await connection.fetchval("select count(*) from heliograph.run_checkpoints")
    await connection.close()
    assert result.state["seen"] == 8
    assert kept > 0
