"""`run_sync` runs an application in a program without an event loop; an agent without a subscription starts with the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import InvalidInput


def greeting() -> Heliograph:
    app = Heliograph("greeting")

    @app.agent(updates="text")
    def greeter(ctx: Context) -> str:
        return f"Hello, {ctx.state['name']}"

    return app


def test_run_sync_returns_the_result_of_a_run(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", database_url)
    names: list[str] = []
    app, recording = greeting(), tmp_path / "greeting.jsonl"
    result = app.run_sync(
        {"name": "Ada"}, run_id="first", on_signal=lambda signal: names.append(signal.name), record=recording
    )
    assert (result.outcome, result.state["text"]) == ("success", "Hello, Ada")
    assert names[0] == "workflow:start"
    assert app.run_sync(run_id="first").state == result.state
    monkeypatch.delenv("HELIOGRAPH_DATABASE_URL")
    assert app.run_sync({"name": "Ada"}, record=recording, mode="replay").state == result.state


async def test_run_sync_names_the_next_step_where_an_event_loop_runs() -> None:
    with pytest.raises(InvalidInput, match=r"write `await app\.run\(\.\.\.\)`") as raised:
        greeting().run_sync({"name": "Ada"})
    assert raised.value.code == "event_loop_runs"
