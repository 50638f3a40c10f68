"""The main application: parallel critics, agents with external effects, waiting agents (waiting.py), and an editor that
joins all of them.

Every execution of `payer` (effect="once") and `filer` (idempotent) appends a mark to a file, keyed by the turn. This
file counts the effects independently of any table. The duration of an agent depends on its run alone. In CHAOS_SLOW
percent of the cases it is about one lease (CHAOS_LEASE seconds), so that living workers lose turns, too.
"""

from __future__ import annotations

import time
from typing import Any

from heliograph import Context, Heliograph
from heliograph.models import ModelRequest, ScriptedModel
from tests.journeys.chaos.marks import LEASE_SECONDS, append_mark, chance, is_slow
from tests.journeys.chaos.waiting import WAITING, add_waiting_agents, expected_of_waiting

CRITICS = ("claims", "prose", "structure")


def merged(old: Any, new: Any) -> list[str]:
    return sorted({*(old or []), *new})


app = Heliograph("chaos", reducers={"found": merged})


async def think(ctx: Context) -> None:
    """Take a few milliseconds, or in some runs about one lease, with heartbeats or (a blocked loop) without."""
    if not is_slow(ctx):
        await ctx.sleep(0.002 + 0.03 * chance(ctx, "pause"))
    elif chance(ctx, "blocks") < 0.5 and ctx.attempt <= 3:  # bounded, because it loses the turn each time
        time.sleep(LEASE_SECONDS * (0.4 + 1.2 * chance(ctx, "pause")))  # noqa: ASYNC251  blocks the heartbeat on purpose
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
    """Record that the payment is in doubt, and let the run continue."""
    return False


@app.agent(activate_on=["workflow:start"], emits=["filer:done"], updates="filed", max_attempts=100)
def filer(ctx: Context) -> int:
    append_mark(ctx.agent, ctx.turn_id, f"{ctx.attempt}")
    ctx.progress(0.5, "half")
    time.sleep(0.05)
    return int(ctx.document["n"]) * 2  # type: ignore[arg-type]


@app.agent(activate_on=["agent:progress"], updates="seen", max_attempts=100)
def echo(_ctx: Context) -> bool:
    """Run during filer's turn, after a signal with a pending reaction (K25)."""
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
    """Return the final state of run n for any number of worker deaths. waited: see expected_of_waiting."""
    found = sorted(f"{name} {i}" for name in CRITICS for i in range(3))
    summary = f"summary of {n}"
    return {"n": n, "found": found, "paid": is_paid, "filed": n * 2, "seen": True, "summary": summary,
            "report": f"{summary}: {len(found)} findings, filed as {n * 2}",
            **expected_of_waiting(n, **waited)}  # fmt: skip
