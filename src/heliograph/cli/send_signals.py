"""`helio signal send`: send signals to a webhook, a file or the log, under a durable name."""

from __future__ import annotations

import asyncio
import logging
import signal
from argparse import Namespace
from typing import Any

from heliograph.adapters.base import AdapterServices, DeliveryFailed, TargetUnavailable
from heliograph.adapters.json_lines import JsonLines
from heliograph.adapters.logs import Logs
from heliograph.adapters.webhook import Webhook
from heliograph.cli.early_signals import INTERRUPTED
from heliograph.cli.existing_database import open_existing_runtime
from heliograph.cli.interrupts import end_within, graceful, run_agents
from heliograph.cli.logs import show_logs
from heliograph.config import CLOSE_SECONDS
from heliograph.definitions.signal_subscribers import SignalSubscriber, signal_subscriber
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.subscriptions.deliveries import Deliveries
from heliograph.subscriptions.serving import CLOSE_SECONDS as DRAIN_SECONDS

log = logging.getLogger("heliograph.cli")

ATTEMPTS = 5  # for a signal that the target rejects


def send(options: Namespace) -> int:
    """Send signals until SIGTERM (returns 0) or SIGINT (130); with --once, until those recorded by now are sent."""
    show_logs(logging.INFO)
    subscriber = signal_subscriber(options.name, options.patterns, _target(options), options.since, ATTEMPTS)
    return run_agents(_send(subscriber, is_once=options.once))


def _target(options: Namespace) -> Any:
    if options.levels and not options.logs:
        raise InvalidInput("--level is an option of --logs; remove it", code="usage", path="--level")
    if options.webhook is not None:
        return Webhook(options.webhook)
    return JsonLines(options.json_lines) if options.json_lines is not None else Logs(_levels(options.levels))


def _levels(texts: list[str]) -> dict[str, str]:
    levels: dict[str, str] = {}
    for text in texts:
        pattern, is_given, level = text.rpartition("=")
        if not is_given:
            raise InvalidInput(f"--level must be PATTERN=LEVEL, for example 'order:*=warning', not {safe_repr(text)}", code="usage",
                               path="--level")  # fmt: skip
        levels.setdefault(pattern, level)
    return levels


async def _send(subscriber: SignalSubscriber, *, is_once: bool) -> int:
    async with open_existing_runtime(f"subscription {subscriber.name}") as runtime:
        project = runtime.settings.project
        services = AdapterServices(runtime.world, project, messenger=runtime.webhook_messenger(project))
        async with subscriber.adapter.open(services, subscriber):
            pass  # a target that this process cannot serve needs no subscription
        deliveries = Deliveries(services, subscriber)
        await deliveries.subscribe()
        if is_once:
            deliveries.drain()
            await deliveries.run()
            return _result(deliveries)
        return await _until_stopped(deliveries)


def _result(deliveries: Deliveries) -> int:
    """The exit code after the recorded signals. Raises TargetUnavailable, DeliveryFailed or StoreUnavailable if some of them wait."""
    name = deliveries.subscriber.name
    if deliveries.unavailable is not None:
        raise deliveries.unavailable
    if (failure := deliveries.outage.last) is not None:
        raise TargetUnavailable(
            f"subscription {name}: {failure.message}; its signals wait in the log, so repeat the command later"
        )
    if deliveries.is_behind:
        raise DeliveryFailed(f"subscription {name}: {deliveries.subscriber.adapter.target} rejected signals, which wait in the log; run the "
                             "command without --once to skip them after some attempts")  # fmt: skip
    if deliveries.has_others:
        log.warning("subscription %s: another process has runs with signals, or was killed with them; in that case, repeat the command in a "
                    "minute", name)  # fmt: skip
    return 0 if deliveries.skipped == 0 else 1


async def _until_stopped(deliveries: Deliveries) -> int:
    name, caught = deliveries.subscriber.name, list[int]()

    def on_signal(number: int) -> None:
        caught.append(number)
        log.info("%s: stopping; recorded signals have %g s to be sent, then the next process sends them. A second signal ends the process at "
                 "once", signal.Signals(number).name, DRAIN_SECONDS)  # fmt: skip
        end_within(DRAIN_SECONDS + CLOSE_SECONDS, _code_after(number))

    with graceful(on_signal) as stopping:
        log.info("subscription %s sends %s to %s", name, " ".join(deliveries.subscriber.patterns),
                 deliveries.subscriber.adapter.target)  # fmt: skip
        serving, stopped = asyncio.create_task(deliveries.run()), asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            deliveries.drain()
            await asyncio.wait({serving}, timeout=DRAIN_SECONDS)
        finally:
            for task in (serving, stopped):
                task.cancel()
            await asyncio.gather(stopped, return_exceptions=True)
            [result] = await asyncio.gather(serving, return_exceptions=True)
        if isinstance(result, Exception):
            raise result
    log.info("subscription %s stopped", name)
    return _code_after(caught[0]) if caught else 0


def _code_after(number: int) -> int:
    return INTERRUPTED if number == signal.SIGINT else 0
