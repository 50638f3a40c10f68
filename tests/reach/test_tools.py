"""Tools: their description for a model, and the arguments of their function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import AfterValidator, BaseModel, StringConstraints

from heliograph import Heliograph, Tool, ToolContext, external_tool, tool
from heliograph.definitions.tool import as_tools
from heliograph.errors import InvalidInput
from heliograph.models import ScriptedModel
from heliograph.tools.bound_tool import BadArguments, BoundTool

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


class Trip(BaseModel):
    to: str
    days: int = 1


class Lodging(TypedDict):
    nights: int


def lodging(lodging: Lodging) -> str:
    return str(lodging)


def travel(trip: Trip) -> str:
    return f"{trip.days} in {trip.to}"


def deploy(
    env: Literal["test", "prod"] = "prod", amount: float = 0, path: Annotated[str, StringConstraints(strip_whitespace=True)] = "",
) -> str:  # fmt: skip
    return f"{env} {amount} {path}"


class Adder:
    """Adds a fixed number."""

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
        (Adder(5), "Adder", "Adds a fixed number.", {"a": 1}, 6),
        (Adder(5).method, "method", "A method.", {"a": 2}, 7),
        (Later(), "Later", "Adds later.", {"a": 2}, 2),
        (partial(plain, b=9), "plain", "Add.", {"a": 1}, 10),
        (partial(waiting), "waiting", "Wait.", {"a": 1}, [2, "turn_1:m1-1"]),
    ],
)
async def test_any_callable_is_a_tool(
    made: Any, name: str, description: str, arguments: dict[str, Any], result: Any
) -> None:
    (only,) = as_tools("agent", [made])
    assert only.name == name
    assert only.description.startswith(description)
    spec = BoundTool(only).spec
    properties: Any = spec.parameters["properties"]
    assert list(properties) == ["a", "b"] if made is plain else ["a"]
    assert await call(made, **arguments) == result


def test_docstring_describes_each_argument_and_the_context_is_hidden_from_the_model() -> None:
    assert BoundTool(tool(plain)).spec.parameters["properties"]["a"]["description"] == "the first"  # type: ignore[index, call-overload]
    assert "ctx" not in BoundTool(tool(waiting)).spec.parameters["properties"]  # type: ignore[operator]


async def test_arguments_bound_by_a_partial_are_hidden_from_the_model() -> None:
    bound = BoundTool(as_tools("agent", [partial(plain, b=9)])[0])
    assert "b" not in bound.spec.parameters["properties"]  # type: ignore[operator]
    with pytest.raises(BadArguments):
        bound.checked({"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": "x"}, "a: Input should be a valid integer"),
        ({}, "a: Field required"),
        ({"a": 1, "c": 2}, "c: Extra inputs"),
        ([1], "JSON object"),
        ("{not json", "JSON object"),
    ],
)
def test_invalid_arguments_are_reported_with_their_locations(arguments: Any, message: str) -> None:
    with pytest.raises(BadArguments) as refused:
        BoundTool(tool(plain)).checked(arguments)
    assert "plain" in refused.value.message
    assert message in refused.value.message


def test_explicit_schema_validates_the_arguments() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    bound = BoundTool(external_tool("weather", "the weather", schema))
    assert bound.checked({"city": "Oslo"}) == {"city": "Oslo"}
    with pytest.raises(BadArguments, match="city: 5 is not of type"):
        bound.checked({"city": 5})


@pytest.mark.proves("S7")
def test_schema_that_refers_to_another_document_is_rejected_and_nothing_is_fetched() -> None:
    with pytest.raises(InvalidInput, match="are not allowed"):
        BoundTool(external_tool("weather", "", {"$ref": "http://127.0.0.1:9/schema.json"}))


def _no_context(a: int) -> int:
    return a


def _not_async(a: int, ctx: ToolContext) -> int:
    return a


@pytest.mark.parametrize("function", [_no_context, _not_async])
def test_transactional_tool_is_async_and_takes_the_context(function: Any) -> None:
    with pytest.raises(InvalidInput, match="transactional tool must be an async function"):
        BoundTool(Tool("t", function, effect="transactional"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect": "twice"}, "effect must be one of"),
        ({"in_doubt": "hope"}, "in_doubt must be one of return_error, fail, ask"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"retries": 1}, "cannot have retries"),
        ({"retries": 1, "effect": "transactional"}, "cannot have retries"),
        ({"concurrency": 0}, "concurrency"),
        ({"approval": "yes"}, "approval"),
        ({"name": "a b"}, "a tool's name"),
        ({"name": "submit_result"}, "belongs to the runtime"),
    ],
)
def test_invalid_tool_is_rejected_at_its_definition(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        tool(**options)(plain)
    assert message in refused.value.message


# ── One form of the arguments, for the rule, the person, the record and the function ──


@pytest.mark.parametrize(
    ("function", "given", "form", "result"),
    [
        (deploy, {}, {"env": "prod", "amount": 0.0, "path": ""}, "prod 0.0 "),
        (
            deploy,
            {"amount": "500", "path": " /etc/passwd\n"},
            {"env": "prod", "amount": 500.0, "path": "/etc/passwd"},
            "prod 500.0 /etc/passwd",
        ),
        (lodging, {"nights": "2"}, {"nights": 2}, "{'nights': 2}"),
        (travel, {"to": "Oslo"}, {"to": "Oslo", "days": 1}, "1 in Oslo"),
        (travel, {"trip": {"to": "Oslo", "days": "2"}}, {"to": "Oslo", "days": 2}, "2 in Oslo"),
    ],
)
async def test_approval_rule_gets_the_same_arguments_as_the_function(
    function: Any, given: Any, form: Any, result: str
) -> None:
    seen: list[Any] = []
    made = tool(approval=lambda arguments: len(seen.__iadd__([arguments])) > 1)(function)
    bound = BoundTool(made)
    arguments = bound.checked(given)
    assert arguments == form
    assert made.needs_approval(arguments) is False
    assert seen == [form]
    assert bound.checked(arguments) == arguments
    assert await bound.call(CONTEXT, arguments, run_sync) == result


def test_valid_default_of_a_json_schema_fills_a_missing_argument() -> None:
    schema = {"type": "object", "properties": {"env": {"type": "string", "default": "prod"}}}
    assert BoundTool(external_tool("deploy", "", schema)).checked({}) == {"env": "prod"}
    schema["properties"]["env"]["default"] = None  # type: ignore[index]
    assert BoundTool(external_tool("deploy", "", schema)).checked({}) == {}


def test_raising_approval_rule_requires_approval_and_rules_get_copies_of_arguments() -> None:
    arguments = {"amount": [500]}
    assert tool(approval=lambda a: a["sum"] > 100)(plain).needs_approval(arguments)
    assert tool(approval=lambda a: a["amount"].pop() < 100)(plain).needs_approval(arguments) is False
    assert arguments == {"amount": [500]}


async def _async_rule(arguments: Any) -> bool:
    return False


def test_async_approval_rule_is_rejected_at_its_definition() -> None:
    with pytest.raises(InvalidInput, match="approval must be a plain function"):
        tool(approval=_async_rule)(plain)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"s": "a\0b"}, "U+0000"),
        ({"s": "a\ud800b"}, "surrogate"),
        ({"s": float("nan")}, "nan is not a number"),
        ({"s": [float("inf")]}, "inf is not a number"),
        ({"s\0": 1}, "U+0000"),
    ],
)
def test_unstorable_arguments_are_reported_as_invalid(given: Any, message: str) -> None:
    def echo(s: Any = "") -> None: ...

    for bound in (BoundTool(Tool("echo", echo)), BoundTool(external_tool("echo", ""))):
        with pytest.raises(BadArguments) as refused:
            bound.checked(given)
        assert message in refused.value.message
        refused.value.message.encode()


def _nan(value: Any) -> float:
    return float("nan")


def _raise(value: Any) -> Any:
    raise KeyError("no such thing")


def _one_more(value: int) -> int:
    return value + 1


@pytest.mark.parametrize(
    ("validator", "message"), [(_nan, "nan is not a number"), (_raise, "KeyError"), (_one_more, "make them idempotent")]
)
def test_any_failure_of_a_validator_is_reported_as_invalid_arguments(validator: Any, message: str) -> None:
    def echo(n: Any) -> None: ...

    echo.__annotations__["n"] = Annotated[int, AfterValidator(validator)]
    with pytest.raises(BadArguments, match=message):
        BoundTool(Tool("echo", echo)).checked({"n": 1})


async def test_mutated_arguments_do_not_reach_the_next_attempt() -> None:
    def take(items: list[Any], more: Any = None) -> int:
        more.clear()
        return len(items)

    bound = BoundTool(Tool("take", take))
    arguments = bound.checked({"items": [1], "more": [2]})
    await bound.call(CONTEXT, arguments, run_sync)
    assert arguments == {"items": [1], "more": [2]}


async def test_generator_returns_its_results_as_a_list() -> None:
    def count(a: int) -> Iterator[int]:
        yield from range(a)

    assert await call(count, a=3) == [0, 1, 2]


# ── Which parameters are the model's ──


def _optional(a: int, ctx: ToolContext | None = None) -> Any:
    return ctx and ctx.deps


def _annotated(a: int, ctx: Annotated[ToolContext, "the call"]) -> Any:
    return ctx.deps


def _both(a: int, ctx: Annotated[ToolContext, "the call"] | None = None) -> Any:
    return ctx and ctx.deps


@pytest.mark.parametrize("function", [_optional, _annotated, _both])
async def test_context_is_hidden_from_the_model_for_any_annotation(function: Any) -> None:
    bound = BoundTool(Tool("t", function))
    assert list(bound.spec.parameters["properties"]) == ["a"]  # type: ignore[arg-type]
    assert await bound.call(CONTEXT, bound.checked({"a": 1}), run_sync) == {"rate": 2}
    with pytest.raises(BadArguments, match="ctx"):
        bound.checked({"a": 1, "ctx": {"run_id": "r", "idempotency_key": "FAKE"}})


@dataclass
class Holds:
    ctx: ToolContext


def _in_a_list(ctx: list[ToolContext]) -> None: ...
def _or_a_number(ctx: ToolContext | int) -> None: ...
def _in_a_model(holder: Holds) -> None: ...
def _twice(one: ToolContext, two: ToolContext) -> None: ...
def _as_keywords(**ctx: ToolContext) -> None: ...
def _by_place(a: int, /) -> None: ...
def _any_number(*a: int) -> None: ...
def _unresolvable(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _no_schema(a: Callable[[], int]) -> None: ...
async def _one_by_one(a: int) -> AsyncIterator[int]:
    yield a


class Shop:
    def price(self, item: str) -> int:
        """Price."""
        return 3


REJECTED = [
    (_in_a_list, "part of another argument"), (_or_a_number, "part of another argument"), (_in_a_model, "part of another argument"),
    (_twice, "takes the ToolContext twice"), (_as_keywords, "as one parameter"),
    (_by_place, "by position only"), (_any_number, "by position only"), (_unresolvable, "cannot be resolved"),
    (_no_schema, "cannot be described"), (_one_by_one, "as a list"), (Shop.price, "a method of a class"),
    (tool(effect="transactional")(_not_async), "transactional tool must be an async function"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "message"), REJECTED)
def test_uncallable_function_is_rejected_at_the_definition_of_the_agent(made: Any, message: str) -> None:
    app = Heliograph("refuses")
    with pytest.raises(InvalidInput, match=message):
        app.prompt_agent("a", "x", model=ScriptedModel([]), tools=[made], activate_on=["workflow:start"])


def test_agent_with_a_name_too_long_for_a_tool_accepts_no_delegation() -> None:
    app = Heliograph("refuses")
    with pytest.raises(InvalidInput, match="at most 52 characters"):
        app.prompt_agent("a", "x", model=ScriptedModel([]), agents=["k" * 53], activate_on=["workflow:start"])
    app.prompt_agent("a", "x", model=ScriptedModel([]), agents=["k" * 52], activate_on=["workflow:start"])
