"""The server's CPU time of each kernel call, by the number of its items: a fixed part per call, and a part per item.

The requests are those of one real run, whose turn makes a step, suspends for an external call and finishes. They are repeated with the
ids of other runs, on one connection, so that only the server's process of this connection is measured: no commit waits for another.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from bench.place import Place
from bench.server_time import Stopwatch, Times
from heliograph import Context, Heliograph
from heliograph.config import Settings
from heliograph.ledger.pool import Database
from heliograph.runtime import open_runtime

PROJECT, WORKER = "default", "bench"
SIZES = (1, 8, 32, 64)
CALLS = ("start_runs", "claim", "append", "begin_call", "record_call", "suspend", "report", "claim again", "finish")
OUTCOMES = {"start_runs": "started", "begin_call": "fresh", "suspend": "suspended", "report": "applied"}  # others: ok
WARM_ROUNDS = 6  # after five executions PostgreSQL decides about the plan of a statement
_LOOK_SECONDS = 0.01
_RECORDED_SECONDS = 30.0

app = Heliograph("bench-calls")


@app.agent(activate_on=["workflow:start"])
async def caller(ctx: Context) -> object:
    await ctx.step("add", lambda: 1)
    return await ctx.call("outside", {"question": 1}, timeout=600.0, needs_token=False)


class Cost(NamedTuple):
    """Microseconds of one kind of call. per_item: by the number of items of a call."""

    per_item: Mapping[int, float]

    @property
    def marginal(self) -> float:
        """What one more item costs."""
        least, most = min(self.per_item), max(self.per_item)
        return (most * self.per_item[most] - least * self.per_item[least]) / (most - least)

    @property
    def fixed(self) -> float:
        return min(self.per_item) * self.per_item[min(self.per_item)] - min(self.per_item) * self.marginal


class Requests:
    """The requests of one run as text, with the ids of that run."""

    def __init__(self, items: Mapping[str, Any]):
        [start] = items["start_runs"]
        self._run_id: str = start["run_id"]
        self._turn_id: str = start["reaction"]["activations"][0]["turn_id"]
        recorded = dict(items)
        [step] = recorded["record_call"]
        kept = {key: step[key] for key in ("agent_id", "turn_id", "epoch", "signals_emitted")}
        # what a turn appends while it runs, as deltas of a model do; the step then records its own signals
        recorded["append"] = [{**kept, "phase": None, "cards": [], "signals": step["signals"]}]
        recorded["record_call"] = [{**step, "signals_emitted": len(step["signals"])}]
        self._texts = {name: msgspec.json.encode(items[0]).decode() for name, items in recorded.items()}

    def of(self, function: str, numbers: Sequence[int], epochs: Mapping[int, int]) -> list[Any]:
        return [msgspec.json.decode(self._filled(function, number, epochs.get(number, 0))) for number in numbers]

    def number_of(self, turn_id: str) -> int:
        return int(turn_id.removeprefix(self._turn_id[:-7]))

    def _filled(self, function: str, number: int, epoch: int) -> str:
        text = self._texts[function].replace(self._run_id, f"{self._run_id[:-7]}{number:07}")
        text = text.replace(self._turn_id, f"{self._turn_id[:-7]}{number:07}")
        before, found, after = text.partition('"epoch":')
        return text if not found else f"{before}{found}{epoch}{after.lstrip('0123456789')}"


async def measure_calls(place: Place, rounds: int, sizes: Sequence[int] = SIZES) -> dict[str, Cost]:
    """Return the median cost of each call. The sizes alternate, each in a database of its own."""
    async with place.database() as url:
        requests = await record_requests(url)
    found: dict[str, dict[int, float]] = {name: {} for name in CALLS}
    for size in sizes:
        async with place.database() as url:
            for name, times in (await _time_rounds(url, requests, size, rounds)).items():
                found[name][size] = 1e6 * sorted(times.cpu)[len(times.cpu) // 2] / size
    return {name: Cost(per_item) for name, per_item in found.items()}


async def record_requests(url: str) -> Requests:
    """Do the run once, and return its requests."""
    recorder = _Recorder()
    async with open_runtime(Settings(url)) as runtime:
        recorder.watch(runtime.database)
        stopping = asyncio.Event()
        worker = runtime.worker(
            app.workflow, projects=[PROJECT]
        )  # with a ledger of its own: no other call claims for it
        serving = asyncio.create_task(runtime.serve(worker, stopping))
        await runtime.start(app.workflow)
        async with asyncio.timeout(_RECORDED_SECONDS):
            [suspended] = await recorder.wait_for("suspend")
            await runtime.ledger.report({
                "turn_id": suspended["turn_id"], "call_id": "c2", "token": None, "status": "success", "result": {"ok": True},
            })  # fmt: skip
            await recorder.wait_for("finish")
        stopping.set()
        await serving
    return Requests(recorder.items)


class _Recorder:
    """Keeps the last items of each kernel function that a runtime calls."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}

    def watch(self, database: Any) -> None:
        call, items = database.call, self.items

        async def recorded(function: str, *args: Any) -> Any:
            answer = await call(function, *args)
            if function in CALLS and len(args) == 2:
                items[function] = msgspec.json.decode(msgspec.json.encode(args[1]))
            return answer

        database.call = recorded

    async def wait_for(self, function: str) -> Any:
        while function not in self.items:  # noqa: ASYNC110  looked for from outside
            await asyncio.sleep(_LOOK_SECONDS)
        return self.items[function]


async def _time_rounds(url: str, requests: Requests, size: int, rounds: int) -> dict[str, Times]:
    database = await Database.open(url, size=1)
    numbers = itertools.count(1)
    try:
        [row] = await database.fetch("select pg_backend_pid() as pid")
        calls = Calls(database, requests, Stopwatch(row["pid"]))
        for number in range(WARM_ROUNDS + rounds):
            if number == WARM_ROUNDS:
                calls.times = {name: Times() for name in CALLS}
            await calls.one_round(list(itertools.islice(numbers, size)))
        return calls.times
    finally:
        await database.close()


class Calls:
    def __init__(self, database: Database, requests: Requests, watch: Stopwatch):
        self.times = {name: Times() for name in CALLS}
        self._database, self._requests, self._watch = database, requests, watch

    async def one_round(self, numbers: Sequence[int]) -> None:
        """Lead this many runs from their start to their end."""
        await self._write("start_runs", numbers, {}, OUTCOMES["start_runs"])
        epochs = await self._claim("claim", numbers)
        for function in ("append", "begin_call", "record_call", "suspend", "report"):
            await self._write(function, numbers, epochs, OUTCOMES.get(function, "ok"))
        await self._write("finish", numbers, await self._claim("claim again", numbers), "ok")

    async def _claim(self, name: str, numbers: Sequence[int]) -> dict[int, int]:
        call = self._database.call("claim", PROJECT, [{"target": app.name}], WORKER, len(numbers), 30.0)
        claimed = await self._watch.time(self.times[name], call)
        epochs = {self._requests.number_of(turn["turn_id"]): turn["epoch"] for turn in claimed}
        if set(epochs) != set(numbers):
            raise RuntimeError(f"{name} returned {len(epochs)} of {len(numbers)} turns")
        return epochs

    async def _write(self, function: str, numbers: Sequence[int], epochs: Mapping[int, int], outcome: str) -> None:
        items = self._requests.of(function, numbers, epochs)
        answers = await self._watch.time(self.times[function], self._database.call(function, PROJECT, items))
        if wrong := [answer for answer in answers if answer["outcome"] != outcome]:
            raise RuntimeError(f"{function}: {wrong[0]}")
