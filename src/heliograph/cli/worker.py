"""`helio worker FILE.py:app ...`: serve applications until stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from heliograph.cli.early_signals import INTERRUPTED
from heliograph.cli.garbage_collection import tuned_garbage_collection
from heliograph.cli.interrupts import end_within, graceful, run_agents
from heliograph.cli.load_target import load_target
from heliograph.cli.logs import show_logs
from heliograph.cli.manifests import configure
from heliograph.cli.output import reserved_stdout
from heliograph.config import CLOSE_SECONDS, read_settings
from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.errors import InvalidInput, StoreUnavailable
from heliograph.policy.listening import Listening, check_listening
from heliograph.reactive.workflow import Workflow
from heliograph.runtime import Runtime, open_runtime, telemetry_of
from heliograph.telemetry.opening import open_metric_export

if TYPE_CHECKING:
    from heliograph.control.settings import HeartbeatSettings
    from heliograph.telemetry.metrics_signals import TurnMetrics
    from heliograph.telemetry.otel_metrics import MetricExport
    from heliograph.telemetry.settings import TelemetrySettings
    from heliograph.worker.claim_loop import Worker
    from heliograph.world.seam import World

log = logging.getLogger("heliograph.cli")

_OPEN_SECONDS_MAX = 60.0
_OPEN_PAUSE_SECONDS = 0.5


def work(options: Namespace) -> int:
    """Serve applications until a signal. Returns 0 after SIGTERM, which stops services, and 130 after SIGINT."""
    if not options.json:
        show_logs(logging.INFO)
        return run_agents(_serve(options, _listening(options), _load(options)))
    with reserved_stdout() as own:  # agents may print
        show_logs(logging.INFO, own)
        return run_agents(_serve(options, _listening(options), _load(options)))


def _listening(options: Namespace) -> Listening | None:
    """The settings of the listener; None for a worker without one. Raises SetupError (`no_http_library`), and as `check_listening`."""
    settings = read_settings(os.environ)
    if (address := options.listen or settings.listen) is None:
        return None
    projects = getattr(options, "project", ()) or (settings.project,)
    listening = check_listening(address, settings.listen_keys, datetime.now(UTC), projects)
    import heliograph.status.listener  # noqa: F401  # raises before the database opens

    return listening


def _turn_metrics(is_observed: bool, world: World) -> TurnMetrics | None:
    """The metrics of a worker with a listener or a collector. Other workers do not import them."""
    if not is_observed:
        return None
    from heliograph.telemetry.metrics import Registry
    from heliograph.telemetry.metrics_signals import RESERVED, TurnMetrics

    return TurnMetrics(Registry(RESERVED), world.now)


@asynccontextmanager
async def _serve_status(
    runtime: Runtime,
    worker: Worker,
    listening: Listening | None,
    export: MetricExport | None,
    metrics: TurnMetrics | None,
) -> AsyncIterator[None]:
    """Serve the status of a worker with a listener, and send its metrics to a collector."""
    if metrics is None:
        yield
        return
    from heliograph.status.service import serve_status

    url, project = runtime.database.url, runtime.settings.project
    async with serve_status(worker, listening, export, metrics.registry, url, project) as served:
        if listening is not None:
            log.info("worker %s serves /metrics, /live and /ready on %s%s", worker.name, served,
                     ", metrics only with a key" if listening.keys else "")  # fmt: skip
        yield


def _load(options: Namespace) -> list[Workflow]:
    """Load the applications and manifests. Raises the errors of `load_target` and `configure`, and InvalidInput (`duplicate_application`)."""
    loaded: dict[str, tuple[str, Workflow]] = {}
    for reference in options.apps:
        workflow = configure(load_target(reference, options), options).workflow
        if workflow.name in loaded:
            raise InvalidInput(f"{loaded[workflow.name][0]} and {reference} are both named {workflow.name}; a worker "
                               "serves one application per name", code="duplicate_application")  # fmt: skip
        loaded[workflow.name] = (reference, workflow)
    return [workflow for _, workflow in loaded.values()]


@asynccontextmanager
async def _open_patiently(telemetry: TelemetrySettings) -> AsyncIterator[Runtime]:
    """Open the runtime when PostgreSQL accepts connections, for up to a minute. Raises the errors of `open_runtime`."""
    clock = asyncio.get_running_loop().time
    until, is_announced = clock() + _OPEN_SECONDS_MAX, False
    async with AsyncExitStack() as stack:
        runtime: Runtime | None = None
        while runtime is None:
            try:
                runtime = await stack.enter_async_context(open_runtime(telemetry=telemetry))
            except StoreUnavailable as error:
                if clock() > until:
                    raise
                if not is_announced:
                    log.warning("%s; trying again for %g s", error.message, _OPEN_SECONDS_MAX)
                is_announced = True
                await asyncio.sleep(_OPEN_PAUSE_SECONDS)
        yield runtime


def _heartbeat(options: Namespace) -> HeartbeatSettings | None:
    """The settings of the command line; None without any."""
    if options.heartbeat is None and options.missed_beats is None:
        return None
    from heliograph.control.settings import HeartbeatSettings  # slow to import

    given: dict[str, Any] = {} if options.missed_beats is None else {"missed_threshold": options.missed_beats}
    if options.heartbeat is not None:
        given["enabled"] = options.heartbeat > 0
    if options.heartbeat:
        given["interval_seconds"] = options.heartbeat
    return HeartbeatSettings(**given)


async def _serve(options: Namespace, listening: Listening | None, workflows: list[Workflow]) -> int:
    telemetry = telemetry_of(workflows, os.environ)
    async with _open_patiently(telemetry) as runtime:
        export = open_metric_export(telemetry)
        metrics = _turn_metrics(listening is not None or export is not None, runtime.world)
        worker = runtime.worker(
            *workflows, concurrency=options.concurrency, lease_seconds=options.lease, label=options.name,
            projects=getattr(options, "project", ()), heartbeat=_heartbeat(options),
            pools=options.pools, metrics=metrics,
        )  # fmt: skip
        caught = []

        def on_signal(number: int) -> None:
            caught.append(number)
            worker.stop()  # at once: an ending that comes before `serve` notices would carry the claim of another turn
            log.info("%s: stopping; running turns have %g s to finish, then other workers can claim them. "
                     "A second signal ends the process at once", signal.Signals(number).name, options.grace)  # fmt: skip
            end_within(options.grace + CLOSE_SECONDS, _code_after(number))

        with graceful(on_signal) as stopping:
            projects = [services.project for services in worker.projects]
            log.info("worker %s started: serves %s in project%s %s, %d turns at a time, leases of %g s", worker.name,
                     ", ".join(sorted(w.name for w in workflows)), "s"[: len(projects) - 1], ", ".join(projects),
                     options.concurrency, options.lease)  # fmt: skip
            pools = worker.projects[0].pools
            if tuple(pools) != (DEFAULT_POOL,):
                log.info("worker %s runs turns of pool%s %s", worker.name, "s"[: len(pools) - 1], ", ".join(pools))
            for workflow in workflows:
                if others := sorted(set(workflow.pools) - set(pools)):
                    log.info("application %s: turns of pool%s %s need other workers, started with --pool", workflow.name,
                             "s"[: len(others) - 1], ", ".join(others))  # fmt: skip
                for warning in workflow.warnings:
                    log.warning("application %s: %s", workflow.name, warning)
            with tuned_garbage_collection():
                async with _serve_status(runtime, worker, listening, export, metrics):
                    await runtime.serve(worker, stopping, options.grace)
        log.info("worker %s stopped", worker.name)
        return _code_after(caught[0]) if caught else 0


def _code_after(number: int) -> int:
    return INTERRUPTED if number == signal.SIGINT else 0
