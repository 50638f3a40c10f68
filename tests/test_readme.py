"""README.md has the parts that a newcomer looks for; `tests/test_docs.py` runs its examples."""

from __future__ import annotations

import re
from pathlib import Path

from bench.three_applications.__main__ import lines_of_code
from tests.test_docs import blocks

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PARTS = ["Install", "An agent with a tool and an approval", "How it works", "What you get", "When to choose something else", "Figures",
         "To production", "Status"]  # fmt: skip
OTHERS = ("pydantic-ai", "LangGraph", "Temporal", "DBOS")


def part(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_parts_stand_in_this_order() -> None:
    titles = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert [title for title in titles if title in PARTS] == PARTS


def test_purpose_and_audience_stand_above_the_animation() -> None:
    first = README.partition("docs/images/killed-worker.svg")[0]
    assert "- **What**:" in first
    assert "- **For**:" in first
    assert len(first.split()) < 100


def test_first_program_is_short_and_has_a_tool_and_an_approval() -> None:
    program = next(block.text for block in blocks(README) if block.language == "python")
    assert lines_of_code(program) <= 15
    assert "@tool(approval=" in program


def test_whole_is_drawn() -> None:
    assert "docs/images/whole.svg" in part("How it works")


def test_each_alternative_is_named_once() -> None:
    rows = [line for line in part("When to choose something else").splitlines() if line.startswith("| ")][1:]
    assert [sum(name in row.split("|")[1] for row in rows) for name in OTHERS] == [1] * len(OTHERS)


def test_figure_of_kills_is_that_of_the_proof() -> None:
    proof = (ROOT / "docs" / "internals" / "proof.md").read_text(encoding="utf-8")
    [kills] = re.findall(r"([\d,]+ kills of workers) in one run", part("Figures"))
    assert kills in proof
