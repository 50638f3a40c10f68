"""Draw the diagrams of the documentation as SVG files, from descriptions: boxes in a grid, and arrows between them.

    python -m tools.diagrams    write docs/images/*.svg anew; `make docs` does so, and a test checks that they are current

The drawings load nothing, have no script, and follow the light or dark colours of the reader's system.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from heliograph.turn.phases import NEXT, STOP, Phase

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
COLUMN, ROW, MARGIN = 190, 92, 24
BOX_HEIGHT, LINE, CHARACTER = 46, 16, 7.0
STYLE = """
    .paper { fill: #ffffff } .box { fill: #f3f5f8; stroke: #57606a } .signal { fill: #fff4d6; stroke: #b08800 }
    .store { fill: #e4f0ff; stroke: #2f6fb7 } .end { fill: #e6f4ea; stroke: #2d7d46 } .fail { fill: #fdeaea; stroke: #b3403a }
    .arrow { stroke: #57606a; fill: none; stroke-width: 1.4 } .head { fill: #57606a } .label { fill: #ffffff }
    text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle } .note { font-size: 12px; fill: #57606a }
    @media (prefers-color-scheme: dark) {
      .paper, .label { fill: #1b1f24 } .box { fill: #2a3038; stroke: #9aa4af } .signal { fill: #3d3418; stroke: #d4a72c }
      .store { fill: #1c3350; stroke: #6aa5e3 } .end { fill: #1d3a27; stroke: #5fb37c } .fail { fill: #472322; stroke: #e0736c }
      .arrow { stroke: #9aa4af } .head { fill: #9aa4af } text { fill: #e6edf3 } .note { fill: #9aa4af }
    }
"""


@dataclass(frozen=True)
class Box:
    """A box at a place of the grid. kind: box, signal, store, end or fail. text: its lines, separated by newlines."""

    column: float
    row: float
    text: str
    kind: str = "box"

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * CHARACTER + 26

    @property
    def centre(self) -> tuple[float, float]:
        return self.column * COLUMN, self.row * ROW


@dataclass(frozen=True)
class Arrow:
    """An arrow between two boxes. bend: how far its middle is moved to the left of its direction, in pixels."""

    start: str
    end: str
    label: str = ""
    bend: float = 0


@dataclass(frozen=True)
class Diagram:
    """A picture and its description for readers who do not see it."""

    title: str
    boxes: Mapping[str, Box]
    arrows: Sequence[Arrow]


def drawn(diagram: Diagram) -> str:
    """The SVG of a diagram."""
    edges = [(x - b.width / 2, y - BOX_HEIGHT / 2, x + b.width / 2, y + BOX_HEIGHT / 2)
             for b in diagram.boxes.values() for x, y in [b.centre]]  # fmt: skip
    edges += [(x - w / 2, y - 10, x + w / 2, y + 10) for a in diagram.arrows for x, y, w in [_label(diagram, a)]]
    left, top = min(e[0] for e in edges) - MARGIN, min(e[1] for e in edges) - MARGIN
    width, height = max(e[2] for e in edges) + MARGIN - left, max(e[3] for e in edges) + MARGIN - top
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}" width="{width:.0f}" role="img">',
        f"  <title>{escape(diagram.title)}</title>",
        f"  <style>{STYLE}  </style>",
        f'  <rect class="paper" x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" rx="8"/>',
        '  <marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0 0L8 4L0 8z"/></marker>',
        *(line for arrow in diagram.arrows for line in _arrow(diagram, arrow)),
        *(line for box in diagram.boxes.values() for line in _box(box)),
        *(line for arrow in diagram.arrows for line in _label_lines(diagram, arrow)),
        "</svg>\n",
    ])  # fmt: skip


def _box(box: Box) -> Iterator[str]:
    x, y = box.centre
    round_ = 22 if box.kind == "signal" else 6
    yield (f'  <rect class="{box.kind}" x="{x - box.width / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{box.width:.0f}" '
           f'height="{BOX_HEIGHT}" rx="{round_}"/>')  # fmt: skip
    first = y - (len(box.lines) - 1) * LINE / 2 + 4.5
    for index, line in enumerate(box.lines):
        yield f'  <text x="{x:.0f}" y="{first + index * LINE:.0f}">{escape(line)}</text>'


def _arrow(diagram: Diagram, arrow: Arrow) -> Iterator[str]:
    (x, y), (u, v) = diagram.boxes[arrow.start].centre, diagram.boxes[arrow.end].centre
    mx, my = _middle(x, y, u, v, 2 * arrow.bend)
    sx, sy = _border(diagram.boxes[arrow.start], mx, my)
    ex, ey = _border(diagram.boxes[arrow.end], mx, my)
    yield f'  <path class="arrow" marker-end="url(#head)" d="M{sx:.0f} {sy:.0f}Q{mx:.0f} {my:.0f} {ex:.0f} {ey:.0f}"/>'


def _label(diagram: Diagram, arrow: Arrow) -> tuple[float, float, float]:
    """The middle and the width of the label of an arrow."""
    (x, y), (u, v) = diagram.boxes[arrow.start].centre, diagram.boxes[arrow.end].centre
    return *_middle(x, y, u, v, arrow.bend), len(arrow.label) * 6.4 + 8


def _label_lines(diagram: Diagram, arrow: Arrow) -> Iterator[str]:
    if arrow.label:
        x, y, width = _label(diagram, arrow)
        yield f'  <rect class="label" x="{x - width / 2:.0f}" y="{y - 9:.0f}" width="{width:.0f}" height="18"/>'
        yield f'  <text class="note" x="{x:.0f}" y="{y + 4:.0f}">{escape(arrow.label)}</text>'


def _middle(x: float, y: float, u: float, v: float, bend: float) -> tuple[float, float]:
    length = math.hypot(u - x, v - y)
    return (x + u) / 2 + bend * (v - y) / length, (y + v) / 2 - bend * (u - x) / length


def _border(box: Box, x: float, y: float) -> tuple[float, float]:
    """Where the line from the centre of a box to a point leaves the box."""
    cx, cy = box.centre
    dx, dy = x - cx, y - cy
    scale = min((box.width / 2 + 2) / abs(dx) if dx else math.inf, (BOX_HEIGHT / 2 + 2) / abs(dy) if dy else math.inf)
    return cx + dx * scale, cy + dy * scale


WHOLE = Diagram(
    "Your program, helio or a webhook starts runs, sends messages and approves. PostgreSQL has the runs, and rings a doorbell. Any number of workers "
    "claim turns, call models and tools, and commit the results. If a worker dies, its lease expires and another worker continues.",
    {
        "program": Box(0, 0, "your program,\nhelio, a webhook"),
        "postgres": Box(0, 1.4, "PostgreSQL: runs, state,\nsignals, turns, leases", "store"),
        "readers": Box(0, 2.8, "streams, webhooks,\ntraces, replays"),
        "workers": Box(2.1, 1.4, "workers: any number,\non any machine"), "models": Box(3.9, 1.4, "models, tools,\nMCP servers"),
        "dead": Box(2.1, 2.8, "a worker is killed:\nits lease expires", "fail"),
    },
    [
        Arrow("program", "postgres", "start, send, approve"), Arrow("postgres", "readers", "signals"),
        Arrow("postgres", "workers", "a doorbell, then a turn", 34), Arrow("workers", "postgres", "one commit", 34),
        Arrow("workers", "models", "calls"), Arrow("workers", "dead"), Arrow("dead", "postgres", "another continues", 34),
    ],
)  # fmt: skip

SIGNALS = Diagram(
    "workflow:start wakes the agents mood and topic. They emit mood:known and topic:known. The agent writer waits for both.",
    {
        "start": Box(0, 0.5, "workflow:start", "signal"),
        "mood": Box(1, 0, "mood"), "topic": Box(1, 1, "topic"),
        "known": Box(2, 0, "mood:known", "signal"), "about": Box(2, 1, "topic:known", "signal"),
        "writer": Box(3, 0.5, "writer\nwaits for both"), "state": Box(4, 0.5, "state: answer", "store"),
    },
    [
        Arrow("start", "mood", "wakes"), Arrow("start", "topic", "wakes"), Arrow("mood", "known", "emits"), Arrow("topic", "about", "emits"),
        Arrow("known", "writer"), Arrow("about", "writer"), Arrow("writer", "state", "updates"),
    ],
)  # fmt: skip

TURN = Diagram(
    "A turn is queued, claimed by a worker, suspended while it waits, and ended by one deliverable. A dead worker loses it to another one.",
    {
        "queued": Box(0, 0, "queued"), "running": Box(1.4, 0, "running\na worker has a lease"), "suspended": Box(1.4, 1.35, "suspended\nno process", "store"),
        "ended": Box(3, 0, "ended\none deliverable", "end"), "dead": Box(0, 1.35, "the worker dies,\nthe lease expires", "fail"),
    },
    [
        Arrow("queued", "running", "claim"), Arrow("running", "ended", "result or error"), Arrow("running", "suspended", "waits", 34),
        Arrow("suspended", "running", "answer", 34), Arrow("running", "dead"), Arrow("dead", "queued", "next epoch"),
    ],
)  # fmt: skip

REPLAY = Diagram(
    "A function that waits runs again from its start. Its first step returns its recorded result, and the function continues with the answer.",
    {
        "a1": Box(0, 0, "first run"), "b1": Box(1, 0, "step charge\nruns"), "c1": Box(2, 0, "ask a person\nsuspends", "store"),
        "a2": Box(0, 1.35, "after the answer"), "b2": Box(1, 1.35, "step charge\nrecorded", "store"), "c2": Box(2, 1.35, "ask a person\nrecorded", "store"),
        "d2": Box(3, 1.35, "step ship\nruns"), "e2": Box(4, 1.35, "deliverable", "end"),
    },
    [
        Arrow("a1", "b1"), Arrow("b1", "c1"), Arrow("b1", "b2", "its result"), Arrow("c1", "c2", "the answer"),
        Arrow("a2", "b2"), Arrow("b2", "c2"), Arrow("c2", "d2"), Arrow("d2", "e2"),
    ],
)  # fmt: skip


def phases() -> Diagram:
    """The phases of a turn, from the table that the runtime uses."""
    places = {
        Phase.INIT: (0, 0),
        Phase.PLAN: (1.15, 0),
        Phase.ACT: (2.3, 0),
        Phase.REFLECT: (3.7, 0),
        Phase.TERMINATE: (1.85, 1.9),
    }
    bends = {(Phase.REFLECT, Phase.PLAN): -84, (Phase.REFLECT, Phase.ACT): -36}
    boxes = {
        str(phase): Box(*place, str(phase), "end" if phase is Phase.TERMINATE else "box")
        for phase, place in places.items()
    }
    arrows = [Arrow(str(phase), str(then), cue, bends.get((phase, then), 0)) for (phase, cue), then in NEXT.items()]
    stop = [Arrow(str(phase), str(Phase.TERMINATE)) for phase in (Phase.INIT, Phase.PLAN, Phase.ACT)]
    return Diagram(
        f"The phases of a turn. From each phase, {', '.join(sorted(STOP))} lead to terminate.", boxes, [*arrows, *stop]
    )


def drawings() -> dict[str, str]:
    """The text of each drawing by the name of its file."""
    return {
        "whole.svg": drawn(WHOLE), "signals.svg": drawn(SIGNALS), "turn.svg": drawn(TURN), "replay.svg": drawn(REPLAY), "phases.svg": drawn(phases()),
    }  # fmt: skip


if __name__ == "__main__":
    for name, text in drawings().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
