"""Research: a model searches a folder of notes and, after approval by a person, publishes a report.

    python -m examples.research.app NOTES "How long does honey keep?"

HELIOGRAPH_MODEL names the model, for example openai-chat:gpt-5. Without it a script replaces the model, so the example
runs anywhere. The worker may die at any time: results of searches are recorded, publishing is idempotent by its file name,
and the turn that waits for approval uses no process.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from pydantic import BaseModel

from heliograph import Heliograph, ToolContext, tool
from heliograph.models import AssistantMessage, ModelRequest, ScriptedModel, ToolCall, ToolMessage

SYSTEM = """You answer questions from a folder of notes. Search it first, read what you need, and publish one short report
that names the notes it rests on. End with one sentence that says where the report is."""
_SHORTEST = 4  # letters of a word worth searching for


class Desk(BaseModel):
    """The state of a run."""

    question: str
    answer: str = ""


@tool(effect="pure")
def search_notes(word: str, ctx: ToolContext) -> list[str]:
    """Find the notes that have a word.

    Args:
        word: one word, in any case
    """
    folder: Path = ctx.deps
    return sorted(note.name for note in folder.glob("*.md") if word.lower() in note.read_text(encoding="utf-8").lower())


@tool(effect="pure")
def read_note(name: str, ctx: ToolContext) -> str:
    """Read one note.

    Args:
        name: as search_notes gives it
    """
    folder: Path = ctx.deps
    note = folder / Path(name).name  # a file name without a folder
    if not note.is_file():
        raise FileNotFoundError(f"there is no note {name}")
    return note.read_text(encoding="utf-8")


@tool(effect="idempotent", approval=True, may_edit=True)
def publish(title: str, text: str, ctx: ToolContext) -> str:
    """Publish the report, after approval by a person, who may change it.

    Args:
        title: a few words
        text: the report
    """
    folder: Path = ctx.deps
    report = folder / f"report-{ctx.run_id}.txt"
    report.write_text(f"{title}\n\n{text}\n", encoding="utf-8")
    return report.name


def script(request: ModelRequest) -> list[ToolCall] | str:
    """A scripted model: search for the longest words, read the notes found, publish a report."""
    results = [m for m in request.messages if isinstance(m, ToolMessage)]
    asked = sum(isinstance(m, AssistantMessage) for m in request.messages)
    if asked == 0:
        words = sorted({w for w in re.findall(r"\w+", request.prompt) if len(w) >= _SHORTEST}, key=len)[-3:]
        return [ToolCall(f"search-{word}", "search_notes", {"word": word}) for word in words]
    if asked == 1:
        found = sorted(
            {str(name) for message in results if isinstance(message.content, list) for name in message.content}
        )
        return [
            ToolCall(f"read-{name}", "read_note", {"name": name}) for name in found[:3]
        ] or "The notes say nothing of it."
    read = [m for m in results if m.tool == "read_note"]
    if asked == 2:
        text = "\n".join(str(m.content) for m in read)
        return [ToolCall("publish", "publish", {"title": request.prompt, "text": text})]
    last = results[-1]
    return f"Not published: {last.content}" if last.is_error else f"The report is in {last.content}."


def make_app(folder: Path) -> Heliograph:
    app = Heliograph("research", state=Desk, deps=folder)
    app.prompt_agent(
        "researcher", "{state.question}", system=SYSTEM, model=None if os.environ.get("HELIOGRAPH_MODEL") else ScriptedModel(script),
        activate_on=["workflow:start"], updates="answer", tools=[search_notes, read_note, publish],
    )  # fmt: skip
    return app


app = make_app(Path(os.environ.get("RESEARCH_NOTES", ".")))


async def main(folder: str, question: str) -> None:
    print("when it waits for approval to publish: helio approval list, then helio approval grant TURN CALL")
    result = await make_app(Path(folder)).run(Desk(question=question))
    print(result.state.answer)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
