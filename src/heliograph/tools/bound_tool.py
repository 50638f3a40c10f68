"""A tool that can be called: its schema from its signature and docstring, its arguments checked by pydantic.

Arguments have one form from there on: checked, with what is left out filled in, as JSON. The rule of an approval, the person
who grants it, the record and the function all get that one, so none of them sees what another does not.
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
from heliograph.errors import HeliographError, InvalidInput, SetupError, format_exception, safe_repr
from heliograph.ports import ToolSpec
from heliograph.secrets import names_in
from heliograph.signals.payload import check_json
from heliograph.signals.values import to_json
from heliograph.tools.code_tool import call_isolated, place_of
from heliograph.tools.context import ToolContext
from heliograph.tools.signature import context_parameter, is_async, without
from heliograph.turn.call_results import output_validator
from heliograph.types import Json, JsonObject

_MESSAGE_MAX = 2000
_ANYTHING = pydantic.TypeAdapter(Any)


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
        self.output_problems = output_validator(tool.name, tool.result_schema, f"/tools/{tool.name}/result_schema")
        self.slots = asyncio.Semaphore(tool.concurrency) if tool.concurrency is not None else None
        if tool.function is not None:
            self._context_parameter = context_parameter(tool.name, tool.function)
            if tool.effect == "transactional" and (self._context_parameter is None or not is_async(tool.function)):
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
        """The arguments in their one form. Raises BadArguments, which says what is wrong with them."""
        if not isinstance(arguments, dict):
            raise BadArguments(f"the arguments of {self.tool.name} are a JSON object, not {safe_repr(arguments)}")
        try:
            check_json(arguments)
        except InvalidInput as error:  # of what no record can hold
            raise self._bad([error.message]) from error
        if strange := sorted(names_in(arguments) - set(self.tool.secrets)):
            raise self._bad([f"the secret {strange[0]} is not for this tool"])
        if self._validator is not None:
            filled = {**self._defaults, **arguments}
            if problems := problems_in(self._validator, arguments, "arguments"):
                raise self._bad(problems)
            return arguments if problems_in(self._validator, filled, "arguments") else filled
        found = self._to_json(self._validated(arguments))
        if self._to_json(self._validated_again(found)) != found:
            raise self._bad(["its validators make something else of what they made; they have to take what they give"])
        return found

    async def call(self, context: ToolContext, arguments: Mapping[str, Any], run_sync: Callable[..., Any]) -> Any:
        """Call the function with `checked` arguments; a plain one in a thread, by `run_sync`. Raises whatever it raises."""
        function = self.tool.function
        assert function is not None
        if self.tool.isolated:
            return await call_isolated(function, arguments)
        own = copy.deepcopy(dict(arguments))  # what it does to them is not what it was called with
        given = own if self.tool.parameters is not None else self._validated_again(own)
        if self._context_parameter is not None:
            given[self._context_parameter] = context = replace(context, is_abandoned=threading.Event())
        if is_async(function):
            return await function(**given)
        try:
            result = await run_sync(lambda: _whole(function(**given)))
        except asyncio.CancelledError:
            context.is_abandoned.set()
            raise
        return await result if inspect.isawaitable(result) else result

    def _check_isolated(self, tool: Tool) -> None:
        place_of(tool.function)
        if self._context_parameter is not None or tool.effect == "transactional":
            raise InvalidInput(f"tool {tool.name}: an isolated tool has no ToolContext and no connection: it reaches nothing of "
                               "the worker", code="wrong_type", path=f"/tools/{tool.name}/isolated")  # fmt: skip

    @cached_property
    def _defaults(self) -> JsonObject:
        """What a JSON Schema says of arguments that are left out."""
        properties = self._parameters.get("properties")
        each = properties.items() if isinstance(properties, dict) else ()
        return {key: schema["default"] for key, schema in each if isinstance(schema, dict) and "default" in schema}

    def _validated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._checked_by(lambda: self._schema.validator.validate_python(arguments))

    def _validated_again(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Of arguments in their one form, what the function takes."""
        only = self._schema.single_arg_name
        given = arguments if only is None else {only: dict(arguments)}
        return self._checked_by(lambda: self._schema.revalidate(given))

    def _checked_by(self, validate: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return dict(validate())
        except pydantic.ValidationError as error:
            raise self._bad(
                f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors(include_url=False)
            ) from error
        except Exception as error:  # of a validator that raises what pydantic does not expect of one
            raise self._bad([format_exception(error)]) from error

    def _to_json(self, validated: Mapping[str, Any]) -> dict[str, Any]:
        """Validated arguments as JSON, as the schema describes them: of a single model its own fields."""
        only = self._schema.single_arg_name
        try:
            written = to_json(_ANYTHING.dump_python(validated if only is None else validated[only], by_alias=True,
                                                    round_trip=True))  # fmt: skip
        except Exception as error:
            raise self._bad(
                [error.message if isinstance(error, HeliographError) else format_exception(error)]
            ) from error
        if not isinstance(written, dict):
            raise self._bad([f"they are written as {safe_repr(written)}, which is no object"])
        return written

    def _bad(self, problems: Iterable[str]) -> BadArguments:
        return BadArguments(
            safe_repr(f"the arguments of {self.tool.name} do not fit: {'; '.join(problems)}", _MESSAGE_MAX)
        )

    @cached_property
    def _schema(self) -> Any:
        """pydantic-ai's reading of the signature and docstring, without the parameter that is not the model's."""
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


def _whole(result: Any) -> Any:
    """What a plain function answers; of a generator all of it, taken where it may take its time."""
    return list(result) if inspect.isgenerator(result) else result
