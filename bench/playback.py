"""Seek, fold and checkpoints of a player, beside `json.loads` of the same signals line by line."""

from __future__ import annotations

import json
import random

from bench.figures import Figure, Figures
from bench.meter.sample import quantile
from bench.player import SEEKS, Log, cpu_seconds, decode, fold, seek
from heliograph.playback.player import Player
from heliograph.signals.model import to_wire

SEEK_MS, FOLD_SECONDS, CHECKPOINTS_PERCENT = 20.0, 1.0, 2.0


def measure_playback(signals: int, rounds: int, figures: Figures) -> None:
    """Load a run into a player; measure in CPU time, so that other processes do not count."""
    player = Player()
    player.extend(Log(signals, 1))
    lines = [json.dumps(to_wire(each)) for each in player.log.signals(0, min(signals, 100_000))]
    share = len(player.log) / len(lines)

    def parse() -> None:
        for line in lines:
            json.loads(line)

    floors, decodes, folds = [], [], []
    for _ in range(rounds):
        floors.append(share * cpu_seconds(parse))
        decodes.append(cpu_seconds(lambda: decode(player)))
        folds.append(cpu_seconds(lambda: fold(player)))
    figures.add(
        Figure(
            f"fold of {len(player.log):,} signals, best of {rounds}",
            min(folds),
            "s",
            min(floors),
            "json.loads",
            FOLD_SECONDS,
        )
    )
    figures.add(Figure("of it, decoding", min(decodes), "s", min(floors), "json.loads"))
    drawn = random.Random(1)
    seeks = [cpu_seconds(lambda: seek(player, drawn.randrange(1, len(player.log) + 1))) for _ in range(SEEKS)]
    one = [cpu_seconds(lambda: json.loads(lines[0])) for _ in range(SEEKS)]
    for label, at in (("p50", 0.5), ("p99", 0.99)):
        figures.add(Figure(f"seek to any signal, with state, texts and waits, {label}", 1000 * quantile(seeks, at), "ms",
                           1000 * quantile(one, at), "json.loads of a line", SEEK_MS))  # fmt: skip
    checkpoints = player._timeline.checkpoints.byte_count
    figures.add(
        Figure(
            "checkpoints, of the size of the log",
            100 * checkpoints / player.log.byte_count,
            "%",
            None,
            "",
            CHECKPOINTS_PERCENT,
        )
    )
