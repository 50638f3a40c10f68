"""The application that chaos serves: parallel critics, agents with effects outside, agents that wait (waiting.py), and
an editor joined on all.

Every execution of `payer` (effect="once") and `filer` (idempotent) leaves a mark in a file, keyed by the turn: that
file, and no table, says how often something really happened. How slow an agent is depends on the run alone, around one
lease (CHAOS_LEASE seconds) in CHAOS_SLOW percent of the cases, so that workers lose turns while they live, too.
"""

from __future__ import annotations

import time
from typing import Any

from heliograph import Context, Heliograph, ModelRequest, ScriptedModel
from tests.journeys.chaos.marks import LEASE_SECONDS, append_mark, chance, is_slow
from tests.journeys.chaos.waiting import WAITING, add_waiting_agents, expected_of_waiting

CRITICS = ("claims", "prose", "structure")


def merged(old: Any, new: Any) -> list[str]:
    return sorted({*(old or []), *new})


app = Heliograph("chaos", reducers={"found": merged})


async def think(ctx: Context) -> None:
    """A few milliseconds; in some runs around one lease, with the heart beating or (a blocked loop) without."""
    if not is_slow(ctx):
        await ctx.sleep(0.002 + 0.03 * chance(ctx, "pause"))
    elif chance(ctx, "blocks") < 0.5 and ctx.attempt <= 3:  # for ever would be for ever: it loses the turn each time
        time.sleep(LEASE_SECONDS * (0.4 + 1.2 * chance(ctx, "pause")))  # noqa: ASYNC251  the heart stops: that is the point
    else:
        await ctx.sleep(LEASE_SECONDS * (0.4 + 1.2 * chance(ctx, "pause")))


def add_critic(name: str) -> None:
    @app.agent(name=name, activate_on=["workflow:start"], emits=[f"{name}:done"], updates="found", max_attempts=100)
    async def critic(ctx: Context) -> list[str]:
        await think(ctx)
        return [f"{name} {n}" for n in range(3)]


for each in CRITICS:
    add_critic(each)


@app.agent(activate_on=["workflow:start"], emits=["payer:settled"], updates="paid", effect="once", max_attempts=100)
async def payer(ctx: Context) -> bool:
    append_mark(ctx.agent, ctx.turn_id, f"{ctx.attempt}")
    await think(ctx)
    return True


@app.agent(
    activate_on=["agent:failed"], when=lambda _state, signal: signal.payload["agent"] == "payer",
    emits=["payer:settled"], updates="paid", max_attempts=100,
)  # fmt: skip
def medic(_ctx: Context) -> bool:
    """Nobody knows whether the payment happened: the run goes on, and says so."""
    return False


@app.agent(activate_on=["workflow:start"], emits=["filer:done"], updates="filed", max_attempts=100)
def filer(ctx: Context) -> int:
    append_mark(ctx.agent, ctx.turn_id, f"{ctx.attempt}")
    ctx.progress(0.5, "half")
    time.sleep(0.05)
    return int(ctx.document["n"]) * 2  # type: ignore[arg-type]


@app.agent(activate_on=["agent:progress"], updates="seen", max_attempts=100)
def echo(_ctx: Context) -> bool:
    """Woken in the middle of filer's turn, by a signal that somebody has to react to (K25)."""
    return True


def answer(request: ModelRequest) -> str:
    return f"summary of {request.prompt}"


app.prompt_agent(
    "writer", "{state.n}", model=ScriptedModel(answer), activate_when_all=[f"{name}:done" for name in CRITICS],
    emits=["writer:done"], updates="summary", max_attempts=100,
)  # fmt: skip


add_waiting_agents(app)


@app.agent(
    activate_when_all=["writer:done", "payer:settled", "filer:done", *WAITING], updates="report", max_attempts=100
)
async def editor(ctx: Context) -> str:
    await think(ctx)
    return f"{ctx.state['summary']}: {len(ctx.state['found'])} findings, filed as {ctx.state['filed']}"


def run_id_of(n: int) -> str:
    return f"run_chaos_{n}"


def number_of(run_id: str) -> int:
    return int(run_id.rpartition("_")[2])


def initial_state(n: int) -> dict[str, Any]:
    return {"n": n}


def expected_state(n: int, *, is_paid: bool, **waited: bool) -> dict[str, Any]:
    """What run n ends with, however often its workers died. waited: see expected_of_waiting."""
    found = sorted(f"{name} {i}" for name in CRITICS for i in range(3))
    summary = f"summary of {n}"
    return {"n": n, "found": found, "paid": is_paid, "filed": n * 2, "seen": True, "summary": summary,
            "report": f"{summary}: {len(found)} findings, filed as {n * 2}",
            **expected_of_waiting(n, **waited)}  # fmt: skip
