"""`python -m bench.recording_parts`: what the parts of a recording cost, in CPU time of a worker and of the server's process.

The worker runs turns of work A with a store that answers at once: not recorded; recorded; without the text of their commits (`seams alone`:
their reads and calls are recorded, and nothing is written); and not recorded again. The server runs each step of a commit with the items of
these turns, without and with their recordings, and then the calls of whole runs on one connection. Prints microseconds: medians of the
worker, the least of the steps, and the lower quartiles of the calls. Needs Linux (/proc).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple
from unittest.mock import patch

import asyncpg
import msgspec

from bench.app import app
from bench.place import SERVER
from bench.server_time import Stopwatch, Times
from bench.worker_cpu import InstantStore, run_turns
from heliograph.cli.garbage_collection import tuned_garbage_collection
from heliograph.config import Settings
from heliograph.embedded.server import open_embedded
from heliograph.execution.tape import Tape, WholeTape
from heliograph.ledger.install import install
from heliograph.ledger.pool import Database
from heliograph.recording.options import RecordingOptions
from heliograph.runtime import open_runtime
from heliograph.world.event_loop import new_event_loop

OFF, RECORDED, SEAMS, OFF_AGAIN = "off", "recorded", "seams alone", "off again"
SIDES = (OFF, RECORDED, SEAMS, OFF_AGAIN)
BATCH = 8
STEPS = {
    "read the JSON": "",
    "_check_json": "perform heliograph._check_json(j);",
    "_check_recording_texts": """
        perform heliograph._check_recording_texts(array(select e ->> 'recording' from jsonb_array_elements(j) e));""",
    "write the row of the log": """
        insert into heliograph.signals (project_id, run_id, seq, count, entries, agent_turn_id, at, recording)
        select 'p', 'run_' || gen_random_uuid(), 1, 7, e.signals, 'turn', now(), e.recording
          from jsonb_to_recordset(j) as e (signals jsonb, recording text);""",
}
CALLS = ("start_runs", "claim", "finish")
CALL_ROUNDS = 400
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


async def measure_steps(database: Database, stopwatch: Stopwatch) -> None:
    """Print what each step of a commit costs, with the items of turns that are not recorded, and of those that are."""
    off, recorded = [await finished_items(is_recorded=is_recorded) for is_recorded in (False, True)]
    print(f"server, per turn in batches of {BATCH}; bytes {len(off) / BATCH:.0f}, recorded {len(recorded) / BATCH:.0f}")
    for name, step in STEPS.items():
        found = {text: Times() for text in (off, recorded)}
        for _ in range(SERIES):
            for text, times in found.items():
                block = f"do $b$ declare j jsonb; t text := $t${text}$t$; begin for n in 1..{REPEATS} loop j := t; {step} end loop; end $b$"
                await stopwatch.time(times, database.fetch(block))
        plain, more = [1e6 * min(times.cpu) / REPEATS / BATCH for times in found.values()]
        print(f"  {name:25} {plain:6.2f}   recorded {more:6.2f}   more {more - plain:6.2f}")


class Requests(NamedTuple):
    """The calls of one run of work A, as JSON with the ids of that run."""

    run_id: str
    turn_id: str
    items: Mapping[str, str]

    def of(self, function: str, names: Sequence[str]) -> list[Any]:
        text = self.items[function]
        return [
            msgspec.json.decode(text.replace(self.run_id, f"run_{name}").replace(self.turn_id, f"turn_{name}"))
            for name in names
        ]


async def requests_of(url: str, *, is_recorded: bool) -> Requests:
    """Do one run, and return its calls."""
    found: dict[str, str] = {}
    async with open_runtime(Settings(url)) as runtime:
        call = runtime.database.call

        async def kept(function: str, *args: Any) -> Any:
            if function in ("start_runs", "finish"):
                found[function] = msgspec.json.encode(args[1][0]).decode()
            return await call(function, *args)

        with patch.object(runtime.database, "call", kept):
            result = await runtime.run(app.workflow, record=RecordingOptions() if is_recorded else None)
    return Requests(result.run_id, msgspec.json.decode(found["finish"])["turn_id"], found)


async def measure_calls(url: str, database: Database, stopwatch: Stopwatch) -> None:
    """Print what the three calls of a run cost the server, with a recording and without."""
    sides = {side: await requests_of(url, is_recorded=side == RECORDED) for side in (OFF, RECORDED, OFF_AGAIN)}
    for size in (1, BATCH):
        found = {side: {call: Times() for call in CALLS} for side in sides}
        for number in range(CALL_ROUNDS):
            for side, requests in sides.items() if number % 2 else reversed(sides.items()):
                names = [f"{side[:3]}{side[-3:]}_{size}_{number}_{n}" for n in range(size)]
                calls = {
                    "start_runs": ("default", requests.of("start_runs", names)),
                    "claim": ("default", [{"target": app.name}], "bench", size, 30.0),
                    "finish": ("default", requests.of("finish", names)),
                }
                for function, args in calls.items():
                    answer = await stopwatch.time(found[side][function], database.call(function, *args))
                    assert len(answer) == size, f"{function} returned {len(answer)} of {size} items"
        print(f"server, per run of one turn in batches of {size}")
        for side in sides:
            costs = [1e6 * sorted(times.cpu)[len(times.cpu) // 4] / size for times in found[side].values()]
            print(
                f"  {side:12} {sum(costs):7.1f}   {', '.join(f'{call} {cost:.1f}' for call, cost in zip(CALLS, costs, strict=True))}"
            )


async def measure_server(url: str) -> None:
    connection = await asyncpg.connect(url)
    await install(connection)
    await connection.close()
    database = await Database.open(url, size=1)
    [row] = await database.fetch("select pg_backend_pid() as pid")
    stopwatch = Stopwatch(row["pid"])
    await measure_steps(database, stopwatch)
    await measure_calls(url, database, stopwatch)
    await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recording_parts", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each side of the worker (default 15)")
    parser.add_argument("--turns", type=int, default=1_000, help="turns of each measurement (default 1,000)")
    parser.add_argument("--server", action="store_true", help="measure the server alone")
    options = parser.parse_args()
    if not options.server:
        print_worker(measure_worker(options.rounds, options.turns))
    with tempfile.TemporaryDirectory() as home, open_embedded(Path(home), version=18, settings=SERVER) as server:
        asyncio.run(measure_server(server.url))


def print_worker(found: Mapping[str, list[float]]) -> None:
    print("worker, CPU time per turn")
    for side in SIDES:
        more = [figure - base for figure, base in zip(found[side], found[OFF], strict=True)]
        print(f"  {side:12} {statistics.median(found[side]):7.1f}   more than off {statistics.median(more):6.1f}")


if __name__ == "__main__":
    main()
