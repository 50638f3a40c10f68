"""Sessions of the runtime tests: an application that chats, an open session, and the replay of what it recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from heliograph import Heliograph
from heliograph.client.session import Session, open_session
from heliograph.models import ModelRequest, ScriptedModel
from heliograph.recording.export import export_recording
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import replay_recording
from tests.runtime.kit import SOON_SECONDS, Rig, one


def echo(request: ModelRequest) -> str:
    return f"{len(request.messages)}: {request.prompt}"


def chat(model: Any = None, **options: Any) -> Heliograph:
    """An application whose only agent answers messages; `echo` stands in for its model."""
    app = Heliograph("chat")
    app.prompt_agent("assistant", "{message}", model=ScriptedModel(echo) if model is None else model, **options)
    return app


@asynccontextmanager
async def talking(rig: Rig, app: Heliograph, *, closes: bool = True, **options: Any) -> AsyncIterator[Session]:
    """The open session `anna` of an application, for at most SOON_SECONDS. closes: close it at the end of the block."""
    async with asyncio.timeout(SOON_SECONDS), open_session(rig.runtime, app.workflow, "anna", **options) as session:
        yield session
        if closes:
            await session.close()


async def check_replay(rig: Rig, app: Heliograph, run_id: str = "anna") -> tuple[Recording, int]:
    """Assert that a run is replayed without a difference; return its recording, and the number of signals that the replay reproduced."""
    recording = await export_recording(rig.runtime.reader, run_id)
    result = replay_recording(recording, app.workflow)
    assert result.is_same, [*result.lines()]
    return recording, result.reproduced


async def check_loop_was_limited(rig: Rig) -> None:
    """Assert that a loop has ended the run of the session by its limit of three activations."""
    end = one(await rig.ended("anna"), "workflow:end")
    found = end["outcome"], end["code"], end["reason"]
    assert found == ("failed", "MAX_ACTIVATIONS", "activation limit of 3 reached")
