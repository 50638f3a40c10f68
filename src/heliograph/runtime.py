"""An open database with everything around it: doorbells, ledger, workers. The only place that wires them together."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from heliograph.agent_loop.model_agent_loop import ModelAgentLoop
from heliograph.config import Settings, read_settings
from heliograph.definitions.functions import check_function
from heliograph.definitions.pools import check_pools
from heliograph.doorbell.base import Bell
from heliograph.doorbell.postgres import PostgresDoorbell
from heliograph.egress.messenger import Messenger
from heliograph.errors import Conflict, InvalidInput
from heliograph.execution.local_runs import LocalRuns
from heliograph.execution.project_services import ProjectServices
from heliograph.harness.resolve import Harnesses
from heliograph.ledger.client import Ledger
from heliograph.ledger.pool import Database
from heliograph.ledger.reader import Reader
from heliograph.ledger.transactions import Transactions
from heliograph.open_database import open_database, prepare_schema
from heliograph.policy.egress import server_policy
from heliograph.policy.heartbeat import HeartbeatPolicy
from heliograph.ports import Tracer
from heliograph.reactive.run_memory import OPEN, SESSION
from heliograph.reactive.workflow import Workflow
from heliograph.recording.options import RecordingOptions
from heliograph.recording.start import start_of_run
from heliograph.redaction import guard_logs, keep_keys_out, keep_out, keep_url_out
from heliograph.run_follower import RunFollower
from heliograph.run_options import check_callback, check_run_id, check_service, request_hash
from heliograph.run_result import EndedRun, RunResult, ended_run, result_of_run
from heliograph.signals.model import Signal
from heliograph.subscriptions.serving import serving_subscribers
from heliograph.telemetry.null_tracer import NULL_TRACER
from heliograph.telemetry.opening import open_telemetry
from heliograph.telemetry.settings import TelemetrySettings, read_telemetry
from heliograph.tools.toolbox import Toolbox
from heliograph.worker.claim_loop import Worker
from heliograph.worker.registration import describe_worker
from heliograph.world.real import RealWorld
from heliograph.world.subscriptions import Subscriptions

if TYPE_CHECKING:
    from heliograph.control.settings import HeartbeatSettings  # slow to import, and most callers use the defaults
    from heliograph.telemetry.metrics import Registry
    from heliograph.telemetry.metrics_signals import TurnMetrics

log = logging.getLogger("heliograph.worker")

_REPLY_SECONDS = 2.0  # how long the end of a run waits for replies to commits that its log has
_SETTLE_SECONDS = 10.0  # a closing worker waits no longer for an outbox that it cannot publish


class Runtime:
    """One project on an open database: starts and follows runs, and makes workers. Opened by `open_runtime`."""

    def __init__(self, settings: Settings, database: Database, world: RealWorld, tracer: Tracer = NULL_TRACER):
        self.settings = settings
        self.tracer = tracer
        self.database = database
        self.world = world
        self.ledger = Ledger(world, settings.project)
        self.reader = Reader(database, settings.project)
        self._local_runs = LocalRuns()
        self._follower = RunFollower(world, self.reader, settings.project, self._local_runs)
        self.harnesses = Harnesses(settings.model)
        self.toolbox = Toolbox(server_policy(settings.mcp_allow))

    def worker(
        self,
        *workflows: Workflow,
        concurrency: int = 16,
        lease_seconds: float = 30.0,
        label: str | None = None,
        run_id: str | None = None,
        projects: Sequence[str] = (),
        heartbeat: HeartbeatSettings | None = None,
        pools: Sequence[str] = (),
        metrics: TurnMetrics | None = None,
    ) -> Worker:
        """Make a worker for these applications. Its unique name begins with `label`, by default the host name.

        run_id: serve only that run. projects: the projects to serve, each with a fair share of the slots; by default
        the runtime's own. heartbeat: how often the worker reports its health, by default as the
        `control_signals` of the applications set it, or else every 30 seconds.
        pools: whose turns it claims; by default those of the default pool. metrics: counts its signals and turns.
        Raises InvalidInput (`out_of_range`, `wrong_type`, `invalid_id`, `invalid_secret`), Rejected (`egress_rejected`) for an
        invalid allow list.
        """
        check_service(concurrency, lease_seconds)
        served, served_pools = {w.name: w for w in workflows}, check_pools(pools)
        ledgers = [Ledger(self.world, project) for project in dict.fromkeys(projects)] or [self.ledger]
        served_projects = [
            ProjectServices(
                self.world,
                ledger,
                served,
                served_pools,
                run_id,
                sends_commands=self.settings.nats_url is not None,
                prune_after_seconds=self.settings.prune_after_seconds,
                callbacks=self.webhook_messenger(ledger.project),
                gateways=Messenger.of(self.settings.gateway_secrets, self.settings.egress_allow, ledger.project),
                metrics=metrics,
                toolbox=self.toolbox,
                tracer=self.tracer,
                local_runs=self._local_runs,
            )
            for ledger in ledgers
        ]
        self._warn_of_gateways(workflows)
        label = label or socket.gethostname()
        name = f"{label}:{os.getpid()}:{self.world.new_id('w')[-8:]}"
        agent_loop = ModelAgentLoop(self.harnesses)
        policy = HeartbeatPolicy.of(heartbeat, [workflow.heartbeat for workflow in workflows])
        registration = describe_worker(label, workflows, policy, self.settings.model, served_pools)
        return Worker(served_projects, name, agent_loop, concurrency=concurrency, lease_seconds=lease_seconds,
                      registration=registration)  # fmt: skip

    def _warn_of_gateways(self, workflows: Sequence[Workflow]) -> None:
        for workflow in workflows if not self.settings.gateway_secrets else ():
            if workflow.routes is not None and any(each.gateway is not None for each in workflow.routes.destinations):
                log.warning("application %s has routes to gateways, and this worker has no HELIOGRAPH_GATEWAY_SECRETS: "
                            "another worker has to send these calls", workflow.name)  # fmt: skip

    async def serve(
        self, worker: Worker, stopping: asyncio.Event, grace_seconds: float = 30.0, *, subscribers: bool = True
    ) -> None:
        """Run `worker` until `stopping` is set; its turns then have `grace_seconds` to end before they are released.

        If cancelled, it releases them at once. subscribers: also call the functions of its applications that receive signals.
        Raises the error of a worker that fails.
        """
        workflows = [*worker.projects[0].workflows.values()] if subscribers else []
        metrics = worker.projects[0].metrics
        projects = [services.project for services in worker.projects]
        async with self.serving_subscribers(workflows, projects, None if metrics is None else metrics.registry):
            serving, stopped = asyncio.create_task(worker.run()), asyncio.create_task(stopping.wait())
            try:
                await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
                worker.stop()
                await asyncio.wait({serving}, timeout=grace_seconds)
                if serving.done():
                    serving.result()
            finally:
                stopped.cancel()
                await _wind_down(worker, serving)

    def serving_subscribers(
        self, workflows: Sequence[Workflow], projects: Sequence[str] = (), registry: Registry | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Deliver signals to the subscribers of these applications in a block, see `heliograph.subscriptions.serving`.

        projects: by default the runtime's own. registry: the metrics of the process.
        """
        return serving_subscribers(self.world, workflows, {
            project: self.webhook_messenger(project) for project in projects or [self.settings.project]
        }, registry=registry)  # fmt: skip

    def webhook_messenger(self, project: str) -> Messenger | None:
        """Return what sends the webhooks of a project; None without HELIOGRAPH_WEBHOOK_SECRETS. Raises InvalidInput, EgressRejected."""
        return Messenger.of(self.settings.webhook_secrets, self.settings.egress_allow, project)

    async def start(
        self, workflow: Workflow, state: Any = None, run_id: str | None = None, callback_url: str | None = None,
        record: RecordingOptions | None = None, is_session: bool = False,
    ) -> tuple[str, bool]:  # fmt: skip
        """Start a run; return its id, and whether it is new.

        A second call with the same id and the same given state returns the same run. callback_url: receives a signed
        POST when the run ends. record: the workers of the run record it, under this name and these tags. is_session: it waits for
        messages until it is closed. Raises Conflict (`id_conflict`) if the id exists with another state or callback, EgressRejected.
        """
        target = None if callback_url is None else check_callback(callback_url)
        given = {} if state is None else state
        document, asked = workflow.shape.dump(given), workflow.shape.as_given(given)
        name = check_run_id(run_id) if run_id is not None else self.world.new_id("run")
        caller = {**self.tracer.memory_of_start(), **({SESSION: OPEN} if is_session else {})}
        reaction, item = start_of_run(self.world, workflow, name, document, caller, record)
        answer = await self.ledger.start_run({
            **item, "request_hash": request_hash(workflow.name, [SESSION, asked] if is_session else asked, target), "callback_url": target,
        })  # fmt: skip
        if answer["outcome"] == "rejected":
            raise InvalidInput(f"run {name} cannot start: {answer['message']}", code=answer["code"], path="/state")
        if answer["outcome"] == "conflict":
            if state is None and target is None and await self._may_continue(workflow, name, is_session=is_session):
                return name, False  # such as a fork, whose state comes from another run
            raise Conflict(f"run {name} exists and was started with another state or application; choose another run id",
                          code="id_conflict")  # fmt: skip
        if answer["outcome"] == "started":
            self.tracer.started(workflow.name, name, reaction)
        return name, answer["outcome"] == "started"

    async def _may_continue(self, workflow: Workflow, run_id: str, *, is_session: bool) -> bool:
        """Whether a run that exists is one of this application, and a session if one is asked for."""
        if (await self.reader.run(run_id)).target != workflow.name:
            return False
        first = await self.reader.signals(run_id, 0, 1) if is_session else []
        return not is_session or any(isinstance(s.payload, dict) and s.payload.get(SESSION) is True for s in first)

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Signal, None]:
        """Yield the run's signals after position `after` as they are recorded, up to workflow:end.

        Waits up to a minute for a database that is away, then raises StoreUnavailable.
        """
        return self._follower.follow(run_id, after)

    def pages(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Signal], None]:
        """Yield the signals of `follow` in pages."""
        return self._follower.pages(run_id, after)

    async def result(self, run_id: str, workflow: Workflow | None = None) -> EndedRun[Any]:
        """See `Client.result`. workflow: gives the state its type; a JSON object without it."""
        target, end = await self._follower.end(run_id)
        if workflow is not None and target != workflow.name:
            raise Conflict(f"run {run_id} is one of the application {target}, not of {workflow.name}; pass its own application",
                           code="id_conflict")  # fmt: skip
        return ended_run(run_id, end, workflow)

    async def run(
        self, workflow: Workflow, state: Any = None, *, run_id: str | None = None,
        on_signal: Callable[[Signal], None] | None = None, worker: bool = True, concurrency: int = 16,
        lease_seconds: float = 30.0, callback_url: str | None = None, record: RecordingOptions | None = None,
    ) -> RunResult:  # fmt: skip
        """See `Heliograph.run`. record: the recording in the database; `heliograph.recording.export` makes a file of it."""
        check_service(concurrency, lease_seconds)  # before a run exists that no worker serves
        if on_signal is not None:
            check_function(on_signal, "on_signal", "/on_signal", "the signal")
        async with self.serving_subscribers([workflow] if worker else []):
            return await self._run(workflow, state, run_id=run_id, on_signal=on_signal, worker=worker, concurrency=concurrency,
                                   lease_seconds=lease_seconds, callback_url=callback_url, record=record)  # fmt: skip

    async def _run(
        self, workflow: Workflow, state: Any, *, run_id: str | None, on_signal: Callable[[Signal], None] | None, worker: bool,
        concurrency: int, lease_seconds: float, callback_url: str | None, record: RecordingOptions | None,
    ) -> RunResult:  # fmt: skip
        name, _ = await self.start(workflow, state, run_id, callback_url, record)
        served = (
            self.worker(
                workflow, concurrency=concurrency, lease_seconds=lease_seconds, run_id=name, pools=workflow.pools
            )
            if worker
            else None
        )
        serving = asyncio.create_task(served.run()) if served is not None else None
        collecting = asyncio.create_task(self._collect(name, on_signal))
        try:
            await asyncio.wait({collecting} | ({serving} if serving else set()), return_when=asyncio.FIRST_COMPLETED)
            if serving is not None and serving.done() and not collecting.done():
                await serving  # it ends only by an error, which this raises
            signals = await collecting
            if served is not None:
                served.stop()
                await served.wait_for_replies(_REPLY_SECONDS)
        finally:
            collecting.cancel()
            if served is not None and serving is not None:
                await _wind_down(served, serving)
        return result_of_run(name, workflow, signals)

    async def _collect(self, run_id: str, on_signal: Callable[[Signal], None] | None) -> list[Signal]:
        if on_signal is None:  # no reader during the run: the log is read once, after its end
            await self._follower.wait_for_end(run_id)
        signals = []
        async for signal in self.follow(run_id):
            signals.append(signal)
            if on_signal is not None:
                on_signal(signal)
        return signals


@asynccontextmanager
async def served_run(
    runtime: Runtime, workflow: Workflow, run_id: str, concurrency: int, lease_seconds: float
) -> AsyncIterator[asyncio.Task[None]]:
    """Run the turns of a run in a block; yield the task of the worker, which ends only by an error."""
    async with runtime.serving_subscribers([workflow]):
        worker = runtime.worker(
            workflow, concurrency=concurrency, lease_seconds=lease_seconds, run_id=run_id, pools=workflow.pools
        )
        serving = asyncio.create_task(worker.run())
        try:
            yield serving
            worker.stop()
            await worker.wait_for_replies(_REPLY_SECONDS)
        finally:
            await _wind_down(worker, serving)


async def _wind_down(worker: Worker, serving: asyncio.Task[None]) -> None:
    """Release the turns in progress, end the worker, and publish its outbox."""
    worker.stop()
    try:
        await worker.release_turns()
    finally:
        serving.cancel()  # before `settle`, which waits for loops at work: only this ends them
        await asyncio.gather(serving, return_exceptions=True)
    await asyncio.gather(*(services.handler_queues.close(services.world) for services in worker.projects))
    try:
        async with asyncio.timeout(_SETTLE_SECONDS):
            await worker.watchdog.settle()
    except TimeoutError:
        log.warning("the worker left its outbox to others: it was not published within %s s", _SETTLE_SECONDS)
    if worker.heartbeat is not None:
        await worker.heartbeat.deregister()


def telemetry_of(workflows: Iterable[Workflow], environment: Mapping[str, str]) -> TelemetrySettings:
    """Return the settings of telemetry: those of the environment, and of the first runtime specification that records traces."""
    given = (workflow.observability.tracing for workflow in workflows if workflow.observability is not None)
    return read_telemetry(environment, next((tracing for tracing in given if tracing.enabled), None))


@asynccontextmanager
async def open_runtime(
    settings: Settings | None = None, telemetry: TelemetrySettings | None = None
) -> AsyncIterator[Runtime]:
    """Open the database that the settings name, or the embedded one, which installs its schema itself; and the telemetry.

    Raises SetupError, StoreUnavailable, or Rejected if the schema is missing or has another version.
    """
    settings = settings or read_settings(os.environ)
    telemetry = telemetry or read_telemetry(os.environ)
    keep_keys_out(os.environ)
    keep_out(*settings.webhook_secrets, *settings.gateway_secrets)
    keep_url_out(settings.nats_url or "")
    guard_logs()
    async with open_database(settings) as database:
        await prepare_schema(database, installs=settings.database_url is None)
        transactions = Transactions(database)
        world = RealWorld(database, transactions)
        bells = _bells(settings, database, world.bells.subscriptions)
        try:
            await world.bells.learn(settings.project)
            for bell in bells:
                await bell.open()
            world.bells.wires = [*bells]
            async with open_telemetry(telemetry, world.now) as tracer:
                runtime = Runtime(settings, database, world, tracer)
                try:
                    yield runtime
                finally:
                    await runtime.toolbox.close()
                    await runtime.harnesses.close()
        finally:
            await world.close()
            await transactions.close(settings.close_seconds)
            for bell in bells:
                await bell.close()


def _bells(settings: Settings, database: Database, subscriptions: Subscriptions) -> list[Bell]:
    """The doorbells, preferred first: NATS if configured, then PostgreSQL's, which rings while NATS is away."""
    bells: list[Bell] = [PostgresDoorbell(database.url, subscriptions.ring_from_wire)]
    if settings.nats_url is not None:
        from heliograph.doorbell.nats import NatsDoorbell  # slow to import, and an optional dependency

        bells.insert(0, NatsDoorbell(settings.nats_url, partial(subscriptions.ring_from_wire, carries_names=True)))
    return bells
