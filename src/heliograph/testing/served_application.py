"""An application as its tests use it: it has workers, and the test starts runs, reads them and acts as the people around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic

from heliograph.app import Heliograph
from heliograph.client.client import Client
from heliograph.client.human_tasks import HumanTask
from heliograph.client.session import Session, open_session
from heliograph.config import Settings
from heliograph.harness.resolve import Harnesses
from heliograph.recording.export import export_recording
from heliograph.recording.options import RecordingOptions
from heliograph.recording.recording import Recording
from heliograph.run_result import RunResult, result_of_run
from heliograph.runtime import Runtime, open_runtime
from heliograph.signals.model import Signal
from heliograph.signals.trace import failure_of
from heliograph.telemetry.settings import TelemetrySettings
from heliograph.testing.stubs import Models, Servers, StubbedModels, Tools, with_stubs
from heliograph.type_variables import AppState

_SWEEP_SECONDS = 0.05  # a test waits for no timer of a worker longer than that
_GRACE_SECONDS = 5.0


class ServedApplication(Generic[AppState]):
    """An application with workers, on a database or in a simulation. client: acts as the people and systems outside."""

    def __init__(self, app: Heliograph[AppState, Any], runtime: Runtime):
        self.app = app
        self.client = Client.on(runtime)
        self._runtime = runtime

    async def start(
        self, state: AppState | Mapping[str, Any] | None = None, *, run_id: str | None = None, record: bool = False
    ) -> str:
        """Start a run and return its id. record: record it, for `recording`. Raises the errors of `Heliograph.run`."""
        options = RecordingOptions() if record else None
        name, _ = await self._runtime.start(self.app.workflow, state, run_id, record=options)
        return name

    async def result(self, run_id: str) -> RunResult[AppState]:
        """Wait for the end of a run, and return its result."""
        signals = [each async for each in self._runtime.follow(run_id)]
        return result_of_run(run_id, self.app.workflow, signals)

    async def run(
        self, state: AppState | Mapping[str, Any] | None = None, *, run_id: str | None = None
    ) -> RunResult[AppState]:
        """Start a run, and return its result when it has ended."""
        return await self.result(await self.start(state, run_id=run_id))

    @asynccontextmanager
    async def session(
        self,
        session_id: str | None = None,
        *,
        agent: str | None = None,
        state: AppState | Mapping[str, Any] | None = None,
        record: bool = False,
    ) -> AsyncIterator[Session]:
        """Open a conversation, or continue it. Arguments and errors are those of `Heliograph.session`; record: as of `start`."""
        options = RecordingOptions() if record else None
        async with open_session(
            self._runtime, self.app.workflow, session_id, agent=agent, state=state, worker=False, record=options
        ) as session:
            yield session

    async def question(self, run_id: str) -> HumanTask:
        """Wait until a run asks a person, and return the oldest open approval or question. Fails at the end of the run."""
        failures = []
        async with aclosing(self._runtime.follow(run_id)) as signals:
            async for signal in signals:
                if tasks := await self.client.approvals(run_id):
                    return tasks[0]
                failures += [failure.message] if (failure := failure_of(signal)) is not None else []
        why = f"; its first failure: {failures[0]}" if failures else ""
        raise AssertionError(f"run {run_id} ended and asked nobody{why}")

    async def signals(self, run_id: str) -> list[Signal]:
        """The signals that a run has so far."""
        return await self._runtime.reader.all_signals(run_id)

    async def recording(self, run_id: str) -> Recording:
        """The recording of a run so far, for `heliograph.recording.replay`. A run that was started without `record` has its signals and gaps only."""
        return await export_recording(self._runtime.reader, run_id)


@dataclass(frozen=True, slots=True)
class ApplicationServer:
    """Serves applications on one database: the value of the fixture `heliograph_app`."""

    database_url: str = field(repr=False)  # it may have a password

    def __call__(
        self, app: Heliograph[AppState, Any], *, models: Models = None, tools: Tools | None = None, servers: Servers | None = None,
        **options: Any,
    ) -> AbstractAsyncContextManager[ServedApplication[AppState]]:  # fmt: skip
        """See `serve`."""
        return serve(app, self.database_url, models=models, tools=tools, servers=servers, **options)


@asynccontextmanager
async def serve(
    app: Heliograph[AppState, Any], database_url: str, *, models: Models = None, tools: Tools | None = None, servers: Servers | None = None,
    concurrency: int = 16, lease_seconds: float = 30.0,
) -> AsyncIterator[ServedApplication[AppState]]:  # fmt: skip
    """Run an application with a worker in this process, until the block ends: then its turns in progress are released.

    models: the stub of all models, or stubs by the names of the models. Without it, models that are given by name raise SetupError;
        no test calls a provider by mistake. tools: functions by the names of the tools that they replace.
    servers: a StubServer for each MCP server to replace, by its name, or else by its program or the host of its URL.
    A worker that fails ends the block, which then raises its error.
    """
    async with serve_with(
        with_stubs(app, tools, servers), Settings(database_url=database_url), StubbedModels(models),
        concurrency=concurrency, lease_seconds=lease_seconds,
    ) as served:  # fmt: skip
        yield served


@asynccontextmanager
async def serve_with(
    served: Heliograph[AppState, Any],
    settings: Settings,
    harnesses: Harnesses,
    *,
    concurrency: int = 16,
    lease_seconds: float = 30.0,
) -> AsyncIterator[ServedApplication[AppState]]:
    """Run an application as `serve` does, with these settings and harnesses."""
    async with open_runtime(settings, TelemetrySettings()) as runtime:
        runtime.harnesses = harnesses
        worker = runtime.worker(
            served.workflow, concurrency=concurrency, lease_seconds=lease_seconds, pools=served.workflow.pools
        )
        worker.watchdog.interval_seconds = _SWEEP_SECONDS
        stopping = asyncio.Event()
        serving = asyncio.create_task(runtime.serve(worker, stopping, _GRACE_SECONDS))
        test = asyncio.current_task()
        assert test is not None
        serving.add_done_callback(
            lambda _: None if stopping.is_set() else test.cancel()
        )  # it would wait for a dead worker
        try:
            yield ServedApplication(served, runtime)
        except asyncio.CancelledError:
            if serving.done() and test.uncancel() == 0:
                serving.result()
            raise
        finally:
            stopping.set()
            await asyncio.gather(serving, return_exceptions=True)
