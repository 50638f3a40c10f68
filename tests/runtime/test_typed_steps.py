"""Steps return their results as the types that their functions are annotated to return, on each run of the turn."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from pydantic import BaseModel

from heliograph import Context, Heliograph, Step, tool
from heliograph.errors import InvalidInput, ToolFailed
from heliograph.execution.typed_results import result_type_of
from tests.runtime.kit import START, Rig, one

if TYPE_CHECKING:
    from decimal import Decimal


class Order(BaseModel):
    item: str
    due: date


@dataclass
class Price:
    euros: float


async def order(item: str, *, due: date) -> Order:
    return Order(item=item, due=due)


def price(found: Order, discount: float = 0.0) -> Price:
    return Price(40.0 - discount)


def wrong() -> int:
    return "many"  # type: ignore[return-value]


async def test_step_returns_the_type_of_its_function_in_each_run(rig: Rig) -> None:
    runs: list[Any] = []
    app = Heliograph("typed")

    @app.agent(activate_on=START, updates="out")
    async def shop(ctx: Context) -> str:
        found = await ctx.step("order", order, "lamp", due=date(2026, 1, 2))
        costs = await ctx.step(Step("price", effect="pure"), price, found, discount=2)
        with pytest.raises(ToolFailed) as raised:
            await ctx.step("wrong", wrong)
        runs.append((found, costs, raised.value.code, await ctx.step("plain", lambda: {"due": found.due})))
        return str(await ctx.call("ship"))

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("ship")
        await command.report(result="sent")
        signals = await rig.ended(run_id)
    expected = (Order(item="lamp", due=date(2026, 1, 2)), Price(38.0), "result_schema", {"due": "2026-01-02"})
    assert runs == [expected, expected]
    assert one(signals, "workflow:end")["state"]["out"] == "sent"


def _later() -> Awaitable[Order]:
    raise NotImplementedError


def _never() -> NoReturn:
    raise NotImplementedError


def _unknown(amount: Decimal) -> Decimal:
    raise NotImplementedError


def _known(amount: Decimal) -> int:
    raise NotImplementedError


@tool
def _tool() -> Order:
    raise NotImplementedError


class _Callable:
    def __call__(self) -> Price:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (order, Order), (partial(order, "lamp"), Order), (_later, Order), (_tool, Order), (_Callable(), Price), (str, str),
        (_known, int), (_never, Any), (len, Any), (lambda: 1, Any), ([].append, Any),
    ],
)  # fmt: skip
def test_type_of_a_result_is_that_of_the_annotation(function: Any, kind: Any) -> None:
    assert result_type_of(function, "the function") == kind


def test_type_that_cannot_be_resolved_or_built_is_rejected_before_the_effect() -> None:
    def connect() -> _Callable:
        raise NotImplementedError

    for function, text in (
        (_unknown, "define or import it in the module"),
        (connect, "must be a type that pydantic can build"),
    ):
        with pytest.raises(InvalidInput, match=text):
            result_type_of(function, "the function of step 'a'")
