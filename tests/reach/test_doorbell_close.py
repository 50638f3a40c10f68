"""A doorbell closes although its library loses a cancellation, as nats-py does while it flushes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from heliograph.doorbell import base, nats
from heliograph.doorbell.base import Bell
from heliograph.outbox_records import Event
from heliograph.world import cancellation
from tests.reach.nats_kit import NatsServer


class LosesCancellations(Bell):
    """Its connection takes long, and its library loses this many cancellations."""

    def __init__(self, lost: int) -> None:
        super().__init__(lambda _: None)
        self._lost_left, self.is_connecting, self._is_first = lost, asyncio.Event(), True

    @property
    def is_up(self) -> bool:
        return False

    async def publish(self, events: Sequence[Event]) -> None: ...

    async def _connect(self) -> None:
        if self._is_first:
            self._is_first = False
            raise ConnectionError("later")
        self.is_connecting.set()
        while self._lost_left > 0:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self._lost_left -= 1

    async def _disconnect(self) -> None: ...

    async def _send(self, keys: list[str], agents: list[str]) -> None:
        raise ConnectionError("no connection")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_RECONNECT_SECONDS", 0.001)
    monkeypatch.setattr(cancellation, "_CANCEL_SECONDS", 0.001)


@pytest.mark.parametrize("lost", [1, 3])
async def test_bell_closes_although_its_library_loses_cancellations(lost: int) -> None:
    bell = LosesCancellations(lost)
    await bell.open()
    async with asyncio.timeout(10):
        await bell.is_connecting.wait()
        await bell.close()


@pytest.mark.parametrize(
    ("keys", "lost"),
    [(["a"], "lost 1 ring: no connection"), (["a", "b"], "lost 2 rings: "), ([], "lost events for observers: ")],
)
async def test_log_names_what_was_lost_without_a_connection(
    keys: list[str], lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    bell = LosesCancellations(0)
    with caplog.at_level(logging.INFO, "heliograph"):
        bell.ring(keys)
        await bell._send_due()
    assert lost in caplog.text


async def test_tasks_that_ignore_every_cancellation_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bell = LosesCancellations(1000)
    await bell.open()
    await bell.is_connecting.wait()
    with caplog.at_level(logging.WARNING, "heliograph"):
        async with asyncio.timeout(10):
            await bell.close()
    assert "these tasks ignored their cancellation, and are abandoned: doorbell keep" in caplog.text
    bell._lost_left = 0  # the next cancellation ends it
    await cancellation.cancel(task for task in asyncio.all_tasks() if task.get_name() == "doorbell keep")


async def test_nats_bell_closes_beside_a_client_that_does_not(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "_TIMEOUT_SECONDS", 0.01)
    bell = nats.NatsDoorbell(server.url, lambda _: None)

    class Stuck:
        is_connected = True

        async def close(self) -> None:
            lost: list[Any] = []
            while len(lost) < 3:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError as error:
                    lost.append(error)

    bell._client = Stuck()
    async with asyncio.timeout(10):
        await bell.close()


async def test_nats_bell_with_many_events_closes_although_the_server_is_frozen(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell = nats.NatsDoorbell(server.url, lambda _: None)
    await bell.open()
    monkeypatch.setattr(nats, "_TIMEOUT_SECONDS", 0.05)
    bell._client._flush_timeout = 0.05  # for each of the events: without a bound, they take 40 s
    assert server._process is not None
    os.kill(server._process.pid, signal.SIGSTOP)
    try:
        for _ in range(1000):
            bell.publish_event("evt.agent.a.state", {"text": "x" * 20_000})
        closing = asyncio.create_task(bell.close())  # nats-py would lose the cancellation of a timeout
        await asyncio.wait({closing}, timeout=10)
        assert closing.done()
    finally:
        os.kill(server._process.pid, signal.SIGCONT)
    await closing
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("doorbell")] == []
