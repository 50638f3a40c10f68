"""Wire the real world together: database, doorbell, ledger, worker. Here and nowhere else."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from heliograph.agent_loop.loop import run_agent_loop
from heliograph.config import Settings, read_settings
from heliograph.definitions.functions import check_function
from heliograph.doorbell.base import Bell
from heliograph.doorbell.postgres import PostgresDoorbell
from heliograph.egress.messenger import Messenger
from heliograph.errors import InvalidInput, Rejected, StoreUnavailable, repr_of, safe_repr
from heliograph.execution.project_services import ProjectServices
from heliograph.harness.resolve import Harnesses
from heliograph.ledger.client import Ledger
from heliograph.ledger.install import check, install, read_state
from heliograph.ledger.pool import Database, explain
from heliograph.ledger.reader import Reader
from heliograph.ledger.transactions import Transactions
from heliograph.policy.egress import parse, server_policy
from heliograph.reactive.reaction import react_to_start
from heliograph.reactive.workflow import Workflow
from heliograph.redaction import guard_logs, keep_keys_out, keep_out, keep_url_out
from heliograph.signals.model import Signal
from heliograph.signals.run_end import read_end
from heliograph.signals.trace import TurnFailure, failure_of
from heliograph.tools.toolbox import Toolbox
from heliograph.turn.drafts import draft_item
from heliograph.worker.claim_loop import Worker
from heliograph.world.real import RealWorld
from heliograph.world.seam import bell_keys
from heliograph.world.subscriptions import Subscriptions

if TYPE_CHECKING:
    from heliograph.embedded.server import EmbeddedServer

_FOLLOW_POLL_SECONDS = 0.5
_OUTAGE_SECONDS_MAX = 60.0
_RUN_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_RUN_ID_MAX = 100
_CONCURRENCY_MAX = 1000
_LEASE_SECONDS_MIN = 0.1
_LEASE_SECONDS_MAX = 86_400

T = TypeVar("T")


@dataclass(frozen=True)
class RunResult:
    """How a run ended. `state` has the application's type; `signals` is the whole log, in order.

    reason and code: why it ended before its work was done, where it did, see docs/reference/errors.md. failures: the turns that
    failed or ran out of time, each with its whole reason.
    """

    run_id: str
    outcome: str
    state: Any
    signals: list[Signal]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    code: str | None = None

    @property
    def failures(self) -> list[TurnFailure]:
        return [failure for signal in self.signals if (failure := failure_of(signal)) is not None]


class Runtime:
    """An open database with the world around it. Made by `open_runtime`."""

    def __init__(self, settings: Settings, database: Database, world: RealWorld):
        self.settings = settings
        self.database = database
        self.world = world
        self.ledger = Ledger(world, settings.project)
        self.reader = Reader(database, settings.project)
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
    ) -> Worker:
        """A worker for these applications, under a name of its own that begins with `label`, else with the host.

        run_id: serve that run only. projects: serve these projects, each with its fair share of the turns at a time;
        none means the runtime's own.
        Raises InvalidInput (`out_of_range`, `wrong_type`, `invalid_secret`), Rejected (`egress_refused`) for an allow list that is none.
        """
        _check_service(concurrency, lease_seconds)
        served = {w.name: w for w in workflows}
        ledgers = [Ledger(self.world, project) for project in dict.fromkeys(projects)] or [self.ledger]
        served_projects = [
            ProjectServices(
                self.world,
                ledger,
                served,
                self.harnesses,
                run_id,
                sends_commands=self.settings.nats_url is not None,
                prune_after_seconds=self.settings.prune_after_seconds,
                callbacks=Messenger.of(self.settings.webhook_secrets, self.settings.egress_allow, ledger.project),
                toolbox=self.toolbox,
            )
            for ledger in ledgers
        ]
        name = f"{label or socket.gethostname()}:{os.getpid()}:{self.world.new_id('w')[-8:]}"
        return Worker(served_projects, name, run_agent_loop, concurrency=concurrency, lease_seconds=lease_seconds)

    async def serve(self, worker: Worker, stopping: asyncio.Event, grace_seconds: float = 30.0) -> None:
        """Run `worker` until `stopping` is set; its turns in hand get `grace_seconds`, then they are handed back.

        Cancelled, it hands them back at once. Raises what ended the worker, where it ended by itself.
        """
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

    async def start(
        self, workflow: Workflow, state: Any = None, run_id: str | None = None, callback_url: str | None = None
    ) -> tuple[str, bool]:
        """Start a run; answers its id, and whether it is new.

        The same id with the same state, as the caller gives it, is the same run. callback_url: told of its end by a
        signed POST. Raises Rejected (`id_conflict`) for another state or callback, EgressRejected.
        """
        target = None if callback_url is None else check_callback(callback_url)
        given = {} if state is None else state
        document = workflow.shape.dump(given)
        name = check_run_id(run_id) if run_id is not None else self.world.new_id("run")
        reaction = react_to_start(workflow, name, document, self.world.now(), self.world.new_id)
        [answer] = await self.ledger.start_runs([{
            "run_id": name, "target": workflow.name, "request_hash": _hash(workflow.name, workflow.shape.as_given(given), target),
            "callback_url": target,
            "agents": sorted(workflow.agents), "signals": [draft_item(d) for d in reaction.drafts],
            "reaction": reaction.to_item(), "hears_reports": workflow.wakes_on_results,
        }])  # fmt: skip
        if answer["outcome"] == "refused":
            raise InvalidInput(f"run {name} cannot start: {answer['message']}", code=answer["code"], path="/state")
        if answer["outcome"] == "conflict":
            raise Rejected(f"run {name} exists and was started with another state or application; choose another run id",
                          code="id_conflict")  # fmt: skip
        return name, answer["outcome"] == "started"

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Signal]:
        """The run's signals after position `after`, as they are recorded, up to workflow:end.

        A database that is away is waited for, up to a minute. Raises StoreUnavailable after that.
        """
        subscription, has_come_back, is_over = (
            self.world.subscribe(bell_keys(self.settings.project, [f"log:{run_id}"])),
            after > 0,
            False,
        )
        try:
            while True:
                subscription.clear()
                page = await self._patiently(partial(self.reader.signals, run_id, after))
                for signal in page:
                    yield signal
                    after, has_come_back = signal.seq, False
                    if signal.name == "workflow:end":
                        return
                if page:
                    subscription.found()
                    continue
                if is_over:
                    return
                # who comes back may have had the end already, and would wait for it for ever
                is_over = has_come_back and await self._patiently(partial(self._is_over, run_id))
                if not is_over and not await subscription.wait(_FOLLOW_POLL_SECONDS):
                    has_come_back = True  # nobody rang: the run may have ended without a workflow:end
        finally:
            subscription.close()

    async def run(
        self, workflow: Workflow, state: Any = None, *, run_id: str | None = None,
        on_signal: Callable[[Signal], None] | None = None, worker: bool = True, concurrency: int = 16,
        lease_seconds: float = 30.0, callback_url: str | None = None,
    ) -> RunResult:  # fmt: skip
        """See `Heliograph.run`."""
        _check_service(concurrency, lease_seconds)  # before there is a run that nobody works on
        if on_signal is not None:
            check_function(on_signal, "on_signal", "/on_signal", "the signal")
        name, _ = await self.start(workflow, state, run_id, callback_url)
        served = (
            self.worker(workflow, concurrency=concurrency, lease_seconds=lease_seconds, run_id=name) if worker else None
        )
        serving = asyncio.create_task(served.run()) if served is not None else None
        collecting = asyncio.create_task(self._collect(name, on_signal))
        try:
            await asyncio.wait({collecting} | ({serving} if serving else set()), return_when=asyncio.FIRST_COMPLETED)
            if serving is not None and serving.done() and not collecting.done():
                await serving  # it never ends by itself: this raises what ended it
            signals = await collecting
        finally:
            collecting.cancel()
            if served is not None and serving is not None:
                await _wind_down(served, serving)
        end: Any = read_end(name, signals[-1] if signals else None)
        return RunResult(name, end["outcome"], workflow.shape.load(end["state"]), signals, end["metrics"],
                         end.get("reason"), end.get("code"))  # fmt: skip

    async def _is_over(self, run_id: str) -> bool:
        return (await self.reader.run(run_id)).status == "ended"

    async def _patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` answers, as soon as the database can be asked."""
        until = self.world.monotonic() + _OUTAGE_SECONDS_MAX
        while True:
            try:
                return await read()
            except StoreUnavailable:
                if self.world.monotonic() > until:
                    raise
                await self.world.sleep(_FOLLOW_POLL_SECONDS)

    async def _collect(self, run_id: str, on_signal: Callable[[Signal], None] | None) -> list[Signal]:
        signals = []
        async for signal in self.follow(run_id):
            signals.append(signal)
            if on_signal is not None:
                on_signal(signal)
        return signals


def check_callback(url: str) -> str:
    """A URL that somebody may be told at, as far as that can be seen here: the workers ask more. Raises EgressRejected."""
    return parse(url).url


async def _wind_down(worker: Worker, serving: asyncio.Task[None]) -> None:
    """Leave nothing behind: hand back what still runs, deliver what is in the outbox."""
    worker.stop()
    try:
        await worker.release_turns()
    finally:
        serving.cancel()  # before it settles, which waits for what the loops are doing: nobody else ends that
        await asyncio.gather(serving, return_exceptions=True)
    await worker.watchdog.settle()


@asynccontextmanager
async def open_runtime(settings: Settings | None = None) -> AsyncIterator[Runtime]:
    """Open the database that the settings name, or the embedded one, whose schema installs itself.

    Raises SetupError, StoreUnavailable, or Rejected where the schema is missing or of another version.
    """
    settings = settings or read_settings(os.environ)
    keep_keys_out(os.environ)
    keep_out(*settings.webhook_secrets)
    keep_url_out(settings.nats_url or "")
    guard_logs()
    async with open_database(settings) as database:
        await prepare_schema(database, installs=settings.database_url is None)
        transactions = Transactions(database)
        world = RealWorld(database, transactions)
        bells = _bells(settings, database, world.subscriptions)
        try:
            await world.learn(settings.project)
            for bell in bells:
                await bell.open()
            world.wires = [*bells]
            runtime = Runtime(settings, database, world)
            try:
                yield runtime
            finally:
                await runtime.toolbox.close()
                await runtime.harnesses.close()
        finally:
            await world.close()
            await transactions.close()
            for bell in bells:
                await bell.close()


@asynccontextmanager
async def open_reader(settings: Settings | None = None) -> AsyncIterator[Reader]:
    """Only to read: no bell, no worker. Raises what `open_runtime` raises."""
    settings = settings or read_settings(os.environ)
    async with open_database(settings) as database:
        await prepare_schema(database, installs=settings.database_url is None)
        yield Reader(database, settings.project)


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The database that the settings name, or the embedded one, started or joined; its schema is not looked at."""
    embedded = None
    if settings.database_url is None:
        embedded = await _embedded(settings)
    url = embedded.url if embedded is not None else settings.database_url
    assert url is not None
    try:
        database = await Database.open(url, project=settings.project,
                                       ensure_running=None if embedded is None else embedded.ensure_running)  # fmt: skip
        try:
            yield database
        finally:
            await database.close()
    finally:
        if embedded is not None:
            await asyncio.to_thread(embedded.close)


async def _embedded(settings: Settings) -> EmbeddedServer:
    """The embedded server. Who no longer waits for it lets go of it when it is there: the thread cannot be stopped."""
    from heliograph.embedded.server import open_embedded  # nobody with a URL needs it

    opening = asyncio.ensure_future(asyncio.to_thread(open_embedded, settings.home, version=settings.postgres_version))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_cancel_opening)
        raise


def _cancel_opening(opening: asyncio.Future[EmbeddedServer]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _bells(settings: Settings, database: Database, subscriptions: Subscriptions) -> list[Bell]:
    """The preferred one first: NATS where there is one, and PostgreSQL's, which rings while NATS is away."""
    bells: list[Bell] = [PostgresDoorbell(database.url, subscriptions.ring_from_wire)]
    if settings.nats_url is not None:
        from heliograph.doorbell.nats import NatsDoorbell  # slow to import, and an extra

        bells.insert(0, NatsDoorbell(settings.nats_url, partial(subscriptions.ring_from_wire, carries_names=True)))
    return bells


async def prepare_schema(database: Database, *, installs: bool = True) -> None:
    """Install or upgrade the schema where that is wanted, and check that it is ours. Raises Rejected, StoreUnavailable."""
    try:
        connection = await database.acquire()
        try:
            if installs:
                await install(connection)
            check(await read_state(connection))
        finally:
            await database.release(connection)
    except Exception as error:  # a connection that breaks in between is an outage like any other
        raise explain(error, "the look at the schema") from error


def _check_service(concurrency: int, lease_seconds: float) -> None:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise InvalidInput(f"concurrency is a whole number, not {safe_repr(repr_of(concurrency))}", code="wrong_type",
                           path="/concurrency")  # fmt: skip
    if not 1 <= concurrency <= _CONCURRENCY_MAX:
        raise InvalidInput(f"concurrency is from 1 to {_CONCURRENCY_MAX} turns at a time, not {concurrency}",
                           code="out_of_range", path="/concurrency")  # fmt: skip
    if isinstance(lease_seconds, bool) or not isinstance(lease_seconds, int | float):
        raise InvalidInput(f"lease_seconds is a number, not {safe_repr(repr_of(lease_seconds))}", code="wrong_type",
                           path="/lease_seconds")  # fmt: skip
    if not _LEASE_SECONDS_MIN <= lease_seconds <= _LEASE_SECONDS_MAX:  # NaN is not either
        raise InvalidInput(f"lease_seconds is from {_LEASE_SECONDS_MIN} to {_LEASE_SECONDS_MAX}, not {lease_seconds}",
                           code="out_of_range", path="/lease_seconds")  # fmt: skip


def check_run_id(run_id: str) -> str:
    """The id that a caller chose for a run, as it is. Raises InvalidInput (`invalid_id`)."""
    if (
        not isinstance(run_id, str)
        or not run_id
        or len(run_id) > _RUN_ID_MAX
        or not _RUN_ID_CHARACTERS.issuperset(run_id)
    ):
        raise InvalidInput(f"a run id is 1 to {_RUN_ID_MAX} ASCII letters, digits, '_' or '-', not {safe_repr(run_id)}",
                           code="invalid_id", path="/run_id")  # fmt: skip
    return run_id


def _hash(target: str, given: Any, callback_url: str | None) -> str:
    """Of what a caller asked for; not of the document, which has defaults that may differ from call to call."""
    asked = [target, given] if callback_url is None else [target, given, callback_url]
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()
