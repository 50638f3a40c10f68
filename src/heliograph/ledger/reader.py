"""Read the current state of the ledger: runs, turns, calls, boxes, callbacks and workers."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, KernelRejected, NotFound
from heliograph.ids import split_signal_id
from heliograph.ledger.causes import CausalReader
from heliograph.ledger.decoding import read_rows
from heliograph.ledger.ended_turns import read_ended_turns
from heliograph.ledger.fork_reader import ForkReader
from heliograph.ledger.load_reader import LoadReader
from heliograph.ledger.log_reader import LogReader
from heliograph.ledger.open_turns import UnreadableTurn, read_open_turns
from heliograph.ledger.result_limits import CARDS_PER_PAGE, fitting
from heliograph.ledger.rows import (
    ActivatedTurn,
    BoxRow,
    BudgetRow,
    CallbackRow,
    CardRow,
    DelegationRow,
    EndedTurnRow,
    LeaseRow,
    OpenTurnRow,
    RunProgressRow,
    RunRow,
    RunTraceRow,
    TurnRow,
    WaitRow,
    WorkerRow,
)
from heliograph.ledger.view_reader import Row, where_given
from heliograph.records import Card, EarlierTurn

log = logging.getLogger("heliograph.ledger")

# a condition on the application of a run, before the number of its parameter
_OF_TARGET = "run_id in (select r.run_id from heliograph.run_overview r where r.project_id = $1 and r.target = "
OWN_BOX = "box_"  # box_<turn> is the output box of a turn; it has no row of its own


class Reader(LogReader):
    """Queries on the ledger of one project. Lists have at most 1,000 rows unless `limit` is given. Raises StoreUnavailable."""

    @property
    def causes(self) -> CausalReader:
        """The reader of causes and effects."""
        return CausalReader(self._database, self._project)

    @property
    def forks(self) -> ForkReader:
        """The reader of what forks share."""
        return ForkReader(self._database, self._project)

    @property
    def load(self) -> LoadReader:
        """The reader of the load of the project."""
        return LoadReader(self._database, self._project)

    async def run(self, run_id: str) -> RunRow:
        """Read one run. Raises NotFound (`unknown_run`, `pruned_run`)."""
        return await self._run(RunRow, run_id)

    async def progress_of_run(self, run_id: str) -> RunProgressRow:
        """Read the status of a run, without its state. Raises NotFound (`unknown_run`, `pruned_run`)."""
        return await self._run(RunProgressRow, run_id)

    async def _run(self, kind: type[Row], run_id: str) -> Row:
        rows = await self._rows(kind, "run_overview", "run_id = $2", run_id)
        if not rows:
            await self._check_not_pruned(run_id)
            raise NotFound(f"no run {safe_repr(run_id)} in project {self._project}; helio run list lists the newest",
                           code="unknown_run")  # fmt: skip
        return rows[0]

    async def _check_not_pruned(self, run_id: str) -> None:
        try:
            await self.causes.tree(run_id, 0, 1)
        except HeliographError as error:  # a login may lack the right to read causes
            if error.code == "pruned_run":
                raise

    async def trace_of_run(self, run_id: str) -> dict[str, Any]:
        """Read what the memory of a run keeps of its caller's trace; empty for an unknown run."""
        rows = await self._rows(RunTraceRow, "run_overview", "run_id = $2", run_id)
        return rows[0].trace if rows else {}

    async def runs(
        self, limit: int, *, status: str | None = None, outcome: str | None = None, target: str | None = None,
        since: datetime | None = None,
    ) -> list[RunRow]:  # fmt: skip
        """Read the newest runs, the newest first. target: the name of the application. since: when they started."""
        where, values = where_given(
            {"status = ": status, "outcome = ": outcome, "target = ": target, "created_at >= ": since}
        )
        return await self._rows(
            RunRow, "run_overview", where, *values, order="created_at desc, run_id desc", limit=limit
        )

    async def ids_from(self, kind: str, beginning: str, limit: int) -> list[str]:
        """Read the ids of runs or turns that have a beginning, in their order. kind: run or turn."""
        row: type[RunRow | TurnRow] = RunRow if kind == "run" else TurnRow
        column = f"{kind}_id"
        rows = await self._rows(
            row, f"{kind}_overview", f"starts_with({column}, $2)", beginning, order=column, limit=limit
        )
        return [str(getattr(each, column)) for each in rows]

    async def runs_changed_since(self, since: datetime) -> list[RunRow]:
        """Read the runs that have not ended or that changed after `since`, the last changed first."""
        return await self._rows(
            RunRow, "run_overview", "(updated_at >= $2 or status <> 'ended')", since, order="updated_at desc, run_id"
        )

    async def turns(
        self, *, run_id: str | None = None, status: str | None = None, target: str | None = None,
        since: datetime | None = None, limit: int = 50,
    ) -> list[TurnRow]:  # fmt: skip
        """Read the newest turns. status: queued, dispatched, running, suspended or done, or an outcome. target, since: as for `runs`."""
        where, values = where_given({"target = ": target, "created_at >= ": since}, first=4)
        return await self._rows(
            TurnRow, "turn_overview",
            f"($2::text is null or run_id = $2) and ($3::text is null or $3 in (status, outcome)) and {where}",
            run_id, status, *values, order="created_at desc, queue_seq desc", limit=limit,
        )  # fmt: skip

    async def active_turns(self, run_id: str) -> list[TurnRow]:
        """Read the turns of a run that have begun and not ended, at most one of each agent."""
        where = "run_id = $2 and status in ('dispatched', 'running', 'suspended')"
        return await self._rows(TurnRow, "turn_overview", where, run_id, order="queue_seq")

    async def turn(self, turn_id: str) -> TurnRow:
        """Read one turn. Raises NotFound (`unknown_turn`)."""
        rows = await self._rows(TurnRow, "turn_overview", "turn_id = $2", turn_id)
        if not rows:
            raise NotFound(f"no turn {safe_repr(turn_id)} in project {self._project}; helio turn list lists the newest",
                           code="unknown_turn")  # fmt: skip
        return rows[0]

    async def budgets(self, turn: TurnRow | ActivatedTurn) -> list[BudgetRow]:
        """Read all budgets that apply to a turn: its own, and those of the turns that delegated it."""
        if not turn.budgets:
            return []
        return await self._rows(
            BudgetRow, "budget_overview", "turn_id = any ($2::text[])", turn.budgets, order="turn_id, kind"
        )

    async def cards(self, turn_id: str) -> list[CardRow]:
        """In the order they were written."""
        return await self._rows(CardRow, "card_overview", "turn_id = $2", turn_id, order="position")

    async def box(self, box_id: str) -> BoxRow:
        """Read one box. Raises NotFound (`unknown_box`)."""
        rows = await self._rows(BoxRow, "box_overview", "box_id = $2", box_id)
        if rows:
            return rows[0]
        turn_id = box_id.removeprefix(OWN_BOX)
        turns = await self._rows(TurnRow, "turn_overview", "turn_id = $2", turn_id) if turn_id != box_id else []
        if not turns:
            raise NotFound(f"no box {safe_repr(box_id)} in project {self._project}; helio turn show TURN names those of a turn",
                           code="unknown_box")  # fmt: skip
        return BoxRow(box_id, "output", None, turn_id, turns[0].created_at)

    async def cards_of_box(self, box_id: str) -> list[Card]:
        """Read all cards of a box in order, those of its base boxes first."""
        cards: list[Card] = []
        while page := await self._page_of_box(box_id, cards[-1].position if cards else 0):
            cards += page
        return cards

    async def waits(self, turn_id: str) -> list[WaitRow]:
        """Read the calls of a turn, in the order in which they were opened."""
        return await self._rows(WaitRow, "wait_overview", "turn_id = $2", turn_id, order="position")

    async def delegations(self, turn_id: str) -> list[DelegationRow]:
        """Read the delegations of a turn, in their order."""
        return await self._rows(DelegationRow, "delegation_overview", "turn_id = $2", turn_id, order="position")

    def open_turns(self, target: str, run_id: str | None = None) -> AsyncGenerator[OpenTurnRow | UnreadableTurn, None]:
        """Read the open turns of an application, or of one of its runs; see `read_open_turns`."""
        return read_open_turns(self._database, self._project, target, run_id)

    async def ended_turns(self, run_id: str) -> tuple[list[EndedTurnRow | UnreadableTurn], Any]:
        """Read the ended turns of a run, and its memory; see `read_ended_turns`."""
        return await read_ended_turns(self._database, self._project, run_id)

    async def earlier_turns(self, run_id: str, agent: str, before: int, limit: int = 100) -> list[EarlierTurn]:
        """Read ended turns of an agent that were activated before a position of the log, the newest first."""
        rows = await fitting(
            lambda most: self._database.call("read_conversation", self._project, run_id, agent, before, most), limit
        )
        return msgspec.convert(rows, list[EarlierTurn])

    async def callbacks(
        self, state: str | None = None, limit: int = 50, *, run_id: str | None = None, target: str | None = None,
        since: datetime | None = None,
    ) -> list[CallbackRow]:  # fmt: skip
        """Read the newest callbacks. state: due, delivered or dead. target, since: as for `runs`."""
        where, values = where_given(
            {"state = ": state, "run_id = ": run_id, "created_at >= ": since, _OF_TARGET: target}
        )
        return await self._rows(
            CallbackRow, "callback_overview", where, *values, order="created_at desc, callback_id", limit=limit
        )

    async def open_calls(
        self, tool: str | None = None, limit: int = 50, *, run_id: str | None = None, target: str | None = None,
        since: datetime | None = None,
    ) -> list[WaitRow]:  # fmt: skip
        """Read the open calls of tools and questions to people, the oldest first. target: as for `runs`. since: when they were opened."""
        where, values = where_given({"tool = ": tool, "run_id = ": run_id, "opened_at >= ": since, _OF_TARGET: target})
        return await self._rows(
            WaitRow, "wait_overview", f"state = 'open' and kind in ('tool', 'human') and {where}", *values,
            order="opened_at, position", limit=limit,
        )  # fmt: skip

    async def wait(self, turn_id: str, call_id: str) -> WaitRow:
        """Read one call of a turn. Raises NotFound (`unknown_turn`, `unknown_call`)."""
        rows = await self._rows(WaitRow, "wait_overview", "turn_id = $2 and call_id = $3", turn_id, call_id)
        if not rows:
            turn = await self.turn(turn_id)
            raise NotFound(f"turn {turn.turn_id} has no call {safe_repr(call_id)}; helio turn show {turn.turn_id} shows its "
                           "calls", code="unknown_call")  # fmt: skip
        return rows[0]

    async def questions(
        self, run_id: str | None = None, limit: int = 50, *, target: str | None = None, since: datetime | None = None
    ) -> list[WaitRow]:
        """Read the open questions and approvals, the oldest first. target, since: as for `open_calls`."""
        where, values = where_given({"run_id = ": run_id, "opened_at >= ": since, _OF_TARGET: target})
        return await self._rows(
            WaitRow, "wait_overview", f"state = 'open' and kind = 'human' and {where}", *values,
            order="opened_at, position", limit=limit,
        )  # fmt: skip

    async def call_cards(self, waits: Sequence[WaitRow], kind: str) -> dict[tuple[str, str], Any]:
        """Read the contents of cards of these calls, by turn id and call id. kind: `tool.call` or `tool.result`."""
        cards = await self._rows(
            CardRow, "card_overview",
            "turn_id = any ($2::text[]) and kind = $3"
            " and (turn_id, coalesce(content ->> 'tool_call_id', content ->> 'call_id')) in"
            " (select * from unnest($4::text[], $5::text[]))",
            sorted({w.turn_id for w in waits}), kind, [w.turn_id for w in waits], [w.call_id for w in waits],
            limit=len(waits),
        )  # fmt: skip
        return {(c.turn_id, c.content.get("tool_call_id") or c.content["call_id"]): c.content for c in cards}

    async def leases(self, turn_id: str) -> list[LeaseRow]:
        """Read the leases of a turn, the oldest first."""
        return await self._rows(LeaseRow, "lease_overview", "turn_id = $2", turn_id, order="turn_epoch")

    async def workers(self, label: str | None = None) -> list[WorkerRow]:
        """Read the workers of the project, by label and start. label: only those with this label.

        A row that cannot be decoded is logged, because it must not hide the other workers.
        """
        workers = []
        for row in read_rows(await self._database.call("list_workers", self._project), WorkerRow):
            if isinstance(row, KernelRejected):
                log.warning("%s; delete it from heliograph.workers: a worker that runs writes it again", row.message)
            elif label in (None, row.label):
                workers.append(row)
        return workers

    async def worker(self, name: str) -> WorkerRow | None:
        """Read one worker; None if it is not registered, for example because it ended."""
        return next((row for row in await self.workers() if row.worker == name), None)

    async def turns_of_activations(self, activation_ids: Collection[str]) -> list[ActivatedTurn]:
        """Read the turns that these signals activated, in the order of their queues."""
        places = [split_signal_id(each) or ("", 0) for each in activation_ids]
        return await self._rows(
            ActivatedTurn, "turn_overview", "(run_id, activation_seq) in (select * from unnest($2::text[], $3::bigint[]))",
            [run for run, _ in places], [seq for _, seq in places], order="queue_seq", limit=len(places),
        )  # fmt: skip

    async def _page_of_box(self, box_id: str, after: int) -> list[Card]:
        rows = await fitting(
            lambda most: self._database.call("read_box", self._project, box_id, after, most), CARDS_PER_PAGE
        )
        return msgspec.convert(rows, list[Card])
