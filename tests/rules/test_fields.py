from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.definitions.agent import define_agent
from heliograph.definitions.fields import TYPES, check_fields, problems_of
from heliograph.errors import InvalidInput
from tests.rules.reactive_kit import START, nothing

VALUES: dict[str, Any] = {"string": "a", "number": 1.5, "integer": 2, "boolean": True, "object": {}, "array": []}


@pytest.mark.proves("L0-85")
def test_fields_are_a_list_of_objects_and_required_by_default() -> None:
    fields = check_fields([{"name": "summary"}, {"name": "score", "type": "integer", "required": False}])
    assert fields == [{"name": "summary", "required": True}, {"name": "score", "type": "integer", "required": False}]
    assert define_agent("a", run=nothing, activate_on=START, result_fields=fields).result_fields == tuple(fields)


@pytest.mark.proves("L0-85")
@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ("summary", "wrong_type", "/result_fields"),
        ({"name": "summary"}, "wrong_type", "/result_fields"),
        (["summary"], "wrong_type", "/result_fields/0"),
        ([{}], "required_field", "/result_fields/0/name"),
        ([{"name": ""}], "required_field", "/result_fields/0/name"),
        ([{"name": "a"}, {"name": "b", "kind": "x"}], "unknown_field", "/result_fields/1"),
        ([{"name": "a", "type": "text"}], "invalid_enum", "/result_fields/0/type"),
        ([{"name": "a", "required": "yes"}], "wrong_type", "/result_fields/0/required"),
        ([{"name": "a"}, {"name": "a"}], "duplicate_entry", "/result_fields"),
        ([{"name": f"f{n}"} for n in range(101)], "too_long", "/result_fields"),
    ],
)
def test_impossible_fields_are_rejected_with_their_location(fields: Any, code: str, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_fields(fields)
    assert (caught.value.code, caught.value.path) == (code, path)
    with pytest.raises(InvalidInput) as caught:
        define_agent("a", run=nothing, activate_on=START, result_fields=fields)
    assert (caught.value.code, caught.value.path) == (code, "/agents/a/result_fields")


@pytest.mark.proves("L0-84", "L0-89")
def test_missing_required_field_is_named_and_a_missing_optional_one_is_not() -> None:
    fields = check_fields([{"name": "summary"}, {"name": "score"}, {"name": "note", "required": False}])
    assert problems_of(fields, {"score": 1}) == ["summary is missing"]
    assert problems_of(fields, {"score": 1, "summary": None}) == []
    assert problems_of(fields, "a text") == ["summary is missing", "score is missing"]


@pytest.mark.proves("L0-89")
@given(st.sampled_from(sorted(VALUES)), st.sampled_from(sorted(TYPES)))
def test_value_matches_its_type_and_an_integer_is_a_number(has: str, wanted: str) -> None:
    matches = has == wanted or (has, wanted) == ("integer", "number")
    assert (problems_of([{"name": "a", "type": wanted}], {"a": VALUES[has]}) == []) is matches
