"""The animation of README.md: the drawing belongs to the recorded session, and the session happens as recorded."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools import animation

DONE = ["reserve the goods", "charge the card", "print the label", "ship the parcel"]
BYTES_MAX = 20_000


def done(cast: str) -> list[list[str]]:
    """The steps that finished in a session, before the kill and after it."""
    parts: list[list[str]] = [[]]
    for _, _, text in map(json.loads, cast.splitlines()[1:]):
        if "kill -9" in text:
            parts.append([])
        elif text.rstrip().endswith(": done"):
            parts[-1].append(text.strip().removesuffix(": done"))
    return parts


def test_drawing_belongs_to_the_recorded_session_and_is_small() -> None:
    committed = animation.DRAWING.read_text(encoding="utf-8")
    assert committed == animation.drawn(animation.CAST.read_text(encoding="utf-8"))
    assert len(committed) < BYTES_MAX
    assert "text { white-space: pre }" in committed  # without it, Chromium joins the spaces of columns
    assert len(ElementTree.fromstring(committed).findall("{*}text")) > len(DONE)  # noqa: S314 - our own file


def test_recorded_session_repeats_no_finished_step() -> None:
    assert done(animation.CAST.read_text(encoding="utf-8")) == [DONE[:2], DONE[2:]]


@pytest.mark.more
def test_session_happens_again_as_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animation, "CAST", tmp_path / "again.cast")
    animation.record()
    assert done(animation.CAST.read_text(encoding="utf-8")) == [DONE[:2], DONE[2:]]
