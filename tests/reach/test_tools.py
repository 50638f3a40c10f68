"""A tool that can be called: how it is described to a model, and what its function is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from heliograph import InvalidInput, Tool, ToolContext, external_tool, tool
from heliograph.reactive.tool import as_tools
from heliograph.tools.bound import BadArguments, BoundTool

CONTEXT = ToolContext("run_1", "turn_1", "agent", "m1-1", "turn_1:m1-1", deps={"rate": 2})


async def run_sync(function: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(function, *args)


async def call(made: Any, **arguments: Any) -> Any:
    (only,) = as_tools("agent", [made])
    return await BoundTool(only).call(CONTEXT, arguments, run_sync)


def plain(a: int, b: int = 1) -> int:
    """Add.

    Args:
        a: the first
    """
    return a + b


async def waiting(a: int, ctx: ToolContext) -> list[Any]:
    """Wait."""
    return [a * ctx.deps["rate"], ctx.idempotency_key]


class Adder:
    """Adds what it was made with."""

    def __init__(self, more: int):
        self.more = more

    def __call__(self, a: int) -> int:
        return a + self.more

    async def method(self, a: int) -> int:
        """A method."""
        return a + self.more


class Later:
    async def __call__(self, a: int) -> int:
        """Adds later."""
        return a


@pytest.mark.parametrize(
    ("made", "name", "description", "arguments", "result"),
    [
        (plain, "plain", "Add.", {"a": 1}, 2),
        (waiting, "waiting", "Wait.", {"a": 3}, [6, "turn_1:m1-1"]),
        (Adder(5), "Adder", "Adds what it was made with.", {"a": 1}, 6),
        (Adder(5).method, "method", "A method.", {"a": 2}, 7),
        (Later(), "Later", "Adds later.", {"a": 2}, 2),
        (partial(plain, b=9), "plain", "Add.", {"a": 1}, 10),
        (partial(waiting), "waiting", "Wait.", {"a": 1}, [2, "turn_1:m1-1"]),
    ],
)
async def test_whatever_can_be_called_is_a_tool(
    made: Any, name: str, description: str, arguments: dict[str, Any], result: Any
) -> None:
    (only,) = as_tools("agent", [made])
    assert only.name == name
    assert only.description.startswith(description)
    spec = BoundTool(only).spec
    properties: Any = spec.parameters["properties"]
    assert list(properties) == ["a", "b"] if made is plain else ["a"]
    assert await call(made, **arguments) == result


def test_the_docstring_describes_each_argument_and_the_context_is_not_the_models() -> None:
    assert BoundTool(tool(plain)).spec.parameters["properties"]["a"]["description"] == "the first"  # type: ignore[index, call-overload]
    assert "ctx" not in BoundTool(tool(waiting)).spec.parameters["properties"]  # type: ignore[operator]


async def test_what_a_partial_has_filled_in_a_model_neither_sees_nor_changes() -> None:
    bound = BoundTool(as_tools("agent", [partial(plain, b=9)])[0])
    assert "b" not in bound.spec.parameters["properties"]  # type: ignore[operator]
    with pytest.raises(BadArguments):
        bound.checked({"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"a": "x"}, "a: Input should be a valid integer"),
        ({}, "a: Field required"),
        ({"a": 1, "c": 2}, "c: Extra inputs"),
        ([1], "JSON object"),
        ("{not json", "JSON object"),
    ],
)
def test_arguments_that_do_not_fit_are_told_with_their_places(arguments: Any, says: str) -> None:
    with pytest.raises(BadArguments) as refused:
        BoundTool(tool(plain)).checked(arguments)
    assert "plain" in refused.value.message
    assert says in refused.value.message


def test_a_schema_that_is_given_is_what_arguments_are_checked_by() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    bound = BoundTool(external_tool("weather", "the weather", schema))
    assert bound.checked({"city": "Oslo"}) == {"city": "Oslo"}
    with pytest.raises(BadArguments, match="city: 5 is not of type"):
        bound.checked({"city": 5})


@pytest.mark.proves("S7")
def test_a_schema_that_refers_to_another_document_is_refused_and_nothing_is_fetched() -> None:
    with pytest.raises(InvalidInput, match="not fetched"):
        BoundTool(external_tool("weather", "", {"$ref": "http://127.0.0.1:9/schema.json"}))


def _no_context(a: int) -> int:
    return a


def _not_async(a: int, ctx: ToolContext) -> int:
    return a


@pytest.mark.parametrize("function", [_no_context, _not_async])
def test_a_transactional_tool_is_async_and_takes_the_context(function: Any) -> None:
    with pytest.raises(InvalidInput, match="transactional tool is an async function"):
        BoundTool(Tool("t", function, effect="transactional"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"effect": "twice"}, "effect is one of"),
        ({"in_doubt": "hope"}, "in_doubt is one of tell, fail, ask"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"retries": 1}, "cannot have retries"),
        ({"retries": 1, "effect": "transactional"}, "cannot have retries"),
        ({"concurrency": 0}, "concurrency"),
        ({"approval": "yes"}, "approval"),
        ({"name": "a b"}, "a tool's name"),
        ({"name": "submit_result"}, "belongs to the runtime"),
    ],
)
def test_what_makes_no_tool_is_refused_where_it_is_written(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        tool(**options)(plain)
    assert says in refused.value.message
