"""The live view of a run on a terminal: a row per agent, and below it the last signals.

`Board` folds signals into rows, without a clock or a terminal. `LiveView` draws it several times a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from heliograph.cli.output import duration, note, piece
from heliograph.cli.run_views import NameFilter
from heliograph.error_text import printable, safe_repr
from heliograph.key_patterns import StreamedText
from heliograph.ledger.rows import TurnRow
from heliograph.signals.model import Signal
from heliograph.signals.signal_text import clock, fraction_of, short_payload, text_of

SIGNALS_MAX = 8
TAIL_CHARACTERS = 400
TAIL_WIDTH = 60
_STYLES = {"idle": "dim", "waiting": "yellow", "running": "cyan", "success": "green", "skipped": "dim"}
_NEXT_PHASE = {"ready": "plan", "plan_ready": "act", "action_complete": "reflect", "reflection_complete": "terminate"}
_STATUS = {"queued": "waiting", "dispatched": "waiting"}  # both mean a turn that waits for a worker


@dataclass(slots=True)
class AgentRow:
    """One agent as it is now. `status` is idle, waiting, running, suspended, skipped or the outcome of its last turn."""

    name: str
    status: str = "idle"
    phase: str = ""
    turns: int = 0
    since: datetime | None = None
    until: datetime | None = None
    fraction: float | None = None
    tail: str = ""
    streamed: StreamedText = field(default_factory=StreamedText)


class Board:
    """The agents of a run by name, and the last signals that are shown."""

    def __init__(self, agents: Iterable[str], is_wanted: NameFilter = lambda _name: True):
        self.rows = {name: AgentRow(name) for name in agents}
        self._is_wanted = is_wanted
        self.last: deque[Signal] = deque(maxlen=SIGNALS_MAX)
        self.started_at: datetime | None = None

    def show(self, signal: Signal) -> None:
        self.started_at = self.started_at or signal.timestamp
        if self._follow(signal) and self._is_wanted(signal.name):
            self.last.append(signal)

    def _follow(self, signal: Signal) -> bool:
        """Update the row of the signal's agent; return whether the signal is one of the last."""
        if signal.agent is None or signal.agent not in self.rows:
            return True
        row = self.rows[signal.agent]
        payload: dict[str, Any] = signal.payload if isinstance(signal.payload, dict) else {}
        match signal.name:
            case "agent:activated":
                row.turns += 1
                if row.until is not None or row.since is None:
                    row.since, row.until, row.fraction, row.tail, row.status = (
                        signal.timestamp,
                        None,
                        None,
                        "",
                        "waiting",
                    )
            case "agent:skipped":
                row.status = "skipped" if row.status == "idle" else row.status
            case "agent:completed" | "agent:failed":
                row.status, row.phase = str(payload.get("outcome", "success")), ""
                row.until = signal.timestamp
                row.tail += row.streamed.end()
                row.fraction = 1.0 if row.fraction is not None and signal.name == "agent:completed" else row.fraction
            case "ready" | "plan_ready" | "action_complete" | "reflection_complete":
                row.status, row.phase = "running", _NEXT_PHASE[signal.name]
            case "agent:progress":
                message = payload.get("message")
                row.status, row.fraction = "running", fraction_of(payload) if "fraction" in payload else None
                row.tail = message if isinstance(message, str) and message else row.tail
            case "text:delta" | "thinking:delta":
                row.status, row.tail = "running", (row.tail + row.streamed.add(text_of(payload)))[-TAIL_CHARACTERS:]
                return False  # a row per delta would push everything else off the view
        return True

    def see_turns(self, turns: Iterable[TurnRow]) -> None:
        """Update status and phase, which the log does not contain until a turn ends."""
        for turn in turns:
            row = self.rows.get(turn.agent)
            if row is None or turn.status == "done":
                continue
            row.status, row.phase = _STATUS.get(turn.status, turn.status), turn.phase or row.phase
            if row.until is not None:  # a turn whose signals have not arrived yet
                row.since, row.until, row.fraction, row.tail = turn.created_at, None, None, ""


class LiveView:
    """A `Board` on a terminal."""

    def __init__(self, title: str, agents: Iterable[str], is_wanted: NameFilter, console: Console | None = None):
        self.board = Board(agents, is_wanted)
        self._title = title
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=8)
        self._live.start()
        self._held: list[str] | None = None  # notes that are printed at `resume`

    def show(self, signal: Signal) -> None:
        self.board.show(signal)

    def see_turns(self, turns: Sequence[TurnRow]) -> None:
        self.board.see_turns(turns)

    def note(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
        else:
            self._live.console.print(Text(printable(text)))

    def warn(self, text: str) -> None:
        note(text)  # when stderr is this terminal, rich prints it above the view

    def prompt(self, text: str) -> None:
        if self._held is None:
            self._live.stop()
            self._held = []
        piece(text)

    def resume(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._live.start()
            for each in held:
                self.note(each)

    def close(self) -> None:
        self.resume()
        if self._live.is_started:
            self._live.stop()

    def _draw(self) -> RenderableType:
        return draw(self._title, self.board, datetime.now(UTC))


def draw(title: str, board: Board, now: datetime) -> RenderableType:
    """Render the board for the time `now`."""
    elapsed = duration(now - board.started_at) if board.started_at else ""
    agents = Table.grid(padding=(0, 2))
    for row in list(board.rows.values()):
        bar = ProgressBar(total=1.0, completed=row.fraction, width=16) if row.fraction is not None else Text("")
        took = duration((row.until or now) - row.since) if row.since else ""
        agents.add_row(
            Text(printable(row.name)), _status(row), Text(took), bar, Text(_end_of(row.tail), overflow="crop")
        )
    signals = Table.grid(padding=(0, 2))
    for signal in list(board.last):
        cells = (clock(signal.timestamp), signal.name, signal.agent or "-", short_payload(signal, 70))
        signals.add_row(*(Text(printable(cell), style="dim", no_wrap=True) for cell in cells))
    return Group(Text(printable(f"{title}  {elapsed}"), style="bold"), agents, Text(""), signals)


def _end_of(text: str) -> str:
    return safe_repr(text, 2 * len(text) + 80)[-TAIL_WIDTH:]  # redacted as a whole: a part of a secret is also secret


def _status(row: AgentRow) -> Text:
    words = f"{row.status} {row.phase}".strip()
    count = f" ×{row.turns}" if row.turns > 1 else ""
    return Text(printable(words + count), style=_STYLES.get(row.status, "red"))
