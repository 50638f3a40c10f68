"""`helio play`: the screen of the player, driven by its keys; snapshots of a position; what a terminal must not receive."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from typing import Any

import pytest
from textual.widgets import Input

from heliograph import redaction
from heliograph.cli import play as play_module
from heliograph.cli import play_screen, terminal
from heliograph.cli.output import json_line
from heliograph.cli.play_lines import Lines
from heliograph.cli.play_positions import move_to, seq_of
from heliograph.cli.play_screen import PlayScreen
from heliograph.cli.play_text import agent_lines, cause_lines, snapshot_lines, state_lines, text_lines, timeline_lines
from heliograph.errors import HeliographError, StoreUnavailable
from heliograph.playback.player import Player
from heliograph.recording.file import RecordingRejected
from heliograph.signals.model import Signal
from tests.rules.playback_kit import AT, signal

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e\r\b"
KEY = "sk-proj-" + "a1B2" * 10
LOG = [
    signal(1, "workflow:start", payload={"state": {"topic": HOSTILE}}), signal(2, "agent:activated", "poet", 1, {"agent": "poet"}),
    signal(3, "harness:start", "poet", 2, {"model": "m"}), signal(4, "thinking:delta", "poet", 3, {"content": "hm "}),
    signal(5, "text:delta", "poet", 3, {"content": f"one{HOSTILE}\n"}), signal(6, "text:delta", "poet", 3, {"content": "two 日本"}),
    signal(7, "harness:end", "poet", 3, {"usage": {"inputTokens": 3, "outputTokens": 4}}),
    signal(8, "tool:call", "poet", 2, {"id": "c", "name": "search", "input": {"q": HOSTILE}}),
    signal(9, "agent:activated", "critic", 1, {"agent": "critic"}), signal(10, "agent:failed", "poet", 2, {"error": {"code": "X", "message": HOSTILE}}),
    signal(11, "workflow:end", None, 1, {"outcome": "failed", "reason": HOSTILE}),
]  # fmt: skip


class Source:
    """A log that is served in pages; a live one grows by `more`."""

    def __init__(self, signals: list[Signal], *, has_ended: bool = True):
        self.name = "r"
        self.has_ended = has_ended
        self.served = list(signals)
        self.outages = 0
        self.was_read = asyncio.Event()
        self._after = 0

    async def page(self) -> list[Signal]:
        self.was_read.set()
        if self.outages:
            self.outages -= 1
            raise StoreUnavailable("the server is away")
        found = [each for each in self.served if each.seq > self._after][:4]
        self._after = found[-1].seq if found else self._after
        return found


def plain(screen: PlayScreen, pane: str) -> str:
    """What a pane shows."""
    lines = screen.query_one(f"#{pane}", Lines)
    return "\n".join(lines.render_line(row).text.rstrip() for row in range(lines.rows))


async def settled(pilot: Any) -> None:
    """Wait until the log is read, and draw."""
    for _ in range(200):
        await pilot.pause(0.01)
        if pilot.app._note != "reading" and not pilot.app._is_stale:
            return
    raise AssertionError("the log was not read")


@pytest.mark.more
async def test_keys_move_the_player_and_the_panes_show_the_cursor() -> None:
    screen = PlayScreen(Source(LOG))
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "before the first signal" in plain(screen, "causes")

        async def press(*keys: str) -> int:
            await pilot.press(*keys)
            await settled(pilot)
            return screen.player.cursor

        assert await press("right", "right", "left") == 1
        assert await press("pagedown") == 11
        assert "this is the end" in await pressed_message(pilot, screen, "right")
        assert await press("home") == 0
        assert await press("slash", *"text:*", "enter") == 5
        assert await press("n") == 6
        assert "no later signal matches text:*" in await pressed_message(pilot, screen, "n")
        assert await press("N") == 5
        assert next(line for line in plain(screen, "timeline").splitlines() if line.startswith(">")).split()[1] == "5"
        assert "└ 3 harness:start" in plain(screen, "causes")
        assert "running  init" in plain(screen, "agents")
        assert "poet\none\\x1b[2J" in plain(screen, "text")
        assert await press("enter") == 3
        assert await press("enter", "enter") == 1
        assert "no signal caused this one" in await pressed_message(pilot, screen, "enter")
        assert await press("backspace", "backspace", "backspace") == 5
        assert await press("colon", *"sig_r_8", "enter") == 8
        assert "waits for search" in plain(screen, "agents")
        assert await press("m", *"call", "enter", "end") == 11
        assert await press("apostrophe", *"call", "enter") == 8
        message = await pressed_message(pilot, screen, "colon", *"99", "enter")
        assert "has no position 99; seek one from 0" in message
        assert screen.player.cursor == 8
        await press("6")
        assert screen.query_one("#text", Lines).rows > 15
        await press("1", "plus", "plus")
        assert screen.player.speed == 4
        await press("question_mark", "q")
    assert screen.return_code == 0


async def pressed_message(pilot: Any, screen: PlayScreen, *keys: str) -> str:
    await pilot.press(*keys)
    await settled(pilot)
    return " ".join(plain(screen, "message").split())


@pytest.mark.more
async def test_screen_plays_by_its_clock_and_redraws_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, drawn = [0.0], list[int]()
    monkeypatch.setattr(play_screen, "monotonic", lambda: now[0])
    log = [signal(seq, "text:delta", "poet", None, {"content": "x"}, at=seq / 100) for seq in range(1, 400)]
    screen = PlayScreen(Source(log))
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        draw = screen.draw_panes

        def draw_counted() -> None:
            drawn.append(screen.player.cursor)
            draw()

        monkeypatch.setattr(screen, "draw_panes", draw_counted)
        await pilot.press("space")
        now[0] = 2.005
        await pilot.pause(0.3)
        assert screen.player.cursor == 201
        assert len(drawn) <= 4  # two hundred signals
        await pilot.press("space")
        now[0] = 60.0
        await pilot.pause(0.2)
        assert (screen.player.cursor, screen.player.is_playing) == (201, False)


@pytest.mark.more
async def test_screen_follows_a_live_run_through_an_outage_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_screen, "POLL_SECONDS", 0.01)
    source = Source(LOG[:6], has_ended=False)
    screen = PlayScreen(source)
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert (screen.player.cursor, "live" in plain(screen, "title")) == (6, True)
        await pilot.press("left")
        source.outages = 3
        source.served += LOG[6:]
        async with asyncio.timeout(5):
            while screen.player.is_live:
                await pilot.pause(0.01)
        await settled(pilot)
        assert (screen.player.cursor, screen.player.log.last_seq, "live" in plain(screen, "title")) == (5, 11, False)


@pytest.mark.more
async def test_empty_page_of_a_live_run_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_screen, "POLL_SECONDS", 0)
    source = Source(LOG[:6], has_ended=False)
    screen = PlayScreen(source)
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for _ in range(20):
            source.was_read.clear()
            await source.was_read.wait()
            assert not screen._is_stale


@pytest.mark.more
async def test_prompt_takes_no_keys_until_it_is_asked() -> None:
    screen = PlayScreen(Source(LOG))
    async with screen.run_test(size=(40, 10)) as pilot:
        await settled(pilot)
        await pilot.press("right", "x", "colon", "4", "escape", "right")
        await settled(pilot)
        assert (screen.player.cursor, screen.query_one("#prompt", Input).display) == (2, False)


def test_panes_contain_no_control_characters_of_payloads() -> None:
    player = Player(LOG)
    for seq in range(12):
        player.seek(seq)
        snapshot = player.snapshot
        lines = [*timeline_lines(player, 1, 20), *cause_lines(player, 60, 30), *agent_lines(snapshot, 9), *state_lines(snapshot, 9),
                 *text_lines(snapshot, None, 20, 9)]  # fmt: skip
        for text in [*(line.plain for line in lines), *snapshot_lines(snapshot)]:
            assert text.isprintable(), text


def test_snapshot_lines_name_each_fact() -> None:
    player = Player(LOG[:9])
    player.to_end()
    text = "\n".join(snapshot_lines(player.snapshot))
    assert "agent    poet  running  waits for search, init" in text
    assert "waits for  search({" in text
    assert "pending  critic was activated by sig_r_1" in text
    assert "thinking  hm" in text


def test_short_panes_say_how_much_is_missing() -> None:
    player = Player([signal(1, "workflow:start", payload={"state": {f"k{n}": n for n in range(9)}})])
    player.to_end()
    assert [line.plain for line in state_lines(player.snapshot, 3)] == ["k0  0", "k1  1", "… 7 more"]


@pytest.mark.parametrize(("where", "seq"), [("start", 0), ("end", 11), ("3", 3), ("sig_r_8", 8), ((AT.isoformat()), 1)])
def test_position_is_a_number_an_id_a_time_or_an_end(where: str, seq: int) -> None:
    player = Player(LOG)
    move_to(player, where)
    assert player.cursor == seq


@pytest.mark.parametrize(("where", "code"), [
    ("", "invalid_position"), ("9" * 40, "invalid_position"), ("-1", "seek_out_of_range"), ("²", "invalid_position"),
    ("25:99", "invalid_position"), ("sig_r_99", "unknown_signal"), ("2020-01-01", "seek_out_of_range"),
    ("--5", "invalid_position"), ("-", "invalid_position"), ("0001-01-01T00:00", "any"), ("9999-12-31T23:59:59", "any"), ("\x1b[2J", "invalid_position"),
])  # fmt: skip
def test_wrong_position_is_an_error_with_the_next_step(where: str, code: str) -> None:
    with pytest.raises(HeliographError) as caught:
        move_to(Player(LOG), where)
    assert caught.value.code == code or (
        code == "any" and caught.value.code in ("invalid_position", "seek_out_of_range")
    )
    assert caught.value.message.isprintable()


def test_time_of_day_in_an_empty_log_is_an_error() -> None:
    with pytest.raises(HeliographError):
        move_to(Player(), "14:03")


@pytest.mark.proves("P-29")
def test_json_of_a_snapshot_has_stars_in_place_of_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(redaction, "_kept", redaction._Kept())
    redaction.keep_out('canary"of-a-password')
    state: dict[str, Any] = {"topic": 'is canary"of-a-password.', "key": KEY}
    snapshot = Player([signal(1, "workflow:start", payload={"state": state})])
    snapshot.to_end()
    json_line("situation", snapshot.snapshot.as_json())
    json_line("url", {"url": 'canary"of-a-password'}, shows_secrets=True)
    json_line("command", state, is_input=True)
    redacted_line, asked_line, input_line = capsys.readouterr().out.splitlines()
    assert json.loads(redacted_line)["state"] == {"topic": "is ***.", "key": "***"}
    assert json.loads(asked_line) == {"type": "url", "url": 'canary"of-a-password'}
    assert json.loads(input_line) == {"type": "command", "topic": "is ***.", "key": KEY}


@pytest.mark.proves("P-29")
def test_panes_have_stars_in_place_of_texts_that_look_like_keys() -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{KEY[8:]}\n-----END PRIVATE KEY-----"
    player = Player([signal(1, "workflow:start", payload={"state": {"key": key}}), signal(2, "agent:activated", "poet", 1, {"agent": "poet"}),
                     signal(3, "text:delta", "poet", 2, {"content": key}), signal(4, "order:placed", "poet", 2, {"key": key})])  # fmt: skip
    for seq in range(1, 5):
        player.seek(seq)
        snapshot = player.snapshot
        lines = [
            *timeline_lines(player, 1, 20),
            *cause_lines(player, 60, 30),
            *state_lines(snapshot, 9),
            *text_lines(snapshot, None, 20, 9),
        ]
        for text in [*(line.plain for line in lines), *snapshot_lines(snapshot)]:
            assert KEY[8:16] not in text, text


def test_play_without_a_terminal_names_the_other_way() -> None:
    with pytest.raises(HeliographError) as caught:
        play_module.play(Namespace(run="first", at=None, json=False, edited=False))
    assert (caught.value.code, caught.value.hint) == (
        "no_terminal", "helio play first --at end prints the situation at a position; add --json for programs",
    )  # fmt: skip


def test_play_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "has_terminal", lambda: True)
    monkeypatch.setattr(terminal, "find_spec", lambda _name: None)
    with pytest.raises(HeliographError) as caught:
        play_module.play(Namespace(run="first", at=None, json=False, edited=False))
    assert (caught.value.code, "heliograph[tui]" in caught.value.message) == ("no_tui", True)


@pytest.mark.more
async def test_log_that_cannot_be_read_ends_the_player_with_the_error() -> None:
    class Broken(Source):
        async def page(self) -> list[Signal]:
            raise RecordingRejected(
                "recording r.jsonl, line 3: the line is cut off; copy the whole file", code="recording_truncated"
            )

    screen = PlayScreen(Broken(LOG))
    async with screen.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.05)
    assert screen.failure is not None
    assert (screen.failure.code, screen.return_code) == ("recording_truncated", 2)


@pytest.mark.parametrize(("where", "read"), [("3", 4), ("sig_r_5", 8), ("end", 11), ("999", 11), ("-1", 11)])
async def test_log_is_read_up_to_the_position_that_is_printed(where: str, read: int) -> None:
    assert len((await play_module._loaded(Source(LOG), seq_of(where))).log) == read
