"""Conversations in the tests of an application: on a database, in a simulation, and recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from heliograph import Heliograph, Session
from heliograph.errors import HarnessError
from heliograph.models import ModelReply, ModelRequest, ScriptedModel, TextDelta
from heliograph.ports import Chunk
from heliograph.testing import ApplicationServer, RecordedRun, Simulation, crash_at_every_await, virtual_time


def chat() -> Heliograph:
    app = Heliograph("chat")
    app.prompt_agent("assistant", "{message}", model="openai-chat:gpt-5")
    return app


def counting() -> ScriptedModel:
    return ScriptedModel(lambda request: f"{len(request.messages)} messages")


async def talk(session: Session) -> None:
    assert (await session.send("Hello")).text == "1 messages"
    assert (await session.send("Again")).text == "3 messages"


async def test_session_talks_to_a_stub_on_a_database(heliograph_app: ApplicationServer) -> None:
    async with heliograph_app(chat(), models=counting()) as app:
        async with app.session("anna") as session:
            await talk(session)
        continued = await app.client.session(app.app, "anna")
        assert (await continued.send("More")).text == "5 messages"
        assert [each.text for each in await continued.history()][::2] == ["Hello", "Again", "More"]


class Endless:
    """A model that does not end its reply."""

    model = "endless"

    def __init__(self, sim: Simulation):
        self._sim = sim

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        while True:
            yield TextDelta("on and ")
            await self._sim.sleep(1)


@virtual_time
async def test_reply_is_stopped_in_a_simulation(sim: Simulation) -> None:
    app = sim.serve(chat(), models=Endless(sim))
    async with app.session() as session:
        pending = await session.post("Count")
        async for _ in pending:
            assert await session.stop() == [pending.turn_id]
            break
        reply = await pending.reply()
        assert reply.was_stopped
        assert reply.text.startswith("on and ")
        await session.close()
        assert (await app.result(session.id)).outcome == "success"


async def conversation(sim: Simulation) -> list[str]:
    app = sim.serve(chat(), models=counting())
    async with app.session("anna") as session:
        await session.send("Hello", message_id="1")
        return [each.text for each in await session.history()]


def test_message_is_answered_once_whichever_await_its_worker_dies_at() -> None:
    report = crash_at_every_await(conversation)
    assert report.crashes == report.awaits > 0


class SlowModel:
    """Streams one word each second."""

    model = "slow"

    async def stream(self, _request: ModelRequest) -> AsyncIterator[Chunk]:
        for word in ("one ", "two ", "three"):
            yield TextDelta(word)
            await asyncio.sleep(1)
        yield ModelReply("one two three")


@pytest.mark.proves("P-58")
@virtual_time
async def test_pieces_of_a_reply_have_their_places_in_it(sim: Simulation) -> None:
    async with sim.serve(chat(), models=SlowModel()).session() as session:
        pieces = [(piece, piece.offset) async for piece in await session.post("Hello")]
    assert pieces == [("one ", 0), ("two ", 4), ("three", 8)]


@pytest.mark.proves("P-58")
@virtual_time
async def test_pieces_of_a_reply_that_begins_again_have_the_offset_0(sim: Simulation) -> None:
    failure = HarnessError("busy", recoverable=True)
    model = ScriptedModel([[TextDelta("half a "), failure], [TextDelta("a whole "), TextDelta("reply")]])
    async with sim.serve(chat(), models=model).session() as session:
        pending = await session.post("Hello")
        pieces = [(piece, piece.offset) async for piece in pending]
        assert "".join(piece for piece, _ in pieces).endswith("a whole reply")
        assert [piece for piece, offset in pieces if offset == 0][:1] == ["half a "]
        assert sum(offset == 0 for _, offset in pieces) == 2
        assert (await pending.reply()).text == "a whole reply"


async def test_recorded_conversation_is_replayed_without_a_model(tmp_path: Path, heliograph_database_url: str) -> None:
    path = tmp_path / "talk.jsonl"
    recorded = await RecordedRun(path, "t.py::test", heliograph_database_url).session(chat(), talk, models=counting())
    replayed = await RecordedRun(path, "t.py::test", None).session(chat(), talk)
    assert recorded.outcome == "success"
    assert [each.id for each in replayed.signals] == [each.id for each in recorded.signals]
