"""Definitions of signals: payloads as JSON and as models, places of problems, and no payload in any message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_type

import pydantic
import pytest

from heliograph import Context, Heliograph, Signal, define_signal
from heliograph.cli.signal_catalog import application_catalog
from heliograph.client.arguments import check_message
from heliograph.definitions.signal_definition import SignalDefinition
from heliograph.errors import AgentFailed, InvalidInput, Rejected, SetupError
from tests.rules.reactive_kit import START, Run, agent, workflow

CANARY = "canary-7c1f"


class Line(pydantic.BaseModel):
    sku: str
    count: int = 1


class Order(pydantic.BaseModel):
    number: str
    lines: list[Line] = []
    weights: dict[str, int] = {}
    kind: Literal["new", "old"] = "new"
    note: int | Line | None = None


@dataclass
class Refund:
    amount: int


class Note(TypedDict):
    text: str


PLACED = define_signal("order:placed", Order, description="A customer placed an order.")
REFUNDED = define_signal("order:refunded", Refund, version="2")
NOTED = define_signal("order:noted", Note)


def test_payload_is_recorded_with_its_defaults_and_read_as_its_type() -> None:
    assert PLACED.dump({"number": "o1", "lines": [{"sku": "a"}]}) == {
        "number": "o1", "lines": [{"sku": "a", "count": 1}], "weights": {}, "kind": "new", "note": None,
    }  # fmt: skip
    assert PLACED.dump(Order(number="o1")) == PLACED.dump({"number": "o1"})
    assert PLACED.load({"number": "o1", "added_later": True}) == Order(number="o1")
    assert REFUNDED.load(REFUNDED.dump(Refund(5))) == Refund(5)
    assert NOTED.load(NOTED.dump({"text": "x"})) == {"text": "x"}


@pytest.mark.parametrize(
    ("payload", "path", "code"),
    [
        ({"number": CANARY, "lines": [{"sku": "a", "count": CANARY}]}, "/payload/lines/0/count", "invalid_payload"),
        ({"lines": [{"sku": CANARY}]}, "/payload/number", "invalid_payload"),
        ({"number": "o1", "weights": {CANARY: CANARY}}, "/payload/weights/*", "invalid_payload"),
        ({"number": "o1", CANARY: 1}, "/payload/*", "invalid_payload"),
        ({"number": "o1", "kind": CANARY}, "/payload/kind", "invalid_payload"),
        ({"number": "o1", "note": {"sku": [CANARY]}}, "/payload/note", "invalid_payload"),
        (CANARY, "/payload", "invalid_payload"),
        (None, "/payload", "invalid_payload"),
        ({"number": "o1", "note": object()}, "/payload", "not_json"),
        ({"number": f"{CANARY}\0"}, "/payload/number", "nul_character"),
        ({"number": "o1", "weights": {f"{CANARY}\0": 1}}, "/payload/weights/*", "nul_character"),
    ],
)  # fmt: skip
def test_payload_of_another_form_is_rejected_with_its_place_and_without_its_content(
    payload: Any, path: str, code: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        PLACED.dump(payload)
    assert (caught.value.path, caught.value.code) == (path, code)
    assert "signal order:placed" in caught.value.message
    assert "helio signal catalog" in caught.value.message
    assert CANARY not in str(caught.value.envelope())
    assert caught.value.__cause__ is None


class Checked(pydantic.BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def _known(cls, value: str) -> str:
        return {"a": "b"}[value]  # KeyError quotes the value

    @pydantic.field_serializer("text")
    def _short(self, value: str) -> str:
        return {"b": "a"}[value]


def test_validator_that_raises_anything_is_a_problem_of_the_payload_and_quotes_none_of_it() -> None:
    checked = define_signal("order:checked", Checked)
    assert checked.dump({"text": "a"}) == {"text": "a"}
    for use in (lambda: checked.dump({"text": CANARY}), lambda: checked.load({"text": CANARY}),
                lambda: checked.dump(Checked.model_construct(text=CANARY))):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            use()
        assert CANARY not in str(caught.value.envelope())
        assert caught.value.__cause__ is None


def test_object_that_was_changed_after_its_validation_is_validated_again() -> None:
    order = Order(number="o1")
    order.number = 5  # type: ignore[assignment]
    with pytest.raises(InvalidInput):
        PLACED.dump(order)


def test_payload_beyond_the_limit_is_rejected() -> None:
    with pytest.raises(InvalidInput) as caught:
        PLACED.dump({"number": "x" * 70_000})
    assert caught.value.code == "payload_too_large"


class WithSecret(pydantic.BaseModel):
    token: pydantic.SecretStr


def test_definition_that_cannot_work_is_rejected() -> None:
    for name, kind, code in (
        ("a b", Order, "invalid_character"),
        ("a:b", Heliograph, "wrong_type"),
        ("a:b", WithSecret, "lossy_payload"),
    ):
        with pytest.raises(InvalidInput) as caught:
            define_signal(name, kind)
        assert caught.value.code in (code, "invalid_signal_name")
    with pytest.raises(Rejected, match="reserved"):
        define_signal("agent:mine", Order)
    with pytest.raises(InvalidInput, match="description"):
        define_signal("a:b", Order, description="x" * 10_000)


def other_definition(**changed: Any) -> SignalDefinition[Any]:
    given: dict[str, Any] = {"payload": Order, "description": "A customer placed an order.", **changed}
    return define_signal("order:placed", given.pop("payload"), **given)


def test_definitions_of_one_name_that_differ_are_an_error_that_names_both_places() -> None:
    workflow(agent("a", START, emits=[PLACED]), agent("b", [other_definition()]))
    for changed in ({"payload": Refund}, {"version": "2"}, {"description": ""}):
        with pytest.raises(SetupError) as caught:
            workflow(agent("a", START, emits=[PLACED]), agent("b", [other_definition(**changed)]))
        assert caught.value.code == "conflicting_definitions"
        assert caught.value.message.count(__name__) == 2
        assert PLACED.place in caught.value.message


def test_guards_and_reducers_receive_the_model() -> None:
    seen: list[Any] = []

    def when(_state: Any, signal: Any) -> bool:
        seen.append(signal.payload)
        return bool(signal.payload.amount > 3)

    def reduce(old: Any, new: Refund) -> Any:
        seen.append(new)
        return [*(old or []), new]

    run = Run(
        workflow(
            agent("clerk", START, emits=[REFUNDED], updates="refunds"),
            agent("bank", [REFUNDED], when=when),
            reducers={"refunds": reduce},
        )
    )
    run.end("clerk", {"amount": 5})
    assert seen == [Refund(5), Refund(5)]
    assert run.view.state == {"refunds": [{"amount": 5}]}
    assert [s.payload for s in run.signals if s.name == "order:refunded"] == [{"amount": 5}]
    assert [turn.agent for turn in run.open.values()] == ["bank"]


def test_output_that_does_not_match_the_definition_fails_its_turn_and_a_partial_one_emits_nothing() -> None:
    definition = workflow(agent("clerk", START, emits=[REFUNDED, "clerk:done"]))
    with pytest.raises(AgentFailed) as caught:
        Run(definition).end("clerk", {"amount": CANARY})
    assert "signal order:refunded" in caught.value.message
    assert CANARY not in caught.value.message
    run = Run(definition)
    run.end("clerk", "the first half", outcome="partial")
    assert [s.name for s in run.signals if s.name.startswith(("order", "clerk"))] == ["clerk:done"]


def test_catalog_of_an_application_lists_definitions_and_names_without_one() -> None:
    found = application_catalog(workflow(agent("a", START, emits=[PLACED, "a:done"]), agent("b", ["order:*"])))
    assert [(e["name"], e["version"], e["emitted_by"], e["activates"]) for e in found] == [
        ("a:done", None, ["a"], []),
        ("order:placed", "1", ["a"], ["b"]),
    ]
    assert found[1]["payload"] == PLACED.schema
    assert found[1]["description"] == "A customer placed an order."


def test_signal_of_another_name_has_no_such_payload() -> None:
    with pytest.raises(InvalidInput, match="order:refunded is not order:placed"):
        PLACED.payload_of(type("S", (), {"name": "order:refunded", "payload": {}}))


def types_that_checkers_see(ctx: Context, signal: Signal) -> None:
    """Checked by `make types`, not run."""
    assert_type(PLACED, SignalDefinition[Order])
    assert_type(PLACED.payload_of(signal), Order)
    assert_type(NOTED.load(None), Note)
    ctx.emit(PLACED, Order(number="o1"))
    ctx.emit(REFUNDED, Order(number="o1"))  # type: ignore[misc]
    ctx.emit("any:name", {"text": 1})
    Heliograph("a").agent(activate_on=[PLACED, "order:*"], emits=[REFUNDED])


def test_message_with_a_definition_has_its_name_and_a_checked_payload() -> None:
    assert check_message(PLACED, Order(number="o1")) == ("order:placed", PLACED.dump({"number": "o1"}))
    assert check_message("order:placed", {"number": 5}) == ("order:placed", {"number": 5})
    with pytest.raises(InvalidInput) as caught:
        check_message(PLACED, {"number": [CANARY]})
    assert (caught.value.path, CANARY in caught.value.message) == ("/payload/number", False)


class Free(pydantic.BaseModel, extra="allow"):
    sku: str


class Basket(pydantic.BaseModel):
    item: Free


def test_keys_that_a_type_within_the_payload_allows_are_kept() -> None:
    filled = define_signal("order:filled", Basket)
    payload: Any = {"item": {"sku": "a", "color": "red"}}
    assert filled.dump(payload) == payload == filled.dump(filled.load(payload))
