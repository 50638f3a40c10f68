"""The converters and schemas of types: built once, also for a type that cannot be hashed."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel

from heliograph.definitions import forms


class Review(BaseModel):
    good: bool


def test_converter_and_schema_of_a_type_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, schema = forms.adapter_of("a form", Review, "/form"), forms.schema_of("a form", Review, "/form")
    monkeypatch.delattr("pydantic.TypeAdapter")
    assert forms.adapter_of("a form", Review, "/form") is adapter
    assert forms.schema_of("a form", Review, "/form") == schema


def test_change_of_a_returned_schema_does_not_change_the_next_one() -> None:
    forms.schema_of("a form", Review, "/form")["title"] = "changed"
    assert forms.schema_of("a form", Review, "/form")["title"] == "Review"


def test_type_that_cannot_be_hashed_has_a_converter_and_a_schema() -> None:
    kind = Annotated[int, ["a note"]]
    assert forms.schema_of("a form", kind, "/form") == {"type": "integer"}
    assert forms.adapter_of("a form", kind, "/form").validate_python("5") == 5
