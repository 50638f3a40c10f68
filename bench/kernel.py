"""Measure the kernel's functions without the runtime: prepared requests through the same pool."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import msgspec

from bench.app import app
from bench.load import in_lanes
from bench.meter.sample import Done, Sample
from bench.place import Place
from heliograph.ids import signal_id
from heliograph.ledger.pool import Database
from heliograph.reactive.ending import Ending
from heliograph.reactive.react import react_to_ending, react_to_start
from heliograph.reactive.reaction import Reaction
from heliograph.records import RunView
from heliograph.turn.deliverable import deliverable_of
from heliograph.turn.drafts import draft_items

PROJECT, LANES = "default", 16
RUN, TURN, EPOCH = "run_@RUN@", "@TURN@", 1_000_000_007  # stand-ins, replaced in the encoded text
AT = datetime(2030, 1, 1, tzinfo=UTC)


async def kernel(place: Place, batch: int, seconds: float) -> Sample:
    """Measure 16 lanes. Each starts `batch` runs, claims up to `batch` turns and finishes them."""
    starting, finishing = _templates()
    numbers = itertools.count(1)
    async with place.database() as url:
        database = await Database.open(url, size=LANES)

        async def one(_: int) -> int:
            runs = [starting.replace(b"@RUN@", b"%d" % n).replace(b"@TURN@", b"turn_%d" % n)
                    for n in itertools.islice(numbers, batch)]  # fmt: skip
            await database.call("start_runs", PROJECT, [msgspec.Raw(run) for run in runs])
            claimed = await database.call("claim", PROJECT, [app.name], "bench", batch, 30.0)
            if claimed:
                ended = await database.call(
                    "finish", PROJECT, [msgspec.Raw(_filled(finishing, turn)) for turn in claimed]
                )
                if any(turn["outcome"] != "ok" for turn in ended):
                    raise RuntimeError(f"a turn was not finished: {ended}")
            return len(claimed)

        try:
            await in_lanes(LANES, min(0.2, seconds), one)  # plans and statements are made once per connection

            async def work() -> Done:
                return Done(*await in_lanes(LANES, seconds, one))

            return await place.measure(work)
        finally:
            await database.close()


def _templates() -> tuple[bytes, bytes]:
    """Build the requests with which the runtime starts a run and its worker finishes the turn."""
    workflow = app.workflow
    start = react_to_start(workflow, RUN, {}, AT, lambda _: TURN)
    view = RunView(RUN, "running", 1, {}, start.memory or {}, 1, 0, 1)
    ending = Ending("noop", TURN, signal_id(RUN, 2), "success", f"card:{TURN}:end", {"ok": True})
    end = react_to_ending(workflow, view, ending, AT, lambda _: TURN)
    starting = {"run_id": RUN, "target": workflow.name, "request_hash": "hash", "agents": ["noop"], **_committed(start)}
    finishing = {
        "agent_id": f"{RUN}/noop",
        "turn_id": TURN,
        "epoch": EPOCH,
        "outcome": "success",
        "content": deliverable_of({"ok": True}),
        **_committed(end),
    }
    return msgspec.json.encode(starting), msgspec.json.encode(finishing)


def _committed(reaction: Reaction) -> dict[str, object]:
    return {"signals": draft_items(reaction.drafts), "reaction": reaction.to_item()}


def _filled(finishing: bytes, turn: dict[str, object]) -> bytes:
    run = str(turn["run_id"]).removeprefix("run_")
    return (
        finishing.replace(b"@RUN@", run.encode())
        .replace(b"@TURN@", str(turn["turn_id"]).encode())
        .replace(b"%d" % EPOCH, b"%d" % int(str(turn["epoch"])))
    )
