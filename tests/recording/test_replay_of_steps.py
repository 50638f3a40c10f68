"""A replay runs no step: their progress, their effects and their cleanup come from the recording."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from heliograph import Context, Heliograph, tool
from heliograph.models import ScriptedModel, ToolCall
from heliograph.recording.file import lines_of
from heliograph.recording.replay_recording import replay_recording
from tests.recording.simulated import record_simulated


def app_of(folder: Path) -> Heliograph:
    """Everything that has an effect writes a file: a step, a tool, a plain function in a thread, and a cleanup."""
    app = Heliograph("effects")

    def write(name: str) -> str:
        (folder / name).touch()
        return name

    @tool(effect="once")
    def note(text: str) -> str:
        return write(text)

    @app.agent(activate_on=["workflow:start"], updates="done")
    async def worker(ctx: Context) -> str:
        ctx.on_cleanup(write, "cleanup")
        ctx.progress(0.1, "begins")

        async def work() -> str:
            ctx.progress(0.5, "within a step")
            return write("async")

        def plain() -> str:
            ctx.progress(0.7, "within a plain step")
            return write("plain")

        found = [await ctx.step("work", work), await ctx.step("plain", plain)]
        return " ".join([*found, ctx.idempotency_key])

    app.prompt_agent("writer", "Write", model=ScriptedModel([ToolCall("1", "note", {"text": "tool"}), "Written."]), tools=[note],
                     activate_on=["workflow:start"], updates="written")  # fmt: skip
    return app


def test_replay_repeats_progress_and_keys_of_steps_without_their_effects(tmp_path: Path) -> None:
    live, replayed = tmp_path / "live", tmp_path / "replayed"
    live.mkdir()
    replayed.mkdir()
    found = record_simulated(app_of(live), 1)
    assert {each.name for each in live.iterdir()} == {"async", "plain", "tool", "cleanup"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = replay_recording(found, app_of(replayed).workflow)
    assert result.is_same, list(result.lines())
    assert [each.name for each in replayed.iterdir()] == []
    payloads: list[Any] = [s.payload for s in result.signals if s.name == "agent:progress"]
    messages = [payload["message"] for payload in payloads]
    assert messages == ["begins", "within a step", "within a plain step"]
    assert list(lines_of(result.recording)) == list(lines_of(found))
