"""Approvals and questions: list the open ones, and report a person's decision or answer.

The client validates each decision before it reports it, so a mistake raises an error and changes nothing. The turn validates the
decision again, because other clients can report one, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from heliograph.client.arguments import ID_LENGTH_MAX, check_limit
from heliograph.client.reports import report_result
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, Rejected
from heliograph.ledger.reader import Reader
from heliograph.ledger.rows import WaitRow
from heliograph.runtime import Runtime
from heliograph.signals.payload import check_json
from heliograph.signals.values import to_json
from heliograph.turn.calls import check_name
from heliograph.turn.human_tasks import NAME_MAX, REASON_MAX, Question
from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class HumanTask:
    """An open approval or question.

    kind: `decision` (grant or deny) or `answer`. arguments: the arguments of the call that needs approval. may_edit:
    whether it may be granted for other arguments. options: the possible answers. form: the JSON Schema of the answer or
    of edited arguments. may_answer: whether a person may give the result of the call instead of a decision. deadline:
    when it times out; None for no deadline.
    """

    turn_id: str
    call_id: str
    run_id: str
    agent: str
    tool: str
    kind: Literal["decision", "answer"]
    question: str
    arguments: JsonObject | None
    may_edit: bool
    options: tuple[str, ...]
    form: JsonObject | None
    since: datetime
    deadline: datetime | None
    may_answer: bool = False


class Approvals:
    """Records the decisions and answers of people in one project. by: the person's name; it is recorded, not verified."""

    def __init__(self, runtime: Runtime):
        self._runtime = runtime

    async def list(self, run_id: str | None, limit: int) -> list[HumanTask]:
        """See `Client.approvals`."""
        check_limit(limit)
        run = None if run_id is None else check_name(run_id, "a run id", ID_LENGTH_MAX)
        return await read_tasks(self._runtime.reader, run, limit)

    async def grant(self, turn_id: str, call_id: str, arguments: Mapping[str, Any] | None, by: str | None) -> str:
        """See `Client.grant`."""
        wait, asked = await self._question(turn_id, call_id, "decision")
        given: Json = asked.arguments or {}
        if arguments is not None and (edited := _object(arguments)) != given:
            if not asked.may_edit:
                raise Rejected(f"the arguments of call {call_id} of {turn_id} may not be changed: grant it as it is, or deny it",
                              code="no_edits", path="/arguments")  # fmt: skip
            given = edited
            if problems := asked.problems(given):
                raise InvalidInput(f"the arguments are invalid: {safe_repr('; '.join(problems), REASON_MAX)}",
                                   code="invalid_arguments", path="/arguments")  # fmt: skip
        # the arguments are recorded in full, so that the turn can verify that the approval is for this call
        return await self._report(wait, {"decision": "grant", "arguments": given}, by)

    async def deny(self, turn_id: str, call_id: str, reason: str | None, by: str | None) -> str:
        """See `Client.deny`."""
        if reason is not None and (not isinstance(reason, str) or len(reason) > REASON_MAX):
            raise InvalidInput(
                f"a reason must be a text of at most {REASON_MAX} characters; shorten it",
                code="too_long",
                path="/reason",
            )
        check_json(reason, "/reason")
        wait, _ = await self._question(turn_id, call_id, None)
        return await self._report(wait, {"decision": "deny", **({"reason": reason} if reason else {})}, by)

    async def answer(self, turn_id: str, call_id: str, value: Any, by: str | None) -> str:
        """See `Client.answer`."""
        wait, asked = await self._question(turn_id, call_id, "answer")
        given = to_json(value, "/answer")
        if problems := asked.problems(given):
            raise InvalidInput(f"the answer is invalid: {safe_repr('; '.join(problems), REASON_MAX)}", code="invalid_answer",
                               path="/answer")  # fmt: skip
        return await self._report(wait, {"answer": given}, by)

    async def _question(
        self, turn_id: str, call_id: str, kind: Literal["decision", "answer"] | None
    ) -> tuple[WaitRow, Question]:
        """Read a call and its question. Raises NotFound, and InvalidInput if the call takes another kind of reply."""
        check_name(turn_id, "a turn id", ID_LENGTH_MAX)
        check_name(call_id, "a call id", ID_LENGTH_MAX)
        wait = await self._runtime.reader.wait(turn_id, call_id)
        if wait.kind != "human":
            raise InvalidInput(f"call {call_id} of {turn_id} waits for {wait.tool}, not for a person", code="wrong_type",
                               path="/call_id")  # fmt: skip
        cards = await self._runtime.reader.call_cards([wait], "tool.call")
        asked = Question.of(cards.get((turn_id, call_id), {}).get("arguments"))
        if kind is not None and asked.kind != kind and not asked.may_answer:
            what = "an answer" if asked.kind == "answer" else "a decision (grant or deny)"
            raise InvalidInput(f"call {call_id} of {turn_id} requires {what}: {safe_repr(asked.question)}", code="wrong_type",
                               path="/call_id")  # fmt: skip
        return wait, asked

    async def _report(self, wait: WaitRow, decision: JsonObject, by: str | None) -> str:
        if by is not None and (not isinstance(by, str) or not 0 < len(by.encode("utf-8", "replace")) <= NAME_MAX):
            raise InvalidInput(
                f"by must be a name of at most {NAME_MAX} bytes, not {safe_repr(by)}", code="too_long", path="/by"
            )
        check_json(by, "/by")
        result: JsonObject = decision if by is None else {**decision, "by": by}
        # a sweep closes a wait shortly after its deadline, or much later if no worker runs
        is_late = wait.deadline is not None and wait.deadline <= self._runtime.world.now()
        if wait.state == "open" and not is_late:
            outcome = await report_result(self._runtime, wait.turn_id, wait.call_id, result=result, actor=by)
            if outcome == "applied":
                return outcome
            wait = await self._runtime.reader.wait(wait.turn_id, wait.call_id)
        return await self._already_decided(wait, result)

    async def _already_decided(self, wait: WaitRow, result: JsonObject) -> str:
        """Return 'duplicate' if the recorded result is the same; otherwise raise Rejected."""
        where = f"call {wait.call_id} of {wait.turn_id}"
        if wait.state == "open" or wait.status == "timeout":
            raise Rejected(
                f"{where} had its deadline at {wait.deadline}, so it cannot be decided any more", code="too_late"
            )
        if wait.state == "closed":
            raise Rejected(f"{where} is no longer open, because its turn has ended", code="turn_done")
        cards = await self._runtime.reader.call_cards([wait], "tool.result")
        output = cards.get((wait.turn_id, wait.call_id), {}).get("output")
        if output == result:
            return "duplicate"
        raise Rejected(
            f"{where} was already {_reported_output(output)}; the first decision remains", code="already_decided"
        )


async def read_tasks(
    reader: Reader, run_id: str | None, limit: int, *, target: str | None = None, since: datetime | None = None
) -> list[HumanTask]:
    """Read the open approvals and questions. It needs only a reader, so logins without write access can list them.

    target: of the application with this name. since: asked at or after this time.
    """
    waits = await reader.questions(run_id, limit, target=target, since=since)
    cards = await reader.call_cards(waits, "tool.call") if waits else {}
    return [_task(wait, cards.get((wait.turn_id, wait.call_id))) for wait in waits]


def _task(wait: WaitRow, card: Mapping[str, Any] | None) -> HumanTask:
    asked = Question.of((card or {}).get("arguments"))
    agent = wait.agent_id.split("/")[1]
    return HumanTask(wait.turn_id, wait.call_id, wait.run_id, agent, wait.tool, asked.kind, asked.question, asked.arguments,
                     asked.may_edit, asked.options, asked.form, wait.opened_at, wait.deadline,
                     asked.may_answer)  # fmt: skip


def _object(arguments: Any) -> Json:
    if not isinstance(arguments, Mapping):
        raise InvalidInput(
            f"arguments must be an object, not {safe_repr(arguments)}", code="wrong_type", path="/arguments"
        )
    return to_json(dict(arguments), "/arguments")


def _reported_output(output: Json) -> str:
    decision = output if isinstance(output, dict) else {}
    what = {"grant": "granted", "deny": "denied"}.get(str(decision.get("decision")), "answered")
    return f"{what} by {safe_repr(decision['by'])}" if decision.get("by") else what
