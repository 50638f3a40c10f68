"""The drawings of the documentation are current, load nothing, and are used by a page."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from heliograph.turn.phases import NEXT
from tools import diagrams

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", diagrams.drawings())
def test_drawing_is_current_and_loads_nothing(name: str) -> None:
    text = (diagrams.IMAGES / name).read_text(encoding="utf-8")
    assert text == diagrams.drawings()[name], "stale; next: make docs"
    tree = ElementTree.fromstring(text)  # noqa: S314 - our own file
    assert {element.tag.rpartition("}")[2] for element in tree.iter()} <= {
        "svg",
        "title",
        "style",
        "rect",
        "marker",
        "path",
        "text",
    }
    assert "prefers-color-scheme: dark" in text
    assert not any("href" in key for element in tree.iter() for key in element.attrib)


@pytest.mark.parametrize("name", diagrams.drawings())
def test_drawing_is_on_a_page(name: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"images/{name})" in page.read_text(encoding="utf-8") for page in pages)


def test_phases_show_every_transition_of_the_table() -> None:
    arrows = {(arrow.start, arrow.label, arrow.end) for arrow in diagrams.phases().arrows}
    assert {(str(phase), cue, str(then)) for (phase, cue), then in NEXT.items()} <= arrows


def test_pages_have_no_diagram_that_the_site_does_not_draw() -> None:
    assert [
        page.name for page in (ROOT / "docs").rglob("*.md") if "```mermaid" in page.read_text(encoding="utf-8")
    ] == []
