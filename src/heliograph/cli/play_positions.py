"""Positions in the log of a run, as people name them: numbers, ids of signals, times, `start` and `end`."""

from __future__ import annotations

import re
from datetime import date, datetime

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.ids import split_signal_id
from heliograph.playback.player import Player

_NUMBER = re.compile(r"-?[0-9]{1,18}")


def seq_of(where: str) -> int | None:
    """The position in a number or in the id of a signal; None for times, `start` and `end`, which need the whole log."""
    parts = split_signal_id(where)
    if parts is not None:
        return parts[1]
    return int(where) if _NUMBER.fullmatch(where) and int(where) > 0 else None


def move_to(player: Player, where: str) -> None:
    """Move to a place that a person named: a position, the id of a signal, a time, `start` or `end`.

    A time of day is one of the day on which the log begins. Raises InvalidInput (`invalid_position`), and the errors of the moves.
    """
    if where in ("start", "end"):
        player.to_start() if where == "start" else player.to_end()
    elif where.startswith("sig_"):
        player.seek_signal(where)
    elif _NUMBER.fullmatch(where):
        player.seek(int(where))
    else:
        player.seek_time(_moment(player, where))


def _moment(player: Player, where: str) -> datetime:
    day = player.log.signal(player.log.first_seq).timestamp.astimezone().date() if len(player.log) else date.min
    for text in (where, f"{day}T{where}"):
        try:
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo is not None else moment.astimezone()
        except (ValueError, OverflowError, OSError):  # the last two are of times that no local time can have
            continue
    raise InvalidInput(f"{safe_repr(where)} is not a position: give a number, the id of a signal, an ISO time, a time like 14:03:20, start or end",
                       code="invalid_position", path="--at")  # fmt: skip
