"""`python -m bench.player`: the fold, the seeks and the checkpoints of the player, on a log of a million signals in one run.

The log has 20 agents that stream texts, call tools and change the state, interleaved. The floor is decoding the same log alone, in the
same rounds, so that the ratio does not depend on the machine. A seek goes to a random position and reads the whole state, the texts of
all agents, and the waits.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime, timedelta
from time import process_time

from heliograph.ids import signal_id
from heliograph.playback.fold import Fold
from heliograph.playback.player import Player
from heliograph.signals.model import Signal, Source
from heliograph.types import Json

RUN = "run_01m8c6s7fkwfvp1q5hf0b6nqhf"
AGENTS, KEYS, SEEKS = 20, 30, 300
WORDS = ("some words ", "and ", "a longer piece of a text ", "end. ")


class Log:
    """Makes the signals of a run, from a seed."""

    def __init__(self, size: int, seed: int):
        self._size = size
        self._random = random.Random(seed)
        self._seq = 0

    def __iter__(self) -> Iterator[Signal]:
        state: Json = {f"k{n}": "" for n in range(KEYS)}
        yield self._signal("workflow:start", None, None, {"state": state})
        turns = {f"agent{n}": self._turn(f"agent{n}") for n in range(AGENTS)}
        while self._seq < self._size:
            agent = self._random.choice(list(turns))
            yield next(turns[agent])

    def _turn(self, agent: str) -> Iterator[Signal]:
        while True:
            activated = self._signal("agent:activated", agent, 1, {"agent": agent})
            yield activated
            output = ""
            for number in range(self._random.randrange(1, 4)):
                output = yield from self._round(agent, activated.seq, f"m{number}")
            completed = self._signal("agent:completed", agent, activated.seq, {"agent": agent, "output": "done"})
            yield completed
            key = self._random.randrange(KEYS)
            yield self._signal(f"state:k{key}:changed", agent, completed.seq, {"value": output[:200]})

    def _round(self, agent: str, turn: int, call: str) -> Generator[Signal, None, str]:
        """A model call and a tool call. Returns the text."""
        start = self._signal("harness:start", agent, turn, {"model": "scripted", "input": "Continue."})
        yield start
        text = ""
        for _ in range(self._random.randrange(5, 120)):
            piece = self._random.choice(WORDS)
            yield self._signal("text:delta", agent, start.seq, {"content": piece, "offset": len(text)})
            text += piece
        yield self._signal("text:complete", agent, start.seq, {"content": text})
        usage: Json = {"inputTokens": 50, "outputTokens": len(text) // 4}
        yield self._signal("harness:end", agent, start.seq, {"usage": usage, "durationMs": 300})
        yield self._signal("tool:call", agent, turn, {"id": call, "name": "search", "input": {"q": text[:20]}})
        result: Json = {"id": call, "name": "search", "status": "success", "output": text[:80]}
        yield self._signal("tool:result", agent, turn, result)
        return text

    def _signal(self, name: str, agent: str | None, parent: int | None, payload: Json) -> Signal:
        self._seq += 1
        source = None if parent is None else Source(agent, signal_id(RUN, parent))
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=3) * self._seq
        turn = None if agent is None else f"turn_01m8c6s7fkwfvp1q5hf0b6{agent}"
        return Signal(signal_id(RUN, self._seq), name, payload, at, source, RUN, self._seq, turn)


def cpu_seconds(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def decode(player: Player) -> None:
    for _ in player.log.batches(0, player.log.last_seq):
        pass


def fold(player: Player) -> None:
    Fold(player.log).advance(player.log.last_seq)


def seek(player: Player, seq: int) -> None:
    player.seek(seq)
    snapshot = player.snapshot
    assert len(snapshot.state) == KEYS
    assert all(agent.text is not None and agent.thinking == "" for agent in snapshot.agents.values())
    assert len(snapshot.waits) <= AGENTS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.player", description=__doc__)
    parser.add_argument("--signals", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    player = Player()
    loaded = cpu_seconds(lambda: player.extend(Log(options.signals, options.seed)))
    size, checkpoints = player.log.byte_count, player._timeline.checkpoints
    print(f"{len(player.log):,} signals, {size / 1e6:,.1f} MB in memory, made and loaded in {loaded:.1f} s of CPU")
    print(
        f"checkpoints  {checkpoints.count:,}, {checkpoints.byte_count / 1e3:,.0f} kB, {checkpoints.byte_count / size:.2%} of the log"
    )
    floors, folds = [], []
    for _ in range(options.rounds):
        floors.append(cpu_seconds(lambda: decode(player)))
        folds.append(cpu_seconds(lambda: fold(player)))
    print(f"floor        decode all: {statistics.median(floors):.2f} s of CPU (best {min(floors):.2f})")
    print(f"fold         decode and fold all: {statistics.median(folds):.2f} s of CPU (best {min(folds):.2f}), "
          f"{statistics.median(map(lambda fold, floor: fold / floor, folds, floors)):.2f} x the floor")  # fmt: skip
    drawn = random.Random(options.seed)
    seeks = sorted(
        cpu_seconds(lambda: seek(player, drawn.randrange(1, len(player.log) + 1))) * 1000 for _ in range(SEEKS)
    )
    print(
        f"seek         p50 {seeks[SEEKS // 2]:.1f} ms, p99 {seeks[SEEKS * 99 // 100]:.1f} ms, longest {seeks[-1]:.1f} ms of CPU"
    )


if __name__ == "__main__":
    main()
