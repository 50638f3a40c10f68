"""Call the kernel: one method for each of its functions, with typed results.

Concurrent calls of the same function are combined (`coalescer.py`). A call whose reply was lost is repeated if a second call has
no effect (docs/internals/kernel.md, "Lost replies"). `claim` and `take_commands` are not repeated: the turns or commands of a lost
reply become available again when their lease or their hidden time ends. The result of a second call is `duplicate` for a report or a
recorded call, `already_done` for a stop, `fresh` for a call begun under the same epoch, and `stale` for every call that released the
turn; the worker then stops driving it, as it would have after the first result.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from heliograph.errors import HeliographError, KernelRejected
from heliograph.ledger.bells import Bells, read_bells, without_claimed
from heliograph.ledger.callback_queue import CallbackQueue
from heliograph.ledger.claim_offer import ClaimOffer, NextClaims
from heliograph.ledger.coalescer import Coalescer
from heliograph.ledger.decoding import read_rows, rows_of
from heliograph.ledger.repeated_call import PATIENT_RETRIES, RETRIES, call_repeated
from heliograph.ledger.result_limits import CARDS_PER_PAGE, fitting
from heliograph.ledger.undecodable import checked, failed_call, read_commands, read_events, read_pending
from heliograph.outbox_records import Event
from heliograph.records import (
    BeginResult,
    Card,
    Claimed,
    EarlierTurn,
    PendingRun,
    Reported,
    RunStop,
    SweepResult,
    TurnStop,
    WriteResult,
)
from heliograph.requests import WITH_CLAIM
from heliograph.world.seam import Transaction, World, bell_keys

log = logging.getLogger("heliograph.ledger")


class Ledger:
    """The ledger of one project. Every call of the kernel goes through `world`.

    After a commit, the methods ring the bells of agents that the call woke. All raise StoreUnavailable if the database remains
    unreachable, and KernelRejected for arguments that the kernel rejects. The dicts of arguments and results are described in the
    headers of the SQL functions.
    """

    def __init__(self, world: World, project: str):
        self.world = world
        self.project = project
        self.next_claims: NextClaims | None = None  # of the worker whose turns run through this ledger, while it runs
        self.callbacks = CallbackQueue(world, project)
        self._starts = Coalescer(world, "start_runs", self._start)
        self._appends = Coalescer(world, "append", self._append)
        self._endings = Coalescer(world, "finish", self._finish)
        self._suspensions = Coalescer(world, "suspend", self._suspend)
        self._beginnings = Coalescer(world, "begin_call", self._begin)
        self._records = Coalescer(world, "record_call", self._record)
        self._reports = Coalescer(world, "report", self._report)

    async def start_run(self, run: dict[str, Any]) -> dict[str, Any]:
        """Start a run (31_start.sql); return its answer."""
        return await self._starts.call(run)

    async def enqueue(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Add messages to the inboxes of agents (32_enqueue.sql)."""
        return await self._write("enqueue", list(messages))

    async def claim(
        self, targets: Sequence[dict[str, Any]], worker: str, limit: int, lease_seconds: float
    ) -> list[Claimed]:
        """Claim at most `limit` turns for a worker (40_claim.sql). A turn that cannot be decoded fails instead.

        targets: {target, pool, agents, run_id}. target: the name of an application. pool: other than the default one. agents,
        run_id: to claim only some turns.
        """
        return await self._claimed(
            await self.world.call("claim", self.project, list(targets), worker, limit, lease_seconds)
        )

    async def _claimed(self, rows: list[dict[str, Any]]) -> list[Claimed]:
        claimed: list[Claimed] = []
        for row, turn in zip(rows, read_rows(rows, Claimed), strict=True):
            if isinstance(turn, Claimed):
                claimed.append(turn)
            else:
                await self._fail_undecodable(row, turn)
        return claimed

    async def renew(self, items: Sequence[dict[str, Any]], lease_seconds: float) -> list[WriteResult]:
        """Renew the leases of turns (40_claim.sql); `stale` for a turn that this worker no longer owns."""
        rows = await self._retried("renew", list(items), lease_seconds)
        return msgspec.convert(rows, list[WriteResult])

    async def release(self, items: Sequence[dict[str, Any]]) -> list[WriteResult]:
        """Release turns unchanged, so that another worker can continue them at once."""
        return msgspec.convert(await self._write("release", list(items)), list[WriteResult])

    async def fail_turn(self, turn: dict[str, Any], code: str, message: str) -> None:
        """End a turn of this worker as failed. turn: {agent_id, turn_id, epoch, run_id, target}."""
        owned = {key: turn[key] for key in ("agent_id", "turn_id", "epoch")}
        await self._write("release", [{**owned, "failure": {"code": code, "message": message}}])
        self._ring_end(turn)

    async def fail_unclaimable(self, targets: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """End the next turn as failed if no worker can claim it (47_unclaimable.sql). Return {turn_id, message}, or None."""
        failed: dict[str, Any] = await self._retried("fail_unclaimable", list(targets))
        if not failed:
            return None
        self._ring(read_bells([failed]))
        self._ring_end(failed)
        return failed

    async def append(self, item: dict[str, Any]) -> WriteResult:
        """Append signals of a running turn to the log (41_append.sql)."""
        return await self._appends.call(item)

    async def begin_call(self, item: dict[str, Any]) -> BeginResult:
        """Record a call before its effect starts."""
        return await self._beginnings.call(item)

    async def record_call(self, item: dict[str, Any]) -> WriteResult:
        """Record the result of a call that begin_call recorded."""
        return await self._records.call(item)

    async def record_call_in(self, transaction: Transaction, item: dict[str, Any]) -> WriteResult:
        """Record the result of a call within the effect's own transaction, and commit both."""
        [row] = await transaction.commit("record_call", self.project, [item])
        self._ring(read_bells([row]))
        return msgspec.convert(row, WriteResult)

    async def suspend(self, item: dict[str, Any]) -> WriteResult:
        """Suspend a turn until its calls have results."""
        return await self._suspensions.call(item)

    async def defer(self, item: dict[str, Any]) -> WriteResult:
        """Defer a turn until a later time."""
        [row] = await self._write("defer", [item], PATIENT_RETRIES)
        return msgspec.convert(row, WriteResult)

    async def finish(self, item: dict[str, Any]) -> WriteResult:
        """End a turn with its outcome and its deliverable."""
        return await self._endings.call(item)

    def may_follow(self, turn_id: str) -> bool:
        """Whether the next ending would be sent in one call with the ending of this turn, which waits to be sent."""
        return self._endings.is_joined_by_next(lambda item: item["turn_id"] == turn_id)

    async def report(self, item: dict[str, Any]) -> Reported:
        """Report the result of a call that ran outside the worker (61_report.sql)."""
        return await self._reports.call(item)

    async def take_commands(
        self, tools: Sequence[str | dict[str, str]], limit: int, visible_seconds: float
    ) -> list[dict[str, Any]]:
        """Take commands of external tools, and hide them from other takers for `visible_seconds`.

        tools: names, or {tool, pool} for the commands of another pool than the default one.

        The call of a command that cannot be decoded fails, because no tool receives incomplete arguments.
        """
        rows = await fitting(
            lambda most: self.world.call("take_commands", self.project, list(tools), most, visible_seconds), limit
        )
        commands, undecodable = read_commands(rows)
        await self._fail_calls(undecodable)
        return commands

    async def command_pools(self, tool: str) -> list[str]:
        """List the pools that have commands of a tool to take."""
        pools: list[str] = await self.world.call("command_pools", self.project, tool)
        return pools

    async def take_halts(self, busy: Collection[str], limit: int, again_seconds: float) -> list[dict[str, Any]]:
        """Take the halts that are due, except those for the gateways in `busy`.

        Each is due again after `again_seconds`, until `mark_published` marks it as sent or abandoned.
        """
        rows: list[dict[str, Any]] = await self.world.call("take_halts", self.project, list(busy), limit, again_seconds)
        return rows

    async def stop(self, items: Sequence[dict[str, Any]]) -> list[TurnStop]:
        """Stop turns, and ring the workers that own one or have just lost it."""
        stops = msgspec.convert(await self._write("stop", list(items)), list[TurnStop])
        self._ring_owners(stop.owner for stop in stops if stop.owner is not None)
        return stops

    async def stop_runs(self, items: Sequence[dict[str, Any]]) -> list[RunStop]:
        """Stop runs; the next sweep stops their turns."""
        return msgspec.convert(await self._write("stop_runs", list(items)), list[RunStop])

    async def react(self, item: dict[str, Any]) -> dict[str, Any]:
        """Commit a reaction; return its outcome: 'ok', 'conflict', or 'rejected' with code and message."""
        [row] = await self._write("react", [item])
        return row

    async def sweep(self, name: str, *more: object, limit: int = 100) -> SweepResult:
        """Run the kernel function `sweep_<name>` once, and ring the owners of stopped turns."""
        row: dict[str, Any] = await self.world.call(f"sweep_{name}", self.project, limit, *more)
        self._ring(read_bells([row]))
        result = msgspec.convert(row, SweepResult)
        self._ring_owners(result.owners)
        return result

    async def sweep_bells(self, older_seconds: float) -> None:
        """Ring again for turns that have been ready for longer than `older_seconds`."""
        self._ring(Bells(tuple(await self.world.call("sweep_bells", self.project, older_seconds))))

    async def sweep_pending_reactions(self, targets: Sequence[str], limit: int = 20) -> list[PendingRun]:
        """Read runs with signals that no reaction has processed yet."""
        return read_pending(await self.world.call("sweep_pending_reactions", self.project, list(targets), limit))

    async def declare_wire(self, wire: str) -> None:
        """Declare a wire of the project: from now on, workers without it do not publish the outbox."""
        await self.world.call("declare_wire", self.project, wire)

    async def write_boxes(self, function: str, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Call put_boxes, fork_boxes or replace_boxes (82_boxes.sql)."""
        return await self._write(function, list(items))

    async def pages_of_box(self, box_id: str) -> AsyncIterator[list[Card]]:
        """Yield the cards of a box in order, page by page, those of its base boxes first; an unknown box has none.

        Raises KernelRejected (UNDECODABLE) for a card that cannot be decoded.
        """
        after = 0
        while page := await self._page(box_id, after):
            yield page
            after = page[-1].position

    async def earlier_turns(self, run_id: str, agent: str, before: int, limit: int) -> list[EarlierTurn]:
        """Read ended turns of an agent that were activated before a position, the newest first (89_conversations.sql).

        Raises KernelRejected for a row that cannot be decoded.
        """
        rows = await fitting(lambda most: self._retried("read_conversation", run_id, agent, before, most), limit)
        return msgspec.convert(checked(rows), list[EarlierTurn])

    async def remember(self, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Store memories (86_memories.sql)."""
        return await self._write("remember", list(items), PATIENT_RETRIES)

    async def recall(self, query: str, agent: str | None, limit: int) -> list[dict[str, Any]]:
        """Search memories (86_memories.sql)."""
        rows: list[dict[str, Any]] = await self._retried("recall", query, agent, limit, retries=PATIENT_RETRIES)
        return rows

    async def beat(self, worker: dict[str, Any]) -> None:
        """Record a heartbeat in all projects of a worker; the first one registers it (77_workers.sql). Not repeated."""
        await self.world.call("beat", self.project, [worker])

    async def deregister(self, worker: str, projects: Sequence[str]) -> None:
        """Remove a worker from the list of workers of these projects."""
        await self.world.call("deregister", self.project, [{"worker": worker, "projects": list(projects)}])

    async def prune(self, before: datetime, limit: int) -> dict[str, Any]:
        """Delete a batch of the rows that ended before `before` (75_prune.sql). Requires operator rights."""
        counts: dict[str, Any] = await self.world.call("prune", self.project, before, limit)
        return counts

    async def read_outbox(self, limit: int = 100) -> list[Event]:
        """Read events to publish. A command that cannot be decoded is omitted, and its call fails."""
        rows = await fitting(lambda most: self.world.call("read_outbox", self.project, most), limit)
        events, left_out = read_events([{**row, "project": self.project} for row in rows])
        if left_out:
            await self.mark_published([row["key"] for row in left_out])
            await self._fail_calls(left_out)
        return events

    async def mark_published(self, keys: Sequence[str]) -> None:
        """Record that events are published; a second call does nothing."""
        await self.world.call("mark_published", self.project, list(keys))

    async def _page(self, box_id: str, after: int) -> list[Card]:
        rows = await fitting(
            lambda most: self._retried("read_box", box_id, after, most, retries=PATIENT_RETRIES), CARDS_PER_PAGE
        )
        return msgspec.convert(checked(rows), list[Card])

    async def _start(self, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        by_run: dict[str, list[dict[str, Any]]] = {}
        for row in await self._write_and_claim(
            "start_runs", runs
        ):  # ordered by run id, the order of the kernel's locks
            by_run.setdefault(row["run_id"], []).append(row)
        return [by_run[run["run_id"]].pop(0) for run in runs]

    async def _append(self, items: list[dict[str, Any]]) -> list[WriteResult | KernelRejected]:
        return read_rows(await self._retried("append", items, retries=PATIENT_RETRIES), WriteResult)

    async def _finish(self, items: list[dict[str, Any]]) -> list[WriteResult | KernelRejected]:
        return read_rows(await self._write_and_claim("finish", items, PATIENT_RETRIES), WriteResult)

    async def _suspend(self, items: list[dict[str, Any]]) -> list[WriteResult | KernelRejected]:
        return read_rows(await self._write("suspend", items, PATIENT_RETRIES), WriteResult)

    async def _begin(self, items: list[dict[str, Any]]) -> list[BeginResult | KernelRejected]:
        return read_rows(await self._retried("begin_call", items, retries=PATIENT_RETRIES), BeginResult)

    async def _record(self, items: list[dict[str, Any]]) -> list[WriteResult | KernelRejected]:
        return read_rows(await self._write("record_call", items, PATIENT_RETRIES), WriteResult)

    async def _report(self, items: list[dict[str, Any]]) -> list[Reported | KernelRejected]:
        return read_rows(await self._write_and_claim("report", items), Reported)

    async def _write_and_claim(
        self, function: str, items: list[dict[str, Any]], retries: int = RETRIES
    ) -> list[dict[str, Any]]:
        """Write, and claim in the same commit if a worker of this process offers free slots to these items."""
        if (claims := self.next_claims) is not None:
            async with claims.offer(function, items) as offer:
                if offer is not None:
                    with suppress(HeliographError):  # then nothing has been written, or the reply was lost
                        return await self._claim_with(function, items, claims, offer)
        return await self._write(function, items, retries)

    async def _claim_with(
        self, function: str, items: list[dict[str, Any]], claims: NextClaims, offer: ClaimOffer
    ) -> list[dict[str, Any]]:
        both, answers = WITH_CLAIM[function]
        answer = await self.world.call(both, self.project, items, *offer)
        rows, claimed = rows_of(answer, answers), rows_of(answer, "claimed")
        claims.start(await self._claimed(claimed), offer.limit)
        bells = read_bells(rows)
        self._ring(bells if self.world.is_observed else without_claimed(bells, claimed))  # observers get all wakeups
        return rows

    async def _write(self, function: str, items: list[dict[str, Any]], retries: int = RETRIES) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = await self._retried(function, items, retries=retries)
        self._ring(read_bells(rows))
        return rows

    async def _retried(self, function: str, *args: object, retries: int = RETRIES) -> Any:
        return await call_repeated(self.world, function, self.project, *args, retries=retries)

    async def _fail_undecodable(self, row: dict[str, Any], error: KernelRejected) -> None:
        log.error("%s fails: %s", row["turn_id"], error.message)
        try:
            await self.fail_turn(row, error.code, error.message)
        except HeliographError as rejected:  # the turn is claimed again after the end of its lease
            log.warning(
                "%s could not be ended and waits for the end of its lease: %s", row["turn_id"], rejected.message
            )

    async def _fail_calls(self, rows: Iterable[dict[str, Any]]) -> None:
        """Report the calls of commands as failed. A call that this login may not report remains open until its timeout."""
        for row in rows:
            item = failed_call(row)
            log.error("call %s of %s fails: %s", row["call_id"], row["turn_id"], item["error"]["message"])
            try:
                reported = await self.report(item)
            except HeliographError as error:
                log.warning("call %s of %s waits for its timeout: %s", row["call_id"], row["turn_id"], error.message)
                continue
            if reported.outcome == "bad_token":
                log.warning(
                    "call %s of %s waits for its timeout: its token cannot be read", row["call_id"], row["turn_id"]
                )

    def _ring(self, bells: Bells) -> None:
        # after the commit, because NOTIFY inside a transaction keeps a lock until the flush (docs/internals/kernel.md)
        if bells.targets:
            keys = bell_keys(self.project, [f"work:{target}" for target in bells.targets])
            self.world.ring(keys, bells.woken)

    def _ring_end(self, turn: dict[str, Any]) -> None:
        """Ring for a turn that the kernel ended: for its run's log, the reaction to its end, and the call of its parent."""
        self.world.ring(
            bell_keys(self.project, [f"log:{turn['run_id']}", f"reaction:{turn['target']}", f"report:{turn['target']}"])
        )

    def _ring_owners(self, owners: Iterable[str]) -> None:
        """Ring workers that have to end a turn, or have just lost one."""
        if names := sorted({f"stop:{owner}" for owner in owners}):
            self.world.ring(bell_keys(self.project, names))
