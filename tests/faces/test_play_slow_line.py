"""`helio play` over a slow line, on a screen of 80 columns: bytes of each key, pictures that wait for the terminal, and keys that are not lost."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

import pytest
from textual.drivers.headless_driver import HeadlessDriver
from textual.events import CursorPosition
from textual.widget import Widget

from heliograph.cli import paced_app, play_screen
from heliograph.cli.play_screen import PlayScreen
from tests.faces.cli_support import HELIO, SECONDS, Shell
from tests.faces.own_terminal import own_terminal
from tests.faces.test_cli_play import Source
from tests.rules.playback_kit import signal

QUESTION = "\x1b[6n"
ANSWER = b"\x1b[1;1R"
ROUNDS_MAX = 100  # of messages between widgets
STEP_BYTES_MAX, PICTURE_BYTES_MAX = 800, 3_000  # 0.8 and 3 seconds at 9600 baud
LOG = [
    signal(1, "workflow:start", payload={"state": {"topic": "ink " * 20}}), signal(2, "agent:activated", "poet", 1, {"agent": "poet"}),
    *(signal(seq, "text:delta" if seq % 3 else f"order:{seq}:placed", "poet", 2, {"content": f"word {seq} of the text, "}) for seq in range(3, 300)),
]  # fmt: skip


class Line(HeadlessDriver):
    """A terminal that keeps what it receives. It answers only when the test does."""

    is_headless = False
    received: list[str]

    def write(self, data: str) -> None:
        self.received.append(data)


class User:
    """Presses keys at a screen that draws when the test lets it, and at no other time."""

    def __init__(self, pilot: Any, screen: PlayScreen):
        self.pilot = pilot
        self.screen = screen

    async def picture(self) -> list[str]:
        """Let the screen draw; return what the terminal receives. Lines that change together are drawn together."""
        received = Line.received = []
        with self.screen.batch_update():
            self.screen._beat()
            await self._handled(
                lambda: not any(each._repaint_required for each in self.screen.screen.walk_children(Widget))
            )
        await self._handled()
        return received

    async def press(self, key: str) -> None:
        """Press a key; return when it has moved the player."""
        with self.screen.batch_update():
            self.screen.simulate_key(key)
            await self._handled(lambda: self.screen._is_stale)

    async def answer(self) -> None:
        """Answer as a terminal that has read all that was drawn."""
        for _ in range(self.screen._unanswered):
            self.screen.post_message(CursorPosition(0, 0))
        await self._handled(lambda: not self.screen._unanswered)

    async def _handled(self, is_done: Callable[[], bool] = lambda: True) -> None:
        """Wait until all widgets have handled their messages, and those that these cause."""
        for _ in range(ROUNDS_MAX):
            await self.pilot.pause(0)
            if is_done():
                break
        else:
            raise AssertionError("the screen does not get there")
        for _ in range(3):  # a widget that changes sends a message to the screen
            await self.pilot.pause(0)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the screen, as its only item. No picture is drawn by the passing of time."""
    now = [0.0]
    monkeypatch.setattr(paced_app, "monotonic", lambda: now[0])
    monkeypatch.setattr(play_screen, "REDRAWS_PER_SECOND", 1 / 3600)
    return now


async def on_line(test: Callable[[User], Awaitable[None]]) -> None:
    """Run a test as the user of a screen whose log is read and drawn."""
    screen, errors, Line.received = PlayScreen(Source(LOG)), list[Exception](), []
    screen.driver_class = Line

    async def use(pilot: Any) -> None:
        try:
            await screen.workers.wait_for_complete()
            user = User(pilot, screen)
            assert QUESTION in await user.picture()
            await test(user)
        except Exception as error:
            errors.append(error)
        finally:
            screen.exit()

    await screen.run_async(headless=False, size=(80, 24), auto_pilot=use)
    if errors:
        raise errors[0]


@pytest.mark.more
@pytest.mark.proves("P-51")
@pytest.mark.usefixtures("now")
async def test_key_sends_a_bounded_number_of_bytes() -> None:
    async def use(user: User) -> None:
        moves = [
            "right",
            "right",
            "right",
            "left",
            "pagedown",
            "right",
            "pagedown",
            "pageup",
            "end",
            "left",
            "home",
            "right",
            "a",
            "plus",
        ]
        sent = {}
        for number, key in enumerate(moves):
            await user.press(key)
            drawn = await user.picture()
            assert drawn.count(QUESTION) == 1
            sent[number, key] = sum(len(each.encode()) for each in drawn)
        assert max(count for (_, key), count in sent.items() if key in ("right", "left")) <= STEP_BYTES_MAX, sent
        assert max(sent.values()) <= PICTURE_BYTES_MAX, sent

    await on_line(use)


@pytest.mark.more
@pytest.mark.proves("P-51")
async def test_next_picture_waits_until_the_terminal_has_read_the_last_one(now: list[float]) -> None:
    async def use(user: User) -> None:
        await user.answer()
        drawn = []
        for _ in range(40):
            await user.press("right")
            drawn += await user.picture()
        assert drawn.count(QUESTION) == 1, "a picture for each key would take half a minute"
        await user.answer()
        assert any("40/299" in each for each in await user.picture())
        await user.press("left")
        assert await user.picture() == []
        now[0] += paced_app.ANSWER_SECONDS_MAX + 1
        assert any("39/299" in each for each in await user.picture()), "the terminal has lost the question"

    await on_line(use)


@pytest.mark.more
@pytest.mark.proves("P-51")
def test_no_key_is_lost_on_a_line_that_is_slower_than_the_keys(tmp_path: Path) -> None:
    file = Path(__file__).parents[1] / "recording" / "earlier" / "shop.jsonl"
    ours, theirs = pty.openpty()
    environment = Shell(tmp_path, None).environment | {"TERM": "xterm", "LINES": "24", "COLUMNS": "80"}
    process = subprocess.Popen([HELIO, "play", str(file)], cwd=tmp_path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
                               close_fds=True, start_new_session=True, preexec_fn=own_terminal)  # noqa: PLW1509  # fmt: skip
    os.close(theirs)
    screen, asked = b"", 0

    def read(most: int) -> bool:
        """Read as a terminal does, which answers a question when it comes to it."""
        nonlocal screen, asked
        piece = b""
        assert select([ours], [], [], SECONDS)[0], screen
        with suppress(OSError):  # Linux raises it when the other side is closed
            piece = os.read(ours, most)
        screen += piece
        while asked < screen.count(QUESTION.encode()):
            asked += 1
            with suppress(OSError):
                os.write(ours, ANSWER)
        return bool(piece)

    while b" 0/23" not in screen:
        assert read(96), screen
    for key in b"l" * 20 + b"h" * 10 + b"l" * 5 + b"+":  # ten keys a second at 9600 baud
        os.write(ours, bytes([key]))
        if select([ours], [], [], 0)[0]:
            read(96)
    while "15/23  ■ 2x".encode() not in screen:
        assert read(96), screen
    os.write(ours, b"q")
    while read(4096):
        pass
    os.close(ours)
    assert process.wait(30) == 0
    assert len(screen) <= (asked + 1) * PICTURE_BYTES_MAX
