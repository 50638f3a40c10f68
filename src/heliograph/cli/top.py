"""`helio top`: the runs of a project with their agents, waits, tokens and money, live or as they are now."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from signal import SIGTERM

from heliograph.cli.approval import project_of
from heliograph.cli.existing_database import open_existing
from heliograph.cli.output import columns, json_line, line
from heliograph.cli.terminal import check_terminal
from heliograph.cli.top_load import Load, LoadWatch
from heliograph.cli.top_text import snapshot_lines

TERMINATED = 128 + SIGTERM


def top(options: Namespace) -> int:
    """Show the screen until the user quits; with --once or --json, print the load once."""
    if options.json or options.once:
        return _print(asyncio.run(_read(options)), options)
    check_terminal("helio top", "helio top --once prints the runs as they are now")
    return asyncio.run(_show(options))


async def _read(options: Namespace) -> Load:
    async with open_existing() as reader:
        return await LoadWatch(reader, options.limit, options.app).read_counted()


def _print(load: Load, options: Namespace) -> int:
    if options.json:
        json_line("load", load.as_json())
        return 0
    for text in snapshot_lines(load, options.sort, columns()):
        line(text)
    return 0


async def _show(options: Namespace) -> int:
    from heliograph.cli.top_screen import TopScreen  # late: the terminal library is an extra

    async with open_existing() as reader:
        screen = TopScreen(
            LoadWatch(reader, options.limit, options.app), options.interval, options.sort, project_of(options)
        )
        loop = asyncio.get_running_loop()
        # the screen restores the terminal before the process ends
        loop.add_signal_handler(SIGTERM, lambda: screen.exit(return_code=TERMINATED))
        try:
            await screen.run_async(mouse=False)
        finally:
            loop.remove_signal_handler(SIGTERM)
        return screen.return_code or 0
