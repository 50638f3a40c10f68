"""A follower of a log reads when there is something to read: a read that finds nothing delays the turns that run in the same process."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from heliograph import run_follower
from heliograph.execution.local_runs import LocalRuns
from heliograph.run_follower import RunFollower
from heliograph.signals.model import Signal


class Log:
    """A log that is read in pages, and the world of its follower. done: the reads, by their position, and the waits."""

    def __init__(self, *pages: int, rings: bool = True):
        self._pages = [*pages]
        self._rings = rings
        self.done: list[str] = []

    async def signals(self, run_id: str, after: int, limit: int) -> list[Signal]:
        self.done.append(f"read after {after}")
        size = self._pages.pop(0)
        names = ["workflow:end" if not self._pages and n == size - 1 else "n" for n in range(size)]
        return [signal(after + n, name) for n, name in enumerate(names, 1)]

    def subscribe(self, _keys: Any) -> Log:
        return self

    def clear(self) -> None: ...

    def found(self) -> None: ...

    def close(self) -> None: ...

    async def wait(self, _seconds: float) -> bool:
        self.done.append("wait")
        return self._rings

    def monotonic(self) -> float:
        return 0.0


def signal(seq: int, name: str) -> Signal:
    return Signal(id=f"sig_r_{seq}", name=name, payload=None, timestamp=datetime(2026, 1, 15, tzinfo=UTC), source=None,
                  run_id="r", seq=seq, turn_id=None)  # fmt: skip


async def followed(log: Log) -> list[str]:
    follower: Any = RunFollower(log, log, "default", LocalRuns())  # type: ignore[arg-type]  # as much of both as it uses
    assert [each.seq async for each in follower.follow("r", 0)][-1] > 0
    return log.done


@pytest.mark.parametrize("rings", [True, False])
async def test_follower_waits_after_all_signals_that_there_are(*, rings: bool) -> None:
    assert await followed(Log(2, 3, rings=rings)) == ["read after 0", "wait", "read after 2"]


async def test_follower_reads_on_after_a_full_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_follower, "_PAGE_MAX", 2)
    assert await followed(Log(2, 2, 1)) == ["read after 0", "read after 2", "read after 4"]
