"""An application that passes numbers and objects through its state, a step, an output, a prompt and a tool, and prints how it read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heliograph import Context, Heliograph, tool
from heliograph.models import ScriptedModel, ToolCall
from heliograph.types import Json

# PostgreSQL writes the first ones as integers of up to 309 digits, and zero without its sign.
NUMBERS = [
    1e16, 1e22, 1e23, 1e300, -1e300, 1.7976931348623157e308, 12345678901234567890123.0, -0.0, 10**30, 2**63, 2**64, -(2**70), 60.0, 2.5,
    1e-7, 1e-300, 5e-324, 0.1 + 0.2,
]  # fmt: skip


def number_app(numbers: Sequence[float]) -> Heliograph:
    """Its objects have keys whose alphabetical order differs from that of the database, which is by length."""
    app = Heliograph("numbers")

    @tool(effect="pure")
    def measure(values: list[float]) -> dict[str, Any]:
        """Return what it reads."""
        return {"size": values, "as": repr(values)}

    @app.agent(activate_on=["workflow:start"], updates="value")
    async def first(ctx: Context) -> dict[str, Any]:
        measured = await ctx.step("measured", lambda: {"values": list(numbers), "it": 1})
        return {"value": list(numbers), "is": measured, "said": f"{measured} {ctx.state['numbers']}"}

    @app.agent(activate_on=["state:value:changed"], updates="thirds")
    async def second(ctx: Context) -> dict[str, Any]:
        read = ctx.state["value"]
        return {"values": [number / 3 for number in read["value"]], "of": str(read)}

    model = ScriptedModel([ToolCall("1", "measure", {"values": list(numbers)}), "measured"])
    app.prompt_agent("asker", "Measure {state.thirds} of {state.value}", model=model, tools=[measure],
                     activate_on=["state:thirds:changed"], updates="reply")  # fmt: skip
    return app


# The state and the reducer of each run, whose only agent but the printer returns 2.0.
IN_ANOTHER_FORM: dict[str, tuple[Json, Callable[[Any, Any], Any]]] = {
    "object": ({"total": 2, "pages": []}, lambda old, new: {**old, "total": new, "pages": [*old["pages"], 0]}),
    "large": ({"large": 1e300, "total": -0.0, "pages": [1]}, lambda old, new: {**old, "total": 0, "pages": [1, new]}),
    "deep": ({"a": {"b": [[2, 1]]}, "n": 0}, lambda old, new: {"a": {"b": [[new, 1]]}, "n": 1}),
    "list": ([2, 3], lambda old, new: [float(old[0]), *old[1:], new]),
    "end of a list": ([3, 2], lambda old, new: [old[0], float(old[1]), new]),
}


def form_app(form: str) -> Heliograph:
    """An application that changes the form of a number in its state beside something else, and then prints the value."""
    app = Heliograph("forms", reducers={"book": IN_ANOTHER_FORM[form][1]})

    @app.agent(activate_on=["workflow:start"], updates="book")
    async def writer(ctx: Context) -> float:
        return 2.0

    @app.agent(activate_on=["state:book:changed"], updates="said")
    async def printer(ctx: Context) -> str:
        return str(ctx.state["book"])

    return app
