"""Serve the subscribers of applications beside their workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from heliograph.adapters.base import AdapterServices, TargetElsewhere
from heliograph.errors import HeliographError, SetupError
from heliograph.ledger.signal_feed import SignalFeed
from heliograph.policy.egress import EgressRejected
from heliograph.reactive.workflow import Workflow
from heliograph.subscriptions.deliveries import Deliveries
from heliograph.subscriptions.leased_runs import LEASE_SECONDS, LeasedRuns
from heliograph.world.seam import World

if TYPE_CHECKING:
    from heliograph.egress.messenger import Messenger
    from heliograph.telemetry.metrics import Registry

log = logging.getLogger("heliograph.subscriptions")

CLOSE_SECONDS = 5.0  # for the signals that are recorded when the work ends


@asynccontextmanager
async def serving_subscribers(
    world: World,
    workflows: Sequence[Workflow],
    messengers: Mapping[str, Messenger | None],
    *,
    registry: Registry | None = None,
    close_seconds: float | None = None,
) -> AsyncIterator[None]:
    """Deliver the signals of projects to the subscribers of these applications, until the end of the block.

    messengers: by project; each sends the webhooks of one. registry: counts signals; None if nobody reads the metrics of the process.
    Signals that are recorded at the end have `close_seconds` (CLOSE_SECONDS); a later process receives the rest. Raises the errors of
    `SignalFeed.subscribe`.
    """
    leases = {project: LeasedRuns(world, SignalFeed(world, project), LEASE_SECONDS) for project in messengers}
    found = [
        Deliveries(AdapterServices(world, project, messenger=messenger, registry=registry), subscriber, leases[project])
        for project, messenger in messengers.items()
        for workflow in workflows
        for subscriber in workflow.subscribers
    ]
    for each in found:
        await each.subscribe()
    tasks = [asyncio.create_task(_serve(each), name=f"subscription {each.subscriber.name}") for each in found]
    try:
        yield
        for each in found:
            each.drain()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS if close_seconds is None else close_seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(deliveries: Deliveries) -> None:
    """Deliver signals; an error ends the deliveries to this subscriber in this process, and nothing else."""
    name = deliveries.subscriber.name
    try:
        await deliveries.run()
    except TargetElsewhere as error:
        log.info("subscription %s waits for another process: %s", name, error.message)
    except (SetupError, EgressRejected) as error:
        log.warning("subscription %s waits for another process: %s", name, error.message)
    except HeliographError as error:
        log.error("subscription %s ends in this process, and its signals wait for another one: %s", name, error.message)
    except Exception:
        log.exception("subscription %s ends in this process", name)
