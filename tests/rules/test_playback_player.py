"""The player: moves, time, patterns, checkpoints, and the errors of wrong moves."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import HeliographError, InvalidInput, NotFound
from heliograph.playback import log as log_module
from heliograph.playback import timeline as timeline_module
from heliograph.playback.player import Player
from heliograph.signals.model import Signal
from tests.grids import share_of_examples
from tests.rules.playback_kit import AT, signal, sound_logs

LOG = [
    signal(1, "workflow:start", payload={"state": {}}, at=0.0), signal(2, "agent:activated", "a", 1, at=0.5),
    signal(3, "harness:start", "a", 2, at=0.5), signal(4, "text:delta", "a", 3, {"content": "x"}, at=1.5),
    signal(5, "text:delta", "a", 3, {"content": "y"}, at=1.25), signal(6, "agent:completed", "a", 2, at=100.0),
    signal(7, "workflow:end", None, 6, {"outcome": "success"}, at=100.25),
]  # fmt: skip
PRUNED = [signal(seq, "a:b", "a") for seq in range(5, 9)]

MOVES = st.one_of(
    st.tuples(st.sampled_from(["step", "back"]), st.integers(1, 30)), st.tuples(st.just("seek"), st.floats(0, 1)),
    st.tuples(st.sampled_from(["next", "previous"]), st.sampled_from(["text:*", "agent:**", "tool:result", "state:*:changed", "no:no"])),
    st.tuples(st.just("tick"), st.floats(0, 3)), st.tuples(st.just("speed"), st.sampled_from([0.5, 1, 100])),
    st.tuples(st.sampled_from(["start", "end", "mark", "return", "pause", "grow"]), st.none()),
)  # fmt: skip


@pytest.mark.more  # each move is compared with a fold from the start
@share_of_examples(40)
@given(sound_logs(), st.lists(MOVES, max_size=15))
def test_snapshot_after_any_moves_equals_the_fold_from_the_start(
    log: list[Signal], moves: list[tuple[str, object]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "BLOCK", 4)
        patch.setattr(timeline_module, "BLOCK", 4)
        half = max(1, len(log) // 2)
        player, now, size = Player(log[:half], is_live=True), 0.0, half
        player.set_checkpoint("mark")
        player.play(now)
        for move, argument in moves:
            before = player.cursor
            match move, argument:
                case (("step" | "back"), int(count)):
                    moved = getattr(player, move)(count)
                    assert (
                        abs(player.cursor - before) == moved == min(count, size - before if move == "step" else before)
                    )
                case "seek", float(share):
                    player.seek(round(share * size))
                    assert player.cursor == round(share * size)
                case (("next" | "previous"), str(pattern)):
                    found = getattr(player, move)(pattern)
                    assert (found is None) == (player.cursor == before)
                case "tick", float(seconds):
                    now += seconds
                    played = player.tick(now)
                    assert player.cursor == before + played
                case "speed", (int() | float()) as speed:
                    player.speed = speed
                case "grow", _:
                    size += player.extend(log[size : size + 7])
                case "mark", _:
                    player.set_checkpoint("mark")
                case "return", _:
                    player.to_checkpoint("mark")
                case "pause", _:
                    player.pause()
                case (("start" | "end"), _):
                    getattr(player, f"to_{move}")()
            fresh = Player(log[: player.cursor] or log[:1])
            fresh.seek(player.cursor)
            assert player.snapshot == fresh.snapshot


def test_player_plays_at_the_speed_of_the_run_and_shortens_long_pauses() -> None:
    player = Player(LOG)
    player.play(10.0)
    assert player.seconds_to_next(10.0) == 0.0
    played = []
    for now in (10.0, 10.4, 10.5, 11.4, 11.5, 13.4, 13.5, 13.75):
        player.tick(now)
        played.append(player.cursor)
    assert played == [1, 1, 3, 3, 5, 5, 6, 7]  # 98.5 seconds of silence are two
    assert (player.is_playing, player.is_at_end) == (False, True)


@pytest.mark.parametrize(("speed", "cursor"), [(0.5, 1), (1, 3), (2, 5), (100, 7)])
@pytest.mark.proves("P-12")
def test_speed_divides_the_pauses(speed: float, cursor: int) -> None:
    player = Player(LOG, speed=speed)
    player.play(0.0)
    player.tick(0.75)
    assert player.cursor == cursor


def test_pause_stops_and_play_continues_from_the_cursor() -> None:
    player = Player(LOG)
    player.play(0.0)
    player.tick(0.1)
    player.pause()
    assert (player.tick(50.0), player.cursor, player.seconds_to_next(50.0)) == (0, 1, None)
    player.play(50.0)
    assert player.seconds_to_next(50.0) == 0.5
    player.tick(50.5)
    assert player.cursor == 3


def test_play_at_the_end_of_a_finished_run_begins_again() -> None:
    player = Player(LOG)
    player.to_end()
    player.play(0.0)
    assert (player.cursor, player.is_playing) == (0, True)


def test_player_of_a_live_run_waits_at_the_end_and_plays_what_comes() -> None:
    player = Player(LOG[:2], is_live=True)
    player.to_end()
    player.play(0.0)
    player.tick(60.0)
    assert (player.is_playing, player.is_at_end, player.seconds_to_next(60.0)) == (True, True, None)
    player.extend(LOG[2:4])
    player.tick(60.1)
    assert player.cursor == 4


def test_one_tick_is_bounded() -> None:
    player = Player(signal(seq, "a:b", at=0.0) for seq in range(1, 5003))
    player.play(0.0)
    assert [player.tick(0.0), player.tick(0.0)] == [5000, 2]


def test_next_and_previous_match_patterns_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "BLOCK", 3)
    log = [signal(seq, "tool:call" if seq % 7 == 0 else "text:delta", "a") for seq in range(1, 40)]
    player = Player(log)
    found = []
    while (match := player.next("tool:*")) is not None:
        found.append(match.seq)
    assert found == [7, 14, 21, 28, 35]
    assert player.next("tool:*") is None
    assert player.cursor == 35
    assert [getattr(player.previous("**:call"), "seq", None) for _ in range(5)] == [28, 21, 14, 7, None]
    with pytest.raises(InvalidInput) as caught:
        player.next("tool*")
    assert caught.value.code == "invalid_wildcard"


def test_time_finds_the_last_position_that_is_not_later_although_clocks_differ() -> None:
    player = Player(LOG)
    for seconds, cursor in [(0, 1), (0.6, 3), (1.3, 3), (1.5, 5), (50, 5), (100.25, 7)]:
        player.seek_time(AT + timedelta(seconds=seconds))
        assert player.cursor == cursor, seconds


def test_checkpoints_are_positions_with_names() -> None:
    player = Player(LOG)
    player.seek(4)
    player.set_checkpoint("first word")
    player.to_end()
    player.to_checkpoint("first word")
    assert (player.cursor, dict(player.checkpoints)) == (4, {"first word": 4})


@pytest.mark.parametrize(("log", "move", "kind", "code", "texts"), [
    (LOG, lambda player: player.seek(8), InvalidInput, "seek_out_of_range", ("run r", "position 8", "from 0", "to 7")),
    (LOG, lambda player: player.seek(-1), InvalidInput, "seek_out_of_range", ("position -1", "to 7")),
    (LOG, lambda player: player.seek(True), InvalidInput, "wrong_type", ("whole number",)),
    (LOG, lambda player: player.seek("3"), InvalidInput, "wrong_type", ("'3'",)),
    ([], lambda player: player.seek(1), InvalidInput, "seek_out_of_range", ("empty",)),
    (PRUNED, lambda player: player.seek(3), NotFound, "pruned_signal", ("position 3", "begins with 5")),
    (PRUNED, lambda player: player.seek_signal("sig_r_4"), NotFound, "pruned_signal", ("sig_r_4", "sig_r_5")),
    (LOG, lambda player: player.seek_signal("sig_r_8"), NotFound, "unknown_signal", ("sig_r_8", "sig_r_7")),
    (LOG, lambda player: player.seek_signal("sig_x_1"), NotFound, "unknown_signal", ("run r", "sig_x_1")),
    (LOG, lambda player: player.seek_signal("\x1b[2J" * 1000), NotFound, "unknown_signal", ("\\x1b",)),
    (LOG, lambda player: player.seek_time(AT - timedelta(seconds=1)), InvalidInput, "seek_out_of_range", ("seek a time from",)),
    (LOG, lambda player: player.seek_time(AT + timedelta(days=1)), InvalidInput, "seek_out_of_range", ("seek a time from",)),
    (LOG, lambda player: player.seek_time(datetime(2026, 1, 31)), InvalidInput, "wrong_type", ("time zone",)),  # noqa: DTZ001
    (LOG, lambda player: setattr(player, "speed", 0), InvalidInput, "out_of_range", ("0.01 to 1000",)),
    (LOG, lambda player: setattr(player, "speed", float("nan")), InvalidInput, "out_of_range", ("nan",)),
    (LOG, lambda player: player.step(0), InvalidInput, "out_of_range", ("from 1",)),
    (LOG, lambda player: player.to_checkpoint("x"), NotFound, "unknown_checkpoint", ("'x'", "set_checkpoint")),
    (LOG, lambda player: player.set_checkpoint("\n"), InvalidInput, "invalid_checkpoint", ("printable",)),
])  # fmt: skip
@pytest.mark.proves("P-13")
def test_wrong_move_is_rejected_and_leaves_the_cursor(log, move, kind, code, texts) -> None:  # type: ignore[no-untyped-def]
    player = Player(log)
    player.to_end()
    before = player.cursor
    with pytest.raises(HeliographError) as caught:
        move(player)
    assert (type(caught.value), caught.value.code, player.cursor) == (kind, code, before)
    assert all(text in caught.value.message for text in texts), caught.value.message
    assert len(caught.value.message) < 400


def test_pruned_front_is_the_start() -> None:
    player = Player(PRUNED)
    assert (player.cursor, player.signal, player.snapshot.seq) == (4, None, 4)
    player.seek(0)
    assert player.cursor == 4
    assert player.step() == 1
    assert player.signal == PRUNED[0]
    assert player.back(99) == 1


def test_log_returns_pieces_of_text_with_any_payload_as_it_received_them() -> None:
    payloads: list[Any] = [{"content": "a", "offset": 0}, {"content": "\u00fc", "offset": 2**60}, {"content": "c"}, {"content": 3, "offset": 0},
                           {"content": "d", "offset": True}, {"content": "e", "offset": 1, "more": [1]}, "text", None]  # fmt: skip
    signals = [signal(1, "harness:start", "a")] + [
        signal(seq, f"{kind}:delta", "a", 1, payload)
        for seq, (kind, payload) in enumerate(product(("text", "thinking"), payloads), 2)
    ]
    player = Player(signals)
    assert [player.log.signal(each.seq) for each in signals] == signals
    player.to_end()
    assert (player.snapshot.agents["a"].text, player.snapshot.agents["a"].thinking) == ("a\u00fccde", "a\u00fccde")
