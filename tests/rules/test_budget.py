"""Budgets as authors write them, and the bound of the cost of a model call."""

from __future__ import annotations

import math
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.definitions.agent import define_agent
from heliograph.definitions.budgets import amounts_of, check_budget, check_price, least_of
from heliograph.errors import InvalidInput
from heliograph.models import AssistantMessage, ModelRequest, ToolCall, ToolMessage, ToolSpec, UserMessage
from heliograph.turn.token_estimate import input_tokens_max
from tests.rules.reactive_kit import START, nothing

CALL = ToolCall("a", "find", {"q": "x" * 100})


@pytest.mark.proves("S12")
def test_budget_goes_to_the_kernel_in_whole_numbers_and_money_in_millionths() -> None:
    spec = define_agent("a", run=nothing, activate_on=START, budget={"tokens": 50_000, "usd": 2.5, "tool_calls": 0})
    assert spec.limits["budget"] == {"tokens": 50_000, "micros": 2_500_000, "tool_calls": 0}
    assert "budget" not in define_agent("a", run=nothing, activate_on=START).limits
    assert amounts_of({"usd": 0.1 + 0.2}) == {"micros": 300_000}


@pytest.mark.parametrize(
    ("budget", "code", "path"),
    [
        (5, "wrong_type", "/agents/a/budget"),
        ({}, "required_field", "/agents/a/budget"),
        ({"micros": 5}, "unknown_field", "/agents/a/budget"),
        ({"tokens": 1.5}, "wrong_type", "/agents/a/budget/tokens"),
        ({"tokens": -1}, "out_of_range", "/agents/a/budget/tokens"),
        ({"tokens": True}, "out_of_range", "/agents/a/budget/tokens"),
        ({"model_calls": "5"}, "out_of_range", "/agents/a/budget/model_calls"),
        ({"tokens": 10**16}, "out_of_range", "/agents/a/budget/tokens"),
        ({"usd": math.nan}, "out_of_range", "/agents/a/budget/usd"),
        ({"usd": math.inf}, "out_of_range", "/agents/a/budget/usd"),
        ({"usd": 10**10}, "out_of_range", "/agents/a/budget/usd"),
    ],
)
def test_invalid_budget_is_rejected_with_its_location(budget: Any, code: str, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        define_agent("a", run=nothing, activate_on=START, budget=budget)
    assert (caught.value.code, caught.value.path) == (code, path)
    assert "agent a: budget" in caught.value.message


@pytest.mark.parametrize(
    "price", [3, {}, {"input": 3}, {"input": 3, "output": -1}, {"input": "3", "output": 1}], ids=str
)
def test_invalid_price_is_rejected(price: Any) -> None:
    with pytest.raises(InvalidInput, match="agent a: price"):
        define_agent("a", prompt="x", activate_on=START, price=price)


@pytest.mark.parametrize("options", [{"price": {"input": 1, "output": 1}}, {"max_output_tokens": 5}], ids=str)
def test_model_budget_is_rejected_for_a_function(options: Any) -> None:
    with pytest.raises(InvalidInput, match="for agents with a model"):
        define_agent("a", run=nothing, activate_on=START, **options)


def test_budget_is_copied_and_the_smallest_amount_of_each_kind_applies() -> None:
    given_budget = {"tokens": 5}
    checked = check_budget(given_budget)
    given_budget["tokens"] = 6
    assert checked == {"tokens": 5}
    assert least_of(None, {"tokens": 5, "micros": 1}, {"tokens": 3, "tool_calls": 2}) == {
        "micros": 1, "tokens": 3, "tool_calls": 2,
    }  # fmt: skip
    assert least_of(None, None) is None
    assert check_price({"input": 3, "output": 15.0}, "a price", "/price") == (3.0, 15.0)


# ── Cost of a model call ──────────────────────────────────────────────────────────────────────


@pytest.mark.proves("S12")
@given(st.text(), st.text())
def test_each_byte_that_a_model_gets_may_be_a_token(prompt: str, system: str) -> None:
    request = ModelRequest((UserMessage(prompt),), system=system)
    assert input_tokens_max(request) >= len(
        prompt.encode("utf-8", "surrogatepass") + system.encode("utf-8", "surrogatepass")
    )


class Form(pydantic.BaseModel):
    """A form."""

    name: str


@pytest.mark.parametrize(
    ("more", "least"),
    [
        (ModelRequest((UserMessage("x"), AssistantMessage("y" * 50, (CALL,)))), 150),
        (ModelRequest((UserMessage("x"), AssistantMessage("", (), {"signed": "z" * 300}))), 300),
        (ModelRequest((UserMessage("x"), ToolMessage("a", "find", {"found": "w" * 80}))), 80),
        (ModelRequest((UserMessage("x"),), tools=(ToolSpec("find", "d" * 40, {"type": "object"}),)), 640),
        (ModelRequest((UserMessage("x"),), output=Form), 650),
    ],
)
def test_input_bound_counts_system_prompt_tools_and_messages(more: ModelRequest, least: int) -> None:
    assert input_tokens_max(more) - input_tokens_max(ModelRequest((UserMessage("x"),))) >= least
