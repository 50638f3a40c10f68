"""Bind a tool's function to its schema: describe it to models, validate arguments, and call it.

Validated arguments are JSON with all defaults filled in. The approval rule, the person who approves, the record and the function all
receive these same arguments, so an approval covers exactly what the function receives.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pydantic

from heliograph.definitions.forms import problems_in, validator_of
from heliograph.definitions.tool import Tool
from heliograph.error_text import format_exception, safe_repr
from heliograph.errors import HeliographError, InvalidInput, SetupError
from heliograph.policy.retry import RetryPolicy
from heliograph.ports import ToolSpec
from heliograph.secrets import names_in
from heliograph.signals.payload import check_json
from heliograph.signals.values import to_json
from heliograph.tools.context import ToolContext
from heliograph.tools.sandboxed_tools import call_isolated, place_of
from heliograph.tools.signature import context_parameter, is_async, without
from heliograph.turn.call_results import output_validator
from heliograph.types import Json, JsonObject

_MESSAGE_MAX = 2000
_ANYTHING = pydantic.TypeAdapter(Any)


class BadArguments(HeliographError):
    """A model called a tool with invalid arguments; the message is for the model."""

    default_code = "invalid_arguments"


class BoundTool:
    """A tool with its schema and its semaphore. Raises InvalidInput for a function that cannot be described to a model."""

    def __init__(self, tool: Tool):
        self.tool = tool
        self._context_parameter: str | None = None
        self._validator = None
        if tool.parameters is not None:
            self._validator = validator_of(
                f"the parameter schema of tool {tool.name}", tool.parameters, f"/tools/{tool.name}/parameters"
            )
        self.output_problems = output_validator(tool.name, tool.result_schema, f"/tools/{tool.name}/result_schema")
        self.slots = asyncio.Semaphore(tool.concurrency) if tool.concurrency is not None else None
        if tool.function is not None:
            self._context_parameter = context_parameter(tool.name, tool.function)
            if tool.effect == "transactional" and (self._context_parameter is None or not is_async(tool.function)):
                raise InvalidInput(f"tool {tool.name}: a transactional tool must be an async function with a parameter annotated as "
                                   "ToolContext, whose connection it uses", code="wrong_type",
                                   path=f"/tools/{tool.name}")  # fmt: skip
            if tool.isolated:
                self._check_isolated(tool)
            self.spec  # noqa: B018  reports an invalid definition now, not at the first call

    def limited(self, timeout_seconds: float | None, retry: RetryPolicy | None) -> BoundTool:
        """Return the tool with the limits of one call, in place of its own; None keeps its own."""
        if timeout_seconds is None and retry is None:
            return self
        made = copy.copy(self)
        if timeout_seconds is not None:
            made.tool = replace(made.tool, timeout_seconds=timeout_seconds)
        if retry is not None:
            made.tool = replace(made.tool, retry=retry, retries=0)
        return made

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as it is described to models."""
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
        """Validate a model's arguments, and return them as JSON with all defaults. Raises BadArguments."""
        if not isinstance(arguments, dict):
            raise BadArguments(f"the arguments of {self.tool.name} must be a JSON object, not {safe_repr(arguments)}")
        try:
            check_json(arguments)
        except InvalidInput as error:
            raise self._bad([error.message]) from error
        if foreign := sorted(names_in(arguments) - set(self.tool.secrets)):
            raise self._bad([f"this tool may not use the secret {foreign[0]}"])
        if self._validator is not None:
            filled = {**self._defaults, **arguments}
            if problems := problems_in(self._validator, arguments, "arguments"):
                raise self._bad(problems)
            return arguments if problems_in(self._validator, filled, "arguments") else filled
        validated = self._to_json(self._validated(arguments))
        if self._to_json(self._validated_again(validated)) != validated:
            raise self._bad(["its validators change arguments that are already validated; make them idempotent"])
        return validated

    async def call(self, context: ToolContext, arguments: Mapping[str, Any], run_sync: Callable[..., Any]) -> Any:
        """Call the function with arguments that `checked` returned. A plain function runs in a thread, through `run_sync`.

        Raises the exceptions of the function.
        """
        function = self.tool.function
        assert function is not None
        if self.tool.isolated:
            return await call_isolated(function, arguments)
        own = copy.deepcopy(dict(arguments))  # so that the function cannot change the recorded arguments
        keywords = own if self.tool.parameters is not None else self._validated_again(own)
        if self._context_parameter is not None:
            keywords[self._context_parameter] = context = replace(context, is_abandoned=threading.Event())
        if is_async(function):
            return await function(**keywords)
        try:
            result = await run_sync(lambda: _exhausted(function(**keywords)))
        except asyncio.CancelledError:
            context.is_abandoned.set()
            raise
        return await result if inspect.isawaitable(result) else result

    def _check_isolated(self, tool: Tool) -> None:
        place_of(tool.function)
        if self._context_parameter is not None or tool.effect == "transactional":
            raise InvalidInput(f"tool {tool.name}: an isolated tool runs outside the worker, so it cannot be transactional and cannot "
                               "have a ToolContext; remove one of the two", code="wrong_type",
                               path=f"/tools/{tool.name}/isolated")  # fmt: skip

    @cached_property
    def _defaults(self) -> JsonObject:
        """The default values in the JSON Schema of the parameters."""
        properties = self._parameters.get("properties")
        each = properties.items() if isinstance(properties, dict) else ()
        return {key: schema["default"] for key, schema in each if isinstance(schema, dict) and "default" in schema}

    def _validated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._checked_by(lambda: self._schema.validator.validate_python(arguments))

    def _validated_again(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert validated arguments from JSON to the types of the function's parameters."""
        only = self._schema.single_arg_name
        keywords = arguments if only is None else {only: dict(arguments)}
        return self._checked_by(lambda: self._schema.revalidate(keywords))

    def _checked_by(self, validate: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return dict(validate())
        except pydantic.ValidationError as error:
            raise self._bad(
                f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors(include_url=False)
            ) from error
        except Exception as error:  # a validator of the application may raise anything
            raise self._bad([format_exception(error)]) from error

    def _to_json(self, validated: Mapping[str, Any]) -> dict[str, Any]:
        """Convert validated arguments to JSON that matches the schema; a single model is represented by its fields."""
        only = self._schema.single_arg_name
        try:
            dumped = to_json(_ANYTHING.dump_python(validated if only is None else validated[only], by_alias=True,
                                                   round_trip=True))  # fmt: skip
        except Exception as error:
            raise self._bad(
                [error.message if isinstance(error, HeliographError) else format_exception(error)]
            ) from error
        if not isinstance(dumped, dict):
            raise self._bad([f"they serialize to {safe_repr(dumped)}, which is not an object"])
        return dumped

    def _bad(self, problems: Iterable[str]) -> BadArguments:
        return BadArguments(
            safe_repr(f"the arguments of {self.tool.name} are invalid: {'; '.join(problems)}", _MESSAGE_MAX)
        )

    @cached_property
    def _schema(self) -> Any:
        """The schema that pydantic-ai derives from the signature and the docstring, without the context parameter."""
        try:
            from pydantic_ai import Tool as PydanticTool
        except ImportError as error:
            raise SetupError(f"tool {self.tool.name} needs pydantic-ai: pip install 'heliograph[models]'",
                             code="no_model_library") from error  # fmt: skip
        function, name = self.tool.function, self.tool.name
        assert function is not None
        try:
            return PydanticTool(without(name, function, self._context_parameter), takes_ctx=False).function_schema
        except Exception as error:
            raise InvalidInput(f"tool {name} cannot be described to a model: {error}", code="invalid_schema",
                               path=f"/tools/{name}") from error  # fmt: skip


def _exhausted(result: Any) -> Any:
    """Return the items of a generator as a list, while still in the tool's thread; any other result unchanged."""
    return list(result) if inspect.isgenerator(result) else result
