"""`python -m bench.recording_parts`: what the parts of a recording cost, in CPU time of a worker and in time of the server.

The worker runs turns of work A with a store that answers at once: not recorded; recorded; without the text of their commits (`seams alone`:
their reads and calls are recorded, and nothing is written); and not recorded again. The server runs each step of a commit with the items of
these turns, without and with their recordings, and names the recordings of a batch of runs. Prints microseconds: medians of the worker,
the least of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

import asyncpg
import msgspec

from bench.place import SERVER
from bench.worker_cpu import InstantStore, run_turns
from heliograph.cli.garbage_collection import tuned_garbage_collection
from heliograph.embedded.server import open_embedded
from heliograph.execution.tape import Tape, WholeTape
from heliograph.ledger.install import install
from heliograph.world.event_loop import new_event_loop

OFF, RECORDED, SEAMS, OFF_AGAIN = "off", "recorded", "seams alone", "off again"
SIDES = (OFF, RECORDED, SEAMS, OFF_AGAIN)
BATCH = 8
KEYS = "{agent_id,turn_id,epoch,outcome,content,signals,reaction,recording}"
STEPS = {
    "read the JSON": "j := t::jsonb;",
    "_check_json": "perform heliograph._check_json(j);",
    "_check_reactions": f"perform heliograph._check_reactions('p_items[]', j, '{KEYS}');",
    "write the row of the log": """
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, recording)
        select 'p', 'run_' || gen_random_uuid(), 1, 7, e.signals, 'turn', now(), e.recording ->> 'body'
          from jsonb_to_recordset(j) as e (signals jsonb, recording jsonb);""",
}
NAMING = "insert into heliograph.recordings (project_id, run_id, at) select 'p', gen_random_uuid(), now() from generate_series(1, {});"
REPEATS, SERIES = 200, 25


def written(side: str) -> AbstractContextManager[Any]:
    """The context in which turns of a side run."""
    return patch.multiple(Tape, commit=WholeTape.commit, kept=WholeTape.kept) if side == SEAMS else nullcontext()


def measure_worker(rounds: int, turns: int) -> Mapping[str, list[float]]:
    """The CPU time of a turn in this process, in alternating order."""
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    with asyncio.Runner(loop_factory=new_event_loop) as runner, tuned_garbage_collection():
        for number in range(-1, rounds):
            for side in SIDES if number % 2 else reversed(SIDES):
                with written(side):
                    before = process_time()
                    runner.run(run_turns(turns, is_recorded=side in (RECORDED, SEAMS)))
                if number >= 0:  # the first round is computed for the first time
                    found[side].append(1e6 * (process_time() - before) / turns)
    return found


async def finished_items(*, is_recorded: bool) -> str:
    """The items of `finish` of a batch of turns, as JSON."""
    found: list[Any] = []
    call = InstantStore.call

    async def kept(self: InstantStore, function: str, *args: Any) -> Any:
        if function == "finish":
            found.extend(args[1])
        return await call(self, function, *args)

    with patch.object(InstantStore, "call", kept):
        await run_turns(BATCH, is_recorded=is_recorded)
    return msgspec.json.encode(found).decode()


async def timed(connection: Any, step: str, *texts: str) -> list[float]:
    """The least time of a step with each text, in microseconds, of series that alternate."""
    found: list[list[float]] = [[] for _ in texts]
    for _ in range(SERIES):
        for series, text in zip(found, texts, strict=True):
            series.append(await _timed_once(connection, step, text))
    return [min(series) for series in found]


async def _timed_once(connection: Any, step: str, text: str) -> float:
    block = f"""do $b$ declare t constant text := $t${text}$t$; j jsonb := t::jsonb; v_began timestamptz := clock_timestamp(); begin
        for n in 1..{REPEATS} loop {step} end loop;
        perform set_config('bench.us', (extract(epoch from clock_timestamp() - v_began) * 1e6 / {REPEATS})::text, false);
    end $b$"""
    await connection.execute(block)
    return float(await connection.fetchval("select current_setting('bench.us')"))


async def measure_server(url: str) -> None:
    off, recorded = [await finished_items(is_recorded=is_recorded) for is_recorded in (False, True)]
    connection = await asyncpg.connect(url)
    await install(connection)
    print(f"server, per turn in batches of {BATCH}; bytes {len(off) / BATCH:.0f}, recorded {len(recorded) / BATCH:.0f}")
    for name, step in STEPS.items():
        plain, more = [figure / BATCH for figure in await timed(connection, step, off, recorded)]
        print(f"  {name:25} {plain:6.2f}   recorded {more:6.2f}   more {more - plain:6.2f}")
    for runs in (1, BATCH):
        [figure] = await timed(connection, NAMING.format(runs), "[]")
        print(f"  the rows of the recordings of a batch of {runs}: {figure / runs:.2f} per run")
    await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recording_parts", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each side of the worker (default 15)")
    parser.add_argument("--turns", type=int, default=1_000, help="turns of each measurement (default 1,000)")
    options = parser.parse_args()
    found = measure_worker(options.rounds, options.turns)
    print("worker, CPU time per turn")
    for side in SIDES:
        more = [figure - base for figure, base in zip(found[side], found[OFF], strict=True)]
        print(f"  {side:12} {statistics.median(found[side]):7.1f}   more than off {statistics.median(more):6.1f}")
    with tempfile.TemporaryDirectory() as home, open_embedded(Path(home), version=18, settings=SERVER) as server:
        asyncio.run(measure_server(server.url))


if __name__ == "__main__":
    main()
