"""The load of a project for `helio top`: runs with their agents, waits, tokens and money, and the workers.

`LoadWatch` reads it. Between two reads it keeps how far it has counted the use of models in each log, so that a read costs a
fixed number of statements, and each signal is read once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from heliograph.ledger.load_reader import PAGE, RUNS_COUNTED_MAX, RunLoad, TurnLoad, WaitLoad

if TYPE_CHECKING:
    from heliograph.ledger.reader import Reader
    from heliograph.ledger.rows import WorkerRow

_NUMBER_MAX = 10**15
_KINDS_OF_WAITS = ("human", "child", "tool")


@dataclass
class Use:
    """The use of models by a run, counted up to a position of its log. cost_usd: None as long as no reply had a price."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    upto: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, usage: Any) -> None:
        """Add the `usage` of a model call. Someone may have edited it in the database."""
        given = usage if isinstance(usage, dict) else {}
        self.input_tokens += _count(given.get("inputTokens"))
        self.output_tokens += _count(given.get("outputTokens"))
        cost = given.get("costUsd")
        if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < _NUMBER_MAX:
            self.cost_usd = (self.cost_usd or 0.0) + cost


@dataclass(frozen=True)
class RunNow:
    """A run with its open turns and waits. is_counted: whether `use` contains its whole log."""

    run: RunLoad
    turns: Sequence[TurnLoad]
    waits: Sequence[WaitLoad]
    use: Use
    is_counted: bool

    @property
    def status(self) -> str:
        """The outcome of a run that has ended; `waiting` while it waits for a person; else its status."""
        if self.run.outcome is not None:
            return self.run.outcome
        return "waiting" if self.run.status == "running" and self.questions else self.run.status

    @property
    def questions(self) -> int:
        """How many persons it waits for."""
        return sum(wait.count for wait in self.waits if wait.kind == "human")

    @property
    def open_waits(self) -> int:
        return sum(wait.count for wait in self.waits)


@dataclass(frozen=True)
class Load:
    """A project at one time. runs: the newest first."""

    at: datetime
    runs: Sequence[RunNow] = ()
    workers: Sequence[WorkerRow] = ()

    def as_json(self) -> dict[str, Any]:
        """The object that `helio top --json` prints."""
        return {
            "at": self.at,
            "workers": [
                {"worker": row.worker, "health": row.health, "slots": row.slots, "slots_used": row.slots_used}
                for row in self.workers
            ],
            "runs": [_run_json(each) for each in self.runs],
        }


@dataclass
class LoadWatch:
    """Reads the load of a project again and again. target: of one application."""

    reader: Reader
    limit: int
    target: str | None = None
    _uses: dict[str, Use] = field(default_factory=dict)

    async def read(self) -> Load:
        """Read the load now, in five statements at most. Raises StoreUnavailable."""
        load = self.reader.load
        waits: dict[str, list[WaitLoad]] = defaultdict(list)
        for wait in await load.waits():
            waits[wait.run_id].append(wait)
        runs = await load.runs(self.limit, list(waits), self.target)
        turns: dict[str, list[TurnLoad]] = defaultdict(list)
        for turn in await load.turns([run.run_id for run in runs if run.open_turns]):
            turns[turn.run_id].append(turn)
        await self._count(runs)
        found = [
            RunNow(run, turns[run.run_id], waits[run.run_id], self._uses[run.run_id], self._is_counted(run))
            for run in runs
        ]
        return Load(datetime.now(UTC), found, await self.reader.workers())

    async def read_counted(self) -> Load:
        """Read the load, and count all logs to their ends."""
        load = await self.read()
        while not all(each.is_counted for each in load.runs):
            await self._count([each.run for each in load.runs])
            load = Load(
                load.at,
                [RunNow(each.run, each.turns, each.waits, each.use, self._is_counted(each.run)) for each in load.runs],
                load.workers,
            )
        return load

    async def _count(self, runs: Sequence[RunLoad]) -> None:
        """Count the next part of the logs that have grown: of the newest runs first."""
        self._uses = {run.run_id: self._uses.get(run.run_id, Use()) for run in runs}
        grown = [run for run in runs if not self._is_counted(run)][:RUNS_COUNTED_MAX]
        spans = {
            run.run_id: (after, min(after + PAGE, run.signal_count))
            for run in grown
            for after in [self._uses[run.run_id].upto]
        }
        for run_id, usage in await self.reader.load.uses(spans):
            self._uses[run_id].add(usage)
        for run_id, (_, upto) in spans.items():
            self._uses[run_id].upto = upto

    def _is_counted(self, run: RunLoad) -> bool:
        return self._uses[run.run_id].upto >= run.signal_count


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < _NUMBER_MAX else 0


def _run_json(each: RunNow) -> dict[str, Any]:
    run, use = each.run, each.use
    return {
        "run_id": run.run_id, "application": run.target, "status": run.status, "outcome": run.outcome, "turns": run.activations,
        "open_turns": run.open_turns, "created_at": run.created_at, "ended_at": run.ended_at,
        "waits": {kind: sum(wait.count for wait in each.waits if wait.kind == kind) for kind in _KINDS_OF_WAITS},
        "usage": {"inputTokens": use.input_tokens, "outputTokens": use.output_tokens, "costUsd": use.cost_usd},
        "agents": [{"agent": turn.agent, "turn_id": turn.turn_id, "status": turn.status, "phase": turn.phase,
                    "since": turn.created_at} for turn in each.turns],
    }  # fmt: skip
