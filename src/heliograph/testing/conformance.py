"""Test suites for implementations of the ports.

A test module defines a class `Test...` that inherits from a suite, and the fixture that the suite requires. pytest runs
the inherited tests:

    class TestMyBell(DoorbellConformance):
        @pytest_asyncio.fixture
        async def ground(self) -> AsyncIterator[BellGround]: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import pytest
import pytest_asyncio
from msgspec.structs import replace

from heliograph.doorbell.base import Bell
from heliograph.outbox_records import Event

PATIENCE_SECONDS = 15.0
EVENT = Event(1, "evt:turn_1", "evt.agent.run_1.task", {}, project="shop", target="till")
RINGS = 1000

OnWire = tuple[str, str, dict[str, Any]]  # subject as it stood on the wire, key, body


class RecordedRings:
    """The arguments of each call of `on_ring` by one process's bell, in order."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._changed = asyncio.Event()

    def __call__(self, keys: list[str]) -> None:
        self.keys += keys
        self._changed.set()

    async def wait_for(self, key: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while key not in self.keys:
                self._changed.clear()
                await self._changed.wait()


class BellGround(Protocol):
    """One wire of bells, with an attacker who can break it, forge rings and listen."""

    def make(self, on_ring: Callable[[list[str]], None]) -> Bell:
        """Make a bell, like that of another process. It is not open yet."""
        ...

    async def cut(self) -> None:
        """Break all connections, and prevent new ones."""
        ...

    async def restore(self) -> None:
        """Allow connections again. Broken connections stay broken."""
        ...

    async def forge(self, text: str) -> None:
        """Send a message that no bell sends, with `text` in the place of the keys."""
        ...

    async def listen(self) -> asyncio.Queue[OnWire]:
        """Receive all later events, like an observer outside Heliograph."""
        ...


class DoorbellConformance:
    """Tests of every promise of `heliograph.doorbell.base.Bell`. The fixture `ground` is the implementation's BellGround."""

    rings: RecordedRings
    local: Bell
    remote: Bell

    @pytest_asyncio.fixture(autouse=True)
    async def bells(self, ground: BellGround) -> AsyncIterator[None]:
        """Yield open bells of two processes: `local` rings, `remote` receives."""
        self.rings = RecordedRings()
        self.local, self.remote = ground.make(RecordedRings()), ground.make(self.rings)
        await self.local.open()
        await self.remote.open()
        yield
        await self.local.close()
        await self.remote.close()

    @pytest.mark.proves("L0-08")
    async def test_ring_reaches_the_others_with_its_keys_only(self) -> None:
        self.local.ring(["work:newsroom", "log:run_1-a_B", "reaction:newsroom"])
        await self.rings.wait_for("work:newsroom")
        await self.rings.wait_for("log:run_1-a_B")
        await self.rings.wait_for("reaction:newsroom")
        assert len(self.rings.keys) == 3

    async def test_ring_does_not_return_to_its_own_process(self, ground: BellGround) -> None:
        mine = RecordedRings()
        bell = ground.make(mine)
        await bell.open()
        try:
            bell.ring(["work:mine"])
            await self.rings.wait_for("work:mine")
            self.local.ring(["work:other"])  # a ring that returned would arrive before this one
            await mine.wait_for("work:other")
            assert mine.keys == ["work:other"]
        finally:
            await bell.close()

    async def test_simultaneous_rings_wake_once(self) -> None:
        for _ in range(RINGS):
            self.local.ring(["work:busy", "work:also"])
        await self.rings.wait_for("work:also")
        await self.rings.wait_for("work:busy")
        self.local.ring(["work:end"])
        await self.rings.wait_for("work:end")
        assert sorted(self.rings.keys) == ["work:also", "work:busy", "work:end"]

    @pytest.mark.proves("L0-04")
    async def test_lost_connection_drops_rings_silently_and_reconnects_by_itself(self, ground: BellGround) -> None:
        await ground.cut()
        await eventually(lambda: not (self.local.is_up or self.remote.is_up))
        self.local.ring(["work:lost"])
        await ground.restore()
        await self.rings.wait_for("*")  # '*': rings may have been lost, so check everything
        await eventually(lambda: self.local.is_up)
        self.local.ring(["work:newsroom"])
        await self.rings.wait_for("work:newsroom")
        assert "work:lost" not in self.rings.keys

    async def test_bell_opens_without_a_wire_and_rings_after_one_appears(self, ground: BellGround) -> None:
        await ground.cut()
        late = RecordedRings()
        bell = ground.make(late)
        await bell.open()
        try:
            assert not bell.is_up
            await ground.restore()
            await late.wait_for("*")
            await eventually(lambda: self.local.is_up)
            self.local.ring(["work:newsroom"])
            await late.wait_for("work:newsroom")
        finally:
            await bell.close()

    @pytest.mark.proves("S6")
    async def test_garbage_on_the_wire_yields_at_most_an_unused_key(self, ground: BellGround) -> None:
        for text in ("x", "*", "work", "work:", ":", "work:\x01", "w" * 3000, "%00%ff%zz", "work:*", "å:ß", "{}", "\\"):
            await ground.forge(text)
        self.local.ring(["work:newsroom"])
        await self.rings.wait_for("work:newsroom")
        assert self.remote.is_up

    @pytest.mark.proves("G-61")
    async def test_event_is_delivered_with_subject_key_and_body(self, ground: BellGround) -> None:
        events = await ground.listen()
        body = {
            "agent_turn_id": "turn_1",
            "status": "success",
            "output_box_id": "box_1",
            "deliverable_card_id": "card_1",
        }
        await self.local.publish([replace(EVENT, body=body)])
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await events.get() == ("evt.agent.run_1.task", "shop/till/evt:turn_1", body)

    @pytest.mark.proves("G-61")
    async def test_possibly_lost_event_raises_an_error_and_may_be_published_again(self, ground: BellGround) -> None:
        await ground.cut()
        with pytest.raises(OSError, match=r"\w"):
            await self.local.publish([EVENT])
        await ground.restore()
        await eventually(lambda: self.local.is_up)
        events = await ground.listen()
        await self.local.publish([EVENT])
        await self.local.publish([EVENT])
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await events.get() == await events.get() == ("evt.agent.run_1.task", "shop/till/evt:turn_1", {})

    async def test_closing_twice_or_unopened_is_harmless(self, ground: BellGround) -> None:
        await self.local.close()
        await self.local.close()
        await ground.make(RecordedRings()).close()
        assert not self.local.is_up


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)
