"""Three applications, each with Heliograph, LangGraph, Temporal and pydantic-ai: two of these run here, and the documentation has the lines of all."""

from __future__ import annotations

import ast
import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import models

from bench.three_applications.__main__ import APPLICATIONS, HERE, SYSTEMS, count, lines_of_code, table
from heliograph import Client

ROOT = Path(__file__).resolve().parent.parent


def test_documentation_has_the_counts() -> None:
    assert table() in (ROOT / "docs" / "how-to" / "coming-from.md").read_text(encoding="utf-8")


def test_readme_has_the_sums() -> None:
    first, second, third, fourth = (sum(count(name, system) for name in APPLICATIONS) for system in SYSTEMS)
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"written with Heliograph, LangGraph, Temporal and pydantic-ai, have {first}, {second}, {third} and {fourth} lines"
        in text
    )


def test_only_code_is_counted() -> None:
    assert (
        lines_of_code(
            '"""A text\n\nof three lines."""\n\nx = 1  # one\n# none\n\ndef f():\n    """Nothing."""\n    return x\n'
        )
        == 3
    )


def test_lines_are_as_long_as_each_other() -> None:
    files = [HERE / f"{name}_{system}.py" for name in APPLICATIONS for system in SYSTEMS]
    assert [file.name for file in files if max(map(len, file.read_text(encoding="utf-8").splitlines())) > 120] == []
    for file in files:  # no line has two statements
        lines = [
            node.lineno for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.stmt)
        ]
        assert len(lines) == len({*lines}), file.name


def test_heliograph_has_the_fewest_lines() -> None:
    assert [
        name for name in APPLICATIONS for system in SYSTEMS if count(name, system) < count(name, "heliograph")
    ] == []


@pytest.mark.more
async def test_applications_of_heliograph_run(
    monkeypatch: pytest.MonkeyPatch, database_url: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", database_url)
    from bench.three_applications import chat_heliograph, documents_heliograph, triage_heliograph

    result = await documents_heliograph.app.run({"documents": [f"doc{n}" for n in range(30)]})
    assert (result.outcome, result.state["digest"], result.state["summaries"][29]) == (
        "success",
        "30 documents",
        "short doc29",
    )
    for number in (1, 2):  # another process would do the same
        async with chat_heliograph.app.session("anna") as session:
            assert (await session.send("Hello")).text == f"message {number}"
    async with Client() as client:
        await client.start(triage_heliograph.app, {"message": "My tea is broken"}, run_id="t1")
        running = asyncio.create_task(triage_heliograph.app.run(run_id="t1"))
        async for signal in client.follow("t1"):
            payload: Any = signal.payload
            if signal.name == "tool:call" and "question" in payload["input"]:
                [task] = await client.approvals("t1")
                await client.grant(task.turn_id, task.call_id)
        assert (await running).state["answer"] == "Your money is on its way."


async def test_applications_of_pydantic_ai_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)
    triage, documents, chat = (application(name, "pydantic_ai") for name in APPLICATIONS)
    assert "refund" in await triage.start("t1", "My tea is broken")
    assert await triage.approve("t1") == "Your money is on its way."
    assert await documents.main("d1", [f"doc{n}" for n in range(30)]) == "30 documents"
    assert ["".join([piece async for piece in chat.send("anna", "Hello")]) for _ in range(2)] == [
        "message 1",
        "message 2",
    ]


def application(name: str, system: str) -> Any:
    return importlib.import_module(f"bench.three_applications.{name}_{system}")
