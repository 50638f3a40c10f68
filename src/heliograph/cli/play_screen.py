"""The terminal player: panes around a `Player`, keys for its moves, and the reader that feeds it.

It redraws at most `REDRAWS_PER_SECOND` times a second, no faster than its terminal reads, and sends only the lines that have changed. The
timeline turns a page when the cursor leaves it, so that a step changes two of its lines. This keeps it usable over a slow line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from heliograph.cli.paced_app import PacedApp
from heliograph.cli.play_lines import Lines
from heliograph.cli.play_positions import move_to
from heliograph.cli.play_text import (
    agent_lines,
    agent_with_text,
    cause_lines,
    causes,
    state_lines,
    text_lines,
    timeline_lines,
    title_line,
)
from heliograph.cli.signal_source import SignalSource
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, StoreUnavailable
from heliograph.playback.player import SPEED_MAX, SPEED_MIN, Player

REDRAWS_PER_SECOND = 8
POLL_SECONDS = 0.5
PAGE = 20
MESSAGE_LINES_MAX = 3
HELP = """\
space      play, pause
+ -        faster, slower
→ ←        one signal
PgDn PgUp  twenty signals
Home End   start, end
:          position, id or time
/          pattern of names
n N        next, previous match
Enter      the cause
Backspace  back from a cause
m          name a checkpoint
'          to a checkpoint
a          text of another agent
1          all panes
2 3 4      timeline, cause, agents
5 6        state, text
q          quit"""
_PANES = ("timeline", "causes", "agents", "state", "text")
_PROMPTS = {
    "seek": "position, signal id or time",
    "find": "pattern of names, like tool:* or **",
    "mark": "name of the checkpoint",
    "return": "checkpoint",
}


class PlayScreen(PacedApp):
    """Plays one run."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None  # the hidden prompt would take the keys
    CSS = """
    Screen { layout: vertical; background: ansi_default; color: ansi_default; }
    #title, #message { height: 1; }
    #timeline { height: 2fr; border-bottom: solid gray; }
    #causes { height: 5; border-bottom: solid gray; }
    #lower { height: 2fr; }
    #agents { width: 1fr; border-right: solid gray; }
    #state { width: 1fr; }
    #text { height: 1fr; border-top: solid gray; }
    #prompt { display: none; height: 1; border: none; padding: 0; }
    .hidden { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "play_or_pause"), Binding("plus,equals_sign", "faster(2)"), Binding("minus", "faster(0.5)"),
        Binding("right,down,l,j", "step(1)"), Binding("left,up,h,k", "step(-1)"),
        Binding("pagedown", f"step({PAGE})"), Binding("pageup", f"step(-{PAGE})"),
        Binding("home,g", "place('start')"), Binding("end,G", "place('end')"),
        Binding("colon", "ask('seek')"), Binding("slash", "ask('find')"), Binding("m", "ask('mark')"),
        Binding("apostrophe", "ask('return')"), Binding("n", "find_next"), Binding("N", "find_previous"),
        Binding("enter", "cause"), Binding("backspace", "came_from"), Binding("a", "next_agent"),
        *(Binding(str(number), f"panes({number})") for number in range(1, 7)),
        Binding("question_mark", "help"), Binding("escape", "cancel"), Binding("q,ctrl+c", "quit", priority=False),
    ]  # fmt: skip

    def __init__(self, source: SignalSource):
        super().__init__(ansi_color=True)
        self.player = Player(is_live=not source.has_ended)
        self.failure: HeliographError | None = None  # why the log cannot be read
        self._source = source
        self._note = "reading"
        self._message = Text("? shows the keys", style="dim")
        self._pattern = ""
        self._asked = ""
        self._agent: str | None = None
        self._came_from: list[int] = []
        self._page_start = 1
        self._follows = self.player.is_live  # whether the cursor stays at the end of the log as it grows
        self._is_stale = True

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="timeline")
        yield Lines(id="causes")
        with Horizontal(id="lower"):
            yield Lines(id="agents")
            yield Lines(id="state")
        yield Lines(id="text")
        yield Lines(id="message")
        yield Input(id="prompt", compact=True)

    def on_mount(self) -> None:
        self.set_interval(1 / REDRAWS_PER_SECOND, self._beat)
        self.run_worker(self._read(), exit_on_error=True)

    def on_resize(self) -> None:
        self._is_stale = True

    # ── The log ──

    async def _read(self) -> None:
        """Read the log, and follow it until the run has ended. An outage of the database is a note, and ends when it is back."""
        while True:
            try:
                page = await self._source.page()
            except StoreUnavailable as error:
                self._note = safe_repr(f"waiting for the database: {error.message}")
                self._is_stale = True
                await asyncio.sleep(2 * POLL_SECONDS)
                continue
            except HeliographError as error:  # for example, the file of a recording is cut off
                self.failure = error
                self.exit(return_code=error.exit_code)
                return
            try:
                self.player.extend(page)
            except HeliographError as error:  # for example, retention has deleted the next signals meanwhile
                self._note = ""
                self._message = Text(safe_repr(error.message, 300), style="red")
                self._is_stale = True
                return
            if self._follows:
                self.player.to_end()
            is_over = not page and not self.player.is_live
            if page and page[-1].name == "workflow:end":
                self.player.is_live, is_over = False, True
            note = "" if is_over or not page else "reading"
            if page or note != self._note:  # most pages of a live run are empty, and change nothing
                self._is_stale = True
            self._note = note
            if is_over:
                return
            await asyncio.sleep(0 if page else POLL_SECONDS)

    # ── Drawing ──

    def _beat(self) -> None:
        if self.player.tick(monotonic()):
            self._is_stale = True
        if self._is_stale and self.may_draw():
            self._is_stale = False
            self.draw_panes()

    def draw_panes(self) -> None:
        """Draw what the panes show at the cursor."""
        player, snapshot = self.player, self.player.snapshot
        self._pane("title").show(
            [title_line(player, snapshot, self._note or ("following" if self._follows and self.player.is_live else ""))]
        )
        timeline = self._pane("timeline")
        timeline.show(timeline_lines(player, self._first_line(timeline.rows), timeline.rows))
        cause = self._pane("causes")
        cause.show(cause_lines(player, cause.size.width, cause.rows))
        self._pane("agents").show(agent_lines(snapshot, self._pane("agents").rows))
        self._pane("state").show(state_lines(snapshot, self._pane("state").rows))
        text = self._pane("text")
        text.show(text_lines(snapshot, self._agent, text.size.width, text.rows))
        message = self._message.wrap(self.console, max(self.size.width, 10))[:MESSAGE_LINES_MAX]
        self._pane("message").styles.height = max(1, len(message))
        self._pane("message").show(message)

    def _first_line(self, rows: int) -> int:
        """The position in the first line of the timeline: it changes by a page when the cursor leaves the page."""
        first, last = self.player.log.first_seq, self.player.log.last_seq
        if not self._page_start <= max(self.player.cursor, first) < self._page_start + rows:
            self._page_start = self.player.cursor - rows // 4
        self._page_start = max(first, min(self._page_start, last - rows + 1))
        return self._page_start

    def _pane(self, name: str) -> Lines:
        return self.query_one(f"#{name}", Lines)

    # ── Keys ──

    def action_play_or_pause(self) -> None:
        if self.player.is_playing:
            self._stop()
        else:
            self._stop()
            self.player.play(monotonic())
        self._moved()

    def action_faster(self, factor: float) -> None:
        self.player.speed = min(SPEED_MAX, max(SPEED_MIN, self.player.speed * factor))
        self._moved()

    def action_step(self, count: int) -> None:
        self._stop()
        moved = self.player.step(count) if count > 0 else self.player.back(-count)
        self._moved("" if moved else "this is the end of the log" if count > 0 else "this is the start of the log")

    def action_place(self, where: str) -> None:
        self._jump(where)
        self._follows = where == "end"  # also while the log is read

    def action_ask(self, what: str) -> None:
        if what == "return" and not self.player.checkpoints:
            self._moved("there are no checkpoints yet: m names one")
            return
        prompt = self.query_one("#prompt", Input)
        known = f" ({', '.join(self.player.checkpoints)})" if what == "return" else ""
        prompt.placeholder = safe_repr(_PROMPTS[what] + known, 76)
        prompt.value = self._pattern if what == "find" else ""
        self._asked = what
        prompt.styles.display = "block"
        self._pane("message").styles.display = "none"
        prompt.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        answer, what = event.value.strip(), self._asked
        self.action_cancel()
        if not answer:
            return
        if what == "seek":
            self._jump(answer)
        elif what == "find":
            self._pattern = answer
            self.action_find_next()
        elif what == "mark":
            self._try(lambda: self.player.set_checkpoint(answer), f"checkpoint {answer} is {self.player.cursor}")
        else:
            self._stop()
            self._try(lambda: self.player.to_checkpoint(answer))

    def action_cancel(self) -> None:
        prompt = self.query_one("#prompt", Input)
        prompt.styles.display = "none"
        self._pane("message").styles.display = "block"
        self.set_focus(None)
        self._moved()

    def action_find_next(self) -> None:
        self._find(is_forward=True)

    def action_find_previous(self) -> None:
        self._find(is_forward=False)

    def action_cause(self) -> None:
        signal = self.player.signal
        found = causes(self.player, signal)[:1] if signal is not None else []
        if not found:
            self._moved("no signal caused this one")
            return
        self._came_from.append(self.player.cursor)
        self._stop()
        self.player.seek(found[0].seq)
        self._moved()

    def action_came_from(self) -> None:
        if not self._came_from:
            self._moved("Enter goes to the cause of a signal, and Backspace back from there")
            return
        self._stop()
        self.player.seek(self._came_from.pop())
        self._moved()

    def action_next_agent(self) -> None:
        snapshot = self.player.snapshot
        names = [name for name, agent in snapshot.agents.items() if agent.has_text]
        current = agent_with_text(snapshot, self._agent)
        if names:
            at = names.index(current.name) if current is not None and current.name in names else -1
            self._agent = names[(at + 1) % len(names)]
        self._moved("" if names else "no agent has streamed a text yet")

    def action_panes(self, number: int) -> None:
        shown = set(_PANES) if number == 1 else {_PANES[number - 2]}
        for name in _PANES:
            self._pane(name).set_class(name not in shown, "hidden")
        self.query_one("#lower").set_class(not shown & {"agents", "state"}, "hidden")
        self._pane("causes").styles.height = 5 if number == 1 else "1fr"
        self.call_after_refresh(self._moved)

    def action_help(self) -> None:
        self.notify(HELP, title="keys", timeout=30, markup=False)

    def _find(self, *, is_forward: bool) -> None:
        if not self._pattern:
            self._moved("/ asks for a pattern")
            return
        self._stop()

        def move() -> None:
            found = self.player.next(self._pattern) if is_forward else self.player.previous(self._pattern)
            if found is None:
                self._message = Text(
                    safe_repr(f"no {'later' if is_forward else 'earlier'} signal matches {self._pattern}"),
                    style="yellow",
                )

        self._try(move)

    def _stop(self) -> None:
        """Stop playing and following: the user has moved."""
        self.player.pause()
        self._follows = False

    def _jump(self, where: str) -> None:
        self._stop()
        self._try(lambda: move_to(self.player, where))

    def _try(self, move: Callable[[], object], done: str = "") -> None:
        self._moved(done)
        try:
            move()
        except HeliographError as error:
            self._message = Text(safe_repr(error.message, 300), style="red")

    def _moved(self, message: str = "") -> None:
        self._message = Text(safe_repr(message, 300), style="yellow")
        self._is_stale = True
