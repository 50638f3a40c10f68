"""`python -m tests.journeys.awaits [--protocol openai|anthropic] [--every N] [--first N] [--lanes N]`: kill at every await.

A run of ten steps starts again and again. Each time its worker is killed with -9 one place later than before: at the
runtime's named failpoints, during a stream of the model, during a tool, and after each reply of the kernel. Another worker
ends the run, while people and external tools continue. Then every effect is counted where it happened. The provider has
received no conversation that it would reject, and none that changed an earlier one. Prints one line, or the problems.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import asyncpg
import msgspec

from heliograph import Client, Runtime
from heliograph.config import Settings
from heliograph.ledger.pool import Database
from heliograph.runtime import open_runtime
from heliograph.testing.database import TestServer
from tests.journeys.awaits_app import AT_MOST_ONCE, EXACTLY_ONCE, HELPER, HELPER_STEPS, MODELS, STEPS, happen, make_app
from tests.journeys.awaits_worker import Job
from tests.reach.model_server import Answer, Provider, env_of, serve

ROOT = Path(__file__).parent.parent.parent
CASE_SECONDS = 60.0
PLACES_MAX = 1000
EFFECTS = "create table if not exists effects (run text, tool text, what text, key text)"


class Scripted(Provider):
    """A model server that replies by the length of the conversation and checks that each conversation only grows."""

    def __init__(self) -> None:
        super().__init__()
        self.conversations: dict[str, list[Any]] = {}
        self.changed: list[str] = []

    def next(self, body: dict[str, Any], problem: str | None) -> Answer:
        with self.lock:
            messages = [m for m in body["messages"] if m["role"] != "system"]
            name, step = _text(messages[0]), sum(m["role"] == "assistant" for m in messages)
            self.requests.append(body)
            if problem is not None:
                self.rejected.append(f"{name}, step {step + 1}: {problem}")
                return Answer((problem,), status=400)
            before = self.conversations.get(name, [])
            if _plain(messages)[: len(before)] != before and before[: len(messages)] != _plain(messages):
                self.changed.append(f"{name}, step {step + 1}: the conversation is not the one that went before")
            self.conversations[name] = max(before, _plain(messages), key=len)
            steps = HELPER_STEPS if name.startswith(HELPER) else STEPS
            calls = [
                (f"call_{step}_{n}", tool, json.dumps(given))
                for n, (tool, given) in enumerate(steps[min(step, len(steps) - 1)])
            ]
            return Answer((f"Step {step + 1}. ", "I go on."), calls=calls)


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(str(block.get("text", "")) for block in content)


def _plain(messages: list[dict[str, Any]]) -> list[Any]:
    """Return a message without the mark that caches it at the provider."""
    return json.loads(json.dumps(messages), object_hook=lambda o: {k: v for k, v in o.items() if k != "cache_control"})  # type: ignore[no-any-return]


@dataclass
class Report:
    """The result of all kills. places: the number of deaths at each place. in_doubt: the calls whose result remained unknown."""

    kills: int = 0
    whole: int = 0
    requests: int = 0
    in_doubt: int = 0
    seconds: float = 0.0
    places: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Zygote:
    """Forks workers, one at a time."""

    def __init__(self, environment: dict[str, str], log: Path):
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.journeys.awaits_worker"], env=environment, cwd=ROOT, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip

    def run(self, job: Job) -> int:
        """Run one worker and return its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(job).decode() + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline() or -1)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # and its running worker, if there is one
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class Killer:
    """Runs cases on one database, `lanes` side by side."""

    def __init__(self, url: str, provider: Scripted, folder: Path, protocol: str):
        self.report = Report()
        self._url, self._provider, self._folder, self._protocol = url, provider, folder, protocol
        self._last: int | None = None  # the first place that no run came to

    async def run(self, places: Callable[[], Any], lanes: int) -> Report:
        started, todo = monotonic(), iter(places())
        connection = await asyncpg.connect(self._url)
        await connection.execute(EFFECTS)
        await connection.close()
        await asyncio.gather(*(self._lane(todo, n) for n in range(lanes)))
        self.report.requests = len(self._provider.requests)
        self.report.problems += self._provider.rejected + self._provider.changed
        self.report.seconds = monotonic() - started
        return self.report

    async def _lane(self, todo: Any, number: int) -> None:
        environment = {**os.environ, **env_of(self._provider), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        zygote = Zygote(environment, self._folder / f"workers-{number}.log")
        try:
            for kill_at in todo:
                if self._last is not None and kill_at > self._last:
                    return
                try:
                    async with asyncio.timeout(CASE_SECONDS):
                        await self._case(zygote, kill_at)
                except TimeoutError:
                    self.report.problems.append(
                        f"{self._protocol}, killed at {kill_at}: it did not end in {CASE_SECONDS:g} s"
                    )
                    return
        finally:
            zygote.close()

    async def _case(self, zygote: Zygote, kill_at: int) -> None:
        project = f"{self._protocol}-{kill_at}"
        places = self._folder / f"places-{project}"
        async with open_runtime(Settings(database_url=self._url, project=project)) as runtime:
            app = make_app(self._protocol, self._url, _nowhere)
            run_id, _ = await runtime.start(app.workflow, {"what": project}, f"run_{project}")
            job = Job(self._url, project, run_id, self._protocol, kill_at, str(places))
            async with outside(runtime, run_id, self._url):
                code = await asyncio.to_thread(zygote.run, job)
                where = f"{self._protocol}, killed at {kill_at}"
                if code == -9:
                    self.report.kills += 1
                    name = places.read_text().split()[-1]
                    self.report.places[name] += 1
                    where += f", {name}"
                    await runtime.database.fetch(
                        "update heliograph.agent_state_head set lease_until = now() where project_id = $1 and lease_until > now()",
                        project,
                    )  # fmt: skip
                    job.kill_at = 0
                    code = await asyncio.to_thread(zygote.run, job)
                else:
                    self._last = min(kill_at, self._last or PLACES_MAX)
                    self.report.whole += 1
                if code != 0:
                    self.report.problems.append(f"{where}: the worker that was to end the run ended with {code}")
                    return
            self.report.problems += [
                f"{where}: {problem}" async for problem in self._problems(runtime, run_id, project)
            ]

    async def _problems(self, runtime: Runtime, run_id: str, project: str) -> AsyncIterator[str]:
        [run] = await runtime.reader.runs(10)
        if (run.outcome, run.state) != ("success", {"what": project, "out": {"total": 10}}):
            yield f"the run ended as {run.outcome} with {run.state}"
        turns = await runtime.reader.turns()
        if sorted((turn.agent, turn.outcome) for turn in turns) != [("helper", "success"), ("worker", "success")]:
            yield f"its turns are {[(turn.agent, turn.outcome) for turn in turns]}"
        for turn in turns:
            cards = [card for card in await runtime.reader.cards(turn.turn_id) if card.kind == "task.deliverable"]
            if len(cards) != 1:
                yield f"{turn.agent} has {len(cards)} deliverables"
        if found := await runtime.world.call("doctor", project, True):
            yield f"the doctor says {found}"
        rows = await runtime.database.fetch("select tool, what from effects where run = $1", run_id)
        did = Counter((row["tool"], row["what"]) for row in rows)
        results = self._results(project)
        for number, calls in enumerate([*STEPS, *HELPER_STEPS]):
            for place, (tool, given) in enumerate(calls):
                times = did[tool, given.get("what", "")]
                if tool in EXACTLY_ONCE and times != 1:
                    yield f"{tool} {given['what']} happened {times} times"
                if tool in AT_MOST_ONCE:
                    is_reported = f"{tool} {given['what']}" in results.get(f"call_{number}_{place}", "")
                    self.report.in_doubt += not is_reported
                    if times > 1 or (is_reported and times != 1):
                        yield f"{tool} {given['what']} happened {times} times; the model received its result: {is_reported}"

    def _results(self, project: str) -> dict[str, str]:
        """Return the result that the model received for each call of the ten steps."""
        with self._provider.lock:
            messages = next(m for name, m in self._provider.conversations.items() if name == f"Do all of {project}.")
        found = {m["tool_call_id"]: json.dumps(m) for m in messages if m["role"] == "tool"}
        blocks = itertools.chain.from_iterable(m["content"] for m in messages if isinstance(m["content"], list))
        return found | {b["tool_use_id"]: json.dumps(b) for b in blocks if b.get("type") == "tool_result"}


async def _nowhere(_name: str) -> None:
    """Do nothing: the killer itself has no places to die at."""


@asynccontextmanager
async def outside(runtime: Runtime, run_id: str, url: str) -> AsyncIterator[None]:
    """Grant all approvals, and run an external tool that takes commands and reports, until the block ends."""
    client = Client.on(runtime)
    database = await Database.open(url, size=1)

    async def answer() -> None:
        while True:
            for task in await client.approvals():
                await client.grant(task.turn_id, task.call_id, by="ada")
            for command in await client.take_commands(["weather"]):
                await happen(_Executing(database), run_id, "weather", command.arguments["what"],
                             f"{command.turn_id}:{command.call_id}", known=True)  # fmt: skip
                await command.report(result=f"weather {command.arguments['what']}")
            await asyncio.sleep(0.03)

    answering = asyncio.create_task(answer())
    try:
        yield
    finally:
        answering.cancel()
        [ended] = await asyncio.gather(answering, return_exceptions=True)
        await database.close()
        if isinstance(ended, Exception):
            raise ended


class _Executing:
    def __init__(self, database: Database):
        self._database = database

    async def execute(self, statement: str, *args: Any) -> None:
        await self._database.fetch(statement, *args)


async def kill_at_every_await(
    url: str, folder: Path, protocol: str, *, first: int = 1, every: int = 1, lanes: int = 1
) -> Report:
    """Kill at the places first, first + every, and so on, until a run ends before its next place."""
    with serve(Scripted()) as provider:
        assert isinstance(provider, Scripted)
        return await Killer(url, provider, folder, protocol).run(lambda: range(first, PLACES_MAX, every), lanes)


def summary(report: Report, protocol: str) -> str:
    return (
        f"{protocol}: {report.kills} kills at {len(report.places)} kinds of places, {report.requests} conversations, "
        f"{report.in_doubt} calls in doubt, {len(report.problems)} problems, {report.seconds:.0f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.journeys.awaits", description=__doc__)
    parser.add_argument("--protocol", choices=sorted(MODELS), action="append", help="both, where none is named")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=2, help="cases side by side (2)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="heliograph-awaits-"))
    server = TestServer(folder / "home")
    problems: list[str] = []
    try:
        for protocol in options.protocol or sorted(MODELS):
            url = asyncio.run(server.create())
            report = asyncio.run(
                kill_at_every_await(
                    url, folder, protocol, first=options.first, every=options.every, lanes=options.lanes
                )
            )
            print(summary(report, protocol))
            print("   ", ", ".join(f"{name} {times}" for name, times in sorted(report.places.items())))
            problems += report.problems
    finally:
        server.close()
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
