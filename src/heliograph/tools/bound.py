"""A tool that can be called: its schema from its signature and docstring, its arguments checked by pydantic."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, get_type_hints

import pydantic

from heliograph.errors import HeliographError, InvalidInput, SetupError, shown
from heliograph.ports import ToolSpec
from heliograph.reactive.forms import problems_in, validator_of
from heliograph.reactive.tool import Tool
from heliograph.secrets import names_in
from heliograph.tools.context import ToolContext
from heliograph.tools.isolated import call_isolated, place_of
from heliograph.turn.results import misfits_of
from heliograph.types import Json, JsonObject

_MESSAGE_MAX = 2000


class BadArguments(HeliographError):
    """The arguments that a model gave do not fit the tool; the message is for the model."""

    default_code = "invalid_arguments"


class BoundTool:
    """`tool` with its schema. Raises InvalidInput for a function that cannot be described to a model."""

    def __init__(self, tool: Tool):
        self.tool = tool
        self._context_parameter: str | None = None
        self._validator = None
        if tool.parameters is not None:
            what = f"what tool {tool.name} has as parameters"
            self._validator = validator_of(what, tool.parameters, f"/tools/{tool.name}/parameters")
        self.misfits = misfits_of(tool.name, tool.result_schema, f"/tools/{tool.name}/result_schema")
        self.slots = asyncio.Semaphore(tool.concurrency) if tool.concurrency is not None else None
        if tool.function is not None:
            self._context_parameter = _context_parameter(tool.function)
            if tool.effect == "transactional" and (self._context_parameter is None or not _is_async(tool.function)):
                raise InvalidInput(f"tool {tool.name}: a transactional tool is an async function with a parameter that is "
                                   "annotated ToolContext: it works by that one's connection", code="wrong_type",
                                   path=f"/tools/{tool.name}")  # fmt: skip
            if tool.isolated:
                self._check_isolated(tool)
            self.spec  # noqa: B018  what is wrong with it is said when it is defined

    @cached_property
    def spec(self) -> ToolSpec:
        description, function = self.tool.description, self.tool.function
        if self.tool.parameters is None and description == (inspect.getdoc(function) or ""):
            description = self._schema.description or ""  # without the parameters, which the schema describes
        return ToolSpec(self.tool.name, description, self._parameters)

    @cached_property
    def _parameters(self) -> JsonObject:
        if self.tool.parameters is not None:
            return self.tool.parameters
        parameters: JsonObject = self._schema.json_schema
        return parameters

    def checked(self, arguments: Json) -> dict[str, Any]:
        """The arguments as JSON, as the tool takes them. Raises BadArguments, which says what is wrong with them."""
        if not isinstance(arguments, dict):
            raise BadArguments(f"the arguments of {self.tool.name} are a JSON object, not {shown(arguments)}")
        if strange := sorted(names_in(arguments) - set(self.tool.secrets)):
            raise self._bad([f"the secret {strange[0]} is not for this tool"])
        if self._validator is not None:
            if problems := problems_in(self._validator, arguments, "arguments"):
                raise self._bad(problems)
        else:
            self._validated(arguments)
        return arguments

    async def call(self, context: ToolContext, arguments: Mapping[str, Any], run_sync: Callable[..., Any]) -> Any:
        """Call the function; a plain one in a thread, by `run_sync`. Raises whatever it raises."""
        function = self.tool.function
        assert function is not None
        if self.tool.isolated:
            return await call_isolated(function, arguments)
        given = dict(arguments) if self.tool.parameters is not None else self._validated(arguments)
        if self._context_parameter is not None:
            given[self._context_parameter] = context = replace(context, given_up=threading.Event())
        if _is_async(function):
            return await function(**given)
        try:
            result = await run_sync(lambda: function(**given))
        except asyncio.CancelledError:
            context.given_up.set()
            raise
        return await result if inspect.isawaitable(result) else result

    def _check_isolated(self, tool: Tool) -> None:
        place_of(tool.function)
        if self._context_parameter is not None or tool.effect == "transactional":
            raise InvalidInput(f"tool {tool.name}: an isolated tool has no ToolContext and no connection: it reaches nothing of "
                               "the worker", code="wrong_type", path=f"/tools/{tool.name}/isolated")  # fmt: skip

    def _validated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            validated: dict[str, Any] = self._schema.validator.validate_python(arguments)
        except pydantic.ValidationError as error:
            raise self._bad(
                f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors(include_url=False)
            ) from error
        return validated

    def _bad(self, problems: Iterable[str]) -> BadArguments:
        return BadArguments(shown(f"the arguments of {self.tool.name} do not fit: {'; '.join(problems)}", _MESSAGE_MAX))

    @cached_property
    def _schema(self) -> Any:
        """pydantic-ai's reading of the signature and docstring, without the parameter that is not the model's."""
        try:
            from pydantic_ai import Tool as PydanticTool
        except ImportError as error:
            raise SetupError(f"tool {self.tool.name} needs pydantic-ai: pip install 'heliograph[models]'",
                             code="no_model_library") from error  # fmt: skip
        function = self.tool.function
        assert function is not None
        try:
            return PydanticTool(_without(function, self._context_parameter), takes_ctx=False).function_schema
        except Exception as error:
            raise InvalidInput(f"tool {self.tool.name} cannot be described to a model: {error}", code="invalid_schema",
                               path=f"/tools/{self.tool.name}") from error  # fmt: skip


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_annotated(function))


def _context_parameter(function: Callable[..., Any]) -> str | None:
    hints = _hints(function)
    return next((name for name, hint in hints.items() if hint is ToolContext and name != "return"), None)


def _without(function: Callable[..., Any], parameter: str | None) -> Callable[..., Any]:
    """The same signature and docstring without one parameter. It is only read, never called."""
    signature = inspect.signature(function)
    taken = {parameter, *_given(function)}
    kept = [p for p in signature.parameters.values() if p.name not in taken]

    def described(*args: Any, **kwargs: Any) -> None: ...

    annotated = _annotated(function)
    described.__name__ = getattr(annotated, "__name__", "tool")
    described.__doc__ = inspect.getdoc(annotated)
    described.__module__ = annotated.__module__
    described.__annotations__ = {name: hint for name, hint in _hints(function).items() if name not in taken}
    described.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return described


def _annotated(function: Any) -> Any:
    """Where a callable has its annotations and its docstring: a partial's function, an object's __call__."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _given(function: Any) -> set[str]:
    """The keywords that partials have filled in: what the author has decided, a model neither sees nor changes."""
    names: set[str] = set()
    while isinstance(function, partial):
        names |= function.keywords.keys()
        function = function.func
    return names


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(_annotated(function), include_extras=True)
    except NameError as error:
        raise InvalidInput(f"tool {getattr(function, '__name__', function)}: {error}; its annotations have to mean "
                           "something where it is defined", code="invalid_schema", path="/tools") from error  # fmt: skip
