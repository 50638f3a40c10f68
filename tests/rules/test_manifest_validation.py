"""Validation against JSON Schemas: codes, places, nearest names, alternatives, and references that are never fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import InvalidInput
from heliograph.manifest.problems import ManifestProblem, ManifestRejected
from heliograph.manifest.runtime_spec import read_runtime_spec
from heliograph.manifest.schema_descriptions import described, properties_with_places, schema_text
from heliograph.manifest.schemas import KINDS, schema_of_kind
from heliograph.manifest.validation import validate
from tests.rules.manifest_kit import RUNTIME, parse, rejected


def problems_under(schema: dict[str, Any], text: str) -> list[tuple[str, str, str]]:
    return [(each.code, each.pointer, each.hint) for each in validate(parse(text), schema, name="the test")]


@pytest.mark.proves("G-32")
@pytest.mark.parametrize("kind", KINDS)
def test_schema_describes_every_property_and_is_itself_valid(kind: str) -> None:
    own, schema = schema_of_kind(kind), json.loads(schema_text(kind))
    assert jsonschema_rs.meta.is_valid(schema)
    assert schema["title"] in (kind, "Agent")
    assert schema["description"]
    found = [(path, node.get("description", "")) for node, path, _ in properties_with_places(schema)]
    assert [path for path, text in found if not text.endswith(".") or len(text) < 10] == []
    assert len(found) > 20
    if kind in ("MessageRouting", "RuntimeSpec"):
        assert own == schema
        assert "metadata" not in schema["required"]


def test_descriptions_name_the_effect_of_a_property() -> None:
    agent, newer = described(schema_of_kind("Agent")), described(schema_of_kind("Agent-v0.5"))
    texts = {path: node["description"] for schema in (agent, newer) for node, path, _ in properties_with_places(schema)}
    assert (
        texts["/extensions/dify/retrieval_config/top_k"]
        == "The number of best results. No effect in Heliograph: it is for another runtime."
    )
    assert texts["/extensions/dify"] == "Dify, of extensions. No effect in Heliograph: it is for another runtime."
    assert texts["/extensions/openai_swarm/handoff_config/allow_cycles"].startswith(
        "Allow cycles, of handoff config: true or false. No"
    )
    assert texts["/metadata/catalog/tags"] == "Words for searching. People read it; Heliograph does not."
    assert texts["/spec/constraints/cost"].startswith("Cost, of constraints. Carried out in part: of constraints, ")
    assert texts["/spec/steps/timeout_seconds"].startswith("The timeout of the call")
    assert (
        texts["/spec/nodes/id"] == "The identifier of nodes. No effect in Heliograph: a flow is validated, and not run."
    )
    assert texts["/protocols/mcp/role"].startswith("With client or both")
    assert (
        "description"
        not in schema_of_kind("Agent")["definitions"]["Metadata"]["properties"]["catalog"]["properties"]["tags"]
    )


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"required": ["name"]}, "a: 1", [("required_field", "/name", "add it")]),
        ({"properties": {"activateOn": {}}, "additionalProperties": False}, "activate_on: 1", [("unknown_field", "/activate_on", "did you mean activateOn?")]),
        ({"properties": {"a": {"type": "string"}}}, "a: 12", [("wrong_type", "/a", "quote it")]),
        ({"properties": {"a": {"type": "string"}}}, "a: false", [("wrong_type", "/a", "quote it")]),
        ({"properties": {"a": {"type": ["array", "object"]}}}, "a: x", [("wrong_type", "/a", "write a list or an object")]),
        ({"properties": {"a": {"maximum": 5}}}, "a: 6", [("out_of_range", "/a", "correct the value")]),
        ({"properties": {"a": {"maxLength": 2}}}, "a: abc", [("out_of_range", "/a", "correct the value")]),
        ({"properties": {"a": {"pattern": "^x"}}}, "a: abc", [("invalid_format", "/a", "correct the value")]),
        ({"properties": {"a": {"pattern": "^x", "x-code": "my_code", "examples": ["xy"]}}}, "a: abc", [("my_code", "/a", "write xy, for example")]),
        ({"properties": {"a": {"format": "uri"}}}, "a: '::'", [("invalid_format", "/a", "correct the value")]),
        ({"properties": {"a": {"uniqueItems": True}}}, "a: [1, 1]", [("duplicate_item", "/a", "correct the value")]),
        ({"properties": {"a": False}}, "a: 1", [("not_allowed", "/a", "correct the value")]),
        ({"propertyNames": {"pattern": "^[a-z]+$"}}, "A1: 1", [("invalid_identifier", "/A1", "rename the key")]),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"properties": {"colour": {}}, "additionalProperties": False}}},
         "a: {color: 1}", [("unknown_field", "/a/color", "did you mean colour?")]),
        ({"properties": {"a": {"const": "x"}}}, "a: y", [("invalid_enum", "/a", "write x")]),
    ],
)  # fmt: skip
def test_each_keyword_has_a_code_a_place_and_a_next_step(
    schema: dict[str, Any], text: str, expected: list[tuple[str, str, str]]
) -> None:
    assert problems_under(schema, text) == expected


TOOL = {
    "oneOf": [
        {"type": "string"},
        {"type": "object", "properties": {"type": {"const": "mcp"}, "server": {"type": "string"}}, "required": ["type", "server"], "additionalProperties": False},
        {"type": "object", "properties": {"type": {"const": "http"}, "url": {"type": "string"}}, "required": ["type", "url"], "additionalProperties": False},
    ]
}  # fmt: skip


def test_problems_of_alternatives_are_those_of_the_nearest_one() -> None:
    schema = {"properties": {"tools": {"items": TOOL}}}
    assert problems_under(schema, "tools: [{type: http, uri: x}]") == [
        ("unknown_field", "/tools/0/uri", "did you mean url?")
    ]
    assert problems_under(schema, "tools: [x, {type: mcp}]") == [("required_field", "/tools/1/server", "add it")]
    assert problems_under(schema, "tools: [7]") == [("wrong_type", "/tools/0", "quote it")]


def test_references_to_other_documents_are_not_fetched() -> None:
    with pytest.raises(InvalidInput) as caught:
        validate(parse("a: 1"), {"$ref": "http://127.0.0.1:9/schema.json"}, name="the test")
    assert caught.value.code == "invalid_schema"


def test_cycle_of_references_ends() -> None:
    schema = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"properties": {"a": {"$ref": "#/$defs/a"}}, "additionalProperties": False}},
    }
    assert problems_under(schema, "a: {a: {b: 1}}") == [("unknown_field", "/a/a/b", "its fields are a")]


def numbers_of(
    schema: dict[str, Any], pointer: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The numbers of the RuntimeSpec, each with its keys."""
    spec = schema_of_kind("RuntimeSpec")
    for key, each in schema.get("properties", {}).items():
        target = spec["$defs"][each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        if target.get("type") in ("number", "integer"):
            yield (*pointer, key), target
        yield from numbers_of(target, (*pointer, key))


CONSTANT = ("halt", "timeout_seconds")
NUMBERS = [each for each in numbers_of(schema_of_kind("RuntimeSpec")) if each[0][-2:] != CONSTANT]


@pytest.mark.parametrize(
    ("keys", "number"), NUMBERS, ids=lambda value: ".".join(value) if isinstance(value, tuple) else ""
)
def test_bounds_of_the_schema_are_those_of_the_settings(keys: tuple[str, ...], number: dict[str, Any]) -> None:
    """The parsers accept the smallest and the largest number that the schema accepts, and the schema rejects all others."""
    step = 1 if number["type"] == "integer" else 0.0001
    least = number.get("minimum", number.get("exclusiveMinimum", 0) + step)
    assert loads(keys, least)
    assert loads(keys, number["maximum"])
    assert not loads(keys, least - 2 * step)
    assert not loads(keys, number["maximum"] + 1)


COMPANIONS: dict[str, dict[str, Any]] = {
    "success_threshold": {"half_open_max_calls": 1000}, "half_open_max_calls": {"success_threshold": 1},
    "terminate.timeout_seconds": {"force_after_seconds": 31_622_400}, "retry_count": {"error_code": "X"},
}  # fmt: skip


def loads(keys: tuple[str, ...], number: float) -> bool:
    companions = COMPANIONS.get(".".join(keys[-2:]), COMPANIONS.get(keys[-1], {}))
    value: Any = {keys[-1]: number, **companions}
    for key in reversed(keys[:-1]):
        value = {key: value}
    problems = problems_of({"apiVersion": "ossa/v0.4.9", "kind": "RuntimeSpec", **value})
    assert {each.code for each in problems} <= {"out_of_range"}, list(map(str, problems))
    return not problems


def problems_of(value: dict[str, Any]) -> tuple[ManifestProblem, ...]:
    try:
        read_runtime_spec(parse(json.dumps(value), "m.json"))
    except ManifestRejected as error:
        return error.problems
    return ()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
    st.sampled_from(["lifecycle", "phases", "act", "timeout_seconds", "control_signals", "tool_call", "retry", "observability", "tracing", "x"]),
    inner, max_size=3), max_leaves=10))  # fmt: skip
@pytest.mark.more
def test_any_value_is_loaded_or_rejected_with_places(value: Any) -> None:
    content = value if isinstance(value, dict) else {"lifecycle": value}
    problems = problems_of({"apiVersion": "ossa/v0.4.9", "kind": "RuntimeSpec", **content})
    assert all(each.line >= 1 and each.hint and each.code for each in problems)


@pytest.mark.parametrize(
    "text", ["kind: *x\n", "*x : 2\n", "lifecycle: {max_iterations: *x}\n", "? *x\n: {a: [1]}\n", "lifecycle: *x\n"]
)
def test_alias_is_one_problem_and_its_missing_value_is_none(text: str) -> None:
    head = RUNTIME.replace("kind: RuntimeSpec\n", "") if text.startswith("kind") else RUNTIME
    assert [each.code for each in rejected(head + text)] == ["yaml_aliases_not_allowed"]
