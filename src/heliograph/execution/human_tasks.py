"""Approvals and questions of an agent's function: build the question, and read the answer of a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic

from heliograph.codes import TOOL_TIMEOUT
from heliograph.definitions.forms import adapter_of, schema_of, validator_of
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, ToolFailed, ToolTimedOut
from heliograph.execution.call_replay import CallReplay, value_of
from heliograph.signals.values import to_json
from heliograph.turn.calls import CallRequest, CallResult
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

APPROVE, ASK = "approve", "ask"  # the tool names of these calls
_OPTIONS_MAX = 100


def approval_question(question: str, arguments: Mapping[str, Any] | None, *, may_edit: bool) -> Question:
    """The question of `Context.approve`. Raises InvalidInput."""
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidInput(
            f"arguments must be an object, not {safe_repr(arguments)}", code="wrong_type", path="/arguments"
        )
    approved_arguments = to_json(dict(arguments or {}), "/arguments")
    assert isinstance(approved_arguments, dict)
    if may_edit and not approved_arguments:
        raise InvalidInput("may_edit is for an approval with arguments", code="required_field", path="/arguments")
    return Question("decision", check_question(question), approved_arguments, bool(may_edit))


def open_question(question: str, form: Any, options: Sequence[str]) -> tuple[Question, Callable[[Json], Any]]:
    """The question of `Context.ask`, and the function that converts a valid answer to the type of `form`.

    Raises InvalidInput.
    """
    schema, convert = _form(form)
    if isinstance(options, str) or len(options) > _OPTIONS_MAX or not all(isinstance(o, str) for o in options):
        raise InvalidInput(f"options must be a list of at most {_OPTIONS_MAX} texts, not {safe_repr(options)}", code="wrong_type",
                           path="/options")  # fmt: skip
    if options and form is not None:
        raise InvalidInput("a question has options or a form, not both", code="wrong_type", path="/options")
    return Question("answer", check_question(question), options=tuple(options), form=schema), convert


async def approved(replay: CallReplay, question: Question, request: CallRequest) -> Grant:
    """The approval of a person. Raises Denied, and the exceptions of `_human_result`."""
    return grant_from(question, _call_label(question, request), await _human_result(replay, request))


async def answered(replay: CallReplay, question: Question, request: CallRequest, convert: Callable[[Json], Any]) -> Any:
    """The answer of a person. Raises Denied, ToolFailed, and the exceptions of `_human_result`."""
    return convert(answer_of(question, _call_label(question, request), await _human_result(replay, request)))


async def _human_result(replay: CallReplay, request: CallRequest) -> CallResult:
    """The reported result of the call. Raises ToolTimedOut, and the exceptions of `value_of`."""
    [result] = await replay.all([request])
    if result.status == "timeout":
        raise ToolTimedOut(f"{request.tool} (call {request.call_id}): {timeout_message(result, 'timeout')}",
                           code=str((result.error or {}).get("code") or TOOL_TIMEOUT), tool=request.tool,
                           call_id=request.call_id, error=result.error or {})  # fmt: skip
    if result.status not in ("success", "failed"):
        value_of(request, result)
    return result


def _call_label(question: Question, request: CallRequest) -> str:
    return f"call {request.call_id} ({safe_repr(question.question)})"


def _form(form: Any) -> tuple[JsonObject | None, Callable[[Json], Any]]:
    """The JSON Schema of a form, and the function that converts a valid answer to its type. Raises InvalidInput."""
    if form is None:
        return None, _unchanged
    if isinstance(form, Mapping):
        schema = to_json(dict(form), "/form")
        assert isinstance(schema, dict)
        validator_of("the form", schema, "/form")
        return schema, _unchanged
    form_schema, adapter = schema_of("a form", form, "/form"), adapter_of("a form", form, "/form")

    def convert(value: Json) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:  # JSON Schema cannot express every rule of the type
            raise ToolFailed(safe_repr(f"the answer does not match the form: {error}", REASON_MAX)) from None

    return form_schema, convert


def _unchanged(value: Json) -> Json:
    return value
