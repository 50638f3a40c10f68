"""Inspect the signature of a tool's function: find the context parameter, and reject parameters that no model can fill in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from heliograph.definitions.typed_dicts import usable
from heliograph.errors import InvalidInput
from heliograph.tools.context import ToolContext


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_annotated(function))


def context_parameter(name: str, function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter that receives the ToolContext, if there is one. name: the tool's, for messages.

    Raises InvalidInput for a function that no model can call.
    """
    if inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(_annotated(function)):
        raise _invalid(name, "yields its results one by one; return them as a list")
    hints = _hints(name, function)
    found: list[str] = []
    for n, (parameter, taken) in enumerate(_signature(name, function).parameters.items()):
        if taken.kind is taken.POSITIONAL_ONLY or taken.kind is taken.VAR_POSITIONAL:
            raise _invalid(name, f"takes {parameter} by position only, but a model passes arguments by name; remove the "
                                 "'/' or the '*'")  # fmt: skip
        if n == 0 and parameter in ("self", "cls") and parameter not in hints:
            raise _invalid(name, "is a method of a class; use a method of an object instead: tool(shop.price)")
        if _is_context(hints.get(parameter)):
            if taken.kind is taken.VAR_KEYWORD:
                raise _invalid(name, f"takes ToolContext as **{parameter}; take it as one parameter")
            found.append(parameter)
    if len(found) > 1:
        raise _invalid(name, f"takes the ToolContext twice, as {' and '.join(found)}; take it once")
    return found[0] if found else None


def without(name: str, function: Callable[..., Any], parameter: str | None) -> Callable[..., Any]:
    """Return a function with the same signature and docstring, but without one parameter. It is only inspected, never called."""
    signature = _signature(name, function)
    hidden = {parameter, *_preset_keywords(function), "return"}  # models do not need the type of the result
    visible = [p for p in signature.parameters.values() if p.name not in hidden]

    def described(*args: Any, **kwargs: Any) -> None: ...

    annotated = _annotated(function)
    described.__name__ = getattr(annotated, "__name__", "tool")
    described.__doc__ = inspect.getdoc(annotated)
    described.__module__ = annotated.__module__
    hints = _hints(name, function).items()
    described.__annotations__ = {key: usable(hint) for key, hint in hints if key not in hidden}
    described.__signature__ = signature.replace(parameters=visible)  # type: ignore[attr-defined]
    return described


def _is_context(hint: Any) -> bool:
    """Whether a type is ToolContext, ToolContext[...], Annotated[ToolContext, ...] or ToolContext | None."""
    if get_origin(hint) is Annotated:
        return _is_context(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return len(kinds) == 1 and _is_context(kinds[0])
    return hint is ToolContext or get_origin(hint) is ToolContext


def _annotated(function: Any) -> Any:
    """Return the function with a callable's annotations and docstring: that of a partial, or an object's `__call__`."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _preset_keywords(function: Any) -> set[str]:
    """Return the keywords that partials have set. Models neither see nor change them."""
    names: set[str] = set()
    while isinstance(function, partial):
        names |= function.keywords.keys()
        function = function.func
    return names


def _signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError) as error:
        raise _invalid(name, f"has no signature that Python can inspect ({error}); wrap it in a function") from error


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(_annotated(function), include_extras=True)
    except (NameError, TypeError) as error:
        raise _invalid(
            name, f"has annotations that cannot be resolved: {error}; import the names in its module"
        ) from error


def _invalid(name: str, problem: str) -> InvalidInput:
    return InvalidInput(f"tool {name} {problem}", code="invalid_schema", path=f"/tools/{name}")
