"""`helio diff LEFT RIGHT`: compare the signals of two runs; the first difference, then a summary by agent."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator
from tempfile import TemporaryFile
from typing import Any

from heliograph.cli.output import json_line, line, note, table, width
from heliograph.cli.signal_source import open_sources, signals_of
from heliograph.error_text import counted, safe_repr
from heliograph.json_differences import ABSENT
from heliograph.playback.comparison import Comparison, FirstDifference
from heliograph.playback.digest_queue import ChunkFile
from heliograph.signals.model import Signal
from heliograph.signals.signal_text import json_text

DIFFERENT = 1
_WIDTH = 60


def diff(options: Namespace) -> int:
    comparison = asyncio.run(_compare(options))
    if options.json:
        json_line("comparison", {"left": options.left, "right": options.right, **comparison.as_json()})
    else:
        _print(options, comparison)
    return 0 if comparison.is_equal else DIFFERENT


async def _compare(options: Namespace) -> Comparison:
    async with open_sources(options.left, options.right, edited=options.edited) as sources:
        for source in sources:
            if not source.has_ended:
                note(f"{source.name} has not ended; its signals up to now are compared")
        left, right = map(signals_of, sources)
        return await compare(left, right, is_exact=options.exact)


async def compare(left: AsyncIterator[Signal], right: AsyncIterator[Signal], *, is_exact: bool = False) -> Comparison:
    """Compare two logs, which are read side by side."""
    with ChunkFile(TemporaryFile) as file:
        comparison = Comparison(file, is_exact=is_exact)
        while (pair := (await _next(left, comparison), await _next(right, comparison))) != (None, None):
            comparison.add(*pair)
        comparison.end()
    return comparison


async def _next(signals: AsyncIterator[Signal], comparison: Comparison) -> Signal | None:
    async for signal in signals:
        if not comparison.skips(signal):
            return signal
    return None


def _print(options: Namespace, comparison: Comparison) -> None:
    counts = f"{counted(comparison.left_count, 'signal')} and {comparison.right_count}"
    if comparison.first is None:
        line(f"equal: {counts}")
        return
    _print_first(comparison.first)
    line()
    rows = [(safe_repr(name), str(agent.left), str(agent.right), str(agent.equal), "-" if agent.first is None else f"its signal {agent.first}")
            for name, agent in sorted(comparison.agents.items())]  # fmt: skip
    table(("AGENT", safe_repr(options.left, 30), safe_repr(options.right, 30), "EQUAL", "FIRST DIFFERENCE"), rows)
    if comparison.differs_in_order_only:
        line("each agent emitted the same signals in the same order; only their interleaving differs")


def _print_first(first: FirstDifference) -> None:
    line("first difference:")
    for side, signal in (("left ", first.left), ("right", first.right)):
        line(f"  {side}  {_described(signal)}")
    for each in first.differences:
        line(f"  {safe_repr(each.path or '/')}: {_side(each.left)} -> {_side(each.right)}")


def _side(value: Any) -> str:
    return "absent" if value is ABSENT else json_text(value, width(_WIDTH))


def _described(signal: Signal | None) -> str:
    if signal is None:
        return "no signal: this log has ended"
    return f"{signal.id}  {signal.name}  {signal.agent or '-'}"
