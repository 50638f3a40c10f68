"""Read the kernel of a simulation as `Reader` reads PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, TypeVar, cast

import msgspec

from heliograph.error_text import safe_repr
from heliograph.errors import NotFound, SetupError
from heliograph.ids import signal_id
from heliograph.ledger.open_turns import UnreadableTurn
from heliograph.ledger.pool import Database
from heliograph.ledger.reader import Reader
from heliograph.ledger.rows import (
    ActivatedTurn,
    CardRow,
    EndedTurnRow,
    LeaseRow,
    RecordedCommitRow,
    RecordingRow,
    RunProgressRow,
    RunRow,
    TurnRow,
    WaitRow,
)
from heliograph.signals.model import Signal, Source
from heliograph.testing.kernel.backend import Backend
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.kernel.jsonb import decode, encode
from heliograph.testing.kernel.tables import EPOCH, Row, end_of, result_of
from heliograph.testing.oracles.log import signals_of
from heliograph.testing.simulation.ended_turns import read_ended_turns

R = TypeVar("R", bound=msgspec.Struct)

_TIMES = frozenset({"created_at", "finished_at", "ended_at", "opened_at", "resolved_at", "deadline", "lease_until", "due_at",
                    "resume_deadline", "stop_requested_at", "started_at", "expires_at"})  # fmt: skip


class SimulatedReader(Reader):
    """The reads of runs, turns, calls, cards and signals. Others raise SetupError (`not_simulated`)."""

    def __init__(self, kernel: Backend, project: str):
        super().__init__(cast(Database, None), project)
        self._kernel = kernel

    async def signals(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Signal]:
        newest = self._kernel.newest_signals(self._project, run_id)  # backwards, because a follower has read the others
        rows = list(takewhile(lambda row: row["seq"] + len(row["entries"]) > after + 1, newest))[::-1]
        log = (each for row in cast(list[Row], decode(encode(rows))) for each in signals_of(row))
        return [signal_of(each) for each in log if each["seq"] > after][:limit]

    async def call_cards(self, waits: Sequence[WaitRow], kind: str) -> dict[tuple[str, str], Any]:
        wanted = {(wait.turn_id, wait.call_id) for wait in waits}
        found = {}
        for turn_id in {wait.turn_id for wait in waits}:
            for card in await self.cards(turn_id):
                if card.kind == kind:
                    key = (turn_id, card.content.get("tool_call_id") or card.content.get("call_id"))
                    found.update({key: card.content} if key in wanted else {})
        return found

    async def run(self, run_id: str) -> RunRow:
        return self._one(await self._runs(lambda row: row.run_id == run_id), "run", run_id)

    async def progress_of_run(self, run_id: str) -> RunProgressRow:
        run = await self.run(run_id)
        return RunProgressRow(run.target, run.status, run.signal_count)

    async def runs(
        self, limit: int, *, status: str | None = None, outcome: str | None = None, target: str | None = None,
        since: datetime | None = None,
    ) -> list[RunRow]:  # fmt: skip
        found = await self._runs(
            lambda row: status in (None, row.status) and outcome in (None, row.outcome) and target in (None, row.target)
            and (since is None or row.created_at >= since)
        )  # fmt: skip
        return found[:limit]

    async def turn(self, turn_id: str) -> TurnRow:
        return self._one(self._turns(lambda row: row.turn_id == turn_id), "turn", turn_id)

    async def turns(
        self, *, run_id: str | None = None, status: str | None = None, target: str | None = None,
        since: datetime | None = None, limit: int = 50,
    ) -> list[TurnRow]:  # fmt: skip
        found = self._turns(
            lambda row: run_id in (None, row.run_id) and status in (None, row.status, row.outcome)
            and target in (None, row.target) and (since is None or row.created_at >= since)
        )  # fmt: skip
        return found[:limit]

    async def active_turns(self, run_id: str) -> list[TurnRow]:
        begun = ("dispatched", "running", "suspended")
        return self._turns(lambda row: row.run_id == run_id and row.status in begun)[::-1]

    async def cards(self, turn_id: str) -> list[CardRow]:
        rows = [row for row in self._table("cards") if row["agent_turn_id"] == turn_id]
        return [_row({**row, "content": self._content(row["content"])}, CardRow) for row in rows]

    async def waits(self, turn_id: str) -> list[WaitRow]:
        return self._waits(lambda row: row.turn_id == turn_id)

    async def leases(self, turn_id: str) -> list[LeaseRow]:
        return [_row(row, LeaseRow) for row in self._table("leases", lambda row: bool(row["agent_turn_id"] == turn_id))]

    async def turns_of_activations(self, activation_ids: Collection[str]) -> list[ActivatedTurn]:
        heads = {head["agent_id"]: head for head in self._table("agent_state_head")}
        rows = sorted(self._table("agent_turns"), key=lambda row: int(row["queue_seq"]))
        found = [{**row, "agent": heads[row["agent_id"]]["agent_name"], "activation_id": signal_id(row["run_id"], row["activation_seq"])}
                 for row in rows]  # fmt: skip
        return [_row(row, ActivatedTurn) for row in found if row["activation_id"] in activation_ids]

    async def recording(self, run_id: str) -> RecordingRow | None:
        for row in self._table("runs", lambda row: bool(row["run_id"] == run_id and row["recording_tags"] is not None)):
            known = {"name": row["recording_name"], "tags": row["recording_tags"], "started_at": row["created_at"]}
            return _row({**row, **known}, RecordingRow)
        return None

    async def ended_turns(self, run_id: str) -> tuple[list[EndedTurnRow | UnreadableTurn], dict[str, Any]]:
        [memory] = [row["memory"] for row in self._table("runs") if row["run_id"] == run_id]
        return [*read_ended_turns(cast(InMemoryKernel, self._kernel), self._project, run_id)], memory

    async def signals_with_trust(self, run_id: str) -> tuple[list[Signal], list[int]]:
        log = [each for row in self._commits(run_id) for each in signals_of(row)]
        return [signal_of(each) for each in log], [each["seq"] for each in log if each["is_untrusted"]]

    async def recorded_commits(self, run_id: str) -> AsyncGenerator[RecordedCommitRow, None]:
        for row in self._commits(run_id):
            if row["recording"] is not None:
                yield RecordedCommitRow(run_id, row["seq"], row["count"], row["agent_turn_id"], row["recording"])

    async def claims_of_run(self, run_id: str) -> list[tuple[str, int, int]]:
        turns = {row["agent_turn_id"] for row in self._table("agent_turns") if row["run_id"] == run_id}
        return [(row["agent_turn_id"], row["turn_epoch"], row["signals_emitted"])
                for row in self._table("leases") if row["agent_turn_id"] in turns]  # fmt: skip

    async def wait(self, turn_id: str, call_id: str) -> WaitRow:
        await self.turn(turn_id)
        return self._one(self._waits(lambda row: (row.turn_id, row.call_id) == (turn_id, call_id)), "call", call_id)

    async def questions(
        self, run_id: str | None = None, limit: int = 50, *, target: str | None = None, since: datetime | None = None
    ) -> list[WaitRow]:
        return (await self._open_waits(("human",), run_id, target, since))[:limit]

    async def open_calls(
        self, tool: str | None = None, limit: int = 50, *, run_id: str | None = None, target: str | None = None,
        since: datetime | None = None,
    ) -> list[WaitRow]:  # fmt: skip
        found = await self._open_waits(("tool", "human"), run_id, target, since)
        return [row for row in found if tool in (None, row.tool)][:limit]

    async def _open_waits(
        self, kinds: Sequence[str], run_id: str | None, target: str | None, since: datetime | None
    ) -> list[WaitRow]:
        runs = {row.run_id for row in await self._runs(lambda row: target in (None, row.target))}
        return self._waits(
            lambda row: row.state == "open" and row.kind in kinds and run_id in (None, row.run_id) and row.run_id in runs
            and (since is None or row.opened_at >= since)
        )  # fmt: skip

    async def _rows(self, kind: type[R], view: str, *_: object, **__: object) -> list[R]:
        raise SetupError(f"a simulation cannot read {view}; read it in a test on a database, with heliograph_app",
                         code="not_simulated")  # fmt: skip

    async def _runs(self, is_wanted: Callable[[RunRow], bool]) -> list[RunRow]:
        rows = [_row({**row, "signal_count": row["signal_seq"]}, RunRow) for row in self._table("runs")]
        return [row for row in reversed(rows) if is_wanted(row)]

    def _turns(self, is_wanted: Callable[[TurnRow], bool]) -> list[TurnRow]:
        heads = {head["agent_id"]: head for head in self._table("agent_state_head")}
        rows = [_turn(row, heads[row["agent_id"]]) for row in self._table("agent_turns")]
        return [row for row in reversed(rows) if is_wanted(row)]

    def _waits(self, is_wanted: Callable[[WaitRow], bool]) -> list[WaitRow]:
        turns = {turn["agent_turn_id"]: turn for turn in self._table("agent_turns")}
        rows = (_wait(row, turns[row["agent_turn_id"]]) for row in self._table("turn_waiting_tools"))
        return [row for row in rows if is_wanted(row)]

    def _commits(self, run_id: str) -> list[Row]:
        """The rows of the log of a run, the oldest first."""
        return cast(list[Row], decode(encode(list(self._kernel.newest_signals(self._project, run_id))[::-1])))

    def _table(self, name: str, is_wanted: Callable[[Row], bool] = lambda _: True) -> Iterable[Row]:
        rows = [row for row in self._kernel.rows(self._project, name) if is_wanted(row)]
        return cast(list[Row], decode(encode(rows)))

    def _content(self, content: Any) -> Any:
        blob = content.get("$blob") if isinstance(content, dict) else None
        return next((row["content"] for row in self._table("blobs") if row["blob_id"] == blob), content)

    @staticmethod
    def _one(rows: Sequence[R], what: str, name: str) -> R:
        if not rows:
            raise NotFound(f"no {what} {safe_repr(name)} in this simulation", code=f"unknown_{what}")
        return rows[0]


def _wait(row: Row, turn: Row) -> WaitRow:
    card_id = result_of(row["agent_turn_id"], row["tool_call_id"]) if row["state"] == "resolved" else None
    return _row({**row, "agent_id": turn["agent_id"], "run_id": turn["run_id"], "result_card_id": card_id}, WaitRow)


def _row(row: Row, kind: type[R]) -> R:
    names = {"agent_turn_id": "turn_id", "tool_call_id": "call_id", "agent_name": "agent"}
    values = {names.get(key, key): _time(value) if key in _TIMES else value for key, value in row.items()}
    return msgspec.convert({key: value for key, value in values.items() if key in kind.__struct_fields__}, kind)


def _turn(row: Row, head: Row) -> TurnRow:
    is_active = row["state"] == "active"
    live = (
        "phase",
        "owner",
        "lease_until",
        "due_at",
        "waiting_tool_count",
        "resume_deadline",
        "stop_requested_at",
        "turn_epoch",
    )
    ids = {
        "cause_id": signal_id(row["run_id"], row["cause_seq"]),
        "activation_id": signal_id(row["run_id"], row["activation_seq"]),
        "deliverable_card_id": end_of(row["agent_turn_id"]) if row["state"] == "done" else None,
    }
    known = {
        **row, **ids, **{key: head[key] if is_active else None for key in live}, "agent": head["agent_name"], "target": head["target"],
        "status": head["status"] if is_active else row["state"],
    }  # fmt: skip
    return _row(known, TurnRow)


def signal_of(row: Row) -> Signal:
    """A signal in a row of `signals_of`, as its readers receive it."""
    source = Source(row["agent"], row["parent_id"]) if row["agent"] or row["parent_id"] else None
    at = row["at"] if isinstance(row["at"], int) else None
    timestamp = datetime.fromisoformat(row["at"]) if at is None else EPOCH + timedelta(microseconds=at)
    return Signal(signal_id(row["run_id"], row["seq"]), row["name"], row["payload"], timestamp, source, row["run_id"], row["seq"],
                  row["agent_turn_id"])  # fmt: skip


def _time(value: Any) -> datetime | None:
    return None if value is None else EPOCH + timedelta(microseconds=value)
