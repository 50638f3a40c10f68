"""Heliograph for processes outside the application: report results, take work for tools, send messages, stop turns."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NoReturn

from heliograph.config import read_settings
from heliograph.errors import InvalidInput, NotFound, Refused, shown
from heliograph.reactive.agent import PRIORITIES
from heliograph.reactive.fields import check_fields
from heliograph.reactive.state import check_size, to_json
from heliograph.records import Reported
from heliograph.runtime import Runtime, open_runtime
from heliograph.signals.names import check_emit_name
from heliograph.signals.payload import check_json, check_payload
from heliograph.turn.interruptions import check_seconds
from heliograph.types import Json

USER_INTERRUPT = "user_interrupt"
ID_LENGTH_MAX = 200
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_LIMIT_MAX = 1000
_REASON_MAX = 250  # at most four bytes each
_COMMANDS_POLL_SECONDS = 5.0  # the bound on a lost bell


@dataclass(frozen=True, slots=True)
class Command:
    """A call that waits for somebody to carry it out. The same one may come twice: `call_id` tells (K18).

    deadline: when it counts as timed out; None for never. delivery: how often it was handed out, from 1.
    """

    turn_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    deadline: datetime | None
    delivery: int
    token: str | None = field(repr=False)
    client: Client = field(repr=False, compare=False)

    async def report(self, *, result: Any = None, error: str | Mapping[str, Any] | None = None) -> str:
        """See `Client.report`."""
        return await self.client.report(self.turn_id, self.call_id, token=self.token, result=result, error=error)


@dataclass(frozen=True, slots=True)
class StopResult:
    """outcome: `stopped`, `stopping` (its owner winds it up) or `already_done`; then `ended_as` says how it ended."""

    outcome: str
    ended_as: str | None = None


class Client:
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

    async def report(
        self, turn_id: str, call_id: str, *, token: str | None = None, result: Any = None,
        error: str | Mapping[str, Any] | None = None, actor: str | None = None,
    ) -> str:  # fmt: skip
        """The result of a call, or its error, as text or as an object with code and message.

        Answers `applied`; `early`, kept for a call that the turn is about to make; or what is only acknowledged: a
        `duplicate`, a `late` one after the deadline, one of a turn that is done (`turn_done`). A second call with the
        same result is harmless. Raises NotFound (`unknown_turn`, `unknown_call`), Refused (`bad_signature`) for a wrong
        token, InvalidInput (`invalid_result`, `payload_too_large`, or what is wrong with the JSON).
        """
        _check_id(turn_id, "a turn id", "/turn_id")
        _check_id(call_id, "a call id", "/call_id")
        if error is not None and result is not None:
            raise InvalidInput("a report has a result or an error, not both", code="invalid_result", path="/error")
        item = {
            "turn_id": turn_id, "call_id": call_id, "token": _text(token, "a token", "/token"),
            "status": "success" if error is None else "failed",
            "result": to_json(result, "/result"), "error": None if error is None else _error(error),
            "actor": _text(actor, "an actor", "/actor"),
        }  # fmt: skip
        check_size(item["result"], "the result", "/result")
        answer = await self._open.ledger.report(item)
        if answer.outcome not in ("applied", "early", "duplicate", "late", "turn_done"):
            self._refuse(answer)
        return answer.outcome

    async def take_commands(
        self, tools: Sequence[str], limit: int = 10, *, visible_seconds: float = 60.0
    ) -> list[Command]:
        """Calls of these tools that nobody has answered, the oldest first. Others do not get them for so long.

        What is not reported by then is handed out again. Raises InvalidInput (`out_of_range`, `wrong_type`).
        """
        if isinstance(tools, str) or not all(isinstance(tool, str) for tool in tools):
            raise InvalidInput(f"tools is a list of names, not {shown(tools)}", code="wrong_type", path="/tools")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _LIMIT_MAX:
            raise InvalidInput(
                f"limit is from 1 to {_LIMIT_MAX}, not {shown(limit)}", code="out_of_range", path="/limit"
            )
        seconds = check_seconds("a command is hidden for", visible_seconds)
        rows = await self._open.ledger.take_commands(tools, limit, seconds)
        return [self._command(row) for row in rows]

    async def commands(self, tools: Sequence[str], *, visible_seconds: float = 60.0) -> AsyncIterator[Command]:
        """The calls of these tools, as they come, until the caller has enough."""
        ear = self._open.world.hear([f"calls:{tool}" for tool in tools])
        try:
            while True:
                ear.clear()
                taken = await self.take_commands(tools, visible_seconds=visible_seconds)
                for command in taken:
                    yield command
                if not taken:
                    await ear.wait(_COMMANDS_POLL_SECONDS)
        finally:
            ear.close()

    async def stop_turn(
        self, turn_id: str, *, now: bool = False, grace_seconds: float = 10.0, reason: str = USER_INTERRUPT,
        actor: str | None = None,
    ) -> StopResult:  # fmt: skip
        """End a turn as canceled, and the turns that it waits for.

        A running one is told, and may wind up for `grace_seconds`; with `now`, and where nothing is under way, it ends
        at once. Raises NotFound (`unknown_turn`), InvalidInput.
        """
        _check_id(turn_id, "a turn id", "/turn_id")
        [answer] = await self._open.ledger.stop([
            {"turn_id": turn_id, **_stop(now=now, grace_seconds=grace_seconds, reason=reason, actor=actor)}
        ])  # fmt: skip
        if answer["outcome"] == "unknown_turn":
            raise self._unknown_turn(turn_id)
        await self._open.ledger.sweep("stops")  # its children, which are stopped in transactions of their own
        return StopResult(answer["outcome"], answer.get("turn_outcome"))

    async def stop_run(
        self, run_id: str, *, now: bool = False, grace_seconds: float = 10.0, reason: str = USER_INTERRUPT,
        actor: str | None = None,
    ) -> StopResult:  # fmt: skip
        """End a run as canceled: it wakes no more agents, and each of its turns is stopped as by `stop_turn`.

        Raises NotFound (`unknown_run`), InvalidInput.
        """
        _check_id(run_id, "a run id", "/run_id")
        [answer] = await self._open.ledger.stop_runs([
            {"run_id": run_id, **_stop(now=now, grace_seconds=grace_seconds, reason=reason, actor=actor)}
        ])  # fmt: skip
        if answer["outcome"] == "unknown_run":
            raise NotFound(f"no run {shown(run_id)} in project {self._name}; helio runs shows the newest",
                           code="unknown_run")  # fmt: skip
        await self._open.ledger.sweep("stops")
        return StopResult(answer["outcome"], answer.get("run_outcome"))

    async def enqueue(
        self, run_id: str, agent: str, payload: Any = None, *, name: str = "user:message", turn_id: str | None = None,
        priority: str = "normal", max_attempts: int = 5, ttl_seconds: float = 3600.0,
        result_fields: Sequence[Mapping[str, Any]] = (), context_box_id: str | None = None, ui_action: bool = False,
        actor: str | None = None,
    ) -> str:  # fmt: skip
        """Send an agent of a run a message, as signal `name` with `payload`: one message is one turn. Answers its id.

        The same turn_id with the same message is the same turn. result_fields: what the deliverable must have. ui_action:
        the agent takes it at once or not at all.
        Raises NotFound (`unknown_agent`), Refused (`run_ended`, `id_conflict`, `agent_busy`, `queue_full`,
        `recursion_depth_exceeded`), InvalidInput (`payload_too_large` and others).
        """
        _check_id(run_id, "a run id", "/run_id")
        _check_id(agent, "the name of an agent", "/agent")
        if priority not in PRIORITIES:
            raise InvalidInput(f"priority is one of {', '.join(PRIORITIES)}, not {shown(priority)}", code="invalid_enum",
                               path="/priority")  # fmt: skip
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= 1000:
            raise InvalidInput(f"max_attempts is from 1 to 1000, not {shown(max_attempts)}", code="out_of_range",
                               path="/max_attempts")  # fmt: skip
        chosen = self._open.world.new_id("turn") if turn_id is None else _check_id(turn_id, "a turn id", "/turn_id")
        [answer] = await self._open.ledger.enqueue([{
            "run_id": run_id, "agent": agent, "turn_id": chosen, "name": check_emit_name(name),
            "payload": check_payload(to_json({} if payload is None else payload, "/payload"), "/payload"),
            "priority": PRIORITIES.index(priority), "max_attempts": max_attempts,
            "ttl_seconds": check_seconds("ttl_seconds is", ttl_seconds),
            "result_fields": check_fields(result_fields) or None,
            "context_box_id": None if context_box_id is None else _check_id(context_box_id, "a box id", "/context_box_id"),
            "message_type": "ui_action" if ui_action else "turn", "actor": _text(actor, "an actor", "/actor"),
        }])  # fmt: skip
        self._check_enqueued(answer, run_id, agent)
        return chosen

    @property
    def _open(self) -> Runtime:
        if self._runtime is None:
            raise InvalidInput("the client is not open: write async with Client() as client", code="not_open")
        return self._runtime

    @property
    def _name(self) -> str:
        return self._open.settings.project

    def _command(self, row: Mapping[str, Any]) -> Command:
        body = row["body"]
        deadline = datetime.fromisoformat(row["deadline"]) if row.get("deadline") else None
        return Command(row["turn_id"], row["call_id"], row["tool"], body.get("arguments") or {}, deadline, row["delivery"],
                       body.get("token"), self)  # fmt: skip

    def _unknown_turn(self, turn_id: str) -> NotFound:
        return NotFound(f"no turn {shown(turn_id)} in project {self._name}; helio turn list shows the newest",
                        code="unknown_turn")  # fmt: skip

    def _refuse(self, answer: Reported) -> NoReturn:
        if answer.outcome == "unknown_turn":
            raise self._unknown_turn(answer.turn_id)
        if answer.outcome == "unknown_call":
            raise NotFound(f"turn {answer.turn_id} has no call {shown(answer.call_id)}; helio turn show {answer.turn_id} "
                           "shows its calls", code="unknown_call")  # fmt: skip
        if answer.outcome == "bad_token":
            raise Refused(f"the token does not open call {answer.call_id} of {answer.turn_id}: it is missing, wrong or no "
                          "longer valid", code="bad_signature")  # fmt: skip
        if answer.outcome == "refused":
            raise Refused(answer.message, code=answer.code)
        hint = "upload it, and report where it is" if answer.code == "payload_too_large" else None
        raise InvalidInput(answer.message, code=answer.code or "invalid_result", hint=hint)

    def _check_enqueued(self, answer: Mapping[str, Any], run_id: str, agent: str) -> None:
        outcome, turn_id = answer["outcome"], answer["turn_id"]
        if outcome in ("queued", "duplicate"):
            return
        if outcome == "unknown_agent":
            raise NotFound(f"project {self._name} has no run {run_id} with an agent {agent}; helio runs shows the newest "
                           "runs", code="unknown_agent")  # fmt: skip
        if outcome == "refused" and answer["code"] == "payload_too_large":
            raise InvalidInput(answer["message"], code=answer["code"], path="/payload")
        code, message = {
            "conflict": ("id_conflict", f"turn {turn_id} exists and was another message; choose another turn id"),
            "busy": ("agent_busy", f"agent {agent} of run {run_id} is at work: an action is taken at once or not at all"),
            "ended": ("run_ended", f"run {run_id} takes no messages any more: it is ending or has ended"),
        }.get(outcome, (answer.get("code", outcome), answer.get("message", outcome)))  # fmt: skip
        raise Refused(message, code=code)


def _stop(*, now: bool, grace_seconds: float, reason: str, actor: str | None) -> dict[str, Any]:
    if not isinstance(reason, str) or not reason.strip() or len(reason) > _REASON_MAX:
        raise InvalidInput(f"the reason of a stop is a text of at most {_REASON_MAX} characters, not {shown(reason)}",
                           code="invalid_reason", path="/reason")  # fmt: skip
    check_json(reason, "/reason")
    if not 0 <= check_seconds("the grace is", grace_seconds, least=0.0) <= 86_400:
        raise InvalidInput(f"the grace is a number of seconds from 0 to 86400, not {grace_seconds:g}", code="out_of_range",
                           path="/grace_seconds")  # fmt: skip
    return {"mode": "force" if now else "graceful", "grace_seconds": grace_seconds, "reason": reason,
            "actor": _text(actor, "an actor", "/actor")}  # fmt: skip


def _text(value: str | None, what: str, path: str) -> str | None:
    """Raises InvalidInput: `too_long`, `wrong_type`, and what no text in the ledger may hold."""
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{what} is a text, not {shown(value)}", code="wrong_type", path=path)
    if value is not None and len(value.encode("utf-8", "surrogatepass")) > ID_LENGTH_MAX:
        raise InvalidInput(f"{what} has at most {ID_LENGTH_MAX} bytes", code="too_long", path=path)
    check_json(value, path)
    return value


def _error(error: str | Mapping[str, Any]) -> Json:
    """An error as an agent sees it: an object with a message, at least."""
    told = {"code": "TOOL_ERROR", "message": error} if isinstance(error, str) else dict(error)
    if not isinstance(told.get("message"), str) or not told["message"]:
        raise InvalidInput("an error is a text, or an object with a message", code="invalid_result", path="/error")
    return check_payload(to_json(told, "/error"), "/error")


def _check_id(value: Any, what: str, path: str) -> str:
    """Raises InvalidInput: `too_long`, `invalid_id`."""
    if isinstance(value, str) and len(value) > ID_LENGTH_MAX:
        raise InvalidInput(f"{what} has at most {ID_LENGTH_MAX} characters, not {len(value)}: {shown(value, 40)}",
                           code="too_long", path=path)  # fmt: skip
    if not isinstance(value, str) or not value or not _ID_CHARACTERS.issuperset(value):
        raise InvalidInput(f"{what} is made of ASCII letters, digits, '_' and '-', not {shown(repr(value))}",
                           code="invalid_id", path=path)  # fmt: skip
    return value
