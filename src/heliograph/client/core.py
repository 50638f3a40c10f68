"""The client: one project of a database, from outside."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

from heliograph.client.arguments import check_error, check_id, check_stop, check_text
from heliograph.client.boxes import Boxes
from heliograph.client.budgets import Budget, budget_of
from heliograph.client.human_tasks import ClientApprovals
from heliograph.client.replies import Command, StopResult, command_of, enqueue_refused, report_refused, unknown_turn
from heliograph.codes import USER_INTERRUPT
from heliograph.config import read_settings
from heliograph.definitions.agent import PRIORITIES
from heliograph.definitions.budgets import amounts_of, check_budget
from heliograph.definitions.fields import check_fields
from heliograph.errors import InvalidInput, NotFound, SetupError, StoreUnavailable, safe_repr
from heliograph.ledger.reader import CALLBACK_STATES, CallbackRow, DelegationRow
from heliograph.runtime import Runtime, check_callback, open_runtime
from heliograph.signals.model import Signal
from heliograph.signals.names import check_emit_name
from heliograph.signals.payload import check_payload
from heliograph.signals.values import check_size, to_json
from heliograph.turn.interruptions import check_seconds
from heliograph.world.seam import bell_keys

_LIMIT_MAX = 1000
_SEQ_MAX = 2**63 - 1
_COMMANDS_POLL_SECONDS = 5.0  # the bound on a lost bell


class Client(ClientApprovals):
    """One project of a database, from outside; `async with Client() as client`.

    url, project: before HELIOGRAPH_DATABASE_URL and HELIOGRAPH_PROJECT.
    """

    def __init__(self, url: str | None = None, project: str | None = None):
        self._url = url
        self._project = project
        self._runtime: Runtime | None = None
        self._stack = AsyncExitStack()

    @classmethod
    def on(cls, runtime: Runtime) -> Client:
        """A client of a runtime that is open already, and is closed by whoever opened it."""
        client = cls()
        client._runtime = runtime
        return client

    async def __aenter__(self) -> Client:
        """Raises what `open_runtime` raises."""
        if self._runtime is None:
            settings = read_settings(os.environ)
            settings = replace(settings, database_url=self._url or settings.database_url,
                               project=self._project or settings.project)  # fmt: skip
            self._runtime = await self._stack.enter_async_context(open_runtime(settings))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def boxes(self) -> Boxes:
        """Boxes of cards: what agents read, put together, forked and read from outside."""
        return Boxes(self._open)

    async def report(
        self, turn_id: str, call_id: str, *, token: str | None = None, result: Any = None,
        error: str | Mapping[str, Any] | None = None, actor: str | None = None,
    ) -> str:  # fmt: skip
        """The result of a call, or its error, as text or as an object with code and message.

        Answers `applied`; `early`, kept for a call that the turn is about to make; or what is only acknowledged: a
        `duplicate`, a `late` one after the deadline, one of a turn that is done (`turn_done`). A second call with the
        same result is harmless. Raises NotFound (`unknown_turn`, `unknown_call`), Rejected (`bad_signature`) for a wrong
        token, InvalidInput (`invalid_result`, `payload_too_large`, or what is wrong with the JSON).
        """
        check_id(turn_id, "a turn id", "/turn_id")
        check_id(call_id, "a call id", "/call_id")
        if error is not None and result is not None:
            raise InvalidInput("a report has a result or an error, not both", code="invalid_result", path="/error")
        if isinstance(result, bytes | bytearray | memoryview):
            raise InvalidInput("a result is JSON, and bytes are none", code="not_json", path="/result",
                               hint="upload them, and report where they are")  # fmt: skip
        item = {
            "turn_id": turn_id, "call_id": call_id, "token": check_text(token, "a token", "/token"),
            "status": "success" if error is None else "failed",
            "result": to_json(result, "/result"), "error": None if error is None else check_error(error),
            "actor": check_text(actor, "an actor", "/actor"),
        }  # fmt: skip
        check_size(item["result"], "the result", "/result")
        answer = await self._open.ledger.report(item)
        if answer.outcome not in ("applied", "early", "duplicate", "late", "turn_done"):
            raise report_refused(answer, self._name)
        return answer.outcome

    async def take_commands(
        self, tools: Sequence[str], limit: int = 10, *, visible_seconds: float = 60.0
    ) -> list[Command]:
        """Calls of these tools that nobody has answered, the oldest first. Others do not get them for so long.

        What is not reported by then is handed out again. Raises InvalidInput (`out_of_range`, `wrong_type`).
        """
        if isinstance(tools, str) or not all(isinstance(tool, str) for tool in tools):
            raise InvalidInput(f"tools is a list of names, not {safe_repr(tools)}", code="wrong_type", path="/tools")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _LIMIT_MAX:
            raise InvalidInput(
                f"limit is from 1 to {_LIMIT_MAX}, not {safe_repr(limit)}", code="out_of_range", path="/limit"
            )
        seconds = check_seconds("a command is hidden for", visible_seconds)
        rows = await self._open.ledger.take_commands(tools, limit, seconds)
        return [command_of(row, self) for row in rows]

    async def commands(self, tools: Sequence[str], *, visible_seconds: float = 60.0) -> AsyncIterator[Command]:
        """The calls of these tools, as they come, until the caller has enough."""
        subscription = self._open.world.subscribe(
            bell_keys(self._open.ledger.project, [f"calls:{tool}" for tool in tools])
        )
        try:
            while True:
                subscription.clear()
                taken = await self.take_commands(tools, visible_seconds=visible_seconds)
                for command in taken:
                    yield command
                if taken:
                    subscription.found()
                else:
                    await subscription.wait(_COMMANDS_POLL_SECONDS)
        finally:
            subscription.close()

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Signal]:
        """The signals of a run after position `after` as they are recorded, up to `workflow:end`.

        Who comes back and says the `seq` of the last signal that it had misses none and gets none twice. A database that is
        away is waited for, up to a minute. Raises NotFound (`unknown_run`), StoreUnavailable, InvalidInput.
        """
        check_id(run_id, "a run id", "/run_id")
        if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= _SEQ_MAX:
            raise InvalidInput(
                f"after is the seq of a signal, not {safe_repr(after)}", code="out_of_range", path="/after"
            )
        await self._open.reader.run(run_id)
        async for signal in self._open.follow(run_id, after):
            yield signal

    async def stop_turn(
        self, turn_id: str, *, now: bool = False, grace_seconds: float = 10.0, reason: str = USER_INTERRUPT,
        actor: str | None = None,
    ) -> StopResult:  # fmt: skip
        """End a turn as canceled, and the turns that it waits for.

        A running one is told, and may wind up for `grace_seconds`; with `now`, and where nothing is under way, it ends
        at once. Raises NotFound (`unknown_turn`), InvalidInput.
        """
        check_id(turn_id, "a turn id", "/turn_id")
        [answer] = await self._open.ledger.stop([
            {"turn_id": turn_id, **check_stop(now=now, grace_seconds=grace_seconds, reason=reason, actor=actor)}
        ])  # fmt: skip
        if answer["outcome"] == "unknown_turn":
            raise unknown_turn(turn_id, self._name)
        await self._execute_stops(turn_id=turn_id)  # of its children, which are stopped in transactions of their own
        return StopResult(answer["outcome"], answer.get("turn_outcome"))

    async def stop_run(
        self, run_id: str, *, now: bool = False, grace_seconds: float = 10.0, reason: str = USER_INTERRUPT,
        actor: str | None = None,
    ) -> StopResult:  # fmt: skip
        """End a run as canceled: it wakes no more agents, and each of its turns is stopped as by `stop_turn`.

        Raises NotFound (`unknown_run`), InvalidInput.
        """
        check_id(run_id, "a run id", "/run_id")
        [answer] = await self._open.ledger.stop_runs([
            {"run_id": run_id, **check_stop(now=now, grace_seconds=grace_seconds, reason=reason, actor=actor)}
        ])  # fmt: skip
        if answer["outcome"] == "unknown_run":
            raise NotFound(f"no run {safe_repr(run_id)} in project {self._name}; helio runs shows the newest",
                           code="unknown_run")  # fmt: skip
        await self._execute_stops(run_id=run_id)
        return StopResult(answer["outcome"], answer.get("run_outcome"))

    async def _execute_stops(self, *, turn_id: str | None = None, run_id: str | None = None) -> None:
        """Deliver those that wait in the outbox, and ring for what follows: further stops, and what the run owes (K25).

        The stop itself is committed, and workers do all this too: what fails here does not change its answer.
        """
        reader = self._open.reader
        with suppress(NotFound, StoreUnavailable):
            if turn_id is not None:
                run_id = (await reader.turn(turn_id)).run_id
            assert run_id is not None
            run = await reader.run(run_id)
            with suppress(SetupError):  # a login that may order stops and not carry them out
                await self._open.ledger.sweep("stops")
            names = [f"owed:{run.target}", f"report:{run.target}"]
            self._open.world.ring(bell_keys(self._open.ledger.project, names))

    async def budgets(self, turn_id: str) -> list[Budget]:
        """The budgets that hold for a turn, its own and those of the turns that asked for it. Raises NotFound."""
        reader = self._open.reader
        turn = await reader.turn(check_id(turn_id, "a turn id", "/turn_id"))
        return [budget_of(row) for row in await reader.budgets(turn)]

    async def enqueue(
        self, run_id: str, agent: str, payload: Any = None, *, name: str = "user:message", turn_id: str | None = None,
        priority: str = "normal", max_attempts: int = 5, ttl_seconds: float = 3600.0,
        result_fields: Sequence[Mapping[str, Any]] = (), context_box_id: str | None = None, ui_action: bool = False,
        actor: str | None = None, callback_url: str | None = None, budget: Mapping[str, int | float] | None = None,
    ) -> str:  # fmt: skip
        """Send an agent of a run a message, as signal `name` with `payload`: one message is one turn. Answers its id.

        The same turn_id with the same message is the same turn. result_fields: what the deliverable must have.
        context_box_id: the box that the agent finds in `ctx.context()`, see `boxes`. ui_action: the agent takes it at
        once or not at all. callback_url: told of the turn's end by a signed POST, see `callbacks`. budget: what the turn
        may use, with all that it delegates: tokens, usd, model_calls, tool_calls.
        Raises NotFound (`unknown_agent`), Rejected (`run_ended`, `id_conflict`, `agent_busy`, `queue_full`,
        `unknown_box`, `box_in_use`, `recursion_depth_exceeded`, `egress_refused`), InvalidInput (`payload_too_large` and others).
        """
        check_id(run_id, "a run id", "/run_id")
        check_id(agent, "the name of an agent", "/agent")
        if priority not in PRIORITIES:
            raise InvalidInput(f"priority is one of {', '.join(PRIORITIES)}, not {safe_repr(priority)}", code="invalid_enum",
                               path="/priority")  # fmt: skip
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= 1000:
            raise InvalidInput(f"max_attempts is from 1 to 1000, not {safe_repr(max_attempts)}", code="out_of_range",
                               path="/max_attempts")  # fmt: skip
        allowed = check_budget(budget)
        chosen = self._open.world.new_id("turn") if turn_id is None else check_id(turn_id, "a turn id", "/turn_id")
        [answer] = await self._open.ledger.enqueue([{
            "run_id": run_id, "agent": agent, "turn_id": chosen, "name": check_emit_name(name),
            "payload": check_payload(to_json({} if payload is None else payload, "/payload"), "/payload"),
            "priority": PRIORITIES.index(priority), "max_attempts": max_attempts,
            "ttl_seconds": check_seconds("ttl_seconds is", ttl_seconds),
            "result_fields": check_fields(result_fields) or None,
            "context_box_id": None if context_box_id is None else check_id(context_box_id, "a box id", "/context_box_id"),
            "message_type": "ui_action" if ui_action else "turn", "actor": check_text(actor, "an actor", "/actor"),
            "callback_url": None if callback_url is None else check_callback(callback_url),
            **({} if allowed is None else {"budget": amounts_of(allowed)}),
        }])  # fmt: skip
        if (refusal := enqueue_refused(answer, run_id, agent, self._name)) is not None:
            raise refusal
        return chosen

    async def delegations(self, turn_id: str) -> list[DelegationRow]:
        """How the turns stand that a turn has delegated, in that order; counted in the tables, as of now.

        Raises NotFound (`unknown_turn`), InvalidInput (`invalid_id`).
        """
        await self._open.reader.turn(check_id(turn_id, "a turn id", "/turn_id"))
        return await self._open.reader.delegations(turn_id)

    async def callbacks(self, state: str | None = None, limit: int = 50) -> list[CallbackRow]:
        """What is told by POSTs, the newest first. state: `due`, `delivered` or `dead`, given up after many tries.

        Raises InvalidInput (`invalid_enum`, `out_of_range`).
        """
        if state is not None and state not in CALLBACK_STATES:
            raise InvalidInput(f"the state of a callback is one of {', '.join(CALLBACK_STATES)}, not {safe_repr(state)}",
                               code="invalid_enum", path="/state")  # fmt: skip
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _LIMIT_MAX:
            raise InvalidInput(
                f"limit is from 1 to {_LIMIT_MAX}, not {safe_repr(limit)}", code="out_of_range", path="/limit"
            )
        return await self._open.reader.callbacks(state, limit)

    async def redeliver(self, callback_id: str) -> None:
        """Send a callback again, from its first try on, under the same id. Raises NotFound (`unknown_callback`)."""
        [answer] = await self._open.ledger.redeliver_callbacks([check_id(callback_id, "a callback id", "/callback_id")])
        if answer["outcome"] == "unknown_callback":
            raise NotFound(f"no callback {safe_repr(callback_id)} in project {self._name}; helio callback list shows them",
                           code="unknown_callback")  # fmt: skip

    @property
    def _open(self) -> Runtime:
        if self._runtime is None:
            raise InvalidInput("the client is not open: write async with Client() as client", code="not_open")
        return self._runtime

    @property
    def _name(self) -> str:
        return self._open.settings.project
