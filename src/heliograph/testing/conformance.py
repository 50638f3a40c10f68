"""What every implementation of a protocol has to keep, as suites to inherit from.

A test module names its class `Test...`, inherits from the suite and gives the
fixture that the suite asks for; pytest does the rest:

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
from heliograph.records import Event

PATIENCE_SECONDS = 15.0
EVENT = Event(1, "evt:turn_1", "evt.agent.run_1.task", {}, project="shop", target="till")
RINGS = 1000

OnWire = tuple[str, str, dict[str, Any]]  # subject as it stood on the wire, key, body


class Heard:
    """What one process's bell called `on_ring` with, in order."""

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
    """One wire that bells meet on, with somebody who can break it, forge on it and listen to it."""

    def make(self, on_ring: Callable[[list[str]], None]) -> Bell:
        """A bell as a process of its own would have it; not open yet."""
        ...

    async def cut(self) -> None:
        """Every connection breaks, and none can be made."""
        ...

    async def mend(self) -> None:
        """Connections can be made again; the broken ones stay broken."""
        ...

    async def forge(self, text: str) -> None:
        """Put on the bells' wire what no bell would send; `text` where the keys would stand."""
        ...

    async def listen(self) -> asyncio.Queue[OnWire]:
        """Hear the events from now on, as an outsider does."""
        ...


class DoorbellConformance:
    """The promises of `heliograph.doorbell.base.Bell`. The fixture `ground` is a BellGround of the implementation."""

    heard: Heard
    here: Bell
    there: Bell

    @pytest_asyncio.fixture(autouse=True)
    async def bells(self, ground: BellGround) -> AsyncIterator[None]:
        """Two processes' bells, open: `here` rings, `there` hears."""
        self.heard = Heard()
        self.here, self.there = ground.make(Heard()), ground.make(self.heard)
        await self.here.open()
        await self.there.open()
        yield
        await self.here.close()
        await self.there.close()

    @pytest.mark.proves("L0-08")
    async def test_a_ring_reaches_the_others_and_carries_its_keys_only(self) -> None:
        self.here.ring(["work:newsroom", "log:run_1-a_B", "owed:newsroom"])
        await self.heard.wait_for("work:newsroom")
        await self.heard.wait_for("log:run_1-a_B")
        await self.heard.wait_for("owed:newsroom")
        assert len(self.heard.keys) == 3

    async def test_a_ring_does_not_come_back_to_its_own_process(self, ground: BellGround) -> None:
        mine = Heard()
        bell = ground.make(mine)
        await bell.open()
        try:
            bell.ring(["work:mine"])
            await self.heard.wait_for("work:mine")
            self.here.ring(["work:other"])  # what came back would have come before this
            await mine.wait_for("work:other")
            assert mine.keys == ["work:other"]
        finally:
            await bell.close()

    async def test_many_rings_at_once_are_one(self) -> None:
        for _ in range(RINGS):
            self.here.ring(["work:busy", "work:also"])
        await self.heard.wait_for("work:also")
        await self.heard.wait_for("work:busy")
        self.here.ring(["work:end"])
        await self.heard.wait_for("work:end")
        assert sorted(self.heard.keys) == ["work:also", "work:busy", "work:end"]

    @pytest.mark.proves("L0-04")
    async def test_a_lost_connection_drops_rings_in_silence_and_comes_back_by_itself(self, ground: BellGround) -> None:
        await ground.cut()
        await eventually(lambda: not (self.here.is_up or self.there.is_up))
        self.here.ring(["work:lost"])
        await ground.mend()
        await self.heard.wait_for("*")  # look everywhere, for what may have been missed
        await eventually(lambda: self.here.is_up)
        self.here.ring(["work:newsroom"])
        await self.heard.wait_for("work:newsroom")
        assert "work:lost" not in self.heard.keys

    async def test_a_bell_opens_without_a_wire_and_rings_once_there_is_one(self, ground: BellGround) -> None:
        await ground.cut()
        late = Heard()
        bell = ground.make(late)
        await bell.open()
        try:
            assert not bell.is_up
            await ground.mend()
            await late.wait_for("*")
            await eventually(lambda: self.here.is_up)
            self.here.ring(["work:newsroom"])
            await late.wait_for("work:newsroom")
        finally:
            await bell.close()

    @pytest.mark.proves("S6")
    async def test_garbage_on_the_wire_is_at_most_a_key_that_nobody_has(self, ground: BellGround) -> None:
        for text in ("x", "*", "work", "work:", ":", "work:\x01", "w" * 3000, "%00%ff%zz", "work:*", "å:ß", "{}", "\\"):
            await ground.forge(text)
        self.here.ring(["work:newsroom"])
        await self.heard.wait_for("work:newsroom")
        assert self.there.is_up

    @pytest.mark.proves("G-61")
    async def test_an_event_is_delivered_with_subject_key_and_body(self, ground: BellGround) -> None:
        events = await ground.listen()
        body = {
            "agent_turn_id": "turn_1",
            "status": "success",
            "output_box_id": "box_1",
            "deliverable_card_id": "card_1",
        }
        await self.here.publish([replace(EVENT, body=body)])
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await events.get() == ("evt.agent.run_1.task", "shop/till/evt:turn_1", body)

    @pytest.mark.proves("G-61")
    async def test_an_event_that_may_not_have_got_there_is_an_error_and_may_be_published_again(
        self, ground: BellGround
    ) -> None:
        await ground.cut()
        with pytest.raises(OSError, match=r"\w"):
            await self.here.publish([EVENT])
        await ground.mend()
        await eventually(lambda: self.here.is_up)
        events = await ground.listen()
        await self.here.publish([EVENT])
        await self.here.publish([EVENT])
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await events.get() == await events.get() == ("evt.agent.run_1.task", "shop/till/evt:turn_1", {})

    async def test_closing_twice_or_unopened_is_harmless(self, ground: BellGround) -> None:
        await self.here.close()
        await self.here.close()
        await ground.make(Heard()).close()
        assert not self.here.is_up


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for what nothing announces."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)
