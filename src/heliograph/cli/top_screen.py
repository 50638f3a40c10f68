"""The screen of `helio top`: reads the load every few seconds, and sends only the lines that have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.widgets import Input

from heliograph.cli.arguments import login_name
from heliograph.cli.play_lines import Lines
from heliograph.cli.run_show import run_lines
from heliograph.cli.top_load import Load, LoadWatch, RunNow
from heliograph.cli.top_text import SORTS, agent_lines, header_line, run_line, selected_runs, total_line
from heliograph.error_text import printable, safe_repr
from heliograph.errors import HeliographError

PAGE = 10
HELP = """\
↑ ↓        select a run
PgUp PgDn  ten runs
Enter      open the run
Escape     back
s          next order
/          filter by id, application, status or agent
x          stop the run
r          read now
q          quit"""
_STYLES = {
    "waiting": "yellow", "running": "cyan", "terminating": "yellow", "success": "green", "failed": "red", "timeout": "red",
    "canceled": "red",
}  # fmt: skip

Stop = Callable[[str], Awaitable[str]]


async def stop_run(run_id: str) -> str:
    """Stop a run as `helio run stop` does, and return what became of it."""
    from heliograph.cli.existing_database import open_client  # late: a reader alone can show the load

    async with open_client(f"run {run_id}") as client:
        result = await client.stop_run(run_id, actor=login_name())
    return (
        f"run {run_id} is {result.outcome}" if result.ended_as is None else f"run {run_id} has ended: {result.ended_as}"
    )


class TopScreen(App[None]):
    """Shows the load of a project."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None  # the hidden prompt would take the keys
    CSS = """
    Screen { layout: vertical; background: ansi_default; color: ansi_default; }
    #total, #header, #message { height: 1; }
    #runs { height: 2fr; }
    #agents { height: 1fr; border-top: solid gray; }
    #run { height: 1fr; display: none; }
    #prompt { display: none; height: 1; border: none; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)"), Binding("up,k", "move(-1)"), Binding("pagedown", f"move({PAGE})"),
        Binding("pageup", f"move(-{PAGE})"), Binding("home,g", "move(-1000000)"), Binding("end,G", "move(1000000)"),
        Binding("enter", "open"), Binding("s", "sort"), Binding("slash", "filter"), Binding("x", "stop"), Binding("y", "confirm"),
        Binding("r", "read"), Binding("question_mark", "help"), Binding("escape", "cancel"), Binding("q,ctrl+c", "quit"),
    ]  # fmt: skip

    def __init__(
        self, watch: LoadWatch, seconds: float, sort: str = "age", project: str | None = None, stop: Stop = stop_run
    ):
        super().__init__(ansi_color=True)
        self._watch = watch
        self._seconds = seconds
        self._sort = sort
        self._project = project
        self._stop = stop
        self._filter = ""
        self._load: Load | None = None
        self._runs: list[RunNow] = []
        self._selected: str | None = None  # the id of a run, so that the mark stays at it
        self._opened: list[str] | None = None  # the lines of the run that is open
        self._first = 0  # the first line or run on the screen
        self._asked: str | None = None  # the run to be stopped, once the user confirms it
        self._note = "? shows the keys"
        self._wake = asyncio.Event()

    def compose(self) -> ComposeResult:
        for name in ("total", "header", "runs", "agents", "run", "message"):
            yield Lines(id=name)
        yield Input(id="prompt", compact=True, placeholder="a part of an id, an application, a status or an agent")

    def on_mount(self) -> None:
        self.run_worker(self._read(), exit_on_error=True)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    async def _read(self) -> None:
        """Read the load every few seconds. An error of the database is a note, and ends when it is back."""
        while True:
            self._wake.clear()
            try:
                self._load = await self._watch.read()
                await self._read_opened()
                if self._note.startswith("waiting for"):
                    self._note = ""
            except HeliographError as error:
                self._note = f"waiting for the database: {safe_repr(error.message, 200)}"
            self.draw()
            try:
                async with asyncio.timeout(self._seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _read_opened(self) -> None:
        """Read the run that is open once more, unless the user closes it meanwhile."""
        if self._opened is None or (run_id := self._selected) is None:
            return
        lines = await self._lines_of(run_id)
        if self._opened is not None and self._selected == run_id:
            self._opened = lines

    async def _lines_of(self, run_id: str) -> list[str]:
        return await run_lines(self._watch.reader, run_id, self._project, self.size.width)

    # ── Drawing ──

    def draw(self) -> None:
        """Draw the load as it was read last."""
        if self._load is None:
            self._pane("message").show([Text(self._note)])
            return
        self._runs = selected_runs(self._load, self._filter, self._sort)
        width = self.size.width
        self._pane("total").show([Text(total_line(self._load, self._runs), style="bold", no_wrap=True)])
        self._pane("header").show([Text(header_line(width), style="dim", no_wrap=True)])
        if self._opened is not None:
            self._draw_opened(self._opened)
        else:
            self._draw_runs(self._load, width)
        order = f"by {self._sort}" + (f", only {safe_repr(self._filter, 30)}" if self._filter else "")
        self._pane("message").show([Text(f"{order}  {printable(self._note)}", style="dim", no_wrap=True)])

    def _draw_runs(self, load: Load, width: int) -> None:
        pane, at = self._pane("runs"), self._place()
        self._first = max(0, min(self._first, at), at - max(pane.rows, 1) + 1)
        lines = []
        for each in self._runs[self._first : self._first + pane.rows]:
            style = _STYLES.get(each.status, "")
            is_here = self._runs[at] is each
            lines.append(
                Text(run_line(each, load.at, width), style=f"{style} reverse" if is_here else style, no_wrap=True)
            )
        pane.show(lines or [Text("no runs: helio run FILE.py:app starts one", style="dim")])
        agents = agent_lines(self._runs[at], load.at) if self._runs else []
        self._pane("agents").show([Text(text, no_wrap=True) for text in agents])

    def _draw_opened(self, lines: list[str]) -> None:
        pane = self._pane("run")
        wrapped = [
            row
            for text in lines
            for row in Text(printable(text)).wrap(self.console, max(pane.size.width, 10)) or [Text("")]
        ]
        self._first = max(0, min(self._first, len(wrapped) - pane.rows))
        pane.show(wrapped[self._first : self._first + pane.rows])

    def _pane(self, name: str) -> Lines:
        return self.query_one(f"#{name}", Lines)

    def _place(self) -> int:
        """The place of the selected run; the first one if it is not on the list."""
        return next((n for n, each in enumerate(self._runs) if each.run.run_id == self._selected), 0)

    # ── Keys ──

    def on_key(self, event: Key) -> None:
        """Any key but `y` cancels the question whether a run is to be stopped."""
        if self._asked is not None and event.key != "y":
            self._changed()

    def action_move(self, count: int) -> None:
        if self._opened is not None:
            self._first += count
        elif self._runs:
            self._selected = self._runs[max(0, min(self._place() + count, len(self._runs) - 1))].run.run_id
        self._changed()

    async def action_open(self) -> None:
        if self._opened is not None or not self._runs:
            return
        run_id = self._runs[self._place()].run.run_id
        try:
            self._opened = await self._lines_of(run_id)
        except HeliographError as error:
            self._changed(error.message)
            return
        self._selected, self._first = run_id, 0
        self._show_run(is_open=True)

    def action_cancel(self) -> None:
        prompt = self.query_one("#prompt", Input)
        if prompt.display:
            prompt.styles.display = "none"
            self.set_focus(None)
        elif self._opened is not None:
            self._opened = None
            self._show_run(is_open=False)
        self._changed()

    def action_sort(self) -> None:
        names = list(SORTS)
        self._sort = names[(names.index(self._sort) + 1) % len(names)]
        self._changed()

    def action_filter(self) -> None:
        prompt = self.query_one("#prompt", Input)
        prompt.value = self._filter
        prompt.styles.display = "block"
        prompt.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._filter = event.value.strip()
        self.action_cancel()

    def action_stop(self) -> None:
        if not self._runs:
            return
        each = self._runs[self._place()]
        if each.run.status == "ended":
            self._changed(f"run {each.run.run_id} has ended")
            return
        self._changed(f"stop {each.run.run_id}? y stops it, any other key does not")
        self._asked = each.run.run_id

    async def action_confirm(self) -> None:
        run_id, self._asked = self._asked, None
        if run_id is None:
            return
        try:
            self._changed(await self._stop(run_id))
        except HeliographError as error:
            self._changed(error.message)
        self.action_read()

    def action_read(self) -> None:
        self._wake.set()

    def action_help(self) -> None:
        self.notify(HELP, title="keys", timeout=30, markup=False)

    def _show_run(self, *, is_open: bool) -> None:
        for name in ("runs", "agents", "header"):
            self._pane(name).styles.display = "none" if is_open else "block"
        self._pane("run").styles.display = "block" if is_open else "none"
        self.call_after_refresh(self._changed)

    def _changed(self, note: str = "") -> None:
        self._asked = None
        self._note = safe_repr(note, 200)
        self.draw()
