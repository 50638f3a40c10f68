"""Return the result of a call as the type that its caller declared. The ledger has its JSON."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any, Never, NoReturn, get_args, get_origin, get_type_hints

import pydantic

from heliograph.codes import RESULT_SCHEMA
from heliograph.definitions.forms import adapter_of
from heliograph.definitions.tool import Tool
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, ToolFailed
from heliograph.types import Json

_MESSAGE_MAX = 2000


async def typed_result(call: Callable[[], Coroutine[Any, Any, Json]], tool: str, kind: Any) -> Any:
    """The result of a call as a `kind`, whose JSON Schema it matches. Raises ToolFailed (`result_schema`), and as the call does.

    call: makes the call. A task that is cancelled before it starts never makes it, so it leaves no coroutine that was never awaited.
    """
    value = await call()
    try:
        return adapter_of(f"the result of {tool}", kind, "/result_schema").validate_python(value)
    except pydantic.ValidationError as error:  # JSON Schema cannot express every rule of the type
        raise ToolFailed(safe_repr(f"the result of {tool} does not match its type: {error}", _MESSAGE_MAX), code=RESULT_SCHEMA,
                         tool=tool) from None  # fmt: skip


def result_type_of(function: Callable[..., Any], what: str) -> Any:
    """The type that a function is annotated to return, when awaited; a class returns itself. Any for one without an annotation.

    what: its name for messages. Raises InvalidInput (`wrong_type`) for a type that cannot be resolved, or built from JSON.
    """
    while isinstance(function, partial | Tool):
        function = function.func if isinstance(function, partial) else function.function or _no_type
    kind = function if isinstance(function, type) else _return_annotation(function, what)
    if get_origin(kind) in (Coroutine, Awaitable):
        kind = get_args(kind)[-1]
    if kind in (Any, NoReturn, Never):
        return Any
    adapter_of(f"the return type of {what}", kind, "/function")  # before its effect
    return kind


def _return_annotation(function: Callable[..., Any], what: str) -> Any:
    """Only the annotation of the result counts: checkers alone may know those of the parameters."""
    annotated = function if inspect.isroutine(function) else type(function).__call__
    annotation: Any = None
    try:
        annotation = getattr(annotated, "__annotations__", {}).get("return", Any)
        if not isinstance(annotation, str):
            return annotation
        names = getattr(inspect.unwrap(annotated), "__globals__", {})
        return get_type_hints(SimpleNamespace(__annotations__={"return": annotation}), names, include_extras=True)[
            "return"
        ]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise InvalidInput(f"the return type {annotation} of {what} cannot be resolved: {error}; define or import it in the module "
                           "of the function, or write -> Any for JSON", code="wrong_type", path="/function") from error  # fmt: skip


def _no_type(*_: Any) -> Any:
    """In place of the function of an external tool, which nothing here can call."""
