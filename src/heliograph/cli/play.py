"""`helio play RUN`: play a run in the terminal, or print its snapshot at one position."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from signal import SIGTERM

from heliograph.cli.output import json_line, line
from heliograph.cli.play_positions import move_to, seq_of
from heliograph.cli.signal_source import SignalSource, open_sources
from heliograph.cli.terminal import check_terminal
from heliograph.errors import InvalidInput
from heliograph.playback.player import Player
from heliograph.signals.payload import with_sorted_keys

TERMINATED = 128 + SIGTERM


def play(options: Namespace) -> int:
    if options.at is None and options.json:
        raise InvalidInput(
            "--json prints a snapshot: give its position with --at, for example --at end", code="usage", path="--json"
        )
    if options.at is None:
        check_terminal("helio play", f"helio play {options.run} --at end prints the situation at a position")
    return asyncio.run(_play(options))


async def _play(options: Namespace) -> int:
    async with open_sources(options.run, edited=options.edited) as (source,):
        if options.at is None:
            return await _show(source)
        player = await _loaded(source, seq_of(options.at))
    move_to(player, options.at)
    if options.json:
        situation = player.snapshot.as_json()
        json_line("situation", {**situation, "state": with_sorted_keys(situation["state"])})
        return 0
    from heliograph.cli.play_text import snapshot_lines

    for text in snapshot_lines(player.snapshot):
        line(text)
    return 0


async def _show(source: SignalSource) -> int:
    from heliograph.cli.play_screen import PlayScreen  # late: the terminal library is an extra

    screen = PlayScreen(source)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(SIGTERM, lambda: screen.exit(return_code=TERMINATED))  # the terminal must be restored first
    try:
        await screen.run_async(mouse=False)
    finally:
        loop.remove_signal_handler(SIGTERM)
    if screen.failure is not None:
        raise screen.failure
    return screen.return_code or 0


async def _loaded(source: SignalSource, until: int | None) -> Player:
    """Read the log up to a position; None: all of it."""
    player = Player()
    while (until is None or player.log.last_seq < until) and (page := await source.page()):
        player.extend(page)
    return player
