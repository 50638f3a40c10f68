"""The client, for processes outside the application: start runs, report results, decide approvals, send messages, stop and follow runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from heliograph.client.arguments import (
    check_id,
    check_limit,
    check_stop,
)
from heliograph.client.boxes import Boxes
from heliograph.client.budgets import Budget, budget_of
from heliograph.client.human_tasks import Approvals, HumanTask
from heliograph.client.message_client import MessageClient
from heliograph.client.replies import Command, StopResult, command_of
from heliograph.client.reports import report_result
from heliograph.client.signal_client import Application, TypedApplication
from heliograph.client.stops import stop_run, stop_turn
from heliograph.codes import USER_INTERRUPT
from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.definitions.pools import check_pool
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.ledger.rows import CALLBACK_STATES, CallbackRow, DelegationRow, WorkerRow
from heliograph.recording.options import RecordingOptions
from heliograph.turn.interruptions import check_seconds
from heliograph.type_variables import AppState
from heliograph.world.seam import bell_keys

if TYPE_CHECKING:
    from heliograph.client.session import Session
    from heliograph.run_result import EndedRun

_COMMANDS_POLL_SECONDS = 5.0  # the delay of a command whose ring was lost


class Client(MessageClient):
    """Access to one project of a database from any process: `async with Client() as client`.

    url, project: override HELIOGRAPH_DATABASE_URL and HELIOGRAPH_PROJECT. telemetry: overrides its variables; it opens with the first
    message.
    """

    @property
    def boxes(self) -> Boxes:
        """Boxes of cards: the context that agents read and the output that they write."""
        return Boxes(self._open)

    async def start(
        self, app: Application, state: Any = None, *, run_id: str | None = None, callback_url: str | None = None,
        record: RecordingOptions | None = None,
    ) -> str:  # fmt: skip
        """Start a run of an application without waiting for its end; return its id. Workers in any process run its turns.

        run_id: names the run. A second call with the same id and the same state, or without a state, returns the same run.
        callback_url, record: as of `Heliograph.run`.
        Raises InvalidInput for an invalid state, Conflict (`id_conflict`) for a run id that exists with another state, Rejected
        (`egress_rejected`) for a malformed `callback_url`.
        """
        name, _ = await self._open.start(app.workflow, state, run_id, callback_url, record)
        return name

    @overload
    async def result(self, run_id: str, app: None = None) -> EndedRun[dict[str, Any]]: ...

    @overload
    async def result(self, run_id: str, app: TypedApplication[AppState]) -> EndedRun[AppState]: ...

    async def result(self, run_id: str, app: Application | None = None) -> EndedRun[Any]:
        """Wait for the end of a run, and return its outcome and its final state. Further calls return the same.

        Any process may wait, before or after the end. A run that failed or was stopped is returned, not raised: see `outcome`. There is
        no time limit, also while the run waits for a person or no worker runs: `asyncio.timeout` ends the wait, and the run continues.
        app: the application of the run; the state then has its type, and is a JSON object otherwise.
        Raises NotFound (`unknown_run`, `pruned_run`), Conflict (`id_conflict`) for a run of another application, InvalidInput for a
        malformed id, and for a state that does not match the type of `app`; KernelRejected (`UNDECODABLE`) for a damaged log, StoreUnavailable if the database remains unreachable for a minute.
        """
        return await self._open.result(check_id(run_id, "a run id", "/run_id"), None if app is None else app.workflow)

    async def session(
        self, app: Application, session_id: str | None = None, *, agent: str | None = None, state: Any = None
    ) -> Session:
        """Open a conversation, or continue it, on the database of this client. Workers in any process answer.

        The arguments and the errors are those of `Heliograph.session`. The session object needs no closing: it works until the client closes.
        """
        from heliograph.client.session import session_on

        return await session_on(self._open, app.workflow, session_id, agent=agent, state=state)

    async def report(
        self, turn_id: str, call_id: str, *, token: str | None = None, result: Any = None,
        error: str | Mapping[str, Any] | None = None, actor: str | None = None,
    ) -> str:  # fmt: skip
        """Report the result of a call, or its error as text or as an object with code and message.

        Returns `applied`, or `early` if the kernel keeps the result for a call that the turn has not recorded yet. Reports
        without effect return `duplicate`, `late` (after the deadline) or `turn_done`, so a repeated report is harmless.
        Raises NotFound (`unknown_turn`, `unknown_call`), Rejected (`bad_signature`) for a wrong token, and InvalidInput
        (`invalid_result`, `payload_too_large`, or a JSON problem).
        """
        return await report_result(self._open, turn_id, call_id, token=token, result=result, error=error, actor=actor)

    async def take_commands(
        self, tools: Sequence[str], limit: int = 10, *, visible_seconds: float = 60.0, pool: str = DEFAULT_POOL
    ) -> list[Command]:
        """Take open calls of these tools, and hide them from other takers for `visible_seconds`.

        The calls with the highest priority come first, the oldest of them first. A call without a result after that time can be
        taken again. pool: take the calls that a route has sent to this pool. Raises InvalidInput (`out_of_range`, `wrong_type`).
        """
        if isinstance(tools, str) or not all(isinstance(tool, str) for tool in tools):
            raise InvalidInput(
                f"tools must be a list of names, not {safe_repr(tools)}", code="wrong_type", path="/tools"
            )
        check_limit(limit)
        seconds = check_seconds("visible_seconds", visible_seconds)
        check_pool("pool", pool, "/pool")
        wanted = list(tools) if pool == DEFAULT_POOL else [{"tool": tool, "pool": pool} for tool in tools]
        rows = await self._open.ledger.take_commands(wanted, limit, seconds)
        return [command_of(row, self) for row in rows]

    async def commands(
        self, tools: Sequence[str], *, visible_seconds: float = 60.0, pool: str = DEFAULT_POOL
    ) -> AsyncIterator[Command]:
        """Iterate over the calls of these tools as turns make them, until the caller stops. pool: as of `take_commands`."""
        subscription = self._open.world.subscribe(
            bell_keys(self._open.ledger.project, [f"calls:{tool}" for tool in tools])
        )
        try:
            while True:
                subscription.clear()
                taken = await self.take_commands(tools, visible_seconds=visible_seconds, pool=pool)
                for command in taken:
                    yield command
                if taken:
                    subscription.found()
                else:
                    await subscription.wait(_COMMANDS_POLL_SECONDS)
        finally:
            subscription.close()

    async def stop_turn(
        self, turn_id: str, *, now: bool = False, grace_seconds: float = 10.0, reason: str = USER_INTERRUPT,
        actor: str | None = None,
    ) -> StopResult:  # fmt: skip
        """End a turn as canceled, and the turns that it waits for.

        A running turn has `grace_seconds` to finish, and one that waits has them for its agent's terminate hook. With `now`, or if
        neither is the case, it ends at once. A second call returns `already_done`.
        Raises NotFound (`unknown_turn`), InvalidInput.
        """
        check_id(turn_id, "a turn id", "/turn_id")
        request = check_stop(now=now, grace_seconds=grace_seconds, reason=reason, actor=actor)
        return await stop_turn(self._open, turn_id, request)

    async def stop_run(
        self, run_id: str, *, now: bool = False, grace_seconds: float = 10.0, reason: str = USER_INTERRUPT,
        actor: str | None = None,
    ) -> StopResult:  # fmt: skip
        """End a run as canceled: it activates no more agents, and each of its turns is stopped as by `stop_turn`.

        Raises NotFound (`unknown_run`), InvalidInput.
        """
        check_id(run_id, "a run id", "/run_id")
        request = check_stop(now=now, grace_seconds=grace_seconds, reason=reason, actor=actor)
        return await stop_run(self._open, run_id, request)

    async def approvals(self, run_id: str | None = None, *, limit: int = 50) -> list[HumanTask]:
        """List open approvals and questions, the oldest first, of all runs or of one. Raises InvalidInput."""
        return await self._approvals.list(run_id, limit)

    async def grant(
        self, turn_id: str, call_id: str, *, arguments: Mapping[str, Any] | None = None, by: str | None = None
    ) -> str:
        """Grant an approval, for the requested arguments or, where editing is allowed, for other `arguments`.

        by: the name of the person who decides; it is recorded, not verified. Returns `applied`, or `duplicate` if the same person
        made the same decision before. Raises NotFound (`unknown_turn`, `unknown_call`), Rejected
        (`already_decided`, `too_late`, `turn_done`, `no_edits`), InvalidInput (`wrong_type`, `invalid_arguments`).
        """
        return await self._approvals.grant(turn_id, call_id, arguments, by)

    async def deny(self, turn_id: str, call_id: str, *, reason: str | None = None, by: str | None = None) -> str:
        """Deny an approval, or decline to answer a question. Returns and raises as `grant`."""
        return await self._approvals.deny(turn_id, call_id, reason, by)

    async def answer(self, turn_id: str, call_id: str, value: Any, *, by: str | None = None) -> str:
        """Answer a question, or give the result of a call in doubt.

        Returns and raises as `grant`, and InvalidInput (`invalid_answer`) if the value does not match the form.
        """
        return await self._approvals.answer(turn_id, call_id, value, by)

    async def budgets(self, turn_id: str) -> list[Budget]:
        """List the budgets that limit a turn: its own, and those of the turns that delegated it. Raises NotFound (`unknown_turn`)."""
        reader = self._open.reader
        turn = await reader.turn(check_id(turn_id, "a turn id", "/turn_id"))
        return [budget_of(row) for row in await reader.budgets(turn)]

    async def delegations(self, turn_id: str) -> list[DelegationRow]:
        """List the turns to which a turn has delegated tasks, in order, with their current status.

        Raises NotFound (`unknown_turn`), InvalidInput (`invalid_id`).
        """
        await self._open.reader.turn(check_id(turn_id, "a turn id", "/turn_id"))
        return await self._open.reader.delegations(turn_id)

    async def callbacks(self, state: str | None = None, limit: int = 50) -> list[CallbackRow]:
        """List callbacks, the newest first. state: `due`, `delivered`, or `dead` after too many failed attempts.

        Raises InvalidInput (`invalid_enum`, `out_of_range`).
        """
        if state is not None and state not in CALLBACK_STATES:
            raise InvalidInput(f"the state of a callback must be one of {', '.join(CALLBACK_STATES)}, not {safe_repr(state)}",
                               code="invalid_enum", path="/state")  # fmt: skip
        check_limit(limit)
        return await self._open.reader.callbacks(state, limit)

    async def workers(self) -> list[WorkerRow]:
        """List the workers of the project with their health, by label and start."""
        return await self._open.reader.workers()

    async def redeliver(self, callback_id: str) -> None:
        """Send a callback again under the same id, starting with its first attempt. Raises NotFound (`unknown_callback`)."""
        [result] = await self._open.ledger.callbacks.redeliver([check_id(callback_id, "a callback id", "/callback_id")])
        if result["outcome"] == "unknown_callback":
            raise NotFound(f"no callback {safe_repr(callback_id)} in project {self._name}; helio callback list lists them",
                           code="unknown_callback")  # fmt: skip

    @property
    def _approvals(self) -> Approvals:
        return Approvals(self._open)
