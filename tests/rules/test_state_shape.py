import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field
from typing_extensions import TypedDict

from heliograph.errors import InvalidInput
from heliograph.reactive.state import StateShape
from heliograph.signals.values import to_json
from tests.rules.reactive_kit import START, agent, workflow


class Colour(enum.Enum):
    RED = "red"


class Note(BaseModel):
    text: str = ""


class Frozen(BaseModel, frozen=True):
    n: int


class Tags(BaseModel):
    tags: set[str] = set()


@dataclass
class Tagged:
    deep: list[Tags] = field(default_factory=list)
    pairs: frozenset[tuple[int, str]] = frozenset()
    anything: Any = None


class Model(BaseModel):
    topic: str = "none"
    notes: list[Note] = []
    extra: dict[str, Any] = {}


@dataclass
class Data:
    topic: str = "none"
    notes: list[str] = field(default_factory=list)


class Typed(TypedDict, total=False):
    topic: str
    notes: list[str]


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")
    topic: str = Field(default="none", alias="theTopic")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def length(self) -> int:
        return len(self.topic)


KINDS = [Model, Data, Typed, None]


@pytest.mark.parametrize("kind", KINDS)
def test_document_loads_as_its_type_and_dumps_unchanged(kind: Any) -> None:
    shape = StateShape(kind)
    document = shape.dump({"topic": "t", "notes": []})
    assert shape.dump(shape.load(document)) == document
    assert document["topic"] == "t"


def test_typed_state_adds_its_defaults_and_lists_its_keys() -> None:
    assert StateShape(Model).dump({}) == {"topic": "none", "notes": [], "extra": {}}
    assert StateShape(Model).keys == frozenset({"topic", "notes", "extra"})
    assert StateShape(Data).keys == StateShape(Typed).keys == frozenset({"topic", "notes"})
    assert StateShape(None).keys is None


def test_state_may_be_an_object_of_its_type() -> None:
    assert StateShape(Model).dump(Model(topic="t", notes=[Note(text="n")]))["notes"] == [{"text": "n"}]
    assert StateShape(Data).dump(Data("t", ["n"])) == {"topic": "t", "notes": ["n"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", ["text", 5, ["topic"], Note(text="another model"), object()])
def test_state_that_does_not_match_its_type_is_rejected(kind: Any, state: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        StateShape(kind).dump(state)
    assert (caught.value.code, caught.value.path) == ("invalid_state", "/state")


def test_every_invalid_field_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        StateShape(Model).load({"topic": 5, "notes": [{"text": []}]})
    assert "/topic" in caught.value.message
    assert "/notes/0/text" in caught.value.message


@pytest.mark.parametrize("kind", [object(), type("Plain", (), {})])
def test_invalid_state_type_is_rejected_at_the_definition(kind: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        workflow(agent("a", START), state=kind)
    assert (caught.value.code, caught.value.path) == ("wrong_type", "/state")


def _append_to_document(state: Any) -> None:
    state["notes"].append("mine")


def _append_to_any(state: Any) -> None:
    state.extra["deep"].append("mine")


@pytest.mark.parametrize(
    ("kind", "document", "change"),
    [
        (None, {"notes": ["first"]}, _append_to_document),
        (Typed, {"topic": "t", "notes": ["first"]}, _append_to_document),
        (Model, {"topic": "t", "notes": [], "extra": {"deep": ["first"]}}, _append_to_any),
    ],
)
def test_changing_a_loaded_state_changes_nothing_else(
    kind: Any, document: dict[str, Any], change: Callable[[Any], None]
) -> None:
    before = repr(document)
    change(StateShape(kind).load(document))
    assert repr(document) == before


def test_keys_of_a_document_are_field_names_never_aliases_or_computed_fields() -> None:
    shape = StateShape(Aliased)
    for given_state in ({"theTopic": "t"}, {"topic": "t"}, Aliased(theTopic="t")):
        assert shape.dump(given_state) == {"topic": "t"}
    assert shape.load({"topic": "t"}).length == 1


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Note(text="n"), {"text": "n"}),
        (Data("t"), {"topic": "t", "notes": []}),
        (date(2030, 1, 2), "2030-01-02"),
        (Colour.RED, "red"),
        ((1, 2), [1, 2]),
        ({"k": (1,)}, {"k": [1]}),
        (b"bytes", "bytes"),
        ({"b", "a", 1, None}, ["a", "b", 1, None]),
        ([{frozenset({"b", "a"}), frozenset()}], [[["a", "b"], []]]),
        ({Frozen(n=2), Frozen(n=1)}, [{"n": 1}, {"n": 2}]),
        (None, None),
    ],
)
def test_python_values_become_json(value: Any, written: Any) -> None:
    assert to_json(value) == written


@pytest.mark.proves("S11", "S16")
@pytest.mark.parametrize(
    ("value", "code"),
    [
        (object(), "not_json"),
        ({"f": lambda: None}, "not_json"),
        (float("nan"), "json_non_finite"),
        ({"x": [float("inf")]}, "json_non_finite"),
        ("a\0b", "nul_character"),
        ({"a\0b": 1}, "nul_character"),
        pytest.param("\ud800", "invalid_unicode", id="surrogate"),
        pytest.param(10**5000, "number_too_large", id="5001 digits"),
    ],
)
def test_unstorable_value_is_rejected_by_name(value: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        to_json(value, "/output")
    assert caught.value.code == code


def test_self_referencing_value_is_rejected_without_endless_recursion() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(InvalidInput):
        to_json(ring)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from("abc"), JSON))
def test_any_json_object_is_a_state_without_a_type(document: dict[str, Any]) -> None:
    shape = StateShape(None)
    assert shape.dump(shape.load(document)) == document


def test_standard_library_typed_dict_is_a_state_type() -> None:
    import typing  # the rest of this file is about the other one

    class Part(typing.TypedDict):
        count: int

    class Whole(typing.TypedDict, total=False):
        parts: list[Part]
        either: Part | None

    shape = StateShape(Whole)
    assert shape.keys == frozenset({"parts", "either"})
    assert shape.dump({"parts": [{"count": 2}]}) == {"parts": [{"count": 2}]}
    with pytest.raises(InvalidInput, match="parts/0/count"):
        shape.dump({"parts": [{"count": "many"}]})


WORDS = [f"word {n}" for n in range(50)]


def test_sets_are_written_in_a_fixed_order() -> None:
    """A set has another order in each process; a key that did not change must not look as if it had."""
    shape = StateShape(Tagged)
    pairs = {(n % 3, word) for n, word in enumerate(WORDS)}
    document = shape.dump(Tagged([Tags(tags=set(WORDS))], frozenset(pairs), {"k": set(WORDS)}))
    assert document == {
        "deep": [{"tags": sorted(WORDS)}],
        "pairs": sorted([list(pair) for pair in pairs]),
        "anything": {"k": sorted(WORDS)},
    }
    assert shape.dump(shape.load(document)) == document


class Objects(BaseModel):
    parts: set[Frozen] = set()


def test_set_of_objects_is_rejected_with_an_alternative() -> None:
    with pytest.raises(InvalidInput, match="give a list instead") as caught:
        StateShape(Objects).dump({"parts": [{"n": 1}]})
    assert caught.value.code == "not_json"


class Stamped(BaseModel):
    topic: str = "none"
    tags: set[str] = set()
    at: float = Field(default_factory=count(1).__next__)
    notes: list[Note] = []


@pytest.mark.parametrize(
    ("kind", "state", "given"),
    [
        (None, {"b": 1, "a": {2, 1}}, {"b": 1, "a": [1, 2]}),
        (Stamped, {}, {}),
        (Stamped, {"topic": "t"}, {"topic": "t"}),
        (Stamped, {"tags": set(WORDS)}, {"tags": sorted(WORDS)}),
        (Stamped, {"notes": [Note(text="n")]}, {"notes": [{"text": "n"}]}),
        (Tagged, {"deep": [Tags(tags=set(WORDS))]}, {"deep": [{"tags": sorted(WORDS)}]}),
        (Stamped, Stamped(at=7), {"topic": "none", "tags": [], "at": 7, "notes": []}),
        (Objects, {"parts": [Frozen(n=1)] * 0}, {"parts": []}),
    ],
)
def test_given_state_has_a_canonical_form(kind: Any, state: Any, given: Any) -> None:
    assert StateShape(kind).as_given(state) == given
