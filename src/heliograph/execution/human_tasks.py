"""The part of an agent's context that asks people: for leave, and for answers. Each is a call that suspends the turn."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pydantic

from heliograph.codes import TOOL_TIMEOUT
from heliograph.definitions.forms import validator_of
from heliograph.errors import InvalidInput, ToolFailed, ToolTimedOut, safe_repr
from heliograph.execution.call_replay import CallReplay, value_of
from heliograph.signals.values import to_json
from heliograph.turn.calls import CallRequest, CallResult, Journal, check_timeout
from heliograph.turn.human_tasks import (
    REASON_MAX,
    Grant,
    Question,
    answer_of,
    check_question,
    grant_from,
    timeout_message,
)
from heliograph.types import Json, JsonObject

APPROVE, ASK = "approve", "ask"  # what these calls are named among a turn's calls
_OPTIONS_MAX = 100


class ContextApprovals:
    """Mixed into `Calls`."""

    _journal: Journal
    _replay: CallReplay

    def _check_may_wait(self, what: str) -> None:
        raise NotImplementedError

    def approve(
        self, question: str, *, arguments: Mapping[str, Any] | None = None, may_edit: bool = False,
        timeout: float | None = None, call_id: str | None = None,
    ) -> Coroutine[Any, Any, Grant]:  # fmt: skip
        """Ask a person for leave, and wait for it: the turn is suspended and holds nothing. A no raises.

        arguments: what leave is asked for, shown to the person. Do what you do with those of the Grant: with may_edit
        they may be others. timeout: seconds; None waits without a deadline. Raises Denied, ToolTimedOut when
        nobody has decided in time, InvalidInput.
        """
        self._check_may_wait("approve")
        if arguments is not None and not isinstance(arguments, Mapping):
            raise InvalidInput(
                f"arguments is an object, not {safe_repr(arguments)}", code="wrong_type", path="/arguments"
            )
        given = to_json(dict(arguments or {}), "/arguments")
        assert isinstance(given, dict)
        if may_edit and not given:
            raise InvalidInput("may_edit is for an approval with arguments", code="required_field", path="/arguments")
        asked = Question("decision", check_question(question), given, bool(may_edit))
        return self._approved(asked, self._call_request(APPROVE, asked, timeout, call_id))

    def ask(
        self, question: str, *, form: Any = None, options: Sequence[str] = (), timeout: float | None = None,
        call_id: str | None = None,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Ask a person, and wait for the answer: the turn is suspended and holds nothing.

        form: what the answer has to be: a pydantic model or another type, which is what you get; or a JSON Schema, and you
        get JSON. Without, the answer is a text; with options, one of them. timeout: as of `approve`.
        Raises Denied when the person declines, ToolFailed for an answer that does not fit, ToolTimedOut, InvalidInput.
        """
        self._check_may_wait("ask")
        schema, read = _form(form)
        if isinstance(options, str) or len(options) > _OPTIONS_MAX or not all(isinstance(o, str) for o in options):
            raise InvalidInput(f"options is a list of at most {_OPTIONS_MAX} texts, not {safe_repr(options)}", code="wrong_type",
                               path="/options")  # fmt: skip
        if options and form is not None:
            raise InvalidInput("a question has options or a form, not both", code="wrong_type", path="/options")
        asked = Question("answer", check_question(question), options=tuple(options), form=schema)
        return self._answered(asked, self._call_request(ASK, asked, timeout, call_id), read)

    def _call_request(self, tool: str, question: Question, timeout: float | None, call_id: str | None) -> CallRequest:
        return CallRequest(self._journal.new_call(call_id), self._journal.new_step(), tool, "human", question.record(),
                     check_timeout(timeout), needs_token=False)  # fmt: skip

    async def _approved(self, question: Question, request: CallRequest) -> Grant:
        return grant_from(question, _named(question, request), await self._decided(request))

    async def _answered(self, question: Question, request: CallRequest, read: Callable[[Json], Any]) -> Any:
        return read(answer_of(question, _named(question, request), await self._decided(request)))

    async def _decided(self, request: CallRequest) -> CallResult:
        """What a person, or whoever reported, has said. Raises ToolTimedOut, and what else ends a call."""
        [result] = await self._replay.all([request])
        if result.status == "timeout":
            raise ToolTimedOut(f"{request.tool} (call {request.call_id}): {timeout_message(result, 'timeout')}",
                               code=str((result.error or {}).get("code") or TOOL_TIMEOUT), tool=request.tool,
                               call_id=request.call_id, error=result.error or {})  # fmt: skip
        if result.status not in ("success", "failed"):
            value_of(request, result)
        return result


def _named(question: Question, request: CallRequest) -> str:
    return f"call {request.call_id} ({safe_repr(question.question)})"


def _form(form: Any) -> tuple[JsonObject | None, Callable[[Json], Any]]:
    """The JSON Schema of a form, and what makes its type of an answer that fits. Raises InvalidInput."""
    if form is None:
        return None, _as_it_is
    if isinstance(form, Mapping):
        schema = to_json(dict(form), "/form")
        assert isinstance(schema, dict)
        validator_of("the form", schema, "/form")
        return schema, _as_it_is
    try:
        adapter = pydantic.TypeAdapter(form)
        made = adapter.json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise InvalidInput(f"a form is a pydantic model, another type or a JSON Schema, not {safe_repr(form)}: "
                           f"{safe_repr(str(error))}", code="wrong_type", path="/form") from None  # fmt: skip

    def read(value: Json) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:  # a rule that no JSON Schema says
            raise ToolFailed(safe_repr(f"the answer does not fit: {error}", REASON_MAX)) from None

    return made, read


def _as_it_is(value: Json) -> Json:
    return value
