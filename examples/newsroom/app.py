"""The newsroom: four critics review a document in parallel, an editor sums up, a publisher writes the report.

    workflow:start ─▶ splitter ─▶ document:split ─▶ readability ┐
                                                 ─▶ structure   ├─▶ editor ─▶ summary:written ─▶ publisher
                                                 ─▶ repetition  │
                                                 ─▶ claims      ┘

Every figure is computed from the document. The editor's summary follows rules,
or is written by the model that HELIOGRAPH_MODEL names.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from examples.newsroom import claims, readability, repetition, structure
from examples.newsroom.document import Document, read_document, split
from examples.newsroom.finding import Finding
from examples.newsroom.report import prompt_for_summary, summarise, write_report
from heliograph import Context, Heliograph

CRITICS: dict[str, ModuleType] = {
    "readability": readability,
    "structure": structure,
    "repetition": repetition,
    "claims": claims,
}
# Seconds between two sections, so that people can watch and the demo can kill a worker. The work itself takes less time.
PACE_SECONDS = float(os.environ.get("NEWSROOM_PACE", "0"))


class Desk(BaseModel):
    """The shared state. `document` is the split text; `reviews` has figures and findings by critic."""

    path: str
    report_path: str
    sha256: str = ""
    document: dict[str, Any] = {}
    reviews: dict[str, dict[str, Any]] = {}
    summary: str = ""
    report: str = ""


app = Heliograph("newsroom", state=Desk, reducers={"reviews": lambda old, new: {**old, **new}})


@app.agent(activate_on=["workflow:start"], emits=["document:split"], updates=["document", "sha256"])
def splitter(ctx: Context) -> dict[str, Any]:
    """Read the document once; all agents work from the recorded text."""
    text = read_document(ctx.state.path)
    ctx.emit("document:split", {"characters": len(text)})
    return {"document": split(text).to_json(), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _examine(desk: ModuleType, document: Document, path: str) -> tuple[dict[str, Any], list[Finding]]:
    base = Path(path).resolve().parent  # relative links start at the folder of the document
    return desk.figures(document, base), desk.review(document, base)


def _critic(name: str, desk: ModuleType) -> Callable[[Context], Any]:
    async def review(ctx: Context) -> dict[str, Any]:
        document = Document.from_json(ctx.state.document)
        for done, section in enumerate(document.sections):
            ctx.progress(done / len(document.sections), section.heading or "the beginning")
            await ctx.sleep(PACE_SECONDS)
        figures, findings = await asyncio.to_thread(_examine, desk, document, ctx.state.path)
        return {name: {"figures": figures, "findings": [finding.to_dict() for finding in findings]}}

    return review


for _name, _desk in CRITICS.items():
    app.agent(name=_name, activate_on=["document:split"], emits=[f"review:{_name}"], updates="reviews")(
        _critic(_name, _desk)
    )


def _reviewed(ctx: Context) -> tuple[dict[str, Any], list[Finding]]:
    reviews = ctx.state.reviews
    figures = {name: review["figures"] for name, review in reviews.items()}
    return figures, [Finding.from_dict(f) for review in reviews.values() for f in review["findings"]]


def _prompt(ctx: Context) -> str:
    return prompt_for_summary(*_reviewed(ctx))


_editor: dict[str, Any] = {
    "activate_when_all": [f"review:{name}" for name in CRITICS],
    "emits": ["summary:written"],
    "updates": "summary",
}
if os.environ.get("HELIOGRAPH_MODEL"):
    app.prompt_agent("editor", _prompt, **_editor)
else:

    @app.agent(**_editor)
    def editor(ctx: Context) -> str:
        """Summarize the findings of the critics by rule."""
        return summarise(*_reviewed(ctx))


@app.agent(activate_on=["summary:written"], emits=["report:published"], updates="report")
def publisher(ctx: Context) -> str:
    """Write the report to its file. A repeated write after a crash produces the same file."""
    figures, findings = _reviewed(ctx)
    by_critic: dict[str, Sequence[Finding] | None] = {
        name: [f for f in findings if f.critic == name] if name in figures else None for name in CRITICS
    }
    provenance = {
        "document": ctx.state.path,
        "sha256": ctx.state.sha256,
        "summary by": os.environ.get("HELIOGRAPH_MODEL") or "rule",
        "run": ctx.run_id,
    }
    text = write_report(Path(ctx.state.path).name, figures, by_critic, ctx.state.summary, provenance)
    target = Path(ctx.state.report_path)
    part = target.with_name(f"{target.name}.{ctx.turn_id}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(target)
    return text
