"""Validation of a harness's replies: harnesses may be third-party code, and models may produce anything."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import HarnessError, InvalidInput
from heliograph.ports import ModelReply, ToolCall
from heliograph.signals.payload import check_json, cleaned
from heliograph.types import Json


def validate_reply(model: str, reply: ModelReply) -> ModelReply:
    """`reply` in a form that the ledger can store, with new call ids if its own are missing or repeated.

    Raises HarnessError: a wrong type is an error of the harness; an output that is not JSON is recoverable.
    """
    _check(model, "text", reply.text, isinstance(reply.text, str), "a text")
    _check(model, "thinking", reply.thinking, isinstance(reply.thinking, str), "a text")
    for name, count in (("input_tokens", reply.input_tokens), ("output_tokens", reply.output_tokens)):
        _check(model, name, count, type(count) is int and count >= 0, "a whole number from 0")
    cost = reply.cost_usd
    is_cost = isinstance(cost, int | float) and not isinstance(cost, bool) and math.isfinite(cost) and cost >= 0
    _check(model, "cost_usd", cost, cost is None or is_cost, "None or a number from 0")
    calls: Any = reply.tool_calls
    _check(model, "tool_calls", calls, isinstance(calls, list | tuple) and all(isinstance(each, ToolCall) and isinstance(
           each.tool, str) for each in calls), "a tuple of ToolCall")  # fmt: skip
    try:
        check_json(reply.output)
    except InvalidInput as error:
        raise HarnessError(f"the output of {model} cannot be recorded: {error.message}", recoverable=True) from error
    ids = [call.id for call in calls]
    has_ids = all(isinstance(each, str) and each and each == cleaned(each) for each in ids) and len({*ids}) == len(ids)
    return replace(
        reply, text=cleaned(reply.text), thinking=cleaned(reply.thinking), raw=_raw(reply.raw) if has_ids else None,
        tool_calls=tuple(
            ToolCall(call.id if has_ids else f"call_{n}", cleaned(call.tool), _arguments(call.arguments))
            for n, call in enumerate(calls, 1)
        ),
    )  # fmt: skip


def _arguments(given: Json) -> Json:
    """Arguments as JSON; other arguments as text, which no tool accepts, so the model receives an error."""
    try:
        return check_json(given)
    except InvalidInput:
        return cleaned(given if isinstance(given, str) else json.dumps(given, default=repr, skipkeys=True))


def _raw(given: Json) -> Json:
    """The harness's own record of the reply, if it is JSON; otherwise the harness works from the text and the calls."""
    try:
        return check_json(given)
    except InvalidInput:
        return None


def _check(model: str, name: str, value: object, is_right: bool, rule: str) -> None:
    if not is_right:
        raise HarnessError(
            f"the harness for {model} replied with {name} {safe_repr(repr_of(value))}; it must be {rule}"
        )
